/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Packed sequences: the rows of samples of different lengths, those of each step
 * together.  Samples are sorted by length, the longest first. */

#include "base/memory.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <string.h>

/* The positive numbers of an i64 tensor that do not grow, on the host; freed by
 * the caller. */
static core_status numbers_read(const core_operator *op, const char *name,
                                core_tensor *tensor, int64_t **out)
{
    size_t bytes = (size_t)tensor->numel * sizeof(int64_t);
    core_status status;
    int64_t *numbers;

    if (tensor->ndim != 1 || tensor->dtype != CORE_I64 || tensor->numel < 1)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "%s has %u dimensions, dtype %s and %lld "
                              "elements; it must have 1, i64 and at least one",
                              name, tensor->ndim,
                              core__dtype_name(tensor->dtype),
                              (long long)tensor->numel);
    numbers = core__alloc_array((size_t)tensor->numel, sizeof *numbers);
    if (!numbers)
        return core__error_memory(bytes);
    status = core_tensor_read(tensor, numbers, bytes);
    for (int64_t i = 0; status == CORE_OK && i < tensor->numel; i++)
        if (numbers[i] < 1 || (i > 0 && numbers[i] > numbers[i - 1]))
            status = core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                    "%s[%lld] is %lld; numbers must be "
                                    "positive and not grow",
                                    name, (long long)i, (long long)numbers[i]);
    if (status == CORE_OK)
        *out = numbers;
    else
        core__free(numbers);
    return status;
}

/* counts[t] = how many of the lengths are above t, for t below lengths[0]; and
 * back, as lengths[b] is how many counts are above b. */
static int64_t *counts_of(const int64_t *lengths, int64_t n)
{
    int64_t *counts = core__alloc_array((size_t)lengths[0], sizeof *counts);

    for (int64_t t = 0; counts && t < lengths[0]; t++) {
        while (lengths[n - 1] <= t)
            n--;
        counts[t] = n;
    }
    return counts;
}

/* x[index] along the first dimension */
static core_tensor *rows_at(core__scope *scope, core_tensor *x,
                            const int64_t *index, int64_t count)
{
    core_tensor *places = NULL;

    if (scope->status != CORE_OK)
        return NULL;
    CORE__RUN(scope, core_tensor_from_data(index, CORE_I64, &count, 1,
                                           core_tensor_device(x), &places));
    places = core__scope_keep(scope, places);
    return CORE__DO(scope, core_index_select, x, 0, places);
}

/* A tensor of numbers on the CPU. */
static core_status numbers_result(const int64_t *numbers, int64_t count,
                                  core_value *result)
{
    core_tensor *tensor = NULL;

    CORE_TRY(
        core_tensor_from_data(numbers, CORE_I64, &count, 1, NULL, &tensor));
    core__result_tensor(result, tensor);
    return CORE_OK;
}

/* -------------------------------------------------------------- operators -- */

static core_status pack(core__scope *scope, core_tensor *x,
                        const int64_t *lengths, const int64_t *counts,
                        core_value *results)
{
    int64_t batch = x->sizes[1], total = 0, row = 0, rows;
    int64_t sizes[CORE_MAX_NDIM];
    core_status status;
    int64_t *index;

    for (int64_t b = 0; b < batch; b++)
        if (__builtin_add_overflow(total, lengths[b], &total))
            return core__error_memory(SIZE_MAX);
    if (__builtin_mul_overflow(x->sizes[0], batch, &rows))
        return core__error_memory(SIZE_MAX);
    index = core__alloc_array((size_t)total, sizeof *index);
    if (!index)
        return core__error_memory((size_t)total * sizeof *index);
    for (int64_t t = 0; t < lengths[0]; t++)
        for (int64_t b = 0; b < counts[t]; b++)
            index[row++] = t * batch + b;
    memcpy(sizes, x->sizes + 1, (x->ndim - 1) * sizeof *sizes);
    sizes[0] = rows;
    x = core__x_reshape(scope, x, sizes, x->ndim - 1);
    x = rows_at(scope, x, index, total);
    core__free(index);
    status = core__scope_result(scope, x, &results[0]);
    if (status == CORE_OK)
        status = numbers_result(counts, lengths[0], &results[1]);
    return status;
}

