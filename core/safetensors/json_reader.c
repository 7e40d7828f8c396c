/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The JSON reader for headers and indexes. */

#include "safetensors/json_reader.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

size_t core__utf8_character_size(const char *text, size_t size)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    static const unsigned char mask[] = {0x7f, 0x1f, 0x0f, 0x07};
    unsigned char c = (unsigned char)*text;
    size_t more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    uint32_t value = c & mask[more];

    if ((c >= 0x80 && c < 0xc0) || c >= 0xf8 || size <= more)
        return 0;
    for (size_t i = 1; i <= more; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (value < least[more] || value > 0x10ffff ||
        (value >= 0xd800 && value < 0xe000))
        return 0;
    return more + 1;
}

core_status core__json_reader_fail(const core__json_reader *r, const char *what)
{
    return core__error(CORE_ERROR_CORRUPT, "%s: not %s: byte %zu%s: %s",
                       r->path, r->kind, (size_t)(r->next - r->begin), r->place,
                       what);
}

void core__json_reader_skip_space(core__json_reader *r)
{
    while (r->next < r->end && (*r->next == ' ' || *r->next == '\t' ||
                                *r->next == '\n' || *r->next == '\r'))
        r->next++;
}

bool core__json_reader_accept(core__json_reader *r, char c)
{
    core__json_reader_skip_space(r);
    if (r->next == r->end || *r->next != c)
        return false;
    r->next++;
    return true;
}

static core_status hexadecimal(core__json_reader *r, uint32_t *out_value)
{
    *out_value = 0;
    for (int i = 0; i < 4; i++) {
        char c = r->next < r->end ? *r->next : 0;
        uint32_t digit;

        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            digit = (uint32_t)((c | 32) - 'a') + 10;
        else
            return core__json_reader_fail(r,
                                          "expected four hexadecimal digits");
        *out_value = *out_value * 16 + digit;
        r->next++;
    }
    return CORE_OK;
}

