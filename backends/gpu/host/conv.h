/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.h: a convolution as conv.c and conv_library.c see it. */

#ifndef GPU_CONV_H
#define GPU_CONV_H

#include <gpu/host/host.h>
#include <gpu/shared_window.h>

/* The elements of a view, dense, in place or as a copy: with the dimensions in
 * their order or, if `last`, with the channels last. */
typedef struct gpu_compact {
    const core_view *view;
    char *data; /* NULL: not opened yet, or no view */
    bool last, copied;
    int64_t strides[CORE_MAX_NDIM];
} gpu_compact;

/* images x channels x in, and columns of `out` positions.  A transposed
 * convolution is described as the convolution whose input gradient it is, with
 * input and output swapped. */
typedef struct gpu_conv {
    core_call *call;
    gpu_columns g;
    core_dtype dtype;
    uint32_t ndim;
    int64_t images, channels;
    int64_t groups, outputs, positions, taps; /* taps: the rows of a group */
    int64_t plane; /* the elements of an input channel */
    int64_t chunk; /* images at a time; 0: not known yet */
    char *columns;
    char *sums;              /* f32 sums of the weight's gradient, or NULL */
    char *bias;              /* one number per output channel, or NULL */
    void *workspace;         /* of its products (matmul.h) */
    gpu_compact operands[8]; /* those that are read */
} gpu_conv;

/* One of a convolution's products: `what` (GPU_CONVOLVE, …) says which operand
 * is written. */
typedef struct gpu_conv_product {
    uint32_t what;
    const core_view *input, *weight, *output;
} gpu_conv_product;

/* The largest number of bytes of columns at a time and of the library's
 * workspace. */
int64_t gpu_conv_scratch(const gpu_conv *c);

/* Opens an operand for reading, as a copy if necessary; copies are kept for the
 * convolution's other products.  aligned: the address must be a multiple of
 * 16. */
core_status gpu_compact_read(gpu_conv *c, const core_view *view, bool last,
                             bool aligned, gpu_compact *out);
/* Opens an operand for writing.  gpu_compact_close, after the work is enqueued,
 * copies the result to where it belongs. */
core_status gpu_compact_write(gpu_conv *c, const core_view *view, bool last,
                              bool aligned, gpu_compact *out);
core_status gpu_compact_close(gpu_conv *c, const gpu_compact *d);
/* Whether the view already has this layout. */
bool gpu_compact_fits(const core_view *view, bool last);

/* Uses the vendor's library, also for the bias.  *out_done is false if there is
 * none or if it does not support the product; then nothing was written. */
core_status gpu_conv_by_library(gpu_conv *c, const gpu_conv_product *p,
                                bool *out_done);
/* Adds c->bias, if it is not NULL, to a result. */
core_status gpu_conv_add_bias(gpu_conv *c, const gpu_compact *result);

#endif
