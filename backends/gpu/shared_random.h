/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_random.h: what kernels that draw numbers are handed. */

#ifndef GPU_SHARED_RANDOM_H
#define GPU_SHARED_RANDOM_H

#include <gpu/shared.h>

typedef struct gpu_draw {
    void *to;
    const void *from;        /* probabilities; NULL: a */
    const uint64_t *counter; /* NULL, or what is added to offset, and seed */
    uint64_t count, seed, offset;
    double a, b; /* from and to; mean and deviation; probability */
    int64_t first;
    uint64_t range; /* 0: 2^64 */
    uint32_t to_dtype, from_dtype;
    gpu_error *error;
    int64_t call;
} gpu_draw;

#endif
