/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for operators that place, order or accumulate along dimensions, and
 * for factories. */

#include "ops/functions.h"
#include "ops/shape.h"

#include <math.h>
#include <string.h>

CORE__INFER(self_like)
{
    core__result_like(&infer->results[0], core__arg_tensor(infer->args, 0));
    return CORE_OK;
}

static core_status floating(const core__inference *infer,
                            const core_tensor *tensor)
{
    if (core__dtype_is_floating(tensor->dtype))
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, infer->op,
                          "self must have a floating dtype, not %s",
                          core__dtype_name(tensor->dtype));
}

/* stochastic_round(self, dtype, saturate, generator) */
CORE__INFER(stochastic_round)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    core_dtype dtype = core__arg_dtype(infer->args, 1, CORE_DTYPE_NONE);

    CORE_TRY(floating(infer, self));
    if (!core__dtype_is_storage(dtype))
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "dtype must be f8e4m3 or f8e5m2, not %s",
                              core__dtype_name(dtype));
    core__result_like(&infer->results[0], self);
    infer->results[0].dtype = dtype;
    return CORE_OK;
}

/* ------------------------------------------------------ along dimensions -- */

/* cumsum(self, dim, *, dtype): integers and bool accumulate as i64. */
CORE__INFER(cumulative)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    core_dtype dtype =
        core__dtype_is_floating(self->dtype) ? self->dtype : CORE_I64;
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, self->ndim, &dim));
    core__result_like(&infer->results[0], self);
    infer->results[0].dtype = core__arg_dtype(infer->args, 2, dtype);
    if (infer->op->variant == CORE__VARIANT_INPLACE &&
        core__arg_dtype(infer->args, 2, self->dtype) != self->dtype)
        return core__op_error(
            CORE_ERROR_DTYPE, infer->op,
            "dtype is %s, but self, which is changed in place, is %s",
            core__dtype_name(infer->results[0].dtype),
            core__dtype_name(self->dtype));
    return core__op_dtype_check(infer->op, infer->results[0].dtype);
}

/* _softmax(self, dim, half_to_float) */
CORE__INFER(softmax)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, self->ndim, &dim));
    CORE_TRY(floating(infer, self));
    core__result_like(&infer->results[0], self);
    if (core__arg_bool(infer->args, 2, false))
        infer->results[0].dtype = CORE_F32;
    return CORE_OK;
}

/* _softmax_backward_data(grad_output, output, dim, input_dtype) */
CORE__INFER(softmax_backward)
{
    const core_tensor *grad = core__arg_tensor(infer->args, 0);
    const core_tensor *output = core__arg_tensor(infer->args, 1);
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[2].u.i, grad->ndim, &dim));
    if (grad->ndim != output->ndim ||
        memcmp(grad->sizes, output->sizes, grad->ndim * sizeof(int64_t)) != 0)
        return core__op_shapes_error(infer->op, "grad_output", grad, "output",
                                     output, "they must be equal");
    core__result_like(&infer->results[0], grad);
    infer->results[0].dtype = core__arg_dtype(infer->args, 3, grad->dtype);
    return CORE_OK;
}

static core_status sorted(core__inference *infer, uint32_t position)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    uint32_t dim;

    CORE_TRY(
        core__dim_wrap(infer->op, infer->args[position].u.i, self->ndim, &dim));
    core__result_like(&infer->results[0], self);
    core__result_set(&infer->results[1], CORE_I64, self->ndim, self->sizes);
    return CORE_OK;
}

CORE__INFER(sort)
{
    return sorted(infer, 1);
}

CORE__INFER(sort_stable)
{
    return sorted(infer, 2);
}

/* Values and indices, with dim reduced. */
static core_status picked(core__inference *infer, uint32_t position)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    bool keepdim = core__arg_bool(infer->args, position + 1, false);
    core__result_spec *result = &infer->results[0];
    uint32_t dim;
    uint32_t ndim = 0;

    CORE_TRY(
        core__dim_wrap(infer->op, infer->args[position].u.i, self->ndim, &dim));
    if (self->ndim > 0 && self->sizes[dim] == 0)
        return core__op_error(
            CORE_ERROR_INDEX, infer->op,
            "dimension %u has size 0; it must have at least one element", dim);
    core__result_like(result, self);
    for (uint32_t i = 0; i < self->ndim; i++)
        if (i != dim || keepdim)
            result->sizes[ndim++] = i == dim ? 1 : self->sizes[i];
    result->ndim = ndim;
    core__result_set(&infer->results[1], CORE_I64, ndim, result->sizes);
    return CORE_OK;
}

