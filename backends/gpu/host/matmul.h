/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matmul.h: products of matrices, for other families too. */

#ifndef GPU_MATMUL_H
#define GPU_MATMUL_H

#include <gpu/host/host.h>

/* p: all but d's result is read; strides in elements of dtype.  room: NULL at
 * first, and the same for all products of one call. */
core_status gpu_multiply(core_call *call, core_dtype dtype,
                         const gpu_product *p, void **shared);
/* The same of halves, where c and d are f32. */
core_status gpu_multiply_wide(core_call *call, core_dtype dtype,
                              const gpu_product *p);

#endif
