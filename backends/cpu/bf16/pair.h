/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* pair.h: two adjacent numbers of bf16 as one word, which a shift and a mask
 * convert to f32: vectors are neither widened nor narrowed. */

#ifndef CPU_BF16_PAIR_H
#define CPU_BF16_PAIR_H

#include <stdint.h>

#include <expressions/functions.h>

typedef uint32_t __attribute__((aligned(2), may_alias)) cpu_bf16_pair;

/* The bits of the first number, and of the second, as f32; also of vectors of
 * pairs. */
#define CPU_BF16_FIRST(pair) ((pair) << 16)
#define CPU_BF16_SECOND(pair) ((pair)&0xffff0000)

static inline float cpu_bf16_first(uint32_t pair)
{
    return math_f32_of_bits(CPU_BF16_FIRST(pair));
}

static inline float cpu_bf16_second(uint32_t pair)
{
    return math_f32_of_bits(CPU_BF16_SECOND(pair));
}

#endif
