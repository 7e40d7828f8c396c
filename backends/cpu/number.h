/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* number.h: numbers and their bits.  Everything here has no branch, so that a
 * loop around it becomes vector code; files that include it are compiled with
 * -ffp-contract=off and without errno and traps, so that a vector element and
 * a lone one give the same bits. */

#ifndef CPU_NUMBER_H
#define CPU_NUMBER_H

#include <stdint.h>
#include <string.h>

/* A loop whose iterations do not depend on each other: an output is either the
 * very elements of an input, or apart from it. */
#if defined(__clang__)
#define CPU_LOOP _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define CPU_LOOP _Pragma("GCC ivdep")
#else
#define CPU_LOOP
#endif

/* A call in a loop would keep it from becoming vector code.  Another compiler's
 * idea of such a function, and of a product and sum at once, may be defined
 * before: backends/gpu does. */
#if defined(CPU_INLINE)
#elif defined(__GNUC__)
#define CPU_INLINE static inline __attribute__((always_inline))
#else
#define CPU_INLINE static inline
#endif

/* a * b + c, rounded once where the instruction set does it. */
#if defined(CPU_FMA_F32)
#elif defined(__FMA__) || defined(__aarch64__)
#define CPU_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define CPU_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define CPU_FMA_F32(a, b, c) ((a) * (b) + (c))
#define CPU_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

CPU_INLINE float cpu_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

CPU_INLINE uint32_t cpu_bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

CPU_INLINE double cpu_f64_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

CPU_INLINE uint64_t cpu_bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

CPU_INLINE float cpu_f32_of_f16(uint16_t half)
{
    /* Shifted into place the exponent is too small by 112, which a product
     * mends, for subnormals too. */
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t scaled = cpu_bits_of_f32(cpu_f32_of_bits(bits) * 0x1p112f);
    uint32_t special = bits | UINT32_C(0x7f800000); /* infinity, NaN */

    return cpu_f32_of_bits((bits >= UINT32_C(0x0f800000) ? special : scaled) |
                           sign);
}

CPU_INLINE uint16_t cpu_f16_of_f32(float x)
{
    uint32_t bits = cpu_bits_of_f32(x) & UINT32_C(0x7fffffff);
    uint32_t sign = cpu_bits_of_f32(x) >> 16 & 0x8000;
    /* A unit in the last place of 0.5 is the least subnormal. */
    uint32_t small =
        cpu_bits_of_f32(cpu_f32_of_bits(bits) + 0.5f) - UINT32_C(0x3f000000);
    uint32_t normal =
        (bits + (bits >> 13 & 1) + 0xfff - UINT32_C(0x38000000)) >> 13;
    uint32_t half = bits < UINT32_C(0x38800000) ? small : normal;

    half = bits >= UINT32_C(0x477ff000) ? 0x7c00 : half;
    half = bits > UINT32_C(0x7f800000) ? 0x7e00 : half;
    return (uint16_t)(half | sign);
}

/* Truncated; the least integer where the value does not fit. */
CPU_INLINE int32_t cpu_i32_of_f32(float x)
{
    int fits = x >= -0x1p31f && x < 0x1p31f;
    int32_t i = (int32_t)(fits ? x : 0.0f);

    return fits ? i : INT32_MIN;
}

CPU_INLINE int64_t cpu_i64_of_f32(float x)
{
    int fits = x >= -0x1p63f && x < 0x1p63f;
    int64_t i = (int64_t)(fits ? x : 0.0f);

    return fits ? i : INT64_MIN;
}

CPU_INLINE int64_t cpu_i64_of_f64(double x)
{
    int fits = x >= -0x1p63 && x < 0x1p63;
    int64_t i = (int64_t)(fits ? x : 0.0);

    return fits ? i : INT64_MIN;
}

#endif
