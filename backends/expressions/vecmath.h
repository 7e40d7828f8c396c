/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* vecmath.h: elementary functions without branches, which the compiler
 * vectorizes.  All follow one plan: reduce the argument, evaluate a minimax
 * polynomial (with coefficients rounded to f32), and combine the parts so
 * that at most one rounding is as large as the result's.  NaN, infinities,
 * zeros and subnormals are handled as in C.
 *
 * Largest error over all f32 (limits: tests/unit/cpu/test_cpu_vecmath.c), in
 * units of the last place:
 *
 *     pow (with AVX-512)                0.53
 *     atan atan2 asin acos              0.51
 *     exp exp2 log log1p sin cos tan    1
 *     expm1 cosh tanh erf               1.5
 *     sinh log10                        2
 *     log2 sigmoid                      2.5
 *     gelu from -1 on                   3; below, 5e-8 at most
 *
 * The most common functions of f64 are in vecmath64.h, for instruction sets
 * with fused multiply-add: without that libm is as fast.  Others, and rarer
 * ones of f32, are libm's, element by element. */

#ifndef EXPRESSIONS_VECMATH_H
#define EXPRESSIONS_VECMATH_H

#include <math.h>

#include "number.h"

#if defined(__FMA__) || defined(__aarch64__)
#define MATH_VECTOR_F64
#include "vecmath64.h"
#endif

#define MATH_LIBM_F32(NAME)               \
    MATH_INLINE float NAME##_f32(float x) \
    {                                     \
        return NAME##f(x);                \
    }
#define MATH_LIBM_F64(NAME)                 \
    MATH_INLINE double NAME##_f64(double x) \
    {                                       \
        return NAME(x);                     \
    }
#define MATH_LIBM(NAME) MATH_LIBM_F32(NAME) MATH_LIBM_F64(NAME)
#define MATH_LIBM_2(NAME)                             \
    MATH_INLINE float NAME##_f32(float x, float y)    \
    {                                                 \
        return NAME##f(x, y);                         \
    }                                                 \
    MATH_INLINE double NAME##_f64(double x, double y) \
    {                                                 \
        return NAME(x, y);                            \
    }

MATH_INLINE float abs_f32(float x)
{
    return __builtin_fabsf(x);
}

MATH_INLINE double abs_f64(double x)
{
    return __builtin_fabs(x);
}

MATH_INLINE float copysign_f32(float x, float sign)
{
    return __builtin_copysignf(x, sign);
}

MATH_INLINE double copysign_f64(double x, double sign)
{
    return __builtin_copysign(x, sign);
}

MATH_INLINE float sqrt_f32(float x)
{
    return __builtin_sqrtf(x);
}

MATH_INLINE double sqrt_f64(double x)
{
    return __builtin_sqrt(x);
}

/* ------------------------------------------------------- whole numbers -- */

#if defined(__SSE4_1__) || !defined(__x86_64__) || defined(MATH_NATIVE_WHOLE)

MATH_LIBM(rint)
MATH_LIBM(floor)
MATH_LIBM(ceil)
MATH_LIBM(trunc)

#else

/* Adding a number whose last place is 1 rounds; the sign of zeros is kept. */
#define MATH_WHOLE(S, T, LARGE)                             \
    MATH_INLINE T rint_##S(T x)                             \
    {                                                       \
        T a = abs_##S(x);                                   \
        T rounded = (a + (LARGE)) - (LARGE);                \
        return a < (LARGE) ? copysign_##S(rounded, x) : x;  \
    }                                                       \
    MATH_INLINE T floor_##S(T x)                            \
    {                                                       \
        T near = rint_##S(x);                               \
        return near > x ? near - 1 : near;                  \
    }                                                       \
    MATH_INLINE T ceil_##S(T x)                             \
    {                                                       \
        T near = rint_##S(x);                               \
        return near < x ? copysign_##S(near + 1, x) : near; \
    }                                                       \
    MATH_INLINE T trunc_##S(T x)                            \
    {                                                       \
        T a = abs_##S(x), near = rint_##S(a);               \
        return copysign_##S(near > a ? near - 1 : near, x); \
    }
