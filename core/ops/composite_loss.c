/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Losses: an expression per element, followed by mean, sum or no reduction. */

#include "base/memory.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "ops/content_check.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "ops_ids.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

static core_status reduced(core__scope *scope, const core_operator *op,
                           core_tensor *loss, const core_value *reduction,
                           core_value *result)
{
    CORE_TRY(core__reduction_check(op, reduction->u.i));
    switch (reduction->u.i) {
    case CORE_REDUCTION_NONE:
        break;
    case CORE_REDUCTION_MEAN:
        loss = core__x_mean(scope, loss);
        break;
    case CORE_REDUCTION_SUM:
        loss = core__x_sum(scope, loss);
        break;
    default:
        break;
    }
    return core__scope_result(scope, loss, result);
}

static core_tensor *difference(core__scope *scope, const core_value *args)
{
    return core__x_sub(scope, args[0].u.tensor, args[1].u.tensor);
}

/* The difference, for f16 and bf16 in f32, as PyTorch computes the next two
 * losses.  That of `exact` is not rounded to the dtype first. */
static core_tensor *wide_difference(core__scope *scope, const core_value *args,
                                    core_dtype exact)
{
    core_tensor *self = args[0].u.tensor;
    core_dtype dtype =
        core__dtype_promote(self->dtype, args[1].u.tensor->dtype);

    if (dtype != CORE_F16 && dtype != CORE_BF16)
        return difference(scope, args);
    if (dtype != exact)
        return core__x_cast(scope, difference(scope, args), CORE_F32);
    return core__x_sub(scope, core__x_cast(scope, self, CORE_F32),
                       core__x_cast(scope, args[1].u.tensor, CORE_F32));
}

/* Rounds such a loss to the dtype of the operands. */
static core_tensor *narrowed(core__scope *scope, const core_value *args,
                             core_tensor *loss)
{
    core_dtype dtype =
        core__dtype_promote(args[0].u.tensor->dtype, args[1].u.tensor->dtype);

    return dtype == CORE_F16 || dtype == CORE_BF16
               ? core__x_cast(scope, loss, dtype)
               : loss;
}

/* The result has the dtype of the first operand. */
static core_tensor *like_self(core__scope *scope, const core_value *args,
                              core_tensor *loss)
{
    core_dtype dtype = args[0].u.tensor->dtype;

    return core__dtype_is_floating(dtype) ? core__x_cast(scope, loss, dtype)
                                          : loss;
}

CORE__COMPOSITE(mse_loss)
{
    core_tensor *d = difference(scope, args);

    return reduced(scope, call->op, core__x_mul(scope, d, d), &args[2],
                   &results[0]);
}

CORE__COMPOSITE(l1_loss)
{
    core_tensor *d = difference(scope, args);

    return reduced(scope, call->op, core__x_abs(scope, d), &args[2],
                   &results[0]);
}

/* In the next two, c is d between -bound and bound, and c (d - c / 2) is d² / 2 there
 * and a line beyond: huber's loss, and smooth_l1's, which is divided by beta. */

static core_tensor *between(core__scope *scope, core_tensor *d, double bound)
{
    core_scalar low = core_float(-bound), high = core_float(bound);

    return CORE__DO(scope, core_clamp, d, &low, &high);
}

static core_tensor *past_half(core__scope *scope, core_tensor *d,
                              core_tensor *clamped)
{
    return CORE__DO(scope, core_sub, d, clamped, core_float(0.5));
}

static bool is_f64(const core_tensor *d)
{
    return d && d->dtype == CORE_F64;
}

static bool is_infinite_in(const core_tensor *d, double bound)
{
    return bound > (is_f64(d) ? DBL_MAX : FLT_MAX);
}

/* With an infinite beta.  An infinite d is set to 0 where it does not count, so that
 * its gradient is not NaN. */
static core_tensor *wide_smooth_l1(core__scope *scope, core_tensor *d,
                                   double beta)
{
    core_tensor *size = core__x_abs(scope, d);
    core_tensor *far = CORE__DO(scope, core_ge_scalar, size, core_float(beta));
    core_tensor *inner = core__x_zero_where(scope, d, far);

    inner =
        core__x_mul_scalar(scope, core__x_mul(scope, inner, inner), 0.5 / beta);
    return core__x_where(scope, far,
                         core__x_add_scalar(scope, size, -0.5 * beta), inner);
}

