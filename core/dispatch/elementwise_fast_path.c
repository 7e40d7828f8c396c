/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fast path of element-wise operators: the inputs are contiguous tensors of
 * one dtype, shape and device, with a dtype in which the operator computes; or
 * such a tensor of floats and a number.
 * Its cost is the checks, one output from the thread's tensor cache, a
 * one-dimensional loop on the stack and the kernel's call.  Everything else,
 * including error messages, is left to the general path (elementwise.c).
 *
 * What is known before the call is checked when the operator's table is created
 * (core__elementwise_run chooses a function) and when a kernel is registered
 * (core__kernel.same): a call compares its tensors with each other and with a
 * mask.  The dispatcher has already checked that required tensors are
 * present. */

#if defined(__GNUC__) && !defined(__clang__)
/* Stores pairs of fields one by one instead of combining them in a vector. */
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

/* The fields of an operand that follow from its dtype, in the order of
 * core_operand after the memory. */
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

static const operand_kind number_kind = {&item_strides[0], CORE_DTYPE_NONE,
                                         CORE_OPERAND_IMMEDIATE, 0, 0};

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

/* Where the result is stored. */
typedef enum destination {
    NEW,
    IN_PLACE, /* argument 0 */
    OUT       /* the last argument */
} destination;

/* Properties of operators, mostly known at compile time. */
typedef struct form {
    uint32_t count; /* tensors among the inputs */
    bool number;    /* argument 1 is a number, the last input */
    bool alpha;     /* argument 2 is an alpha */
    bool compares;  /* the result is bool */
    bool floats;    /* integers are computed as floats, on the general path */
    bool written;   /* includes the work of the in-place-or-view layer */
    destination destination;
    uint32_t last; /* OUT: position of the out tensor */
} form;

/* -------------------------------------------------------------- checks -- */

/* Compares a tensor with `first`, which is contiguous and not empty.  kind:
 * that of the other tensor.  With more than one dimension, sizes must still be
 * compared. */
static inline bool same_layout(const core_tensor *first,
                               const core_tensor *other, uint16_t kind)
{
    return other->kind == kind && other->flags & CORE__TENSOR_CONTIGUOUS &&
           first->device == other->device && first->numel == other->numel;
}

/* Not inlined, because it would take registers from its callers: most tensors
 * that are small enough for its cost to matter have one dimension. */
static bool __attribute__((noinline))
same_sizes(const core_tensor *first, const core_tensor *other)
{
    /* sizes[0] is then equal, too. */
    for (uint32_t i = 1; i < first->ndim; i++)
        if (first->sizes[i] != other->sizes[i])
            return false;
    return true;
}

/* True if a given tensor can take the result as it is: same dtype and shape,
 * and it shares memory with an input only if they have the same elements. */
static inline bool takes_result(const core_tensor *target, const form form,
                                const core_value *inputs)
{
    const core_tensor *first = inputs[0].u.tensor;
    uint16_t kind =
        form.compares ? core__tensor_kind(first->ndim, CORE_BOOL) : first->kind;

    if (form.destination == OUT ? !same_layout(first, target, kind)
                                : target->kind != kind)
        return false;
    for (uint32_t k = form.destination == IN_PLACE; k < form.count; k++)
        if (inputs[k].u.tensor->storage == target->storage &&
            inputs[k].u.tensor->offset != target->offset)
            return false;
    return true;
}

/* An alpha that is not a number, or a fraction with integers, is rejected on
 * the general path. */
static inline bool alpha_matches(const core_value *alpha, core_dtype dtype)
{
    return core__likely(alpha->tag == CORE_VALUE_INT) ||
           alpha->tag == CORE_VALUE_BOOL ||
           (alpha->tag == CORE_VALUE_FLOAT && core__dtype_is_floating(dtype));
}

enum {
    FLOATS = CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |
             CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16)
};

/* The dtype is the tensor's: a tensor of floats that is not a number itself
 * outranks any number. */
static inline bool number_matches(const core_tensor *first,
                                  const core_value *number)
{
    return FLOATS & 1u << first->dtype &&
           !(first->flags & CORE__TENSOR_NUMBER) &&
           (number->tag == CORE_VALUE_FLOAT || number->tag == CORE_VALUE_INT ||
            number->tag == CORE_VALUE_BOOL);
}

/* The arguments, read once. */
typedef struct inputs {
    core_tensor *tensor[2];
    core__tensor_like like; /* the first input's, and so that of all */
    core_dtype dtype;
    core_dtype result;
    core_scalar number;
} inputs;