/* kthvalue(self, k, dim, keepdim) */
CORE__INFER(kthvalue)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    int64_t k = infer->args[1].u.i;
    uint32_t dim;

    CORE_TRY(picked(infer, 2));
    CORE_TRY(core__dim_wrap(infer->op, infer->args[2].u.i, self->ndim, &dim));
    if (k < 1 || k > (self->ndim ? self->sizes[dim] : 1))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "k is %lld, but dimension %u has %lld elements",
                              (long long)k, dim,
                              (long long)(self->ndim ? self->sizes[dim] : 1));
    return CORE_OK;
}

/* median.dim(self, dim, keepdim) */
CORE__INFER(median_dim)
{
    return picked(infer, 1);
}

CORE__INFER(scalar_like)
{
    core__result_set(&infer->results[0],
                     core__arg_tensor(infer->args, 0)->dtype, 0, NULL);
    return CORE_OK;
}

/* cummax(self, dim) */
CORE__INFER(cumulative_extremum)
{
    return sorted(infer, 1);
}

/* Checks for a floating tensor and a valid dimension. */
CORE__INFER(softmax_like)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, self->ndim, &dim));
    CORE_TRY(floating(infer, self));
    core__result_like(&infer->results[0], self);
    return CORE_OK;
}

/* topk(self, k, dim, largest, sorted) */
CORE__INFER(topk)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    int64_t k = infer->args[1].u.i;
    int64_t size;
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[2].u.i, self->ndim, &dim));
    size = self->ndim == 0 ? 1 : self->sizes[dim];
    if (k < 0 || k > size)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "k is %lld, but dimension %u has %lld elements",
                              (long long)k, dim, (long long)size);
    core__result_like(&infer->results[0], self);
    if (self->ndim > 0)
        infer->results[0].sizes[dim] = k;
    core__result_set(&infer->results[1], CORE_I64, self->ndim,
                     infer->results[0].sizes);
    return CORE_OK;
}

CORE__INFER(flip)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    size_t count;
    const int64_t *dims = core__ints_of(&infer->args[1], &count);
    uint32_t seen = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t dim;

        CORE_TRY(core__dim_wrap(infer->op, dims[i], self->ndim, &dim));
        if (seen >> dim & 1)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                                  "dimension %u is given twice", dim);
        seen |= 1u << dim;
    }
    core__result_like(&infer->results[0], self);
    return CORE_OK;
}

CORE__INFER(roll)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    size_t shifts;
    size_t count;
    const int64_t *dims;

    core__ints_of(&infer->args[1], &shifts);
    dims = core__ints_of(&infer->args[2], &count);
    if (shifts == 0 || (count == 0 && shifts != 1) ||
        (count != 0 && count != shifts))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "shifts has %zu entries and dims %zu; both must have the same "
            "number, or dims none and shifts one",
            shifts, count);
    for (size_t i = 0; i < count; i++) {
        uint32_t dim;

        CORE_TRY(core__dim_wrap(infer->op, dims[i], self->ndim, &dim));
    }
    core__result_like(&infer->results[0], self);
    return CORE_OK;
}

/* tril, triu */
CORE__INFER(triangle)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    if (self->ndim < 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "self must have at least 2 dimensions, not %u",
                              self->ndim);
    core__result_like(&infer->results[0], self);
    return CORE_OK;
}

/* ----------------------------------------------------------------- cat -- */

/* Tensors of sizes [0] are ignored, whatever the rank of the others. */
static bool is_skipped(const core_tensor *tensor)
{
    return tensor->ndim == 1 && tensor->sizes[0] == 0;
}

static core_status cat_fits(const core__inference *infer, uint32_t i,
                            const core_tensor *tensor, const core_tensor *first,
                            uint32_t dim)
{
    bool fits = tensor->ndim == first->ndim;
    char have[256];
    char want[256];

    for (uint32_t d = 0; fits && d < tensor->ndim; d++)
        fits = d == dim || tensor->sizes[d] == first->sizes[d];
    if (fits)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, infer->op,
        "tensor %u has sizes %s; they must equal tensor 0's %s except in "
        "dimension %u",
        i, core__sizes_text(tensor->ndim, tensor->sizes, have, sizeof have),
        core__sizes_text(first->ndim, first->sizes, want, sizeof want), dim);
}

