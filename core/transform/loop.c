/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The rule of operators without another one: a call for each sample, whose
 * results are stacked.  Counted for core_vmap_loops, and logged once for each
 * operator. */

#include "transform/batch.h"

#include "base/log.h"
#include "base/memory.h"
#include "dispatch/schema.h"
#include "dispatch/table.h"
#include "ops_ids.h"

#include <libcore/random.h>
#include <libcore/transform.h>

#include <string.h>

static _Atomic uint64_t counts[CORE_OP_COUNT];
static _Atomic uint64_t custom_count; /* of all custom operators together */

static _Atomic uint64_t *count_of(const core_operator *op)
{
    return op->flags & CORE__OP_CUSTOM ? core__registry_loops(op)
                                       : &counts[op->id];
}

uint64_t core_vmap_loops(const core_operator *op)
{
    uint64_t sum = atomic_load(&custom_count);

    if (op)
        return atomic_load(count_of(op));
    for (uint32_t i = 0; i < CORE_OP_COUNT; i++)
        sum += atomic_load(&counts[i]);
    return sum;
}

static void note(const core_operator *op, int64_t samples)
{
    if (op->flags & CORE__OP_CUSTOM)
        atomic_fetch_add(&custom_count, 1);
    if (atomic_fetch_add(count_of(op), 1) == 0)
        core__log(CORE_LOG_WARNING, "vmap",
                  "%s has no rule for batches: core_vmap calls it once for "
                  "each of %lld samples",
                  core__operator_name(op), (long long)samples);
}

uint32_t core__batch_written(const core__batch *batch)
{
    /* Running statistics are written in training only. */
    if (batch->op->id == CORE_OP_NATIVE_BATCH_NORM &&
        !core__arg_bool(batch->args, 5, true))
        return 0;
    return core__operator_written_arguments(batch->op, batch->nargs);
}

/* One call, and the results of all. */
typedef struct samples {
    core__batch *batch;
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_tensor **lists; /* of the arguments, one after another */
    core_tensor **owned; /* views of this sample */
    uint32_t nowned;
    core_value *values; /* nresults for each sample */
    int64_t made;
} samples;

static core_status sample_of(samples *s, core_tensor *tensor, int64_t i,
                             core_tensor **out)
{
    core__operand o;

    *out = NULL;
    if (!tensor)
        return CORE_OK;
    o = core__batch_operand_of(s->batch, tensor);
    *out = o.tensor;
    if (!o.mapped)
        return CORE_OK;
    CORE_TRY(core_select(o.tensor, o.dim, i, out));
    s->owned[s->nowned++] = *out;
    return CORE_OK;
}

static core_status arguments_of(samples *s, int64_t i)
{
    const core__batch *batch = s->batch;
    core_tensor **list = s->lists;

    for (uint32_t k = 0; k < batch->nargs; k++) {
        core_value *value = &s->args[k];

        *value = batch->args[k];
        if (value->tag == CORE_VALUE_TENSOR)
            CORE_TRY(sample_of(s, value->u.tensor, i, &value->u.tensor));
        if (value->tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t n = 0; n < value->count; n++)
            CORE_TRY(sample_of(s, value->u.tensors[n], i, &list[n]));
        value->u.tensors = list;
        list += value->count;
    }
    return CORE_OK;
}

static core_status one_call(samples *s, int64_t i)
{
    core__batch *batch = s->batch;
    core_value *values = s->values + i * batch->nresults;
    core_status status = arguments_of(s, i);

    if (batch->restarts)
        core_generator_set_state(batch->generator, batch->seed, batch->offset);
    if (status == CORE_OK)
        status = core__call(batch->op, s->args, batch->nargs,
                            batch->nresults ? values : NULL, batch->nresults);
    if (status == CORE_OK)
        s->made++;
    while (s->nowned > 0)
        core__tensor_release(s->owned[--s->nowned]);
    return status;
}