MATH_WHOLE(f32, float, 0x1p23f)
MATH_WHOLE(f64, double, 0x1p52)
#undef MATH_WHOLE

#endif

/* -------------------------------------------------------- exponentials -- */

/* The smaller of x and `most`, which is positive; NaN counts as larger.
 * Numbers of one sign are ordered like their bits: one instruction, where a
 * comparison that handles NaN takes three. */
MATH_INLINE float math_at_most(float x, float most)
{
    int32_t a = (int32_t)math_bits_of_f32(x);
    int32_t b = (int32_t)math_bits_of_f32(most);

    return math_f32_of_bits((uint32_t)(a < b ? a : b));
}

/* The larger of x and `least`, which is negative; NaN with a sign counts as
 * smaller. */
MATH_INLINE float math_at_least(float x, float least)
{
    uint32_t a = math_bits_of_f32(x), b = math_bits_of_f32(least);

    return math_f32_of_bits(a < b ? a : b);
}

/* ln 2 in two parts; products of the first with small integers are exact. */
#define MATH_LN2_HIGH 0x1.62e4p-1f
#define MATH_LN2_LOW 0x1.7f7d1cp-20f
/* Added to a small number, this puts its integer part into the low bits; an
 * integer below a thousand added to this is added to that part. */
#define MATH_ROUNDER 0x1.8p23f
#define MATH_ROUNDER_BITS 0x4b400000

/* exp(r) - 1 for |r| <= ln 2 / 2.  Two short dependency chains, which overlap
 * better than one long chain. */
MATH_INLINE float math_expm1_small(float r)
{
    float s = r * r;
    float low = MATH_FMA_F32(r, 0x1.555478p-5f, 0x1.555556p-3f);
    float middle = MATH_FMA_F32(r, 0x1.6d9e3ep-10f, 0x1.11107ap-7f);

    middle = MATH_FMA_F32(s, 0x1.a1bd5cp-13f, middle);
    low = MATH_FMA_F32(middle, s, low);
    return MATH_FMA_F32(MATH_FMA_F32(low, r, 0.5f), s, r);
}

MATH_INLINE float math_power_of_two(int32_t exponent)
{
    return math_f32_of_bits((uint32_t)(exponent + 127) << 23);
}

/* x = n ln 2 + r, for |x| < 2^20; n + more in the low bits of *bits. */
MATH_INLINE float math_reduce_exp(float x, int more, uint32_t *bits)
{
    float rounder = MATH_ROUNDER + (float)more;
    float shifted = MATH_FMA_F32(x, 0x1.715476p0f, rounder);
    float whole = shifted - rounder;
    float r = MATH_FMA_F32(whole, -MATH_LN2_HIGH, x);

    *bits = math_bits_of_f32(shifted);
    return MATH_FMA_F32(whole, -MATH_LN2_LOW, r);
}

/* (1 + small) 2^n, with n + 254 in the low bits, in two steps because the
 * result may overflow or be subnormal.  Higher bits are shifted out. */
MATH_INLINE float math_scale(float small, uint32_t bits)
{
    float half = math_f32_of_bits(bits >> 1 << 23);
    float rest = math_f32_of_bits((bits - (bits >> 1)) << 23);

    return MATH_FMA_F32(small, half, half) * rest;
}

/* exp(x) 2^shift, shift 0 or -1. */
MATH_INLINE float math_exp_shifted(float x, int32_t shift)
{
    uint32_t bits;
    float r = math_reduce_exp(math_at_least(math_at_most(x, 90), -104),
                              254 + shift, &bits);
    float result = math_scale(math_expm1_small(r), bits);

    return x != x ? x : result;
}

MATH_INLINE float exp_f32(float x)
{
    return math_exp_shifted(x, 0);
}

/* exp for -88 <= x <= 88: does not overflow, and is 0 if the result would be
 * subnormal. */
