/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* bf16_vector.h: products of matrices of bf16 with a vector, by rows, by columns,
 * or of a single row.  A matrix is read once, as it comes from memory, without a
 * converted copy. */

#ifndef CPU_BF16_VECTOR_H
#define CPU_BF16_VECTOR_H

#include <stdint.h>

enum { CPU_BF16_COLUMN = 128 /* elements of y, at most, by columns */ };

/* Sums run in lanes, in an order that depends on k alone: a product has the same
 * bits by each of the three. */
typedef struct cpu_bf16_vector {
    /* y[i] = sum_p a[i * distance + p] x[p], for `rows` rows of k. */
    void (*rows)(const uint16_t *a, int64_t distance, const float *x, int64_t k,
                 int64_t rows, float *y);
    /* y[i] = sum_p a[i + p * distance] x[p]. */
    void (*columns)(const uint16_t *a, int64_t distance, const float *x,
                    int64_t k, int64_t rows, float *y);
    /* Returns sum_p a[p] b[p]. */
    float (*dot)(const uint16_t *a, const uint16_t *b, int64_t k);
} cpu_bf16_vector;

extern const cpu_bf16_vector cpu_bf16_vector_baseline, cpu_bf16_vector_avx2,
    cpu_bf16_vector_avx512;

#endif
