/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operands and results of batched calls. */

#include "transform/batch.h"

#include "dispatch/structured.h"

#include <string.h>

core__operand core__batch_operand_of(const core__batch *batch,
                                     core_tensor *tensor)
{
    core__operand o = {tensor, false, CORE__BATCH_NONE, tensor->ndim};

    if (!core__tensor_is_batched(tensor) ||
        tensor->level != batch->batching->level)
        return o;
    o.tensor = tensor->held;
    o.dim = tensor->batch_dim;
    o.mapped = core__batched_is_mapped(tensor);
    return o;
}

core__operand core__batch_operand(const core__batch *batch, uint32_t position)
{
    if (position < batch->nargs &&
        batch->args[position].tag == CORE_VALUE_TENSOR)
        return core__batch_operand_of(batch, batch->args[position].u.tensor);
    return (core__operand){NULL, false, CORE__BATCH_NONE, 0};
}

uint32_t core__batch_listed(const core__batch *batch)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < batch->nargs; i++)
        if (batch->args[i].tag == CORE_VALUE_TENSOR_LIST)
            count += batch->args[i].count;
    return count;
}

bool core__batch_any_mapped(const core__batch *batch)
{
    for (uint32_t i = 0; i < batch->nargs; i++) {
        const core_value *value = &batch->args[i];

        if (value->tag == CORE_VALUE_TENSOR &&
            core__batch_operand_of(batch, value->u.tensor).mapped)
            return true;
        for (uint32_t k = 0;
             value->tag == CORE_VALUE_TENSOR_LIST && k < value->count; k++)
            if (value->u.tensors[k] &&
                core__batch_operand_of(batch, value->u.tensors[k]).mapped)
                return true;
    }
    return false;
}

/* ------------------------------------------------------------- operands -- */

core_tensor *core__batch_front(core__batch *batch, const core__operand *o)
{
    if (!o->tensor || !o->mapped || o->dim == 0)
        return o->tensor;
    return CORE__DO(&batch->scope, core_movedim, o->tensor, o->dim, 0);
}

core_tensor *core__batch_full(core__batch *batch, const core__operand *o)
{
    int64_t sizes[CORE_MAX_NDIM + 1];

    if (!o->tensor || o->mapped)
        return core__batch_front(batch, o);
    sizes[0] = batch->batching->size;
    memcpy(sizes + 1, o->tensor->sizes, o->ndim * sizeof *sizes);
    return CORE__DO(&batch->scope, core_expand, o->tensor, sizes, o->ndim + 1u,
                    false);
}

core_tensor *core__batch_padded(core__batch *batch, const core__operand *o,
                                uint32_t ndim)
{
    core_tensor *tensor = core__batch_front(batch, o);

    for (uint32_t i = o->ndim; o->mapped && i < ndim; i++)
        tensor = core__x_unsqueeze(&batch->scope, tensor, 1);
    return tensor;
}

core_status core__batch_shift(const core__batch *batch, int64_t *dim,
                              uint32_t ndim)
{
    uint32_t wrapped;

    CORE_TRY(core__dim_wrap(batch->op, *dim, ndim, &wrapped));
    *dim = wrapped + 1;
    return CORE_OK;
}

core_tensor *core__batch_merged(core__batch *batch, core_tensor *full)
{
    int64_t sizes[CORE_MAX_NDIM];

    if (!full || batch->scope.status != CORE_OK)
        return full;
    sizes[0] = full->sizes[0] * full->sizes[1];
    memcpy(sizes + 1, full->sizes + 2, (full->ndim - 2u) * sizeof *sizes);
    return core__x_reshape(&batch->scope, full, sizes, full->ndim - 1u);
}

core_tensor *core__batch_split(core__batch *batch, core_tensor *tensor,
                               int64_t dim)
{
    int64_t sizes[CORE_MAX_NDIM + 1];
    int64_t count = batch->batching->size;

    if (!tensor || batch->scope.status != CORE_OK)
        return tensor;
    memcpy(sizes, tensor->sizes, (size_t)dim * sizeof *sizes);
    sizes[dim] = count;
    sizes[dim + 1] = tensor->sizes[dim] / count;
    memcpy(sizes + dim + 2, tensor->sizes + dim + 1,
           (size_t)(tensor->ndim - dim - 1) * sizeof *sizes);
    return core__x_reshape(&batch->scope, tensor, sizes, tensor->ndim + 1u);
}

/* --------------------------------------------------------------- results -- */

/* A result that the operator leaves empty, such as the vectors of singular
 * values alone, has no dimension of the samples. */
static core_status wrap(core__batch *batch, core_tensor *tensor, uint32_t dim,
                        core_tensor **out)
{
    if (dim != CORE__BATCH_NONE &&
        (dim >= tensor->ndim || tensor->sizes[dim] != batch->batching->size)) {
        if (tensor->numel > 0)
            return core__op_error(CORE_ERROR_INTERNAL, batch->op,
                                  "the rule of core_vmap has lost the "
                                  "dimension of the samples");
        dim = CORE__BATCH_NONE;
    }
    return core__batched_new(tensor, dim, batch->batching->level, out);
}