/* True if the fast path can serve these arguments. */
static inline __attribute__((always_inline)) bool match(
    const core_value *args, const form form, const core_tensor *target,
    inputs *in)
{
    core_tensor *first = args[0].u.tensor;

    in->tensor[0] = first;
    in->tensor[1] = NULL;
    in->like = core__tensor_like_of(first);
    in->dtype = first->dtype;
    in->result = form.compares ? CORE_BOOL : in->dtype;
    if (form.number)
        in->number = args[1];
    if (!(first->flags & CORE__TENSOR_CONTIGUOUS) || in->like.numel == 0 ||
        (form.alpha && !alpha_matches(&args[2], in->dtype)) ||
        (form.number && !number_matches(first, &args[1])))
        return false;
    if (form.count == 2) {
        in->tensor[1] = args[1].u.tensor;
        if (!same_layout(first, in->tensor[1], first->kind))
            return false;
    }
    if (form.destination != NEW && !takes_result(target, form, args))
        return false;
    if (core__likely(in->like.ndim < 2))
        return true;
    return (form.count < 2 || same_sizes(first, in->tensor[1])) &&
           (form.destination != OUT || same_sizes(first, target));
}

/* The kernel for such operands, or NULL. */
static const core__kernel *kernel_of(const core_call *call, const form form,
                                     core_dtype dtype)
{
    const core__kernel_set *set = call->user;
    const core__kernel *kernel = atomic_load_explicit(
        &set->fast_path[dtype & (CORE__FAST_PATH_DTYPES - 1)],
        memory_order_acquire);
    uint32_t dtypes;

    if (!kernel)
        return NULL;
    dtypes = form.compares ? kernel->compared : kernel->same;
    if (form.floats)
        dtypes &= FLOATS;
    return dtypes & 1u << dtype ? kernel : NULL;
}

/* --------------------------------------------------------------- calls -- */

typedef struct fast_call {
    core__kernel_call run;
    core_loop loop;
    core_operand operands[3];
} fast_call;

/* Sets the fields that are equal in all calls of an operator with a dtype. */
static void fill(fast_call *fast, core_operator *op, const inputs *in,
                 const form form)
{
    uint32_t count = form.count;
    core__kernel_call *run = &fast->run;
    core_loop *loop = &fast->loop;

    memcpy(&fast->operands[0].strides, &kinds[in->result][OUTPUT],
           sizeof(operand_kind));
    for (uint32_t k = 1; k <= count; k++)
        memcpy(&fast->operands[k].strides, &kinds[in->dtype][INPUT],
               sizeof(operand_kind));
    if (form.number) {
        fast->operands[2].memory = (core_memory){0};
        memcpy(&fast->operands[2].strides, &number_kind, sizeof(operand_kind));
        fast->operands[2].dtype = in->dtype;
    }
    run->ntensors = count + 1;
    run->op = op;
    run->device = in->like.device;
    loop->struct_size = sizeof *loop;
    loop->flags = CORE_LOOP_CONTIGUOUS;
    loop->ndim = 1;
    loop->noperands = count + form.number + 1;
    loop->noutputs = 1;
    loop->reduced = 0;
    loop->sizes = &loop->numel;
    loop->operands = fast->operands;
}

static inline void set_operand(core_operand *operand, const core_tensor *tensor,
                               uint64_t offset)
{
    operand->memory = tensor->storage->memory;
    operand->memory.offset += offset;
}

/* Sets the fields that differ from call to call. */
static inline __attribute__((always_inline)) void set_arguments(
    fast_call *fast, const inputs *in, const form form, uint64_t item,
    core_tensor *output)
{
    core__kernel_call *run = &fast->run;

    run->tensors[0] = output;
    set_operand(&fast->operands[0], output,
                form.destination == NEW
                    ? 0
                    : (uint64_t)output->offset * (form.compares ? 1 : item));
#pragma GCC unroll 2
    for (uint32_t k = 0; k < form.count; k++) {
        run->tensors[k + 1] = in->tensor[k];
        set_operand(&fast->operands[k + 1], in->tensor[k],
                    (uint64_t)in->tensor[k]->offset * item);
    }
    fast->loop.numel = in->like.numel;
    if (form.number)
        core__element_store(in->dtype, &fast->operands[2].immediate,
                            in->number);
}

/* ---------------------------------------------------------- call cache -- */

/* A thread's last call of an operator, cached: of the three hundred bytes that
 * a kernel receives, few differ in the next call.  It is valid for the same
 * operator, dtype and device as long as nothing is registered.  It is taken
 * out while the kernel runs, because the kernel may call operators. */
