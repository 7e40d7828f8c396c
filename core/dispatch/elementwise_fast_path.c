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
#include "dispatch/inference.h"
#include "dispatch/upcalls.h"
#include "tensor/dtype.h"
#include "tensor/tensor_cache.h"

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

/* Where the result goes. */
typedef enum given {
    NEW,
    IN_PLACE, /* argument 0 */
    OUT       /* the last one */
} given;

/* What differs between operators; known when it is compiled, mostly. */
typedef struct form {
    uint32_t count; /* inputs */
    bool alpha;     /* argument 2 is one */
    bool compares;  /* the result is bool */
    bool floats;    /* integers are computed in floats: in the general way */
    bool written;   /* what the layer in-place-or-view does is done here */
    given given;
    uint32_t last; /* OUT: the position of the tensor that takes it */
} form;

/* --------------------------------------------------------------- checks -- */

/* first is contiguous and not empty; kind: of the other.  Of more than one
 * dimension the sizes are still to be compared. */
static inline bool alike(const core_tensor *first, const core_tensor *other,
                         uint16_t kind)
{
    return other->kind == kind && other->flags & CORE__TENSOR_CONTIGUOUS &&
           first->device == other->device && first->numel == other->numel;
}

/* Not part of the functions below, which it would take registers from: most
 * tensors that are small enough for its cost to matter have one dimension. */
static bool __attribute__((noinline))
same_sizes(const core_tensor *first, const core_tensor *other)
{
    /* That sizes[0] is the same follows. */
    for (uint32_t i = 1; i < first->ndim; i++)
        if (first->sizes[i] != other->sizes[i])
            return false;
    return true;
}

/* A given tensor takes the result as it is: same dtype and shape, and none of
 * the inputs but those that are the very same elements. */
static inline bool takes_result(const core_tensor *target, const form form,
                                const core_value *inputs)
{
    const core_tensor *first = inputs[0].u.tensor;
    uint16_t kind =
        form.compares ? core__tensor_kind(first->ndim, CORE_BOOL) : first->kind;

    if (form.given == OUT ? !alike(first, target, kind) : target->kind != kind)
        return false;
    for (uint32_t k = form.given == IN_PLACE; k < form.count; k++)
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
} inputs;

/* Whether the arguments are such that the fast path can serve them. */
static inline __attribute__((always_inline)) bool match(
    const core_value *args, const form form, const core_tensor *target,
    inputs *in)
{
    core_tensor *first = args[0].u.tensor;

    in->tensor[0] = first;
    in->tensor[1] = NULL;
    in->like = core__like_of(first);
    in->dtype = first->dtype;
    in->result = form.compares ? CORE_BOOL : in->dtype;
    if (!(first->flags & CORE__TENSOR_CONTIGUOUS) || in->like.numel == 0 ||
        (form.alpha && !alpha_suits(&args[2], in->dtype)))
        return false;
    if (form.count == 2) {
        in->tensor[1] = args[1].u.tensor;
        if (!alike(first, in->tensor[1], first->kind))
            return false;
    }
    if (form.given != NEW && !takes_result(target, form, args))
        return false;
    if (core__likely(in->like.ndim < 2))
        return true;
    return (form.count < 2 || same_sizes(first, in->tensor[1])) &&
           (form.given != OUT || same_sizes(first, target));
}

/* The kernel, if there is one for such operands. */
static const core__kernel *kernel_of(const core_call *call, const form form,
                                     core_dtype dtype)
{
    const core__kernel_set *set = call->user;
    const core__kernel *kernel = atomic_load_explicit(
        &set->quick[dtype & (CORE__QUICK_DTYPES - 1)], memory_order_acquire);
    uint32_t dtypes;

    if (!kernel)
        return NULL;
    dtypes = form.compares ? kernel->compared : kernel->same;
    if (form.floats)
        dtypes &= FLOATS;
    return dtypes & 1u << dtype ? kernel : NULL;
}

/* ---------------------------------------------------------------- calls -- */

typedef struct quick_call {
    core__kernel_call run;
    core_loop loop;
    core_operand operands[3];
} quick_call;

