/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Searching, placing and segment operators, composed of indexing and indexed
 * sums. */

#include "base/memory.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

/* --------------------------------------------------------- arrangements -- */

/* rot90(self, k, dims): from the first dimension towards the second */
CORE__COMPOSITE(rot90)
{
    core_tensor *x = args[0].u.tensor;
    int64_t turns = (core__arg_int(args, 1, 1) % 4 + 4) % 4;
    size_t count;
    const int64_t *dims = core__ints_of(&args[2], &count);
    int64_t plane[2] = {0, 1};
    uint32_t a;
    uint32_t b;

    if (dims && count == 2)
        memcpy(plane, dims, sizeof plane);
    else if (dims)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "dims has %zu entries; it must have 2", count);
    CORE_TRY(core__dim_wrap(call->op, plane[0], x->ndim, &a));
    CORE_TRY(core__dim_wrap(call->op, plane[1], x->ndim, &b));
    if (a == b)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "dims are %lld and %lld, which are the same dimension",
            (long long)plane[0], (long long)plane[1]);
    if (turns == 0)
        x = CORE__DO(scope, core_clone, x, CORE_FORMAT_CONTIGUOUS);
    else if (turns == 2)
        x = CORE__DO(scope, core_flip, x, plane, 2);
    else
        x = CORE__DO(scope, core_flip, x, &plane[turns == 1], 1);
    if (turns % 2)
        x = core__x_transpose(scope, x, plane[0], plane[1]);
    return core__scope_result(scope, x, &results[0]);
}

/* One block with zeros to its left and right; a vector is a row. */
static core_status block_row(const core_operator *op, core_tensor *block,
                             core_dtype dtype, int64_t before, int64_t width,
                             core_tensor **out)
{
    core__scope s;
    core_tensor *x;
    int64_t pad[2];

    if (block->ndim > 2)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "a block has %u dimensions; it may have at most 2", block->ndim);
    core__scope_begin(&s);
    x = core__x_cast(&s, block, dtype);
    for (uint32_t i = block->ndim; i < 2; i++)
        x = core__x_unsqueeze(&s, x, 0);
    pad[0] = before;
    pad[1] = x ? width - before - x->sizes[1] : 0;
    x = CORE__DO(&s, core_constant_pad_nd, x, pad, 2, core_int(0));
    return core__scope_finish(&s, x, out);
}

static int64_t block_width(const core_tensor *block)
{
    return block->ndim ? block->sizes[block->ndim - 1] : 1;
}

CORE__OP(block_diag)
{
    core_tensor *const *blocks = args[0].u.tensors;
    uint32_t count = args[0].count;
    core_tensor **rows = core__alloc((count + 1) * sizeof *rows);
    core_status status =
        rows ? CORE_OK : core__error_memory((count + 1) * sizeof *rows);
    core_dtype dtype = count ? blocks[0]->dtype : core__dtype_default();
    core_tensor *made = NULL;
    int64_t width = 0;
    int64_t before = 0;
    uint32_t done = 0;

    for (uint32_t i = 0; i < count; i++) {
        dtype = core__dtype_promote(dtype, blocks[i]->dtype);
        width += block_width(blocks[i]);
    }
    for (; status == CORE_OK && done < count; done++) {
        status = block_row(call->op, blocks[done], dtype, before, width,
                           &rows[done]);
        if (status != CORE_OK)
            break;
        before += block_width(blocks[done]);
    }
    if (status == CORE_OK && count > 0)
        status = core_cat(rows, count, 0, &made);
    else if (status == CORE_OK)
        status = core_zeros((const int64_t[]){1, 0}, 2, dtype, NULL, &made);
    core__result_tensor(&results[0], made);
    while (done)
        core_tensor_release(rows[--done]);
    core__free(rows);
    return status;
}

/* --------------------------------------------------------------- search -- */

static core_tensor *sorted_values(core__scope *scope, core_tensor *x)
{
    core_tensor *order = NULL;

    if (scope->status != CORE_OK)
        return NULL;
    x = core__scope_add(scope, core_sort(x, 0, false, &scope->pending, &order));
    core_tensor_release(order);
    return x;
}

