/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* vecmath64.h: the functions of f64 that are worth vectorizing, on the plan
 * of vecmath.h.  64-bit integers are only added and shifted left or
 * logically right, which every instruction set can do in vectors; an
 * exponent is halved as a double.
 *
 * Largest error (limits: tests/unit/cpu/test_cpu_vecmath64.c), in units of
 * the last place:
 *
 *     exp log             1
 *     erf                 1.5
 *     expm1               2
 *     sigmoid             2.5
 *     tanh                3 */

#ifndef EXPRESSIONS_VECMATH64_H
#define EXPRESSIONS_VECMATH64_H

#include "number.h"

/* ln 2 in two parts; products of the first with integers are exact. */
#define MATH_LN2_HIGH_F64 0x1.62e42feep-1
#define MATH_LN2_LOW_F64 0x1.a39ef35793c76p-33
#define MATH_ROUNDER_F64 0x1.8p52
#define MATH_ROUNDER_BITS_F64 UINT64_C(0x4338000000000000)

/* exp(r) - 1 for |r| <= ln 2 / 2. */
MATH_INLINE double math_expm1_small_f64(double r)
{
    double q = 0x1.1f9d1af267ca5p-29;

    q = MATH_FMA_F64(q, r, 0x1.af6d11f9571f6p-26);
    q = MATH_FMA_F64(q, r, 0x1.27e4bfd2f8009p-22);
    q = MATH_FMA_F64(q, r, 0x1.71ddef69e7165p-19);
    q = MATH_FMA_F64(q, r, 0x1.a01a01b3fa47dp-16);
    q = MATH_FMA_F64(q, r, 0x1.a01a01b3ccacfp-13);
    q = MATH_FMA_F64(q, r, 0x1.6c16c16c136f4p-10);
    q = MATH_FMA_F64(q, r, 0x1.111111110eb84p-7);
    q = MATH_FMA_F64(q, r, 0x1.555555555555dp-5);
    q = MATH_FMA_F64(q, r, 0x1.555555555555cp-3);
    q = MATH_FMA_F64(q, r, 0.5);
    return MATH_FMA_F64(q * r, r, r);
}

/* 2^n of a whole number, -1022 <= n <= 1023. */
MATH_INLINE double math_power_of_two_f64(double n)
{
    uint64_t bits = math_bits_of_f64(n + MATH_ROUNDER_F64);

    return math_f64_of_bits((bits - MATH_ROUNDER_BITS_F64 + 1023) << 52);
}

/* x = whole ln 2 + r, for |x| < 2^20. */
MATH_INLINE double math_reduce_exp_f64(double x, double *whole)
{
    double n = MATH_FMA_F64(x, 0x1.71547652b82fep0, MATH_ROUNDER_F64) -
               MATH_ROUNDER_F64;
    double r = MATH_FMA_F64(n, -MATH_LN2_HIGH_F64, x);

    *whole = n;
    return MATH_FMA_F64(n, -MATH_LN2_LOW_F64, r);
}

MATH_INLINE double exp_f64(double x)
{
    double n, half, r, bounded = x > 710 ? 710 : x;

    bounded = bounded < -746 ? -746 : bounded;
    r = math_reduce_exp_f64(bounded, &n);
    /* In two steps, as the result may overflow or be subnormal. */
    half = (n * 0.5 + MATH_ROUNDER_F64) - MATH_ROUNDER_F64;
    return (math_expm1_small_f64(r) + 1) * math_power_of_two_f64(half) *
           math_power_of_two_f64(n - half);
}

/* exp for -708 <= x <= 709: neither overflows nor is subnormal. */
MATH_INLINE double math_exp_normal_f64(double x)
{
    double n, r = math_reduce_exp_f64(x, &n);

    return (math_expm1_small_f64(r) + 1) * math_power_of_two_f64(n);
}

MATH_INLINE double expm1_f64(double x)
{
    double n, r, half, sum, bounded = x > 710 ? 710 : x;

    bounded = bounded < -40 ? -40 : bounded;
    r = math_expm1_small_f64(math_reduce_exp_f64(bounded, &n));
    /* Half of it, so that 2^n does not overflow where the result does not. */
    half = math_power_of_two_f64(n - 1);
    sum = MATH_FMA_F64(half, r, half - 0.5);
    sum += sum;
    return __builtin_fabs(x) < 0x1p-54 ? x : sum; /* subnormals and -0 too */
}

/* t / (t + 2) for t = exp(2 x) - 1, which keeps its digits near 0. */
MATH_INLINE double tanh_f64(double x)
{
    double a = __builtin_fabs(x), bounded = a > 20 ? 20 : a;
    double t = expm1_f64(bounded + bounded);
    double y = __builtin_copysign(t / (t + 2), x);

    return a < 0x1p-30 ? x : y;
}

MATH_INLINE double sigmoid_f64(double x)
{
    double e = exp_f64(-__builtin_fabs(x));

    return (x < 0 ? e : 1) / (1 + e);
}

/* x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2).  With s = f / (2 + f),
 * log(1 + f) = 2 atanh(s) = f - f²/2 + s (f²/2 + s² p(s²)). */
