/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Views whose sizes or order of dimensions are arguments, and lists of
 * tensors. */

#include "transform/batch.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "ops/shape.h"

#include <string.h>

/* Calls the operator with self, whose samples come first, and the list at
 * position 1. */
static core_status with_list(core__batch *batch, core_tensor *front,
                             const int64_t *list, uint32_t count)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];

    memcpy(args, batch->args, batch->nargs * sizeof *args);
    args[0] = core_pack_tensor(front);
    args[1] = core_pack_ints(list, count);
    return core__batch_invoke(batch, batch->op, args, batch->nargs, 0);
}

core_status core__batch_view(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    core_tensor *front = core__batch_front(batch, &o);
    int64_t sizes[CORE_MAX_NDIM + 1];
    size_t count;
    const int64_t *wanted = core__ints_of(&batch->args[1], &count);

    /* A size of -1 may follow from one sample only. */
    CORE_TRY(core__shape_resolve(batch->op, batch->args[0].u.tensor, count,
                                 wanted, sizes + 1));
    sizes[0] = batch->batching->size;
    return with_list(batch, front, sizes, (uint32_t)count + 1);
}

core_status core__batch_expand(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    int64_t sizes[CORE_MAX_NDIM + 1];
    size_t count;
    const int64_t *wanted = core__ints_of(&batch->args[1], &count);

    CORE_TRY(core__ndim_check(batch->op, count));
    if (count < o.ndim)
        return core__op_error(CORE_ERROR_SHAPE, batch->op,
                              "%zu sizes are given for a tensor of %u "
                              "dimensions",
                              count, o.ndim);
    sizes[0] = -1;
    memcpy(sizes + 1, wanted, count * sizeof *sizes);
    return with_list(batch, core__batch_padded(batch, &o, (uint32_t)count),
                     sizes, (uint32_t)count + 1);
}

core_status core__batch_permute(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    int64_t dims[CORE_MAX_NDIM + 1] = {0};
    size_t count;
    const int64_t *wanted = core__ints_of(&batch->args[1], &count);

    CORE_TRY(core__ndim_check(batch->op, count));
    for (size_t i = 0; i < count; i++) {
        dims[i + 1] = wanted[i];
        CORE_TRY(core__batch_shift(batch, &dims[i + 1], o.ndim));
    }
    return with_list(batch, core__batch_front(batch, &o), dims,
                     (uint32_t)count + 1);
}

/* Makes a tensor of the scope the result. */
static core_status result_front(core__batch *batch, core_tensor *tensor)
{
    return core__batch_result(batch, 0, tensor, 0);
}

core_status core__batch_t(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    core_tensor *front = core__batch_front(batch, &o);

    if (o.ndim > 2)
        return core__op_error(CORE_ERROR_SHAPE, batch->op,
                              "self must have at most 2 dimensions, not %u",
                              o.ndim);
    front = o.ndim == 2 ? core__x_transpose(&batch->scope, front, 1, 2)
                        : CORE__DO(&batch->scope, core_alias, front);
    return result_front(batch, front);
}

core_status core__batch_squeeze(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    core_tensor *front = core__batch_front(batch, &o);
    int64_t dims[CORE_MAX_NDIM];
    size_t count = 0;

    CORE_TRY(batch->scope.status);
    for (uint32_t i = 1; i < front->ndim; i++)
        if (front->sizes[i] == 1)
            dims[count++] = i;
    return result_front(
        batch, CORE__DO(&batch->scope, core_squeeze_dims, front, dims, count));
}

/* as_strided(self, size, stride, storage_offset) and _reshape_alias(self, size,
 * stride): of each sample, at the same place relative to it.  The offset counts
 * from the beginning of the storage to the first sample's. */
core_status core__batch_as_strided(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    int64_t sizes[CORE_MAX_NDIM + 1], strides[CORE_MAX_NDIM + 1];
    size_t count, nstrides;
    const int64_t *size = core__ints_of(&batch->args[1], &count);
    const int64_t *stride = core__ints_of(&batch->args[2], &nstrides);
    int64_t offset = o.tensor->offset;

    CORE_TRY(core__ndim_check(batch->op, count + 1));
    if (count != nstrides)
        return core__op_error(CORE_ERROR_SHAPE, batch->op,
                              "%zu sizes and %zu strides are given", count,
                              nstrides);
    if (core__tensor_is_batched(o.tensor))
        return core__batch_refuse(
            batch, "it depends on the layout of a tensor that two calls of "
                   "core_vmap map");
    sizes[0] = o.tensor->sizes[o.dim];
    strides[0] = o.tensor->strides[o.dim];
    memcpy(sizes + 1, size, count * sizeof *sizes);
    memcpy(strides + 1, stride, count * sizeof *strides);
    if (batch->nargs > 3 && batch->args[3].tag == CORE_VALUE_INT)
        offset = batch->args[3].u.i;
    return result_front(batch, CORE__DO(&batch->scope, core_as_strided,
                                        o.tensor, sizes, count + 1, strides,
                                        count + 1, &offset));
}

