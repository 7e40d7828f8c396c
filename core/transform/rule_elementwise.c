/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Element-wise operators and reductions. */

#include "transform/batch.h"

#include "dispatch/schema.h"
#include "dispatch/structured.h"
#include "ops_ids.h"

#include <string.h>

/* ---------------------------------------------------------- element-wise -- */

/* The dtype to which operands are promoted.  One sample of a batched tensor
 * without dimensions ranks below tensors that have some, but all samples
 * together have one. */
static core_dtype promoted(const core__batch *batch)
{
    const core_operator *op = batch->op;

    if (op->data->promotion != CORE__PROMOTE_COMMON &&
        op->data->promotion != CORE__PROMOTE_FLOAT &&
        op->data->promotion != CORE__PROMOTE_BOOL)
        return CORE_DTYPE_NONE;
    return core__elementwise_common_dtype(op, batch->args);
}

static bool keeps_dtype(const core_operator *op, uint32_t position)
{
    for (uint32_t k = 0; k < op->data->operands; k++)
        if (op->data->operand[k] == position)
            return op->data->keep_dtype >> k & 1;
    return true; /* the target of a change in place */
}

/* The most dimensions of an operand: mapped operands get as many after that of
 * the samples, so that they broadcast as one sample does. */
static uint32_t widest(const core__batch *batch)
{
    uint32_t ndim = 0;

    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        if (o.tensor && o.ndim > ndim)
            ndim = o.ndim;
    }
    return ndim;
}

/* Whether operands are on different devices.  A tensor without dimensions may be
 * on another one, but with the samples it has a dimension. */
static bool devices_differ(const core__batch *batch)
{
    const core_device *device = NULL;

    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        if (o.tensor && device && o.tensor->device != device)
            return true;
        if (o.tensor)
            device = o.tensor->device;
    }
    return false;
}

static uint32_t args_ndim(const core__batch *batch)
{
    return core__batch_operand(batch, 0).ndim;
}

core_status core__batch_elementwise(core__batch *batch)
{
    core_operator *op = batch->op;
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_dtype common = promoted(batch);
    uint32_t ndim;

    ndim = widest(batch);
    if ((op->id != CORE_OP_COPY_ && devices_differ(batch)) ||
        (op->variant == CORE__VARIANT_INPLACE &&
         ndim > args_ndim(batch))) /* reports the error */
        return core__batch_loop(batch);
    if (op->variant == CORE__VARIANT_INPLACE)
        CORE_TRY(core__batch_make_mapped(batch, 0));
    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        args[i] = batch->args[i];
        if (!o.tensor)
            continue;
        args[i].u.tensor = core__batch_padded(batch, &o, ndim);
        if (o.mapped && o.ndim == 0 && common != CORE_DTYPE_NONE &&
            o.tensor->dtype != common && !keeps_dtype(op, i))
            args[i].u.tensor =
                core__x_cast(&batch->scope, args[i].u.tensor, common);
    }
    return core__batch_invoke(batch, op, args, batch->nargs, 0);
}

/* ------------------------------------------------------------- reductions -- */

/* The operator that reduces given dimensions, for one that reduces all. */
static uint32_t of_dimensions(uint32_t id)
{
    switch (id) {
    case CORE_OP_SUM:
        return CORE_OP_SUM_DIM_INTLIST;
    case CORE_OP_MEAN:
        return CORE_OP_MEAN_DIM;
    case CORE_OP_PROD:
        return CORE_OP_PROD_DIM_INT;
    case CORE_OP_MAX:
        return CORE_OP_AMAX;
    case CORE_OP_MIN:
        return CORE_OP_AMIN;
    case CORE_OP_ANY:
        return CORE_OP_ANY_DIM;
    case CORE_OP_ALL:
        return CORE_OP_ALL_DIM;
    default:
        return CORE_OP_COUNT;
    }
}

/* Each sample in one dimension. */
static core_tensor *rows(core__batch *batch, core_tensor *front)
{
    int64_t sizes[2] = {batch->batching->size, 0};

    if (batch->scope.status != CORE_OK)
        return front;
    sizes[1] = front->numel / sizes[0];
    return front->ndim == 2 ? front
                            : core__x_reshape(&batch->scope, front, sizes, 2);
}

core_tensor *core__batch_as_rows(core__batch *batch, const core__operand *o)
{
    return rows(batch, core__batch_full(batch, o));
}

