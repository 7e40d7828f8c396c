/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_window.h: the parameters of kernels for pooling and convolution.
 * There are always three dimensions; the first ones are 1 if there are
 * fewer. */

#ifndef GPU_SHARED_WINDOW_H
#define GPU_SHARED_WINDOW_H

#include <gpu/shared.h>

/* Planes of in[0] x in[1] x in[2], and the windows over them. */
typedef struct gpu_pooling {
    void *to;
    int64_t *where;
    const void *from; /* backward: the gradient */
    const int64_t *chosen;
    int64_t count; /* elements of `to` */
    int64_t in[3], out[3];
    int64_t kernel[3], stride[3], pad[3], dilation[3];
    int64_t divisor; /* instead of the window's extent; 0: none */
    uint32_t with_padding, adaptive;
    uint32_t dtype, reserved;
    gpu_error *error;
    int64_t call;
} gpu_pooling;

/* Columns: (image, channel, tap) x (position in the output). */
typedef struct gpu_columns {
    void *to;
    const void *from;
    int64_t count; /* elements of `to` */
    int64_t in[3], out[3];
    int64_t kernel[3], stride[3], pad[3], dilation[3];
} gpu_columns;

/* images x channels x positions: adds a number to each channel, or sums each
 * channel. */
typedef struct gpu_channels {
    void *to;
    const void *from;
    int64_t images, channels, positions;
} gpu_channels;

#endif
