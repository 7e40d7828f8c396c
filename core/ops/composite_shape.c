/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that arrange elements: stack, repeat, pixel_shuffle, and those that
 * write a view into a copy. */

#include "base/memory.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "tensor/layout.h"
#include "ops/shape.h"

#include <string.h>

/* The number of tensors that fit a kernel's call; longer lists are concatenated
 * in groups, recursively. */
enum { CAT_MOST = 24 };

static core_status cat_many(core_tensor *const *tensors, size_t count,
                            int64_t dim, core_tensor **out)
{
    size_t groups = (count + CAT_MOST - 1) / CAT_MOST;
    core_tensor **parts;
    core_status status = CORE_OK;

    *out = NULL;
    if (count <= CAT_MOST)
        return core_cat_few(tensors, count, dim, out);
    parts = core__alloc_zero(groups * sizeof *parts);
    if (!parts)
        return core__error_memory(groups * sizeof *parts);
    for (size_t i = 0; status == CORE_OK && i < groups; i++) {
        size_t first = i * CAT_MOST;
        size_t length = count - first < CAT_MOST ? count - first : CAT_MOST;

        status = core_cat_few(tensors + first, length, dim, &parts[i]);
    }
    if (status == CORE_OK)
        status = cat_many(parts, groups, dim, out);
    core_tensors_release(parts, groups);
    return status;
}

CORE__OP(cat)
{
    core_tensor *out = NULL;
    core_status status =
        cat_many(args[0].u.tensors, args[0].count, args[1].u.i, &out);

    if (status != CORE_OK)
        core__op_prefix_name(call->op);
    else
        core__result_tensor(&results[0], out);
    return status;
}

CORE__OP(stack)
{
    size_t count = args[0].count;
    core_tensor *const *tensors = args[0].u.tensors;
    core_tensor **parts;
    core_tensor *out = NULL;
    core_status status = CORE_OK;
    uint32_t dim;

    if (count == 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "the list of tensors is empty");
    for (size_t i = 0; i < count; i++)
        if (!tensors[i])
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                                  "tensor %zu of the list is missing", i);
    for (size_t i = 1; i < count; i++) {
        char have[256];
        char want[256];

        if (tensors[i]->ndim == tensors[0]->ndim &&
            memcmp(tensors[i]->sizes, tensors[0]->sizes,
                   tensors[0]->ndim * sizeof(int64_t)) == 0)
            continue;
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "tensor %zu has sizes %s, tensor 0 has %s", i,
            core__sizes_text(tensors[i]->ndim, tensors[i]->sizes, have,
                             sizeof have),
            core__sizes_text(tensors[0]->ndim, tensors[0]->sizes, want,
                             sizeof want));
    }
    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, tensors[0]->ndim + 1, &dim));
    parts = core__alloc_zero(count * sizeof *parts);
    if (!parts)
        status = core__error_memory(count * sizeof *parts);
    for (size_t i = 0; status == CORE_OK && i < count; i++)
        status = core_unsqueeze(tensors[i], dim, &parts[i]);
    if (status == CORE_OK)
        status = core_cat(parts, count, dim, &out);
    if (parts)
        core_tensors_release(parts, count);
    if (status == CORE_OK)
        core__result_tensor(&results[0], out);
    else
        core__op_prefix_name(call->op);
    return status;
}

/* Pads x along dim to a multiple of chunks and splits that dimension into
 * chunks; the dimensions after it are flattened. */
static core_status chunked(const core_operator *op, core_tensor *x,
                           uint32_t dim, int64_t chunks, core_tensor **out)
{
    int64_t pad[2 * CORE_MAX_NDIM] = {0};
    int64_t sizes[CORE_MAX_NDIM + 1];
    int64_t inner = 1;
    int64_t length = x->sizes[dim] / chunks + (x->sizes[dim] % chunks != 0);
    uint32_t behind = x->ndim - 1 - dim;
    core__scope scope;

    core__scope_begin(&scope);
    for (uint32_t i = dim + 1; i < x->ndim; i++)
        inner *= x->sizes[i];
    memcpy(sizes, x->sizes, dim * sizeof *sizes);
    sizes[dim] = chunks;
    sizes[dim + 1] = length * inner;
    CORE_TRY(core__sizes_check(op, dim + 2, sizes));
    pad[2 * behind + 1] = length * chunks - x->sizes[dim];
    if (pad[2 * behind + 1] > 0)
        x = CORE__DO(&scope, core_constant_pad_nd, x, pad, 2 * (behind + 1),
                     core_int(0));
    return core__scope_finish(&scope,
                              core__x_reshape(&scope, x, sizes, dim + 2), out);
}

