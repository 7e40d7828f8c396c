/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fast path of operators that create a tensor without computing: views of
 * small ordinary tensors, and empty ones from cached memory.
 *
 * Such a call does little more than fill a header of twenty fields.  The cases
 * in which the value of every field is known in advance are handled here;
 * everything else, including errors, continues in the operator's function with
 * one jump, as nothing has been done yet.  The fast path calls no functions, so
 * that no registers are saved. */

#if defined(__GNUC__) && !defined(__clang__)
/* Store pairs of fields separately instead of assembling them in a vector
 * register first. */
#pragma GCC optimize("no-tree-slp-vectorize")
#endif

#include "base/memory.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "ops/functions.h"
#include "ops/shape.h"
#include "tensor/tensor_cache.h"

#include <string.h>

/* --------------------------------------------------------------- views -- */

/* Flags for which a view needs more than the fast path: where it was created,
 * and what autograd knows about it (core__tensor_view). */
enum {
    PECULIAR = CORE__TENSOR_INFERENCE | CORE__TENSOR_READ_ONLY |
               CORE__TENSOR_VIEW_UNKNOWN | CORE__TENSOR_VIEW_FUNCTION |
               CORE__TENSOR_TRACED
};

/* Whether the thread's included and excluded keys are the default: not in
 * inference mode, not below the autograd layer, not in an autocast region. */
static inline bool is_plain(const core__thread *self, const core_tensor *source)
{
    return self && self->state == CORE__THREAD_INCLUDED &&
           !(source->flags & PECULIAR) && source->storage;
}

/* A view of such a tensor whose numel, offset, sizes and strides are still to
 * be set; layout: its flags CONTIGUOUS and DENSE.  NULL: no cached header. */
static inline __attribute__((always_inline)) core_tensor *view_of(
    core__thread *self, core_tensor *source, uint32_t layout)
{
    core_tensor *view = core__small_take(self, sizeof *view);
    core_tensor *base = source->base;
    core_device *device = source->device;
    core_storage *storage = source->storage;

    if (core__unlikely(!view))
        return NULL;
    atomic_init(&view->references, 1);
    view->kind = source->kind;
    view->flags =
        (uint16_t)(layout | (self->no_grad ? CORE__TENSOR_VIEW_NO_GRAD : 0u));
    view->keys = device->keys | CORE__KEYS_TENSOR | CORE__KEYS_VIEW;
    view->storage = storage;
    core__storage_retain(storage);
    view->device = device;
    view->autograd = NULL;
    view->sizes = view->inline_dims;
    if (!base)
        base = source;
    view->base = base;
    core__tensor_retain(base);
    return view;
}

static inline core_status return_view(core_value *results, core_tensor *tensor)
{
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
    return CORE_OK;
}

/* Whether a and b are the two dimensions of a matrix, counted from either end,
 * as 2 and 3 or 0 and 1: they differ if one is odd and the other even. */
static inline bool are_both(int64_t a, int64_t b)
{
    uint64_t from_two = (uint64_t)a + 2, other = (uint64_t)b + 2;

    return (from_two | other) < 4 && (from_two ^ other) & 1;
}

/* For matrices with several rows and columns. */
static core_status transpose(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    core__thread *self = core__self_pointer;
    core_tensor *source = args[0].u.tensor, *view;
    const int64_t *from = source->inline_dims;
    uint32_t layout;

    if (core__unlikely(!is_plain(self, source) || source->ndim != 2 ||
                       !are_both(args[1].u.i, args[2].u.i) || from[0] < 2 ||
                       from[1] < 2))
        goto otherwise;
    /* Dense does not depend on the order of dimensions. */
    layout = source->flags & CORE__TENSOR_DENSE;
    if (core__unlikely(from[2] == 1 && from[3] == from[0]))
        layout |= CORE__TENSOR_CONTIGUOUS;
    view = view_of(self, source, layout);
    if (core__unlikely(!view))
        goto otherwise;
    view->numel = source->numel;
    view->offset = source->offset;
    view->strides = view->inline_dims + 2;
    view->inline_dims[0] = from[1];
    view->inline_dims[1] = from[0];
    view->inline_dims[2] = from[3];
    view->inline_dims[3] = from[2];
    return return_view(results, view);
otherwise:
    return core__function_run(call, args, nargs, results, nresults);
}

/* Adjacent rows of a row-major tensor with several rows: the result is
 * row-major with the same stride.  NULL: this does not apply, or the rows are
 * out of range. */
static inline __attribute__((always_inline)) core_tensor *rows_of(
    core__thread *self, core_tensor *source, int64_t first, int64_t count)
{
    enum { LAYOUT = CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE };
    const int64_t *from = source->inline_dims;
    uint64_t ndim = source->ndim;
    core_tensor *view;
    int64_t stride;

    if (core__unlikely(!(source->flags & CORE__TENSOR_CONTIGUOUS) ||
                       ndim - 1 >= CORE__TENSOR_INLINE_NDIM ||
                       source->numel == 0 || from[0] < 2 ||
                       (uint64_t)first > (uint64_t)from[0] ||
                       (uint64_t)count > (uint64_t)(from[0] - first)))
        return NULL;
    view = view_of(self, source, LAYOUT);
    if (core__unlikely(!view))
        return NULL;
    stride = from[ndim];
    view->numel = count * stride;
    view->offset = source->offset + first * stride;
    view->strides = view->inline_dims + ndim;
    view->inline_dims[0] = count;
    /* Sizes and the strides that follow them; without a check for more than two
     * dimensions, as all tensors have space for them. */
    memcpy(&view->inline_dims[1], &from[1], 3 * sizeof *from);
    for (uint64_t i = 2; core__unlikely(i < ndim); i++)
        memcpy(&view->inline_dims[2 * i], &from[2 * i], 2 * sizeof *from);
    return view;
}

