/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Indexing with lists of tensors: masks are converted to indices and the
 * indices broadcast to one shape before they are passed to the kernel (_index,
 * _index_put). */

#include "base/thread.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <libcore/autograd.h>

#include <string.h>

typedef struct indices {
    uint32_t count; /* up to the number of dimensions of self */
    core_tensor *tensors[CORE_MAX_NDIM]; /* NULL: the whole dimension */
    uint32_t ndim;                       /* of the common shape */
    int64_t sizes[CORE_MAX_NDIM];
} indices;

static core_status too_many(const core_operator *op, const core_tensor *self)
{
    return core__op_error(
        CORE_ERROR_INDEX, op,
        "the indices select more dimensions than the %u of self", self->ndim);
}

static bool is_mask(const core_tensor *index)
{
    return index && (index->dtype == CORE_BOOL || index->dtype == CORE_U8);
}

/* A mask of the dimensions of self from `first` on. */
static core_status check_mask(const core_operator *op, const core_tensor *self,
                              const core_tensor *mask, uint32_t first)
{
    if (first + mask->ndim > self->ndim)
        return too_many(op, self);
    for (uint32_t i = 0; i < mask->ndim; i++)
        if (mask->sizes[i] != self->sizes[first + i])
            return core__op_error(
                CORE_ERROR_INDEX, op,
                "a mask has size %lld in dimension %u, but self has %lld there",
                (long long)mask->sizes[i], i,
                (long long)self->sizes[first + i]);
    return CORE_OK;
}

/* index: i64 or i32, and of dimension `at` of self; or NULL. */
static core_status check_index(const core_operator *op, const core_tensor *self,
                               const core_tensor *index, uint32_t at)
{
    if (index && index->dtype != CORE_I64 && index->dtype != CORE_I32)
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "indices must be i64, i32 or bool, not %s",
                              core__dtype_name(index->dtype));
    return at < self->ndim ? CORE_OK : too_many(op, self);
}

/* What does not depend on how many places the masks have. */
static core_status check_indices(const core_operator *op,
                                 const core_tensor *self,
                                 const core_value *list)
{
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t count = 0, ndim = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        const core_tensor *index = list->u.tensors[i];

        if (is_mask(index)) {
            CORE_TRY(check_mask(op, self, index, count));
            count += index->ndim;
            continue;
        }
        CORE_TRY(check_index(op, self, index, count++));
        if (index)
            CORE_TRY(core__sizes_broadcast(op, ndim, sizes, index->ndim,
                                           index->sizes, &ndim, sizes));
    }
    return CORE_OK;
}

/* A mask counts for as many dimensions as it has. */
static core_status add_mask(core__scope *scope, const core_operator *op,
                            const core_tensor *self, core_tensor *mask,
                            indices *out)
{
    core_tensor *places;

    CORE_TRY(check_mask(op, self, mask, out->count));
    places = CORE__DO(scope, core_nonzero, mask);
    for (uint32_t i = 0; i < mask->ndim; i++)
        out->tensors[out->count++] = CORE__DO(scope, core_select, places, 1, i);
    return scope->status;
}

static core_status collect(core__scope *scope, const core_operator *op,
                           const core_tensor *self, const core_value *list,
                           indices *out)
{
    out->count = 0;
    out->ndim = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        core_tensor *index = list->u.tensors[i];

        if (is_mask(index)) {
            CORE_TRY(add_mask(scope, op, self, index, out));
            continue;
        }
        CORE_TRY(check_index(op, self, index, out->count));
        if (index && index->device != self->device)
            index = CORE__DO(scope, core_to, index, CORE_DTYPE_NONE,
                             self->device, false, false, -1);
        out->tensors[out->count++] = index;
    }
    for (uint32_t i = 0; i < out->count; i++)
        if (out->tensors[i])
            CORE_TRY(core__sizes_broadcast(
                op, out->ndim, out->sizes, out->tensors[i]->ndim,
                out->tensors[i]->sizes, &out->ndim, out->sizes));
    for (uint32_t i = 0; i < out->count; i++)
        if (out->tensors[i])
            out->tensors[i] = CORE__DO(scope, core_expand, out->tensors[i],
                                       out->sizes, out->ndim, false);
    return scope->status;
}

CORE__COMPOSITE(index)
{
    core_tensor *self = args[0].u.tensor;
    indices all;

    CORE_TRY(collect(scope, call->op, self, &args[1], &all));
    return core__scope_result(
        scope, CORE__DO(scope, core_index_same, self, all.tensors, all.count),
        &results[0]);
}

