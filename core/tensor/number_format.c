/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "tensor/number_format.h"

#include "base/text.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------- digits -- */

/* d.ddd × 10^exponent; no trailing zeros, at least one digit. */
typedef struct decimal {
    bool negative;
    int count;
    int exponent;
    char digits[20];
} decimal;

static bool same_element(core_dtype dtype, const char *text, double value)
{
    switch (dtype) {
    case CORE_F64:
        return core__parse_double(text, NULL) == value;
    case CORE_F16:
        return core__f32_to_f16(core__parse_float(text, NULL)) ==
               core__f32_to_f16((float)value);
    case CORE_BF16:
        return core__f32_to_bf16(core__parse_float(text, NULL)) ==
               core__f32_to_bf16((float)value);
    default: /* also those of eight bits: 0.8 for 0.75 would look odd */
        return core__parse_float(text, NULL) == (float)value;
    }
}

static void take_digits(const char *text, decimal *out)
{
    out->count = 0;
    out->negative = *text == '-';
    for (; *text && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9' &&
            out->count < (int)sizeof out->digits)
            out->digits[out->count++] = *text;
    out->exponent = *text ? atoi(text + 1) : 0;
    while (out->count > 1 && out->digits[out->count - 1] == '0')
        out->count--;
}

/* The shortest decimal that reads back as the same element. */
static void shortest(core_dtype dtype, double value, decimal *out)
{
    char text[48];

    for (int precision = 0; precision <= 16; precision++) {
        core__format(text, sizeof text, "%.*e", precision, value);
        if (same_element(dtype, text, value))
            break;
    }
    take_digits(text, out);
}

/* With `precision` digits after the first. */
static void exact(double value, int precision, decimal *out)
{
    char text[48];

    core__format(text, sizeof text, "%.*e", precision, value);
    take_digits(text, out);
}

/* Rounds to CORE__NUMBER_PRECISION digits after the point. */
static void limit(core_dtype dtype, double value, bool scientific, decimal *out)
{
    int precision = CORE__NUMBER_PRECISION;

    shortest(dtype, value, out);
    /* Two or three digits distinguish a half float from its neighbours, but
     * 65500 would be a strange way to write 65504. */
    if (!scientific && core__dtype_size(dtype) == 2 &&
        out->exponent >= out->count)
        exact(value, out->exponent, out);
    if (!scientific)
        precision += out->exponent;
    if (out->count - 1 <= precision || precision < 0)
        return;
    exact(value, precision, out);
}

/* Digits after the point when written without an exponent. */
static int fraction_digits(const decimal *number)
{
    int digits = number->count - 1 - number->exponent;

    return digits > 0 ? digits : 0;
}

/* Characters before the point when written without an exponent. */
static int whole_characters(const decimal *number)
{
    return number->negative + (number->exponent > 0 ? number->exponent + 1 : 1);
}

static int exponent_digits(const decimal *number)
{
    return abs(number->exponent) > 99 ? 3 : 2;
}

static char digit(const decimal *number, int place)
{
    return place >= 0 && place < number->count ? number->digits[place] : '0';
}

/* "-12.5": all digits after the point. */
static int write_plain(const decimal *number, char *text)
{
    int length = 0;
    int fraction = fraction_digits(number);

    if (number->negative)
        text[length++] = '-';
    if (number->exponent < 0)
        text[length++] = '0';
    for (int i = 0; i <= number->exponent; i++)
        text[length++] = digit(number, i);
    text[length++] = '.';
    for (int i = 1; i <= fraction; i++)
        text[length++] = digit(number, number->exponent + i);
    text[length] = 0;
    return length;
}

/* "-1.25e-05": `fraction` digits after the point, padded with zeros. */
static int write_scientific(const decimal *number, int fraction, int exponent,
                            char *text)
{
    int length = 0;

    if (number->negative)
        text[length++] = '-';
    text[length++] = number->digits[0];
    text[length++] = '.';
    for (int i = 1; i <= fraction; i++)
        text[length++] = digit(number, i);
    return length + sprintf(text + length, "e%c%0*d",
                            number->exponent < 0 ? '-' : '+', exponent,
                            abs(number->exponent));
}

/* --------------------------------------------------------------- style -- */

static double element_float(core_dtype dtype, const void *elements,
                            uint64_t index)
{
    const char *from = elements;

    return core__element_load(dtype, from + index * core__dtype_size(dtype))
        .u.f;
}

/* True if numbers are so large, so small or so far apart that exponents read
 * better. */
static bool needs_exponents(core_dtype dtype, const void *elements,
                            uint64_t count)
{
    double most = 0;
    double least = INFINITY;

    for (uint64_t i = 0; i < count; i++) {
        double value = fabs(element_float(dtype, elements, i));

        if (value == 0 || !isfinite(value))
            continue;
        most = fmax(most, value);
        least = fmin(least, value);
    }
    return most > 0 && (most >= 1e8 || least < 1e-4 || most / least > 1000);
}

