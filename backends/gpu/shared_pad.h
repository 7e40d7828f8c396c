/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_pad.h: the parameters of kernels for roll, padding and ranges. */

#ifndef GPU_SHARED_PAD_H
#define GPU_SHARED_PAD_H

#include <gpu/shared.h>

enum { GPU_ROLL, GPU_REFLECT, GPU_REPLICATE };

/* Innermost first.  Padding: the first three dimensions, and planes. */
typedef struct gpu_pad {
    void *to;
    const void *from;
    int64_t count; /* the elements that are written */
    uint32_t ndim, kind;
    int64_t in[GPU_DIMS], out[GPU_DIMS], before[GPU_DIMS];
} gpu_pad;

/* Numbers from start to end, or the indices of a triangle. */
typedef struct gpu_range {
    void *to;
    int64_t count;
    double start, end, width;
    int64_t begin, stop, columns, offset;
    uint32_t dtype, upper;
} gpu_range;

#endif