MATH_INLINE float math_exp_normal(float x)
{
    uint32_t bits;
    float r = math_reduce_exp(x, 127, &bits);
    float power = math_f32_of_bits(bits << 23);

    return MATH_FMA_F32(math_expm1_small(r), power, power);
}

MATH_INLINE float exp2_f32(float x)
{
    const float rounder = MATH_ROUNDER + 254;
    float bounded = math_at_least(math_at_most(x, 129), -151);
    float shifted = bounded + rounder;
    float r = (bounded - (shifted - rounder)) * 0x1.62e43p-1f;
    float result = math_scale(math_expm1_small(r), math_bits_of_f32(shifted));

    return x != x ? x : result;
}

MATH_INLINE float expm1_f32(float x)
{
    float r, half, sum;
    uint32_t bits;
    int32_t n;

    r = math_expm1_small(
        math_reduce_exp(math_at_least(math_at_most(x, 90), -20), 0, &bits));
    n = (int32_t)bits - MATH_ROUNDER_BITS;
    /* Half of it, so that 2^n does not overflow unless the result does. */
    half = math_power_of_two((n > 128 ? 128 : n) - 1);
    sum = MATH_FMA_F32(half, r, half - 0.5f);
    sum += sum;
    sum = x > 88.8f ? __builtin_inff() : sum;
    return abs_f32(x) >= 0x1p-26f ? sum : x; /* subnormals, -0, NaN */
}

MATH_INLINE float sinh_f32(float x)
{
    float a = abs_f32(x), e = math_exp_shifted(a, -1);
    float t = expm1_f32(math_at_most(a, 2));
    float small = 0.5f * (t + t / (t + 1)), big = e - 0.25f / e;

    return copysign_f32(a < 1 ? small : big, x);
}

MATH_INLINE float cosh_f32(float x)
{
    float e = math_exp_shifted(abs_f32(x), -1);

    return e + 0.25f / e;
}

MATH_INLINE float tanh_f32(float x)
{
    float a = abs_f32(x), s = x * x, q = -0x1.76abf6p-8f, small, big;
    float bounded = math_at_most(a, 10);

    q = MATH_FMA_F32(q, s, 0x1.5256cep-6f);
    q = MATH_FMA_F32(q, s, -0x1.b84448p-5f);
    q = MATH_FMA_F32(q, s, 0x1.110768p-3f);
    q = MATH_FMA_F32(q, s, -0x1.555534p-2f);
    small = MATH_FMA_F32(q * s, x, x);
    big = 1 - 2 / (math_exp_normal(bounded + bounded) + 1);
    return copysign_f32(a >= 0.625f ? big : small, x); /* NaN: small */
}

MATH_INLINE float sigmoid_f32(float x)
{
    float e = exp_f32(-abs_f32(x));

    return (x < 0 ? e : 1) / (1 + e);
}

/* ---------------------------------------------------------- logarithms -- */

/* x = 2^e (1 + f), f in [-1/3, 1/3), for positive finite x. */
MATH_INLINE float math_split_log(float x, float *e)
{
    int tiny = x < 0x1p-126f;
    float scaled = tiny ? x * 0x1p23f : x;
    uint32_t bits = math_bits_of_f32(scaled);
    int32_t n = (int32_t)(bits - UINT32_C(0x3f2aaaab)) >> 23;

    *e = (float)n - (tiny ? 23.0f : 0.0f);
    return math_f32_of_bits(bits - ((uint32_t)n << 23)) - 1;
}

/* log(1 + f) - f for f in [-1/3, 1/3). */
MATH_INLINE float math_log_tail(float f)
{
    float q = -0x1.08051ep-3f, s = f * f;

    q = MATH_FMA_F32(q, f, 0x1.1e66e2p-3f);
    q = MATH_FMA_F32(q, f, -0x1.f3116ap-4f);
    q = MATH_FMA_F32(q, f, 0x1.1ed70ep-3f);
    q = MATH_FMA_F32(q, f, -0x1.559dcap-3f);
    q = MATH_FMA_F32(q, f, 0x1.99d028p-3f);
    q = MATH_FMA_F32(q, f, -0x1.fffefp-3f);
    q = MATH_FMA_F32(q, f, 0x1.555506p-2f);
    return MATH_FMA_F32(q * f, s, -0.5f * s);
}

