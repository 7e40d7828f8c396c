/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autograd_ops.h: the few operators that autograd itself calls, through the
 * dispatcher, so that they are recorded if grad mode is on. */

#ifndef CORE_AUTOGRAD_AUTOGRAD_OPS_H
#define CORE_AUTOGRAD_AUTOGRAD_OPS_H

#include "tensor/tensor.h"

core_status core__autograd_op_add(core_tensor *a, core_tensor *b,
                                  core_tensor **out_tensor);
/* a += b */
core_status core__autograd_op_add_in_place(core_tensor *a, core_tensor *b);
/* a = b */
core_status core__autograd_op_copy_in_place(core_tensor *a, core_tensor *b);
core_status core__autograd_op_clone(core_tensor *tensor,
                                    core_tensor **out_tensor);
/* A copy with the given strides; NULL: row-major. */
core_status core__autograd_op_copy_strided(core_tensor *tensor,
                                           const int64_t *strides,
                                           core_tensor **out_tensor);
core_status core__autograd_op_cast(core_tensor *tensor, core_dtype dtype,
                                   core_tensor **out_tensor);
core_status core__autograd_op_to_device(core_tensor *tensor,
                                        core_device *device,
                                        core_tensor **out_tensor);
/* Sums what broadcasting repeated; sizes must broadcast to the tensor's. */
core_status core__autograd_op_sum_to_size(core_tensor *tensor, uint32_t ndim,
                                          const int64_t *sizes,
                                          core_tensor **out_tensor);
core_status core__autograd_op_full(core_device *device, core_dtype dtype,
                                   uint32_t ndim, const int64_t *sizes,
                                   double value, core_tensor **out_tensor);
core_status core__autograd_op_as_strided(core_tensor *tensor, uint32_t ndim,
                                         const int64_t *sizes,
                                         const int64_t *strides, int64_t offset,
                                         core_tensor **out_tensor);
core_status core__autograd_op_as_strided_scatter(
    core_tensor *tensor, core_tensor *source, uint32_t ndim,
    const int64_t *sizes, const int64_t *strides, int64_t offset,
    core_tensor **out_tensor);

#endif
