/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "tensor/dtype.h"

#include "tensor/float8.h"

#include <float.h>
#include <math.h>
#include <string.h>

const uint8_t core__dtype_sizes[CORE_DTYPE_LIMIT] = {
    [CORE_F64] = 8, [CORE_F32] = 4,  [CORE_F16] = 2,    [CORE_BF16] = 2,
    [CORE_I64] = 8, [CORE_I32] = 4,  [CORE_I16] = 2,    [CORE_I8] = 1,
    [CORE_U8] = 1,  [CORE_BOOL] = 1, [CORE_F8E4M3] = 1, [CORE_F8E5M2] = 1,
};

static const char *const names[CORE_DTYPE_LIMIT] = {
    [CORE_F64] = "f64",   [CORE_F32] = "f32",       [CORE_F16] = "f16",
    [CORE_BF16] = "bf16", [CORE_I64] = "i64",       [CORE_I32] = "i32",
    [CORE_I16] = "i16",   [CORE_I8] = "i8",         [CORE_U8] = "u8",
    [CORE_BOOL] = "bool", [CORE_F8E4M3] = "f8e4m3", [CORE_F8E5M2] = "f8e5m2",
};

core_status core__dtype_check(core_dtype dtype)
{
    if (core__dtype_is_known(dtype))
        return CORE_OK;
    if (dtype == CORE_COMPLEX64 || dtype == CORE_COMPLEX128)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "dtype %u is reserved and not supported by this release", dtype);
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%u is not a dtype; accepted: " CORE__DTYPE_NAMES,
                       dtype);
}

core__category core__dtype_category(core_dtype dtype)
{
    if (core__dtype_is_floating(dtype))
        return CORE__CATEGORY_FLOATING;
    if (core__dtype_is_storage(dtype))
        return CORE__CATEGORY_STORAGE;
    return dtype == CORE_BOOL ? CORE__CATEGORY_BOOL : CORE__CATEGORY_INTEGER;
}

double core__dtype_largest(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
        return DBL_MAX;
    case CORE_F32:
        return FLT_MAX;
    case CORE_F16:
        return 65504;
    case CORE_BF16:
        return 0x1.fep127;
    default:
        return INFINITY;
    }
}

static core_dtype promote_integers(core_dtype a, core_dtype b)
{
    /* u8 with a signed type of the same width promotes to the next wider
     * one. */
    if (a == CORE_U8 || b == CORE_U8) {
        core_dtype other = a == CORE_U8 ? b : a;

        return other == CORE_I8 ? CORE_I16 : other;
    }
    return a < b ? a : b; /* ids are ordered from wide to narrow */
}

core_dtype core__dtype_promote(core_dtype a, core_dtype b)
{
    bool float_a = core__dtype_is_floating(a);
    bool float_b = core__dtype_is_floating(b);

    if (a == b)
        return a;
    if (core__dtype_is_storage(a) || core__dtype_is_storage(b))
        return CORE_DTYPE_NONE;
    if (float_a != float_b)
        return float_a ? a : b;
    if (float_a) {
        if ((a == CORE_F16 && b == CORE_BF16) ||
            (a == CORE_BF16 && b == CORE_F16))
            return CORE_F32;
        return a < b ? a : b;
    }
    if (a == CORE_BOOL)
        return b;
    if (b == CORE_BOOL)
        return a;
    return promote_integers(a, b);
}

core_dtype core__dtype_default(void)
{
    return CORE_F32;
}

const char *core__dtype_name(core_dtype dtype)
{
    return dtype < CORE_DTYPE_LIMIT && names[dtype] ? names[dtype] : "none";
}

core_dtype core__dtype_from_name(const char *name, size_t size)
{
    for (core_dtype i = 1; i < CORE_DTYPE_LIMIT; i++)
        if (names[i] && strlen(names[i]) == size &&
            memcmp(names[i], name, size) == 0)
            return i;
    return CORE_DTYPE_NONE;
}

float core__bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, 4);
    return value;
}