static core_status slice(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core__thread *self = core__self_pointer;
    core_tensor *source = args[0].u.tensor, *view = NULL;

    if (core__likely(is_plain(self, source) && args[1].u.i == 0 &&
                     args[2].tag == CORE_VALUE_INT &&
                     args[3].tag == CORE_VALUE_INT &&
                     args[4].tag == CORE_VALUE_INT && args[4].u.i == 1 &&
                     args[3].u.i >= args[2].u.i))
        view = rows_of(self, source, args[2].u.i, args[3].u.i - args[2].u.i);
    return core__likely(view != NULL)
               ? return_view(results, view)
               : core__function_run(call, args, nargs, results, nresults);
}

/* Whether a call of op in this state would be dispatched directly to this
 * function, with no layer in between. */
static inline bool dispatches_here(const core_operator *op, uint64_t state,
                                   core_function function)
{
    const core__shortcut *shortcut;

    if (core__unlikely(__atomic_load_n(&op->key_path, __ATOMIC_ACQUIRE) !=
                       CORE__KEY_PATH_ONE))
        return false;
    shortcut = atomic_load_explicit(&op->shortcut, memory_order_acquire);
    return shortcut->state == state && shortcut->function == function;
}

/* A call of slice, computed here if it would be dispatched here next. */
static core_status narrow(core_call *call, const core_value *args,
                          uint32_t nargs, core_value *results,
                          uint32_t nresults)
{
    core__thread *self = core__self_pointer;
    core_tensor *source = args[0].u.tensor, *view = NULL;

    if (core__likely(is_plain(self, source) && args[1].u.i == 0 &&
                     dispatches_here(&core__operators[CORE_OP_SLICE_TENSOR],
                                     self->state | source->keys, slice)))
        view = rows_of(self, source, args[2].u.i, args[3].u.i);
    return core__likely(view != NULL)
               ? return_view(results, view)
               : core__function_run(call, args, nargs, results, nresults);
}

/* --------------------------------------------------------------- empty -- */

/* Whether the arguments are only sizes, a dtype and a device. */
static inline bool has_default_options(const core_value *args, core_dtype dtype)
{
    return args[0].tag == CORE_VALUE_INT_LIST &&
           args[2].tag == CORE_VALUE_NONE && args[5].tag == CORE_VALUE_NONE &&
           dtype != CORE_DTYPE_NONE && core__dtype_is_known(dtype);
}

static inline core_device *place_of(const core__thread *self,
                                    const core_value *place)
{
    return place->tag == CORE_VALUE_DEVICE ? place->u.device
                                           : core__device_current_known(self);
}

/* Whether core__sizes_check accepts them. */
static inline bool are_sizes(uint32_t ndim, const int64_t *sizes)
{
    int64_t numel = 1;

    for (uint32_t i = 0; i < ndim; i++)
        if (sizes[i] < 0 ||
            __builtin_mul_overflow(numel, sizes[i] > 1 ? sizes[i] : 1,
                                   &numel) ||
            numel >= CORE__NUMEL_MAX)
            return false;
    return ndim <= CORE_MAX_NDIM;
}

/* Any number of dimensions and bytes. */
static core_status __attribute__((noinline))
empty_of_any(core_call *call, const core_value *args, uint32_t nargs,
             core_value *results, uint32_t nresults)
{
    core__thread *self = core__thread_self();
    core_dtype dtype = core__dtype_of(&args[1]);
    core_device *device = place_of(self, &args[3]);
    core_tensor *out;
    core_status status;

    if (core__unlikely(!device || !has_default_options(args, dtype) ||
                       !are_sizes(args[0].count, args[0].u.ints)))
        return core__function_run(call, args, nargs, results, nresults);
    status = core__tensor_new(device, dtype, args[0].count, args[0].u.ints,
                              NULL, &out);
    if (core__likely(status == CORE_OK))
        return return_view(results, out);
    if (status != CORE_ERROR_OUT_OF_MEMORY)
        core__op_prefix_name(call->op);
    core__op_describe_arguments(call->op, status, args, nargs);
    return core__op_check_allocation(call->op, device, status);
}

/* One dimension, and a size that is cached: without a loop. */
static core_status empty(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core__thread *self = core__self_pointer;
    core_dtype dtype = core__dtype_of(&args[1]);
    core_tensor *out = NULL;
    core_device *device;

    if (core__likely(self && has_default_options(args, dtype) &&
                     args[0].count == 1)) {
        device = place_of(self, &args[3]);
        if (core__likely(device != NULL))
            out = core__tensor_cache_take_new(self, device, dtype, 1,
                                              args[0].u.ints);
    }
    return core__likely(out != NULL)
               ? return_view(results, out)
               : empty_of_any(call, args, nargs, results, nresults);
}

core_function core__function_fast_path(const core_operator *op)
{
    switch (op->id) {
    case CORE_OP_TRANSPOSE_INT:
        return transpose;
    case CORE_OP_SLICE_TENSOR:
        return slice;
    case CORE_OP_NARROW:
        return narrow;
    case CORE_OP_EMPTY:
        return empty;
    default:
        return core__function_run;
    }
}
