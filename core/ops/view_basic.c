/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Views that relabel, reorder or regroup dimensions. */

#include "ops/functions.h"
#include "ops/shape.h"
#include "tensor/layout.h"

#include <string.h>

static core_status view_of(core_tensor *self, uint32_t ndim,
                           const int64_t *sizes, const int64_t *strides,
                           int64_t offset, core_value *result)
{
    core_tensor *view;

    CORE_TRY(core__tensor_view(self, ndim, sizes, strides, offset, &view));
    core__result_tensor(result, view);
    return CORE_OK;
}

/* ------------------------------------------------------ view, reshape -- */

core_status core__shape_resolve(const core_operator *op,
                                const core_tensor *self, size_t count,
                                const int64_t *wanted, int64_t *out_sizes)
{
    int64_t numel = 1;
    int64_t open = -1;
    char have[256];
    char want[256];

    CORE_TRY(core__ndim_check(op, count));
    for (size_t i = 0; i < count; i++) {
        out_sizes[i] = wanted[i];
        if (wanted[i] == -1 && open >= 0)
            return core__op_error(
                CORE_ERROR_SHAPE, op,
                "the sizes are %s; at most one of them may be -1",
                core__sizes_text((uint32_t)count, wanted, want, sizeof want));
        if (wanted[i] == -1)
            open = (int64_t)i;
        else if (wanted[i] < 0 ||
                 __builtin_mul_overflow(numel, wanted[i], &numel))
            goto error;
    }
    if (open >= 0 && numel != 0 && self->numel % numel == 0)
        out_sizes[open] = self->numel / numel;
    else if (open >= 0 || numel != self->numel)
        goto error;
    return core__sizes_check(op, count, out_sizes);
error:
    return core__op_error(
        CORE_ERROR_SHAPE, op, "self has sizes %s, which cannot be viewed as %s",
        core__sizes_text(self->ndim, self->sizes, have, sizeof have),
        core__sizes_text((uint32_t)count, wanted, want, sizeof want));
}

CORE__OP(view)
{
    core_tensor *self = args[0].u.tensor;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[CORE_MAX_NDIM];
    size_t count;
    const int64_t *wanted = core__ints_of(&args[1], &count);
    char text[256];

    CORE_TRY(core__shape_resolve(call->op, self, count, wanted, sizes));
    if (!core__layout_view(self->ndim, self->sizes, self->strides,
                           (uint32_t)count, sizes, strides))
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "self cannot be viewed with sizes %s without a copy, because of "
            "its strides; use reshape",
            core__sizes_text((uint32_t)count, sizes, text, sizeof text));
    return view_of(self, (uint32_t)count, sizes, strides, self->offset,
                   &results[0]);
}

/* A view if possible, otherwise a view of a row-major copy. */
CORE__OP(reshape)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *copy = NULL;
    core_tensor *out = NULL;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[CORE_MAX_NDIM];
    size_t count;
    const int64_t *wanted = core__ints_of(&args[1], &count);

    CORE_TRY(core__shape_resolve(call->op, self, count, wanted, sizes));
    if (core__layout_view(self->ndim, self->sizes, self->strides,
                          (uint32_t)count, sizes, strides)) {
        CORE_TRY(core_view_sizes(self, sizes, count, &out));
    } else {
        core_status status;

        CORE_TRY(core_clone(self, CORE_FORMAT_CONTIGUOUS, &copy));
        status = core_view_sizes(copy, sizes, count, &out);
        core__tensor_release(copy);
        if (status != CORE_OK)
            return status;
    }
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

