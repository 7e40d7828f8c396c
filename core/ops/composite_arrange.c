/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that arrange dimensions and lists of tensors: unflatten, movedim,
 * meshgrid, hstack and its like, tile, diff. */

#include "base/memory.h"
#include "ops/expression.h"
#include "ops/shape.h"

#include <string.h>

/* ------------------------------------------------------------- dimensions -- */

/* Whether the sizes, of which one may be -1, multiply to size; *out_open is what
 * -1 stands for. */
static bool multiply_to(int64_t size, const int64_t *sizes, size_t count,
                        int64_t *out_open)
{
    int64_t product = 1;
    bool open = false;

    for (size_t i = 0; i < count; i++) {
        if (sizes[i] == -1 && !open)
            open = true;
        else if (sizes[i] < 0 ||
                 __builtin_mul_overflow(product, sizes[i], &product))
            return false;
    }
    *out_open = product > 0 ? size / product : 0;
    return open ? product > 0 && size % product == 0 : product == size;
}

/* unflatten(self, dim, sizes): dim becomes dimensions of these sizes. */
CORE__COMPOSITE(unflatten)
{
    core_tensor *self = args[0].u.tensor;
    int64_t sizes[CORE_MAX_NDIM], size, open;
    size_t count, after;
    const int64_t *parts = core__ints_of(&args[2], &count);
    uint32_t dim;
    char text[256];

    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &dim));
    CORE_TRY(core__ndim_check(call->op, self->ndim + (uint64_t)count -
                                            (self->ndim && count)));
    size = self->ndim ? self->sizes[dim] : 1;
    if (count == 0 || self->ndim == 0 ||
        !multiply_to(size, parts, count, &open))
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "sizes %s do not multiply to %lld, the size of dimension %u of a "
            "self with %u dimensions",
            core__sizes_text((uint32_t)count, parts, text, sizeof text),
            (long long)size, dim, self->ndim);
    after = self->ndim - dim - 1;
    memcpy(sizes, self->sizes, dim * sizeof *sizes);
    for (size_t i = 0; i < count; i++)
        sizes[dim + i] = parts[i] == -1 ? open : parts[i];
    memcpy(sizes + dim + count, self->sizes + dim + 1, after * sizeof *sizes);
    return core__scope_result(
        scope,
        CORE__DO(scope, core_view_sizes, self, sizes, dim + count + after),
        &results[0]);
}

/* A view, or a copy of a tensor that is not row-major. */
CORE__COMPOSITE(ravel)
{
    core_tensor *x = CORE__DO(scope, core_contiguous, args[0].u.tensor,
                              CORE_FORMAT_CONTIGUOUS);

    return core__scope_result(
        scope, core__x_reshape(scope, x, (const int64_t[]){-1}, 1),
        &results[0]);
}

/* swapaxes and swapdims(self, dim0, dim1) */
CORE__COMPOSITE(swapaxes)
{
    return core__scope_result(
        scope,
        core__x_transpose(scope, args[0].u.tensor, args[1].u.i, args[2].u.i),
        &results[0]);
}

CORE__COMPOSITE(moveaxis)
{
    return core__scope_result(scope,
                              CORE__DO(scope, core_movedim, args[0].u.tensor,
                                       args[1].u.i, args[2].u.i),
                              &results[0]);
}

/* movedim.intlist and moveaxis.intlist(self, source, destination): the other
 * dimensions keep their order. */
CORE__COMPOSITE(movedim_intlist)
{
    core_tensor *self = args[0].u.tensor;
    int64_t order[CORE_MAX_NDIM];
    size_t count, other;
    const int64_t *from = core__ints_of(&args[1], &count);
    const int64_t *to = core__ints_of(&args[2], &other);
    uint32_t moved, taken, source, place, next = 0;

    CORE_TRY(core__dims_mask(call->op, &args[1], self->ndim, &moved));
    CORE_TRY(core__dims_mask(call->op, &args[2], self->ndim, &taken));
    if (count != other)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "source has %zu dimensions and destination %zu; "
                              "both must have the same number",
                              count, other);
    for (size_t i = 0; i < count; i++) {
        (void)core__dim_wrap(call->op, from[i], self->ndim, &source);
        (void)core__dim_wrap(call->op, to[i], self->ndim, &place);
        order[place] = source;
    }
    for (place = 0; place < self->ndim; place++) {
        while (next < self->ndim && moved >> next & 1)
            next++;
        if (!(taken >> place & 1))
            order[place] = next++;
    }
    return core__scope_result(
        scope, CORE__DO(scope, core_permute, self, order, self->ndim),
        &results[0]);
}

CORE__COMPOSITE(broadcast_to)
{
    size_t count;
    const int64_t *sizes = core__ints_of(&args[1], &count);

    return core__scope_result(
        scope,
        CORE__DO(scope, core_expand, args[0].u.tensor, sizes, count, false),
        &results[0]);
}