CORE__INFER(cat)
{
    const core_value *list = &infer->args[0];
    core__result_spec *result = &infer->results[0];
    const core_tensor *first = NULL;
    core_dtype dtype = CORE_DTYPE_NONE;
    int64_t length = 0;
    uint32_t dim = 0;

    if (list->count == 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "the list of tensors is empty");
    for (uint32_t i = 0; i < list->count; i++) {
        const core_tensor *tensor = list->u.tensors[i];

        if (!tensor)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                                  "tensor %u of the list is missing", i);
        if (tensor->ndim == 0)
            return core__op_shapes_error(
                infer->op, "tensor 0", list->u.tensors[0], "another one",
                tensor, "tensor %u has no dimensions", i);
        dtype =
            dtype ? core__dtype_promote(dtype, tensor->dtype) : tensor->dtype;
        if (is_skipped(tensor))
            continue;
        if (!first) {
            first = tensor;
            CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, first->ndim,
                                    &dim));
        }
        CORE_TRY(cat_fits(infer, i, tensor, first, dim));
        if (__builtin_add_overflow(length, tensor->sizes[dim], &length))
            return core__op_error(
                CORE_ERROR_SHAPE, infer->op,
                "the sizes of dimension %u add up to more than a size can be",
                dim);
    }
    if (!first) {
        first = list->u.tensors[0];
        CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, 1, &dim));
    }
    core__result_like(result, first);
    result->dtype = dtype;
    result->sizes[dim] = length;
    return core__sizes_check(infer->op, result->ndim, result->sizes);
}

/* ------------------------------------------------------------- padding -- */

/* pad: pairs (before, after), beginning with the last dimension. */
static core_status padded(core__inference *infer, const int64_t *pad,
                          size_t count)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    core__result_spec *result = &infer->results[0];

    if (count % 2 != 0 || count / 2 > self->ndim)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "pad has %zu entries and self %u dimensions; pad must have an even "
            "number of entries, at most two for each dimension",
            count, self->ndim);
    for (size_t k = 0; k < count; k++)
        CORE_TRY(core__size_operand_check(infer->op, "padding", pad[k]));
    core__result_like(result, self);
    for (size_t k = 0; k < count / 2; k++) {
        uint32_t dim = self->ndim - 1 - (uint32_t)k;

        result->sizes[dim] += pad[2 * k] + pad[2 * k + 1];
        if (result->sizes[dim] < 0)
            return core__op_error(CORE_ERROR_SHAPE, infer->op,
                                  "padding by %lld and %lld leaves a negative "
                                  "size in dimension %u of size %lld",
                                  (long long)pad[2 * k],
                                  (long long)pad[2 * k + 1], dim,
                                  (long long)self->sizes[dim]);
    }
    return core__sizes_check(infer->op, result->ndim, result->sizes);
}

CORE__INFER(constant_pad)
{
    size_t count;
    const int64_t *pad = core__ints_of(&infer->args[1], &count);

    return padded(infer, pad, count);
}

/* The number of spatial dimensions is in the name: "…_pad2d". */
static core_status border_padding(core__inference *infer, bool reflection)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const char *digit = strpbrk(infer->op->data->name, "123");
    uint32_t spatial = digit ? (uint32_t)(*digit - '0') : 1;
    int64_t pad[6];

    CORE_TRY(core__ints_fill(infer->op, "padding", &infer->args[1], 2 * spatial,
                             0, pad));
    if (self->ndim != spatial + 1 && self->ndim != spatial + 2)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "self must have %u dimensions, or %u with a batch, not %u",
            spatial + 1, spatial + 2, self->ndim);
    for (uint32_t k = 0; k < 2 * spatial; k++) {
        int64_t size = self->sizes[self->ndim - 1 - k / 2];

        if (size == 0 || (reflection && pad[k] >= size))
            return core__op_error(CORE_ERROR_SHAPE, infer->op,
                                  "padding is %lld, which a dimension of size "
                                  "%lld does not allow",
                                  (long long)pad[k], (long long)size);
    }
    return padded(infer, pad, 2 * spatial);
}

CORE__INFER(reflection_pad)
{
    return border_padding(infer, true);
}

CORE__INFER(replication_pad)
{
    return border_padding(infer, false);
}

/* ----------------------------------------------------------- factories -- */

static core_dtype factory_dtype(const core__inference *infer, core_dtype other)
{
    return core__arg_dtype(infer->args, infer->nargs - 4, other);
}

/* Counts whole numbers from start to below end; returns false if step does not
 * lead there. */
static bool count_whole_steps(int64_t start, int64_t end, int64_t step,
                              int64_t *out_count)
{
    int64_t width;

    if (step == 0 || __builtin_sub_overflow(end, start, &width) ||
        width == INT64_MIN || (width != 0 && (width < 0) != (step < 0)))
        return false;
    *out_count = width / step + (width % step != 0);
    return true;
}

/* Tests whether integers of 64 bits represent a number without its fraction. */
static bool fits_i64(const core_value *number)
{
    return number->tag != CORE_VALUE_FLOAT || fabs(number->u.f) < 0x1p63;
}

/* arange([start,] end, [step,] dtype, layout, device, pin_memory).  The numbers
 * as they are given determine the size; those of an integer dtype are then
 * truncated, so a step of 0.5 repeats the start. */
