/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Views of parts of a tensor: slices, diagonals, windows, arbitrary strides;
 * and operators that return several of them. */

#include "base/memory.h"
#include "dispatch/dispatch.h"
#include "ops/functions.h"
#include "ops/shape.h"
#include "tensor/layout.h"

#include <string.h>

/* A modifiable copy of self's layout. */
typedef struct window {
    uint32_t ndim;
    int64_t offset;
    int64_t sizes[CORE_MAX_NDIM + 1];
    int64_t strides[CORE_MAX_NDIM + 1];
} window;

static void window_of(const core_tensor *self, window *out_window)
{
    out_window->ndim = self->ndim;
    out_window->offset = self->offset;
    memcpy(out_window->sizes, self->sizes, self->ndim * sizeof(int64_t));
    memcpy(out_window->strides, self->strides, self->ndim * sizeof(int64_t));
}

static void window_remove(window *w, uint32_t dim)
{
    w->ndim--;
    for (uint32_t i = dim; i < w->ndim; i++) {
        w->sizes[i] = w->sizes[i + 1];
        w->strides[i] = w->strides[i + 1];
    }
}

static core_status window_view(core_tensor *self, const window *w,
                               core_value *result)
{
    core_tensor *view;

    CORE_TRY(core__tensor_view(self, w->ndim, w->sizes, w->strides, w->offset,
                               &view));
    core__result_tensor(result, view);
    return CORE_OK;
}

/* Multiplies a stride by step; a step that reaches no element, and might
 * overflow, is ignored. */
static void window_step(window *w, uint32_t dim, int64_t step)
{
    int64_t stride;

    if (!__builtin_mul_overflow(w->strides[dim], step, &stride))
        w->strides[dim] = stride;
}

static core_status no_dimension(const core_operator *op)
{
    return core__op_error(CORE_ERROR_INDEX, op,
                          "self has no dimensions; it must have at least one");
}

core_status core__slice_range(const core_operator *op, int64_t size,
                              const core_value *start, const core_value *end,
                              int64_t step, int64_t *out_first,
                              int64_t *out_count)
{
    int64_t first = start->tag == CORE_VALUE_NONE ? 0 : core__int_of(start);
    int64_t last = end->tag == CORE_VALUE_NONE ? size : core__int_of(end);

    if (step <= 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "step must be positive, not %lld",
                              (long long)step);
    if (first < 0)
        first += size;
    if (last < 0)
        last += size;
    first = first < 0 ? 0 : first > size ? size : first;
    last = last < first ? first : last > size ? size : last;
    *out_first = first;
    *out_count = (last - first) / step + ((last - first) % step != 0);
    return CORE_OK;
}

core_status core__index_wrap(const core_operator *op, int64_t index,
                             int64_t size, uint32_t dim, int64_t *out_index)
{
    if (index < -size || index >= size)
        return core__op_error(CORE_ERROR_INDEX, op,
                              "index %lld is out of range in dimension %u of "
                              "size %lld",
                              (long long)index, dim, (long long)size);
    *out_index = index < 0 ? index + size : index;
    return CORE_OK;
}

/* -------------------------------------------------------------- slices -- */

/* core__dim_wrap, called only for dimensions not counted from the front. */
static inline core_status dim_of(const core_operator *op,
                                 const core_value *value,
                                 const core_tensor *self, uint32_t *out_dim)
{
    *out_dim = (uint32_t)value->u.i;
    if (core__likely((uint64_t)value->u.i < self->ndim))
        return CORE_OK;
    return core__dim_wrap(op, value->u.i, self->ndim, out_dim);
}

CORE__OP(slice)
{
    core_tensor *self = args[0].u.tensor, *view;
    int64_t step = core__int_of(&args[4]);
    int64_t first, count;
    uint32_t dim;

    if (core__unlikely(self->ndim == 0))
        return no_dimension(call->op);
    CORE_TRY(dim_of(call->op, &args[1], self, &dim));
    CORE_TRY(core__slice_range(call->op, self->sizes[dim], &args[2], &args[3],
                               step, &first, &count));
    CORE_TRY(core__tensor_sliced(self, dim, first, count, step, &view));
    core__result_tensor(&results[0], view);
    return CORE_OK;
}

CORE__OP(select)
{
    core_tensor *self = args[0].u.tensor;
    window w;
    uint32_t dim;
    int64_t index = 0;

    if (self->ndim == 0)
        return no_dimension(call->op);
    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &dim));
    CORE_TRY(
        core__index_wrap(call->op, args[2].u.i, self->sizes[dim], dim, &index));
    window_of(self, &w);
    w.offset += index * self->strides[dim];
    window_remove(&w, dim);
    return window_view(self, &w, &results[0]);
}

