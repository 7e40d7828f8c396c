/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* functions.h: the functions that expressions call in addition to those of
 * vecmath.h: one per type, named with the type's suffix.  The CPU's loops and
 * the GPUs' kernels compile the same functions (see number.h). */

#ifndef EXPRESSIONS_FUNCTIONS_H
#define EXPRESSIONS_FUNCTIONS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "number.h"
#include "vecmath.h"

#define INFINITE_f32 __builtin_inff()
#define INFINITE_f64 __builtin_inf()
#define NOT_f32 __builtin_nanf("")
#define NOT_f64 __builtin_nan("")
#define FMA_f32(a, b, c) MATH_FMA_F32(a, b, c)
#define FMA_f64(a, b, c) MATH_FMA_F64(a, b, c)

MATH_INLINE double math_power_of_ten(int64_t exponent)
{
    double power = 1;

    for (int64_t k = 0; k < exponent && k < 400; k++)
        power *= 10;
    return power;
}

#define SATURATE(NAME, TYPE, LEAST, MOST)                               \
    MATH_INLINE TYPE saturate_##NAME(int64_t x)                         \
    {                                                                   \
        return (TYPE)(x < (LEAST) ? (LEAST) : x > (MOST) ? (MOST) : x); \
    }
SATURATE(i64, int64_t, INT64_MIN, INT64_MAX)
SATURATE(i32, int32_t, INT32_MIN, INT32_MAX)
SATURATE(i16, int16_t, INT16_MIN, INT16_MAX)
SATURATE(i8, int8_t, INT8_MIN, INT8_MAX)
SATURATE(u8, uint8_t, 0, UINT8_MAX)
#undef SATURATE

/* ------------------------------------------------------------- integers -- */

/* Division by zero sets *bad.  The least integer divided by -1 wraps. */
MATH_INLINE int64_t divide_i64(int64_t a, int64_t b, int *bad)
{
    *bad |= b == 0;
    if (b == 0)
        return 0;
    return b == -1 ? -a : a / b;
}

MATH_INLINE int64_t modulo_i64(int64_t a, int64_t b, int *bad)
{
    *bad |= b == 0;
    return b == 0 || b == -1 ? 0 : a % b;
}

MATH_INLINE int64_t floor_divide_i64(int64_t a, int64_t b, int *bad)
{
    int64_t quotient = divide_i64(a, b, bad);

    if (b != 0 && b != -1 && (a ^ b) < 0 && quotient * b != a)
        quotient--;
    return quotient;
}

MATH_INLINE int64_t floor_modulo_i64(int64_t a, int64_t b, int *bad)
{
    int64_t rest = modulo_i64(a, b, bad);

    return rest != 0 && (rest ^ b) < 0 ? rest + b : rest;
}

/* A negative exponent: the reciprocal, truncated. */
MATH_INLINE int64_t power_i64(int64_t base, int64_t exponent)
{
    uint64_t power = 1, square = (uint64_t)base;

    if (exponent < 0) {
        if (base == 1 || (base == -1 && exponent % 2 == 0))
            return 1;
        return base == -1 ? -1 : 0;
    }
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            power *= square;
        square *= square;
    }
    return (int64_t)power;
}

