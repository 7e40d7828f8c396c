/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fast path of element-wise operators: inputs are contiguous tensors of one
 * dtype, shape and device that the operator computes in.  It costs the checks,
 * one output out of those that the thread keeps, a one-dimensional loop on the
 * stack and the kernel's call.  Everything else goes the general way
 * (elementwise.c), which also words the errors.
 *
 * What can be known before the call is looked at when the operator's table is
 * made (core__elementwise_run chooses a function) and when a kernel is
 * registered (core__kernel.same): a call compares its tensors with each other
 * and with a mask.  That the arguments which must be tensors are some, the
 * dispatcher has seen. */

#if defined(__GNUC__) && !defined(__clang__)
/* Pairs of fields are stored one by one, not put together in a vector first. */
#pragma GCC optimize("no-tree-slp-vectorize")
#endif

#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "dispatch/launch.h"
#include "dispatch/loop.h"
#include "ops/infer.h"
#include "tensor/dtype.h"
#include "tensor/kept.h"

#include <stddef.h>
#include <string.h>

/* Strides of a contiguous operand, by item size. */
static const int64_t item_strides[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};

/* What of an operand follows from its dtype, as it lies in core_operand behind
 * the memory. */
typedef struct operand_kind {
    const int64_t *strides;
    core_dtype dtype;
    uint32_t flags;
    uint64_t immediate;
    uint64_t reserved;
} operand_kind;

_Static_assert(sizeof(operand_kind) + offsetof(core_operand, strides) ==
                       sizeof(core_operand) &&
                   offsetof(core_operand, immediate) -
                           offsetof(core_operand, strides) ==
                       offsetof(operand_kind, immediate),
               "an operand_kind is copied into a core_operand");

enum { INPUT, OUTPUT };
#define KIND(dtype, size)                             \
    [dtype] = {{&item_strides[size], dtype, 0, 0, 0}, \
               {&item_strides[size], dtype, CORE_OPERAND_OUTPUT, 0, 0}}
static const operand_kind kinds[CORE_DTYPE_LIMIT][2] = {
    KIND(CORE_F64, 8),  KIND(CORE_F32, 4), KIND(CORE_F16, 2),
    KIND(CORE_BF16, 2), KIND(CORE_I64, 8), KIND(CORE_I32, 4),
    KIND(CORE_I16, 2),  KIND(CORE_I8, 1),  KIND(CORE_U8, 1),
    KIND(CORE_BOOL, 1),
};

/* What differs between operators.  Count, alpha and given are known when it is
 * compiled, mostly all. */
typedef struct form {
    uint32_t count; /* inputs */
    bool alpha;     /* argument 2 is one */
    bool given;     /* the result is */
    bool compares;  /* it is bool */
    bool floats;    /* integers are computed in floats: in the general way */
} form;

/* --------------------------------------------------------------- checks -- */

/* first is contiguous and not empty. */
static inline bool alike(const core_tensor *first, const core_tensor *other)
{
    if (first->kind != other->kind ||
        !(other->flags & CORE__TENSOR_CONTIGUOUS) ||
        first->device != other->device || first->numel != other->numel)
        return false;
    /* That sizes[0] is the same follows. */
    for (uint32_t i = 1; core__unlikely(i < first->ndim); i++)
        if (first->sizes[i] != other->sizes[i])
            return false;
    return true;
}

/* A given tensor takes the result as it is: same dtype and shape, and none of
 * the inputs but those that are the very same elements. */
static inline bool takes_result(const core_tensor *target, core_dtype dtype,
                                const core_value *inputs, uint32_t count)
{
    const core_tensor *first = inputs[0].u.tensor;

    if (target->dtype != dtype || !(target->flags & CORE__TENSOR_CONTIGUOUS) ||
        target->device != first->device || target->ndim != first->ndim)
        return false;
    for (uint32_t i = 0; i < target->ndim; i++)
        if (target->sizes[i] != first->sizes[i])
            return false;
    for (uint32_t k = 0; k < count; k++)
        if (inputs[k].u.tensor->storage == target->storage &&
            inputs[k].u.tensor->offset != target->offset)
            return false;
    return true;
}

/* An alpha that is no number, or a fraction among integers, is refused in the
 * general way. */
