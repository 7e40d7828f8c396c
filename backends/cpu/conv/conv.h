/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.h: convolution of dense operands in three dimensions.
 *
 * The geometry is that of a plain convolution from the large side (images x
 * channels x in) to the small side (images x filters x out), with weights
 * filters x (channels / groups) x kernel.  A transposed convolution is the
 * gradient of a plain one, so its input is the small side. */

#ifndef CPU_CONV_H
#define CPU_CONV_H

#include "codegen/epilogue.h"
#include "view.h"

typedef struct conv_geometry {
    int64_t images, groups, channels, filters; /* over all groups */
    int64_t in[3], out[3], kernel[3];          /* depth, height, width */
    int64_t stride[3], padding[3], dilation[3];
    int64_t in_size, out_size, kernel_size; /* products */
    bool direct;  /* 1 x 1 x 1, no stride or padding: columns are the input */
    int64_t tile; /* output positions that are computed together */
    bool column;  /* height and width are swapped: there is one column */
    cpu_epilogue *epilogue; /* of the forward; or NULL */
} conv_geometry;

/* Sets the products and choices. */
void conv_geometry_finish(conv_geometry *geometry);

/* Returns the number of channels of a group per task; it is small enough for
 * several tasks. */
int64_t conv_channel_block(const conv_geometry *geometry, int64_t tasks);

/* y = conv(x, w) + b, b may be NULL.  gx = gradient with respect to x, plus b
 * per channel if given.  gw = gradient with respect to w. */
#define CONV(NAME, TYPE)                                           \
    core_status conv_forward_##NAME(const conv_geometry *geometry, \
                                    const TYPE *x, const TYPE *w,  \
                                    const TYPE *b, TYPE *y);       \
    core_status conv_input_##NAME(const conv_geometry *geometry,   \
                                  const TYPE *gy, const TYPE *w,   \
                                  const TYPE *b, TYPE *gx);        \
    core_status conv_weight_##NAME(const conv_geometry *geometry,  \
                                   const TYPE *x, const TYPE *gy, TYPE *gw);
CPU_COMPUTE_TYPES(CONV)
CONV(bf16, uint16_t) /* for geometries that conv_bf16_is_faster accepts */
#undef CONV

/* Returns whether the machine has bf16 instructions and the convolution is
 * large enough. */
bool conv_bf16_is_faster(const conv_geometry *geometry);

#endif
