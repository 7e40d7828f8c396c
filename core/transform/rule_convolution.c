/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Convolution.  Samples that share the weight are one larger batch; samples
 * with weights of their own are groups of one convolution. */

#include "transform/batch.h"

#include <string.h>

/* The arguments of a convolution, from stride on. */
typedef struct shape {
    const core_value *args; /* stride, padding, dilation, transposed,
                             * output_padding, groups */
    int64_t groups;
} shape;

static shape shape_of(const core__batch *batch, uint32_t first)
{
    return (shape){&batch->args[first], batch->args[first + 5].u.i};
}

static core_tensor *convolved(core__batch *batch, const shape *c,
                              core_tensor *input, core_tensor *weight,
                              core_tensor *bias, int64_t groups)
{
    const core_value *a = c->args;

    return CORE__DO(&batch->scope, core_convolution, input, weight, bias,
                    a[0].u.ints, a[0].count, a[1].u.ints, a[1].count,
                    a[2].u.ints, a[2].count, a[3].u.i != 0, a[4].u.ints,
                    a[4].count, groups);
}

/* [samples, N, C, …] to [N, samples C, …] */
static core_tensor *channels_joined(core__batch *batch, const core__operand *o)
{
    core_tensor *x = core__batch_full(batch, o);

    x = CORE__DO(&batch->scope, core_movedim, x, 0, 1);
    if (batch->scope.status != CORE_OK)
        return x;
    return CORE__DO(&batch->scope, core_flatten, x, 1, 2);
}

/* [samples, O, C, …] to [samples O, C, …] */
static core_tensor *filters_joined(core__batch *batch, const core__operand *o)
{
    return core__batch_merged(batch, core__batch_full(batch, o));
}

/* bias [O] or [samples, O], for a result with the samples first */
static core_tensor *with_bias(core__batch *batch, core_tensor *out,
                              const core__operand *bias, uint32_t ndim)
{
    core__scope *s = &batch->scope;
    core_tensor *x = core__batch_front(batch, bias);

    if (bias->mapped)
        x = core__x_unsqueeze(s, x, 1);
    for (uint32_t i = 2; i < ndim; i++)
        x = core__x_unsqueeze(s, x, -1);
    return core__x_add(s, out, x);
}

core_status core__batch_convolution(core__batch *batch)
{
    core__operand input = core__batch_operand(batch, 0);
    core__operand weight = core__batch_operand(batch, 1);
    core__operand bias = core__batch_operand(batch, 2);
    shape c = shape_of(batch, 3);
    core_tensor *x;

    if (input.ndim < 3 || weight.ndim != input.ndim)
        return core__batch_loop(batch); /* reports the error */
    if (!weight.mapped && input.mapped) {
        x = core__batch_merged(batch, core__batch_front(batch, &input));
        x = convolved(batch, &c, x, weight.tensor,
                      bias.mapped ? NULL : bias.tensor, c.groups);
        x = core__batch_split(batch, x, 0);
        if (bias.mapped)
            x = with_bias(batch, x, &bias, input.ndim);
        return core__batch_result(batch, 0, x, 0);
    }
    if (!weight.mapped) { /* only the bias is */
        x = convolved(batch, &c, input.tensor, weight.tensor, NULL, c.groups);
        return core__batch_result(batch, 0,
                                  with_bias(batch, x, &bias, input.ndim), 0);
    }
    x = convolved(batch, &c, channels_joined(batch, &input),
                  filters_joined(batch, &weight), NULL,
                  c.groups * batch->batching->size);
    x = CORE__DO(&batch->scope, core_movedim, core__batch_split(batch, x, 1), 1,
                 0);
    if (bias.tensor)
        x = with_bias(batch, x, &bias, input.ndim);
    return core__batch_result(batch, 0, x, 0);
}

/* One or two of the gradients; out: those of input and weight. */
static void backward(core__batch *batch, const shape *c, core_tensor *grad,
                     core_tensor *input, core_tensor *weight, int64_t groups,
                     bool by_input, core_tensor **out)
{
    const uint8_t mask[3] = {by_input, !by_input, 0};
    core_tensor *grads[3] = {NULL, NULL, NULL};
    const core_value *a = c->args;
    core__scope *s = &batch->scope;

    CORE__RUN(s, core_convolution_backward(
                     grad, input, weight, NULL, 0, a[0].u.ints, a[0].count,
                     a[1].u.ints, a[1].count, a[2].u.ints, a[2].count,
                     a[3].u.i != 0, a[4].u.ints, a[4].count, groups, mask, 3,
                     &grads[0], &grads[1], &grads[2]));
    for (int i = 0; i < 3; i++)
        if (grads[i])
            core__scope_keep(s, grads[i]);
    *out = grads[by_input ? 0 : 1];
}

static core_tensor *grad_of_input(core__batch *batch, const shape *c,
                                  const core__operand *grad,
                                  const core__operand *input,
                                  const core__operand *weight)
{
    core_tensor *x;

    if (!weight->mapped) {
        backward(batch, c,
                 core__batch_merged(batch, core__batch_full(batch, grad)),
                 core__batch_merged(batch, core__batch_full(batch, input)),
                 weight->tensor, c->groups, true, &x);
        return core__batch_split(batch, x, 0);
    }
    backward(batch, c, channels_joined(batch, grad),
             channels_joined(batch, input), filters_joined(batch, weight),
             c->groups * batch->batching->size, true, &x);
    return CORE__DO(&batch->scope, core_movedim, core__batch_split(batch, x, 1),
                    1, 0);
}

static core_tensor *grad_of_weight(core__batch *batch, const shape *c,
                                   const core__operand *grad,
                                   const core__operand *input,
                                   const core__operand *weight)
{
    core_tensor *x;

    backward(batch, c, channels_joined(batch, grad),
             channels_joined(batch, input), filters_joined(batch, weight),
             c->groups * batch->batching->size, false, &x);
    return core__batch_split(batch, x, 0);
}

static core_tensor *grad_of_bias(core__batch *batch, const core__operand *grad)
{
    core_tensor *x = core__batch_full(batch, grad);
    int64_t dims[CORE_MAX_NDIM] = {1};
    size_t count = 1;

    for (uint32_t i = 3; batch->scope.status == CORE_OK && i < x->ndim; i++)
        dims[count++] = i;
    return core__x_sum_dim(&batch->scope, x, dims, count, false);
}

/* convolution_backward(grad_output, input, weight, bias_sizes, stride, padding,
 * dilation, transposed, output_padding, groups, output_mask) */
core_status core__batch_convolution_backward(core__batch *batch)
{
    core__operand grad = core__batch_operand(batch, 0);
    core__operand input = core__batch_operand(batch, 1);
    core__operand weight = core__batch_operand(batch, 2);
    const uint8_t *mask = batch->args[10].u.bools;
    shape c = shape_of(batch, 4);

    if (input.ndim < 3 || weight.ndim != input.ndim ||
        grad.ndim != input.ndim || batch->args[10].count != 3)
        return core__batch_loop(batch); /* reports the error */
    if (mask[0])
        CORE_TRY(core__batch_result(
            batch, 0, grad_of_input(batch, &c, &grad, &input, &weight), 0));
    if (mask[1])
        CORE_TRY(core__batch_result(
            batch, 1, grad_of_weight(batch, &c, &grad, &input, &weight), 0));
    if (mask[2])
        CORE_TRY(core__batch_result(batch, 2, grad_of_bias(batch, &grad), 0));
    return batch->scope.status;
}