static inline bool alpha_suits(const core_value *alpha, core_dtype dtype)
{
    return core__likely(alpha->tag == CORE_VALUE_INT) ||
           alpha->tag == CORE_VALUE_BOOL ||
           (alpha->tag == CORE_VALUE_FLOAT && core__dtype_is_floating(dtype));
}

enum {
    FLOATS = CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |
             CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16)
};

/* What is read of the arguments, once. */
typedef struct inputs {
    core_tensor *tensor[2];
    core__like like; /* the first one's, and so the others' */
    core_dtype dtype;
    core_dtype result;
    uint64_t item; /* bytes */
} inputs;

/* The kernel, if the call is one for the fast path, or NULL. */
static inline __attribute__((always_inline)) const core__kernel *match(
    const core_call *call, const core_value *args, const form form,
    const core_tensor *target, inputs *in)
{
    const core__kernel_set *set = call->user;
    core_tensor *first = args[0].u.tensor;
    const core__kernel *kernel;
    uint32_t dtypes;

    in->tensor[0] = first;
    in->tensor[1] = NULL;
    in->like = core__like_of(first);
    in->dtype = first->dtype;
    in->result = form.compares ? CORE_BOOL : in->dtype;
    in->item = core__dtype_size(in->dtype);
    if (!(first->flags & CORE__TENSOR_CONTIGUOUS) || in->like.numel == 0 ||
        (form.alpha && !alpha_suits(&args[2], in->dtype)))
        return NULL;
    if (form.count == 2) {
        in->tensor[1] = args[1].u.tensor;
        if (!alike(first, in->tensor[1]))
            return NULL;
    }
    if (form.given && !takes_result(target, in->result, args, form.count))
        return NULL;
    kernel = atomic_load_explicit(&set->quick[in->dtype], memory_order_acquire);
    if (core__unlikely(!kernel))
        return NULL;
    dtypes = form.compares ? kernel->compared : kernel->same;
    if (form.floats)
        dtypes &= FLOATS;
    return dtypes & 1u << in->dtype ? kernel : NULL;
}

/* ---------------------------------------------------------------- calls -- */

typedef struct quick_call {
    core__kernel_call run;
    core_loop loop;
    core_operand operands[3];
} quick_call;

static inline void set_operand(core_operand *operand, const core_tensor *tensor,
                               uint64_t offset, const operand_kind *kind)
{
    operand->memory = tensor->storage->memory;
    operand->memory.offset += offset;
    memcpy(&operand->strides, kind, sizeof *kind);
}

static inline __attribute__((always_inline)) void fill(quick_call *quick,
                                                       const core_call *call,
                                                       const inputs *in,
                                                       const form form,
                                                       core_tensor *output)
{
    core__kernel_call *run = &quick->run;
    core_loop *loop = &quick->loop;

    run->tensors[0] = output;
    set_operand(&quick->operands[0], output,
                form.given
                    ? (uint64_t)output->offset * (form.compares ? 1 : in->item)
                    : 0,
                &kinds[in->result][OUTPUT]);
#pragma GCC unroll 2
    for (uint32_t k = 0; k < form.count; k++) {
        run->tensors[k + 1] = in->tensor[k];
        set_operand(&quick->operands[k + 1], in->tensor[k],
                    (uint64_t)in->tensor[k]->offset * in->item,
                    &kinds[in->dtype][INPUT]);
    }
    run->ntensors = form.count + 1;
    run->device = in->like.device;
    run->op = call->op;
    loop->struct_size = sizeof *loop;
    loop->flags = CORE_LOOP_CONTIGUOUS;
    loop->ndim = 1;
    loop->noperands = form.count + 1;
    loop->noutputs = 1;
    loop->reduced = 0;
    loop->numel = in->like.numel;
    loop->sizes = &loop->numel;
    loop->operands = quick->operands;
}

/* On a device without streams: there is nothing to capture, and no word of the
 * plugin's for one. */