/* _chunk_cat(tensors, dim, num_chunks): the chunks with the same number from
 * all tensors, side by side */
CORE__OP(chunk_cat)
{
    size_t count = args[0].count;
    core_tensor *const *tensors = args[0].u.tensors;
    int64_t chunks = args[2].u.i;
    core_tensor **parts;
    core_tensor *out = NULL;
    core_status status = CORE_OK;
    uint32_t dim;

    if (count == 0 || !tensors[0])
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "the list of tensors is empty");
    if (chunks <= 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "num_chunks is %lld; it must be above 0",
                              (long long)chunks);
    CORE_TRY(core__size_operand_check(call->op, "num_chunks", chunks));
    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, tensors[0]->ndim, &dim));
    for (size_t i = 0; i < count; i++)
        if (!tensors[i] || tensors[i]->ndim <= dim || tensors[i]->numel == 0)
            return core__op_error(CORE_ERROR_SHAPE, call->op,
                                  "tensor %zu of the list is missing, empty or "
                                  "has no dimension %u",
                                  i, dim);
    parts = core__alloc_zero(count * sizeof *parts);
    if (!parts)
        return core__error_memory(count * sizeof *parts);
    for (size_t i = 0; status == CORE_OK && i < count; i++)
        status = chunked(call->op, tensors[i], dim, chunks, &parts[i]);
    if (status == CORE_OK)
        status = core_cat(parts, count, (int64_t)dim + 1, &out);
    core_tensors_release(parts, count);
    if (status == CORE_OK)
        core__result_tensor(&results[0], out);
    else
        core__op_prefix_name(call->op);
    return status;
}

/* [a, b] repeated [r, s] times is [1, a, 1, b] expanded to [r, a, s, b]. */
CORE__COMPOSITE(repeat)
{
    core_tensor *self = args[0].u.tensor;
    int64_t apart[2 * CORE_MAX_NDIM];
    int64_t wide[2 * CORE_MAX_NDIM];
    int64_t sizes[CORE_MAX_NDIM];
    size_t count;
    const int64_t *repeats = core__ints_of(&args[1], &count);
    uint32_t added;
    uint32_t n = 0;
    core_tensor *x;

    if (count < self->ndim)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "repeats has %zu entries, fewer than the %u dimensions of self",
            count, self->ndim);
    CORE_TRY(core__ndim_check(call->op, count));
    added = (uint32_t)count - self->ndim;
    for (uint32_t i = 0; i < count; i++) {
        int64_t size = i < added ? 1 : self->sizes[i - added];

        if (repeats[i] < 0)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                                  "a dimension cannot be repeated %lld times",
                                  (long long)repeats[i]);
        if (__builtin_mul_overflow(size, repeats[i], &sizes[i]))
            return core__op_error(
                CORE_ERROR_SHAPE, call->op,
                "a dimension of size %lld repeated %lld times is too large",
                (long long)size, (long long)repeats[i]);
        if (repeats[i] != 1) {
            apart[n] = 1;
            wide[n++] = repeats[i];
        }
        apart[n] = size;
        wide[n++] = size;
    }
    CORE_TRY(core__ndim_check(call->op, n));
    CORE_TRY(core__sizes_check(call->op, count, sizes));
    x = core__x_reshape(scope, self, apart, n);
    x = CORE__DO(scope, core_expand, x, wide, n, false);
    x = CORE__DO(scope, core_clone, x, CORE_FORMAT_CONTIGUOUS);
    return core__scope_result(scope, core__x_reshape(scope, x, sizes, count),
                              &results[0]);
}

