/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv_direct.h: f32 convolutions without columns of patches.
 *
 * Rows of the input are copied to channels-last order with their padding, so
 * that a tap uses elements at equal distances for neighbouring positions; the
 * innermost product reads them in place, for all taps, with its sums in
 * registers.  Operands may have any strides. */

#ifndef CPU_CONV_DIRECT_H
#define CPU_CONV_DIRECT_H

#include "conv.h"

/* f32.  Strides in elements: of images (weights: filters), channels, and three
 * dimensions. */
typedef struct conv_operand {
    float *data;
    int64_t stride[5];
} conv_operand;

/* Return whether the functions below are faster than those of conv.h, and
 * available. */
bool conv_direct_forward_is_faster(const conv_geometry *geometry,
                                   bool channels_last);
bool conv_direct_input_is_faster(const conv_geometry *geometry);
bool conv_direct_weight_is_faster(const conv_geometry *geometry);

/* b: NULL, or one number per filter (conv_direct_input: per channel), dense. */
core_status conv_direct_forward(const conv_geometry *geometry,
                                const conv_operand *x, const conv_operand *w,
                                const float *b, const conv_operand *y);
core_status conv_direct_input(const conv_geometry *geometry,
                              const conv_operand *gy, const conv_operand *w,
                              const float *b, const conv_operand *gx);
core_status conv_direct_weight(const conv_geometry *geometry,
                               const conv_operand *x, const conv_operand *gy,
                               const conv_operand *gw);
/* gb[c] = the sum of channel c of y over images and positions. */
void conv_direct_bias(const conv_operand *y, int64_t images, int64_t channels,
                      const int64_t size[3], float *gb);

/* ------------------------------------------------ per instruction set -- */

enum { CONV_LINES_MOST = 12, CONV_COLUMNS_MOST = 32 };

/* A product of a few lines: c[i][j] is set to (or increased by) the sum of
 * a[i * across + offsets[t * skip] + k * along] * b[(t * n + k) * columns + j]
 * over taps t and k < n. */
typedef struct conv_product {
    const float *a, *b;
    const int64_t *offsets;
    int64_t across, along, taps, n, skip;
    float *c;
    int64_t distance; /* between lines of c */
    bool add;
    bool half; /* only the first half of the columns */
} conv_product;

typedef struct conv_functions {
    int64_t lines, columns; /* that one call computes at most */
    /* count: at most `lines`; all columns. */
    void (*multiply)(const conv_product *product, int64_t count);
} conv_functions;

/* multiply is NULL: not available with this instruction set. */
extern const conv_functions cpu_conv_functions_baseline,
    cpu_conv_functions_avx2, cpu_conv_functions_avx512;

#endif