static core_tensor *smooth_l1(core__scope *scope, core_tensor *d, double beta)
{
    core_tensor *clamped;

    if (is_infinite_in(d, beta))
        return wide_smooth_l1(scope, d, beta);
    clamped = between(scope, d, beta);
    d = past_half(scope, d, clamped);
    if (beta != 1)
        clamped = core__x_div_scalar(scope, clamped, beta);
    return core__x_mul(scope, clamped, d);
}

/* |d| - 0.5 beta where |d| >= beta, else 0.5 d² / beta.  Dtypes other than f64 have
 * no or few bits of a beta below FLT_MIN, which counts as 0 there. */
CORE__COMPOSITE(smooth_l1_loss)
{
    double beta = core__double_of(&args[3]);
    core_tensor *d = wide_difference(scope, args, CORE_BF16);

    if (!(beta >= 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "beta is %g; it must be 0 or more", beta);
    d = beta < (is_f64(d) ? DBL_MIN : FLT_MIN) ? core__x_abs(scope, d)
                                               : smooth_l1(scope, d, beta);
    return reduced(scope, call->op, narrowed(scope, args, d), &args[2],
                   &results[0]);
}

/* delta (|d| - 0.5 delta) where |d| > delta, else 0.5 d² */
CORE__COMPOSITE(huber_loss)
{
    double delta = core__double_of(&args[3]);
    core_tensor *d = wide_difference(scope, args, CORE_F16);
    core_tensor *clamped;

    if (!(delta > 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "delta is %g; it must be above 0", delta);
    if (is_infinite_in(d, delta)) { /* infinity minus itself would be NaN */
        d = core__x_mul_scalar(scope, core__x_mul(scope, d, d), 0.5);
    } else {
        clamped = between(scope, d, delta);
        d = core__x_mul(scope, clamped, past_half(scope, d, clamped));
    }
    return reduced(scope, call->op, like_self(scope, args, d), &args[2],
                   &results[0]);
}

CORE__COMPOSITE(soft_margin_loss)
{
    core_tensor *x = core__x_mul(scope, args[0].u.tensor, args[1].u.tensor);

    x = core__x_log1p(scope, core__x_exp(scope, core__x_neg(scope, x)));
    return reduced(scope, call->op, like_self(scope, args, x), &args[2],
                   &results[0]);
}

/* target (log target - self); kl_div(self, target, reduction, *, log_target) */
CORE__COMPOSITE(kl_div)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *target = args[1].u.tensor;
    core_tensor *x;

    if (core__arg_bool(args, 3, false)) {
        x = core__x_mul(scope, core__x_exp(scope, target),
                        core__x_sub(scope, target, self));
    } else {
        x = core__x_sub(scope, CORE__DO(scope, core_xlogy, target, target),
                        core__x_mul(scope, target, self));
    }
    return reduced(scope, call->op, x, &args[2], &results[0]);
}

/* -(t log x + (1 - t) log(1 - x)) per element, with logarithms clamped to -100.
 * Computed below autograd, as the slope of a clamped logarithm can be as large
 * as f32 allows, and to avoid products of 0 and infinity. */
CORE__COMPOSITE(binary_cross_entropy_each)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *target = args[1].u.tensor;
    core_scalar least = core_int(-100);
    core_tensor *yes;
    core_tensor *no;
    core_tensor *x;

    yes = CORE__DO(scope, core_clamp_min, core__x_log(scope, self), least);
    no = core__x_log1p(scope, core__x_neg(scope, self));
    no = CORE__DO(scope, core_clamp_min, no, least);
    x = core__x_sub(
        scope, core__x_mul(scope, core__x_add_scalar(scope, target, -1), no),
        core__x_mul(scope, target, yes));
    return core__scope_result(scope, x, &results[0]);
}

/* Checks self where that needs no wait; on other devices the logarithm of a
 * value outside is NaN, and so is the loss.  The target may be any number. */
static void check_probabilities(core__scope *s, const core_operator *op,
                                core_tensor *x)
{
    if (s->status != CORE_OK)
        return;
    x = core__batched_elements(x);
    if (x->storage && x->device->synchronous && x->numel > 0)
        CORE__RUN(s, core__content_check(op, CORE__CHECK_PROBABILITIES,
                                         core__x_detach(s, x), 0));
}

