/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* structured.h: the work that the core does for every backend's kernels:
 * inference, promotion, broadcasting, overlap checks, allocation, loops
 * (docs/architecture.md, Decisions 3). */

#ifndef CORE_DISPATCH_STRUCTURED_H
#define CORE_DISPATCH_STRUCTURED_H

#include "dispatch/registry.h"
#include "tensor/dtype.h"

#include <libcore/dispatch.h>

enum { CORE__OPERANDS_MAX = 8, CORE__KERNEL_TENSORS = 32 };

/* The function that serves a structured operator at a backend's slot.  Its
 * user pointer is the core__kernel_set, or NULL on the meta device. */
core_function core__structured_run(const core_operator *op,
                                   const core__kernel_set *set);

/* elementwise_fast_path.c: the same for an element-wise operator with
 * op->fast_path on a device. */
core_function core__elementwise_run(const core_operator *op);
/* The same for in-place and out variants, instead of the in-place-or-view
 * layer, which it calls if necessary; NULL: only the layer. */
core_function core__elementwise_write(const core_operator *op);
uint8_t core__elementwise_fast_path(const core_operator *op);
core_status core__elementwise_general(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults);
/* The dtype to which the operands of a promoting operator are converted; NONE
 * if the arguments do not fit. */
core_dtype core__elementwise_common_dtype(const core_operator *op,
                                          const core_value *args);
core_status core__reduction_run(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults);
core_status core__kernel_run(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults);

/* Calls op->data->function; if it fails, the message names operator and
 * arguments. */
core_status core__function_run(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults);

/* For slots without an entry: reports which backends have the operator, or
 * computes on the CPU where LIBCORE_FALLBACK allows it. */
core_status core__missing_kernel(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);
/* -------------------------------------------------------- kernel calls -- */

/* A kernel call in preparation.  `tensors` are those whose memory the kernel
 * uses, for call_copy; `many` if there are more than CORE__KERNEL_TENSORS. */
typedef struct core__kernel_call {
    core_call call;
    core_device *device;
    core_operator *op;
    union {
        core_tensor *tensors[CORE__KERNEL_TENSORS];
        core_tensor **many;
    };
    uint32_t ntensors;
    uint32_t errors; /* sequence of the thread's error record before the call */
    /* results of call_allocate_result, and scratch memory */
    core_tensor *allocated[4];
    core_view allocated_views[4];
    struct core__scratch *scratch;
} core__kernel_call;

static inline bool core__kernel_accepts(const core_kernel *kernel,
                                        const core_dtype *dtypes,
                                        uint32_t count, uint32_t ndim)
{
    for (uint32_t i = 0; i < count; i++)
        if (dtypes[i] != 0 && !(kernel->signature[i] >> dtypes[i] & 1))
            return false;
    return kernel->max_ndim == 0 || ndim <= kernel->max_ndim;
}

/* Picks the first kernel of the set whose signature accepts these dtypes; NULL
 * if none does. */
const core_kernel *core__kernel_pick(core__kernel_set *set,
                                     const core_dtype *dtypes, uint32_t count,
                                     uint32_t ndim);
/* For a picked kernel with `supports`: queries it and, if it refuses, the next
 * ones that fit; NULL if none is left.  UNSUPPORTED: a kernel that refused the
 * call excludes the others. */
core_status core__kernel_query_supports(
    const core_operator *op, core__kernel_set *set, const core_device *device,
    const core_dtype *dtypes, uint32_t count, uint32_t ndim,
    const core_loop *loop, const core_value *args, uint32_t nargs,
    const core_kernel **inout_kernel) __attribute__((cold));
/* True if the device of the first tensor has a kernel for a call of a
 * structured operator (family kernel) with these arguments, whose results have
 * these dtypes.  The first tensor of a list represents all; `supports`
 * receives no lists, and constraints on layouts are not checked. */
bool core__kernel_exists(core_operator *op, const core_value *args,
                         uint32_t nargs, const core_dtype *results,
                         uint32_t nresults);
core_status core__kernel_launch(core__kernel_call *kernel_call,
                                const core_kernel *kernel,
                                const core_loop *loop, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults);
/* Fails with NO_KERNEL: no kernel of the set accepts these dtypes; lists those
 * that are accepted. */
