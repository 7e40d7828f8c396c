/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* structured.h: what the core does once for every backend's kernel: infer,
 * promote, broadcast, check overlap, allocate, build the loop
 * (docs/architecture.md, Decisions 3). */

#ifndef CORE_DISPATCH_STRUCTURED_H
#define CORE_DISPATCH_STRUCTURED_H

#include "dispatch/registry.h"
#include "tensor/dtype.h"

#include <libcore/dispatch.h>

enum { CORE__OPERANDS_MAX = 8, CORE__KERNEL_TENSORS = 32 };

/* The function that serves a structured operator at a backend's slot; its user
 * word is the core__kernel_set, NULL on the meta device. */
core_function core__structured_run(const core_operator *op,
                                   const core__kernel_set *set);

/* elementwise_fast_path.c: the same for an element-wise operator on a device; op->quick. */
core_function core__elementwise_run(const core_operator *op);
/* The same for one in place or with given results, in the place of the layer
 * in-place-or-view, which it goes through where it has to; NULL: only that. */
core_function core__elementwise_write(const core_operator *op);
uint8_t core__elementwise_quick(const core_operator *op);
core_status core__elementwise_general(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults);
core_status core__reduction_run(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults);
core_status core__kernel_run(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults);

/* Calls op->data->function; where it fails, the message names operator and
 * arguments. */
core_status core__function_run(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults);

/* Slots without anybody: says who has the operator, or computes on the CPU
 * where LIBCORE_FALLBACK allows it. */
core_status core__missing_kernel(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);
/* ------------------------------------------------------- kernel calls -- */

/* One kernel call in the making.  `tensors` are those whose memory the kernel
 * uses, for call_copy; `many`, where there are more than CORE__KERNEL_TENSORS
 * of them. */
typedef struct core__kernel_call {
    core_call call;
    core_device *device;
    core_operator *op;
    union {
        core_tensor *tensors[CORE__KERNEL_TENSORS];
        core_tensor **many;
    };
    uint32_t ntensors;
    uint32_t errors; /* of the thread's record, before */
    /* what call_allocate_result made, and scratch */
    core_tensor *allocated[4];
    core_view allocated_views[4];
    struct core__scratch *scratch;
} core__kernel_call;

static inline bool core__kernel_takes(const core_kernel *kernel,
                                      const core_dtype *dtypes, uint32_t count,
                                      uint32_t ndim)
{
    for (uint32_t i = 0; i < count; i++)
        if (dtypes[i] != 0 && !(kernel->signature[i] >> dtypes[i] & 1))
            return false;
    return kernel->max_ndim == 0 || ndim <= kernel->max_ndim;
}

/* Picks the first kernel of the set whose signature takes these dtypes;
 * NULL if none does. */
const core_kernel *core__kernel_pick(core__kernel_set *set,
                                     const core_dtype *dtypes, uint32_t count,
                                     uint32_t ndim);
/* The kernel that was picked has `supports`: asks it and, where it refuses, the
 * next ones that fit; NULL if none is left.  UNSUPPORTED: one that refuses
 * allows no other. */
core_status core__kernel_ask(const core_operator *op, core__kernel_set *set,
                             const core_device *device,
                             const core_dtype *dtypes, uint32_t count,
                             uint32_t ndim, const core_loop *loop,
                             const core_value *args, uint32_t nargs,
                             const core_kernel **inout_kernel)
    __attribute__((cold));
/* Whether the device of the first tensor has a kernel for a call of a structured
 * operator (family kernel) with these arguments, whose results have these
 * dtypes.  The first tensor of a list stands for all; a kernel's `supports` finds
 * no lists, and what a kernel demands of layouts is not looked at. */
bool core__kernel_would(core_operator *op, const core_value *args,
                        uint32_t nargs, const core_dtype *results,
                        uint32_t nresults);
core_status core__kernel_launch(core__kernel_call *kernel_call,
                                const core_kernel *kernel,
                                const core_loop *loop, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults);
/* NO_KERNEL: none of the set takes these dtypes; says which there are. */
core_status core__kernel_refused(const core_operator *op, core__kernel_set *set,
                                 const core_dtype *dtypes, uint32_t count);
/* After NO_KERNEL: computes on the CPU if LIBCORE_FALLBACK allows it for this
 * operator, and counts it; else passes the error on. */
core_status core__fallback(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults);

/* The end of a call that failed: NO_KERNEL goes to core__fallback, and no
 * memory is told with the operator and the device. */
core_status core__structured_failed(core_call *call, const core_device *device,
                                    core_status status, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults) __attribute__((cold));

core_status core__storage_error(const core_operator *op, core_dtype dtype)
    __attribute__((cold));
/* DTYPE error for a dtype in which nothing computes. */
static inline core_status core__storage_refused(const core_operator *op,
                                                core_dtype dtype)
{
    return core__likely(!core__dtype_is_storage(dtype)) ||
                   op->flags & CORE__OP_EIGHT_BITS
               ? CORE_OK
               : core__storage_error(op, dtype);
}

uint64_t core__fallback_count(void);

/* Counts one for core_op_conversions. */
void core__conversion_count(const core_operator *op, core_conversion detour)
    __attribute__((cold));

/* What core_host offers to a kernel: see plugin.h. */
core_status core__call_scratch(core_call *call, uint64_t size,
                               core_memory *out_memory);
core_status core__call_record_stream(core_call *call, void *stream);
core_status core__host_record_stream(core_tensor *tensor, void *stream);
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

/* tensor in another dtype, below autograd: a new tensor, or another reference
 * to the same one. */
core_status core__tensor_cast(core_tensor *tensor, core_dtype dtype,
                              core_tensor **out_tensor);
/* tensor row-major, likewise. */
core_status core__tensor_contiguous(core_tensor *tensor,
                                    core_tensor **out_tensor);

/* from, broadcast to the sizes of to, into to; an error names op. */
core_status core__tensor_copy_broadcast(const core_operator *op,
                                        core_tensor *to, core_tensor *from);

/* The common device of a call's tensors; an error names two that differ. */
core_status core__device_of(const core_operator *op,
                            core_tensor *const *tensors, uint32_t count,
                            core_device **out_device);
/* A given result must be where the operator computes: a 0-dim tensor on the
 * host joins as an operand, never as a result. */
core_status core__target_check(const core_operator *op, uint32_t position,
                               const core_tensor *target,
                               const core_device *device);
/* What a call writes may not lie in itself (expanded), and given results not
 * in an operand or in each other; one that is an operand, element for element,
 * serves. */
core_status core__written_check(const core_operator *op, const core_value *args,
                                uint32_t nargs);
core_status core__overlaps_itself_refuse(const core_operator *op,
                                         uint32_t position)
    __attribute__((cold));
core_status core__shared_refuse(const core_operator *op, uint32_t written,
                                uint32_t other) __attribute__((cold));
/* Of the schema, for messages. */
const char *core__argument_name(const core_operator *op, uint32_t position)
    __attribute__((cold));

/* Makes sure that `out` can take a result: an empty one can, else shape must
 * fit.  dtype must be castable.  Of several results each is looked at before
 * anything is done to one. */
core_status core__out_fits(const core_operator *op, uint32_t position,
                           const core_tensor *out, core_dtype dtype,
                           uint32_t ndim, const int64_t *sizes);
/* The same, and resizes an empty one. */
core_status core__out_check(const core_operator *op, uint32_t position,
                            core_tensor *out, core_dtype dtype, uint32_t ndim,
                            const int64_t *sizes);

#endif
