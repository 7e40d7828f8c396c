/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_masked.h: what kernels that a mask guides are handed. */

#ifndef GPU_SHARED_MASKED_H
#define GPU_SHARED_MASKED_H

#include <gpu/shared.h>

/* What a block goes through at a time. */
enum { GPU_MASKED_EACH = 8, GPU_MASKED_CHUNK = 256 * GPU_MASKED_EACH };

/* Innermost first; strides in elements. */
typedef struct gpu_masked {
    void *to;
    const void *from, *mask;
    int64_t *sums; /* of each chunk, then of those before it; last: of all */
    int64_t count, chunks;
    int64_t limit; /* scatter: elements of `from` */
    int64_t sizes[GPU_DIMS], from_strides[GPU_DIMS], mask_strides[GPU_DIMS];
    uint32_t ndim, dense; /* dense: all lie as they are counted */
    uint32_t mask_dtype, dtype;
    uint32_t repeats, reserved;
    gpu_error *error;
    int64_t call;
} gpu_masked;

#endif
