/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for normalization and for losses over classes. */

#include "ops/functions.h"
#include "ops/shape.h"
#include "tensor/layout.h"

#include <libcore/tensor.h>

#include <string.h>

static void keep_layout(core__result_spec *result, const core_tensor *input)
{
    if (!core__layout_is_channels_last(input))
        return;
    result->has_strides = true;
    core__layout_channels_last(result->ndim, result->sizes, result->strides);
}

/* Statistics have the weight's dtype if it is wider than the input's. */
static core_dtype statistics_dtype(const core_tensor *input,
                                   const core_tensor *weight)
{
    return weight ? core__dtype_promote(input->dtype, weight->dtype)
                  : input->dtype;
}

static core_status floating(const core_operator *op, const core_tensor *input)
{
    if (core__dtype_is_floating(input->dtype))
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, op,
                          "input must have a floating dtype, not %s",
                          core__dtype_name(input->dtype));
}

/* ----------------------------------------------------------- layer norm -- */

/* native_layer_norm(input, normalized_shape, weight, bias, eps) */
CORE__INFER(layer_norm)
{
    const core_tensor *input = core__arg_tensor(infer->args, 0);
    const core_tensor *weight = core__arg_tensor(infer->args, 2);
    size_t count;
    const int64_t *shape = core__ints_of(&infer->args[1], &count);
    uint32_t outer;

    CORE_TRY(core__normalized_shape_check(infer->op, input, count, shape));
    CORE_TRY(floating(infer->op, input));
    CORE_TRY(core__sizes_check_equal(infer->op, "weight", weight,
                                     (uint32_t)count, shape));
    CORE_TRY(core__sizes_check_equal(infer->op, "bias",
                                     core__arg_tensor(infer->args, 3),
                                     (uint32_t)count, shape));
    core__result_like(&infer->results[0], input);
    core__result_set(&infer->results[1], statistics_dtype(input, weight),
                     input->ndim, input->sizes);
    outer = input->ndim - (uint32_t)count;
    for (uint32_t i = outer; i < input->ndim; i++)
        infer->results[1].sizes[i] = 1;
    infer->results[2] = infer->results[1];
    return CORE_OK;
}

/* (grad_out, input, normalized_shape, mean, rstd, weight, bias, mask) */
CORE__INFER(layer_norm_backward)
{
    const core_tensor *input = core__arg_tensor(infer->args, 1);
    const core_tensor *weight = core__arg_tensor(infer->args, 5);
    core_dtype dtype = weight ? weight->dtype : input->dtype;
    size_t count;
    const int64_t *shape = core__ints_of(&infer->args[2], &count);
    int64_t rows[CORE_MAX_NDIM];

    CORE_TRY(core__normalized_shape_check(infer->op, input, count, shape));
    memcpy(rows, input->sizes, input->ndim * sizeof *rows);
    for (size_t i = input->ndim - count; i < input->ndim; i++)
        rows[i] = 1;
    CORE_TRY(core__sizes_check_equal(infer->op, "grad_out",
                                     core__arg_tensor(infer->args, 0),
                                     input->ndim, input->sizes));
    CORE_TRY(core__sizes_check_equal(infer->op, "mean",
                                     core__arg_tensor(infer->args, 3),
                                     input->ndim, rows));
    CORE_TRY(core__sizes_check_equal(infer->op, "rstd",
                                     core__arg_tensor(infer->args, 4),
                                     input->ndim, rows));
    CORE_TRY(core__sizes_check_equal(infer->op, "weight", weight,
                                     (uint32_t)count, shape));
    CORE_TRY(floating(infer->op, input));
    core__result_like(&infer->results[0], input);
    core__result_set(&infer->results[1], dtype, (uint32_t)count, shape);
    core__result_set(&infer->results[2], dtype, (uint32_t)count, shape);
    return core__results_mask(infer, &infer->args[7], 3);
}

/* ----------------------------------------------------------- group norm -- */

static core_status check_groups(const core_operator *op,
                                const core_tensor *input, int64_t n, int64_t c,
                                int64_t inner, int64_t groups)
{
    CORE_TRY(core__sizes_check(op, 3, (const int64_t[]){n, c, inner}));
    if (groups > 0 && c % groups == 0 && n * c * inner == input->numel)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "%lld groups of the C = %lld channels, N = %lld and "
                          "HxW = %lld do not fit input's %lld elements",
                          (long long)groups, (long long)c, (long long)n,
                          (long long)inner, (long long)input->numel);
}