CORE__COMPOSITE(binary_cross_entropy)
{
    core_tensor *weight = core__tensor_of(&args[2]);
    core_tensor *x;

    check_probabilities(scope, call->op, args[0].u.tensor);
    x = CORE__DO(scope, core_binary_cross_entropy_each, args[0].u.tensor,
                 args[1].u.tensor);

    if (weight)
        x = core__x_mul(scope, x, weight);
    return reduced(scope, call->op, x, &args[3], &results[0]);
}

/* (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)), in a form that does not
 * overflow: log(1 + exp(-x)) = max(-x, 0) + log1p(exp(-|x|)) */
CORE__COMPOSITE(binary_cross_entropy_with_logits)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *target = args[1].u.tensor;
    core_tensor *weight = core__tensor_of(&args[2]);
    core_tensor *positive = core__tensor_of(&args[3]);
    core_tensor *soft;
    core_tensor *x;

    soft = CORE__DO(scope, core_log_sigmoid, self);
    x = core__x_mul(scope, core__x_rsub_scalar(scope, 1, target), self);
    if (positive)
        soft = core__x_mul(
            scope, soft,
            core__x_add_scalar(
                scope,
                core__x_mul(scope, core__x_add_scalar(scope, positive, -1),
                            target),
                1));
    x = core__x_sub(scope, x, soft);
    if (weight)
        x = core__x_mul(scope, x, weight);
    return reduced(scope, call->op, x, &args[4], &results[0]);
}

/* ------------------------------------------------------ classification -- */

static core_tensor *likelihood(core__scope *scope, core_tensor *self,
                               core_tensor *target, core_tensor *weight,
                               int64_t reduction, int64_t ignore, bool planes)
{
    core_tensor *total = NULL;
    core_status status = scope->status;

    if (status == CORE_OK && planes)
        status = core_nll_loss2d_forward(self, target, weight, reduction,
                                         ignore, &scope->pending, &total);
    else if (status == CORE_OK)
        status = core_nll_loss_forward(self, target, weight, reduction, ignore,
                                       &scope->pending, &total);
    core__tensor_release(total);
    return core__scope_add(scope, status);
}

/* Reshapes [N, C, d1, …] to [N, C, 1, d1 …], which the two-dimensional kernel
 * accepts. */
static core_status many_planes(core__scope *scope, const core_operator *op,
                               const core_value *args, core_value *result)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *target = args[1].u.tensor;
    int64_t inner = 1;
    core_tensor *x;

    if (self->ndim != target->ndim + 1)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "target has %u dimensions; it must have %u",
                              target->ndim, self->ndim - 1);
    for (uint32_t i = 0; i < target->ndim; i++)
        if (target->sizes[i] != self->sizes[i ? i + 1 : 0])
            return core__op_shapes_error(
                op, "self", self, "target", target,
                "target must have the sizes of self without those of dimension "
                "1, the classes");
    for (uint32_t i = 2; i < self->ndim; i++)
        inner *= self->sizes[i];
    x = core__x_reshape(
        scope, self,
        (const int64_t[]){self->sizes[0], self->sizes[1], 1, inner}, 4);
    x = likelihood(
        scope, x,
        core__x_reshape(scope, target,
                        (const int64_t[]){target->sizes[0], 1, inner}, 3),
        core__tensor_of(&args[2]), args[3].u.i, args[4].u.i, true);
    if (args[3].u.i == CORE_REDUCTION_NONE)
        x = core__x_reshape(scope, x, target->sizes, target->ndim);
    return core__scope_result(scope, x, result);
}

CORE__COMPOSITE(nll_loss)
{
    core_tensor *self = args[0].u.tensor;

    CORE_TRY(core__reduction_check(call->op, args[3].u.i));
    if (self->ndim == 0)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "self has no dimensions; it must have a class dimension");
    if (self->ndim > 2 && self->ndim != 4)
        return many_planes(scope, call->op, args, &results[0]);
    return core__scope_result(scope,
                              likelihood(scope, self, args[1].u.tensor,
                                         core__tensor_of(&args[2]), args[3].u.i,
                                         args[4].u.i, self->ndim == 4),
                              &results[0]);
}

