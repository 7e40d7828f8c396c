/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Group normalisation: the batch joins the samples that it has already. */

#include "transform/batch.h"

#include <string.h>

/* N, C and HxW of one sample. */
typedef struct extents {
    int64_t n, c, inner, groups;
} extents;

static extents extents_of(const core__batch *batch, uint32_t first)
{
    return (extents){batch->args[first].u.i, batch->args[first + 1].u.i,
                     batch->args[first + 2].u.i, batch->args[first + 3].u.i};
}

/* [samples, N, C, HxW] */
static core_tensor *flattened(core__batch *batch, core_tensor *full,
                              const extents *e)
{
    const int64_t sizes[] = {batch->batching->size, e->n, e->c, e->inner};

    return core__x_reshape(&batch->scope, full, sizes, 4);
}

/* A weight of each sample, [samples, C], for [samples, N, C, …] of `ndim`
 * dimensions per sample. */
static core_tensor *spread(core__batch *batch, const core__operand *o,
                           uint32_t ndim)
{
    core_tensor *x =
        core__x_unsqueeze(&batch->scope, core__batch_full(batch, o), 1);

    for (uint32_t i = 2; i < ndim; i++)
        x = core__x_unsqueeze(&batch->scope, x, -1);
    return x;
}

/* native_group_norm and _group_norm(input, weight, bias, N, C, HxW, group,
 * eps) */
core_status core__batch_group_norm(core__batch *batch)
{
    core__operand input = core__batch_operand(batch, 0);
    core__operand weight = core__batch_operand(batch, 1);
    core__operand bias = core__batch_operand(batch, 2);
    bool own = weight.mapped || bias.mapped;
    core__scope *s = &batch->scope;
    core_value args[8], values[3];

    if (input.ndim < 2)
        return core__batch_loop(batch); /* reports the error */
    memcpy(args, batch->args, sizeof args);
    args[0] = core_pack_tensor(
        core__batch_merged(batch, core__batch_full(batch, &input)));
    args[1] = core_pack_tensor(own ? NULL : weight.tensor);
    args[2] = core_pack_tensor(own ? NULL : bias.tensor);
    args[3].u.i *= batch->batching->size;
    CORE_TRY(core__batch_compute(batch, batch->op, args, 8, values, 3));
    for (uint32_t i = 0; i < 3; i++)
        core__scope_keep(s, values[i].u.tensor);
    for (uint32_t i = 0; i < 3; i++) {
        core_tensor *x = core__batch_split(batch, values[i].u.tensor, 0);

        if (i == 0 && own && weight.tensor)
            x = core__x_mul(s, x, spread(batch, &weight, input.ndim));
        if (i == 0 && own && bias.tensor)
            x = core__x_add(s, x, spread(batch, &bias, input.ndim));
        CORE_TRY(core__batch_result(batch, i, x, 0));
    }
    return CORE_OK;
}

static core_tensor *grad_of_input(core__batch *batch, core_tensor *grad,
                                  const extents *e)
{
    static const uint8_t only_input[3] = {1, 0, 0};
    core__operand weight = core__batch_operand(batch, 4);
    core_tensor *tensors[3], *grads[3] = {NULL, NULL, NULL};
    core__scope *s = &batch->scope;

    for (uint32_t i = 0; i < 3; i++) {
        core__operand o = core__batch_operand(batch, i + 1);

        tensors[i] = core__batch_merged(batch, core__batch_full(batch, &o));
    }
    if (weight.mapped && s->status == CORE_OK)
        grad = core__x_mul(s, grad, spread(batch, &weight, grad->ndim - 1u));
    grad = core__batch_merged(batch, grad);
    CORE__RUN(s, core_native_group_norm_backward(
                     grad, tensors[0], tensors[1], tensors[2],
                     weight.mapped ? NULL : weight.tensor,
                     e->n * batch->batching->size, e->c, e->inner, e->groups,
                     only_input, 3, &grads[0], &grads[1], &grads[2]));
    for (int i = 0; i < 3; i++)
        if (grads[i])
            core__scope_keep(s, grads[i]);
    return core__batch_split(batch, grads[0], 0);
}

/* (input - mean) rstd, [samples, N, C, HxW] */
static core_tensor *normalized(core__batch *batch, const extents *e)
{
    const int64_t sizes[] = {batch->batching->size, e->n, e->groups,
                             e->c / e->groups * e->inner};
    core__operand o = core__batch_operand(batch, 1);
    core__scope *s = &batch->scope;
    core_tensor *x = core__x_reshape(s, core__batch_full(batch, &o), sizes, 4);

    o = core__batch_operand(batch, 2);
    x = core__x_sub(s, x,
                    core__x_unsqueeze(s, core__batch_full(batch, &o), -1));
    o = core__batch_operand(batch, 3);
    x = core__x_mul(s, x,
                    core__x_unsqueeze(s, core__batch_full(batch, &o), -1));
    return flattened(batch, x, e);
}

/* native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW,
 * group, output_mask) */
core_status core__batch_group_norm_backward(core__batch *batch)
{
    const int64_t rows[] = {1, 3};
    core__operand out = core__batch_operand(batch, 0);
    const uint8_t *mask = batch->args[9].u.bools;
    extents e = extents_of(batch, 5);
    core__scope *s = &batch->scope;
    core_tensor *grad = core__batch_full(batch, &out), *x;

    if (batch->args[9].count != 3 || out.ndim < 2 || e.groups < 1 ||
        out.tensor->numel == 0)
        return core__batch_loop(batch);
    if (mask[0])
        CORE_TRY(
            core__batch_result(batch, 0, grad_of_input(batch, grad, &e), 0));
    grad = flattened(batch, grad, &e);
    if (mask[1]) {
        x = core__x_mul(s, grad, normalized(batch, &e));
        x = core__x_sum_dim(s, x, rows, 2, false);
        CORE_TRY(core__batch_result(batch, 1,
                                    core__x_cast(s, x, out.tensor->dtype), 0));
    }
    if (mask[2])
        CORE_TRY(core__batch_result(
            batch, 2, core__x_sum_dim(s, grad, rows, 2, false), 0));
    return s->status;
}
