/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for operators that take indices. */

#include "ops/functions.h"
#include "ops/shape.h"

#include <string.h>

static core_status index_dtype(const core_operator *op, const char *name,
                               const core_tensor *index)
{
    if (index->dtype == CORE_I64 || index->dtype == CORE_I32 ||
        index->numel == 0)
        return CORE_OK; /* the dtype of an empty list does not matter */
    return core__op_error(CORE_ERROR_DTYPE, op, "%s must be i64 or i32, not %s",
                          name, core__dtype_name(index->dtype));
}

static core_status same_dtype(const core_operator *op, const char *name,
                              const core_tensor *tensor,
                              const core_tensor *self)
{
    if (tensor->dtype == self->dtype)
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, op,
                          "%s is %s and self %s; they must have the same dtype",
                          name, core__dtype_name(tensor->dtype),
                          core__dtype_name(self->dtype));
}

/* Here a 0-dim tensor counts as one element. */
static uint32_t rank_of(const core_tensor *tensor)
{
    return tensor->ndim == 0 ? 1 : tensor->ndim;
}

static int64_t size_of(const core_tensor *tensor, uint32_t dim)
{
    return tensor->ndim == 0 ? 1 : tensor->sizes[dim];
}

/* Checks that index is within the other tensor in each dimension except dim. */
static core_status check_within(const core_operator *op,
                                const core_tensor *index, const char *name,
                                const core_tensor *other, uint32_t dim,
                                bool skip_dim)
{
    char text[256];
    char text_other[256];
    bool fits = rank_of(index) == rank_of(other);

    for (uint32_t i = 0; fits && i < rank_of(index); i++)
        fits = (skip_dim && i == dim) || size_of(index, i) <= size_of(other, i);
    if (fits)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op,
        "index has sizes %s, which do not fit into %s of sizes %s%s",
        core__sizes_text(index->ndim, index->sizes, text, sizeof text), name,
        core__sizes_text(other->ndim, other->sizes, text_other,
                         sizeof text_other),
        skip_dim ? " apart from the dimension that is indexed" : "");
}

/* Every index is out of range if the dimension is empty.  Checked here, since a
 * kernel with an empty result would not report it. */
static core_status check_not_empty(const core_operator *op,
                                   const core_tensor *index,
                                   const core_tensor *self, uint32_t dim)
{
    if (index->numel == 0 || size_of(self, dim) > 0)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_INDEX, op,
        "index has %lld elements, but dimension %u of self has size 0",
        (long long)index->numel, dim);
}

/* gather(self, dim, index) */
CORE__INFER(gather)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *index = core__arg_tensor(infer->args, 2);
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, self->ndim, &dim));
    CORE_TRY(index_dtype(infer->op, "index", index));
    if (index->numel > 0)
        CORE_TRY(check_within(infer->op, index, "self", self, dim, true));
    core__result_set(&infer->results[0], self->dtype, index->ndim,
                     index->sizes);
    return CORE_OK;
}

/* scatter…(self, dim, index, src or value, …) */
/* scatter.reduce, scatter.value_reduce and scatter_reduce take the reduction's
 * name; kernels know the names of both operators. */
static core_status check_reduce(const core__inference *infer)
{
    static const char *const names[] = {"sum",  "prod", "mean",    "amax",
                                        "amin", "add",  "multiply"};
    const core_value *reduce = &infer->args[4];

    if (infer->nargs < 5 || reduce->tag != CORE_VALUE_STRING)
        return CORE_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(reduce->u.string, names[i]) == 0)
            return CORE_OK;
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, infer->op,
        "reduce must be \"sum\" or \"add\", \"prod\" or \"multiply\", "
        "\"mean\", \"amax\" or \"amin\", not \"%.32s\"",
        reduce->u.string);
}

CORE__INFER(scatter)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *index = core__arg_tensor(infer->args, 2);
    const core_tensor *src = core__arg_tensor(infer->args, 3);
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, self->ndim, &dim));
    CORE_TRY(check_reduce(infer));
    core__result_like(&infer->results[0], self);
    CORE_TRY(index_dtype(infer->op, "index", index));
    if (src)
        CORE_TRY(same_dtype(infer->op, "src", src, self));
    if (index->numel == 0)
        return CORE_OK;
    if (src)
        CORE_TRY(check_within(infer->op, index, "src", src, dim, false));
    CORE_TRY(check_within(infer->op, index, "self", self, dim, true));
    return check_not_empty(infer->op, index, self, dim);
}

static core_status vector_of_indices(const core_operator *op,
                                     const core_tensor *index)
{
    CORE_TRY(index_dtype(op, "index", index));
    if (index->ndim > 1)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "index must have at most 1 dimension, not %u",
                              index->ndim);
    return CORE_OK;
}

CORE__INFER(index_select)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *index = core__arg_tensor(infer->args, 2);
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, self->ndim, &dim));
    CORE_TRY(vector_of_indices(infer->op, index));
    CORE_TRY(check_not_empty(infer->op, index, self, dim));
    core__result_like(&infer->results[0], self);
    if (self->ndim > 0)
        infer->results[0].sizes[dim] = index->numel;
    else if (index->numel != 1)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "index has %lld elements; it must have one, as "
                              "self has no dimensions",
                              (long long)index->numel);
    return CORE_OK;
}

