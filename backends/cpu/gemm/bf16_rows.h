/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* bf16_rows.h: products of rows of bf16 with a vector of f32, for matrices that
 * are read once: as they come from memory, without a converted copy. */

#ifndef CPU_BF16_ROWS_H
#define CPU_BF16_ROWS_H

#include <stdint.h>

/* y[i] = sum_p a[i * distance + p] x[p], for `rows` rows of k.  Sums run in
 * lanes, in an order that depends on k alone. */
typedef void (*cpu_bf16_rows)(const uint16_t *a, int64_t distance,
                              const float *x, int64_t k, int64_t rows,
                              float *y);

extern const cpu_bf16_rows cpu_bf16_rows_baseline, cpu_bf16_rows_avx2,
    cpu_bf16_rows_avx512;

#endif
