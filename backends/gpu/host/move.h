/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* move.h: copies and fills for other families. */

#ifndef GPU_MOVE_H
#define GPU_MOVE_H

#include <gpu/host/host.h>

/* Copies operand 1 to operand 0, with a cast if the dtypes differ. */
core_status gpu_copy_loop(core_call *call, const core_loop *loop);
core_status gpu_fill_loop(core_call *call, const core_loop *loop,
                          uint64_t bits);
/* bits: gpu_scalar_bits for the view's dtype. */
core_status gpu_fill_view(core_call *call, const core_view *to, uint64_t bits);
/* Copies between windows of the same sizes, outermost first; strides are in
 * elements and may be negative. */
core_status gpu_copy_window(core_call *call, core_dtype dtype, uint32_t ndim,
                            const int64_t *sizes, core_memory to,
                            const int64_t *to_strides, core_memory from,
                            const int64_t *from_strides);

#endif