CORE__OP(narrow)
{
    core_tensor *self = args[0].u.tensor;
    core_value slice[5] = {args[0]};
    int64_t start = args[2].u.i;
    int64_t length = args[3].u.i;
    uint32_t dim;

    if (core__unlikely(self->ndim == 0))
        return no_dimension(call->op);
    CORE_TRY(dim_of(call->op, &args[1], self, &dim));
    if (start < 0)
        start += self->sizes[dim];
    if (start < 0 || length < 0 || start > self->sizes[dim] - length)
        return core__op_error(CORE_ERROR_INDEX, call->op,
                              "start is %lld and length %lld, which exceed "
                              "dimension %u of size %lld",
                              (long long)length, (long long)args[2].u.i, dim,
                              (long long)self->sizes[dim]);
    slice[1] = core_int(dim);
    slice[2] = core_int(start);
    slice[3] = core_int(start + length);
    slice[4] = core_int(1);
    return core__call(&core__operators[CORE_OP_SLICE_TENSOR], slice, 5, results,
                      1);
}

CORE__OP(diagonal)
{
    core_tensor *self = args[0].u.tensor;
    window w;
    uint32_t a;
    uint32_t b;
    int64_t offset = args[1].u.i;
    int64_t rows;
    int64_t columns;
    int64_t size;
    int64_t stride;

    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim, &a));
    CORE_TRY(core__dim_wrap(call->op, args[3].u.i, self->ndim, &b));
    if (a == b)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "dim1 and dim2 are both %u", a);
    window_of(self, &w);
    /* Diagonals beyond the corners are empty. */
    if (offset < -self->sizes[a])
        offset = -self->sizes[a];
    if (offset > self->sizes[b])
        offset = self->sizes[b];
    rows = self->sizes[a] - (offset < 0 ? -offset : 0);
    columns = self->sizes[b] - (offset > 0 ? offset : 0);
    size = rows < columns ? rows : columns;
    stride = self->strides[a] + self->strides[b];
    if (size > 0)
        w.offset += offset >= 0 ? offset * self->strides[b]
                                : -offset * self->strides[a];
    window_remove(&w, a > b ? a : b);
    window_remove(&w, a > b ? b : a);
    w.sizes[w.ndim] = size > 0 ? size : 0;
    w.strides[w.ndim++] = stride;
    return window_view(self, &w, &results[0]);
}

CORE__OP(unfold)
{
    core_tensor *self = args[0].u.tensor;
    window w;
    uint32_t dim;
    int64_t size = args[2].u.i;
    int64_t step = args[3].u.i;
    int64_t have;

    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &dim));
    CORE_TRY(core__ndim_check(call->op, self->ndim + 1));
    have = self->ndim == 0 ? 1 : self->sizes[dim];
    if (size < 0 || size > have || step <= 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "windows of %lld with step %lld do not fit "
                              "dimension %u of size %lld",
                              (long long)size, (long long)step, dim,
                              (long long)have);
    window_of(self, &w);
    w.sizes[w.ndim] = size;
    w.strides[w.ndim++] = self->ndim == 0 ? 1 : self->strides[dim];
    if (self->ndim > 0) {
        w.sizes[dim] = (have - size) / step + 1;
        window_step(&w, dim, step);
    }
    return window_view(self, &w, &results[0]);
}

/* The view must be within the storage. */
CORE__OP(as_strided)
{
    core_tensor *self = args[0].u.tensor;
    size_t count;
    size_t stride_count;
    const int64_t *sizes = core__ints_of(&args[1], &count);
    const int64_t *strides = core__ints_of(&args[2], &stride_count);
    int64_t offset =
        args[3].tag == CORE_VALUE_NONE ? self->offset : args[3].u.i;
    int64_t numel;
    int64_t last = offset;
    core_tensor *view;

    CORE_TRY(core__ndim_check(call->op, count));
    if (count != stride_count)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "size has %zu entries and stride %zu; both must "
                              "have the same number",
                              count, stride_count);
    CORE_TRY(core__sizes_check(call->op, count, sizes));
    CORE_TRY(core__sizes_numel((uint32_t)count, sizes, &numel));
    if (offset < 0 || offset >= CORE__NUMEL_MAX)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "storage_offset %lld is negative or too large",
                              (long long)offset);
    for (size_t i = 0; i < count; i++) {
        int64_t reach; /* empty dimensions count as one element */

        if (strides[i] < 0 ||
            __builtin_mul_overflow(sizes[i] > 1 ? sizes[i] - 1 : 0, strides[i],
                                   &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return core__op_error(CORE_ERROR_SHAPE, call->op,
                                  "stride %lld is negative or too large",
                                  (long long)strides[i]);
    }
    if (last >= CORE__NUMEL_MAX ||
        (numel > 0 && self->storage &&
         (uint64_t)(last + 1) * core__dtype_size(self->dtype) >
             self->storage->size))
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "the view would reach element %lld, but the storage has %llu bytes",
            (long long)last,
            self->storage ? (unsigned long long)self->storage->size : 0ull);
    CORE_TRY(core__tensor_view(self, (uint32_t)count, sizes, strides, offset,
                               &view));
    core__result_tensor(&results[0], view);
    return CORE_OK;
}

/* _reshape_alias(self, size, stride): as_strided from self's first element */
CORE__OP(reshape_alias)
{
    const core_value own[4] = {args[0], args[1], args[2], {0}};

    return core__op_as_strided(call, own, 4, results, nresults);
}

/* ------------------------------------------------------- several views -- */