/* index_add, index_copy(self, dim, index, source) */
CORE__INFER(index_write)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *index = core__arg_tensor(infer->args, 2);
    const core_tensor *source = core__arg_tensor(infer->args, 3);
    uint32_t dim;
    bool fits;
    char have[256];
    char want[256];

    CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, self->ndim, &dim));
    CORE_TRY(vector_of_indices(infer->op, index));
    CORE_TRY(same_dtype(infer->op, "source", source, self));
    fits = rank_of(source) == rank_of(self);
    for (uint32_t i = 0; fits && i < rank_of(self); i++)
        fits =
            size_of(source, i) == (i == dim ? index->numel : size_of(self, i));
    if (!fits)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "source has sizes %s, which do not fit %lld indices into dimension "
            "%u of self's %s",
            core__sizes_text(source->ndim, source->sizes, have, sizeof have),
            (long long)index->numel, dim,
            core__sizes_text(self->ndim, self->sizes, want, sizeof want));
    if (infer->nargs > 4) /* alpha of index_add; index_copy has none */
        CORE_TRY(core__number_check_whole(infer->op, "alpha", &infer->args[4],
                                          self->dtype));
    core__result_like(&infer->results[0], self);
    return check_not_empty(infer->op, index, self, dim);
}

CORE__INFER(index_fill)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *index = core__arg_tensor(infer->args, 2);
    const core_tensor *value = core__arg_tensor(infer->args, 3);
    uint32_t dim;

    CORE_TRY(core__dim_wrap(infer->op, infer->args[1].u.i, self->ndim, &dim));
    CORE_TRY(vector_of_indices(infer->op, index));
    CORE_TRY(check_not_empty(infer->op, index, self, dim));
    if (value && value->ndim > 0)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "value must have no dimensions, not %u",
                              value->ndim);
    if (value)
        CORE_TRY(same_dtype(infer->op, "value", value, self));
    else
        CORE_TRY(core__number_check_range(infer->op, "value", &infer->args[3],
                                          self->dtype));
    core__result_like(&infer->results[0], self);
    return CORE_OK;
}

/* The sizes of self[indices].  The indices have one shape, which replaces the
 * indexed dimensions if these are adjacent, and otherwise comes first. */
static core_status indexed(core__inference *infer, uint32_t *out_ndim,
                           int64_t *out_sizes)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_value *list = &infer->args[1];
    const core_tensor *index = NULL;
    uint32_t first = 0;
    uint32_t runs = 0;
    uint32_t ndim = 0;
    uint32_t place;

    if (list->count > self->ndim)
        return core__op_error(
            CORE_ERROR_INDEX, infer->op,
            "%u indices are given for a self with %u dimensions", list->count,
            self->ndim);
    for (uint32_t i = 0; i < list->count; i++) {
        if (!list->u.tensors[i])
            continue;
        CORE_TRY(index_dtype(infer->op, "an index", list->u.tensors[i]));
        CORE_TRY(check_not_empty(infer->op, list->u.tensors[i], self, i));
        if (!index)
            first = i;
        else
            CORE_TRY(core__sizes_check_equal(infer->op, "an index",
                                             list->u.tensors[i], index->ndim,
                                             index->sizes));
        if (i == 0 || !list->u.tensors[i - 1])
            runs++;
        index = list->u.tensors[i];
    }
    place = runs == 1 ? first : 0;
    for (uint32_t i = 0; i <= self->ndim; i++) {
        if (index && ndim == place && (i == place || runs > 1)) {
            CORE_TRY(core__ndim_check(infer->op, self->ndim + index->ndim));
            memcpy(out_sizes + ndim, index->sizes,
                   index->ndim * sizeof *out_sizes);
            ndim += index->ndim;
            index = NULL;
        }
        if (i < self->ndim && (i >= list->count || !list->u.tensors[i]))
            out_sizes[ndim++] = self->sizes[i];
    }
    *out_ndim = ndim;
    return CORE_OK;
}

CORE__INFER(index)
{
    core__result_spec *result = &infer->results[0];
    int64_t sizes[2 * CORE_MAX_NDIM];
    uint32_t ndim;

    CORE_TRY(indexed(infer, &ndim, sizes));
    CORE_TRY(core__ndim_check(infer->op, ndim));
    core__result_set(result, core__arg_tensor(infer->args, 0)->dtype, ndim,
                     sizes);
    return CORE_OK;
}