static inline __attribute__((always_inline)) core_status launch(
    quick_call *quick, core__thread *self, const core__kernel *kernel,
    const core_value *args, uint32_t nargs)
{
    core__kernel_call *run = &quick->run;
    core_status status;

    run->errors = self->error.sequence;
    core__kernel_call_fill(run, self, NULL, kernel, &quick->loop);
    status = kernel->kernel.launch(&run->call, args, nargs, NULL, 0);
    if (core__unlikely(status != CORE_OK || run->scratch != NULL))
        return core__kernel_launched(run, self, status, run->errors);
    core__thread_count(&self->launches[run->device->launch_slot]);
    return CORE_OK;
}

/* The same where the thread keeps no tensor of that size, or of a device with
 * streams. */
static inline __attribute__((always_inline)) core_status run_new(
    core_call *call, const core_value *args, uint32_t nargs,
    core_value *results, uint32_t nresults, const form form)
{
    inputs in;
    const core__kernel *kernel = match(call, args, form, NULL, &in);
    core_tensor *output;
    quick_call quick;
    core_status status;

    if (!kernel)
        return core__elementwise_general(call, args, nargs, results, nresults);
    status = core__tensor_new_like(in.tensor[0], in.result, &output);
    if (core__unlikely(status != CORE_OK))
        return core__op_allocated(call->op, in.like.device, status);
    fill(&quick, call, &in, form, output);
    status = core__kernel_launch(&quick.run, &kernel->kernel, &quick.loop, args,
                                 nargs, NULL, 0);
    if (core__unlikely(status != CORE_OK))
        core__tensor_release(output);
    else
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = output}};
    return status;
}

/* The fast path.  Nothing but the kernel is called before its end, so that few
 * registers are saved; what is kept lies on a device without streams. */
static inline __attribute__((always_inline)) core_status run_kept(
    core_call *call, const core_value *args, uint32_t nargs,
    core_value *results, uint32_t nresults, const form form,
    core_function otherwise)
{
    core__thread *self = core__self_pointer;
    inputs in;
    const core__kernel *kernel = match(call, args, form, NULL, &in);
    core_tensor *output;
    quick_call quick;
    core_status status;

    if (core__unlikely(!kernel || !self))
        return core__elementwise_general(call, args, nargs, results, nresults);
    output =
        core__kept_like(self, in.like, in.result, form.compares ? 1 : in.item);
    if (core__unlikely(!output))
        return otherwise(call, args, nargs, results, nresults);
    fill(&quick, call, &in, form, output);
    status = launch(&quick, self, kernel, args, nargs);
    output = quick.run.tensors[0];
    if (core__unlikely(status != CORE_OK))
        core__tensor_release(output);
    else
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = output}};
    return status;
}

/* ------------------------------------------------------------ functions -- */

/* One for each form that programs call most. */
#define FAST_FUNCTION(name, ...)                                     \
    static __attribute__((noinline)) core_status name##_new(         \
        core_call *call, const core_value *args, uint32_t nargs,     \
        core_value *results, uint32_t nresults)                      \
    {                                                                \
        return run_new(call, args, nargs, results, nresults,         \
                       (form){__VA_ARGS__});                         \
    }                                                                \
                                                                     \
    static core_status name(core_call *call, const core_value *args, \
                            uint32_t nargs, core_value *results,     \
                            uint32_t nresults)                       \
    {                                                                \
        return run_kept(call, args, nargs, results, nresults,        \
                        (form){__VA_ARGS__}, name##_new);            \
    }

FAST_FUNCTION(run_one, .count = 1)
FAST_FUNCTION(run_one_float, .count = 1, .floats = true)
FAST_FUNCTION(run_two, .count = 2)
FAST_FUNCTION(run_two_float, .count = 2, .floats = true)
FAST_FUNCTION(run_two_alpha, .count = 2, .alpha = true)

static inline form form_of(const core_operator *op)
{
    uint8_t quick = op->quick;

    return (form){.count = quick & CORE__QUICK_INPUTS,
                  .alpha = quick & CORE__QUICK_ALPHA,
                  .compares = quick & CORE__QUICK_COMPARES,
                  .floats = quick & CORE__QUICK_FLOATS};
}

/* Comparisons; numbers that are neither inputs nor an alpha, which are looked
 * at first. */
static core_status run_any(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    CORE_TRY(core__numbers_are(call->op, args, nargs));
    return run_new(call, args, nargs, results, nresults, form_of(call->op));
}

/* In place, and into a given tensor. */
static inline __attribute__((always_inline)) core_status run_given(
    core_call *call, const core_value *args, uint32_t nargs,
    core_value *results, uint32_t nresults, const form form)
{
    const core_operator *op = call->op;
    uint32_t position =
        op->variant == CORE__VARIANT_INPLACE ? 0 : op->nargs - 1u;
    core_tensor *target = args[position].u.tensor;
    core__thread *self = core__self_pointer;
    inputs in;
    const core__kernel *kernel = match(call, args, form, target, &in);
    quick_call quick;
    core_status status;

    if (core__unlikely(!kernel || !self))
        return core__elementwise_general(call, args, nargs, results, nresults);
    fill(&quick, call, &in, form, target);
    if (core__unlikely(!in.like.device->synchronous))
        status = core__kernel_launch(&quick.run, &kernel->kernel, &quick.loop,
                                     args, nargs, NULL, 0);
    else
        status = launch(&quick, self, kernel, args, nargs);
    if (status != CORE_OK || nresults == 0)
        return status;
    target = quick.run.tensors[0];
    core__tensor_retain(target);
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = target}};
    return CORE_OK;
}

