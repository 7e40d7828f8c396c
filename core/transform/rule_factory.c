/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* New tensors, copies, and random numbers. */

#include "transform/batch.h"

#include "ops_ids.h"
#include "random/generator.h"

#include <libcore/random.h>

#include <string.h>

/* -------------------------------------------------------------- factories -- */

/* Elements from the first to the last one of a sample. */
static int64_t extent_of(const core_value *sizes, const core_value *strides)
{
    int64_t extent = 1;

    for (uint32_t i = 0; i < sizes->count && i < strides->count; i++) {
        if (sizes->u.ints[i] == 0)
            return 1;
        extent += (sizes->u.ints[i] - 1) * strides->u.ints[i];
    }
    return extent;
}

/* The sizes, the first list of the arguments, begin with the samples; strides
 * follow it. */
core_status core__batch_factory(core__batch *batch)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];
    int64_t ints[2][CORE_MAX_NDIM + 1];
    const core_value *first = NULL;
    uint32_t lists = 0;

    for (uint32_t i = 0; i < batch->nargs; i++) {
        const core_value *given = &batch->args[i];

        args[i] = *given;
        if (given->tag == CORE_VALUE_TENSOR)
            args[i].u.tensor = core__batch_operand(batch, i).tensor;
        if (given->tag == CORE_VALUE_FORMAT)
            args[i] = core_pack_none();
        if (given->tag != CORE_VALUE_INT_LIST || lists == 2)
            continue;
        if (given->count > CORE_MAX_NDIM)
            return core__op_error(CORE_ERROR_SHAPE, batch->op,
                                  "a tensor has at most %d dimensions, not %u",
                                  CORE_MAX_NDIM, given->count);
        ints[lists][0] =
            first ? extent_of(first, given) : batch->batching->size;
        if (given->count > 0)
            memcpy(ints[lists] + 1, given->u.ints,
                   given->count * sizeof **ints);
        args[i].u.ints = ints[lists++];
        args[i].count++;
        first = given;
    }
    if (!first)
        return core__batch_loop(batch);
    return core__batch_invoke(batch, batch->op, args, batch->nargs, 0);
}

core_status core__batch_like(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    core_value args[CORE__SCHEMA_ARGUMENTS];
    uint32_t dim = o.dim;

    memcpy(args, batch->args, batch->nargs * sizeof *args);
    args[0].u.tensor = o.tensor;
    for (uint32_t i = 1; i < batch->nargs; i++)
        if (args[i].tag == CORE_VALUE_FORMAT &&
            args[i].u.i != CORE_FORMAT_PRESERVE)
            args[i].u.i = CORE_FORMAT_CONTIGUOUS;
    if (!o.mapped || args[batch->nargs - 1].tag == CORE_VALUE_FORMAT) {
        args[0].u.tensor = core__batch_full(batch, &o);
        dim = 0;
    }
    return core__batch_invoke(batch, batch->op, args, batch->nargs, dim);
}

/* ----------------------------------------------------------------- copies -- */

/* Dimensions of one sample in the order of a memory format with channels last,
 * after that of the samples; back: the reverse. */
static core_tensor *channels(core__batch *batch, core_tensor *x, bool back)
{
    int64_t order[CORE_MAX_NDIM + 1];
    uint32_t ndim;

    if (batch->scope.status != CORE_OK)
        return x;
    ndim = x->ndim;
    for (uint32_t i = 0; i < ndim; i++)
        order[i] = i;
    for (uint32_t i = 2; i < ndim; i++)
        order[i] =
            back ? (i == 2 ? ndim - 1 : i - 1) : (i == ndim - 1 ? 2 : i + 1);
    return CORE__DO(&batch->scope, core_permute, x, order, ndim);
}

/* clone(self, memory_format), _to_copy(self, …, memory_format) */
core_status core__batch_copy(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_value *format = &args[batch->nargs - 1];
    core_value values[1];
    core_tensor *x;

    memcpy(args, batch->args, batch->nargs * sizeof *args);
    args[0].u.tensor = o.tensor;
    if (format->tag != CORE_VALUE_FORMAT || format->u.i == CORE_FORMAT_PRESERVE)
        return core__batch_invoke(batch, batch->op, args, batch->nargs, o.dim);
    x = core__batch_front(batch, &o);
    if (format->u.i == CORE_FORMAT_CONTIGUOUS) {
        args[0].u.tensor = x;
        return core__batch_invoke(batch, batch->op, args, batch->nargs, 0);
    }
    if (o.ndim != (format->u.i == CORE_FORMAT_CHANNELS_LAST ? 4u : 5u))
        return core__batch_loop(batch); /* reports the error */
    args[0].u.tensor = channels(batch, x, false);
    format->u.i = CORE_FORMAT_CONTIGUOUS;
    CORE_TRY(
        core__batch_compute(batch, batch->op, args, batch->nargs, values, 1));
    x = channels(batch, core__scope_keep(&batch->scope, values[0].u.tensor),
                 true);
    return core__batch_result(batch, 0, x, 0);
}

/* ----------------------------------------------------------------- random -- */

bool core__batch_draws(const core_operator *op, const core_value *args)
{
    const core_operator *base = core__operator_base(op);

    if (op->flags & CORE__OP_CUSTOM)
        return op->flags & CORE__OP_RANDOM;
    if (core__likely(!(core__batch_rows[base->id].rank & CORE__BATCH_RANDOM)))
        return false;
    switch (base->id) {
    case CORE_OP_NATIVE_DROPOUT:
        return args[2].tag != CORE_VALUE_BOOL || args[2].u.i;
    case CORE_OP_SCALED_DOT_PRODUCT_EFFICIENT_ATTENTION:
        return core__double_of(&args[5]) > 0;
    default:
        return true;
    }
}

/* Numbers of one sample for all: each call of the loop draws the same. */
static core_status loop_on_one_state(core__batch *batch, core_generator *own)
{
    core_generator_state(own, &batch->seed, &batch->offset);
    batch->generator = own;
    batch->restarts = true;
    return core__batch_loop(batch);
}

static core_generator *generator_of(const core__batch *batch)
{
    const core_device *device = NULL;

    for (uint32_t i = 0; i < batch->nargs; i++) {
        if (batch->args[i].tag == CORE_VALUE_GENERATOR)
            return batch->args[i].u.generator;
        if (batch->args[i].tag == CORE_VALUE_TENSOR && !device)
            device = batch->args[i].u.tensor->device;
    }
    return device ? core__generator_default_find(device->name) : NULL;
}

/* uniform_(self, …) and such: one sample is drawn, and copied. */
static core_status draw_once(core__batch *batch)
{
    core__operand o = core__batch_operand(batch, 0);
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_tensor *front = core__batch_front(batch, &o);
    core_tensor *sample = CORE__DO(&batch->scope, core_select, front, 0, 0);

    sample =
        CORE__DO(&batch->scope, core_clone, sample, CORE_FORMAT_CONTIGUOUS);
    memcpy(args, batch->args, batch->nargs * sizeof *args);
    args[0] = core_pack_tensor(sample);
    CORE_TRY(
        core__batch_compute(batch, batch->op, args, batch->nargs, NULL, 0));
    return core_copy_(front, sample, false);
}

core_status core__batch_random_same(core__batch *batch)
{
    if (batch->op->variant == CORE__VARIANT_INPLACE &&
        batch->row->rule == CORE__BATCH_SAME && batch->nresults == 0 &&
        core__batch_operand(batch, 0).mapped)
        return draw_once(batch);
    return loop_on_one_state(batch, generator_of(batch));
}
