/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "bf16_vector.h"

#include <expressions/number.h>

#include "isa.h"

enum { LANES = 32, ABREAST = 4 /* rows, which share the reading of x */ };

__attribute__((noinline)) static float folded(float *lanes)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    return lanes[0];
}

/* `rows` is a constant where this is expanded. */
__attribute__((always_inline)) static inline void products(
    const uint16_t *a, int64_t distance, const float *x, int64_t k,
    const int rows, float *y)
{
    float lanes[ABREAST][LANES] = {{0}};
    int64_t p = 0;

    for (; p + LANES <= k; p += LANES)
        for (int r = 0; r < rows; r++) {
            const uint16_t *from = a + r * distance + p;

            MATH_LOOP
            for (int l = 0; l < LANES; l++)
                lanes[r][l] += math_f32_of_bf16(from[l]) * x[p + l];
        }
    for (int r = 0; r < rows; r++) {
        float rest = 0;

        for (int64_t q = p; q < k; q++)
            rest += math_f32_of_bf16(a[r * distance + q]) * x[q];
        y[r] = folded(lanes[r]) + rest;
    }
}

static void rows_of(const uint16_t *a, int64_t distance, const float *x,
                    int64_t k, int64_t rows, float *y)
{
    int64_t i = 0;

    for (; i + ABREAST <= rows; i += ABREAST)
        products(a + i * distance, distance, x, k, ABREAST, y + i);
    for (; i < rows; i++)
        products(a + i * distance, distance, x, k, 1, y + i);
}

/* Columns may be a page apart, where hardware does not prefetch the next. */
enum {
    AHEAD = 8, /* columns from the one that is added to the prefetched one */
    LINE = 32  /* elements of a cache line */
};

/* to += x a */
static inline void add_column(float *to, const uint16_t *a, float x, int64_t n)
{
    MATH_LOOP
    for (int64_t i = 0; i < n; i++)
        to[i] += math_f32_of_bf16(a[i]) * x;
}

static void columns_of(const uint16_t *a, int64_t distance, const float *x,
                       int64_t k, int64_t rows, float *y)
{
    float lanes[LANES][CPU_BF16_COLUMN] = {{0}}, rest[CPU_BF16_COLUMN] = {0};

    for (int64_t p = 0; p < k; p++) {
        const uint16_t *from = a + p * distance;

        for (int64_t i = 0; p + AHEAD < k && i < rows; i += LINE)
            __builtin_prefetch(from + AHEAD * distance + i);
        add_column(p < k / LANES * LANES ? lanes[p % LANES] : rest, from, x[p],
                   rows);
    }
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            for (int64_t i = 0; i < rows; i++)
                lanes[l][i] += lanes[l + width][i];
    for (int64_t i = 0; i < rows; i++)
        y[i] = lanes[0][i] + rest[i];
}

static float dot(const uint16_t *a, const uint16_t *b, int64_t k)
{
    float lanes[LANES] = {0}, rest = 0;
    int64_t p = 0;

    for (; p + LANES <= k; p += LANES) {
        MATH_LOOP
        for (int l = 0; l < LANES; l++)
            lanes[l] += math_f32_of_bf16(a[p + l]) * math_f32_of_bf16(b[p + l]);
    }
    for (; p < k; p++)
        rest += math_f32_of_bf16(a[p]) * math_f32_of_bf16(b[p]);
    return folded(lanes) + rest;
}

const cpu_bf16_vector CPU_NAME(cpu_bf16_vector) = {rows_of, columns_of, dot};