/* The limit on views of one tensor: an empty or expanded tensor could be split
 * into more parts than fit into memory. */
enum { PARTS_MOST = 1 << 20 };

static core_status count_check(const core_operator *op, int64_t count)
{
    if (count <= PARTS_MOST)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, op,
        "the result would be %lld tensors; a list has at most %d",
        (long long)count, PARTS_MOST);
}

/* Narrows self along dim; each result is one of several views. */
static core_status parts_of(core_tensor *self, uint32_t dim, size_t count,
                            const int64_t *lengths, core_value *result)
{
    core_tensor **parts = core__alloc_zero((count ? count : 1) * sizeof *parts);
    core_status status = CORE_OK;
    int64_t start = 0;

    if (!parts)
        return core__error_memory(count * sizeof *parts);
    for (size_t i = 0; status == CORE_OK && i < count; i++) {
        int64_t end = start + lengths[i];

        status = core_slice(self, dim, &start, &end, 1, &parts[i]);
        if (status == CORE_OK)
            parts[i]->flags |= CORE__TENSOR_VIEW_MULTIPLE;
        start = end;
    }
    if (status != CORE_OK) {
        core_tensors_release(parts, count);
        return status;
    }
    *result = (core_value){
        CORE_VALUE_TENSOR_LIST, (uint32_t)count, {.tensors = parts}};
    return CORE_OK;
}

static core_status equal_parts(core_tensor *self, uint32_t dim, int64_t length,
                               size_t count, core_value *result)
{
    int64_t *lengths = core__alloc((count ? count : 1) * sizeof *lengths);
    int64_t left = self->sizes[dim];
    core_status status;

    if (!lengths)
        return core__error_memory(count * sizeof *lengths);
    for (size_t i = 0; i < count; i++) {
        lengths[i] = left < length ? left : length;
        left -= lengths[i];
    }
    status = parts_of(self, dim, count, lengths, result);
    core__free(lengths);
    return status;
}

CORE__OP(split)
{
    core_tensor *self = args[0].u.tensor;
    int64_t length = args[1].u.i;
    int64_t size;
    int64_t count;
    uint32_t dim;

    if (self->ndim == 0)
        return no_dimension(call->op);
    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim, &dim));
    size = self->sizes[dim];
    if (length < 0 || (length == 0 && size > 0))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "split_size is %lld, which cannot split a dimension of size %lld",
            (long long)length, (long long)size);
    count = size == 0 ? 1 : size / length + (size % length != 0);
    CORE_TRY(count_check(call->op, count));
    return equal_parts(self, dim, length, (size_t)count, &results[0]);
}

CORE__OP(split_with_sizes)
{
    core_tensor *self = args[0].u.tensor;
    size_t count;
    const int64_t *lengths = core__ints_of(&args[1], &count);
    int64_t sum = 0;
    uint32_t dim;

    if (self->ndim == 0)
        return no_dimension(call->op);
    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim, &dim));
    for (size_t i = 0; i < count; i++) {
        if (lengths[i] < 0 || __builtin_add_overflow(sum, lengths[i], &sum))
            return core__op_error(
                CORE_ERROR_SHAPE, call->op,
                "split_sizes has the entry %lld; it must be 0 or more",
                (long long)lengths[i]);
    }
    if (sum != self->sizes[dim])
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "split_sizes add up to %lld, but dimension %u has size %lld",
            (long long)sum, dim, (long long)self->sizes[dim]);
    return parts_of(self, dim, count, lengths, &results[0]);
}

CORE__OP(chunk)
{
    core_tensor *self = args[0].u.tensor;
    int64_t chunks = args[1].u.i;
    int64_t size;
    int64_t length;
    uint32_t dim;

    if (self->ndim == 0)
        return no_dimension(call->op);
    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim, &dim));
    if (chunks <= 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "chunks is %lld; it must be above 0",
                              (long long)chunks);
    size = self->sizes[dim];
    length = size / chunks + (size % chunks != 0);
    if (size > 0)
        chunks = size / length + (size % length != 0);
    CORE_TRY(count_check(call->op, chunks));
    return equal_parts(self, dim, length, (size_t)chunks, &results[0]);
}

CORE__OP(unbind)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor **parts;
    core_status status = CORE_OK;
    size_t count;
    uint32_t dim;

    if (self->ndim == 0)
        return no_dimension(call->op);
    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &dim));
    CORE_TRY(count_check(call->op, self->sizes[dim]));
    count = (size_t)self->sizes[dim];
    parts = core__alloc_zero((count ? count : 1) * sizeof *parts);
    if (!parts)
        return core__error_memory(count * sizeof *parts);
    for (size_t i = 0; status == CORE_OK && i < count; i++) {
        status = core_select(self, dim, (int64_t)i, &parts[i]);
        if (status == CORE_OK)
            parts[i]->flags |= CORE__TENSOR_VIEW_MULTIPLE;
    }
    if (status != CORE_OK) {
        core_tensors_release(parts, count);
        return status;
    }
    results[0] = (core_value){
        CORE_VALUE_TENSOR_LIST, (uint32_t)count, {.tensors = parts}};
    return CORE_OK;
}