CORE__INFER(arange)
{
    static const core_value zero = {CORE_VALUE_INT, 0, {0}};
    static const core_value one = {CORE_VALUE_INT, 0, {1}};
    uint32_t given = infer->nargs - 4;
    const core_value *start = given > 1 ? &infer->args[0] : &zero;
    const core_value *end = &infer->args[given > 1 ? 1 : 0];
    const core_value *step = given > 2 ? &infer->args[2] : &one;
    bool whole = start->tag != CORE_VALUE_FLOAT &&
                 end->tag != CORE_VALUE_FLOAT && step->tag != CORE_VALUE_FLOAT;
    core_dtype dtype =
        factory_dtype(infer, whole ? CORE_I64 : core__dtype_default());
    double by = core__double_of(step);
    double count = ceil((core__double_of(end) - core__double_of(start)) / by);
    bool good = by != 0 && count >= 0 && count < 9e18;
    bool many = by != 0 && count >= 9e18 && !isinf(core__double_of(end)) &&
                !isinf(core__double_of(start));
    int64_t size = good ? (int64_t)count : 0;

    /* A fraction of a step in the wrong direction gives no elements, but is
     * still an error. */
    if (good && !whole)
        good = (core__double_of(end) - core__double_of(start)) / by >= 0;
    if (good && whole)
        good = count_whole_steps(core__int_of(start), core__int_of(end),
                                 core__int_of(step), &size);
    if (many)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "from %g to %g in steps of %g would be %g "
                              "elements, more than a tensor can have",
                              core__double_of(start), core__double_of(end), by,
                              count);
    if (!good)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "a step of %g does not lead from %g to %g", by,
                              core__double_of(start), core__double_of(end));
    if (core__dtype_is_integer(dtype) && !(fits_i64(start) && fits_i64(step)))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "a start of %g and a step of %g do not fit %s",
                              core__double_of(start), by,
                              core_dtype_name(dtype));
    CORE_TRY(core__sizes_check(infer->op, 1, &size));
    core__result_set(&infer->results[0], dtype, 1, &size);
    return core__op_dtype_check(infer->op, dtype);
}

CORE__INFER(linspace)
{
    int64_t steps = infer->args[2].u.i;

    if (steps < 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "steps is %lld; it must be 0 or more",
                              (long long)steps);
    CORE_TRY(core__sizes_check(infer->op, 1, &steps));
    core__result_set(&infer->results[0],
                     factory_dtype(infer, core__dtype_default()), 1, &steps);
    return core__op_dtype_check(infer->op, infer->results[0].dtype);
}

/* eye(n, …), eye.m(n, m, …) */
CORE__INFER(eye)
{
    int64_t rows = infer->args[0].u.i;
    int64_t columns = infer->nargs > 5 ? infer->args[1].u.i : rows;
    int64_t sizes[] = {rows, columns};

    if (rows < 0 || columns < 0)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "the sizes are %lld by %lld; both must be 0 or more",
            (long long)rows, (long long)columns);
    CORE_TRY(core__sizes_check(infer->op, 2, sizes));
    core__result_set(&infer->results[0],
                     factory_dtype(infer, core__dtype_default()), 2, sizes);
    return core__op_dtype_check(infer->op, infer->results[0].dtype);
}

/* The number of elements of a rows x columns matrix on and below the diagonal
 * `offset`, which is between -rows - 1 and columns: rows of 1, 2, … elements,
 * then full ones. */
static int64_t triangle_count(int64_t rows, int64_t columns, int64_t offset)
{
    int64_t first = offset < 0 ? -offset : 0;
    int64_t full = columns - 1 - offset;
    int64_t n;
    int64_t ends;

    if (first >= rows)
        return 0;
    full = full < first ? first : full > rows ? rows : full;
    n = full - first;
    ends = first + offset + 1 + full + offset;
    return (n % 2 == 0 ? n / 2 * ends : ends / 2 * n) + (rows - full) * columns;
}

/* tril_indices, triu_indices(row, col, offset, …) */
CORE__INFER(triangle_indices)
{
    int64_t rows = infer->args[0].u.i;
    int64_t columns = infer->args[1].u.i;
    int64_t offset = infer->args[2].u.i;
    bool upper = infer->op->data->name[3] == 'u';
    int64_t sizes[2] = {rows, columns};

    if (rows < 0 || columns < 0)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "the sizes are %lld by %lld; both must be 0 or more",
            (long long)rows, (long long)columns);
    CORE_TRY(core__sizes_check(infer->op, 2, sizes));
    /* Offsets beyond the corners make no difference. */
    offset = offset < -rows ? -rows : offset > columns ? columns : offset;
    sizes[0] = 2;
    sizes[1] = triangle_count(rows, columns, upper ? offset - 1 : offset);
    if (upper)
        sizes[1] = rows * columns - sizes[1];
    CORE_TRY(core__sizes_check(infer->op, 2, sizes));
    core__result_set(&infer->results[0], factory_dtype(infer, CORE_I64), 2,
                     sizes);
    return core__op_dtype_check(infer->op, infer->results[0].dtype);
}
