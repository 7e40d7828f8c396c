/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* row_loop.h: the building blocks of the rows that gen_kernels.py writes. */

#ifndef CPU_ROW_LOOP_H
#define CPU_ROW_LOOP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <expressions/functions.h>

#include "bf16/pair.h"
#include "loop.h"
#include "math/special.h"

/* A row (elementwise.h); few use all of its arguments. */
#define ROW_FUNCTION(name)                                     \
    static core_status name(                                   \
        char *out, const char *first __attribute__((unused)),  \
        const char *second __attribute__((unused)), int64_t n, \
        cpu_parameters *q __attribute__((unused)),             \
        char *const *p __attribute__((unused)))

/* Bits whose upper half is x rounded to bf16. */
static inline uint32_t row_rounded(float x)
{
    uint32_t bits = math_bits_of_f32(x);

    return x == x ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
}

#endif
