/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* draw_kernel.h: the instruction set's part of random.c. */

#ifndef CPU_DRAW_KERNEL_H
#define CPU_DRAW_KERNEL_H

#include <stdint.h>

#include "isa.h"

enum { CPU_DRAW_GROUP = 64 }; /* elements that are drawn at once */

/* Elements [first, first + n) of a draw (philox.h), first a multiple of 4, n at
 * most CPU_DRAW_GROUP; CPU_DRAW_GROUP elements are written. */
typedef struct cpu_draw_functions {
    /* from + u * width, u with the bits of `mask` of each word. */
    void (*uniform)(float *to, uint64_t seed, uint64_t offset, int64_t first,
                    uint32_t mask, float from, float width);
    void (*normal)(float *to, uint64_t seed, uint64_t offset, int64_t first,
                   double mean, double deviation);
    /* 1 where the words are less than `limit`. */
    void (*less)(uint8_t *to, uint64_t seed, uint64_t offset, int64_t first,
                 uint64_t limit);
} cpu_draw_functions;

extern const cpu_draw_functions cpu_draw_functions_baseline,
    cpu_draw_functions_avx2, cpu_draw_functions_avx512;

#endif