/* native_group_norm(input, weight, bias, N, C, HxW, group, eps) */
CORE__INFER(group_norm)
{
    const core_tensor *input = core__arg_tensor(infer->args, 0);
    const core_tensor *weight = core__arg_tensor(infer->args, 1);
    int64_t n = infer->args[3].u.i;
    int64_t c = infer->args[4].u.i;
    int64_t inner = infer->args[5].u.i;
    int64_t groups = infer->args[6].u.i;

    CORE_TRY(check_groups(infer->op, input, n, c, inner, groups));
    CORE_TRY(floating(infer->op, input));
    CORE_TRY(core__sizes_check_equal(infer->op, "weight", weight, 1, &c));
    CORE_TRY(core__sizes_check_equal(infer->op, "bias",
                                     core__arg_tensor(infer->args, 2), 1, &c));
    core__result_like(&infer->results[0], input);
    keep_layout(&infer->results[0], input);
    core__result_set(&infer->results[1], statistics_dtype(input, weight), 2,
                     (const int64_t[]){n, groups});
    infer->results[2] = infer->results[1];
    return CORE_OK;
}

/* (grad_out, input, mean, rstd, weight, N, C, HxW, group, mask) */
CORE__INFER(group_norm_backward)
{
    const core_tensor *input = core__arg_tensor(infer->args, 1);
    const core_tensor *weight = core__arg_tensor(infer->args, 4);
    core_dtype dtype = weight ? weight->dtype : input->dtype;
    int64_t n = infer->args[5].u.i;
    int64_t c = infer->args[6].u.i;
    int64_t inner = infer->args[7].u.i;
    int64_t groups = infer->args[8].u.i;

    CORE_TRY(check_groups(infer->op, input, n, c, inner, groups));
    CORE_TRY(floating(infer->op, input));
    CORE_TRY(core__sizes_check_equal(infer->op, "grad_out",
                                     core__arg_tensor(infer->args, 0),
                                     input->ndim, input->sizes));
    for (uint32_t i = 2; i < 4; i++)
        CORE_TRY(core__sizes_check_equal(infer->op, i == 2 ? "mean" : "rstd",
                                         core__arg_tensor(infer->args, i), 2,
                                         (const int64_t[]){n, groups}));
    CORE_TRY(core__sizes_check_equal(infer->op, "weight", weight, 1, &c));
    core__result_like(&infer->results[0], input);
    keep_layout(&infer->results[0], input);
    core__result_set(&infer->results[1], dtype, 1, &c);
    core__result_set(&infer->results[2], dtype, 1, &c);
    return core__results_mask(infer, &infer->args[9], 3);
}

/* ----------------------------------------------------------- batch norm -- */

/* native_batch_norm(input, weight, bias, running_mean, running_var, training,
 * momentum, eps): statistics are saved only in training. */
CORE__INFER(batch_norm)
{
    static const char *const names[] = {"weight", "bias", "running_mean",
                                        "running_var"};
    const core_tensor *input = core__arg_tensor(infer->args, 0);
    const core_tensor *weight = core__arg_tensor(infer->args, 1);
    bool training = infer->args[5].u.i != 0;
    int64_t saved;

    if (input->ndim < 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "input must have at least 2 dimensions, not %u",
                              input->ndim);
    CORE_TRY(floating(infer->op, input));
    for (uint32_t i = 0; i < 4; i++)
        CORE_TRY(core__sizes_check_equal(infer->op, names[i],
                                         core__arg_tensor(infer->args, 1 + i),
                                         1, &input->sizes[1]));
    if (!training && (!core__arg_tensor(infer->args, 3) ||
                      !core__arg_tensor(infer->args, 4)))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "running_mean and running_var must be given when "
                              "training is false");
    saved = training ? input->sizes[1] : 0;
    core__result_like(&infer->results[0], input);
    keep_layout(&infer->results[0], input);
    core__result_set(&infer->results[1], statistics_dtype(input, weight), 1,
                     &saved);
    infer->results[2] = infer->results[1];
    return CORE_OK;
}

/* (grad_out, input, weight, running_mean, running_var, save_mean,
 * save_invstd, train, eps, mask) */