/* The target contains class probabilities. */
static core_status soft_targets(core__scope *scope, const core_operator *op,
                                const core_value *args, core_tensor *logs,
                                int64_t dim, core_value *result)
{
    core_tensor *target = args[1].u.tensor;
    core_tensor *weight = core__tensor_of(&args[2]);
    double smooth = core__double_of(&args[5]);
    int64_t classes = core_tensor_size(args[0].u.tensor, dim);
    int64_t numel = args[0].u.tensor->numel;
    core_tensor *x;

    if (smooth > 0)
        target = core__x_add_scalar(
            scope, core__x_mul_scalar(scope, target, 1 - smooth),
            smooth / (double)classes);
    x = core__x_mul(scope, logs, target);
    if (weight) {
        int64_t sizes[CORE_MAX_NDIM];

        for (uint32_t i = 0; i < args[0].u.tensor->ndim; i++)
            sizes[i] = i == (uint32_t)dim ? classes : 1;
        x = core__x_mul(
            scope, x,
            core__x_reshape(scope, weight, sizes, args[0].u.tensor->ndim));
    }
    x = core__x_neg(scope, core__x_sum_dim(scope, x, &dim, 1, false));
    if (args[3].u.i == CORE_REDUCTION_MEAN) {
        x = core__x_sum(scope, x);
        x = core__x_div_scalar(scope, x,
                               classes ? (double)numel / (double)classes : 1);
        return core__scope_result(scope, x, result);
    }
    return reduced(scope, op, x, &args[3], result);
}

/* The mean of the losses of all classes, for the smoothed part of the
 * target. */
static core_tensor *smoothed(core__scope *scope, const core_value *args,
                             core_tensor *logs, core_tensor *hard, int64_t dim)
{
    core_tensor *target = args[1].u.tensor;
    core_tensor *weight = core__tensor_of(&args[2]);
    double smooth = core__double_of(&args[5]);
    int64_t classes = core_tensor_size(args[0].u.tensor, dim);
    core_tensor *ignored =
        CORE__DO(scope, core_eq_scalar, target, core_int(args[4].u.i));
    core_tensor *x = logs;
    core_tensor *count;

    if (weight) {
        int64_t sizes[CORE_MAX_NDIM];

        for (uint32_t i = 0; i < args[0].u.tensor->ndim; i++)
            sizes[i] = i == (uint32_t)dim ? classes : 1;
        x = core__x_mul(
            scope, x,
            core__x_reshape(scope, weight, sizes, args[0].u.tensor->ndim));
    }
    x = core__x_neg(scope, core__x_sum_dim(scope, x, &dim, 1, false));
    x = core__x_zero_where(scope, x, ignored);
    if (args[3].u.i != CORE_REDUCTION_NONE)
        x = core__x_sum(scope, x);
    if (args[3].u.i == CORE_REDUCTION_MEAN) {
        if (weight) {
            core_tensor *safe = core__x_zero_where(scope, target, ignored);

            count = core__x_reshape(scope, safe, (const int64_t[]){-1}, 1);
            count = CORE__DO(scope, core_index_select, weight, 0, count);
            count = core__x_reshape(scope, count, target->sizes, target->ndim);
            count = core__x_zero_where(scope, count, ignored);
        } else {
            count = core__x_logical_not(scope, ignored);
        }
        x = core__x_div(scope, x, core__x_sum(scope, count));
    }
    x = core__x_mul_scalar(scope, x, smooth / (double)classes);
    return core__x_add(scope, core__x_mul_scalar(scope, hard, 1 - smooth), x);
}

/* cross_entropy_loss(self, target, weight, reduction, ignore_index,
 * label_smoothing) */
CORE__COMPOSITE(cross_entropy_loss)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *target = args[1].u.tensor;
    int64_t dim = self->ndim == 1 ? 0 : 1;
    double smooth = core__double_of(&args[5]);
    core_tensor *logs;
    core_tensor *loss;

    if (self->ndim == 0 || !(smooth >= 0 && smooth <= 1))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "self has %u dimensions and label_smoothing is %g; self must have "
            "a class dimension and label_smoothing be from 0 to 1",
            self->ndim, smooth);
    CORE_TRY(core__reduction_check(call->op, args[3].u.i));
    logs = CORE__DO(scope, core_log_softmax, self, dim, CORE_DTYPE_NONE);
    if (core__dtype_is_floating(target->dtype))
        return soft_targets(scope, call->op, args, logs, dim, &results[0]);
    loss = CORE__DO(scope, core_nll_loss, logs, target,
                    core__tensor_of(&args[2]), args[3].u.i, args[4].u.i);
    if (smooth > 0)
        loss = smoothed(scope, args, logs, loss, dim);
    return core__scope_result(scope, loss, &results[0]);
}