/* isin(elements, test_elements, *, assume_unique, invert): searches each
 * element among the sorted test elements */
CORE__COMPOSITE(isin)
{
    core_tensor *x = args[0].u.tensor;
    core_tensor *tests = args[1].u.tensor;
    core_dtype dtype = core__dtype_promote(x->dtype, tests->dtype);
    bool invert = core__arg_bool(args, 3, false);
    core_tensor *at;

    if (tests->numel == 0) {
        x = CORE__DO(scope, core_full, x->sizes, x->ndim, core_bool(invert),
                     CORE_BOOL, x->device);
        return core__scope_result(scope, x, &results[0]);
    }
    x = core__x_detach(scope, core__x_cast(scope, x, dtype));
    tests = core__x_detach(scope, core__x_cast(scope, tests, dtype));
    tests = core__x_reshape(scope, tests, (const int64_t[]){-1}, 1);
    tests = sorted_values(scope, tests);
    at = CORE__DO(scope, core_bucketize, x, tests, false, false);
    at = CORE__DO(scope, core_clamp_max, at, core_int(tests->numel - 1));
    at = CORE__DO(scope, core_take, tests, at);
    x = invert ? core__x_ne(scope, at, x) : core__x_eq(scope, at, x);
    return core__scope_result(scope, x, &results[0]);
}

/* -------------------------------------------------------------- placing -- */

/* put(self, index, source, accumulate): on self as one row */
/* isin.Tensor_Scalar(elements, test_element, *, assume_unique, invert) */
CORE__COMPOSITE(isin_tensor_scalar)
{
    core_tensor *x = CORE__DO(scope, core_eq_scalar, args[0].u.tensor, args[1]);

    if (core__arg_bool(args, 3, false))
        x = core__x_logical_not(scope, x);
    return core__scope_result(scope, x, &results[0]);
}

/* isin.Scalar_Tensor(element, test_elements, *, assume_unique, invert) */
CORE__COMPOSITE(isin_scalar_tensor)
{
    core_tensor *x = CORE__DO(scope, core_eq_scalar, args[1].u.tensor, args[0]);

    x = CORE__DO(scope, core_any, x);
    if (core__arg_bool(args, 3, false))
        x = core__x_logical_not(scope, x);
    return core__scope_result(scope, x, &results[0]);
}

/* A number as a tensor that can be searched for among sorted ones; both become
 * floating if the number is. */
static core_tensor *searchable(core__scope *scope, const core_value *number,
                               core_tensor **sorted)
{
    if (number->tag == CORE_VALUE_FLOAT &&
        !core__dtype_is_floating((*sorted)->dtype))
        *sorted = core__x_cast(scope, *sorted, core__dtype_default());
    return CORE__DO(scope, core_new_full, *sorted, NULL, 0, *number,
                    CORE_DTYPE_NONE, NULL);
}

/* bucketize.Scalar(self, boundaries, *, out_int32, right) */
CORE__COMPOSITE(bucketize_scalar)
{
    core_tensor *sorted = args[1].u.tensor;
    core_tensor *x = searchable(scope, &args[0], &sorted);

    return core__scope_result(scope,
                              CORE__DO(scope, core_bucketize, x, sorted,
                                       core__arg_bool(args, 2, false),
                                       core__arg_bool(args, 3, false)),
                              &results[0]);
}

/* searchsorted.Scalar(sorted_sequence, self, *, out_int32, right, side,
 * sorter) */
CORE__COMPOSITE(searchsorted_scalar)
{
    core_tensor *sorted = args[0].u.tensor;
    core_tensor *x;

    if (sorted->ndim != 1)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "sorted_sequence must have 1 dimension to search "
                              "for a number, not %u",
                              sorted->ndim);
    x = searchable(scope, &args[1], &sorted);
    return core__scope_result(
        scope,
        CORE__DO(scope, core_searchsorted, sorted, x,
                 core__arg_bool(args, 2, false), core__arg_bool(args, 3, false),
                 args[4].tag == CORE_VALUE_STRING ? args[4].u.string : NULL,
                 core__tensor_of(&args[5])),
        &results[0]);
}

