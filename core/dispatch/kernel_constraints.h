/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* kernel_constraints.h: the constraints of kernels on their operands
 * (libcore/kernel.h, CORE_REQUIRE_…), and whether a call satisfies them.  Only
 * kernels with constraints use these functions. */

#ifndef CORE_DISPATCH_KERNEL_CONSTRAINTS_H
#define CORE_DISPATCH_KERNEL_CONSTRAINTS_H

#include "dispatch/loop.h"
#include "tensor/dtype.h"

enum {
    /* Not applicable to calls of elementwise_fast_path.c. */
    CORE__CONSTRAINTS_SLOW = CORE_REQUIRE_ALIGNMENT | CORE_REQUIRE_INDEX32,
    /* Constraints on the operands. */
    CORE__CONSTRAINTS_OPERANDS = CORE__CONSTRAINTS_SLOW |
                                 CORE_REQUIRE_CONTIGUOUS |
                                 CORE_REQUIRE_EQUAL_DTYPES,
    /* Satisfied by copying operands on the device. */
    CORE__CONSTRAINTS_BY_COPY = CORE_REQUIRE_CONTIGUOUS |
                                CORE_REQUIRE_EQUAL_DTYPES |
                                CORE_REQUIRE_ALIGNMENT
};

/* The next kernel after this one that accepts these dtypes, or NULL. */
const core_kernel *core__kernel_next(const core_kernel *kernel,
                                     const core_dtype *dtypes, uint32_t count,
                                     uint32_t ndim);
/* For kernels that may require equal dtypes: picks the newest one that accepts
 * the dtypes as they are or, if it requires equal ones, converted to the common
 * dtype; *out_common is then the dtype of all floating operands, else NONE. */
const core_kernel *core__constraint_pick_equal(core__kernel_set *set,
                                               const core_dtype *dtypes,
                                               uint32_t count, uint32_t ndim,
                                               core_dtype *out_common);
/* The dtype to use instead of `dtype`, if one is required (common not NONE). */
static inline core_dtype core__constraint_dtype(core_dtype dtype,
                                                core_dtype common)
{
    return common && core__dtype_is_floating(dtype) ? common : dtype;
}

/* True if the memory is aligned as the kernel requires. */
bool core__constraint_aligned(const core_kernel *kernel,
                              const core_device *device, core_memory memory);
bool core__constraint_aligned_tensor(const core_kernel *kernel,
                                     const core_tensor *tensor);
/* True if every element can be reached with 32-bit offsets. */
bool core__constraint_view_fits(const core_view *view);
/* Launches the loop in parts that are small enough for 32-bit offsets. */
core_status core__constraint_split(core__kernel_call *run,
                                   const core_kernel *kernel,
                                   const core_loop *loop,
                                   const core_value *args, uint32_t nargs);
/* True if that is possible, or not needed. */
bool core__constraint_can_split(const core_loop *loop);

/* A new row-major tensor of the same sizes and of a dtype. */
core_status core__constraint_copy(const core_operator *op, core_tensor *tensor,
                                  core_dtype dtype, bool filled,
                                  core_tensor **out_copy);

#endif