CORE__INFER(index_put)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *values = core__arg_tensor(infer->args, 2);
    int64_t sizes[2 * CORE_MAX_NDIM];
    uint32_t ndim;
    bool fits;
    char have[256];
    char want[256];

    CORE_TRY(indexed(infer, &ndim, sizes));
    CORE_TRY(core__ndim_check(infer->op, ndim));
    CORE_TRY(same_dtype(infer->op, "values", values, self));
    fits = values->ndim <= ndim;
    for (uint32_t i = 0; fits && i < values->ndim; i++) {
        int64_t size = values->sizes[values->ndim - 1 - i];

        fits = size == 1 || size == sizes[ndim - 1 - i];
    }
    if (!fits)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "values of sizes %s do not broadcast to the indexed part's %s",
            core__sizes_text(values->ndim, values->sizes, have, sizeof have),
            core__sizes_text(ndim, sizes, want, sizeof want));
    core__result_like(&infer->results[0], self);
    return CORE_OK;
}

CORE__INFER(masked_scatter)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *mask = core__arg_tensor(infer->args, 1);
    const core_tensor *source = core__arg_tensor(infer->args, 2);
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim;

    if (mask->dtype != CORE_BOOL)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "mask must be bool, not %s",
                              core__dtype_name(mask->dtype));
    CORE_TRY(same_dtype(infer->op, "source", source, self));
    CORE_TRY(core__sizes_broadcast(infer->op, self->ndim, self->sizes,
                                   mask->ndim, mask->sizes, &ndim, sizes));
    CORE_TRY(core__sizes_check_equal(
        infer->op, "self, which mask must broadcast to,", self, ndim, sizes));
    core__result_like(&infer->results[0], self);
    return CORE_OK;
}

/* masked_select(self, mask): the number of results depends on data. */
CORE__INFER(masked_select)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *mask = core__arg_tensor(infer->args, 1);
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim;

    if (mask->dtype != CORE_BOOL)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "mask must be bool, not %s",
                              core__dtype_name(mask->dtype));
    CORE_TRY(core__sizes_broadcast(infer->op, self->ndim, self->sizes,
                                   mask->ndim, mask->sizes, &ndim, sizes));
    return core__sizes_check(infer->op, ndim, sizes);
}

CORE__INFER(take)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *index = core__arg_tensor(infer->args, 1);

    CORE_TRY(index_dtype(infer->op, "index", index));
    if (index->numel > 0 && self->numel == 0)
        return core__op_error(CORE_ERROR_INDEX, infer->op,
                              "index has %lld elements, but self has none",
                              (long long)index->numel);
    core__result_set(&infer->results[0], self->dtype, index->ndim,
                     index->sizes);
    return CORE_OK;
}

/* embedding(weight, indices, …) */
CORE__INFER(embedding)
{
    const core_tensor *weight = core__arg_tensor(infer->args, 0);
    const core_tensor *indices = core__arg_tensor(infer->args, 1);
    core__result_spec *result = &infer->results[0];

    if (weight->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "weight must have 2 dimensions, not %u",
                              weight->ndim);
    CORE_TRY(index_dtype(infer->op, "indices", indices));
    CORE_TRY(core__ndim_check(infer->op, indices->ndim + 1));
    core__result_set(result, weight->dtype, indices->ndim, indices->sizes);
    result->sizes[result->ndim++] = weight->sizes[1];
    return CORE_OK;
}

/* embedding_dense_backward(grad_output, indices, num_weights, …) */
CORE__INFER(embedding_backward)
{
    const core_tensor *grad = core__arg_tensor(infer->args, 0);
    const core_tensor *indices = core__arg_tensor(infer->args, 1);
    int64_t sizes[2] = {infer->args[2].u.i, 0};
    int64_t forward[CORE_MAX_NDIM];

    if (grad->ndim == 0)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "grad_output has no dimensions; it must have at least 1");
    CORE_TRY(index_dtype(infer->op, "indices", indices));
    CORE_TRY(core__ndim_check(infer->op, indices->ndim + 1));
    memcpy(forward, indices->sizes, indices->ndim * sizeof *forward);
    forward[indices->ndim] = grad->sizes[grad->ndim - 1];
    CORE_TRY(core__sizes_check_equal(infer->op, "grad_output", grad,
                                     indices->ndim + 1, forward));
    sizes[1] = grad->sizes[grad->ndim - 1];
    CORE_TRY(core__sizes_check(infer->op, 2, sizes));
    core__result_set(&infer->results[0], grad->dtype, 2, sizes);
    return CORE_OK;
}

/* multinomial(self, num_samples, …): [n] or [rows, n] weights */
CORE__INFER(multinomial)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    int64_t samples = infer->args[1].u.i;
    core__result_spec *result = &infer->results[0];

    if (self->ndim == 0 || self->ndim > 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "self must have 1 or 2 dimensions, not %u",
                              self->ndim);
    if (samples <= 0 || (!core__arg_bool(infer->args, 2, false) &&
                         samples > self->sizes[self->ndim - 1]))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "num_samples is %lld and self has %lld categories; num_samples "
            "must be above 0 and, without replacement, not exceed them",
            (long long)samples, (long long)self->sizes[self->ndim - 1]);
    if (self->sizes[self->ndim - 1] == 0 && (self->ndim == 1 || self->sizes[0]))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "self has no categories to draw from");
    core__result_set(result, CORE_I64, self->ndim, self->sizes);
    result->sizes[self->ndim - 1] = samples;
    return core__sizes_check(infer->op, result->ndim, result->sizes);
}