/* ----------------------------------------------------- masks in programs -- */

/* The only index, if it is a mask of the first dimensions but for `before`; NULL:
 * there are others. */
static core_tensor *only_mask(const core_value *list, uint32_t *out_before)
{
    core_tensor *mask = NULL;

    for (uint32_t i = 0; i < list->count; i++) {
        core_tensor *index = list->u.tensors[i];

        if (!index)
            continue;
        if (mask || index->dtype != CORE_BOOL || index->ndim == 0)
            return NULL;
        mask = index;
        *out_before = i;
    }
    return mask;
}

/* Values that are the same for each place of the mask, in sizes that broadcast to
 * those of self; NULL: there are several, or they need a gradient, which is a sum
 * in the order of the places. */
static core_tensor *values_of_mask(core__scope *scope, core_tensor *values,
                                   uint32_t of_mask, uint32_t after)
{
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim = 0, front = values->ndim > after ? values->ndim - after : 0;

    if ((core__tensor_requires_grad(values) && core_grad_mode()) ||
        (front && values->sizes[front - 1] != 1) ||
        values->ndim + of_mask > CORE_MAX_NDIM)
        return NULL;
    for (uint32_t i = 0; i + 1 < front; i++)
        sizes[ndim++] = values->sizes[i];
    for (uint32_t i = 0; front && i < of_mask; i++)
        sizes[ndim++] = 1;
    for (uint32_t i = front; i < values->ndim; i++)
        sizes[ndim++] = values->sizes[i];
    return core__x_reshape(scope, values, sizes, ndim);
}

static core_tensor *with_dims(core__scope *scope, core_tensor *x, uint32_t more)
{
    for (uint32_t i = 0; i < more; i++)
        x = core__x_unsqueeze(scope, x, -1);
    return x;
}

/* Whether values have 1 or self's size in the dimensions before and after those of
 * the mask: where() would extend self, too. */
static bool fits(const core_tensor *values, const core_tensor *self,
                 uint32_t before, uint32_t after)
{
    for (uint32_t i = 1; i <= values->ndim; i++) {
        uint32_t from_end =
            i <= after ? i : self->ndim - before - after + i - 1;
        int64_t size = values->sizes[values->ndim - i];

        if (i != after + 1 && size != 1 &&
            size != self->sizes[self->ndim - from_end])
            return false;
    }
    return true;
}

/* While a program is recorded, how many places a mask has is not known: selects
 * by the mask what is put.  *out is NULL where that is not the same. */
static core_status put_by_mask(core__scope *scope, core_tensor *self,
                               const core_value *list, core_tensor *values,
                               bool accumulate, core_tensor **out)
{
    uint32_t before = 0, after;
    core_tensor *mask = only_mask(list, &before);

    *out = NULL;
    /* The result of where() is dense in the order of self and the mask. */
    if (!mask || before + mask->ndim > self->ndim ||
        before + mask->ndim + (list->count - before - 1) > self->ndim ||
        !core_tensor_is_contiguous(self, CORE_FORMAT_CONTIGUOUS) ||
        !core_tensor_is_contiguous(mask, CORE_FORMAT_CONTIGUOUS) ||
        values->dtype != self->dtype || values->device != self->device ||
        mask->device != self->device ||
        (accumulate && !core__dtype_is_floating(self->dtype)) ||
        memcmp(mask->sizes, self->sizes + before,
               mask->ndim * sizeof *mask->sizes) != 0)
        return CORE_OK;
    after = self->ndim - before - mask->ndim;
    if (values->ndim > before + 1 + after || !fits(values, self, before, after))
        return CORE_OK;
    values = values_of_mask(scope, values, mask->ndim, after);
    if (!values)
        return scope->status;
    if (accumulate)
        values = core__x_add(scope, self, values);
    *out = core__x_where(scope, with_dims(scope, mask, after), values, self);
    return scope->status;
}

static bool has_mask(const core_value *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (is_mask(list->u.tensors[i]))
            return true;
    return false;
}

static core_status check_values(const core_operator *op,
                                const core_tensor *self,
                                const core_tensor *values)
{
    return core__dtypes_check_equal(op, "values and self", values, self);
}

