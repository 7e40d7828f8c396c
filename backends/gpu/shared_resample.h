/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_resample.h: the parameters of interpolation kernels. */

#ifndef GPU_SHARED_RESAMPLE_H
#define GPU_SHARED_RESAMPLE_H

#include <gpu/shared.h>

/* the number of taps */
enum { GPU_NEAREST = 1, GPU_LINEAR = 2, GPU_CUBIC = 4 };

/* The last three dimensions; all others are planes. */
typedef struct gpu_resample {
    void *to;
    const void *from;
    int64_t count; /* elements of `to` */
    int64_t in[3], out[3];
    double ratio[3];
    uint32_t taps[3], align;
} gpu_resample;

enum { GPU_GRID_BILINEAR, GPU_GRID_NEAREST, GPU_GRID_BICUBIC };
enum { GPU_GRID_ZEROS, GPU_GRID_BORDER, GPU_GRID_REFLECTION };

/* images x channels x in; grid: images x out x 2. */
typedef struct gpu_grid_sample {
    void *to, *to_grid; /* backward: gradients */
    const void *from, *grid, *grad;
    int64_t images, channels, in[2], out[2]; /* height, width */
    uint32_t mode, padding, align, dtype;
} gpu_grid_sample;

#endif
