/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fast path of element-wise operators: inputs are contiguous tensors of one
 * dtype, shape and device that the operator computes in.  It costs the checks,
 * one output out of those that the thread keeps, a one-dimensional loop on the
 * stack and the kernel's call: of the 540 instructions of a small add about
 * half.  Everything else goes the general way (elementwise.c), which also words
 * the errors. */

#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch.h"
#include "dispatch/loop.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

#include <string.h>

/* Strides of a contiguous operand, by item size. */
static const int64_t item_strides[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};

static inline __attribute__((always_inline)) void set_operand(
    core_operand *operand, const core_tensor *tensor, uint32_t flags)
{
    uint32_t size = core__dtype_size(tensor->dtype);

    operand->memory.handle = NULL;
    operand->memory.offset = 0;
    if (core__likely(tensor->storage != NULL)) {
        operand->memory = tensor->storage->memory;
        operand->memory.offset += (uint64_t)tensor->offset * size;
    }
    operand->strides = &item_strides[size];
    operand->dtype = tensor->dtype;
    operand->flags = flags;
    operand->immediate = 0;
    operand->reserved = 0;
}

/* The first four bytes behind the reference count: dimensions, dtype, flags. */
static inline uint32_t header_of(const core_tensor *tensor)
{
    return tensor->ndim | (uint32_t)tensor->dtype << 8 |
           (uint32_t)tensor->flags << 16;
}

enum { CONTIGUOUS = CORE__TENSOR_CONTIGUOUS << 16, SAME = 0xffff | CONTIGUOUS };

static inline bool alike(const core_tensor *a, const core_tensor *b)
{
    if ((header_of(a) ^ header_of(b)) & SAME || a->device != b->device)
        return false;
    for (uint32_t i = 0; i < a->ndim; i++)
        if (a->sizes[i] != b->sizes[i])
            return false;
    return true;
}

/* A given tensor takes the result as it is: same dtype and shape, and none of
 * the inputs but those that are the very same elements. */
static inline bool takes_result(const core_tensor *target, core_dtype dtype,
                                core_tensor *const *inputs, uint32_t count)
{
    if (target->dtype != dtype || !(target->flags & CORE__TENSOR_CONTIGUOUS) ||
        target->device != inputs[0]->device || target->ndim != inputs[0]->ndim)
        return false;
    for (uint32_t i = 0; i < target->ndim; i++)
        if (target->sizes[i] != inputs[0]->sizes[i])
            return false;
    for (uint32_t k = 0; k < count; k++)
        if (inputs[k]->storage == target->storage &&
            inputs[k]->offset != target->offset)
            return false;
    return true;
}

static inline __attribute__((always_inline)) core_status launch(
    core__kernel_call *run, const core__kernel *kernel, const core_loop *loop,
    const core_value *args, uint32_t nargs)
{
    core__thread *self = core__thread_self();
    core_stream *stream = core__stream_current_of(self, run->device);
    uint32_t errors = self->error.sequence;
    core_status status;

    if (core__unlikely(!run->device->synchronous || kernel->kernel.prepare ||
                       stream->capture))
        return core__kernel_launch(run, &kernel->kernel, loop, args, nargs,
                                   NULL, 0);
    core__kernel_call_fill(run, self, stream, kernel, loop);
    status = kernel->kernel.launch(&run->call, args, nargs, NULL, 0);
    if (core__unlikely(status != CORE_OK || run->scratch != NULL))
        return core__kernel_launched(run, self, status, errors);
    core__thread_count(&self->launches[run->device->launch_slot]);
    return CORE_OK;
}

/* True when it dealt with the call; *out_status is the answer then.  Inlined
 * for each count of inputs, and for calls with and without a given result, so
 * that its loops are straight lines. */