/* What is the same in all calls of an operator with a dtype. */
static void fill(quick_call *quick, core_operator *op, const inputs *in,
                 uint32_t count)
{
    core__kernel_call *run = &quick->run;
    core_loop *loop = &quick->loop;

    memcpy(&quick->operands[0].strides, &kinds[in->result][OUTPUT],
           sizeof(operand_kind));
    for (uint32_t k = 1; k <= count; k++)
        memcpy(&quick->operands[k].strides, &kinds[in->dtype][INPUT],
               sizeof(operand_kind));
    run->ntensors = count + 1;
    run->op = op;
    run->device = in->like.device;
    loop->struct_size = sizeof *loop;
    loop->flags = CORE_LOOP_CONTIGUOUS;
    loop->ndim = 1;
    loop->noperands = count + 1;
    loop->noutputs = 1;
    loop->reduced = 0;
    loop->sizes = &loop->numel;
    loop->operands = quick->operands;
}

static inline void set_operand(core_operand *operand, const core_tensor *tensor,
                               uint64_t offset)
{
    operand->memory = tensor->storage->memory;
    operand->memory.offset += offset;
}

/* What differs from call to call. */
static inline __attribute__((always_inline)) void point(quick_call *quick,
                                                        const inputs *in,
                                                        const form form,
                                                        uint64_t item,
                                                        core_tensor *output)
{
    core__kernel_call *run = &quick->run;

    run->tensors[0] = output;
    set_operand(&quick->operands[0], output,
                form.given == NEW
                    ? 0
                    : (uint64_t)output->offset * (form.compares ? 1 : item));
#pragma GCC unroll 2
    for (uint32_t k = 0; k < form.count; k++) {
        run->tensors[k + 1] = in->tensor[k];
        set_operand(&quick->operands[k + 1], in->tensor[k],
                    (uint64_t)in->tensor[k]->offset * item);
    }
    quick->loop.numel = in->like.numel;
}

/* ----------------------------------------------------------------- rows -- */

/* A thread's last call of an operator, kept as it was: of the three hundred
 * bytes that a kernel is given, few differ in the next call.  It is good for
 * the same operator, dtype and device while nobody registers anything, and
 * taken while the kernel runs, which may call operators itself. */
typedef struct row {
    const core_operator *op; /* NULL: taken, or never filled */
    const core_device *device;
    core_function launch; /* the kernel's */
    core_dtype dtype;
    uint32_t item;       /* its bytes */
    uint32_t registered; /* core__registered, when it was filled */
    bool filled;
    quick_call quick;
} row;

enum { ROWS = 8 };
_Static_assert(ROWS * sizeof(row) <= sizeof((core__thread *)0)->rows,
               "base/thread.h has room for them");

static inline row *row_at(core__thread *self, const core_operator *op)
{
    return &((row *)(void *)self->rows)[op->id % ROWS];
}

/* NULL: it is none of this call's. */
static inline __attribute__((always_inline)) row *row_of(core__thread *self,
                                                         const core_call *call,
                                                         const inputs *in)
{
    row *row = row_at(self, call->op);

    return core__likely(row->op == call->op && row->dtype == in->dtype &&
                        row->device == in->like.device &&
                        row->registered ==
                            atomic_load_explicit(&core__registered,
                                                 memory_order_relaxed))
               ? row
               : NULL;
}

/* NULL: the call needs a place of its own. */
static row *row_fill(core__thread *self, const core_call *call,
                     const core__kernel *kernel, uint32_t registered,
                     const inputs *in, const form form)
{
    row *row = row_at(self, call->op);

    if (!in->like.device->synchronous || self->shared ||
        (row->filled && !row->op))
        return NULL;
    row->device = in->like.device;
    row->launch = kernel->kernel.launch;
    row->dtype = in->dtype;
    row->item = core__dtype_size(in->dtype);
    row->registered = registered;
    row->filled = true;
    fill(&row->quick, call->op, in, form.count);
    core__kernel_call_fill(&row->quick.run, self, NULL, kernel,
                           &row->quick.loop);
    row->op = call->op;
    return row;
}

/* A row is one of a device without streams: there is nothing to capture, and no
 * word of the plugin's for one. */