core_status core__kernel_none_error(const core_operator *op,
                                    core__kernel_set *set,
                                    const core_dtype *dtypes, uint32_t count);
/* After NO_KERNEL: computes on the CPU and counts it, if LIBCORE_FALLBACK
 * allows it for this operator; else passes the error on. */
core_status core__fallback(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults);

/* The end of a failed call: NO_KERNEL is passed to core__fallback, and
 * OUT_OF_MEMORY is reported with the operator and the device. */
core_status core__structured_fail(core_call *call, const core_device *device,
                                  core_status status, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults) __attribute__((cold));

core_status core__dtype_storage_error(const core_operator *op, core_dtype dtype)
    __attribute__((cold));
/* DTYPE error for a storage dtype. */
static inline core_status core__dtype_check_computable(const core_operator *op,
                                                       core_dtype dtype)
{
    return core__likely(!core__dtype_is_storage(dtype)) ||
                   op->flags & CORE__OP_FLOAT8
               ? CORE_OK
               : core__dtype_storage_error(op, dtype);
}

/* Counts a call that the CPU computed for a device. */
void core__fallback_note(const core_operator *op, core_dtype dtype)
    __attribute__((cold));

/* Counts a conversion for core_op_conversions. */
void core__conversion_count(const core_operator *op, core_conversion conversion)
    __attribute__((cold));

/* Functions that core_host offers to a kernel: see libcore/plugin.h. */
core_status core__call_scratch(core_call *call, uint64_t size,
                               core_memory *out_memory);
core_status core__call_record_stream(core_call *call, void *stream);
core_status core__host_record_stream(core_tensor *tensor, void *stream);
core_status core__call_view_content(const core_call *call,
                                    const core_view *view,
                                    core_view_content *out_content);
core_status core__call_allocate_result(core_call *call, uint32_t index,
                                       core_dtype dtype, uint32_t ndim,
                                       const int64_t *sizes,
                                       const core_view **out_view);
core_status core__call_copy(const core_call *call, const core_value *args,
                            uint32_t nargs, const core_value *results,
                            uint32_t nresults, core_call **out_call,
                            const core_value **out_args,
                            core_value **out_results);
void core__call_drop(core_call *call);

/* Converts a tensor to another dtype, below autograd: a new tensor, or another
 * reference to the same one. */
core_status core__tensor_cast(core_tensor *tensor, core_dtype dtype,
                              core_tensor **out_tensor);
/* Makes a tensor row-major, in the same way. */
core_status core__tensor_contiguous(core_tensor *tensor,
                                    core_tensor **out_tensor);

/* Copies `from`, broadcast to the sizes of `to`, into `to`; an error names
 * op. */
core_status core__tensor_copy_broadcast(const core_operator *op,
                                        core_tensor *to, core_tensor *from);

/* The common device of a call's tensors; an error names two that differ. */
core_status core__device_of(const core_operator *op,
                            core_tensor *const *tensors, uint32_t count,
                            core_device **out_device);
/* A given result must be on the device of the computation: a 0-dim tensor on
 * the host may be an operand, never a result. */
core_status core__target_check(const core_operator *op, uint32_t position,
                               const core_tensor *target,
                               const core_device *device);
/* A written tensor must not overlap itself (expanded), and a given result must
 * not share memory with an operand or another result, unless it has exactly
 * the operand's elements. */
core_status core__overlap_check(const core_operator *op, const core_value *args,
                                uint32_t nargs);
core_status core__overlap_self_error(const core_operator *op, uint32_t position)
    __attribute__((cold));
core_status core__overlap_shared_error(const core_operator *op,
                                       uint32_t written, uint32_t other)
    __attribute__((cold));
/* The name in the schema, for messages. */
const char *core__argument_name(const core_operator *op, uint32_t position)
    __attribute__((cold));

/* Checks that `out` can take a result: it is empty, or its shape fits.  dtype
 * must be castable.  With several results, all are checked before one is
 * changed. */
core_status core__out_check_shape(const core_operator *op, uint32_t position,
                                  const core_tensor *out, core_dtype dtype,
                                  uint32_t ndim, const int64_t *sizes);
/* The same, and resizes an empty one. */
core_status core__out_resize(const core_operator *op, uint32_t position,
                             core_tensor *out, core_dtype dtype, uint32_t ndim,
                             const int64_t *sizes);

#endif