/* x with at least n dimensions: [a] is [1, a], and [a, b] is [a, b, 1]. */
static core_tensor *at_least(core__scope *scope, core_tensor *x, uint32_t n)
{
    uint32_t ndim = x->ndim;

    if (ndim == 0)
        x = core__x_unsqueeze(scope, x, 0);
    if (ndim < 2 && n >= 2)
        x = core__x_unsqueeze(scope, x, 0);
    if (ndim < 3 && n >= 3)
        x = core__x_unsqueeze(scope, x, -1);
    return x;
}

/* atleast_1d, atleast_2d and atleast_3d */
CORE__COMPOSITE(at_least)
{
    uint32_t id = call->op->id;

    return core__scope_result(scope,
                              at_least(scope, args[0].u.tensor,
                                       id == CORE_OP_ATLEAST_1D   ? 1
                                       : id == CORE_OP_ATLEAST_2D ? 2
                                                                  : 3),
                              &results[0]);
}

/* tile(self, dims): repeat, with ones before dims for the other dimensions */
CORE__COMPOSITE(tile)
{
    core_tensor *self = args[0].u.tensor;
    int64_t repeats[CORE_MAX_NDIM];
    size_t count, missing = 0;
    const int64_t *dims = core__ints_of(&args[1], &count);

    CORE_TRY(core__ndim_check(call->op, count));
    if (count < self->ndim)
        missing = self->ndim - count;
    for (size_t i = 0; i < missing; i++)
        repeats[i] = 1;
    memcpy(repeats + missing, dims, count * sizeof *repeats);
    return core__scope_result(
        scope, CORE__DO(scope, core_repeat, self, repeats, missing + count),
        &results[0]);
}

/* ------------------------------------------------------------------ lists -- */

/* A list of tensors, made of each tensor of a list. */
static core_status each(const core_operator *op, const core_value *list,
                        core_status (*make)(core_tensor *x, size_t i,
                                            const void *context,
                                            core_tensor **out),
                        const void *context, core_tensor ***out)
{
    core_status status = CORE_OK;
    size_t count = list->count;
    core_tensor **made;

    *out = NULL;
    for (size_t i = 0; i < count; i++)
        if (!list->u.tensors[i])
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                  "tensor %zu of the list is missing", i);
    made = core__alloc_zero((count + 1) * sizeof *made);
    if (!made)
        return core__error_memory(count * sizeof *made);
    for (size_t i = 0; status == CORE_OK && i < count; i++)
        status = make(list->u.tensors[i], i, context, &made[i]);
    if (status == CORE_OK)
        *out = made;
    else
        core_tensors_release(made, count);
    return status;
}

static core_value list_value(core_tensor **tensors, uint32_t count)
{
    return (core_value){CORE_VALUE_TENSOR_LIST, count, {.tensors = tensors}};
}

static core_status raised(core_tensor *x, size_t i, const void *context,
                          core_tensor **out)
{
    core__scope scope;

    (void)i;
    core__scope_begin(&scope);
    x = at_least(&scope, x, *(const uint32_t *)context);
    return core__scope_finish(&scope, x, out);
}

/* Columns of what has at most one dimension. */
static core_status column(core_tensor *x, size_t i, const void *context,
                          core_tensor **out)
{
    (void)i;
    (void)context;
    return x->ndim < 2 ? core_reshape(x, (const int64_t[]){x->numel, 1}, 2, out)
                       : core_view_sizes(x, x->sizes, x->ndim, out);
}

/* column_stack, hstack, vstack and dstack: the tensors side by side, as columns,
 * or with at least 1, 2 or 3 dimensions */
CORE__COMPOSITE(stacked)
{
    uint32_t id = call->op->id, count = args[0].count;
    uint32_t n = id == CORE_OP_HSTACK ? 1 : id == CORE_OP_VSTACK ? 2 : 3;
    int64_t dim = n == 2 ? 0 : n == 3 ? 2 : 1;
    core_tensor **parts;
    core_tensor *x;

    if (id == CORE_OP_COLUMN_STACK)
        dim = 1;
    CORE_TRY(each(call->op, &args[0],
                  id == CORE_OP_COLUMN_STACK ? column : raised, &n, &parts));
    if (id == CORE_OP_HSTACK && parts[0]->ndim == 1)
        dim = 0;
    x = CORE__DO(scope, core_cat, parts, count, dim);
    core_tensors_release(parts, count);
    return core__scope_result(scope, x, &results[0]);
}

typedef struct shape {
    uint32_t ndim;
    int64_t sizes[CORE_MAX_NDIM];
    bool swapped; /* meshgrid with "xy" */
} shape;

static core_status expanded(core_tensor *x, size_t i, const void *context,
                            core_tensor **out)
{
    const shape *to = context;

    (void)i;
    return core_expand(x, to->sizes, to->ndim, false, out);
}