CORE__INFER(batch_norm_backward)
{
    static const char *const names[] = {"running_mean", "running_var",
                                        "save_mean", "save_invstd"};
    const core_tensor *input = core__arg_tensor(infer->args, 1);
    const core_tensor *weight = core__arg_tensor(infer->args, 2);
    core_dtype dtype = weight ? weight->dtype : input->dtype;
    uint32_t statistics = infer->args[7].u.i != 0 ? 5 : 3;

    if (input->ndim < 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "input must have at least 2 dimensions, not %u",
                              input->ndim);
    CORE_TRY(floating(infer->op, input));
    CORE_TRY(core__sizes_check_equal(infer->op, "grad_out",
                                     core__arg_tensor(infer->args, 0),
                                     input->ndim, input->sizes));
    CORE_TRY(core__sizes_check_equal(infer->op, "weight", weight, 1,
                                     &input->sizes[1]));
    /* The statistics that the forward normalized with: those of the batch, or
     * the running ones. */
    for (uint32_t i = statistics; i < statistics + 2; i++) {
        const core_tensor *tensor = core__arg_tensor(infer->args, i);

        if (!tensor)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                                  "%s must be given when train is %s",
                                  names[i - 3], i < 5 ? "false" : "true");
        CORE_TRY(core__sizes_check_equal(infer->op, names[i - 3], tensor, 1,
                                         &input->sizes[1]));
    }
    core__result_like(&infer->results[0], input);
    keep_layout(&infer->results[0], input);
    core__result_set(&infer->results[1], dtype, 1, &input->sizes[1]);
    core__result_set(&infer->results[2], dtype, 1, &input->sizes[1]);
    return core__results_mask(infer, &infer->args[9], 3);
}

/* -------------------------------------------------------------- losses -- */

static core_status check_target(const core__inference *infer,
                                const core_tensor *self,
                                const core_tensor *target,
                                const core_tensor *weight, uint32_t classes)
{
    char have[256];
    char want[256];
    bool fits = target->ndim + 1 == self->ndim;

    for (uint32_t i = 0, at = 0; fits && i < self->ndim; i++) {
        if (i == classes)
            continue;
        fits = target->sizes[at++] == self->sizes[i];
    }
    if (!fits)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "target has sizes %s; they must be those of self, %s, without its "
            "class dimension",
            core__sizes_text(target->ndim, target->sizes, have, sizeof have),
            core__sizes_text(self->ndim, self->sizes, want, sizeof want));
    if (target->dtype != CORE_I64 && target->dtype != CORE_I32)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "target must be i64 or i32, not %s",
                              core__dtype_name(target->dtype));
    return core__sizes_check_equal(infer->op, "weight", weight, 1,
                                   &self->sizes[classes]);
}

/* (self, target, weight, reduction, ignore_index) */
static core_status likelihood(core__inference *infer, uint32_t classes)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *target = core__arg_tensor(infer->args, 1);

    CORE_TRY(core__reduction_check(infer->op, infer->args[3].u.i));
    CORE_TRY(floating(infer->op, self));
    CORE_TRY(check_target(infer, self, target, core__arg_tensor(infer->args, 2),
                          classes));
    if (infer->args[3].u.i == CORE_REDUCTION_NONE)
        core__result_set(&infer->results[0], self->dtype, target->ndim,
                         target->sizes);
    else
        core__result_set(&infer->results[0], self->dtype, 0, NULL);
    core__result_set(&infer->results[1], self->dtype, 0, NULL);
    return CORE_OK;
}

CORE__INFER(nll_loss)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    if (self->ndim != 1 && self->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "self must have 1 or 2 dimensions, not %u",
                              self->ndim);
    return likelihood(infer, self->ndim - 1);
}

CORE__INFER(nll_loss2d)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    if (self->ndim != 4)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "self must have 4 dimensions, not %u",
                              self->ndim);
    return likelihood(infer, 1);
}

/* nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index,
 * total_weight): the forward's arguments follow the first. */
static core_status likelihood_backward(
    core__inference *infer, core_status (*forward)(core__inference *))
{
    const core_tensor *grad = core__arg_tensor(infer->args, 0);
    const core_tensor *total = core__arg_tensor(infer->args, 6);
    core__inference inner = *infer;

    inner.args++;
    CORE_TRY(forward(&inner));
    CORE_TRY(core__sizes_check_equal(infer->op, "grad_output", grad,
                                     inner.results[0].ndim,
                                     inner.results[0].sizes));
    if (total->numel != 1)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "total_weight must have one element, not %lld",
                              (long long)total->numel);
    core__result_like(&infer->results[0], core__arg_tensor(infer->args, 1));
    infer->results[0].dtype = grad->dtype;
    return CORE_OK;
}

CORE__INFER(nll_loss_backward)
{
    return likelihood_backward(infer, core__infer_nll_loss);
}

CORE__INFER(nll_loss2d_backward)
{
    return likelihood_backward(infer, core__infer_nll_loss2d);
}