static core_status put(core__scope *scope, const core_operator *op,
                       const core_value *args, core_value *result)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *values = args[2].u.tensor;
    indices all;

    CORE_TRY(collect(scope, op, self, &args[1], &all));
    CORE_TRY(check_values(op, self, values));
    if (values->device != self->device && values->ndim == 0)
        values = CORE__DO(scope, core_to, values, CORE_DTYPE_NONE, self->device,
                          false, false, -1);
    return core__scope_result(scope,
                              CORE__DO(scope, core_index_put_same, self,
                                       all.tensors, all.count, values,
                                       core__arg_bool(args, 3, false)),
                              result);
}

/* While a program is recorded. */
static core_status put_in_program(core__scope *scope, const core_operator *op,
                                  const core_value *args, core_value *result)
{
    bool accumulate = core__arg_bool(args, 3, false);
    core_tensor *self = args[0].u.tensor, *x = NULL;
    core_tensor *values = args[2].u.tensor;

    CORE_TRY(put_by_mask(scope, self, &args[1], values, accumulate, &x));
    if (x)
        return core__scope_result(scope, x, result);
    CORE_TRY(check_values(op, self, values));
    x = CORE__DO(scope, core_index_put_by_masks, self, args[1].u.tensors,
                 args[1].count, values, accumulate);
    return core__scope_result(scope, x, result);
}

CORE__COMPOSITE(index_put)
{
    if (core__unlikely(core__thread_self()->trace != NULL) &&
        has_mask(&args[1]))
        return put_in_program(scope, call->op, args, &results[0]);
    return put(scope, call->op, args, &results[0]);
}

/* _index_put_by_masks(self, indices, values, accumulate): index_put as a node of
 * a program, which reads the masks in each run */
CORE__OP(index_put_by_masks)
{
    core_tensor *self = args[0].u.tensor, *out = NULL;
    core__scope scope;

    CORE_TRY(check_values(call->op, self, args[2].u.tensor));
    if (self->storage) {
        core__scope_begin(&scope);
        return core__scope_close(&scope, &core__operators[CORE_OP_INDEX_PUT],
                                 put(&scope, call->op, args, &results[0]),
                                 results, nresults);
    }
    CORE_TRY(check_indices(call->op, self, &args[1]));
    CORE_TRY(core_empty_like(self, CORE_DTYPE_NONE, NULL,
                             CORE_FORMAT_CONTIGUOUS, &out));
    results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = out}};
    return CORE_OK;
}

/* _index_put_impl(self, indices, values, accumulate, unsafe): unsafe only omits
 * checks of the indices, which are always made. */
CORE__COMPOSITE(index_put_impl)
{
    return core__scope_result(scope,
                              CORE__DO(scope, core_index_put, args[0].u.tensor,
                                       args[1].u.tensors, args[1].count,
                                       args[2].u.tensor,
                                       core__arg_bool(args, 3, false)),
                              &results[0]);
}

/* The indices, clamped to the dimensions of self that they select from. */
static core_status within(core__scope *scope, const core_operator *op,
                          const core_tensor *self, const core_value *list,
                          core_tensor **out)
{
    if (list->count > self->ndim)
        return too_many(op, self);
    for (uint32_t i = 0; i < list->count; i++) {
        core_scalar least = core_int(-self->sizes[i]);
        core_scalar most = core_int(self->sizes[i] - 1);
        core_tensor *index = list->u.tensors[i];

        if (index && index->dtype != CORE_I64 && index->dtype != CORE_I32)
            return core__op_error(CORE_ERROR_DTYPE, op,
                                  "indices must be i64 or i32, not %s",
                                  core__dtype_name(index->dtype));
        out[i] =
            index ? CORE__DO(scope, core_clamp, index, &least, &most) : NULL;
    }
    return scope->status;
}

/* _unsafe_masked_index(self, mask, indices, fill): self at the indices, which
 * may be out of range where mask is false; fill there */
CORE__COMPOSITE(unsafe_masked_index)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *mask = args[1].u.tensor;
    core_tensor *indices[CORE_MAX_NDIM];
    core_tensor *x;

    CORE_TRY(within(scope, call->op, self, &args[2], indices));
    if (self->numel == 0)
        x = CORE__DO(scope, core_new_full, self, mask->sizes, mask->ndim,
                     args[3], CORE_DTYPE_NONE, NULL);
    else
        x = CORE__DO(scope, core_masked_fill,
                     CORE__DO(scope, core_index, self, indices, args[2].count),
                     core__x_logical_not(scope, mask), args[3]);
    return core__scope_result(scope, x, &results[0]);
}