CORE__COMPOSITE(broadcast_tensors)
{
    shape to = {.ndim = 0};
    core_tensor **parts;

    for (uint32_t i = 0; i < args[0].count; i++) {
        const core_tensor *x = args[0].u.tensors[i];
        const shape before = to;

        if (x)
            CORE_TRY(core__sizes_broadcast(call->op, before.ndim, before.sizes,
                                           x->ndim, x->sizes, &to.ndim,
                                           to.sizes));
    }
    CORE_TRY(each(call->op, &args[0], expanded, &to, &parts));
    results[0] = list_value(parts, args[0].count);
    return CORE_OK;
}

/* x along its dimension of a grid. */
static core_status along(core_tensor *x, size_t i, const void *context,
                         core_tensor **out)
{
    const shape *grid = context;
    int64_t sizes[CORE_MAX_NDIM];
    core__scope scope;

    for (uint32_t k = 0; k < grid->ndim; k++)
        sizes[k] = 1;
    if (i < 2 && grid->swapped)
        i = 1 - i;
    sizes[i] = x->numel;
    core__scope_begin(&scope);
    x = core__x_reshape(&scope, x, sizes, grid->ndim);
    x = CORE__DO(&scope, core_expand, x, grid->sizes, grid->ndim, false);
    return core__scope_finish(&scope, x, out);
}

/* meshgrid.indexing(tensors, *, indexing): "ij", or "xy", which swaps the first
 * two dimensions */
CORE__COMPOSITE(meshgrid)
{
    const char *indexing = args[1].u.string;
    uint32_t count = args[0].count;
    shape grid = {.ndim = count};
    core_tensor **parts;

    CORE_TRY(core__ndim_check(call->op, count));
    if (strcmp(indexing, "ij") != 0 && strcmp(indexing, "xy") != 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "indexing is \"%.20s\"; it must be \"ij\" or "
                              "\"xy\"",
                              indexing);
    grid.swapped = count > 1 && indexing[0] == 'x';
    for (uint32_t i = 0; i < count; i++) {
        const core_tensor *x = args[0].u.tensors[i],
                          *first = *args[0].u.tensors;

        if (x && (x->ndim > 1 || (first && x->dtype != first->dtype)))
            return core__op_error(
                CORE_ERROR_SHAPE, call->op,
                "tensor %u of the list has %u dimensions and dtype %s; all "
                "must have at most 1, and one dtype",
                i, x->ndim, core__dtype_name(x->dtype));
        grid.sizes[grid.swapped && i < 2 ? 1 - i : i] = x ? x->numel : 0;
    }
    CORE_TRY(each(call->op, &args[0], along, &grid, &parts));
    results[0] = list_value(parts, count);
    return CORE_OK;
}

/* ------------------------------------------------------------ differences -- */

/* x without its first elements along dim, minus x without its last ones. */
static core_status differences(core_tensor *x, int64_t dim, core_tensor **out)
{
    int64_t length = core_tensor_size(x, dim) - 1;
    core__scope scope;
    core_tensor *a, *b;

    core__scope_begin(&scope);
    a = CORE__DO(&scope, core_narrow, x, dim, 1, length);
    b = CORE__DO(&scope, core_narrow, x, dim, 0, length);
    x = x->dtype == CORE_BOOL ? CORE__DO(&scope, core_logical_xor, a, b)
                              : core__x_sub(&scope, a, b);
    return core__scope_finish(&scope, x, out);
}

/* The same n times, or until nothing is left. */
static core_status differences_again(core_tensor *x, int64_t n, int64_t dim,
                                     core_tensor **out)
{
    core_status status = CORE_OK;
    core_tensor *next;

    x = core_tensor_retain(x);
    while (status == CORE_OK && n-- > 0 && core_tensor_size(x, dim) > 0) {
        status = differences(x, dim, &next);
        core__tensor_release(x);
        x = next;
    }
    *out = x;
    return status;
}

/* diff(self, n, dim, prepend, append) */
CORE__COMPOSITE(diff)
{
    core_tensor *ends[3] = {core__tensor_of(&args[3]), args[0].u.tensor,
                            core__tensor_of(&args[4])};
    core_tensor *x = ends[1], *parts[3];
    int64_t n = core__arg_int(args, 1, 1), dim = core__arg_int(args, 2, -1);
    size_t count = 0;
    uint32_t unused;

    if (x->ndim == 0 || n < 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "self has %u dimensions and n is %lld; self must "
                              "have at least 1, and n be 0 or more",
                              x->ndim, (long long)n);
    CORE_TRY(core__dim_wrap(call->op, dim, x->ndim, &unused));
    for (int i = 0; i < 3; i++)
        if (ends[i] && (i == 1 || n > 0)) {
            if (ends[i]->ndim != x->ndim)
                return core__op_error(CORE_ERROR_SHAPE, call->op,
                                      "%s has %u dimensions and self %u",
                                      i ? "append" : "prepend", ends[i]->ndim,
                                      x->ndim);
            parts[count++] = ends[i];
        }
    if (count > 1 || n == 0)
        x = CORE__DO(scope, core_cat, parts, count, dim);
    x = CORE__DO(scope, differences_again, x, n, dim);
    return core__scope_result(scope, x, &results[0]);
}