static inline __attribute__((always_inline)) core_status launch(
    row *row, core__thread *self, const core_value *args, uint32_t nargs)
{
    core__kernel_call *run = &row->quick.run;
    core_status status;

    run->errors = self->error.sequence;
    run->call.flags = self->call_flags;
    run->call.device = run->device->impl; /* the same, if it was opened anew */
    row->op = NULL;
    status = row->launch(&run->call, args, nargs, NULL, 0);
    row->op = run->op;
    if (core__unlikely(((uint64_t)status | (uintptr_t)run->scratch) != 0))
        return core__kernel_launched(run, self, status, run->errors);
    core__thread_count(&self->launches[run->device->launch_slot]);
    return CORE_OK;
}

/* --------------------------------------------------------- calls, at last -- */

static inline __attribute__((always_inline)) core_tensor *target_of(
    const core_value *args, const form form)
{
    return form.given == NEW        ? NULL
           : form.given == IN_PLACE ? args[0].u.tensor
                                    : args[form.last].u.tensor;
}

static inline core_status answer(core_status status, core_tensor *output,
                                 const form form, core_value *results,
                                 uint32_t nresults)
{
    if (core__unlikely(status != CORE_OK)) {
        if (form.given == NEW)
            core__tensor_release(output);
        return status;
    }
    if (form.written) /* it has a storage, as a kernel was called */
        core__storage_bump(output->storage);
    if (form.given != NEW) {
        if (nresults == 0)
            return CORE_OK;
        core__tensor_retain(output);
    }
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = output}};
    return CORE_OK;
}

static core_status in_general(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults, const form form)
{
    return (form.written
                ? core__dispatch_layers[CORE__FUNCTIONALITY_INPLACE_OR_VIEW]
                      .function
                : core__elementwise_general)(call, args, nargs, results,
                                             nresults);
}

/* Without a row for it or a kept tensor for its result: a first call, one of a
 * device with streams, one inside a kernel. */
static core_status __attribute__((noinline))
run_apart(core_call *call, const core_value *args, uint32_t nargs,
          core_value *results, uint32_t nresults, const form form)
{
    /* read before the kernel is: what changes meanwhile makes the row old */
    uint32_t registered = atomic_load(&core__registered);
    core__thread *self = core__thread_self();
    core_tensor *output = target_of(args, form);
    const core__kernel *kernel = NULL;
    core_status status;
    quick_call quick;
    inputs in;
    row *row;

    if (match(args, form, output, &in))
        kernel = kernel_of(call, form, in.dtype);
    if (!kernel)
        return in_general(call, args, nargs, results, nresults, form);
    if (form.given == NEW) {
        status = core__tensor_new_like(in.tensor[0], in.result, &output);
        if (core__unlikely(status != CORE_OK))
            return core__op_allocated(call->op, in.like.device, status);
    }
    row = row_fill(self, call, kernel, registered, &in, form);
    if (row) {
        point(&row->quick, &in, form, row->item, output);
        status = launch(row, self, args, nargs);
    } else {
        fill(&quick, call->op, &in, form.count);
        point(&quick, &in, form, core__dtype_size(in.dtype), output);
        status = core__kernel_launch(&quick.run, &kernel->kernel, &quick.loop,
                                     args, nargs, NULL, 0);
    }
    return answer(status, output, form, results, nresults);
}

/* What changes a tensor that it may not change is refused by the layer, and who
 * looks at each step sees it there. */
static inline bool may_write(const core__thread *self,
                             const core_tensor *target)
{
    return !(target->flags &
             (CORE__TENSOR_INFERENCE | CORE__TENSOR_READ_ONLY)) &&
           !(self->included & CORE__KEY_TRACE);
}

/* The fast path.  Nothing but the kernel is called before its end, so that few
 * registers are saved; what is kept lies on a device without streams. */
static inline __attribute__((always_inline)) core_status run(
    core_call *call, const core_value *args, uint32_t nargs,
    core_value *results, uint32_t nresults, const form form,
    core_function otherwise)
{
    core__thread *self = core__self_pointer;
    core_tensor *output = target_of(args, form);
    core_status status;
    inputs in;
    row *row;

    if (core__unlikely(!self || !match(args, form, output, &in)))
        return in_general(call, args, nargs, results, nresults, form);
    if (form.written && core__unlikely(!may_write(self, output)))
        return in_general(call, args, nargs, results, nresults, form);
    row = row_of(self, call, &in);
    if (core__unlikely(!row))
        return otherwise(call, args, nargs, results, nresults);
    if (form.given == NEW) {
        if (form.compares)
            in.like.kind = core__tensor_kind((uint8_t)in.like.ndim, CORE_BOOL);
        output = core__kept_like(self, in.like, form.compares ? 1 : row->item);
        if (core__unlikely(!output))
            return otherwise(call, args, nargs, results, nresults);
    }
    point(&row->quick, &in, form, row->item, output);
    status = launch(row, self, args, nargs);
    return answer(status, row->quick.run.tensors[0], form, results, nresults);
}