static core_status shuffle_check(const core_operator *op,
                                 const core_tensor *self, int64_t factor)
{
    if (self->ndim < 3 || factor <= 0 || factor > INT32_MAX)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "self has %u dimensions and the factor is %lld; self must have at "
            "least 3 and the factor be from 1 to 2^31 - 1",
            self->ndim, (long long)factor);
    return CORE_OK;
}

/* Reshapes, permutes and reshapes again around the last three dimensions. */
static core_status rearranged(core__scope *scope, core_tensor *self,
                              const int64_t *inner, size_t inner_count,
                              const int64_t *order, const int64_t *last,
                              core_value *result)
{
    int64_t sizes[CORE_MAX_NDIM + 4];
    int64_t dims[CORE_MAX_NDIM + 4];
    uint32_t lead = self->ndim - 3;
    core_tensor *x;

    memcpy(sizes, self->sizes, lead * sizeof *sizes);
    memcpy(sizes + lead, inner, inner_count * sizeof *sizes);
    for (uint32_t i = 0; i < lead; i++)
        dims[i] = i;
    for (size_t i = 0; i < inner_count; i++)
        dims[lead + i] = lead + order[i];
    x = core__x_reshape(scope, self, sizes, lead + inner_count);
    x = CORE__DO(scope, core_permute, x, dims, lead + inner_count);
    memcpy(sizes + lead, last, 3 * sizeof *sizes);
    x = core__x_reshape(scope, x, sizes, lead + 3);
    return core__scope_result(scope, x, result);
}

CORE__COMPOSITE(pixel_shuffle)
{
    core_tensor *self = args[0].u.tensor;
    int64_t r = args[1].u.i;
    static const int64_t order[] = {0, 3, 1, 4, 2};
    const int64_t *s;
    int64_t c;

    CORE_TRY(shuffle_check(call->op, self, r));
    s = self->sizes + self->ndim - 3;
    CORE_TRY(core__sizes_check(call->op, 3, (const int64_t[]){r, s[1], s[2]}));
    if (s[0] % (r * r) != 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self has %lld channels, which is not a multiple "
                              "of upscale_factor %lld squared",
                              (long long)s[0], (long long)r);
    c = s[0] / (r * r);
    return rearranged(scope, self, (const int64_t[]){c, r, r, s[1], s[2]}, 5,
                      order, (const int64_t[]){c, s[1] * r, s[2] * r},
                      &results[0]);
}

CORE__COMPOSITE(pixel_unshuffle)
{
    core_tensor *self = args[0].u.tensor;
    int64_t r = args[1].u.i;
    static const int64_t order[] = {0, 2, 4, 1, 3};
    const int64_t *s;

    CORE_TRY(shuffle_check(call->op, self, r));
    s = self->sizes + self->ndim - 3;
    CORE_TRY(core__sizes_check(call->op, 3, (const int64_t[]){s[0], r, r}));
    if (s[1] % r != 0 || s[2] % r != 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self has images of %lld by %lld, which are not "
                              "multiples of downscale_factor %lld",
                              (long long)s[1], (long long)s[2], (long long)r);
    return rearranged(
        scope, self, (const int64_t[]){s[0], s[1] / r, r, s[2] / r, r}, 5,
        order, (const int64_t[]){s[0] * r * r, s[1] / r, s[2] / r},
        &results[0]);
}

/* resize(self, size, *, memory_format): the elements in row-major order; new
 * ones are 0. */
CORE__COMPOSITE(resize)
{
    core_tensor *self = args[0].u.tensor;
    size_t count;
    const int64_t *sizes = core__ints_of(&args[1], &count);
    int64_t numel = 1;
    core_tensor *x;

    CORE_TRY(core__sizes_check(call->op, count, sizes));
    for (size_t i = 0; i < count; i++)
        numel *= sizes[i];
    x = core__x_reshape(scope, self, (const int64_t[]){-1}, 1);
    if (numel > self->numel)
        x = CORE__DO(scope, core_constant_pad_nd, x,
                     (const int64_t[]){0, numel - self->numel}, 2, core_int(0));
    else
        x = core__x_slice(scope, x, 0, 0, numel);
    x = core__x_reshape(scope, x, sizes, count);
    return core__scope_result(scope,
                              CORE__DO(scope, core_clone, x,
                                       args[2].tag == CORE_VALUE_NONE
                                           ? CORE_FORMAT_CONTIGUOUS
                                           : (int32_t)args[2].u.i),
                              &results[0]);
}

