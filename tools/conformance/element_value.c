/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "element_value.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The small floating formats: bits of mantissa (not counting the leading one),
 * the exponent of the smallest normal number, and the largest number. */
typedef struct format {
    int mantissa;
    int least;
    double most;
    bool finite; /* without infinity: values beyond `most` become NaN */
} format;

static const format half = {10, -14, 65504, false};
static const format bfloat = {7, -126, 3.3895313892515355e38, false};
static const format e4m3 = {3, -6, 448, true};
static const format e5m2 = {2, -14, 57344, false};

/* Rounds to nearest, ties to even. */
static double rounded(const format *to, double value)
{
    int shift = 52 - to->mantissa;
    double result;
    uint64_t bits;

    if (value == 0 || isnan(value))
        return value;
    memcpy(&bits, &value, 8);
    if ((int)(bits >> 52 & 0x7ff) - 1023 >= to->least && isfinite(value)) {
        bits += (UINT64_C(1) << (shift - 1)) - 1 + (bits >> shift & 1);
        bits &= ~((UINT64_C(1) << shift) - 1);
        memcpy(&result, &bits, 8);
    } else {
        double step = ldexp(1, to->least - to->mantissa);

        result = isinf(value) ? value : nearbyint(value / step) * step;
    }
    if (fabs(result) > to->most)
        result = to->finite ? (double)NAN : copysign(INFINITY, value);
    return result;
}

double element_rounded(core_dtype dtype, double value)
{
    unsigned char bytes[8];

    switch (dtype) {
    case CORE_F16:
        return rounded(&half, value);
    case CORE_BF16:
        return rounded(&bfloat, value);
    case CORE_F8E4M3:
        return rounded(&e4m3, value);
    case CORE_F8E5M2:
        return rounded(&e5m2, value);
    default:
        element_store(dtype, value, bytes);
        return element_load(dtype, bytes);
    }
}

/* The code of a value, without its sign; NaN is the largest code. */
static uint16_t code_of(const format *to, uint32_t bits, double value)
{
    double size = fabs(rounded(to, value));
    uint32_t leading = 1u << to->mantissa;
    uint16_t largest = (uint16_t)((1u << (bits - 1)) - 1);
    int exponent;

    if (isnan(size))
        return bits == 16 ? 0x7e00 : largest;
    if (isinf(size))
        return (uint16_t)(largest + 1 - leading);
    if (size < ldexp(1, to->least))
        return (uint16_t)ldexp(size, to->mantissa - to->least);
    frexp(size, &exponent);
    return (uint16_t)((uint32_t)(exponent - to->least) * leading +
                      (uint32_t)ldexp(size, to->mantissa + 1 - exponent) -
                      leading);
}

static double value_of(const format *from, uint32_t bits, uint16_t code)
{
    uint32_t leading = 1u << from->mantissa, sign = 1u << (bits - 1);
    uint32_t size = code & (sign - 1), mantissa = size & (leading - 1);
    int exponent = (int)(size >> from->mantissa);
    double value;

    if (from->finite ? size == sign - 1 : size >= sign - leading)
        value = from->finite || mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, from->least - from->mantissa);
    else
        value = ldexp(mantissa + leading,
                      exponent - 1 + from->least - from->mantissa);
    return code & sign ? -value : value;
}

static uint16_t bfloat_bits(double value)
{
    float single = (float)rounded(&bfloat, value);
    uint32_t bits;

    memcpy(&bits, &single, 4);
    return (uint16_t)(bits >> 16);
}

void element_store(core_dtype dtype, double value, void *to)
{
    float single = (float)value;
    int64_t whole = dtype != CORE_BOOL && value > -9.3e18 && value < 9.2e18
                        ? (int64_t)value
                        : 0;
    uint16_t code;

    switch (dtype) {
    case CORE_F64:
        memcpy(to, &value, 8);
        break;
    case CORE_F32:
        memcpy(to, &single, 4);
        break;
    case CORE_F16:
        code = code_of(&half, 16, value);
        code |= signbit(value) ? 0x8000 : 0;
        memcpy(to, &code, 2);
        break;
    case CORE_BF16:
        code = bfloat_bits(value);
        memcpy(to, &code, 2);
        break;
    case CORE_F8E4M3:
    case CORE_F8E5M2:
        code = code_of(dtype == CORE_F8E4M3 ? &e4m3 : &e5m2, 8, value);
        *(unsigned char *)to =
            (unsigned char)(code | (signbit(value) ? 0x80 : 0));
        break;
    case CORE_BOOL:
        *(unsigned char *)to = value != 0;
        break;
    default: /* little endian: the low bytes come first */
        memcpy(to, &whole, core_dtype_size(dtype));
        break;
    }
}

double element_load(core_dtype dtype, const void *from)
{
    union {
        double f64;
        float f32;
        uint16_t code;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
        uint32_t bits;
    } at = {0};

    memcpy(&at, from, core_dtype_size(dtype));
    switch (dtype) {
    case CORE_F64:
        return at.f64;
    case CORE_F32:
        return (double)at.f32;
    case CORE_F16:
        return value_of(&half, 16, at.code);
    case CORE_BF16:
        at.bits = (uint32_t)at.code << 16;
        return (double)at.f32;
    case CORE_F8E4M3:
        return value_of(&e4m3, 8, at.u8);
    case CORE_F8E5M2:
        return value_of(&e5m2, 8, at.u8);
    case CORE_I64:
        return (double)at.i64;
    case CORE_I32:
        return at.i32;
    case CORE_I16:
        return at.i16;
    case CORE_I8:
        return at.i8;
    default:
        return at.u8;
    }
}

double dtype_epsilon(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
        return DBL_EPSILON;
    case CORE_F32:
        return (double)FLT_EPSILON;
    case CORE_F16:
        return ldexp(1, -10);
    case CORE_BF16:
        return ldexp(1, -7);
    default:
        return 0;
    }
}

double dtype_min_normal(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
        return DBL_MIN;
    case CORE_F16:
        return ldexp(1, -14);
    case CORE_F32:
    case CORE_BF16:
        return (double)FLT_MIN;
    default:
        return 0;
    }
}

double dtype_largest(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
        return DBL_MAX;
    case CORE_F32:
        return (double)FLT_MAX;
    case CORE_F16:
        return half.most;
    case CORE_BF16:
        return bfloat.most;
    default:
        return 0;
    }
}
