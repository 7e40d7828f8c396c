/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_random.h: the parameters of kernels that draw random numbers. */

#ifndef GPU_SHARED_RANDOM_H
#define GPU_SHARED_RANDOM_H

#include <gpu/shared.h>

typedef struct gpu_draw {
    void *to;
    const void *from;        /* probabilities; NULL: a is used */
    const uint64_t *counter; /* NULL, or added to offset; then the seed */
    uint64_t count, seed, offset;
    double a, b; /* from and to; mean and deviation; probability */
    int64_t first;
    uint64_t range; /* 0 means 2^64 */
    uint32_t to_dtype, from_dtype;
    gpu_error *error;
    int64_t call;
} gpu_draw;

/* multinomial: samples from each row of n weights. */
typedef struct gpu_choice {
    int64_t *to;
    const void *from;
    double *scratch; /* rows x n: cumulative sums, or exponential clocks */
    const uint64_t *counter;
    int64_t rows, n, samples;
    uint64_t seed, offset;
    uint32_t dtype, replacement;
    gpu_error *error;
    int64_t call;
} gpu_choice;

#endif