static inline __attribute__((always_inline)) bool fast_path(
    core_call *call, const core_value *args, uint32_t nargs,
    core_value *results, core_status *out_status, const uint32_t count,
    core_tensor *const target)
{
    const core__operator_data *data = call->op->data;
    core__kernel_set *set = call->user;
    core_tensor *first = args[0].u.tensor;
    core__kernel_call run;
    core_operand operands[4];
    core_dtype dtypes[4];
    core_loop loop;
    const core__kernel *kernel;

    if (args[0].tag != CORE_VALUE_TENSOR ||
        !(first->flags & CORE__TENSOR_CONTIGUOUS) || first->numel == 0 ||
        first->dtype >= CORE__QUICK_DTYPES)
        return false;
    if (core__unlikely(!core__dtype_is_floating(first->dtype)) &&
        (data->promotion == CORE__PROMOTE_FLOAT ||
         /* A fraction among integers: the general way refuses it. */
         args[data->whole].tag == CORE_VALUE_FLOAT))
        return false;
    /* An alpha that is no number is refused there too. */
    if (count == 2 && data->whole && args[2].tag - CORE_VALUE_INT > 2u)
        return false;
    dtypes[0] =
        data->promotion == CORE__PROMOTE_BOOL ? CORE_BOOL : first->dtype;
    dtypes[1] = first->dtype;
    run.tensors[1] = first;
#pragma GCC unroll 4
    for (uint32_t k = 1; k < count; k++) {
        const core_value *value = &args[k];

        if (value->tag != CORE_VALUE_TENSOR || !alike(first, value->u.tensor))
            return false;
        run.tensors[k + 1] = value->u.tensor;
        dtypes[k + 1] = first->dtype;
    }
    kernel =
        atomic_load_explicit(&set->quick[first->dtype], memory_order_acquire);
    /* Without one, the general way searches, and words the error. */
    if (core__unlikely(!kernel))
        return false;
    if (!(kernel->uniform && dtypes[0] == first->dtype) &&
        !core__kernel_takes(&kernel->kernel, dtypes, count + 1, 1))
        return false;
    if (target) {
        if (!takes_result(target, dtypes[0], &run.tensors[1], count))
            return false;
        run.tensors[0] = target;
    } else {
        *out_status = core__tensor_new_like(first, dtypes[0], &run.tensors[0]);
        if (core__unlikely(*out_status != CORE_OK)) {
            core__op_allocated(call->op, first->device, *out_status);
            return true;
        }
    }
    set_operand(&operands[0], run.tensors[0], CORE_OPERAND_OUTPUT);
#pragma GCC unroll 4
    for (uint32_t k = 1; k <= count; k++)
        set_operand(&operands[k], run.tensors[k], 0);
    loop.struct_size = sizeof loop;
    loop.flags = CORE_LOOP_CONTIGUOUS;
    loop.ndim = 1;
    loop.noperands = count + 1;
    loop.noutputs = 1;
    loop.reduced = 0;
    loop.numel = first->numel;
    loop.sizes = &loop.numel;
    loop.operands = operands;
    run.ntensors = count + 1;
    run.device = first->device;
    run.op = call->op;
    *out_status = launch(&run, kernel, &loop, args, nargs);
    if (target)
        return true; /* the caller gives it as the result */
    if (core__unlikely(*out_status != CORE_OK)) {
        core__tensor_release(run.tensors[0]);
        return true;
    }
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = run.tensors[0]}};
    return true;
}

static __attribute__((noinline)) bool fast_into(
    core_call *call, const core_value *args, uint32_t nargs,
    core_value *results, uint32_t nresults, core_status *out_status)
{
    const core_operator *op = call->op;
    uint32_t position =
        op->variant == CORE__VARIANT_INPLACE ? 0 : op->nargs - 1u;
    core_tensor *target = args[position].u.tensor;
    bool done;

    *out_status = core__numbers_are(op, args, nargs);
    if (core__unlikely(*out_status != CORE_OK))
        return true;
    done = (op->quick & 3) == 2
               ? fast_path(call, args, nargs, results, out_status, 2, target)
               : fast_path(call, args, nargs, results, out_status, 1, target);
    if (!done || *out_status != CORE_OK || nresults == 0)
        return done;
    core__tensor_retain(target);
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = target}};
    return true;
}

/* Numbers that are neither operands nor an alpha: looked at first. */
static __attribute__((noinline)) bool fast_with_numbers(core_call *call,
                                                        const core_value *args,
                                                        uint32_t nargs,
                                                        core_value *results,
                                                        core_status *out_status)
{
    const core_operator *op = call->op;

    *out_status = core__numbers_are(op, args, nargs);
    if (*out_status != CORE_OK)
        return true;
    return (op->quick & 3) == 2
               ? fast_path(call, args, nargs, results, out_status, 2, NULL)
               : fast_path(call, args, nargs, results, out_status, 1, NULL);
}

uint8_t core__elementwise_quick(const core_operator *op)
{
    const core__operator_data *data = op->data;
    uint32_t numbers = op->numbers;

    if (op->family != CORE__FAMILY_ELEMENTWISE ||
        data->promotion == CORE__PROMOTE_OWN || data->kept || data->infer ||
        data->operands == 0 || data->operands > 2 ||
        (data->whole && data->whole != 2))
        return 0;
    for (uint32_t k = 0; k < data->operands; k++) {
        if (data->operand[k] != k)
            return 0;
        numbers &= ~(1u << k);
    }
    if (data->whole)
        numbers &= ~(1u << data->whole);
    return (uint8_t)(data->operands | (numbers ? CORE__QUICK_NUMBERS : 0));
}

core_status core__elementwise_run(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_operator *op = call->op;
    core_status status;

    if (core__unlikely(!op->quick || !call->user))
        goto generally;
    if (op->variant != CORE__VARIANT_FUNCTIONAL) {
        if (fast_into(call, args, nargs, results, nresults, &status))
            return status;
    } else if (op->quick == 2) {
        if (fast_path(call, args, nargs, results, &status, 2, NULL))
            return status;
    } else if (op->quick == 1) {
        if (fast_path(call, args, nargs, results, &status, 1, NULL))
            return status;
    } else if (fast_with_numbers(call, args, nargs, results, &status)) {
        return status;
    }
generally:
    return core__elementwise_general(call, args, nargs, results, nresults);
}