MATH_INLINE int64_t gcd_i64(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = b == -1 ? 0 : a % b;

        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

MATH_INLINE int64_t lcm_i64(int64_t a, int64_t b)
{
    int64_t divisor = gcd_i64(a, b), multiple;

    if (divisor == 0)
        return 0;
    multiple = a / divisor * b;
    return multiple < 0 ? -multiple : multiple;
}

/* Shifts beyond the type's width equal as many single steps. */
MATH_INLINE int64_t shift_left_i64(int64_t a, int64_t b)
{
    return (uint64_t)b > 63 ? 0 : (int64_t)((uint64_t)a << (b & 63));
}

MATH_INLINE int64_t shift_right_i64(int64_t a, int64_t b)
{
    return a >> ((uint64_t)b > 63 ? 63 : b);
}

/* --------------------------------------------------------------- floats -- */

MATH_INLINE double normal_area_f64(double x)
{
    return 0.5 * (1 + erf_f64(x * 0.7071067811865476));
}

#define FLOATS(S, T, BITS_OF, SIGN, LARGEST, EXPM1_LIMIT)                     \
    MATH_INLINE T maximum_##S(T a, T b)                                       \
    {                                                                         \
        return (a > b || a != a) ? a : b;                                     \
    }                                                                         \
    MATH_INLINE T minimum_##S(T a, T b)                                       \
    {                                                                         \
        return (a < b || a != a) ? a : b;                                     \
    }                                                                         \
    MATH_INLINE int sign_bit_##S(T a)                                         \
    {                                                                         \
        return (BITS_OF(a) & (SIGN)) != 0;                                    \
    }                                                                         \
    /* NaN if a bound is NaN. */                                              \
    MATH_INLINE T clamp_##S(T a, T low, T high)                               \
    {                                                                         \
        a = (a < low || low != low) ? low : a;                                \
        return (a > high || high != high) ? high : a;                         \
    }                                                                         \
    MATH_INLINE T finite_##S(T a)                                             \
    {                                                                         \
        return a > (LARGEST) ? (LARGEST) : a < -(LARGEST) ? -(LARGEST) : a;   \
    }                                                                         \
    /* From the nearer end; below 0 that is the first one. */                 \
    MATH_INLINE T lerp_##S(T a, T b, T weight)                                \
    {                                                                         \
        T difference = b - a;                                                 \
        T low = a + weight * difference;                                      \
        T high = b - difference * (1 - weight);                               \
        return weight < (T)0.5 ? low : high;                                  \
    }                                                                         \
    /* Rounds down the exact quotient, not the rounded one.  rest: fmod. */   \
    MATH_INLINE T floor_quotient_##S(T a, T b, T rest)                        \
    {                                                                         \
        T quotient = (a - rest) / b, down, near;                              \
        quotient -= (rest != 0) & ((b < 0) != (rest < 0)) ? 1 : 0;            \
        down = floor_##S(quotient);                                           \
        near = quotient - down > (T)0.5 ? down + 1 : down;                    \
        near = quotient == 0 ? copysign_##S(0, a / b) : near;                 \
        return b == 0 ? a / b : near;                                         \
    }                                                                         \
    MATH_INLINE T floor_divide_##S(T a, T b)                                  \
    {                                                                         \
        return floor_quotient_##S(a, b, fmod_##S(a, b));                      \
    }                                                                         \
    MATH_INLINE T remainder_##S(T a, T b)                                     \
    {                                                                         \
        T rest = fmod_##S(a, b);                                              \
        return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;          \
    }                                                                         \
    MATH_INLINE T logaddexp_##S(T a, T b)                                     \
    {                                                                         \
        T most = a > b ? a : b;                                               \
        T sum = most + log1p_##S(exp_##S(-abs_##S(a - b)));                   \
        /* The difference of equal infinities is NaN. */                      \
        return a == b && abs_##S(a) == INFINITE_##S ? a : sum;                \
    }                                                                         \
    MATH_INLINE T logaddexp2_##S(T a, T b)                                    \
    {                                                                         \
        T most = a > b ? a : b;                                               \
        T sum = most +                                                        \
                log1p_##S(exp2_##S(-abs_##S(a - b))) * (T)1.4426950408889634; \
        return a == b && abs_##S(a) == INFINITE_##S ? a : sum;                \
    }                                                                         \
    /* GELU: x Φ(x), Φ the normal distribution, exact and by tanh. */       \
    MATH_INLINE T gelu_##S(T x)                                               \
    {                                                                         \
        return x * normal_area_##S(x);                                        \
    }                                                                         \
    MATH_INLINE T gelu_inner_##S(T x)                                         \
    {                                                                         \
        return (T)0.7978845608028654 * (x + (T)0.044715 * x * x * x);         \
    }                                                                         \
    MATH_INLINE T gelu_slope_##S(T x)                                         \
    {                                                                         \
        T area = normal_area_##S(x);                                          \
        T density = (T)0.3989422804014327 * exp_##S((T)-0.5 * x * x);         \
        return area + x * density;                                            \
    }                                                                         \
    MATH_INLINE T gelu_tanh_slope_##S(T x)                                    \
    {                                                                         \
        T t = tanh_##S(gelu_inner_##S(x));                                    \
        T inner = (T)0.7978845608028654 * (1 + (T)0.134145 * x * x);          \
        return (T)0.5 * (1 + t) + (T)0.5 * x * (1 - t * t) * inner;           \
    }                                                                         \
    MATH_INLINE T silu_slope_##S(T x)                                         \
    {                                                                         \
        T s = sigmoid_##S(x);                                                 \
        return s * (1 + x * (1 - s));                                         \
    }                                                                         \
    /* tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2), e = exp(x). */         \
    MATH_INLINE T tanh_of_softplus_##S(T x)                                   \
    {                                                                         \
        T e = exp_##S(x > 20 ? 20 : x);                                       \
        T n = e * (e + 2);                                                    \
        return x > 20 ? 1 : n / (n + 2);                                      \
    }                                                                         \
    MATH_INLINE T mish_slope_##S(T x)                                         \
    {                                                                         \
        T t = tanh_of_softplus_##S(x);                                        \
        return t + x * sigmoid_##S(x) * (1 - t * t);                          \
    }
FLOATS(f32, float, math_bits_of_f32, UINT32_C(1) << 31, 0x1.fffffep127f, 89)
FLOATS(f64, double, math_bits_of_f64, UINT64_C(1) << 63, 0x1.fffffffffffffp1023,
       710)

/* Whether b is finite and a / b below 2^28: then the quotient in f64 is rounded
 * to a whole number only if it is one, and its product with b is exact. */
MATH_INLINE int math_is_near(float a, float b)
{
    float most = abs_f32(b);

    return (abs_f32(a) < most * 0x1p28f) & (most < INFINITE_f32);
}

/* fmod of such numbers, bit for bit. */
MATH_INLINE float math_near_rest(float a, float b)
{
    double x = (double)a, y = (double)b;

    return copysign_f32((float)(x - trunc_f64(x / y) * y), a);
}

MATH_INLINE double gelu_tanh_f64(double x)
{
    return 0.5 * x * (1 + tanh_f64(gelu_inner_f64(x)));
}
#undef FLOATS

#endif
