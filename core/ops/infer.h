/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* infer.h: inference of the results of structured operators.
 *
 * An inference function reads sizes, strides and dtypes of the argument tensors
 * (never data), checks everything that does not depend on data, and describes
 * each result.  It serves every backend and implements the meta device.  Loop
 * families need none: dispatch/loop.h derives theirs. */

#ifndef CORE_OPS_INFER_H
#define CORE_OPS_INFER_H

#include "dispatch/inference.h"

void core__result_like(core__result_spec *result, const core_tensor *tensor);
void core__result_set(core__result_spec *result, core_dtype dtype,
                      uint32_t ndim, const int64_t *sizes);

/* Inference of pools, for composites, which are those of one dimension. */
core_status core__infer_max_pool(core__inference *infer);
core_status core__infer_avg_pool(core__inference *infer);
core_status core__infer_adaptive_pool(core__inference *infer);
core_status core__infer_adaptive_max_pool(core__inference *infer);

/* A convolution as its operator has it: each list has one number for each spatial
 * dimension, of which weight has its own number less two. */
typedef struct core__convolution {
    const core_tensor *input, *weight, *bias; /* bias: NULL: none */
    const int64_t *stride, *padding, *dilation, *output_padding;
    bool transposed;
    int64_t groups;
} core__convolution;

/* Checks the arguments of a convolution with or without a batch, under the name
 * of op, whose first argument is the input. */
core_status core__convolution_check(const core_operator *op,
                                    const core__convolution *c);

#endif