/* _unique(self, sorted, return_inverse) */
CORE__COMPOSITE(unique)
{
    core_tensor *out = NULL, *inverse = NULL, *counts = NULL;

    CORE__RUN(scope,
              core_unique2(args[0].u.tensor, core__arg_bool(args, 1, true),
                           core__arg_bool(args, 2, false), false, &out,
                           &inverse, &counts));
    core__scope_keep(scope, out);
    core__scope_keep(scope, inverse);
    core__scope_keep(scope, counts);
    CORE_TRY(core__scope_result(scope, out, &results[0]));
    return core__scope_result(scope, inverse, &results[1]);
}

static core_status unique_slices(core_tensor *self, int64_t dim, bool inverse,
                                 bool counts, core_tensor **out)
{
    return core_unique_consecutive(self, inverse, counts, &dim, &out[0],
                                   &out[1], &out[2]);
}

static core_status three_results(core__scope *scope, core_tensor *const *out,
                                 core_value *results)
{
    for (int i = 0; i < 3; i++)
        CORE_TRY(core__scope_result(scope, out[i], &results[i]));
    return CORE_OK;
}

/* unique_dim_consecutive(self, dim, return_inverse, return_counts) */
CORE__COMPOSITE(unique_dim_consecutive)
{
    core_tensor *out[3] = {NULL, NULL, NULL};

    CORE__RUN(scope, unique_slices(args[0].u.tensor, args[1].u.i,
                                   core__arg_bool(args, 2, false),
                                   core__arg_bool(args, 3, false), out));
    for (int i = 0; i < 3; i++)
        core__scope_keep(scope, out[i]);
    return three_results(scope, out, results);
}

/* Sorts the order of rows by one column, stably; takes over `order`. */
static core_status order_by(core_tensor *rows, int64_t column,
                            core_tensor **order)
{
    core_tensor *values = NULL, *places = NULL, *next = NULL;
    core_tensor *keys;
    core__scope s;

    core__scope_begin(&s);
    keys = CORE__DO(&s, core_select, rows, 1, column);
    if (rows->dtype == CORE_BOOL)
        keys = core__x_cast(&s, keys, CORE_U8);
    keys = CORE__DO(&s, core_index_select, keys, 0, *order);
    CORE__RUN(&s, core_sort_stable(keys, &(const bool){true}, 0, false, &values,
                                   &places));
    core__scope_keep(&s, values);
    core__scope_keep(&s, places);
    CORE_TRY(core__scope_finish(
        &s, CORE__DO(&s, core_index_select, *order, 0, places), &next));
    core__tensor_release(*order);
    *order = next;
    return CORE_OK;
}

/* The order of the slices along dim: by the last element first, so that equal
 * ones keep the order by later elements. */
static core_status slice_order(core__scope *scope, core_tensor *self,
                               uint32_t dim, core_tensor **out)
{
    int64_t n = self->sizes[dim];
    int64_t columns = n ? self->numel / n : 0;
    core_tensor *rows = CORE__DO(scope, core_movedim, self, dim, 0);
    core_tensor *order = NULL;
    core_status status;

    rows = core__x_reshape(scope, rows, (const int64_t[]){n, columns}, 2);
    if (scope->status != CORE_OK)
        return scope->status;
    status = core_arange(core_int(n), CORE_I64, self->device, &order);
    for (int64_t i = columns; status == CORE_OK && i-- > 0;)
        status = order_by(rows, i, &order);
    *out = core__scope_keep(scope, order);
    return status;
}

/* unique_dim(self, dim, sorted, return_inverse, return_counts): slices in
 * ascending order, their places and counts, whatever is asked for */