static void widen(int *width, int to)
{
    if (*width < to)
        *width = to;
}

static void style_floats(const void *elements, uint64_t count,
                         core__number_style *style)
{
    bool negative_infinity = false;
    bool special = false;
    int right;

    style->scientific = needs_exponents(style->dtype, elements, count);
    for (uint64_t i = 0; i < count; i++) {
        double value = element_float(style->dtype, elements, i);
        decimal number;

        if (!isfinite(value)) {
            special = true;
            negative_infinity |= isinf(value) && value < 0;
            continue;
        }
        limit(style->dtype, value, style->scientific, &number);
        if (style->scientific) {
            widen(&style->left, number.negative + 1);
            widen(&style->fraction, number.count - 1);
            widen(&style->exponent, exponent_digits(&number));
        } else {
            widen(&style->left, whole_characters(&number));
            widen(&style->fraction, fraction_digits(&number));
        }
    }
    if (!special)
        return;
    right = style->fraction + 1;
    if (style->scientific)
        right += style->exponent + 2;
    widen(&style->left, 3 + negative_infinity - right);
}

static int write_integer(core_dtype dtype, const void *element, char *text)
{
    return sprintf(text, "%lld",
                   (long long)core__element_load(dtype, element).u.i);
}

static void style_integers(const void *elements, uint64_t count,
                           core__number_style *style)
{
    const char *from = elements;
    char text[CORE__NUMBER_TEXT];

    for (uint64_t i = 0; i < count; i++)
        widen(&style->width,
              write_integer(style->dtype,
                            from + i * core__dtype_size(style->dtype), text));
}

void core__number_style_of(core_dtype dtype, const void *elements,
                           uint64_t count, core__number_style *out_style)
{
    memset(out_style, 0, sizeof *out_style);
    out_style->dtype = dtype;
    if (dtype == CORE_BOOL)
        out_style->width = 5;
    else if (core__dtype_is_real(dtype))
        style_floats(elements, count, out_style);
    else
        style_integers(elements, count, out_style);
}

/* ------------------------------------------------------------- writing -- */

static const char *special_text(double value)
{
    return isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

static int write_float(const core__number_style *style, double value,
                       char *text)
{
    char bare[CORE__NUMBER_TEXT];
    int right = style->fraction;
    int left = style->left;
    int before;
    decimal number;

    if (style->scientific)
        right += style->exponent + 2;
    if (!isfinite(value))
        return sprintf(text, "%*s", left + right + 1, special_text(value));
    if (style->scientific) {
        /* All have the same number of digits; known digits are not replaced by
         * zeros. */
        exact(value, style->fraction, &number);
        write_scientific(&number, style->fraction, style->exponent, bare);
        before = number.negative + 1;
    } else {
        limit(style->dtype, value, false, &number);
        write_plain(&number, bare);
        before = whole_characters(&number);
    }
    return snprintf(text, CORE__NUMBER_TEXT, "%*s%-*s", left - before, "",
                    before + 1 + right, bare);
}

int core__number_write(const core__number_style *style, const void *element,
                       char text[CORE__NUMBER_TEXT])
{
    char bare[CORE__NUMBER_TEXT];

    if (style->dtype == CORE_BOOL)
        return sprintf(text, "%*s", style->width,
                       *(const uint8_t *)element ? "True" : "False");
    if (core__dtype_is_real(style->dtype))
        return write_float(style, element_float(style->dtype, element, 0),
                           text);
    write_integer(style->dtype, element, bare);
    return sprintf(text, "%*s", style->width, bare);
}

int core__number_write_alone(core_dtype dtype, const void *element,
                             char text[CORE__NUMBER_TEXT])
{
    double value;
    decimal number;
    int length;

    if (dtype == CORE_BOOL)
        return sprintf(text, "%s",
                       *(const uint8_t *)element ? "True" : "False");
    if (!core__dtype_is_real(dtype))
        return write_integer(dtype, element, text);
    value = element_float(dtype, element, 0);
    if (!isfinite(value))
        return sprintf(text, "%s", special_text(value));
    shortest(dtype, value, &number);
    if (value != 0 && (number.exponent < -4 || number.exponent >= 16)) {
        if (number.count > 1)
            return write_scientific(&number, number.count - 1,
                                    exponent_digits(&number), text);
        return sprintf(text, "%s%ce%c%02d", number.negative ? "-" : "",
                       number.digits[0], number.exponent < 0 ? '-' : '+',
                       abs(number.exponent));
    }
    length = write_plain(&number, text);
    if (text[length - 1] == '.') {
        text[length++] = '0';
        text[length] = 0;
    }
    return length;
}
