/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.h: what a convolution is to conv.c, and to conv_library.c, which gives it to
 * the vendor's library. */

#ifndef GPU_CONV_H
#define GPU_CONV_H

#include <gpu/host/host.h>
#include <gpu/shared_window.h>

/* A view's elements densely, as the view itself has them or in a copy: in the
 * order of its dimensions or, last, with channels behind the places. */
typedef struct gpu_compact {
    const core_view *view;
    char *data; /* NULL: not opened yet, or there is no view */
    bool last, copied;
    int64_t strides[CORE_MAX_NDIM];
} gpu_compact;

/* images x channels x in; columns of `out` places.  A transposed convolution
 * is described as the one whose gradient by its input it is: its input is that
 * one's output, its output that one's input. */
typedef struct gpu_conv {
    core_call *call;
    gpu_columns g;
    core_dtype dtype;
    uint32_t ndim;
    int64_t images, channels;
    int64_t groups, outputs, places, taps; /* taps: rows of a group */
    int64_t plane;                         /* elements of an input channel */
    int64_t chunk;                         /* images at a time; 0: not opened */
    char *columns;
    char *sums;      /* of the weight's gradient, in f32; NULL: where it goes */
    char *bias;      /* of each channel of the result; NULL: none */
    void *workspace; /* what its products work in (matmul.h) */
    gpu_compact operands[8]; /* operands that are read */
} gpu_conv;

/* One of a convolution's products: `what` (GPU_CONVOLVE, …) says which of the
 * operands is written. */
typedef struct gpu_conv_product {
    uint32_t what;
    const core_view *input, *weight, *output;
} gpu_conv_product;

/* Bytes of columns at a time, and of the library's workspace at most. */
int64_t gpu_conv_scratch(const gpu_conv *c);

/* aligned: 16 divides its address.  One that is read is copied here, and kept
 * for the convolution's next product. */
core_status gpu_compact_read(gpu_conv *c, const core_view *view, bool last,
                             bool aligned, gpu_compact *out);
/* One that is written; closed when that was given to the stream. */
core_status gpu_compact_write(gpu_conv *c, const core_view *view, bool last,
                              bool aligned, gpu_compact *out);
core_status gpu_compact_close(gpu_conv *c, const gpu_compact *d);
/* Whether it lies so as it is. */
bool gpu_compact_fits(const core_view *view, bool last);

/* By the vendor's library, the bias too.  *out_done false: there is none, or it
 * does not know this one, and nothing was written. */
core_status gpu_conv_by_library(gpu_conv *c, const gpu_conv_product *p,
                                bool *out_done);
/* Adds c->bias, if there is one, to a result. */
core_status gpu_conv_add_bias(gpu_conv *c, const gpu_compact *result);

#endif