CORE__COMPOSITE(unique_dim)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *out[3] = {NULL, NULL, NULL};
    core_tensor *plain, *order;
    uint32_t dim;

    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &dim));
    if (self->ndim == 0 || self->numel == 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self has %u dimensions and %lld elements; it "
                              "must have at least one of both",
                              self->ndim, (long long)self->numel);
    plain = core__x_detach(scope, self);
    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(slice_order(scope, plain, dim, &order));
    self = CORE__DO(scope, core_index_select, self, dim, order);
    CORE__RUN(scope, unique_slices(self, dim, true, true, out));
    for (int i = 0; i < 3; i++)
        core__scope_keep(scope, out[i]);
    out[1] = CORE__DO(scope, core_scatter, core__x_zeros_like(scope, out[1]), 0,
                      order, out[1]);
    return three_results(scope, out, results);
}

CORE__COMPOSITE(put)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *index = args[1].u.tensor;
    core_tensor *source = args[2].u.tensor;
    const int64_t row = -1;
    core_tensor *x;

    if (index->dtype != CORE_I64)
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "index must be i64, not %s",
                              core__dtype_name(index->dtype));
    CORE_TRY(
        core__dtypes_check_equal(call->op, "self and source", self, source));
    if (index->numel != source->numel)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "index has %lld elements and source %lld; both "
                              "must have the same number",
                              (long long)index->numel,
                              (long long)source->numel);
    x = core__x_reshape(scope, self, (const int64_t[]){self->numel}, 1);
    index = core__x_reshape(scope, index, &row, 1);
    source = core__x_reshape(scope, source, &row, 1);
    x = CORE__DO(scope, core_index_put, x, &index, 1, source,
                 core__arg_bool(args, 3, false));
    x = core__x_reshape(scope, x, self->sizes, self->ndim);
    return core__scope_result(scope, x, &results[0]);
}

/* Expands a one-dimensional index along `dim` of a tensor of these sizes. */
static core_tensor *along(core__scope *scope, core_tensor *index, uint32_t dim,
                          uint32_t ndim, const int64_t *sizes)
{
    int64_t shape[CORE_MAX_NDIM];

    for (uint32_t i = 0; i < ndim; i++)
        shape[i] = i == dim ? sizes[i] : 1;
    index = core__x_reshape(scope, index, shape, ndim);
    return CORE__DO(scope, core_expand, index, sizes, ndim, false);
}

static core_status check_index(const core_operator *op, const core_tensor *self,
                               const core_tensor *index,
                               const core_tensor *source, uint32_t dim)
{
    int64_t wanted[CORE_MAX_NDIM];

    if (index->dtype != CORE_I64 && index->dtype != CORE_I32)
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "index must be i64 or i32, not %s",
                              core__dtype_name(index->dtype));
    CORE_TRY(core__dtypes_check_equal(op, "self and source", self, source));
    if (index->ndim > 1)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "index must have at most 1 dimension, not %u",
                              index->ndim);
    if (self->ndim == 0 && source->numel == index->numel && source->ndim < 2)
        return CORE_OK;
    memcpy(wanted, self->sizes, self->ndim * sizeof *wanted);
    wanted[dim] = index->numel;
    return core__sizes_check_equal(op, "source", source, self->ndim, wanted);
}

/* index_reduce(self, dim, index, source, reduce, *, include_self) */
CORE__COMPOSITE(index_reduce)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *index = args[2].u.tensor;
    core_tensor *source = args[3].u.tensor;
    const char *reduce = args[4].u.string;
    core_tensor *x = self;
    uint32_t dim;

    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &dim));
    CORE_TRY(check_index(call->op, self, index, source, dim));
    if (strcmp(reduce, "prod") != 0 && strcmp(reduce, "mean") != 0 &&
        strcmp(reduce, "amax") != 0 && strcmp(reduce, "amin") != 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "reduce must be \"prod\", \"mean\", \"amax\" or "
                              "\"amin\", not \"%s\"",
                              reduce);
    index = core__x_cast(scope, index, CORE_I64);
    if (self->ndim == 0) {
        x = core__x_reshape(scope, x, (const int64_t[]){1}, 1);
        source = core__x_reshape(scope, source, (const int64_t[]){-1}, 1);
        index = core__x_reshape(scope, index, (const int64_t[]){-1}, 1);
    } else {
        index = along(scope, index, dim, source->ndim, source->sizes);
    }
    x = CORE__DO(scope, core_scatter_reduce, x, dim, index, source, reduce,
                 core__arg_bool(args, 5, true));
    if (self->ndim == 0)
        x = core__x_reshape(scope, x, NULL, 0);
    return core__scope_result(scope, x, &results[0]);
}