uint16_t core__f32_to_bf16(float value)
{
    uint32_t wide;

    memcpy(&wide, &value, 4);
    if ((wide & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(wide >> 16) | 0x40; /* stays a NaN */
    return (uint16_t)((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

float core__f16_to_f32(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    int mantissa = bits & 1023;
    float value;

    if (exponent == 31)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexpf((float)mantissa, -24);
    else
        value = ldexpf((float)(mantissa | 1024), exponent - 25);
    return bits & 0x8000 ? -value : value;
}

uint16_t core__f32_to_f16(float value)
{
    uint32_t wide;
    uint32_t sign;
    uint32_t magnitude;
    uint32_t rest;
    int shift;

    memcpy(&wide, &value, 4);
    sign = wide >> 16 & 0x8000;
    magnitude = wide & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) /* rounds to more than 65504 */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x33000000) /* below half the least subnormal */
        return (uint16_t)sign;
    if (magnitude >= 0x38800000) { /* normal: exponent 127-15 up */
        magnitude -= 0x38000000;
        rest = magnitude & 0x1fff;
        magnitude >>= 13;
        magnitude += rest > 0x1000 || (rest == 0x1000 && (magnitude & 1));
        return (uint16_t)(sign | magnitude);
    }
    shift = 126 - (int)(magnitude >> 23);
    magnitude = (magnitude & 0x7fffff) | 0x800000;
    rest = magnitude & ((1u << shift) - 1);
    magnitude >>= shift;
    magnitude += rest > 1u << (shift - 1) ||
                 (rest == 1u << (shift - 1) && (magnitude & 1));
    return (uint16_t)(sign | magnitude);
}

/* Out-of-range numbers are reduced modulo 2^64, and NaN becomes 0: defined,
 * and the same on every machine. */
static int64_t to_integer(core_scalar value)
{
    if (value.tag != CORE_VALUE_FLOAT)
        return value.u.i;
    if (value.u.f >= -9223372036854775808.0 &&
        value.u.f < 9223372036854775808.0)
        return (int64_t)value.u.f;
    return value.u.f > 0 ? INT64_MAX : value.u.f < 0 ? INT64_MIN : 0;
}

static double to_double(core_scalar value)
{
    return value.tag == CORE_VALUE_FLOAT ? value.u.f : (double)value.u.i;
}

void core__element_store(core_dtype dtype, void *to, core_scalar value)
{
    int64_t integer = core__dtype_is_real(dtype) ? 0 : to_integer(value);
    float single = (float)to_double(value);
    double wide = to_double(value);
    uint16_t half;

    switch (dtype) {
    case CORE_F64:
        memcpy(to, &wide, 8);
        break;
    case CORE_F32:
        memcpy(to, &single, 4);
        break;
    case CORE_F16:
        half = core__f32_to_f16(single);
        memcpy(to, &half, 2);
        break;
    case CORE_BF16:
        half = core__f32_to_bf16(single);
        memcpy(to, &half, 2);
        break;
    case CORE_F8E4M3:
    case CORE_F8E5M2:
        *(uint8_t *)to = core__float8_encode(dtype, wide);
        break;
    case CORE_BOOL:
        *(uint8_t *)to =
            value.tag == CORE_VALUE_FLOAT ? value.u.f != 0 : value.u.i != 0;
        break;
    default: /* little endian: the low bytes of an integer of any width */
        memcpy(to, &integer, core__dtype_sizes[dtype]);
        break;
    }
}

static core_scalar from_integer(int64_t value)
{
    return (core_scalar){.tag = CORE_VALUE_INT, .u.i = value};
}

static core_scalar from_double(double value)
{
    return (core_scalar){.tag = CORE_VALUE_FLOAT, .u.f = value};
}

core_scalar core__element_load(core_dtype dtype, const void *from)
{
    int64_t i64 = 0;
    int32_t i32;
    int16_t i16;
    uint16_t half;
    float f32;
    double f64;

    switch (dtype) {
    case CORE_F64:
        memcpy(&f64, from, 8);
        return from_double(f64);
    case CORE_F32:
        memcpy(&f32, from, 4);
        return from_double(f32);
    case CORE_F16:
        memcpy(&half, from, 2);
        return from_double(core__f16_to_f32(half));
    case CORE_BF16:
        memcpy(&half, from, 2);
        return from_double(core__bf16_to_f32(half));
    case CORE_F8E4M3:
    case CORE_F8E5M2:
        return from_double(core__float8_decode(dtype, *(const uint8_t *)from));
    case CORE_I64:
        memcpy(&i64, from, 8);
        return from_integer(i64);
    case CORE_I32:
        memcpy(&i32, from, 4);
        return from_integer(i32);
    case CORE_I16:
        memcpy(&i16, from, 2);
        return from_integer(i16);
    case CORE_I8:
        return from_integer(*(const int8_t *)from);
    case CORE_U8:
        return from_integer(*(const uint8_t *)from);
    default:
        return (core_scalar){.tag = CORE_VALUE_BOOL,
                             .u.i = *(const uint8_t *)from != 0};
    }
}