static char *encode(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* Decodes what follows a backslash. */
static core_status escape_sequence(core__json_reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    char c = r->next < r->end ? *r->next : 0;
    const char *known = c ? strchr(from, c) : NULL;
    uint32_t code, low;

    if (known) {
        r->next++;
        *(*to)++ = into[known - from];
        return CORE_OK;
    }
    if (c != 'u')
        return core__json_reader_fail(r, "unknown escape in a string");
    r->next++;
    CORE_TRY(hexadecimal(r, &code));
    if (code >= 0xd800 && code < 0xdc00) {
        if (r->end - r->next < 2 || r->next[0] != '\\' || r->next[1] != 'u')
            return core__json_reader_fail(r,
                                          "half a surrogate pair in a string");
        r->next += 2;
        CORE_TRY(hexadecimal(r, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return core__json_reader_fail(r,
                                          "half a surrogate pair in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code == 0 || (code >= 0xdc00 && code < 0xe000)) {
        return core__json_reader_fail(
            r, "a null character or a lone surrogate in a string");
    }
    *to = encode(*to, code);
    return CORE_OK;
}

/* Copies one unescaped character. */
static core_status plain_character(core__json_reader *r, char **to)
{
    size_t size =
        core__utf8_character_size(r->next, (size_t)(r->end - r->next));

    if ((unsigned char)*r->next < 0x20)
        return core__json_reader_fail(
            r, "unescaped control character in a string");
    if (size == 0)
        return core__json_reader_fail(r, "a string is not UTF-8");
    memcpy(*to, r->next, size);
    *to += size;
    r->next += size;
    return CORE_OK;
}

core_status core__json_reader_string(core__json_reader *r,
                                     const char **out_text)
{
    char *to = r->string;

    *out_text = to;
    if (!core__json_reader_accept(r, '"'))
        return core__json_reader_fail(r, "expected a string");
    for (;;) {
        if (r->next == r->end)
            return core__json_reader_fail(r, "unterminated string");
        if (*r->next == '"')
            break;
        if (*r->next == '\\') {
            r->next++;
            CORE_TRY(escape_sequence(r, &to));
        } else {
            CORE_TRY(plain_character(r, &to));
        }
    }
    r->next++;
    *to++ = 0;
    r->string = to;
    return CORE_OK;
}

core_status core__json_reader_number(core__json_reader *r, uint64_t *out_value)
{
    const char *first;
    uint64_t value = 0;

    core__json_reader_skip_space(r);
    first = r->next;
    while (r->next < r->end && *r->next >= '0' && *r->next <= '9') {
        if (value > (INT64_MAX - 9) / 10)
            return core__json_reader_fail(r, "number too large");
        value = value * 10 + (uint64_t)(*r->next++ - '0');
    }
    if (r->next == first)
        return core__json_reader_fail(r, "expected a whole number, 0 or more");
    if (*first == '0' && r->next - first > 1)
        return core__json_reader_fail(r, "a number must not begin with 0");
    *out_value = value;
    return CORE_OK;
}

core_status core__json_reader_grow(void **array, size_t *capacity, size_t count,
                                   size_t element)
{
    size_t more = *capacity ? *capacity * 2 : 16;
    void *larger;

    if (count < *capacity)
        return CORE_OK;
    larger = core__realloc(*array, more * element);
    if (!larger)
        return core__error_memory(more * element);
    *array = larger;
    *capacity = more;
    return CORE_OK;
}

/* -------------------------------------------------------------- skipping -- */

enum { DEPTH = 64 };

/* Skips a number, true, false or null: everything up to a delimiter. */
static core_status skip_word(core__json_reader *r)
{
    const char *first = r->next;

    while (r->next < r->end &&
           (*r->next == '-' || *r->next == '+' || *r->next == '.' ||
            (*r->next >= '0' && *r->next <= '9') ||
            ((*r->next | 32) >= 'a' && (*r->next | 32) <= 'z')))
        r->next++;
    return r->next > first ? CORE_OK
                           : core__json_reader_fail(r, "expected a value");
}

/* Skips a scalar value, or the opening bracket of an object or array, which is
 * pushed. */
static core_status skip_begin(core__json_reader *r, char *closing, int *depth)
{
    const char *text;
    char c;

    core__json_reader_skip_space(r);
    c = r->next < r->end ? *r->next : 0;
    if (c == '"')
        return core__json_reader_string(r, &text);
    if (c != '{' && c != '[')
        return skip_word(r);
    if (*depth == DEPTH)
        return core__json_reader_fail(r, "values are nested too deeply");
    closing[(*depth)++] = c == '{' ? '}' : ']';
    r->next++;
    return CORE_OK;
}

core_status core__json_reader_skip(core__json_reader *r)
{
    char closing[DEPTH];
    const char *name;
    int depth = 0, before;
    bool first;

    CORE_TRY(skip_begin(r, closing, &depth));
    first = depth > 0;
    while (depth > 0) {
        if (core__json_reader_accept(r, closing[depth - 1])) {
            depth--;
            first = false;
            continue;
        }
        if (!first && !core__json_reader_accept(r, ','))
            return core__json_reader_fail(
                r, "expected a comma or a closing bracket");
        if (closing[depth - 1] == '}') {
            CORE_TRY(core__json_reader_string(r, &name));
            if (!core__json_reader_accept(r, ':'))
                return core__json_reader_fail(r, "expected a colon");
        }
        before = depth;
        CORE_TRY(skip_begin(r, closing, &depth));
        first = depth > before;
    }
    return CORE_OK;
}

/* ---------------------------------------------------------------- names -- */

static const char *name_of(const void *item)
{
    return *(const char *const *)item;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(name_of(a), name_of(b));
}

core_status core__json_names_sort(void *items, size_t count, size_t size,
                                  const char *path, const char *what)
{
    const char *at = items;

    if (count < 2)
        return CORE_OK;
    qsort(items, count, size, by_name);
    for (size_t i = 1; i < count; i++, at += size)
        if (by_name(at, at + size) == 0)
            return core__error(CORE_ERROR_CORRUPT,
                               "%s: two %s are named \"%.80s\"", path, what,
                               name_of(at));
    return CORE_OK;
}