/* max_unpool<n>d(self, indices, output_size, …): indices count in a plane of
 * the result */
static core_status unpool(core__scope *scope, const core_operator *op,
                          const core_value *args, uint32_t n,
                          core_value *result)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *indices = args[1].u.tensor;
    uint32_t before = self->ndim - n;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t flat[CORE_MAX_NDIM];
    core_tensor *x;

    if (self->ndim != n + 1 && self->ndim != n + 2)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "self must have %u or %u dimensions, not %u",
                              n + 1, n + 2, self->ndim);
    if (indices->dtype != CORE_I64)
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "indices must be i64, not %s",
                              core__dtype_name(indices->dtype));
    CORE_TRY(core__sizes_check_equal(op, "indices", indices, self->ndim,
                                     self->sizes));
    memcpy(sizes, self->sizes, before * sizeof *sizes);
    CORE_TRY(
        core__ints_fill(op, "output_size", &args[2], n, 1, sizes + before));
    CORE_TRY(core__sizes_check(op, self->ndim, sizes));
    memcpy(flat, sizes, before * sizeof *flat);
    flat[before] = 1;
    for (uint32_t i = 0; i < n; i++)
        flat[before] *= sizes[before + i];
    x = core__x_new_zeros(scope, self, flat, before + 1);
    flat[before] = 1;
    for (uint32_t i = 0; i < n; i++)
        flat[before] *= self->sizes[before + i];
    indices = core__x_reshape(scope, indices, flat, before + 1);
    self = core__x_reshape(scope, self, flat, before + 1);
    x = CORE__DO(scope, core_scatter, x, -1, indices, self);
    x = core__x_reshape(scope, x, sizes, before + n);
    return core__scope_result(scope, x, result);
}

CORE__COMPOSITE(max_unpool2d)
{
    return unpool(scope, call->op, args, 2, &results[0]);
}

/* max_unpool3d(self, indices, output_size, stride, padding): the last two only
 * have to be valid. */
CORE__COMPOSITE(max_unpool3d)
{
    int64_t stride[3], padding[3];

    CORE_TRY(core__ints_fill(call->op, "stride", &args[3], 3, 1, stride));
    CORE_TRY(core__ints_fill(call->op, "padding", &args[4], 3, 0, padding));
    for (uint32_t i = 0; i < 3; i++)
        if (stride[i] <= 0 || padding[i] < 0)
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, call->op,
                "a stride is %lld and its padding %lld; a "
                "stride must be above 0 and padding 0 or more",
                (long long)stride[i], (long long)padding[i]);
    return unpool(scope, call->op, args, 3, &results[0]);
}

/* ------------------------------------------------------------- segments -- */

/* Checks that every length is 0 or more and, if n is not negative, that they
 * add up to n.  Reads the data on the host. */
static core_status check_lengths(const core_operator *op, core_tensor *lengths,
                                 int64_t n)
{
    core__scope s;
    core_tensor *sum;
    core_tensor *all;
    bool good;

    core__scope_begin(&s);
    all = CORE__DO(&s, core_all,
                   CORE__DO(&s, core_ge_scalar, lengths, core_int(0)));
    if (n >= 0) {
        sum = core__x_sum_dim(&s, lengths, (const int64_t[]){-1}, 1, false);
        sum = CORE__DO(&s, core_all, core__x_eq_scalar(&s, sum, (double)n));
        all = core__x_logical_and(&s, all, sum);
    }
    good = core__read_all(&s, all);
    CORE_TRY(core__scope_end(&s));
    if (good)
        return CORE_OK;
    if (n < 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "offsets must not decrease");
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "lengths must not be negative, and add up to %lld, "
                          "the size of data along axis",
                          (long long)n);
}