/* ------------------------------------------------------------ functions -- */

/* One for each form that programs call most. */
#define FAST_FUNCTION(name, ...)                                              \
    static core_status name##_apart(core_call *call, const core_value *args,  \
                                    uint32_t nargs, core_value *results,      \
                                    uint32_t nresults)                        \
    {                                                                         \
        return run_apart(call, args, nargs, results, nresults,                \
                         (form){__VA_ARGS__});                                \
    }                                                                         \
                                                                              \
    static core_status name(core_call *call, const core_value *args,          \
                            uint32_t nargs, core_value *results,              \
                            uint32_t nresults)                                \
    {                                                                         \
        return run(call, args, nargs, results, nresults, (form){__VA_ARGS__}, \
                   name##_apart);                                             \
    }

FAST_FUNCTION(run_one, .count = 1)
FAST_FUNCTION(run_one_float, .count = 1, .floats = true)
FAST_FUNCTION(run_two, .count = 2)
FAST_FUNCTION(run_two_float, .count = 2, .floats = true)
FAST_FUNCTION(run_two_alpha, .count = 2, .alpha = true)
FAST_FUNCTION(write_one, .count = 1, .given = IN_PLACE, .written = true)
FAST_FUNCTION(write_two, .count = 2, .given = IN_PLACE, .written = true)
FAST_FUNCTION(write_two_alpha, .count = 2, .alpha = true, .given = IN_PLACE,
              .written = true)
FAST_FUNCTION(write_one_out, .count = 1, .given = OUT, .last = 1,
              .written = true)
FAST_FUNCTION(write_two_out, .count = 2, .given = OUT, .last = 2,
              .written = true)
FAST_FUNCTION(write_two_alpha_out, .count = 2, .alpha = true, .given = OUT,
              .last = 3, .written = true)

/* Comparisons; numbers that are neither inputs nor an alpha, which are looked
 * at first; what is called below the layers. */
static core_status run_any(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_operator *op = call->op;
    uint8_t quick = op->quick;
    form form = {.count = quick & CORE__QUICK_INPUTS,
                 .alpha = quick & CORE__QUICK_ALPHA,
                 .compares = quick & CORE__QUICK_COMPARES,
                 .floats = quick & CORE__QUICK_FLOATS,
                 .given = op->variant == CORE__VARIANT_FUNCTIONAL ? NEW
                          : op->variant == CORE__VARIANT_INPLACE  ? IN_PLACE
                                                                  : OUT,
                 .last = op->nargs - 1u};

    CORE_TRY(core__numbers_are(op, args, nargs));
    return run_apart(call, args, nargs, results, nresults, form);
}

core_function core__elementwise_run(const core_operator *op)
{
    uint8_t quick = core__elementwise_quick(op);

    if (!quick)
        return core__elementwise_general;
    if (op->variant != CORE__VARIANT_FUNCTIONAL)
        return run_any;
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

core_function core__elementwise_write(const core_operator *op)
{
    bool in_place = op->variant == CORE__VARIANT_INPLACE;
    uint8_t quick = core__elementwise_quick(op);
    uint32_t inputs =
        (quick & CORE__QUICK_INPUTS) + (quick & CORE__QUICK_ALPHA ? 1u : 0u);

    if (op->variant == CORE__VARIANT_FUNCTIONAL ||
        (!in_place && op->nargs != inputs + 1))
        return NULL;
    switch (quick) {
    case 1:
        return in_place ? write_one : write_one_out;
    case 2:
        return in_place ? write_two : write_two_out;
    case 2 | CORE__QUICK_ALPHA:
        return in_place ? write_two_alpha : write_two_alpha_out;
    default:
        return NULL;
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