typedef struct row {
    const core_operator *op; /* NULL: in use, or never filled */
    const core_device *device;
    core_function launch; /* the kernel's */
    core_dtype dtype;
    uint32_t item;       /* bytes per element */
    uint32_t registered; /* core__registry_generation at the time of filling */
    bool filled;
    fast_call fast;
} row;

enum { ROWS = 8 };
_Static_assert(ROWS * sizeof(row) <= sizeof((core__thread *)0)->call_cache,
               "base/thread.h reserves space for the rows");

static inline row *row_at(core__thread *self, const core_operator *op)
{
    return &((row *)(void *)self->call_cache)[op->id % ROWS];
}

/* NULL: the row is not for this call. */
static inline __attribute__((always_inline)) row *row_of(core__thread *self,
                                                         const core_call *call,
                                                         const inputs *in)
{
    row *row = row_at(self, call->op);

    return core__likely(row->op == call->op && row->dtype == in->dtype &&
                        row->device == in->like.device &&
                        row->registered ==
                            atomic_load_explicit(&core__registry_generation,
                                                 memory_order_relaxed))
               ? row
               : NULL;
}

/* NULL: the call needs a separate struct. */
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
    fill(&row->fast, call->op, in, form);
    core__kernel_call_fill(&row->fast.run, self, NULL, kernel, &row->fast.loop);
    row->op = call->op;
    return row;
}

/* A row belongs to a device without streams, so there is no capture, and no
 * handle of a stream. */
static inline __attribute__((always_inline)) core_status launch(
    row *row, core__thread *self, const core_value *args, uint32_t nargs)
{
    core__kernel_call *run = &row->fast.run;
    core_status status;

    run->errors = self->error.sequence;
    run->call.flags = self->call_flags;
    run->call.device = run->device->impl; /* may have changed if the device was
                                           * reopened */
    row->op = NULL;
    status = row->launch(&run->call, args, nargs, NULL, 0);
    row->op = run->op;
    if (core__unlikely(((uint64_t)status | (uintptr_t)run->scratch) != 0))
        return core__kernel_launch_finish(run, self, status, run->errors);
    core__thread_increment(&self->launches[run->device->launch_slot]);
    return CORE_OK;
}

/* --------------------------------------------------------------- calls -- */

static inline __attribute__((always_inline)) core_tensor *target_of(
    const core_value *args, const form form)
{
    return form.destination == NEW        ? NULL
           : form.destination == IN_PLACE ? args[0].u.tensor
                                          : args[form.last].u.tensor;
}

static inline core_status return_output(core_status status, core_tensor *output,
                                        const form form, core_value *results,
                                        uint32_t nresults)
{
    if (core__unlikely(status != CORE_OK)) {
        if (form.destination == NEW)
            core__tensor_release(output);
        return status;
    }
    if (form.written) /* it has a storage, because a kernel was called */
        core__storage_bump_version(output->storage);
    if (form.destination != NEW) {
        if (nresults == 0)
            return CORE_OK;
        core__tensor_retain(output);
    }
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = output}};
    return CORE_OK;
}

static core_status run_general(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults, const form form)
{
    return (form.written
                ? core__dispatch_layers[CORE__FUNCTIONALITY_INPLACE_OR_VIEW]
                      .function
                : core__elementwise_general)(call, args, nargs, results,
                                             nresults);
}

/* Without a row or a cached result: a first call, one on a device with
 * streams, one inside a kernel. */
static core_status __attribute__((noinline))
run_uncached(core_call *call, const core_value *args, uint32_t nargs,
             core_value *results, uint32_t nresults, const form form)
{
    /* read before the kernel, so that a change meanwhile makes the row stale */
    uint32_t registered = atomic_load(&core__registry_generation);
    core__thread *self = core__thread_self();
    core_tensor *output = target_of(args, form);
    const core__kernel *kernel = NULL;
    core_status status;
    fast_call fast;
    inputs in;
    row *row;

    if (match(args, form, output, &in))
        kernel = kernel_of(call, form, in.dtype);
    if (!kernel)
        return run_general(call, args, nargs, results, nresults, form);
    if (form.destination == NEW) {
        status = core__tensor_new_like(in.tensor[0], in.result, &output);
        if (core__unlikely(status != CORE_OK))
            return core__op_check_allocation(call->op, in.like.device, status);
    }
    row = row_fill(self, call, kernel, registered, &in, form);
    if (row) {
        set_arguments(&row->fast, &in, form, row->item, output);
        status = launch(row, self, args, nargs);
    } else {
        fill(&fast, call->op, &in, form);
        set_arguments(&fast, &in, form, core__dtype_size(in.dtype), output);
        status = core__kernel_launch(&fast.run, &kernel->kernel, &fast.loop,
                                     args, nargs, NULL, 0);
    }
    return return_output(status, output, form, results, nresults);
}