/* Checks that offsets, which do not decrease, are from 0 to n. */
static core_status check_offsets(const core_operator *op, core_tensor *offsets,
                                 int64_t n)
{
    core__scope s;
    core_tensor *all;
    bool good;

    core__scope_begin(&s);
    all = core__x_logical_and(
        &s, CORE__DO(&s, core_ge_scalar, offsets, core_int(0)),
        CORE__DO(&s, core_le_scalar, offsets, core_int(n)));
    good = core__read_all(&s, all);
    CORE_TRY(core__scope_end(&s));
    if (good)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_INDEX, op,
        "offsets has an element outside 0 to %lld, the size of data along axis",
        (long long)n);
}

/* The lengths, as given or computed from offsets. */
static core_tensor *lengths_of(core__scope *scope, const core_value *args)
{
    core_tensor *x = core__tensor_of(&args[2]);
    core_tensor *from;
    int64_t n;

    if (x)
        return core__x_cast(scope, x, CORE_I64);
    x = core__x_cast(scope, args[4].u.tensor, CORE_I64);
    n = x ? x->sizes[x->ndim - 1] : 0;
    from = core__x_slice(scope, x, -1, 0, n - 1);
    return core__x_sub(scope, core__x_slice(scope, x, -1, 1, n), from);
}

typedef struct segments {
    const char *name;
    const char *reduce;
    double initial;
} segments;

static const segments reductions[] = {
    {"sum", "sum", 0},          {"mean", "sum", 0},        {"prod", "prod", 1},
    {"max", "amax", -INFINITY}, {"min", "amin", INFINITY},
};

static core_status check_segments(const core_operator *op,
                                  const core_value *args, uint32_t axis,
                                  const segments **out)
{
    core_tensor *data = args[0].u.tensor;
    core_tensor *lengths = core__tensor_of(&args[2]);
    core_tensor *given = lengths ? lengths : core__tensor_of(&args[4]);

    *out = NULL;
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        if (strcmp(args[1].u.string, reductions[i].name) == 0)
            *out = &reductions[i];
    if (!*out)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "reduce must be \"sum\", \"mean\", \"prod\", "
                              "\"max\" or \"min\", not \"%s\"",
                              args[1].u.string);
    if (args[3].tag != CORE_VALUE_NONE || !given)
        return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                              "segments are given by lengths or by offsets");
    if (!core__dtype_is_floating(data->dtype) ||
        !core__dtype_is_integer(given->dtype))
        return core__op_error(
            CORE_ERROR_DTYPE, op,
            "data is %s and its lengths or offsets %s; data must have a "
            "floating dtype and they an integer one",
            core__dtype_name(data->dtype), core__dtype_name(given->dtype));
    if (data->ndim == 0 || given->ndim != axis + 1 ||
        (!lengths && given->sizes[axis] == 0) ||
        memcmp(given->sizes, data->sizes, axis * sizeof *given->sizes) != 0)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "lengths or offsets must have the sizes of data "
                              "before axis %u, and one more",
                              axis);
    return CORE_OK;
}

/* For each element along axis, the number of edges at or before it.  Edges are
 * the ends of segments (lengths) or all their bounds (offsets). */
static core_tensor *segment_of(core__scope *scope, core_tensor *data,
                               core_tensor *edges, uint32_t axis)
{
    core_tensor *x = core__x_arange(scope, data, data->sizes[axis]);

    x = CORE__DO(scope, core_expand, x, data->sizes, axis + 1, false);
    x = CORE__DO(scope, core_searchsorted, edges, x, false, true, NULL, NULL);
    for (uint32_t i = axis + 1; i < data->ndim; i++)
        x = core__x_unsqueeze(scope, x, -1);
    return CORE__DO(scope, core_expand, x, data->sizes, data->ndim, false);
}

