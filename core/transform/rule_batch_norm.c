/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Batch normalisation: its channels are independent, so those of all samples
 * are the channels of one call. */

#include "transform/batch.h"

#include <string.h>

/* [samples, N, C, …] to [N, samples C, …], [samples, C] to [samples C].  One of
 * no elements stays as it is. */
static core_tensor *joined(core__batch *batch, const core__operand *o)
{
    core_tensor *x = core__batch_full(batch, o);

    if (!x || o->ndim < 2)
        return core__batch_merged(batch, x);
    x = CORE__DO(&batch->scope, core_movedim, x, 0, 1);
    return CORE__DO(&batch->scope, core_flatten, x, 1, 2);
}

static core_tensor *divided(core__batch *batch, core_tensor *x)
{
    if (!x || batch->scope.status != CORE_OK)
        return x;
    if (x->ndim < 2)
        return core__batch_split(batch, x, 0);
    return CORE__DO(&batch->scope, core_movedim, core__batch_split(batch, x, 1),
                    1, 0);
}

static core_status run(core__batch *batch, const core_value *args)
{
    core_value values[3];

    CORE_TRY(
        core__batch_compute(batch, batch->op, args, batch->nargs, values, 3));
    for (uint32_t i = 0; i < 3; i++)
        if (values[i].tag == CORE_VALUE_TENSOR)
            core__scope_keep(&batch->scope, values[i].u.tensor);
    for (uint32_t i = 0; i < 3; i++)
        if (values[i].tag == CORE_VALUE_TENSOR)
            CORE_TRY(core__batch_result(batch, i,
                                        divided(batch, values[i].u.tensor), 0));
    return batch->scope.status;
}

static core_status join_all(core__batch *batch, core_value *args)
{
    memcpy(args, batch->args, batch->nargs * sizeof *args);
    for (uint32_t i = 0; i < batch->nargs; i++) {
        core__operand o = core__batch_operand(batch, i);

        if (o.tensor)
            args[i].u.tensor = joined(batch, &o);
    }
    return batch->scope.status;
}

/* native_batch_norm(input, weight, bias, running_mean, running_var, training,
 * momentum, eps): joined statistics are copies, so what training writes there is
 * copied back. */
core_status core__batch_batch_norm(core__batch *batch)
{
    core__operand input = core__batch_operand(batch, 0);
    core_value args[CORE__SCHEMA_ARGUMENTS];

    if (input.ndim < 2)
        return core__batch_loop(batch); /* reports the error */
    CORE_TRY(core__batch_make_written_mapped(batch));
    CORE_TRY(join_all(batch, args));
    CORE_TRY(run(batch, args));
    for (uint32_t left = core__batch_written(batch); left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        core__operand o = core__batch_operand(batch, i);
        core_tensor *kept;

        if (!o.tensor)
            continue;
        kept = core__batch_split(batch, args[i].u.tensor, 0);
        CORE__RUN(&batch->scope,
                  core_copy_(core__batch_front(batch, &o), kept, false));
    }
    return batch->scope.status;
}

/* native_batch_norm_backward(grad_out, input, weight, running_mean,
 * running_var, save_mean, save_invstd, train, eps, output_mask) */
core_status core__batch_batch_norm_backward(core__batch *batch)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];

    if (core__batch_operand(batch, 0).ndim < 2)
        return core__batch_loop(batch); /* reports the error */
    CORE_TRY(join_all(batch, args));
    return run(batch, args);
}
