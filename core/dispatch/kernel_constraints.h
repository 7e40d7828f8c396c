/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* kernel_constraints.h: what kernels demand of their operands (kernel.h, CORE_REQUIRE_…),
 * and whether a call is so.  Everything here is for kernels that do. */

#ifndef CORE_DISPATCH_DEMANDS_H
#define CORE_DISPATCH_DEMANDS_H

#include "dispatch/loop.h"
#include "tensor/dtype.h"

enum {
    /* What elementwise_fast_path.c's calls need not meet. */
    CORE__DEMANDS_SLOW = CORE_REQUIRE_ALIGNMENT | CORE_REQUIRE_INDEX32,
    /* Of the operands, whatever they are. */
    CORE__DEMANDS_CALL = CORE__DEMANDS_SLOW | CORE_REQUIRE_CONTIGUOUS |
                         CORE_REQUIRE_EQUAL_DTYPES,
    /* What a device cannot gather with. */
    CORE__DEMANDS_COPY = CORE_REQUIRE_CONTIGUOUS | CORE_REQUIRE_EQUAL_DTYPES |
                         CORE_REQUIRE_ALIGNMENT
};

/* The next kernel behind this one that takes these dtypes, or NULL. */
const core_kernel *core__kernel_next(const core_kernel *kernel,
                                     const core_dtype *dtypes, uint32_t count,
                                     uint32_t ndim);
/* Picks anew where equal dtypes may be demanded: the newest kernel that takes
 * the dtypes as they are or, if it demands so, made equal; *out_common is then
 * the dtype for all that is floating, else NONE. */
const core_kernel *core__constraint_equal(core__kernel_set *set,
                                          const core_dtype *dtypes,
                                          uint32_t count, uint32_t ndim,
                                          core_dtype *out_common);
/* The dtype in place of one, where that is demanded (common not NONE). */
static inline core_dtype core__constraint_dtype(core_dtype dtype,
                                                core_dtype common)
{
    return common && core__dtype_is_floating(dtype) ? common : dtype;
}

/* Whether memory begins where the kernel wants it. */
bool core__constraint_aligned(const core_kernel *kernel,
                              const core_device *device, core_memory memory);
bool core__constraint_aligned_tensor(const core_kernel *kernel,
                                     const core_tensor *tensor);
/* Whether 32 bits reach every element. */
bool core__constraint_view_fits(const core_view *view);
/* Launches the loop in parts that 32 bits reach. */
core_status core__constraint_split(core__kernel_call *run,
                                   const core_kernel *kernel,
                                   const core_loop *loop,
                                   const core_value *args, uint32_t nargs);
/* Whether that is possible, or not needed. */
bool core__constraint_splits(const core_loop *loop);

/* A new tensor of the same sizes, row-major, of a dtype. */
core_status core__constraint_copy(const core_operator *op, core_tensor *tensor,
                                  core_dtype dtype, bool filled,
                                  core_tensor **out_copy);

#endif