/* _pack_padded_sequence(input, lengths, batch_first) -> (data, batch_sizes) */
CORE__COMPOSITE(pack_padded_sequence)
{
    core_tensor *x = args[0].u.tensor, *lengths = args[1].u.tensor;
    bool batch_first = args[2].u.i != 0;
    int64_t *numbers = NULL, *counts;
    core_status status;

    if (x->ndim < 2 || lengths->numel != x->sizes[!batch_first])
        return core__op_shapes_error(call->op, "input", x, "lengths", lengths,
                                     "input must have 2 dimensions or more, "
                                     "and lengths a number for each sample");
    CORE_TRY(numbers_read(call->op, "lengths", lengths, &numbers));
    if (numbers[0] > x->sizes[batch_first]) {
        status = core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                                "lengths[0] is %lld; input has %lld steps",
                                (long long)numbers[0],
                                (long long)x->sizes[batch_first]);
        core__free(numbers);
        return status;
    }
    if (batch_first)
        x = core__x_transpose(scope, x, 0, 1);
    status = scope->status;
    counts = counts_of(numbers, lengths->numel);
    if (status == CORE_OK && !counts)
        status = core__error_memory((size_t)numbers[0] * sizeof *counts);
    if (status == CORE_OK)
        status = pack(scope, x, numbers, counts, results);
    core__free(counts);
    core__free(numbers);
    return status;
}

/* The rows of packed data in [steps, batch, ..], with a row of the padding
 * where a sample has ended. */
static core_status unpack(core__scope *scope, core_tensor *data,
                          const int64_t *counts, int64_t ncounts, int64_t steps,
                          core_scalar padding, core_tensor **out)
{
    int64_t batch = counts[0], row = 0, rows = data->sizes[0];
    int64_t sizes[CORE_MAX_NDIM];
    core_tensor *parts[2] = {data, NULL}, *x;
    int64_t *index, places;

    if (__builtin_mul_overflow(steps, batch, &places))
        return core__error_memory(SIZE_MAX);
    index = core__alloc_array((size_t)places, sizeof *index);
    if (!index)
        return core__error_memory((size_t)places * sizeof *index);
    for (int64_t t = 0; t < steps; t++)
        for (int64_t b = 0; b < batch; b++)
            index[t * batch + b] = t < ncounts && b < counts[t] ? row++ : rows;
    memcpy(sizes + 1, data->sizes, data->ndim * sizeof *sizes);
    sizes[1] = 1;
    parts[1] = CORE__DO(scope, core_full, sizes + 1, data->ndim, padding,
                        data->dtype, core_tensor_device(data));
    x = CORE__DO(scope, core_cat, parts, 2, 0);
    x = rows_at(scope, x, index, places);
    core__free(index);
    sizes[0] = steps;
    sizes[1] = batch;
    *out = core__x_reshape(scope, x, sizes, data->ndim + 1);
    return scope->status;
}

/* _pad_packed_sequence(data, batch_sizes, batch_first, padding_value,
 * total_length) -> (padded, lengths): total_length is at least the longest
 * sample's, or not positive for that. */
CORE__COMPOSITE(pad_packed_sequence)
{
    core_tensor *data = args[0].u.tensor, *batch_sizes = args[1].u.tensor;
    int64_t steps = args[4].u.i, n = batch_sizes->numel, total = 0;
    int64_t *counts = NULL, *lengths = NULL;
    core_tensor *x = NULL;
    core_status status;

    CORE_TRY(numbers_read(call->op, "batch_sizes", batch_sizes, &counts));
    for (int64_t t = 0; t < n && total <= INT64_MAX / 2; t++)
        total += counts[t] < INT64_MAX / 4 ? counts[t] : INT64_MAX / 4;
    if (data->ndim < 1 || data->ndim >= CORE_MAX_NDIM ||
        total != data->sizes[0])
        status = core__op_error(CORE_ERROR_SHAPE, call->op,
                                "batch_sizes add up to %lld; data must have "
                                "as many rows",
                                (long long)total);
    else if (steps > 0 && (steps < n || steps > INT32_MAX))
        status = core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                                "total_length is %lld; the longest sample has "
                                "%lld steps",
                                (long long)steps, (long long)n);
    else
        status =
            unpack(scope, data, counts, n, steps > 0 ? steps : n, args[3], &x);
    if (status == CORE_OK && args[2].u.i != 0)
        x = core__x_transpose(scope, x, 0, 1);
    if (status == CORE_OK)
        status = core__scope_result(scope, x, &results[0]);
    if (status == CORE_OK) {
        lengths = counts_of(counts, n);
        status = lengths
                     ? numbers_result(lengths, counts[0], &results[1])
                     : core__error_memory((size_t)counts[0] * sizeof *counts);
    }
    core__free(lengths);
    core__free(counts);
    return status;
}
