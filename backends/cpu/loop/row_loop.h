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

/* ------------------------------------------------------ rows in groups -- */

#if defined(__AVX2__)

/* Functions of f32 whose code is long.  n is a multiple of ROW_STEP, so that no
 * code is needed for last elements.  They are not all used. */
enum { ROW_STEP = 8, ROW_GROUP = 64 };
#define ROW_GROUP_FUNCTION(name)                        \
    static __attribute__((noinline, unused)) void name( \
        float *to, const float *x, const float *y, int64_t n)
#define ROW_EACH(STATEMENT)                     \
    for (int64_t i = 0; i < n; i += ROW_STEP) { \
        MATH_LOOP                               \
        for (int j = 0; j < ROW_STEP; j++) {    \
            const int64_t k = i + j;            \
                                                \
            STATEMENT;                          \
        }                                       \
    }

/* fmod: in f64 where the quotient is small enough, else by libm. */
ROW_GROUP_FUNCTION(row_rests)
{
    int far = 0;

    ROW_EACH(to[k] = math_near_rest(x[k], y[k]))
    ROW_EACH(far |= !math_is_near(x[k], y[k]))
    for (int64_t k = 0; far && k < n; k++)
        if (!math_is_near(x[k], y[k]))
            to[k] = fmod_f32(x[k], y[k]);
}

/* remainder */
ROW_GROUP_FUNCTION(row_floor_rests)
{
    row_rests(to, x, y, n);
    ROW_EACH(to[k] = (to[k] != 0) & ((y[k] < 0) != (to[k] < 0)) ? to[k] + y[k]
                                                                : to[k])
}

ROW_GROUP_FUNCTION(row_floor_quotients)
{
    row_rests(to, x, y, n);
    ROW_EACH(to[k] = floor_quotient_f32(x[k], y[k], to[k]))
}

/* atan2(x, y) */
ROW_GROUP_FUNCTION(row_arcs){ROW_EACH(to[k] = atan2_f32(x[k], y[k]))}

ROW_GROUP_FUNCTION(row_arcsines)
{
    (void)y;
    ROW_EACH(to[k] = asin_f32(x[k]))
}

ROW_GROUP_FUNCTION(row_arccosines)
{
    (void)y;
    ROW_EACH(to[k] = acos_f32(x[k]))
}

/* Computes n elements from copies of the operands, which the output may
 * overlap, with ones after them.  second: NULL, or the second operand. */
static __attribute__((noinline, unused)) void row_grouped(
    void (*function)(float *to, const float *x, const float *y, int64_t n),
    char *out, const char *first, const char *second, int64_t n)
{
    float x[ROW_GROUP], y[ROW_GROUP], to[ROW_GROUP];
    const int64_t bytes = (int64_t)sizeof(float);

    for (int64_t start = 0; start < n; start += ROW_GROUP) {
        int64_t m = n - start < ROW_GROUP ? n - start : ROW_GROUP;

        if (!second || m < ROW_GROUP)
            for (int64_t k = 0; k < ROW_GROUP; k++) {
                __asm__ volatile(""); /* not vectorized */
                x[k] = y[k] = 1;
            }
        memcpy(x, first + start * bytes, (size_t)(m * bytes));
        if (second)
            memcpy(y, second + start * bytes, (size_t)(m * bytes));
        function(to, x, y, (m + ROW_STEP - 1) / ROW_STEP * ROW_STEP);
        memcpy(out + start * bytes, to, (size_t)(m * bytes));
    }
}

#endif
#endif
