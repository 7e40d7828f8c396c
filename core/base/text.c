/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define _GNU_SOURCE /* strtod_l */

#include "base/text.h"

#include <locale.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic(locale_t) c_locale;

/* The locale "C" always exists and costs no memory, so several threads may
 * create it at once. */
static locale_t plain_locale(void)
{
    locale_t locale = atomic_load_explicit(&c_locale, memory_order_acquire);

    if (!locale) {
        locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        atomic_store_explicit(&c_locale, locale, memory_order_release);
    }
    return locale;
}

int core__format_list(char *text, size_t size, const char *format,
                      va_list arguments)
{
    locale_t before = uselocale(plain_locale());
    int length = vsnprintf(text, size, format, arguments);

    uselocale(before);
    return length;
}

int core__format(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = core__format_list(text, size, format, arguments);
    va_end(arguments);
    return length;
}

double core__parse_double(const char *text, char **out_end)
{
    return strtod_l(text, out_end, plain_locale());
}

float core__parse_float(const char *text, char **out_end)
{
    return strtof_l(text, out_end, plain_locale());
}

size_t core__utf8_sequence(const char *at, size_t size)
{
    const unsigned char *text = (const unsigned char *)at;
    size_t length = text[0] < 0x80   ? 1
                    : text[0] < 0xc2 ? 0
                    : text[0] < 0xe0 ? 2
                    : text[0] < 0xf0 ? 3
                    : text[0] < 0xf5 ? 4
                                     : 0;

    if (length > size)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((text[0] == 0xe0 && text[1] < 0xa0) || /* overlong */
        (text[0] == 0xed && text[1] > 0x9f) || /* surrogates */
        (text[0] == 0xf0 && text[1] < 0x90) || /* overlong */
        (text[0] == 0xf4 && text[1] > 0x8f))   /* beyond U+10FFFF */
        return 0;
    return length;
}

const char *core__sizes_text(uint32_t ndim, const int64_t *sizes, char *text,
                             size_t size)
{
    size_t used = 0;

    if (size == 0)
        return text;
    text[0] = 0;
    for (uint32_t i = 0; i <= ndim && used < size; i++) {
        int written = i == ndim
                          ? snprintf(text + used, size - used, "%s]",
                                     ndim == 0 ? "[" : "")
                          : snprintf(text + used, size - used, "%s%lld",
                                     i == 0 ? "[" : ", ", (long long)sizes[i]);

        used += written > 0 ? (size_t)written : 0;
    }
    return text;
}
