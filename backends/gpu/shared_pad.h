/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_pad.h: what kernels of rolls, frames and rules are handed. */

#ifndef GPU_SHARED_PAD_H
#define GPU_SHARED_PAD_H

#include <gpu/shared.h>

enum { GPU_ROLL, GPU_REFLECT, GPU_REPLICATE };

/* Innermost first.  Frames: the first three, and planes. */
typedef struct gpu_pad {
    void *to;
    const void *from;
    int64_t count; /* of what is written */
    uint32_t ndim, kind;
    int64_t in[GPU_DIMS], out[GPU_DIMS], before[GPU_DIMS];
} gpu_pad;

/* Numbers from start to end, or the places of a triangle. */
typedef struct gpu_range {
    void *to;
    int64_t count;
    double start, end, width;
    int64_t run; /* of integers, that count from its first */
    int64_t begin, stop, columns, offset;
    uint32_t dtype, upper;
} gpu_range;

#endif
