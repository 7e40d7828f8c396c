/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv_depthwise.h: f32 convolutions of single channels, in at most two
 * dimensions.
 *
 * The padded input of a channel is divided into phases, one per position within
 * a stride, whose rows are as long as the output's need to be; so each tap reads
 * one run of elements for all output positions. */

#ifndef CPU_CONV_DEPTHWISE_H
#define CPU_CONV_DEPTHWISE_H

#include "conv.h"

/* Dense operands.  Compiled per instruction set, with the same results. */
typedef struct conv_depthwise_functions {
    /* As conv_forward.  flipped: with the kernel's taps in reverse order. */
    core_status (*forward)(const conv_geometry *geometry, const float *x,
                           const float *w, const float *b, bool flipped,
                           float *y);
    /* As conv_weight. */
    core_status (*weight)(const conv_geometry *geometry, const float *x,
                          const float *gy, float *gw);
} conv_depthwise_functions;

extern const conv_depthwise_functions cpu_conv_depthwise_baseline,
    cpu_conv_depthwise_avx2, cpu_conv_depthwise_avx512;

#endif
