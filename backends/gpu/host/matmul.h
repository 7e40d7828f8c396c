/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.h: matrix products for other families. */

#ifndef GPU_MATMUL_H
#define GPU_MATMUL_H

#include <gpu/host/host.h>

/* Everything in p except the result d is read; strides are in elements of
 * dtype.  `shared` is NULL at first, and the same for all products of a
 * call. */
core_status gpu_multiply(core_call *call, core_dtype dtype,
                         const gpu_product *p, void **shared);
/* The same for f16 and bf16, with c and d in f32. */
core_status gpu_multiply_wide(core_call *call, core_dtype dtype,
                              const gpu_product *p);

#endif