CORE__OP(unsafe_view)
{
    core_tensor *out;
    size_t count;
    const int64_t *sizes = core__ints_of(&args[1], &count);

    CORE_TRY(core_view_sizes(args[0].u.tensor, sizes, count, &out));
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

CORE__OP(view_as)
{
    core_tensor *other = args[1].u.tensor;
    core_tensor *out;

    CORE_TRY(
        core_view_sizes(args[0].u.tensor, other->sizes, other->ndim, &out));
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

CORE__OP(reshape_as)
{
    core_tensor *other = args[1].u.tensor;
    core_tensor *out;

    CORE_TRY(core_reshape(args[0].u.tensor, other->sizes, other->ndim, &out));
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

CORE__OP(flatten)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *out;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t numel = 1;
    uint32_t first;
    uint32_t last;
    uint32_t count = 0;

    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &first));
    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim, &last));
    if (first > last)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "start_dim is %u and end_dim %u; start_dim must not be greater",
            first, last);
    for (uint32_t i = 0; i < self->ndim; i++) {
        if (i < first || i > last) {
            sizes[count++] = self->sizes[i];
            continue;
        }
        numel *= self->sizes[i];
        if (i == last)
            sizes[count++] = numel;
    }
    if (self->ndim == 0)
        sizes[count++] = 1;
    CORE_TRY(core_reshape(self, sizes, count, &out));
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

/* --------------------------------------------------------------- order -- */

static core_status permuted(core_tensor *self, const uint32_t *order,
                            core_value *result)
{
    core_tensor *view;

    CORE_TRY(core__tensor_permuted(self, order, &view));
    core__result_tensor(result, view);
    return CORE_OK;
}

static core_status swapped(core_tensor *self, uint32_t a, uint32_t b,
                           core_value *result)
{
    core_tensor *view;

    CORE_TRY(core__tensor_transposed(self, a, b, &view));
    core__result_tensor(result, view);
    return CORE_OK;
}

CORE__OP(transpose)
{
    core_tensor *self = args[0].u.tensor;
    uint32_t a = (uint32_t)args[1].u.i, b = (uint32_t)args[2].u.i;

    if (core__unlikely((uint64_t)args[1].u.i >= self->ndim))
        CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &a));
    if (core__unlikely((uint64_t)args[2].u.i >= self->ndim))
        CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim, &b));
    return swapped(self, a, b, &results[0]);
}

CORE__OP(t)
{
    core_tensor *self = args[0].u.tensor;

    if (self->ndim > 2)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "self must have at most 2 dimensions, not %u; use transpose",
            self->ndim);
    return swapped(self, 0, self->ndim == 2, &results[0]);
}

CORE__OP(permute)
{
    core_tensor *self = args[0].u.tensor;
    uint32_t order[CORE_MAX_NDIM];
    uint32_t seen = 0;
    size_t count;
    const int64_t *dims = core__ints_of(&args[1], &count);

    if (count != self->ndim)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "dims has %zu entries for a self with %u dimensions", count,
            self->ndim);
    for (uint32_t i = 0; i < count; i++) {
        CORE_TRY(core__dim_wrap(call->op, dims[i], self->ndim, &order[i]));
        if (seen >> order[i] & 1)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                                  "dims has dimension %u twice", order[i]);
        seen |= 1u << order[i];
    }
    return permuted(self, order, &results[0]);
}

CORE__OP(movedim)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *out;
    int64_t order[CORE_MAX_NDIM];
    uint32_t from;
    uint32_t to;
    uint32_t next = 0;

    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &from));
    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim, &to));
    for (uint32_t i = 0; i < self->ndim; i++) {
        if (next == from)
            next++;
        order[i] = i == to ? from : next++;
    }
    CORE_TRY(core_permute(self, order, self->ndim, &out));
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

/* -------------------------------------------------- sizes 1, broadcast -- */

/* Removes the dimensions of the mask that have size 1. */
static core_status squeezed(core_tensor *self, uint32_t mask,
                            core_value *result)
{
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[CORE_MAX_NDIM];
    uint32_t ndim = 0;

    for (uint32_t i = 0; i < self->ndim; i++) {
        if (self->sizes[i] == 1 && mask >> i & 1)
            continue;
        sizes[ndim] = self->sizes[i];
        strides[ndim++] = self->strides[i];
    }
    return view_of(self, ndim, sizes, strides, self->offset, result);
}