/* The logarithm of an x that is not positive and finite. */
MATH_INLINE float math_log_special(float x, float result)
{
    result = x > 0x1.fffffep127f ? x : result;
    result = x == 0 ? -__builtin_inff() : result;
    return x < 0 || x != x ? __builtin_nanf("") : result;
}

MATH_INLINE float log_f32(float x)
{
    float e, f = math_split_log(x, &e);
    float tail = MATH_FMA_F32(e, MATH_LN2_LOW, math_log_tail(f));

    return math_log_special(x, MATH_FMA_F32(e, MATH_LN2_HIGH, tail + f));
}

MATH_INLINE float log2_f32(float x)
{
    float e, f = math_split_log(x, &e);
    float l = math_log_tail(f) + f;

    /* 1 / ln 2 = 1 + 0.4427 */
    return math_log_special(x, MATH_FMA_F32(l, 0x1.c551d8p-2f, l) + e);
}

MATH_INLINE float log10_f32(float x)
{
    float e, f = math_split_log(x, &e);
    float l = math_log_tail(f) + f;
    float low = MATH_FMA_F32(l, 0x1.bcb7b2p-2f, e * 0x1.3509f8p-18f);

    return math_log_special(x, MATH_FMA_F32(e, 0x1.344p-2f, low));
}

MATH_INLINE float log1p_f32(float x)
{
    float u = 1 + x;
    float rest = (x - (u - 1)) / u; /* the rounding error of u */
    float e, f = math_split_log(u, &e);
    float tail = MATH_FMA_F32(e, MATH_LN2_LOW, math_log_tail(f) + rest);
    float l = MATH_FMA_F32(e, MATH_LN2_HIGH, tail + f);

    return x == 0 ? x : math_log_special(u, l);
}

/* --------------------------------------------------------------- errors -- */

MATH_INLINE float erf_f32(float x)
{
    float a = abs_f32(x), s = x * x, t = math_at_most(a, 4);
    float p = 0x1.496a28p-14f, q = -0x1.87b378p-13f, small, big;

    p = MATH_FMA_F32(p, s, -0x1.a3f6fcp-11f);
    p = MATH_FMA_F32(p, s, 0x1.5405b2p-8f);
    p = MATH_FMA_F32(p, s, -0x1.b7f90cp-6f);
    p = MATH_FMA_F32(p, s, 0x1.ce2cf8p-4f);
    p = MATH_FMA_F32(p, s, -0x1.81273ep-2f);
    p = MATH_FMA_F32(p, s, 0x1.06eba8p-3f);
    small = MATH_FMA_F32(p, x, x);
    /* -log(1 - erf(t)) */
    q = MATH_FMA_F32(q, t, 0x1.82e8cp-9f);
    q = MATH_FMA_F32(q, t, -0x1.66181cp-6f);
    q = MATH_FMA_F32(q, t, 0x1.a67e88p-4f);
    q = MATH_FMA_F32(q, t, 0x1.46b432p-1f);
    q = MATH_FMA_F32(q, t, 0x1.208b1ap0f);
    q = MATH_FMA_F32(q, t, 0x1.5cd7bep-12f);
    big = 1 - math_exp_normal(-q);
    return a >= 1 ? copysign_f32(big, x) : small; /* NaN: small */
}

/* 2^-(x + extra), extra a small integer, for x + extra of -128 to 127: avoids
 * slow subnormals; the result is 0 if it would be subnormal. */
