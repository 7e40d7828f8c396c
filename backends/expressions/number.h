/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* number.h: numbers and their bits.  Everything here is free of branches, so
 * that a loop around it is vectorized; files with such loops are compiled with
 * -ffp-contract=off and without errno and traps, so that a vector element and a
 * single one have the same bits. */

#ifndef EXPRESSIONS_NUMBER_H
#define EXPRESSIONS_NUMBER_H

#include <stdint.h>
#include <string.h>

/* A loop whose iterations are independent: an output is either exactly an
 * input's elements, or disjoint from it. */
#if defined(__clang__)
#define MATH_LOOP _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define MATH_LOOP _Pragma("GCC ivdep")
#else
#define MATH_LOOP
#endif

/* A loop that is unrolled before other optimizations. */
#if defined(__clang__)
#define MATH_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define MATH_UNROLL _Pragma("GCC unroll 32")
#else
#define MATH_UNROLL
#endif

#if defined(__AVX512F__)
#define MATH_LANES_BYTES 64
#elif defined(__AVX__)
#define MATH_LANES_BYTES 32
#else
#define MATH_LANES_BYTES 1024 /* one loop: there are too few registers */
#endif
#define MATH_LANES_AT_ONCE(TYPE, COUNT)                  \
    (MATH_LANES_BYTES / (int)sizeof(TYPE) < (int)(COUNT) \
         ? MATH_LANES_BYTES / (int)sizeof(TYPE)          \
         : (int)(COUNT))
/* Statements for each k below COUNT, in a loop that accumulates in as many lanes
 * of TYPE.  Each vector of lanes has a loop, because compilers keep lanes in
 * memory if one loop has several vectors: with AVX2 that took twice as long. */
#define MATH_EACH_LANE(TYPE, COUNT, k, ...)                               \
    MATH_UNROLL                                                           \
    for (int math_first_##k = 0; math_first_##k < (int)(COUNT);           \
         math_first_##k += MATH_LANES_AT_ONCE(TYPE, COUNT)) {             \
        _Static_assert((COUNT) % MATH_LANES_AT_ONCE(TYPE, COUNT) == 0,    \
                       "lanes that are not in a vector");                 \
        for (int k = math_first_##k;                                      \
             k < math_first_##k + MATH_LANES_AT_ONCE(TYPE, COUNT); k++) { \
            __VA_ARGS__                                                   \
        }                                                                 \
    }

/* A call in a loop would prevent vectorization.  Other compilers may define
 * such functions, and a fused multiply-add, before: backends/gpu does. */
#if defined(MATH_INLINE)
#elif defined(__GNUC__)
#define MATH_INLINE static inline __attribute__((always_inline))
#else
#define MATH_INLINE static inline
#endif

/* For functions that are too long to be inlined everywhere. */
#if !defined(MATH_FUNCTION)
#define MATH_FUNCTION static inline
#endif

/* a * b + c, rounded once where the instruction set does it. */
#if defined(MATH_FMA_F32)
#elif defined(__FMA__) || defined(__aarch64__)
#define MATH_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define MATH_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define MATH_FMA_F32(a, b, c) ((a) * (b) + (c))
#define MATH_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

MATH_INLINE float math_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

MATH_INLINE uint32_t math_bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

MATH_INLINE double math_f64_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

MATH_INLINE uint64_t math_bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

MATH_INLINE float math_f32_of_f16(uint16_t half)
{
    /* After shifting, the exponent is too small by 112, which a product
     * corrects, for subnormals too. */
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t scaled = math_bits_of_f32(math_f32_of_bits(bits) * 0x1p112f);
    uint32_t special = bits | UINT32_C(0x7f800000); /* infinity, NaN */

    return math_f32_of_bits((bits >= UINT32_C(0x0f800000) ? special : scaled) |
                            sign);
}

MATH_INLINE uint16_t math_f16_of_f32(float x)
{
    uint32_t bits = math_bits_of_f32(x) & UINT32_C(0x7fffffff);
    uint32_t sign = math_bits_of_f32(x) >> 16 & 0x8000;
    /* A unit in the last place of 0.5 is the least subnormal. */
    uint32_t small =
        math_bits_of_f32(math_f32_of_bits(bits) + 0.5f) - UINT32_C(0x3f000000);
    uint32_t normal =
        (bits + (bits >> 13 & 1) + 0xfff - UINT32_C(0x38000000)) >> 13;
    uint32_t half = bits < UINT32_C(0x38800000) ? small : normal;

    half = bits >= UINT32_C(0x477ff000) ? 0x7c00 : half;
    half = bits > UINT32_C(0x7f800000) ? 0x7e00 : half;
    return (uint16_t)(half | sign);
}

MATH_INLINE float math_f32_of_bf16(uint16_t half)
{
    return math_f32_of_bits((uint32_t)half << 16);
}

