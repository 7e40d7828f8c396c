/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "element_value.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Rounds to `bits` of mantissa (not counting the leading one), with exponents
 * from `least` on. */
static double rounded(double value, int bits, int least, double most)
{
    double step, result;
    int exponent;

    if (value == 0 || isnan(value) || isinf(value))
        return value;
    frexp(value, &exponent);
    exponent -= 1;
    if (exponent < least)
        exponent = least;
    step = ldexp(1, exponent - bits);
    result = nearbyint(value / step) * step;
    if (fabs(result) > most)
        result = copysign(INFINITY, value);
    return result;
}

double element_rounded(core_dtype dtype, double value)
{
    unsigned char bytes[8];

    switch (dtype) {
    case CORE_F16:
        return rounded(value, 10, -14, 65504);
    case CORE_BF16:
        return rounded(value, 7, -126, 3.3895313892515355e38);
    default:
        element_store(dtype, value, bytes);
        return element_load(dtype, bytes);
    }
}

static uint16_t half_bits(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(rounded(value, 10, -14, 65504));
    int exponent;

    if (isnan(value))
        return sign | 0x7e00;
    if (isinf(size))
        return sign | 0x7c00;
    if (size < ldexp(1, -14))
        return sign | (uint16_t)ldexp(size, 24);
    frexp(size, &exponent);
    return sign | (uint16_t)((exponent + 14) * 1024 +
                             (int)(ldexp(size, 11 - exponent) - 1024));
}

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    int mantissa = bits & 1023;
    double size;

    if (exponent == 31)
        size = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        size = ldexp(mantissa, -24);
    else
        size = ldexp(mantissa + 1024, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

static uint16_t bfloat_bits(double value)
{
    float single = (float)rounded(value, 7, -126, 3.3895313892515355e38);
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
    uint16_t half;

    switch (dtype) {
    case CORE_F64:
        memcpy(to, &value, 8);
        break;
    case CORE_F32:
        memcpy(to, &single, 4);
        break;
    case CORE_F16:
        half = half_bits(value);
        memcpy(to, &half, 2);
        break;
    case CORE_BF16:
        half = bfloat_bits(value);
        memcpy(to, &half, 2);
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
        uint16_t half;
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
        return half_value(at.half);
    case CORE_BF16:
        at.bits = (uint32_t)at.half << 16;
        return (double)at.f32;
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
