/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* move.h: copies and fills that other families use. */

#ifndef GPU_MOVE_H
#define GPU_MOVE_H

#include <gpu/host/host.h>

/* Operand 0 from operand 1, with a cast where their dtypes differ. */
core_status gpu_copy_loop(core_call *call, const core_loop *loop);
core_status gpu_fill_loop(core_call *call, const core_loop *loop,
                          uint64_t bits);
/* bits: gpu_scalar_bits of the view's dtype. */
core_status gpu_fill_view(core_call *call, const core_view *to, uint64_t bits);
/* Between windows of equal sizes (outermost first; strides in elements, which
 * may be negative). */
core_status gpu_copy_window(core_call *call, core_dtype dtype, uint32_t ndim,
                            const int64_t *sizes, core_memory to,
                            const int64_t *to_strides, core_memory from,
                            const int64_t *from_strides);

#endif