#define GIVEN_FUNCTION(name, ...)                                    \
    static core_status name(core_call *call, const core_value *args, \
                            uint32_t nargs, core_value *results,     \
                            uint32_t nresults)                       \
    {                                                                \
        return run_given(call, args, nargs, results, nresults,       \
                         (form){.given = true, __VA_ARGS__});        \
    }

GIVEN_FUNCTION(run_one_given, .count = 1)
GIVEN_FUNCTION(run_two_given, .count = 2)
GIVEN_FUNCTION(run_two_alpha_given, .count = 2, .alpha = true)

static core_status run_any_given(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    form form = form_of(call->op);

    form.given = true;
    CORE_TRY(core__numbers_are(call->op, args, nargs));
    return run_given(call, args, nargs, results, nresults, form);
}

static core_function run_of_given(uint8_t quick)
{
    switch (quick) {
    case 1:
        return run_one_given;
    case 2:
        return run_two_given;
    case 2 | CORE__QUICK_ALPHA:
        return run_two_alpha_given;
    default:
        return run_any_given;
    }
}

core_function core__elementwise_run(const core_operator *op)
{
    uint8_t quick = core__elementwise_quick(op);

    if (!quick)
        return core__elementwise_general;
    if (op->variant != CORE__VARIANT_FUNCTIONAL)
        return run_of_given(quick);
    switch (quick) {
    case 1:
        return run_one;
    case 1 | CORE__QUICK_FLOATS:
        return run_one_float;
    case 2:
        return run_two;
    case 2 | CORE__QUICK_FLOATS:
        return run_two_float;
    case 2 | CORE__QUICK_ALPHA:
        return run_two_alpha;
    default:
        return run_any;
    }
}

/* Inputs are the first arguments and must be tensors, and their dtype alone
 * decides about the result's; alpha, if there is one, follows them. */
uint8_t core__elementwise_quick(const core_operator *op)
{
    const core__operator_data *data = op->data;
    uint32_t inputs, quick;

    if (op->family != CORE__FAMILY_ELEMENTWISE ||
        data->promotion == CORE__PROMOTE_OWN || data->kept || data->infer ||
        data->operands == 0 || data->operands > 2 ||
        (data->whole && (data->whole != 2 || data->operands != 2)))
        return 0;
    inputs = (1u << data->operands) - 1;
    for (uint32_t k = 0; k < data->operands; k++)
        if (data->operand[k] != k)
            return 0;
    if ((op->required & inputs) != inputs)
        return 0;
    quick = data->operands;
    if (data->whole)
        quick |= CORE__QUICK_ALPHA;
    if (data->promotion == CORE__PROMOTE_BOOL)
        quick |= CORE__QUICK_COMPARES;
    if (data->promotion == CORE__PROMOTE_FLOAT)
        quick |= CORE__QUICK_FLOATS;
    if (op->numbers & ~(data->whole ? 1u << data->whole : 0))
        quick |= CORE__QUICK_NUMBERS;
    return (uint8_t)quick;
}