/* Result k of all samples; element: of a list, or 0. */
static core_status stack(samples *s, uint32_t k, uint32_t element,
                         core_tensor **out)
{
    int64_t size = s->batch->batching->size;
    uint32_t nresults = s->batch->nresults;
    core_tensor **tensors = core__alloc((size_t)size * sizeof *tensors);
    core_tensor *stacked = NULL;
    core_status status = CORE_OK;

    if (!tensors)
        return core__error_memory((size_t)size * sizeof *tensors);
    for (int64_t i = 0; i < size && status == CORE_OK; i++) {
        const core_value *value = &s->values[i * nresults + k];

        if (value->tag == CORE_VALUE_TENSOR)
            tensors[i] = value->u.tensor;
        else if (value->tag == CORE_VALUE_TENSOR_LIST && element < value->count)
            tensors[i] = value->u.tensors[element];
        else
            status = core__batch_refuse(
                s->batch, "it returns a value that is not a tensor");
    }
    if (status == CORE_OK)
        status = core_stack(tensors, (size_t)size, 0, &stacked);
    core__free(tensors);
    if (status == CORE_OK)
        status = core__batched_new(stacked, 0, s->batch->batching->level, out);
    core__tensor_release(stacked);
    return status;
}

static core_status stack_list(samples *s, uint32_t k, uint32_t count)
{
    uint32_t nresults = s->batch->nresults;
    core_tensor **list;
    core_status status = CORE_OK;

    for (int64_t i = 1; i < s->batch->batching->size; i++)
        if (s->values[i * nresults + k].count != count)
            return core__batch_refuse(s->batch,
                                      "it returns lists of different lengths");
    list = core__alloc_zero((count + 1u) * sizeof *list);
    if (!list)
        return core__error_memory(count * sizeof *list);
    for (uint32_t n = 0; n < count && status == CORE_OK; n++)
        status = stack(s, k, n, &list[n]);
    if (status != CORE_OK) {
        core_tensors_release(list, count);
        return status;
    }
    s->batch->results[k] =
        (core_value){CORE_VALUE_TENSOR_LIST, count, {.tensors = list}};
    return CORE_OK;
}

static core_status stack_all(samples *s)
{
    core__batch *batch = s->batch;

    for (uint32_t k = 0; k < batch->nresults; k++) {
        core_tensor *stacked = NULL;

        if (s->values[k].tag == CORE_VALUE_NONE)
            continue;
        if (s->values[k].tag == CORE_VALUE_TENSOR_LIST) {
            CORE_TRY(stack_list(s, k, s->values[k].count));
            continue;
        }
        CORE_TRY(stack(s, k, 0, &stacked));
        core__result_tensor(&batch->results[k], stacked);
    }
    return CORE_OK;
}

static core_status check(core__batch *batch)
{
    if (batch->op->family == CORE__FAMILY_VIEW)
        return core__batch_refuse(batch, "it makes a view");
    return core__batch_make_written_mapped(batch);
}

core_status core__batch_each(core__batch *batch)
{
    int64_t size = batch->batching->size;
    samples s = {.batch = batch};
    core_status status;
    uint32_t listed = core__batch_listed(batch);
    uint32_t tensors = batch->nargs + listed;
    size_t bytes = (tensors + listed) * sizeof *s.owned +
                   (size_t)size * batch->nresults * sizeof *s.values;

    CORE_TRY(check(batch));
    s.values = core__alloc_zero(bytes + 1);
    if (!s.values)
        return core__error_memory(bytes);
    s.owned = (core_tensor **)(void *)(s.values + size * batch->nresults);
    s.lists = s.owned + tensors;
    status = CORE_OK;
    for (int64_t i = 0; i < size && status == CORE_OK; i++)
        status = one_call(&s, i);
    if (status == CORE_OK)
        status = stack_all(&s);
    for (int64_t i = 0; i < s.made * batch->nresults; i++)
        core_value_release(&s.values[i]);
    core__free(s.values);
    return status;
}

core_status core__batch_loop(core__batch *batch)
{
    CORE_TRY(check(batch));
    note(batch->op, batch->batching->size);
    return core__batch_each(batch);
}