MATH_INLINE float math_half_power(float x, int extra)
{
    const float rounder = MATH_ROUNDER + (float)(127 - extra);
    float shifted = rounder - x;
    float r = (shifted - rounder) + x, s = r * r; /* 2^-r, |r| <= 1/2 */
    float power = math_f32_of_bits(math_bits_of_f32(shifted) << 23);
    float low = MATH_FMA_F32(r, 0x1.ebfbe2p-3f, -0x1.62e432p-1f);
    float middle = MATH_FMA_F32(r, 0x1.3b270ep-7f, -0x1.c6ae72p-5f);
    float high = MATH_FMA_F32(r, 0x1.470c02p-13f, -0x1.5f72aap-10f);

    middle = MATH_FMA_F32(high, s, middle);
    low = MATH_FMA_F32(middle, s, low);
    return MATH_FMA_F32(power * r, low, power);
}

/* Φ(x), the normal distribution function.  For the smaller tail, below -|x|,
 * the logarithm to base 2 is a polynomial without its constant, -1. */
MATH_INLINE float normal_area_f32(float x)
{
    float t = math_at_most(abs_f32(x), 11.135f), s = t * t, s2 = s * s;
    float a = MATH_FMA_F32(t, 0x1.d63de8p-2f, 0x1.26aec6p0f);
    float b = MATH_FMA_F32(t, -0x1.c69580p-8f, 0x1.ad9356p-5f);
    float c = MATH_FMA_F32(t, 0x1.2ecbbep-12f, -0x1.d24434p-17f);
    float d = MATH_FMA_F32(t, 0x1.851296p-17f, -0x1.4e39f6p-14f);
    float e = MATH_FMA_F32(t, 0x1.0d5f9p-25f, -0x1.eed2e4p-21f);
    float area;

    a = MATH_FMA_F32(b, s, a);
    c = MATH_FMA_F32(d, s, c);
    c = MATH_FMA_F32(e, s2, c);
    area = math_half_power(MATH_FMA_F32(c, s2, a) * t, 1);
    return x < 0 ? area : 1 - area;
}

/* x (1 + tanh(inner)) / 2 = x / (1 + exp(-2 inner)), inner = √(2/π) (x +
 * 0.044715 x³); beyond the bound the power is infinite. */
MATH_INLINE float gelu_tanh_f32(float x)
{
    float w = x * MATH_FMA_F32(x * x, 0x1.a5a7dp-4f, 0x1.26aec2p1f);

    w = math_at_least(math_at_most(w, 126), -128.25f);
    return x / (1 + math_half_power(w, 0));
}

/* --------------------------------------------------------- trigonometry -- */

/* The reduction is exact enough for |x| <= MATH_TURNS; beyond, libm is called
 * instead (`beyond` in backends/expressions). */
#define MATH_TURNS 1e6f

/* In f64.  x = quarter π/2 + r, |r| <= π/4; π/2 in parts of 33 bits. */
MATH_INLINE double math_reduce_turn(float x, int64_t *quarter)
{
    double shifted = (double)x * 0x1.45f306dc9c883p-1 + 0x1.8p52;
    double whole = shifted - 0x1.8p52;
    double r = (double)x - whole * 0x1.921fb544p0;

    *quarter = (int64_t)math_bits_of_f64(shifted);
    return r - whole * 0x1.0b4611a6p-34 - whole * 0x1.3198a2e037073p-69;
}

MATH_INLINE double math_sin_small(double r)
{
    double s = r * r, q = -0x1.ae64567f544e4p-26; /* -1/11! */

    q = MATH_FMA_F64(q, s, 0x1.71de3a556c734p-19);
    q = MATH_FMA_F64(q, s, -0x1.a01a01a01a01ap-13);
    q = MATH_FMA_F64(q, s, 0x1.1111111111111p-7);
    q = MATH_FMA_F64(q, s, -0x1.5555555555555p-3);
    return MATH_FMA_F64(q * s, r, r);
}

MATH_INLINE double math_cos_small(double r)
{
    double s = r * r, q = 0x1.1eed8eff8d898p-29; /* 1/12! */

    q = MATH_FMA_F64(q, s, -0x1.27e4fb7789f5cp-22);
    q = MATH_FMA_F64(q, s, 0x1.a01a01a01a01ap-16);
    q = MATH_FMA_F64(q, s, -0x1.6c16c16c16c17p-10);
    q = MATH_FMA_F64(q, s, 0x1.5555555555555p-5);
    q = MATH_FMA_F64(q, s, -0.5);
    return MATH_FMA_F64(q, s, 1.0);
}