/* channel_shuffle(self [N, C, …], groups): channels of all groups in turn */
CORE__COMPOSITE(channel_shuffle)
{
    core_tensor *self = args[0].u.tensor;
    int64_t groups = args[1].u.i;
    int64_t sizes[CORE_MAX_NDIM + 1];
    core_tensor *x;

    if (self->ndim < 3 || groups <= 0 || self->sizes[1] % groups != 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self has %u dimensions and groups is %lld; self "
                              "must have at least "
                              "3, with a multiple of groups channels",
                              self->ndim, (long long)groups);
    CORE_TRY(core__ndim_check(call->op, self->ndim + 1));
    sizes[0] = self->sizes[0];
    sizes[1] = groups;
    sizes[2] = self->sizes[1] / groups;
    memcpy(sizes + 3, self->sizes + 2, (self->ndim - 2) * sizeof *sizes);
    x = core__x_reshape(scope, self, sizes, self->ndim + 1);
    x = core__x_transpose(scope, x, 1, 2);
    x = CORE__DO(scope, core_clone, x, CORE_FORMAT_CONTIGUOUS);
    x = core__x_reshape(scope, x, self->sizes, self->ndim);
    return core__scope_result(scope, x, &results[0]);
}

/* ------------------------------------------------------------ diagonals -- */

CORE__COMPOSITE(diag)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *x;

    if (self->ndim == 1) {
        x = CORE__DO(scope, core_diag_embed, self, args[1].u.i, 0, 1);
    } else if (self->ndim == 2) {
        x = CORE__DO(scope, core_diagonal, self, args[1].u.i, 0, 1);
        x = CORE__DO(scope, core_clone, x, -1);
    } else {
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self must have 1 or 2 dimensions, not %u",
                              self->ndim);
    }
    return core__scope_result(scope, x, &results[0]);
}

CORE__COMPOSITE(trace)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *x;

    if (self->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self must have 2 dimensions, not %u",
                              self->ndim);
    x = CORE__DO(scope, core_diagonal, self, 0, 0, 1);
    return core__scope_result(scope, core__x_sum(scope, x), &results[0]);
}

CORE__COMPOSITE(diag_embed)
{
    core_tensor *self = args[0].u.tensor;
    int64_t offset = args[1].u.i;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t side;
    uint32_t a;
    uint32_t b;
    core_tensor *out;
    core_tensor *view;

    CORE_TRY(core__ndim_check(call->op, self->ndim + 1));
    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim + 1, &a));
    CORE_TRY(core__dim_wrap(call->op, args[3].u.i, self->ndim + 1, &b));
    if (self->ndim == 0 || a == b)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "self has %u dimensions, dim1 is %u and dim2 %u; self must have at "
            "least 1 and the two must differ",
            self->ndim, a, b);
    CORE_TRY(core__size_operand_check(call->op, "offset", offset));
    side = self->sizes[self->ndim - 1] + (offset < 0 ? -offset : offset);
    for (uint32_t i = 0, from = 0; i <= self->ndim; i++)
        sizes[i] = i == a || i == b ? side : self->sizes[from++];
    CORE_TRY(core__sizes_check(call->op, self->ndim + 1, sizes));
    out = core__x_new_zeros(scope, self, sizes, self->ndim + 1);
    view = CORE__DO(scope, core_diagonal, out, offset, a, b);
    CORE__RUN(scope, core_copy_(view, self, false));
    return core__scope_result(scope, out, &results[0]);
}

CORE__COMPOSITE(narrow_copy)
{
    core_tensor *x = CORE__DO(scope, core_narrow, args[0].u.tensor, args[1].u.i,
                              args[2].u.i, args[3].u.i);

    return core__scope_result(scope, CORE__DO(scope, core_clone, x, -1),
                              &results[0]);
}

/* ------------------------------------------------ a view of a new tensor -- */

/* Copies element by element in dimensions where elements of the view share
 * positions, so that the last one in row-major order stays; all other
 * dimensions at once. */
