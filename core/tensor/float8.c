/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "tensor/float8.h"

#include <math.h>

typedef struct layout {
    int bits; /* of the mantissa */
    int bias;
    int most; /* code of the largest number */
} layout;

static layout layout_of(core_dtype dtype)
{
    return dtype == CORE_F8E4M3 ? (layout){3, 7, 0x7e} : (layout){2, 15, 0x7b};
}

double core__f8_to_f64(core_dtype dtype, uint8_t code)
{
    layout l = layout_of(dtype);
    int magnitude = code & 0x7f;
    int exponent = magnitude >> l.bits;
    int mantissa = magnitude & ((1 << l.bits) - 1);
    double value;

    if (magnitude > l.most)
        value = dtype == CORE_F8E5M2 && mantissa == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - l.bias - l.bits);
    else
        value = ldexp(mantissa | 1 << l.bits, exponent - l.bias - l.bits);
    return code & 0x80 ? -value : value;
}

uint8_t core__f64_to_f8(core_dtype dtype, double value)
{
    layout l = layout_of(dtype);
    int sign = signbit(value) ? 0x80 : 0;
    double magnitude = fabs(value);
    int exponent = 1 - l.bias;
    int code;

    if (isnan(value))
        return (uint8_t)(sign | 0x7f);
    if (isinf(value))
        return (uint8_t)(sign | (l.most + 1));
    if (magnitude >= ldexp(1, exponent))
        exponent = ilogb(magnitude);
    if (exponent > l.bias + 1)
        return (uint8_t)(sign | (l.most + 1));
    /* Units in the last place; when rounding reaches the next power of two,
     * the count carries into the exponent's bits. */
    code = (int)nearbyint(ldexp(magnitude, l.bits - exponent));
    code += (exponent + l.bias - 1) << l.bits;
    return (uint8_t)(sign | (code > l.most ? l.most + 1 : code));
}