#if defined(__FMA__) || defined(__aarch64__)

/* sin(x + turns π/2).  x = quarter π/2 + r + rest, with π/2 in three parts: what
 * the first one leaves is exact, the second one is a product of two numbers.
 * The sine is r + rest + s r q, the cosine is 1 - r rest + s q, with s = r², of
 * which the part that is rounded off is about fma(r, r, -s). */
MATH_INLINE float math_turn_f32(float x, uint32_t turns)
{
    float shifted = MATH_FMA_F32(x, 0x1.45f306p-1f, 0x1.8p23f);
    float whole = shifted - 0x1.8p23f;
    float left = MATH_FMA_F32(whole, -0x1.921fb6p0f, x);
    float next = whole * 0x1.777a5cp-25f, r = left + next;
    float rest = MATH_FMA_F32(whole, 0x1.777a5cp-25f, -next);
    uint32_t quarter = math_bits_of_f32(shifted) + turns;
    int odd = quarter & 1;
    float s = r * r, first = odd ? 1 : r,
          q = odd ? 0x1.99d65ep-16f : 0x1.7a86b2p-19f;

    rest = MATH_FMA_F32(whole, 0x1.ee59dap-50f, rest + (left - r + next));
    rest = odd ? MATH_FMA_F32(-r, rest, -0.5f * MATH_FMA_F32(r, r, -s)) : rest;
    q = MATH_FMA_F32(q, s, odd ? -0x1.6c0c04p-10f : -0x1.a053f2p-13f);
    q = MATH_FMA_F32(q, s, odd ? 0x1.55554ap-5f : 0x1.11117p-7f);
    q = MATH_FMA_F32(q, s, odd ? -0.5f : -0x1.555556p-3f);
    q = first + MATH_FMA_F32(q, s * first, rest);
    return math_f32_of_bits(math_bits_of_f32(q) ^ (quarter & 2) << 30);
}

MATH_INLINE float sin_f32(float x)
{
    return x == 0 ? x : math_turn_f32(x, 0);
}

MATH_INLINE float cos_f32(float x)
{
    return math_turn_f32(x, 1);
}

#else

MATH_INLINE float sin_f32(float x)
{
    int64_t quarter;
    double r = math_reduce_turn(x, &quarter);
    double y = quarter & 1 ? math_cos_small(r) : math_sin_small(r);

    y = quarter & 2 ? -y : y;
    return x == 0 ? x : (float)y;
}

MATH_INLINE float cos_f32(float x)
{
    int64_t quarter;
    double r = math_reduce_turn(x, &quarter);
    double y = quarter & 1 ? math_sin_small(r) : math_cos_small(r);

    return (float)((quarter + 1) & 2 ? -y : y);
}

#endif

MATH_INLINE float tan_f32(float x)
{
    int64_t quarter;
    double r = math_reduce_turn(x, &quarter);
    double s = math_sin_small(r), c = math_cos_small(r);
    double y = quarter & 1 ? -c / s : s / c;

    return x == 0 ? x : (float)y;
}

/* ---------------------------------------------------------------- arcs -- */

/* In f64, whose rounding errors are small beside that of the result. */
#if defined(MATH_VECTOR_F64)

/* atan(t) of |t| <= tan(π/8), plus the start of its part of the circle. */
MATH_INLINE double math_atan_from(double t, double start)
{
    double s = t * t, q = 0x1.84a16a970719cp-5;

    q = MATH_FMA_F64(q, s, -0x1.5b2ffda4cb123p-4);
    q = MATH_FMA_F64(q, s, 0x1.c463f5558f587p-4);
    q = MATH_FMA_F64(q, s, -0x1.247eda00b7c0ep-3);
    q = MATH_FMA_F64(q, s, 0x1.9999189d45f9ap-3);
    q = MATH_FMA_F64(q, s, -0x1.555554c5feaa8p-2);
    return start + MATH_FMA_F64(q * s, t, t);
}

