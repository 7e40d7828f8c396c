/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "bf16_rows.h"

#include <expressions/number.h>

#include "isa.h"

enum { LANES = 32, ABREAST = 4 /* rows, which share the reading of x */ };

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
        for (int width = LANES / 2; width > 0; width /= 2)
            for (int l = 0; l < width; l++)
                lanes[r][l] += lanes[r][l + width];
        y[r] = lanes[r][0] + rest;
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

const cpu_bf16_rows CPU_NAME(cpu_bf16_rows) = rows_of;
