/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* bf16_rows.h: products of matrices of bf16 with a vector of f32, for matrices
 * that are read once: as they come from memory, without a converted copy. */

#ifndef CPU_BF16_ROWS_H
#define CPU_BF16_ROWS_H

#include <stdint.h>

enum { CPU_BF16_COLUMN = 128 /* elements of y, at most, by columns */ };

/* Sums run in lanes, in an order that depends on k alone: a product has the same
 * bits by each of the three. */
typedef struct cpu_bf16_rows {
    /* y[i] = sum_p a[i * distance + p] x[p], for `rows` rows of k. */
    void (*rows)(const uint16_t *a, int64_t distance, const float *x, int64_t k,
                 int64_t rows, float *y);
    /* y[i] = sum_p a[i + p * distance] x[p]. */
    void (*columns)(const uint16_t *a, int64_t distance, const float *x,
                    int64_t k, int64_t rows, float *y);
    /* Of two vectors. */
    float (*dot)(const uint16_t *a, const uint16_t *b, int64_t k);
} cpu_bf16_rows;

extern const cpu_bf16_rows cpu_bf16_rows_baseline, cpu_bf16_rows_avx2,
    cpu_bf16_rows_avx512;

#endif
