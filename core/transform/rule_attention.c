/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fused attention: its first dimension has samples already. */

#include "transform/batch.h"

#include <string.h>

/* Merges the samples into the first dimension of the tensors; those of seed and
 * offset, which have fewer dimensions, stay as they are, as nothing is drawn. */
static void merge(core__batch *batch, core_value *args, uint32_t tensors)
{
    for (uint32_t i = 0; i < tensors; i++) {
        core__operand o = core__batch_operand(batch, i);

        if (!o.tensor)
            continue;
        args[i].u.tensor =
            o.ndim >= 2 ? core__batch_merged(batch, core__batch_full(batch, &o))
                        : o.tensor;
    }
}

static core_status run(core__batch *batch, core_value *args, uint32_t split)
{
    core_value values[CORE__SCHEMA_RESULTS];

    CORE_TRY(core__batch_compute(batch, batch->op, args, batch->nargs, values,
                                 batch->nresults));
    for (uint32_t i = 0; i < batch->nresults; i++)
        if (values[i].tag == CORE_VALUE_TENSOR)
            core__scope_keep(&batch->scope, values[i].u.tensor);
    for (uint32_t i = 0; i < batch->nresults; i++) {
        core_tensor *x = values[i].u.tensor;

        if (values[i].tag != CORE_VALUE_TENSOR)
            continue;
        if (i < split)
            CORE_TRY(core__batch_result(batch, i,
                                        core__batch_split(batch, x, 0), 0));
        else
            CORE_TRY(core__batch_result(batch, i, x, CORE__BATCH_NONE));
    }
    return batch->scope.status;
}

/* Whether a mapped tensor is in a place that the merged call cannot have. */
static bool maps_state(const core__batch *batch, uint32_t first)
{
    return core__batch_operand(batch, first).mapped ||
           core__batch_operand(batch, first + 1).mapped;
}

core_status core__batch_attention(core__batch *batch)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];

    if (core__double_of(&batch->args[5]) > 0)
        return core__batch_loop(batch);
    memcpy(args, batch->args, batch->nargs * sizeof *args);
    merge(batch, args, 4);
    /* Without the sums that the gradient needs, their result is empty. */
    return run(batch, args, core__arg_bool(batch->args, 4, false) ? 2 : 1);
}

/* Positions: grad_out, query, key, value, attn_bias, out, logsumexp,
 * philox_seed, philox_offset. */
core_status core__batch_attention_backward(core__batch *batch)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];

    if (core__double_of(&batch->args[9]) > 0 || maps_state(batch, 7))
        return core__batch_loop(batch);
    memcpy(args, batch->args, batch->nargs * sizeof *args);
    merge(batch, args, 9);
    return run(batch, args, 4);
}