/* _unsafe_masked_index_put_accumulate(self, mask, indices, values) */
CORE__COMPOSITE(unsafe_masked_index_put_accumulate)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *indices[CORE_MAX_NDIM];
    core_tensor *values;

    CORE_TRY(within(scope, call->op, self, &args[2], indices));
    if (self->numel == 0)
        return core__scope_result(scope, CORE__DO(scope, core_clone, self, -1),
                                  &results[0]);
    values = core__x_zero_where(scope, args[3].u.tensor,
                                core__x_logical_not(scope, args[1].u.tensor));
    return core__scope_result(scope,
                              CORE__DO(scope, core_index_put, self, indices,
                                       args[2].count, values, true),
                              &results[0]);
}

/* The positions of the first `size` nonzero elements of a flat tensor; -1 after
 * the last. */
static core_tensor *first_nonzero(core__scope *scope, core_tensor *flat,
                                  int64_t size)
{
    core_tensor *set = CORE__DO(scope, core_ne_scalar, flat, core_int(0));
    core_tensor *place = CORE__DO(scope, core_cumsum, set, 0, CORE_I64);
    core_tensor *keep;
    core_tensor *x;

    place = CORE__DO(scope, core_sub_scalar, place, core_int(1), core_int(1));
    keep = core__x_logical_and(
        scope, set, CORE__DO(scope, core_lt_scalar, place, core_int(size)));
    /* The element after the last takes the others. */
    place = CORE__DO(scope, core_masked_fill, place,
                     core__x_logical_not(scope, keep), core_int(size));
    x = CORE__DO(scope, core_new_full, flat, (const int64_t[]){size + 1}, 1,
                 core_int(-1), CORE_I64, NULL);
    if (scope->status != CORE_OK)
        return NULL;
    x = CORE__DO(scope, core_scatter, x, 0, place,
                 core__x_arange(scope, flat, flat->numel));
    return core__x_slice(scope, x, 0, 0, size);
}

/* The last digit of x in base `length`; x becomes the number of the others. */
static core_tensor *digit_of(core__scope *scope, core_tensor **x,
                             int64_t length)
{
    core_tensor *digit =
        CORE__DO(scope, core_remainder_scalar, *x, core_int(length));
    core_tensor *base = CORE__DO(scope, core_new_full, *x, NULL, 0,
                                 core_int(length), CORE_DTYPE_NONE, NULL);

    *x = CORE__DO(scope, core_floor_divide, *x, base);
    return digit;
}

/* nonzero_static(self, *, size, fill_value): the positions of the first `size`
 * nonzero elements, one a row; rows after the last contain fill_value */
CORE__COMPOSITE(nonzero_static)
{
    core_tensor *self = args[0].u.tensor;
    int64_t size = args[1].u.i;
    core_tensor *columns[CORE_MAX_NDIM];
    core_tensor *missing;
    core_tensor *x;

    if (size < 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "size is %lld; it must be 0 or more",
                              (long long)size);
    CORE_TRY(core__size_operand_check(call->op, "size", size));
    if (self->ndim == 0 || self->numel == 0) {
        x = CORE__DO(scope, core_new_full, self,
                     (const int64_t[]){size, self->ndim}, 2, args[2], CORE_I64,
                     NULL);
        return core__scope_result(scope, x, &results[0]);
    }
    x = core__x_reshape(scope, self, (const int64_t[]){-1}, 1);
    x = first_nonzero(scope, x, size);
    missing = core__x_unsqueeze(
        scope, CORE__DO(scope, core_lt_scalar, x, core_int(0)), 1);
    for (uint32_t i = self->ndim; i-- > 0;)
        columns[i] = digit_of(scope, &x, self->sizes[i]);
    if (scope->status != CORE_OK)
        return scope->status;
    x = CORE__DO(scope, core_stack, columns, self->ndim, 1);
    x = CORE__DO(scope, core_masked_fill, x, missing, args[2]);
    return core__scope_result(scope, x, &results[0]);
}

/* The kernel needs self and mask in one shape. */
CORE__COMPOSITE(masked_scatter)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *mask = args[1].u.tensor;
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim;

    CORE_TRY(core__sizes_broadcast(call->op, self->ndim, self->sizes,
                                   mask->ndim, mask->sizes, &ndim, sizes));
    self = CORE__DO(scope, core_expand, self, sizes, ndim, false);
    mask = CORE__DO(scope, core_expand, mask, sizes, ndim, false);
    return core__scope_result(
        scope,
        CORE__DO(scope, core_masked_scatter_same, self, mask, args[2].u.tensor),
        &results[0]);
}