static core_status copy_in_order(core_tensor *view, core_tensor *source)
{
    core_status status = CORE_OK;

    if (!core__layout_overlaps_itself(view))
        return core_copy_(view, source, false);
    for (int64_t i = 0; i < view->sizes[0] && status == CORE_OK; i++) {
        core_tensor *to = NULL;
        core_tensor *from = NULL;

        status = core_select(view, 0, i, &to);
        if (status == CORE_OK)
            status = core_select(source, 0, i, &from);
        if (status == CORE_OK)
            status = copy_in_order(to, from);
        core__tensor_release(to);
        core__tensor_release(from);
    }
    return status;
}

/* Copies the argument at a place into the view (owned by the scope) of target;
 * the result is target. */
static core_status written(core__scope *scope, const core_operator *op,
                           core_tensor *target, core_tensor *view,
                           const core_value *args, uint32_t at,
                           core_value *result)
{
    core_tensor *source = args[at].u.tensor;
    char have[256];
    char want[256];

    if (scope->status == CORE_OK &&
        (view->ndim != source->ndim ||
         memcmp(view->sizes, source->sizes, view->ndim * sizeof(int64_t)) != 0))
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "the part to write has sizes %s, but %s has %s",
            core__sizes_text(view->ndim, view->sizes, want, sizeof want),
            core__argument_name(op, at),
            core__sizes_text(source->ndim, source->sizes, have, sizeof have));
    CORE__RUN(scope, copy_in_order(view, source));
    return core__scope_result(scope, target, result);
}

static core_tensor *zeros_of(core__scope *scope, const core_value *args)
{
    size_t count;
    const int64_t *sizes = core__ints_of(&args[1], &count);

    return core__x_new_zeros(scope, args[0].u.tensor, sizes, count);
}

static const int64_t *bound(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : &value->u.i;
}

/* slice_backward(grad, input_sizes, dim, start, end, step) */
CORE__COMPOSITE(slice_backward)
{
    core_tensor *out = zeros_of(scope, args);
    core_tensor *view = CORE__DO(scope, core_slice, out, args[2].u.i,
                                 bound(&args[3]), bound(&args[4]), args[5].u.i);

    return written(scope, call->op, out, view, args, 0, &results[0]);
}

CORE__COMPOSITE(select_backward)
{
    core_tensor *out = zeros_of(scope, args);
    core_tensor *view =
        CORE__DO(scope, core_select, out, args[2].u.i, args[3].u.i);

    return written(scope, call->op, out, view, args, 0, &results[0]);
}

CORE__COMPOSITE(diagonal_backward)
{
    core_tensor *out = zeros_of(scope, args);
    core_tensor *view = CORE__DO(scope, core_diagonal, out, args[2].u.i,
                                 args[3].u.i, args[4].u.i);

    return written(scope, call->op, out, view, args, 0, &results[0]);
}

static core_tensor *copy_of(core__scope *scope, const core_value *args)
{
    return CORE__DO(scope, core_clone, args[0].u.tensor, -1);
}

CORE__COMPOSITE(slice_scatter)
{
    core_tensor *out = copy_of(scope, args);
    core_tensor *view = CORE__DO(scope, core_slice, out, args[2].u.i,
                                 bound(&args[3]), bound(&args[4]), args[5].u.i);

    return written(scope, call->op, out, view, args, 1, &results[0]);
}

CORE__COMPOSITE(select_scatter)
{
    core_tensor *out = copy_of(scope, args);
    core_tensor *view =
        CORE__DO(scope, core_select, out, args[2].u.i, args[3].u.i);

    return written(scope, call->op, out, view, args, 1, &results[0]);
}

CORE__COMPOSITE(diagonal_scatter)
{
    core_tensor *out = copy_of(scope, args);
    core_tensor *view = CORE__DO(scope, core_diagonal, out, args[2].u.i,
                                 args[3].u.i, args[4].u.i);

    return written(scope, call->op, out, view, args, 1, &results[0]);
}