CORE__OP(squeeze)
{
    return squeezed(args[0].u.tensor, UINT32_MAX, &results[0]);
}

CORE__OP(squeeze_dim)
{
    uint32_t dim;

    CORE_TRY(
        core__dim_wrap(call->op, args[1].u.i, args[0].u.tensor->ndim, &dim));
    return squeezed(args[0].u.tensor, 1u << dim, &results[0]);
}

CORE__OP(squeeze_dims)
{
    core_tensor *self = args[0].u.tensor;
    uint32_t mask;

    CORE_TRY(core__dims_mask(call->op, &args[1], self->ndim, &mask));
    return squeezed(self, mask, &results[0]);
}

CORE__OP(unsqueeze)
{
    core_tensor *self = args[0].u.tensor;
    int64_t sizes[CORE_MAX_NDIM + 1];
    int64_t strides[CORE_MAX_NDIM + 1];
    uint32_t dim;
    uint32_t ndim = self->ndim + 1;

    CORE_TRY(core__ndim_check(call->op, ndim));
    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, ndim, &dim));
    for (uint32_t i = 0, from = 0; i < ndim; i++) {
        if (i == dim) {
            sizes[i] = 1;
            strides[i] =
                from < self->ndim ? self->sizes[from] * self->strides[from] : 1;
            continue;
        }
        sizes[i] = self->sizes[from];
        strides[i] = self->strides[from++];
    }
    return view_of(self, ndim, sizes, strides, self->offset, &results[0]);
}

CORE__OP(expand)
{
    core_tensor *self = args[0].u.tensor;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[CORE_MAX_NDIM];
    size_t count;
    const int64_t *wanted = core__ints_of(&args[1], &count);
    uint32_t added;
    char have[256];
    char want[256];

    CORE_TRY(core__ndim_check(call->op, count));
    if (count < self->ndim)
        goto error;
    added = (uint32_t)count - self->ndim;
    for (uint32_t i = (uint32_t)count; i-- > 0;) {
        int64_t size = i < added ? 1 : self->sizes[i - added];

        sizes[i] = wanted[i] == -1 && i >= added ? size : wanted[i];
        if (sizes[i] < 0 || (sizes[i] != size && size != 1))
            goto error;
        strides[i] = i >= added ? self->strides[i - added] : 1;
        if (i < added && i + 1 < count &&
            __builtin_mul_overflow(sizes[i + 1], strides[i + 1], &strides[i]))
            strides[i] = 0;
        if (size == 1 && sizes[i] != 1)
            strides[i] = 0;
    }
    CORE_TRY(core__sizes_check(call->op, count, sizes));
    return view_of(self, (uint32_t)count, sizes, strides, self->offset,
                   &results[0]);
error:
    return core__op_error(
        CORE_ERROR_SHAPE, call->op,
        "self has sizes %s, which cannot be expanded to %s",
        core__sizes_text(self->ndim, self->sizes, have, sizeof have),
        core__sizes_text((uint32_t)count, wanted, want, sizeof want));
}

CORE__OP(expand_as)
{
    core_tensor *other = args[1].u.tensor;
    core_tensor *out;

    CORE_TRY(
        core_expand(args[0].u.tensor, other->sizes, other->ndim, false, &out));
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

/* -------------------------------------------------------------- identity -- */

CORE__OP(alias)
{
    core_tensor *self = args[0].u.tensor;

    return view_of(self, self->ndim, self->sizes, self->strides, self->offset,
                   &results[0]);
}

CORE__OP(detach)
{
    core_tensor *out;

    CORE_TRY(core__tensor_shallow_copy(args[0].u.tensor, &out));
    out->keys &= ~CORE__KEYS_REQUIRES_GRAD;
    core__result_tensor(&results[0], out);
    return CORE_OK;
}