/* Sums divided by lengths; empty segments get `initial` or NaN. */
static core_tensor *segment_mean(core__scope *scope, core_tensor *x,
                                 core_tensor *lengths,
                                 const core_value *initial)
{
    core_tensor *count = lengths;

    for (uint32_t i = count ? count->ndim : 0; x && i < x->ndim; i++)
        count = core__x_unsqueeze(scope, count, -1);
    x = core__x_div(
        scope, x,
        core__x_cast(scope, CORE__DO(scope, core_clamp_min, count, core_int(1)),
                     x ? x->dtype : CORE_F32));
    if (initial->tag != CORE_VALUE_NONE)
        return x;
    return CORE__DO(scope, core_masked_fill, x,
                    core__x_eq_scalar(scope, count, 0), core_float(NAN));
}

/* segment_reduce(data, reduce, *, lengths, indices, offsets, axis, unsafe,
 * initial) */
CORE__COMPOSITE(segment_reduce)
{
    core_tensor *data = args[0].u.tensor;
    int64_t sizes[CORE_MAX_NDIM];
    const segments *kind;
    bool offsets = args[2].tag == CORE_VALUE_NONE;
    core_tensor *lengths;
    core_tensor *edges;
    core_tensor *x;
    uint32_t axis;

    CORE_TRY(
        core__dim_wrap(call->op, core__arg_int(args, 5, 0), data->ndim, &axis));
    CORE_TRY(check_segments(call->op, args, axis, &kind));
    lengths = lengths_of(scope, args);
    if (scope->status != CORE_OK)
        return scope->status;
    if (!core__arg_bool(args, 6, false))
        CORE_TRY(
            check_lengths(call->op, lengths, offsets ? -1 : data->sizes[axis]));
    if (!core__arg_bool(args, 6, false) && offsets)
        CORE_TRY(check_offsets(call->op, args[4].u.tensor, data->sizes[axis]));
    edges = offsets
                ? args[4].u.tensor
                : CORE__DO(scope, core_cumsum, lengths, axis, CORE_DTYPE_NONE);
    /* Elements outside all segments go to an extra segment at the end, or one
     * at each end. */
    memcpy(sizes, data->sizes, data->ndim * sizeof *sizes);
    sizes[axis] = lengths->sizes[axis] + (offsets ? 2 : 1);
    x = CORE__DO(scope, core_new_full, data, sizes, data->ndim,
                 core_float(args[7].tag == CORE_VALUE_NONE
                                ? kind->initial
                                : core__double_of(&args[7])),
                 CORE_DTYPE_NONE, NULL);
    x = CORE__DO(scope, core_scatter_reduce, x, axis,
                 segment_of(scope, data, edges, axis), data, kind->reduce,
                 true);
    x = core__x_slice(scope, x, axis, offsets, offsets + lengths->sizes[axis]);
    if (strcmp(kind->name, "mean") == 0)
        x = segment_mean(scope, x, lengths, &args[7]);
    return core__scope_result(scope, x, &results[0]);
}

/* ---------------------------------------------------- segments, backward -- */

/* A tensor with one entry per segment, for each element of data; elements
 * outside all segments get 0. */
static core_tensor *for_elements(core__scope *s, core_tensor *x,
                                 core_tensor *segment, uint32_t axis,
                                 bool offsets)
{
    int64_t pad[2 * CORE_MAX_NDIM] = {0};
    uint32_t behind = x ? x->ndim - 1 - axis : 0;

    pad[2 * behind] = offsets;
    pad[2 * behind + 1] = 1;
    x = CORE__DO(s, core_constant_pad_nd, x, pad, 2 * (behind + 1),
                 core_int(0));
    return CORE__DO(s, core_gather, x, axis, segment, false);
}

/* The product of the other elements of each element's segment, which exists
 * although the element is 0. */