core_status core__batch_result(core__batch *batch, uint32_t i,
                               core_tensor *tensor, uint32_t dim)
{
    core_tensor *batched = NULL;

    CORE_TRY(batch->scope.status);
    if (tensor)
        CORE_TRY(wrap(batch, tensor, dim, &batched));
    core__result_tensor(&batch->results[i], batched);
    return CORE_OK;
}

core_status core__batch_compute(core__batch *batch, core_operator *op,
                                const core_value *args, uint32_t nargs,
                                core_value *values, uint32_t nvalues)
{
    for (uint32_t i = 0; i < nvalues; i++)
        values[i] = (core_value){0};
    CORE_TRY(batch->scope.status);
    return core__call(op, args, nargs, nvalues ? values : NULL, nvalues);
}

static core_status wrap_list(core__batch *batch, uint32_t i,
                             const core_value *value, uint32_t dim)
{
    core_tensor **list = core__alloc_zero((value->count + 1u) * sizeof *list);
    core_status status = CORE_OK;

    if (!list)
        return core__error_memory(value->count * sizeof *list);
    for (uint32_t k = 0; k < value->count && status == CORE_OK; k++)
        status = wrap(batch, value->u.tensors[k], dim, &list[k]);
    if (status != CORE_OK) {
        core_tensors_release(list, value->count);
        return status;
    }
    batch->results[i] =
        (core_value){CORE_VALUE_TENSOR_LIST, value->count, {.tensors = list}};
    return CORE_OK;
}

core_status core__batch_results(core__batch *batch, core_value *values,
                                uint32_t dim)
{
    core_status status = batch->scope.status;

    for (uint32_t i = 0; i < batch->nresults && status == CORE_OK; i++) {
        if (values[i].tag == CORE_VALUE_TENSOR)
            status = core__batch_result(batch, i, values[i].u.tensor, dim);
        else if (values[i].tag == CORE_VALUE_TENSOR_LIST)
            status = wrap_list(batch, i, &values[i], dim);
        else if (values[i].tag != CORE_VALUE_NONE && dim == CORE__BATCH_NONE)
            batch->results[i] = values[i]; /* a number */
        else if (values[i].tag != CORE_VALUE_NONE)
            status = core__batch_refuse(
                batch, "it returns a value that is not a tensor");
    }
    for (uint32_t i = 0; i < batch->nresults; i++)
        core_value_release(&values[i]);
    return status;
}

core_status core__batch_invoke(core__batch *batch, core_operator *op,
                               const core_value *args, uint32_t nargs,
                               uint32_t dim)
{
    core_value values[CORE__SCHEMA_RESULTS];

    CORE_TRY(
        core__batch_compute(batch, op, args, nargs, values, batch->nresults));
    return core__batch_results(batch, values, dim);
}

/* -------------------------------------------------------------- refusals -- */

core_status core__batch_refuse(const core__batch *batch, const char *reason)
{
    return core__op_error(CORE_ERROR_UNSUPPORTED, batch->op,
                          "%s, which core_vmap cannot do for all samples at "
                          "once",
                          reason);
}

/* Whether nothing else can see that the tensor's memory changes. */
static bool sole_owner(const core_tensor *tensor)
{
    while (core__tensor_is_batched(tensor)) {
        if (atomic_load(&tensor->references) != 1 || tensor->base)
            return false;
        tensor = tensor->held;
    }
    return atomic_load(&tensor->references) == 1 && !tensor->base &&
           tensor->storage && atomic_load(&tensor->storage->references) == 1 &&
           !core__tensor_requires_grad(tensor);
}

static core_status make_mapped(core__batch *batch, uint32_t position,
                               core_tensor *tensor)
{
    core__operand o = core__batch_operand_of(batch, tensor);
    core_tensor *copy;

    if (o.mapped)
        return CORE_OK;
    if (tensor == o.tensor || !sole_owner(o.tensor))
        return core__op_error(
            CORE_ERROR_UNSUPPORTED, batch->op,
            "the argument %s, which is changed in place, is not mapped by "
            "core_vmap, but other arguments are: each sample would change it; "
            "make a tensor from a mapped one (core_zeros_like, core_new_zeros, "
            "core_clone), or use the operator that returns a new tensor",
            core__argument_name(batch->op, position));
    copy = core__batch_full(batch, &o);
    copy = CORE__DO(&batch->scope, core_clone, copy, CORE_FORMAT_CONTIGUOUS);
    CORE_TRY(batch->scope.status);
    return core__batched_replace(tensor, copy, 0);
}

core_status core__batch_make_mapped(core__batch *batch, uint32_t position)
{
    const core_value *value = &batch->args[position];

    if (position < batch->nargs && value->tag == CORE_VALUE_TENSOR)
        return make_mapped(batch, position, value->u.tensor);
    for (uint32_t k = 0;
         position < batch->nargs && value->tag == CORE_VALUE_TENSOR_LIST &&
         k < value->count;
         k++)
        if (value->u.tensors[k])
            CORE_TRY(make_mapped(batch, position, value->u.tensors[k]));
    return CORE_OK;
}

core_status core__batch_make_written_mapped(core__batch *batch)
{
    for (uint32_t left = core__batch_written(batch); left; left &= left - 1)
        CORE_TRY(core__batch_make_mapped(batch, (uint32_t)__builtin_ctz(left)));
    return CORE_OK;
}