MATH_INLINE uint16_t math_bf16_of_f32(float x)
{
    uint32_t bits = math_bits_of_f32(x);
    uint32_t number = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

    return (uint16_t)(x == x ? number : bits >> 16 | 0x40);
}

/* Eight bits (OCP 8-bit Floating Point Specification 1.0).  e4m3 has no
 * infinity: values that round to more than 448 become NaN.  In e5m2 values that
 * round to more than 57344 become infinity. */
MATH_INLINE float math_f32_of_e4m3(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80) << 24;
    uint32_t bits = (uint32_t)(code & 0x7f) << 20;
    uint32_t scaled = math_bits_of_f32(math_f32_of_bits(bits) * 0x1p120f);

    return math_f32_of_bits(
        ((code & 0x7f) == 0x7f ? UINT32_C(0x7fc00000) : scaled) | sign);
}

MATH_INLINE float math_f32_of_e5m2(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80) << 24;
    uint32_t bits = (uint32_t)(code & 0x7f) << 21;
    uint32_t scaled = math_bits_of_f32(math_f32_of_bits(bits) * 0x1p112f);
    uint32_t special =
        (code & 0x7f) == 0x7c ? UINT32_C(0x7f800000) : UINT32_C(0x7fc00000);

    return math_f32_of_bits(((code & 0x7f) >= 0x7c ? special : scaled) | sign);
}

MATH_INLINE uint8_t math_e4m3_of_f32(float x)
{
    uint32_t bits = math_bits_of_f32(x) & UINT32_C(0x7fffffff);
    uint32_t sign = math_bits_of_f32(x) >> 24 & 0x80;
    /* A unit in the last place of 2^14 is the least subnormal. */
    uint32_t small = math_bits_of_f32(math_f32_of_bits(bits) + 0x1p14f) -
                     UINT32_C(0x46800000);
    uint32_t normal =
        (bits + (bits >> 20 & 1) + 0x7ffff - UINT32_C(0x3c000000)) >> 20;
    uint32_t code = bits < UINT32_C(0x3c800000) ? small : normal;

    code = bits > UINT32_C(0x43e80000) ? 0x7f : code; /* above 464 */
    return (uint8_t)(code | sign);
}

MATH_INLINE uint8_t math_e5m2_of_f32(float x)
{
    uint32_t bits = math_bits_of_f32(x) & UINT32_C(0x7fffffff);
    uint32_t sign = math_bits_of_f32(x) >> 24 & 0x80;
    /* … of 2^7. */
    uint32_t small = math_bits_of_f32(math_f32_of_bits(bits) + 0x1p7f) -
                     UINT32_C(0x43000000);
    uint32_t normal =
        (bits + (bits >> 21 & 1) + 0xfffff - UINT32_C(0x38000000)) >> 21;
    uint32_t code = bits < UINT32_C(0x38800000) ? small : normal;

    code = bits >= UINT32_C(0x47700000) ? 0x7c : code; /* from 61440 */
    code = bits > UINT32_C(0x7f800000) ? 0x7f : code;
    return (uint8_t)(code | sign);
}

/* The value truncated to f32, with the last bit set if it was inexact: rounding
 * that to fewer bits equals rounding the double. */
MATH_INLINE float math_odd_of_f64(double x)
{
    float near = (float)x;
    double wide = (double)near;
    uint32_t bits = math_bits_of_f32(near);
    uint64_t size = math_bits_of_f64(wide) & ~(UINT64_C(1) << 63);
    uint32_t over = size > (math_bits_of_f64(x) & ~(UINT64_C(1) << 63));

    return x == x && wide != x ? math_f32_of_bits((bits - over) | 1) : near;
}

/* Truncates; the least integer if the value does not fit. */
MATH_INLINE int32_t math_i32_of_f32(float x)
{
    int fits = x >= -0x1p31f && x < 0x1p31f;
    int32_t i = (int32_t)(fits ? x : 0.0f);

    return fits ? i : INT32_MIN;
}

MATH_INLINE int64_t math_i64_of_f32(float x)
{
    int fits = x >= -0x1p63f && x < 0x1p63f;
    int64_t i = (int64_t)(fits ? x : 0.0f);

    return fits ? i : INT64_MIN;
}

MATH_INLINE int64_t math_i64_of_f64(double x)
{
    int fits = x >= -0x1p63 && x < 0x1p63;
    int64_t i = (int64_t)(fits ? x : 0.0);

    return fits ? i : INT64_MIN;
}

/* Truncates; the nearest i64 if the value does not fit, and 0 for NaN.  For
 * numbers given as arguments, where infinity stands for no bound.  Elements are
 * converted by math_i64_of_f64, which is what vector instructions compute. */
MATH_INLINE int64_t math_i64_nearest(double x)
{
    int fits = x >= -0x1p63 && x < 0x1p63;
    int64_t i = (int64_t)(fits ? x : 0.0);
    int64_t bound = x > 0 ? INT64_MAX : x < 0 ? INT64_MIN : 0;

    return fits ? i : bound;
}

#endif