/* num_classes -1: one more than the largest element, for which the host
 * waits. */
CORE__COMPOSITE(one_hot)
{
    core_tensor *self = args[0].u.tensor;
    int64_t classes = args[1].u.i;
    int64_t sizes[CORE_MAX_NDIM];
    core_scalar largest;
    core_tensor *x;

    CORE_TRY(core__ndim_check(call->op, self->ndim + 1));
    if (self->dtype != CORE_I64)
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "self must be i64, not %s",
                              core__dtype_name(self->dtype));
    if (classes < -1)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "num_classes is %lld; it must be 0 or more, or -1 to infer it",
            (long long)classes);
    if (classes < 0) {
        if (self->numel == 0)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                                  "self has no elements, so num_classes cannot "
                                  "be inferred from it");
        x = CORE__DO(scope, core_max, self);
        if (scope->status != CORE_OK)
            return scope->status;
        CORE_TRY(core_item(x, &largest));
        if (largest.u.i < 0 || largest.u.i == INT64_MAX)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                                  "the largest element of self is %lld, which "
                                  "is not a class number",
                                  (long long)largest.u.i);
        classes = largest.u.i + 1;
    }
    memcpy(sizes, self->sizes, self->ndim * sizeof *sizes);
    sizes[self->ndim] = classes;
    CORE_TRY(core__sizes_check(call->op, self->ndim + 1, sizes));
    x = core__x_new_zeros(scope, self, sizes, self->ndim + 1);
    x = CORE__DO(scope, core_scatter_value, x, -1,
                 core__x_unsqueeze(scope, self, -1), core_int(1));
    return core__scope_result(scope, x, &results[0]);
}

/* where(condition): the indices of elements that are not 0, one tensor for each
 * dimension; a tensor without dimensions counts as having one. */
CORE__COMPOSITE(where_nonzero)
{
    core_tensor *self = args[0].u.tensor, *x = self, **parts = NULL;
    size_t count = 0;

    if (self->ndim == 0)
        x = core__x_unsqueeze(scope, x, 0);
    x = CORE__DO(scope, core_nonzero, x);
    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(core_unbind(x, 1, &parts, &count));
    results[0] = (core_value){
        CORE_VALUE_TENSOR_LIST, (uint32_t)count, {.tensors = parts}};
    return CORE_OK;
}

/* ------------------------------------------------------------ along a dim -- */

/* x broadcast to its sizes and those of like, except along dim. */
static core_status beside(core__scope *scope, const core_operator *op,
                          core_tensor **x, const core_tensor *like,
                          uint32_t dim)
{
    int64_t sizes[CORE_MAX_NDIM], other[CORE_MAX_NDIM];
    uint32_t ndim;

    memcpy(other, like->sizes, like->ndim * sizeof *other);
    other[dim] = (*x)->sizes[dim];
    CORE_TRY(core__sizes_broadcast(op, (*x)->ndim, (*x)->sizes, like->ndim,
                                   other, &ndim, sizes));
    *x = CORE__DO(scope, core_expand, *x, sizes, ndim, false);
    return scope->status;
}

/* take_along_dim(self, indices, dim): gather, which broadcasts the other
 * dimensions; without dim, of all elements */
CORE__COMPOSITE(take_along_dim)
{
    core_tensor *x = args[0].u.tensor, *indices = args[1].u.tensor;
    uint32_t dim = 0;

    if (args[2].tag == CORE_VALUE_NONE) {
        const int64_t all = -1;

        x = core__x_reshape(scope, x, &all, 1);
        indices = core__x_reshape(scope, indices, &all, 1);
    } else {
        if (x->ndim != indices->ndim)
            return core__op_shapes_error(
                call->op, "self", x, "indices", indices,
                "both must have the same number of dimensions");
        CORE_TRY(core__dim_wrap(call->op, args[2].u.i, x->ndim, &dim));
        if (x->ndim > 0) {
            CORE_TRY(beside(scope, call->op, &x, indices, dim));
            CORE_TRY(beside(scope, call->op, &indices, x, dim));
        }
    }
    x = CORE__DO(scope, core_gather, x, dim, indices, false);
    return core__scope_result(scope, x, &results[0]);
}
