/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_masked.h: the parameters of kernels that select by a mask. */

#ifndef GPU_SHARED_MASKED_H
#define GPU_SHARED_MASKED_H

#include <gpu/shared.h>

/* The elements that a thread, and a block, processes at a time. */
enum { GPU_MASKED_EACH = 8, GPU_MASKED_CHUNK = 256 * GPU_MASKED_EACH };

/* Innermost first; strides are in elements. */
typedef struct gpu_masked {
    void *to;
    const void *from, *mask;
    int64_t
        *sums; /* counts per chunk, then their prefix sums; last: the total */
    int64_t count, chunks;
    int64_t limit; /* scatter: the elements of `from` */
    int64_t sizes[GPU_DIMS], from_strides[GPU_DIMS], mask_strides[GPU_DIMS];
    uint32_t ndim, dense; /* dense: all operands are contiguous */
    uint32_t mask_dtype, dtype;
    uint32_t repeats, reserved;
    gpu_error *error;
    int64_t call;
} gpu_masked;

#endif