/* Works on a row-major copy, to which strides and offset apply. */
CORE__COMPOSITE(as_strided_scatter)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *out = CORE__DO(
        scope, core_clone, self,
        self->flags & CORE__TENSOR_DENSE ? -1 : CORE_FORMAT_CONTIGUOUS);
    size_t count;
    size_t stride_count;
    const int64_t *sizes = core__ints_of(&args[2], &count);
    const int64_t *strides = core__ints_of(&args[3], &stride_count);
    core_tensor *view = CORE__DO(scope, core_as_strided, out, sizes, count,
                                 strides, stride_count, bound(&args[4]));

    return written(scope, call->op, out, view, args, 1, &results[0]);
}

/* ---------------------------------------------------- repeated elements -- */

/* self, or its elements in one dimension if no dim is given. */
static core_status repeated_dim(core__scope *scope, const core_operator *op,
                                const core_value *dim, core_tensor **self,
                                uint32_t *out_dim)
{
    *out_dim = 0;
    if (dim->tag == CORE_VALUE_NONE || (*self)->ndim == 0) {
        if (dim->tag != CORE_VALUE_NONE)
            CORE_TRY(core__dim_wrap(op, dim->u.i, 0, out_dim));
        *self = core__x_reshape(scope, *self, (const int64_t[]){-1}, 1);
        return scope->status;
    }
    return core__dim_wrap(op, dim->u.i, (*self)->ndim, out_dim);
}

/* repeat_interleave.self_int(self, repeats, dim, *, output_size) */
CORE__COMPOSITE(repeat_interleave_self_int)
{
    core_tensor *x = args[0].u.tensor;
    int64_t repeats = args[1].u.i, sizes[CORE_MAX_NDIM + 1], size;
    uint32_t dim, ndim;

    if (repeats < 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "repeats is %lld; it must be 0 or more",
                              (long long)repeats);
    CORE_TRY(core__size_operand_check(call->op, "repeats", repeats));
    CORE_TRY(repeated_dim(scope, call->op, &args[2], &x, &dim));
    ndim = x->ndim;
    CORE_TRY(core__ndim_check(call->op, ndim + 1));
    memcpy(sizes, x->sizes, ndim * sizeof *sizes);
    size = sizes[dim];
    if (repeats > 0 && size > CORE__NUMEL_MAX / repeats)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "%lld times %lld elements are too many",
                              (long long)repeats, (long long)size);
    if (args[3].tag != CORE_VALUE_NONE && args[3].u.i != size * repeats)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op, "output_size is %lld; it must be %lld",
            (long long)args[3].u.i, (long long)(size * repeats));
    memmove(sizes + dim + 1, sizes + dim, (ndim - dim) * sizeof *sizes);
    sizes[dim + 1] = repeats;
    x = core__x_unsqueeze(scope, x, dim + 1);
    x = CORE__DO(scope, core_expand, x, sizes, ndim + 1, false);
    memmove(sizes + dim + 1, sizes + dim + 2, (ndim - dim - 1) * sizeof *sizes);
    sizes[dim] = size * repeats;
    x = CORE__DO(scope, core_clone, x, CORE_FORMAT_CONTIGUOUS);
    x = core__x_reshape(scope, x, sizes, ndim);
    return core__scope_result(scope, x, &results[0]);
}

/* repeat_interleave.self_Tensor(self, repeats, dim, *, output_size) */
CORE__COMPOSITE(repeat_interleave_self_tensor)
{
    core_tensor *x = args[0].u.tensor, *repeats = args[1].u.tensor;
    const int64_t *size = args[3].tag == CORE_VALUE_NONE ? NULL : &args[3].u.i;
    uint32_t dim;

    CORE_TRY(repeated_dim(scope, call->op, &args[2], &x, &dim));
    if (repeats->ndim > 1 ||
        (repeats->numel != 1 && repeats->numel != x->sizes[dim]))
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "repeats has %u dimensions and %lld elements; it "
                              "must have at most 1, and 1 or %lld",
                              repeats->ndim, (long long)repeats->numel,
                              (long long)x->sizes[dim]);
    repeats = CORE__DO(scope, core_expand, repeats, &x->sizes[dim], 1, false);
    repeats = CORE__DO(scope, core_repeat_interleave, repeats, size);
    x = CORE__DO(scope, core_index_select, x, dim, repeats);
    return core__scope_result(scope, x, &results[0]);
}
