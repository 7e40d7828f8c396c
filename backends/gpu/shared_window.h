/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_window.h: what kernels of pools and convolutions are handed.  Places
 * have three dimensions; the first ones are 1 where there are fewer. */

#ifndef GPU_SHARED_WINDOW_H
#define GPU_SHARED_WINDOW_H

#include <gpu/shared.h>

/* Planes of in[0] x in[1] x in[2], and what windows make of them. */
typedef struct gpu_pooling {
    void *to;
    int64_t *where;
    const void *from; /* backward: the gradient */
    const int64_t *chosen;
    int64_t count; /* elements of `to` */
    int64_t in[3], out[3];
    int64_t kernel[3], stride[3], pad[3], dilation[3];
    int64_t divisor; /* instead of the extents; 0: none */
    uint32_t with_padding, adaptive;
    uint32_t dtype, reserved;
    gpu_error *error;
    int64_t call;
} gpu_pooling;

/* Columns: (image, channel, kernel's place) x (place of the output). */
typedef struct gpu_columns {
    void *to;
    const void *from;
    int64_t count; /* elements of `to` */
    int64_t in[3], out[3];
    int64_t kernel[3], stride[3], pad[3], dilation[3];
} gpu_columns;

/* images x channels x places: a number to each channel, or each one's sum. */
typedef struct gpu_channels {
    void *to;
    const void *from;
    int64_t images, channels, places;
} gpu_channels;

#endif