/* ------------------------------------------------------------------ lists -- */

core_status core__batch_cat(core__batch *batch)
{
    const core_value *list = &batch->args[0];
    core_tensor **tensors =
        core__alloc_zero((list->count + 1u) * sizeof *tensors);
    core_value args[2] = {core_pack_tensors(tensors, list->count),
                          batch->args[1]};
    core_status status = CORE_OK;
    uint32_t ndim = 0, count = 0;

    if (!tensors)
        return core__error_memory(list->count * sizeof *tensors);
    if (list->count > CORE__SCOPE_TENSORS / 3) {
        core__free(tensors);
        return core__batch_loop(batch);
    }
    for (uint32_t i = 0; i < list->count; i++)
        if (list->u.tensors[i]->ndim > ndim)
            ndim = list->u.tensors[i]->ndim;
    for (uint32_t i = 0; i < list->count; i++) {
        core__operand o = core__batch_operand_of(batch, list->u.tensors[i]);

        /* Empty vectors count for nothing, as in _cat. */
        if (o.ndim != ndim && list->u.tensors[i]->numel == 0)
            continue;
        tensors[count++] = core__batch_full(batch, &o);
    }
    args[0].count = count;
    status = core__batch_shift(batch, &args[1].u.i, ndim);
    if (status == CORE_OK)
        status = core__batch_invoke(batch, batch->op, args, 2, 0);
    core__free(tensors);
    return status;
}

core_status core__batch_roll(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    size_t count;
    core_tensor *x;

    core__ints_of(&batch->args[2], &count);
    if (count)
        return core__batch_dims(batch);
    /* Without dimensions, the elements of a sample are rolled as one row. */
    x = core__batch_front(batch, &o);
    CORE_TRY(batch->scope.status);
    {
        core_tensor *rows = core__batch_as_rows(batch, &o);
        size_t shifts;
        const int64_t *shift = core__ints_of(&batch->args[1], &shifts);

        rows = CORE__DO(&batch->scope, core_roll, rows, shift, shifts,
                        &(const int64_t){1}, 1);
        return result_front(
            batch, core__x_reshape(&batch->scope, rows, x->sizes, x->ndim));
    }
}

/* median and nanmedian of all elements */
core_status core__batch_median(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    core_operator *op = core__operator_find(
        batch->op->data->name[0] == 'n' ? "nanmedian.dim" : "median.dim",
        batch->op->data->name[0] == 'n' ? 13 : 10);
    core_value args[3] = {core_pack_tensor(core__batch_as_rows(batch, &o)),
                          core_int(1), core_bool(false)};
    core_value values[2];

    CORE_TRY(core__batch_compute(batch, op, args, 3, values, 2));
    core_value_release(&values[1]);
    return core__batch_results(batch, values, 0);
}

/* --------------------------------------------------------------- in place -- */

core_status core__batch_relayout(core__batch *batch)
{
    const core_operator *op = batch->op;
    core_operator *base = &core__operators[op->data->base];
    core_tensor *target = batch->args[0].u.tensor;
    core__operand o = core__batch_operand(batch, 0);
    core_value value = {0};
    core__batch functional = *batch;
    core_status status;

    if (target == o.tensor)
        return core__call(batch->op, batch->args, batch->nargs, NULL, 0);
    if (base == op) { /* detach_ */
        core_tensor *detached = CORE__DO(&batch->scope, core_detach, o.tensor);

        CORE_TRY(batch->scope.status);
        core__history_clear(target);
        return core__batched_replace(target, detached, o.dim);
    }
    /* The functional operator's view, in the same place. */
    functional.op = base;
    functional.results = &value;
    functional.nresults = 1;
    core__scope_begin(&functional.scope);
    status = core__batch_functional(&functional, o.mapped);
    status = core__scope_close(&functional.scope, op, status, &value, 1);
    if (status == CORE_OK)
        status = core__batched_replace(target, value.u.tensor->held,
                                       (uint32_t)value.u.tensor->batch_dim);
    core_value_release(&value);
    return status;
}