/* The layer refuses changes of tensors that must not be changed; below it, a
 * mode or a program that is recorded sees the call, and a tracer its step.  The
 * keys of the call also tell of tensors without content, the inputs included. */
static inline bool may_write(const core__thread *self, const core_call *call,
                             const core_tensor *target)
{
    return !(target->flags &
             (CORE__TENSOR_INFERENCE | CORE__TENSOR_READ_ONLY)) &&
           !((self->included | call->keys) &
             (CORE__KEY_TRACE | CORE__KEY_MODE_BELOW_AUTOGRAD |
              CORE__KEYS_TRACED));
}

/* The fast path.  It calls only the kernel before its end, so that few
 * registers are saved; cached tensors are on a device without streams. */
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
        return run_general(call, args, nargs, results, nresults, form);
    if (form.written && core__unlikely(!may_write(self, call, output)))
        return run_general(call, args, nargs, results, nresults, form);
    row = row_of(self, call, &in);
    if (core__unlikely(!row))
        return otherwise(call, args, nargs, results, nresults);
    if (form.destination == NEW) {
        if (form.compares)
            in.like.kind = core__tensor_kind((uint8_t)in.like.ndim, CORE_BOOL);
        output = core__tensor_cache_take_like(self, in.like,
                                              form.compares ? 1 : row->item);
        if (core__unlikely(!output))
            return otherwise(call, args, nargs, results, nresults);
    }
    set_arguments(&row->fast, &in, form, row->item, output);
    status = launch(row, self, args, nargs);
    return return_output(status, row->fast.run.tensors[0], form, results,
                         nresults);
}

/* ----------------------------------------------------------- functions -- */

