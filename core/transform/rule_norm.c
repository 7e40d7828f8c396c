/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Layer normalisation: the samples are leading dimensions.  Weights of each
 * sample are applied afterwards, and their gradients are sums over the sample's
 * rows. */

#include "transform/batch.h"

#include <string.h>

/* A weight or bias of each sample, for a tensor of `ndim` dimensions per
 * sample. */
static core_tensor *spread(core__batch *batch, const core__operand *o,
                           uint32_t ndim)
{
    return core__batch_padded(batch, o, ndim);
}

/* native_layer_norm(input, normalized_shape, weight, bias, eps) */
core_status core__batch_layer_norm(core__batch *batch)
{
    core__operand input = core__batch_operand(batch, 0);
    core__operand weight = core__batch_operand(batch, 2);
    core__operand bias = core__batch_operand(batch, 3);
    const core_value *shape = &batch->args[1];
    bool own = weight.mapped || bias.mapped;
    core_tensor *outs[3] = {NULL, NULL, NULL};
    core__scope *s = &batch->scope;
    core_tensor *x = core__batch_full(batch, &input);

    CORE__RUN(s, core_native_layer_norm(
                     x, shape->u.ints, shape->count, own ? NULL : weight.tensor,
                     own ? NULL : bias.tensor, core__double_of(&batch->args[4]),
                     &outs[0], &outs[1], &outs[2]));
    for (int i = 0; i < 3; i++)
        if (outs[i])
            core__scope_keep(s, outs[i]);
    x = outs[0];
    if (own && weight.tensor)
        x = core__x_mul(s, x, spread(batch, &weight, input.ndim));
    if (own && bias.tensor)
        x = core__x_add(s, x, spread(batch, &bias, input.ndim));
    CORE_TRY(core__batch_result(batch, 0, x, 0));
    CORE_TRY(core__batch_result(batch, 1, outs[1], 0));
    return core__batch_result(batch, 2, outs[2], 0);
}

/* The sum over the rows of each sample, [samples, normalized_shape…]. */
static core_tensor *sum_of_rows(core__batch *batch, core_tensor *x,
                                uint32_t normalized)
{
    int64_t dims[CORE_MAX_NDIM];
    size_t count = 0;

    if (batch->scope.status != CORE_OK)
        return x;
    for (uint32_t i = 1; i + normalized < x->ndim; i++)
        dims[count++] = i;
    return count ? core__x_sum_dim(&batch->scope, x, dims, count, false) : x;
}

/* native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd,
 * weight, bias, output_mask) */
core_status core__batch_layer_norm_backward(core__batch *batch)
{
    static const uint8_t only_input[3] = {1, 0, 0};
    core__operand operands[7];
    const core_value *shape = &batch->args[2];
    const uint8_t *mask = batch->args[7].u.bools;
    core_tensor *grads[3] = {NULL, NULL, NULL};
    core__scope *s = &batch->scope;
    core_tensor *grad, *input, *mean, *rstd, *scaled, *x;

    for (uint32_t i = 0; i < 7; i++)
        operands[i] = core__batch_operand(batch, i);
    if (batch->args[7].count != 3)
        return core__batch_loop(batch); /* reports the error */
    grad = core__batch_full(batch, &operands[0]);
    input = core__batch_full(batch, &operands[1]);
    mean = core__batch_full(batch, &operands[3]);
    rstd = core__batch_full(batch, &operands[4]);
    if (mask[0]) {
        scaled =
            operands[5].mapped
                ? core__x_mul(s, grad,
                              spread(batch, &operands[5], operands[0].ndim))
                : grad;
        CORE__RUN(s, core_native_layer_norm_backward(
                         scaled, input, shape->u.ints, shape->count, mean, rstd,
                         operands[5].mapped ? NULL : operands[5].tensor, NULL,
                         only_input, 3, &grads[0], &grads[1], &grads[2]));
        for (int i = 0; i < 3; i++)
            if (grads[i])
                core__scope_keep(s, grads[i]);
        CORE_TRY(core__batch_result(batch, 0, grads[0], 0));
    }
    if (mask[1]) {
        x = core__x_cast(s, input, mean->dtype);
        x = core__x_mul(s, core__x_sub(s, x, mean), rstd);
        x = core__x_mul(s, core__x_cast(s, grad, mean->dtype), x);
        x = sum_of_rows(batch, x, shape->count);
        x = core__x_cast(s, x, operands[0].tensor->dtype);
        CORE_TRY(core__batch_result(batch, 1, x, 0));
    }
    if (mask[2]) {
        x = sum_of_rows(batch, grad, shape->count);
        CORE_TRY(core__batch_result(batch, 2, x, 0));
    }
    return s->status;
}
