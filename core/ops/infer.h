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

/* Checks the arguments of a convolution with or without a batch, under the name
 * of op.  args: stride, padding, dilation, transposed, output_padding,
 * groups. */
core_status core__convolution_check(const core_operator *op,
                                    const core_tensor *input,
                                    const core_tensor *weight,
                                    const core_tensor *bias,
                                    const core_value *args);

#endif