/* One function for each of the most frequent forms. */
#define FAST_FUNCTION(name, ...)                                               \
    static core_status name##_uncached(core_call *call,                        \
                                       const core_value *args, uint32_t nargs, \
                                       core_value *results, uint32_t nresults) \
    {                                                                          \
        return run_uncached(call, args, nargs, results, nresults,              \
                            (form){__VA_ARGS__});                              \
    }                                                                          \
                                                                               \
    static core_status name(core_call *call, const core_value *args,           \
                            uint32_t nargs, core_value *results,               \
                            uint32_t nresults)                                 \
    {                                                                          \
        return run(call, args, nargs, results, nresults, (form){__VA_ARGS__},  \
                   name##_uncached);                                           \
    }

FAST_FUNCTION(run_one, .count = 1)
FAST_FUNCTION(run_one_float, .count = 1, .floats = true)
FAST_FUNCTION(run_two, .count = 2)
FAST_FUNCTION(run_two_float, .count = 2, .floats = true)
FAST_FUNCTION(run_two_alpha, .count = 2, .alpha = true)
FAST_FUNCTION(run_number, .count = 1, .number = true)
FAST_FUNCTION(run_number_float, .count = 1, .number = true, .floats = true)
FAST_FUNCTION(run_number_alpha, .count = 1, .number = true, .alpha = true)
FAST_FUNCTION(write_one, .count = 1, .destination = IN_PLACE, .written = true)
FAST_FUNCTION(write_two, .count = 2, .destination = IN_PLACE, .written = true)
FAST_FUNCTION(write_two_alpha, .count = 2, .alpha = true,
              .destination = IN_PLACE, .written = true)
FAST_FUNCTION(write_number, .count = 1, .number = true, .destination = IN_PLACE,
              .written = true)
FAST_FUNCTION(write_number_alpha, .count = 1, .number = true, .alpha = true,
              .destination = IN_PLACE, .written = true)
FAST_FUNCTION(write_one_out, .count = 1, .destination = OUT, .last = 1,
              .written = true)
FAST_FUNCTION(write_two_out, .count = 2, .destination = OUT, .last = 2,
              .written = true)
FAST_FUNCTION(write_two_alpha_out, .count = 2, .alpha = true,
              .destination = OUT, .last = 3, .written = true)

/* Comparisons; operators with numbers that are neither inputs nor an alpha,
 * which are checked first; calls below the layers. */
static core_status run_any(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    const core_operator *op = call->op;
    uint8_t fast = op->fast_path;
    form form = {.count = fast & CORE__FAST_PATH_INPUTS,
                 .number = fast & CORE__FAST_PATH_SECOND,
                 .alpha = fast & CORE__FAST_PATH_ALPHA,
                 .compares = fast & CORE__FAST_PATH_COMPARES,
                 .floats = fast & CORE__FAST_PATH_FLOATS,
                 .destination = op->variant == CORE__VARIANT_FUNCTIONAL ? NEW
                                : op->variant == CORE__VARIANT_INPLACE
                                    ? IN_PLACE
                                    : OUT,
                 .last = op->nargs - 1u};

    CORE_TRY(core__numbers_check_tags(op, args, nargs));
    return run_uncached(call, args, nargs, results, nresults, form);
}

core_function core__elementwise_run(const core_operator *op)
{
    uint8_t fast = core__elementwise_fast_path(op);

    if (!fast)
        return core__elementwise_general;
    if (op->variant != CORE__VARIANT_FUNCTIONAL)
        return run_any;
    switch (fast) {
    case 1:
        return run_one;
    case 1 | CORE__FAST_PATH_FLOATS:
        return run_one_float;
    case 2:
        return run_two;
    case 2 | CORE__FAST_PATH_FLOATS:
        return run_two_float;
    case 2 | CORE__FAST_PATH_ALPHA:
        return run_two_alpha;
    case 1 | CORE__FAST_PATH_SECOND:
        return run_number;
    case 1 | CORE__FAST_PATH_SECOND | CORE__FAST_PATH_FLOATS:
        return run_number_float;
    case 1 | CORE__FAST_PATH_SECOND | CORE__FAST_PATH_ALPHA:
        return run_number_alpha;
    default:
        return run_any;
    }
}

core_function core__elementwise_write(const core_operator *op)
{
    bool in_place = op->variant == CORE__VARIANT_INPLACE;
    uint8_t fast = core__elementwise_fast_path(op);
    uint32_t inputs = (fast & CORE__FAST_PATH_INPUTS) +
                      (fast & CORE__FAST_PATH_SECOND ? 1u : 0u) +
                      (fast & CORE__FAST_PATH_ALPHA ? 1u : 0u);

    if (op->variant == CORE__VARIANT_FUNCTIONAL ||
        (!in_place && op->nargs != inputs + 1))
        return NULL;
    switch (fast) {
    case 1:
        return in_place ? write_one : write_one_out;
    case 2:
        return in_place ? write_two : write_two_out;
    case 2 | CORE__FAST_PATH_ALPHA:
        return in_place ? write_two_alpha : write_two_alpha_out;
    case 1 | CORE__FAST_PATH_SECOND:
        return in_place ? write_number : NULL;
    case 1 | CORE__FAST_PATH_SECOND | CORE__FAST_PATH_ALPHA:
        return in_place ? write_number_alpha : NULL;
    default:
        return NULL;
    }
}

/* Inputs are the first arguments and must be tensors, but for a number as the
 * second, and only their dtype decides the result's; alpha, if any, follows
 * them. */
uint8_t core__elementwise_fast_path(const core_operator *op)
{
    const core__operator_data *data = op->data;
    uint32_t inputs, fast, numbers = 0;

    if (op->family != CORE__FAMILY_ELEMENTWISE ||
        data->promotion == CORE__PROMOTE_OWN || data->keep_dtype ||
        data->infer || data->operands == 0 || data->operands > 2 ||
        (data->integral_alpha &&
         (data->integral_alpha != 2 || data->operands != 2)))
        return 0;
    inputs = (1u << data->operands) - 1;
    for (uint32_t k = 0; k < data->operands; k++)
        if (data->operand[k] != k)
            return 0;
    fast = data->operands;
    if (data->operands == 2 && op->numbers & ~op->absent_numbers & 2) {
        fast = 1 | CORE__FAST_PATH_SECOND;
        inputs = 1;
        numbers = 2;
    }
    if ((op->required & inputs) != inputs)
        return 0;
    if (data->integral_alpha)
        fast |= CORE__FAST_PATH_ALPHA;
    if (data->promotion == CORE__PROMOTE_BOOL)
        fast |= CORE__FAST_PATH_COMPARES;
    if (data->promotion == CORE__PROMOTE_FLOAT)
        fast |= CORE__FAST_PATH_FLOATS;
    if (data->integral_alpha)
        numbers |= 1u << data->integral_alpha;
    if (op->numbers & ~numbers)
        fast |= CORE__FAST_PATH_NUMBERS;
    return (uint8_t)fast;
}