MATH_INLINE double log_f64(double x)
{
    int tiny = x < 0x1p-1022;
    double scaled = tiny ? x * 0x1p52 : x;
    uint64_t bits = math_bits_of_f64(scaled) + UINT64_C(0x00095f619980c433);
    /* The biased exponent, as a double: in the low bits of 2^52. */
    double e = math_f64_of_bits(bits >> 52 | UINT64_C(0x4330000000000000)) -
               (tiny ? 0x1p52 + 1075 : 0x1p52 + 1023);
    double f = math_f64_of_bits((bits & UINT64_C(0x000fffffffffffff)) +
                                UINT64_C(0x3fe6a09e667f3bcd)) -
               1;
    double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    double p = 0x1.0f680465a4197p-3, y;

    p = MATH_FMA_F64(p, z, 0x1.0f5c37454d101p-3);
    p = MATH_FMA_F64(p, z, 0x1.3b20b261e9a36p-3);
    p = MATH_FMA_F64(p, z, 0x1.745cde0b1260ep-3);
    p = MATH_FMA_F64(p, z, 0x1.c71c72598fc93p-3);
    p = MATH_FMA_F64(p, z, 0x1.249249242abc5p-2);
    p = MATH_FMA_F64(p, z, 0x1.9999999999e06p-2);
    p = MATH_FMA_F64(p, z, 0x1.5555555555555p-1);
    y = MATH_FMA_F64(s, MATH_FMA_F64(z, p, half), e * MATH_LN2_LOW_F64);
    y = MATH_FMA_F64(e, MATH_LN2_HIGH_F64, f - (half - y));
    y = x > 0x1.fffffffffffffp1023 ? x : y;
    y = x == 0 ? -__builtin_inf() : y;
    return x < 0 || x != x ? __builtin_nan("") : y;
}

MATH_INLINE double erf_f64(double x)
{
    double a = __builtin_fabs(x), s = x * x, t = a > 6 ? 6 : a;
    double p = 0x1.05796bdeb6a99p-34, q = 0x1.5a7fc9fbe86acp-38, small, big;

    p = MATH_FMA_F64(p, s, -0x1.386aa90f05654p-30);
    p = MATH_FMA_F64(p, s, 0x1.f7a40a595dc10p-27);
    p = MATH_FMA_F64(p, s, -0x1.5f1d3603f5661p-23);
    p = MATH_FMA_F64(p, s, 0x1.b9def18706ad1p-20);
    p = MATH_FMA_F64(p, s, -0x1.f4d1df37782ecp-17);
    p = MATH_FMA_F64(p, s, 0x1.f9a321a104ff0p-14);
    p = MATH_FMA_F64(p, s, -0x1.c02db3d8ec45fp-11);
    p = MATH_FMA_F64(p, s, 0x1.565bcd0db0295p-8);
    p = MATH_FMA_F64(p, s, -0x1.b82ce3128499ap-6);
    p = MATH_FMA_F64(p, s, 0x1.ce2f21a042b20p-4);
    p = MATH_FMA_F64(p, s, -0x1.812746b0379e6p-2);
    p = MATH_FMA_F64(p, s, 0x1.06eba8214db69p-3);
    small = MATH_FMA_F64(p, x, x);
    /* -log(1 - erf(1 + t)) */
    t -= 1;
    q = MATH_FMA_F64(q, t, -0x1.093e60c8d76f1p-33);
    q = MATH_FMA_F64(q, t, 0x1.6e1598c453c2fp-30);
    q = MATH_FMA_F64(q, t, -0x1.273fa34b53788p-27);
    q = MATH_FMA_F64(q, t, 0x1.2149301ea53f4p-25);
    q = MATH_FMA_F64(q, t, -0x1.f8f285e3eabe3p-25);
    q = MATH_FMA_F64(q, t, -0x1.b49c2a3feee3ap-23);
    q = MATH_FMA_F64(q, t, 0x1.1ddbd416d6da6p-19);
    q = MATH_FMA_F64(q, t, -0x1.4471822268448p-17);
    q = MATH_FMA_F64(q, t, 0x1.c84b7f82946c5p-16);
    q = MATH_FMA_F64(q, t, -0x1.b929ee7897a81p-16);
    q = MATH_FMA_F64(q, t, -0x1.f1b07ad56ccbap-13);
    q = MATH_FMA_F64(q, t, 0x1.033f5add3385fp-9);
    q = MATH_FMA_F64(q, t, -0x1.48c9d38849947p-7);
    q = MATH_FMA_F64(q, t, 0x1.5477f099ed4dfp-5);
    q = MATH_FMA_F64(q, t, 0x1.afabc11a2ad13p-1);
    q = MATH_FMA_F64(q, t, 0x1.51c9b0006c21dp+1);
    q = MATH_FMA_F64(q, t, 0x1.d97fbf27aa2a1p+0);
    big = 1 - math_exp_normal_f64(-q);
    return a < 1 ? small : __builtin_copysign(big, x);
}

#endif
