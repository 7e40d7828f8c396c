/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators for which the samples are one more dimension: whose arguments count
 * dimensions, that accept leading dimensions, or that have samples already. */

#include "transform/batch.h"

#include "ops_ids.h"

#include <string.h>

/* ------------------------------------------------------- dimensions count -- */

/* The arguments of a call in which the samples come first.  `ints` holds the
 * lists of dimensions. */
typedef struct shifted {
    core_value args[CORE__SCHEMA_ARGUMENTS];
    int64_t ints[2][CORE_MAX_NDIM + 1];
    uint32_t lists;
} shifted;

/* ndim: that of one sample, which negative dimensions count from. */
static core_status shift_dims(const core__batch *batch, shifted *s,
                              uint32_t ndim)
{
    for (uint32_t left = batch->row->dims; left; left &= left - 1) {
        core_value *value = &s->args[__builtin_ctz(left)];

        if (value->tag == CORE_VALUE_INT) {
            CORE_TRY(core__batch_shift(batch, &value->u.i, ndim));
        } else if (value->tag == CORE_VALUE_INT_LIST) {
            int64_t *dims = s->ints[s->lists];

            if (value->count > CORE_MAX_NDIM || s->lists == 2)
                return core__op_error(CORE_ERROR_INDEX, batch->op,
                                      "%u dimensions are given; a tensor has "
                                      "at most %d",
                                      value->count, CORE_MAX_NDIM);
            s->lists++;
            for (uint32_t k = 0; k < value->count; k++) {
                dims[k] = value->u.ints[k];
                CORE_TRY(core__batch_shift(batch, &dims[k], ndim));
            }
            value->u.ints = dims;
        }
    }
    return CORE_OK;
}

/* Samples of tensors without dimensions, which dimension 0 or -1 of an operator
 * may mean, have one of size 1 for the call. */
static core_status results_of_scalars(core__batch *batch, core_value *args)
{
    core_value values[CORE__SCHEMA_RESULTS];

    CORE_TRY(core__batch_compute(batch, batch->op, args, batch->nargs, values,
                                 batch->nresults));
    for (uint32_t i = 0; i < batch->nresults; i++) {
        core_tensor *tensor;

        if (values[i].tag != CORE_VALUE_TENSOR || values[i].u.tensor->ndim != 2)
            continue;
        tensor = core__scope_keep(&batch->scope, values[i].u.tensor);
        values[i] = (core_value){0};
        tensor = CORE__DO(&batch->scope, core_squeeze_dim, tensor, 1);
        if (batch->scope.status == CORE_OK) {
            core__tensor_retain(tensor);
            values[i] = core_pack_tensor(tensor);
        }
    }
    return core__batch_results(batch, values, 0);
}

core_status core__batch_dims(core__batch *batch)
{
    core__operand first = core__batch_operand(batch, 0);
    bool unsqueezes = batch->op->id == CORE_OP_UNSQUEEZE;
    uint32_t tensors = 0, scalars = 0;
    shifted s = {.lists = 0};

    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        s.args[i] = batch->args[i];
        if (!o.tensor)
            continue;
        tensors++;
        s.args[i].u.tensor = core__batch_full(batch, &o);
        if (o.ndim == 0 && !unsqueezes) {
            scalars++;
            s.args[i].u.tensor =
                core__x_unsqueeze(&batch->scope, s.args[i].u.tensor, 1);
        }
    }
    CORE_TRY(batch->scope.status);
    CORE_TRY(shift_dims(batch, &s, first.ndim + (unsqueezes ? 1u : 0u)));
    if (scalars && (scalars == tensors || batch->op->id != CORE_OP_GATHER))
        return results_of_scalars(batch, s.args);
    return core__batch_invoke(batch, batch->op, s.args, batch->nargs, 0);
}

/* ----------------------------------------------------- leading dimensions -- */

core_status core__batch_leading(core__batch *batch)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];

    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        args[i] = batch->args[i];
        if (o.tensor)
            args[i].u.tensor = core__batch_full(batch, &o);
    }
    return core__batch_invoke(batch, batch->op, args, batch->nargs, 0);
}

core_status core__batch_pointwise(core__batch *batch)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];
    uint32_t ndim = 0;

    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        if (o.tensor && o.ndim > ndim)
            ndim = o.ndim;
    }
    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        args[i] = batch->args[i];
        if (!o.tensor)
            continue;
        args[i].u.tensor = core__batch_full(batch, &o);
        for (uint32_t k = o.ndim; k < ndim; k++)
            args[i].u.tensor =
                core__x_unsqueeze(&batch->scope, args[i].u.tensor, 1);
    }
    return core__batch_invoke(batch, batch->op, args, batch->nargs, 0);
}

core_status core__batch_same(core__batch *batch)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core__operand o = core__batch_operand(batch, 0);

    memcpy(args, batch->args, batch->nargs * sizeof *args);
    args[0].u.tensor = o.tensor;
    return core__batch_invoke(batch, batch->op, args, batch->nargs, o.dim);
}

/* ----------------------------------------------------- samples, as in pools -- */

/* A list argument that begins with the number of samples: input_size. */
static void multiply_sizes(const core__batch *batch, core_value *args,
                           int64_t *sizes)
{
    uint32_t rank = batch->row->rank;

    for (uint32_t i = 0; i < batch->nargs; i++) {
        if (args[i].tag != CORE_VALUE_INT_LIST || args[i].count != rank + 1 ||
            rank < 2 || !strstr(core__operator_name(batch->op), "upsample"))
            continue;
        memcpy(sizes, args[i].u.ints, args[i].count * sizeof *sizes);
        sizes[0] *= batch->batching->size;
        args[i].u.ints = sizes;
    }
}

/* The results of the merged call, divided again. */
static core_status split_results(core__batch *batch, core_value *args)
{
    core_value values[CORE__SCHEMA_RESULTS];

    CORE_TRY(core__batch_compute(batch, batch->op, args, batch->nargs, values,
                                 batch->nresults));
    for (uint32_t i = 0; i < batch->nresults; i++) {
        core_tensor *tensor;

        if (values[i].tag != CORE_VALUE_TENSOR)
            continue;
        tensor = core__batch_split(
            batch, core__scope_keep(&batch->scope, values[i].u.tensor), 0);
        values[i] = (core_value){0};
        if (batch->scope.status == CORE_OK) {
            core__tensor_retain(tensor);
            values[i] = core_pack_tensor(tensor);
        }
    }
    return core__batch_results(batch, values, 0);
}

core_status core__batch_merge(core__batch *batch)
{
    uint32_t rank = batch->row->rank & (CORE__BATCH_RANDOM - 1u);
    core_value args[CORE__SCHEMA_ARGUMENTS];
    int64_t sizes[CORE_MAX_NDIM + 1];
    bool merged = core__batch_operand(batch, 0).ndim == rank + 1;

    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        args[i] = batch->args[i];
        if (!o.tensor)
            continue;
        if (o.ndim != rank + merged)
            return core__batch_loop(batch);
        args[i].u.tensor = core__batch_full(batch, &o);
        if (merged)
            args[i].u.tensor = core__batch_merged(batch, args[i].u.tensor);
    }
    CORE_TRY(batch->scope.status);
    if (!merged)
        return core__batch_invoke(batch, batch->op, args, batch->nargs, 0);
    multiply_sizes(batch, args, sizes);
    return split_results(batch, args);
}