/* atan(a / b) of a, b >= 0: of (a - b) / (a + b) beyond π/8, and of -b / a
 * beyond 3π/8. */
MATH_INLINE double math_arc(double a, double b)
{
    int middle = a > b * 0x1.a827999fcef32p-2,
        steep = a > b * 0x1.3504f333f9de6p1;
    double over = middle ? a - b : a, under = middle ? a + b : b;
    double start = middle ? 0x1.921fb54442d18p-1 : 0;

    over = steep ? -b : over;
    under = steep ? a : under;
    start = steep ? 0x1.921fb54442d18p0 : start;
    return math_atan_from(over / under, start);
}

MATH_INLINE float atan_f32(float x)
{
    return copysign_f32((float)math_arc((double)abs_f32(x), 1), x);
}

/* Both 0: as if x were 1 or -1; both infinite: the diagonal. */
MATH_INLINE float atan2_f32(float y, float x)
{
    float a = abs_f32(y), b = abs_f32(x);
    double arc;

    b = (a == 0) & (b == 0) ? 1 : b;
    arc = (a == __builtin_inff()) & (b == __builtin_inff())
              ? 0x1.921fb54442d18p-1
              : math_arc((double)a, (double)b);
    arc = copysign_f32(1, x) < 0 ? 0x1.921fb54442d18p1 - arc : arc;
    return copysign_f32((float)arc, y);
}

/* asin(t) of |t| <= 1/2, s = t². */
MATH_INLINE double math_asin_small(double t, double s)
{
    double q = 0x1.335588721fd9fp-5;

    q = MATH_FMA_F64(q, s, 0x1.d9203e3fc1526p-7);
    q = MATH_FMA_F64(q, s, 0x1.049197f202655p-5);
    q = MATH_FMA_F64(q, s, 0x1.6caed2ffb230ep-5);
    q = MATH_FMA_F64(q, s, 0x1.33387c9981460p-4);
    q = MATH_FMA_F64(q, s, 0x1.55554c5fadb18p-3);
    return MATH_FMA_F64(q * s, t, t);
}

/* asin(a) of a <= 1/2; beyond, asin(sqrt((1 - a) / 2)). */
MATH_INLINE double math_asin_part(double a)
{
    double half = 0.5 - 0.5 * a;
    int far = a > 0.5;

    return math_asin_small(far ? sqrt_f64(half) : a, far ? half : a * a);
}

/* Beyond 1/2, asin(a) = π/2 - 2 asin(sqrt((1 - a) / 2)). */
MATH_INLINE float asin_f32(float x)
{
    double a = (double)abs_f32(x), arc = math_asin_part(a);

    arc = a > 0.5 ? 0x1.921fb54442d18p0 - 2 * arc : arc;
    return copysign_f32((float)arc, x);
}

/* π/2 - asin(x), without a difference where x is near 1. */
MATH_INLINE float acos_f32(float x)
{
    double a = (double)abs_f32(x), arc = math_asin_part(a);
    double turn = x < 0 ? 0x1.921fb54442d18p1 : 0;

    arc = x < 0 ? -arc : arc;
    return (float)(a > 0.5 ? turn + 2 * arc : 0x1.921fb54442d18p0 - arc);
}

#else
MATH_LIBM_F32(asin)
MATH_LIBM_F32(acos)
MATH_LIBM_F32(atan)

MATH_INLINE float atan2_f32(float y, float x)
{
    return atan2f(y, x);
}
#endif

MATH_INLINE double atan2_f64(double y, double x)
{
    return atan2(y, x);
}

/* ----------------------------------------------------------------- libm -- */

#if !defined(MATH_VECTOR_F64)
MATH_LIBM_F64(exp)
MATH_LIBM_F64(expm1)
MATH_LIBM_F64(log)
MATH_LIBM_F64(tanh)
MATH_LIBM_F64(erf)

MATH_INLINE double sigmoid_f64(double x)
{
    double e = exp(-abs_f64(x));

    return (x < 0 ? e : 1) / (1 + e);
}
#endif