static core_tensor *product_of_others(core__scope *s, core_tensor *data,
                                      core_tensor *output, core_tensor *segment,
                                      uint32_t axis, const int64_t *sizes,
                                      const core_value *initial)
{
    core_tensor *zero = core__x_eq_scalar(s, data, 0);
    core_tensor *count, *whole, *x;
    double first =
        initial->tag == CORE_VALUE_NONE ? 1 : core__double_of(initial);

    count = core__x_new_zeros(s, data, sizes, data->ndim);
    count = CORE__DO(s, core_scatter_add, count, axis, segment,
                     core__x_cast(s, zero, data->dtype));
    count = CORE__DO(s, core_gather, count, axis, segment, false);
    whole = CORE__DO(s, core_new_full, data, sizes, data->ndim,
                     core_float(first), CORE_DTYPE_NONE, NULL);
    whole = CORE__DO(s, core_scatter_reduce, whole, axis, segment,
                     CORE__DO(s, core_masked_fill, data, zero, core_int(1)),
                     "prod", true);
    whole = CORE__DO(s, core_gather, whole, axis, segment, false);
    x = core__x_div(s, output, data);
    x = core__x_where(s, zero, whole, x);
    /* A zero elsewhere in the segment makes the product 0. */
    count = core__x_sub(s, count, core__x_cast(s, zero, data->dtype));
    return core__x_zero_where(s, x,
                              CORE__DO(s, core_gt_scalar, count, core_int(0)));
}

/* The share of each element that equals the extremum of its segment. */
static core_tensor *extremum_share(core__scope *s, core_tensor *data,
                                   core_tensor *output, core_tensor *grad,
                                   core_tensor *segment, uint32_t axis,
                                   const int64_t *sizes)
{
    core_tensor *equal = core__x_eq(s, data, output);
    core_tensor *count = core__x_new_zeros(s, data, sizes, data->ndim);

    equal = core__x_logical_or(s, equal,
                               core__x_logical_and(s, core__x_isnan(s, data),
                                                   core__x_isnan(s, output)));
    equal = core__x_cast(s, equal, data->dtype);
    count = CORE__DO(s, core_scatter_add, count, axis, segment, equal);
    count = CORE__DO(s, core_gather, count, axis, segment, false);
    count = CORE__DO(s, core_clamp_min, count, core_int(1));
    return core__x_div(s, core__x_mul(s, grad, equal), count);
}

/* _segment_reduce_backward(grad, output, data, reduce, *, lengths, offsets,
 * axis, initial) */
CORE__COMPOSITE(segment_reduce_backward)
{
    core_tensor *data = args[2].u.tensor, *grad, *output, *x;
    /* in the order of segment_reduce */
    core_value own[8] = {args[2], args[3], args[4], {0},
                         args[5], args[6], {0},     args[7]};
    bool offsets = args[4].tag == CORE_VALUE_NONE;
    int64_t sizes[CORE_MAX_NDIM];
    core_tensor *lengths, *segment;
    const segments *kind;
    uint32_t axis;

    CORE_TRY(
        core__dim_wrap(call->op, core__arg_int(args, 6, 0), data->ndim, &axis));
    CORE_TRY(check_segments(call->op, own, axis, &kind));
    lengths = lengths_of(scope, own);
    segment =
        offsets ? args[5].u.tensor
                : CORE__DO(scope, core_cumsum, lengths, axis, CORE_DTYPE_NONE);
    if (scope->status != CORE_OK)
        return scope->status;
    segment = segment_of(scope, data, segment, axis);
    memcpy(sizes, data->sizes, data->ndim * sizeof *sizes);
    sizes[axis] = lengths->sizes[axis];
    for (int i = 0; i < 2; i++)
        CORE_TRY(core__sizes_check_equal(call->op, i ? "output" : "grad",
                                         args[i].u.tensor, data->ndim, sizes));
    sizes[axis] += offsets ? 2 : 1;
    grad = args[0].u.tensor;
    if (strcmp(kind->name, "mean") == 0)
        grad = segment_mean(scope, grad, lengths,
                            &(const core_value){CORE_VALUE_INT, 0, {0}});
    grad = for_elements(scope, grad, segment, axis, offsets);
    output = for_elements(scope, args[1].u.tensor, segment, axis, offsets);
    x = grad;
    if (strcmp(kind->name, "prod") == 0)
        x = core__x_mul(scope, grad,
                        product_of_others(scope, data, output, segment, axis,
                                          sizes, &args[7]));
    else if (kind->reduce[0] == 'a')
        x = extremum_share(scope, data, output, grad, segment, axis, sizes);
    return core__scope_result(scope, x, &results[0]);
}