static core_status reduce_all(core__batch *batch, core_tensor *front)
{
    static const int64_t one = 1;
    core_operator *op = &core__operators[of_dimensions(batch->op->id)];
    core_value args[5] = {core_pack_tensor(rows(batch, front)),
                          core_pack_ints(&one, 1), core_bool(false)};
    uint32_t nargs = op->nargs;

    if (op->id == CORE_OP_PROD_DIM_INT || op->id == CORE_OP_ANY_DIM ||
        op->id == CORE_OP_ALL_DIM)
        args[1] = core_int(1);
    if (nargs > 3)
        args[3] = batch->args[1]; /* dtype */
    return core__batch_invoke(batch, op, args, nargs, 0);
}

/* Whether the call names no dimensions, so all are reduced. */
static bool reduces_all(const core_value *dim)
{
    return dim->tag == CORE_VALUE_NONE ||
           (dim->tag == CORE_VALUE_INT_LIST && dim->count == 0);
}

/* Reduces all dimensions of a sample; with keepdim, the result gets as many of
 * size 1. */
static core_status reduce_rows(core__batch *batch, core_tensor *front,
                               uint32_t dim_at, uint32_t ndim, bool keepdim)
{
    static const int64_t one = 1;
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_value values[CORE__SCHEMA_RESULTS];
    const core__schema *schema;

    CORE_TRY(core__schema_of(batch->op, &schema));
    memcpy(args, batch->args, batch->nargs * sizeof *args);
    args[0] = core_pack_tensor(rows(batch, front));
    args[dim_at] = schema->arguments[dim_at].tag == CORE_VALUE_INT_LIST
                       ? core_pack_ints(&one, 1)
                       : core_int(1);
    if (batch->op->data->keepdim != CORE__OP_NOWHERE)
        args[batch->op->data->keepdim] = core_bool(false);
    CORE_TRY(core__batch_compute(batch, batch->op, args, batch->nargs, values,
                                 batch->nresults));
    for (uint32_t i = 0; keepdim && i < batch->nresults; i++) {
        core_tensor *tensor =
            core__scope_keep(&batch->scope, values[i].u.tensor);

        for (uint32_t k = 0; k < ndim; k++)
            tensor = core__x_unsqueeze(&batch->scope, tensor, 1);
        values[i] = (core_value){0};
        if (batch->scope.status == CORE_OK) {
            core__tensor_retain(tensor);
            values[i] = core_pack_tensor(tensor);
        }
    }
    return core__batch_results(batch, values, 0);
}

core_status core__batch_reduction(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    uint32_t dim_at = batch->op->data->dim, keep = batch->op->data->keepdim;
    core_tensor *front = core__batch_front(batch, &o);
    core_value args[CORE__SCHEMA_ARGUMENTS];
    int64_t dims[CORE_MAX_NDIM + 1];

    CORE_TRY(batch->scope.status);
    if (dim_at != CORE__OP_NOWHERE && o.ndim == 0 &&
        batch->args[dim_at].tag == CORE_VALUE_INT) {
        int64_t dim = batch->args[dim_at].u.i;

        CORE_TRY(core__batch_shift(batch, &dim, 0));
    }
    if (dim_at == CORE__OP_NOWHERE)
        return of_dimensions(batch->op->id) == CORE_OP_COUNT
                   ? core__batch_loop(batch)
                   : reduce_all(batch, front);
    if (o.ndim == 0 || reduces_all(&batch->args[dim_at]))
        return reduce_rows(batch, front, dim_at, o.ndim,
                           keep != CORE__OP_NOWHERE &&
                               core__arg_bool(batch->args, keep, false));
    memcpy(args, batch->args, batch->nargs * sizeof *args);
    args[0].u.tensor = front;
    if (args[dim_at].tag == CORE_VALUE_INT) {
        CORE_TRY(core__batch_shift(batch, &args[dim_at].u.i, o.ndim));
    } else {
        if (args[dim_at].count > CORE_MAX_NDIM)
            return core__batch_loop(batch); /* reports the error */
        memcpy(dims, args[dim_at].u.ints, args[dim_at].count * sizeof *dims);
        for (uint32_t i = 0; i < args[dim_at].count; i++)
            CORE_TRY(core__batch_shift(batch, &dims[i], o.ndim));
        args[dim_at].u.ints = dims;
    }
    return core__batch_invoke(batch, batch->op, args, batch->nargs, 0);
}