MATH_LIBM_F64(exp2)
MATH_LIBM_F64(log2)
MATH_LIBM_F64(log10)
MATH_LIBM_F64(log1p)
MATH_LIBM_F64(sinh)
MATH_LIBM_F64(cosh)
MATH_LIBM_F64(sin)
MATH_LIBM_F64(cos)
MATH_LIBM_F64(tan)
MATH_LIBM(erfc)
MATH_LIBM_F64(asin)
MATH_LIBM_F64(acos)
MATH_LIBM_F64(atan)
MATH_LIBM(asinh)
MATH_LIBM(acosh)
MATH_LIBM(atanh)
MATH_LIBM_2(fmod)
MATH_LIBM_2(hypot)
MATH_LIBM_2(nextafter)

MATH_INLINE double pow_f64(double x, double y)
{
    return pow(x, y);
}

#if defined(__AVX512F__) && defined(MATH_VECTOR_F64)
/* In f64, whose rounding errors are small beside that of the result; with
 * fewer lanes libm is faster.  A sign remains if y is odd; numbers from 2^24 on
 * are even. */
MATH_INLINE float pow_f32(float a, float b)
{
    double x = (double)a, y = (double)b, most = __builtin_fabs(x);
    double near = __builtin_fabs(y) < 0x1p25 ? y : 0, half = near * 0.5;
    double whole = (near + MATH_ROUNDER_F64) - MATH_ROUNDER_F64;
    double halved = (half + MATH_ROUNDER_F64) - MATH_ROUNDER_F64;
    double p = y * log_f64(most), other;

    p = p > 700 ? 700 : p; /* far beyond f32 */
    p = math_exp_normal_f64(p < -700 ? -700 : p);
    other = y == y ? 1 : p;
    p = most == 1 ? other : p;
    p = x == 1 ? 1 : p;
    p = y == 0 ? 1 : p;
    other = halved != half ? __builtin_copysign(p, x) : p;
    p = whole == near ? other : p;
    other = whole != near ? __builtin_nan("") : p;
    other = most < __builtin_inf() ? other : p;
    p = x < 0 ? other : p;
    return (float)p;
}
#else
MATH_INLINE float pow_f32(float x, float y)
{
    return powf(x, y);
}
#endif

/* The same among the values of a narrower type, such as a and b.  one: its
 * lowest bit in an f32; smallest: its spacing below `normal`. */
MATH_INLINE float narrow_step(float a, float b, uint32_t one, float normal,
                              float smallest, float largest)
{
    int up = a < b;
    uint32_t bits;
    float next;

    if (a != a || b != b)
        return a + b;
    if (a == b)
        return b;
    if (abs_f32(a) > largest)
        return copysign_f32(largest, a);
    if (abs_f32(a) < normal || (abs_f32(a) == normal && up != (a > 0))) {
        next = a + (up ? smallest : -smallest);
        return a == 0 ? next : copysign_f32(next, a);
    }
    memcpy(&bits, &a, sizeof bits);
    bits = up == (a > 0) ? bits + one : bits - one;
    memcpy(&next, &bits, sizeof next);
    return next;
}

MATH_INLINE float nextafter_f16(float a, float b)
{
    return narrow_step(a, b, 1u << 13, 0x1p-14f, 0x1p-24f, 65504);
}

MATH_INLINE float nextafter_bf16(float a, float b)
{
    return narrow_step(a, b, 1u << 16, 0x1p-126f, 0x1p-133f, 0x1.fep127f);
}

MATH_INLINE float round_to_f16(float x)
{
    return math_f32_of_f16(math_f16_of_f32(x));
}

MATH_INLINE float round_to_bf16(float x)
{
    return math_f32_of_bf16(math_bf16_of_f32(x));
}

MATH_INLINE float lgamma_f32(float x)
{
    int sign;

    return lgammaf_r(x, &sign);
}

MATH_INLINE double lgamma_f64(double x)
{
    int sign;

    return lgamma_r(x, &sign);
}

#endif
