/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of losses, activations, distances and pools as operators.  The
 * operators themselves are composites with gradients of their own; these serve
 * callers that use ATen's names. */

#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------- activations -- */

/* log_sigmoid_backward(grad_output, self, buffer) */
CORE__COMPOSITE(log_sigmoid_backward)
{
    core_tensor *x = core__x_neg(scope, args[1].u.tensor);

    x = core__x_mul(scope, args[0].u.tensor, core__x_sigmoid(scope, x));
    return core__scope_result(scope, x, &results[0]);
}

/* The halves along dim of the argument x. */
static core_status halves(core__scope *scope, const core_operator *op,
                          const char *name, core_tensor *x, int64_t dim,
                          core_tensor **out)
{
    uint32_t at;
    int64_t half;

    CORE_TRY(core__dim_wrap(op, dim, x->ndim, &at));
    if (x->ndim == 0 || x->sizes[at] % 2 != 0)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "%s has size %lld in dimension %u; it must be "
                              "even",
                              name, (long long)(x->ndim ? x->sizes[at] : 1),
                              at);
    half = x->sizes[at] / 2;
    out[0] = core__x_slice(scope, x, at, 0, half);
    out[1] = core__x_slice(scope, x, at, half, 2 * half);
    return scope->status;
}

static core_status joined(core__scope *scope, core_tensor *a, core_tensor *b,
                          int64_t dim, core_value *result)
{
    core_tensor *parts[2] = {a, b};

    if (scope->status != CORE_OK)
        return scope->status;
    return core__scope_result(scope, CORE__DO(scope, core_cat, parts, 2, dim),
                              result);
}

/* s (1 - s), the slope of a sigmoid with value s */
static core_tensor *slope_of(core__scope *scope, core_tensor *s)
{
    return core__x_mul(scope, s, core__x_rsub_scalar(scope, 1, s));
}

/* glu_backward(grad_output, self, dim): self is [a, b], glu a sigmoid(b) */
CORE__COMPOSITE(glu_backward)
{
    core_tensor *grad = args[0].u.tensor;
    core_tensor *h[2], *s, *b;

    CORE_TRY(halves(scope, call->op, "self", args[1].u.tensor, args[2].u.i, h));
    s = core__x_sigmoid(scope, h[1]);
    b = core__x_mul(scope, core__x_mul(scope, grad, h[0]), slope_of(scope, s));
    return joined(scope, core__x_mul(scope, grad, s), b, args[2].u.i,
                  &results[0]);
}

/* glu_jvp(glu, x, dx, dim): the change of glu for a change dx of x */
CORE__COMPOSITE(glu_jvp)
{
    core_tensor *h[2], *d[2], *s, *x;

    CORE_TRY(halves(scope, call->op, "x", args[1].u.tensor, args[3].u.i, h));
    CORE_TRY(halves(scope, call->op, "dx", args[2].u.tensor, args[3].u.i, d));
    s = core__x_sigmoid(scope, h[1]);
    x = core__x_mul(scope, core__x_mul(scope, args[0].u.tensor, d[1]),
                    core__x_rsub_scalar(scope, 1, s));
    x = core__x_add(scope, core__x_mul(scope, d[0], s), x);
    return core__scope_result(scope, x, &results[0]);
}

/* glu_backward_jvp(grad_x, grad_glu, x, dgrad_glu, dx, dim): the change of
 * grad_x = glu_backward(grad_glu, x, dim) */
CORE__COMPOSITE(glu_backward_jvp)
{
    core_tensor *grad = args[1].u.tensor;
    core_tensor *change = args[3].u.tensor;
    core_tensor *h[2], *d[2], *s, *ds, *slope, *da, *db, *x;

    CORE_TRY(halves(scope, call->op, "x", args[2].u.tensor, args[5].u.i, h));
    CORE_TRY(halves(scope, call->op, "dx", args[4].u.tensor, args[5].u.i, d));
    s = core__x_sigmoid(scope, h[1]);
    slope = slope_of(scope, s);
    ds = core__x_mul(scope, slope, d[1]);
    da = core__x_add(scope, core__x_mul(scope, change, s),
                     core__x_mul(scope, grad, ds));
    db = core__x_add(scope, core__x_mul(scope, change, h[0]),
                     core__x_mul(scope, grad, d[0]));
    db = core__x_mul(scope, db, slope);
    x = core__x_add_scalar(scope, core__x_mul_scalar(scope, s, -2), 1);
    x = core__x_mul(scope, core__x_mul(scope, x, ds),
                    core__x_mul(scope, grad, h[0]));
    return joined(scope, da, core__x_add(scope, db, x), args[5].u.i,
                  &results[0]);
}

/* --------------------------------------------------------------- losses -- */

/* The factor that the mean of n losses puts before each gradient. */
static core_status factor_of(const core_operator *op, int64_t reduction,
                             int64_t n, double *out)
{
    CORE_TRY(core__reduction_check(op, reduction));
    *out = reduction == CORE_REDUCTION_MEAN ? 1 / (double)n : 1;
    return CORE_OK;
}

static core_tensor *difference(core__scope *scope, const core_value *args)
{
    return core__x_sub(scope, args[1].u.tensor, args[2].u.tensor);
}

/* The product of a slope, a number, the factor of a mean over its elements, and
 * the gradient of the loss, in this order, as in PyTorch. */
static core_status sloped(core__scope *scope, const core_operator *op,
                          core_tensor *slope, double number, core_tensor *grad,
                          int64_t reduction, core_value *result)
{
    double factor;

    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(factor_of(op, reduction, slope->numel, &factor));
    factor *= number;
    if (factor != 1 || !core__dtype_is_floating(slope->dtype))
        slope = core__x_mul_scalar(scope, slope, factor);
    return core__scope_result(scope, core__x_mul(scope, slope, grad), result);
}

/* mse_loss_backward(grad_output, self, target, reduction) */
CORE__COMPOSITE(mse_loss_backward)
{
    return sloped(scope, call->op, difference(scope, args), 2, args[0].u.tensor,
                  args[3].u.i, &results[0]);
}

/* huber_loss_backward(grad_output, self, target, reduction, delta) */
CORE__COMPOSITE(huber_loss_backward)
{
    double delta = core__double_of(&args[4]);
    core_scalar low = core_float(-delta), high = core_float(delta);

    if (!(delta > 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "delta is %g; it must be above 0", delta);
    return sloped(
        scope, call->op,
        CORE__DO(scope, core_clamp, difference(scope, args), &low, &high), 1,
        args[0].u.tensor, args[3].u.i, &results[0]);
}

/* smooth_l1_loss_backward(grad_output, self, target, reduction, beta) */
CORE__COMPOSITE(smooth_l1_loss_backward)
{
    double beta = core__double_of(&args[4]);
    core_scalar low = core_int(-1), high = core_int(1);
    core_tensor *x = difference(scope, args);

    if (!(beta >= 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "beta is %g; it must be 0 or more", beta);
    if (beta > 0 && beta != 1)
        x = core__x_div_scalar(scope, x, beta);
    x = beta > 0 ? CORE__DO(scope, core_clamp, x, &low, &high)
                 : core__x_sign(scope, x);
    return sloped(scope, call->op, x, 1, args[0].u.tensor, args[3].u.i,
                  &results[0]);
}

/* binary_cross_entropy_backward(grad_output, self, target, weight,
 * reduction) */
CORE__COMPOSITE(binary_cross_entropy_backward)
{
    core_tensor *self = args[1].u.tensor;
    core_tensor *weight = core__tensor_of(&args[3]);
    core_tensor *x = slope_of(scope, self);

    x = CORE__DO(scope, core_clamp_min, x, core_float(1e-12));
    x = core__x_div(scope, difference(scope, args), x);
    if (weight)
        x = core__x_mul(scope, x, weight);
    return sloped(scope, call->op, x, 1, args[0].u.tensor,
                  core__arg_int(args, 4, CORE_REDUCTION_MEAN), &results[0]);
}

/* ------------------------------------------------------- margin losses -- */

typedef struct rows {
    int64_t sizes[2]; /* rows and classes */
    core_tensor *x, *target, *grad;
} rows;

static core_status rows_of(core__scope *scope, const core_operator *op,
                           const core_value *args, bool one, int64_t reduction,
                           rows *out)
{
    core_tensor *self = args[1].u.tensor;
    core_tensor *target = args[2].u.tensor;
    core_tensor *grad = args[0].u.tensor;
    bool each = reduction == CORE_REDUCTION_NONE;

    CORE_TRY(core__reduction_check(op, reduction));
    out->sizes[0] = self->ndim == 2 ? self->sizes[0] : 1;
    out->sizes[1] = self->ndim ? self->sizes[self->ndim - 1] : 1;
    if (self->ndim > 2 || out->sizes[1] == 0 ||
        !core__dtype_is_floating(self->dtype) || target->dtype != CORE_I64)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "self has %u dimensions and is %s, and target is %s; self must "
            "have at most 2, at least one class, and a floating dtype, and "
            "target be i64",
            self->ndim, core__dtype_name(self->dtype),
            core__dtype_name(target->dtype));
    if (target->numel != (one ? out->sizes[0] : self->numel) ||
        grad->numel != (each ? out->sizes[0] : 1))
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "target has %lld elements and grad_output %lld, "
                              "which do not fit %lld rows of %lld classes",
                              (long long)target->numel, (long long)grad->numel,
                              (long long)out->sizes[0],
                              (long long)out->sizes[1]);
    out->x = core__x_reshape(scope, self, out->sizes, 2);
    out->target = core__x_reshape(
        scope, target,
        (const int64_t[]){out->sizes[0], one ? 1 : out->sizes[1]}, 2);
    out->grad = core__x_reshape(
        scope, grad, (const int64_t[]){each ? out->sizes[0] : 1, 1}, 2);
    return scope->status;
}

/* The gradient of each class, times the factors of the means over classes and
 * rows and the gradient of the loss. */
static core_status row_gradient(core__scope *scope, const core_operator *op,
                                core_tensor *x, const rows *r,
                                int64_t reduction, const core_tensor *self,
                                core_value *result)
{
    double factor;

    CORE_TRY(factor_of(op, reduction, r->sizes[0], &factor));
    x = core__x_mul_scalar(scope, x, factor / (double)r->sizes[1]);
    x = core__x_mul(scope, x, r->grad);
    return core__scope_result(
        scope, core__x_reshape(scope, x, self->sizes, self->ndim), result);
}

/* multi_margin_loss_backward(grad_output, self, target, p, margin, weight,
 * reduction) */
CORE__COMPOSITE(multi_margin_loss_backward)
{
    core_tensor *weight = core__tensor_of(&args[5]);
    double p = core__double_of(&args[3]);
    int64_t reduction = core__arg_int(args, 6, CORE_REDUCTION_MEAN);
    core_tensor *x, *hot, *off;
    rows r;

    CORE_TRY(rows_of(scope, call->op, args, true, reduction, &r));
    CORE_TRY(
        core__sizes_check_equal(call->op, "weight", weight, 1, &r.sizes[1]));
    if (p != 1 && p != 2)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "p must be 1 or 2, not %g", p);
    x = CORE__DO(scope, core_gather, r.x, 1, r.target, false);
    x = core__x_add_scalar(scope, core__x_sub(scope, r.x, x),
                           core__double_of(&args[4]));
    hot = core__x_eq(scope, core__x_arange(scope, x, r.sizes[1]), r.target);
    off = core__x_logical_or(scope, hot,
                             CORE__DO(scope, core_le_scalar, x, core_int(0)));
    x = p == 2 ? core__x_mul_scalar(scope, x, 2)
               : CORE__DO(scope, core_ones_like, x, CORE_DTYPE_NONE, NULL, -1);
    x = core__x_zero_where(scope, x, off);
    if (weight)
        x = core__x_mul(scope, x, CORE__DO(scope, core_take, weight, r.target));
    off = core__x_neg(scope,
                      core__x_sum_dim(scope, x, (const int64_t[]){1}, 1, true));
    x = core__x_where(scope, hot, off, x);
    return row_gradient(scope, call->op, x, &r, reduction, args[1].u.tensor,
                        &results[0]);
}

/* multilabel_margin_loss_backward(grad_output, self, target, reduction,
 * is_target): each pair of a listed class and another one that violates the
 * margin moves both. */
CORE__COMPOSITE(multilabel_margin_loss_backward)
{
    core_tensor *there, *z, *good, *x, *is_target = args[4].u.tensor;
    rows r;

    CORE_TRY(rows_of(scope, call->op, args, false, args[3].u.i, &r));
    CORE_TRY(core__sizes_check_equal(call->op, "is_target", is_target,
                                     args[1].u.tensor->ndim,
                                     args[1].u.tensor->sizes));
    is_target = core__x_reshape(scope, is_target, r.sizes, 2);
    there = CORE__DO(scope, core_ge_scalar, r.target, core_int(0));
    there = CORE__DO(scope, core_cumprod, there, 1, CORE_DTYPE_NONE);
    r.target = CORE__DO(scope, core_clamp_min, r.target, core_int(0));
    z = CORE__DO(scope, core_gather, r.x, 1, r.target, false);
    z = core__x_sub(scope, core__x_unsqueeze(scope, r.x, 1),
                    core__x_unsqueeze(scope, z, 2));
    z = core__x_add_scalar(scope, z, 1);
    good = core__x_logical_or(
        scope, CORE__DO(scope, core_le_scalar, z, core_int(0)),
        core__x_unsqueeze(
            scope, CORE__DO(scope, core_ne_scalar, is_target, core_int(0)), 1));
    good = core__x_logical_or(
        scope, good,
        core__x_unsqueeze(scope, core__x_logical_not(scope, there), 2));
    z = CORE__DO(scope, core_ones_like, z, CORE_DTYPE_NONE, NULL, -1);
    z = core__x_zero_where(scope, z, good);
    x = core__x_sum_dim(scope, z, (const int64_t[]){1}, 1, false);
    z = core__x_neg(scope,
                    core__x_sum_dim(scope, z, (const int64_t[]){2}, 1, false));
    x = CORE__DO(scope, core_scatter_add, x, 1, r.target, z);
    return row_gradient(scope, call->op, x, &r, args[3].u.i, args[1].u.tensor,
                        &results[0]);
}

/* ------------------------------------------------------------ distances -- */

/* The slope of |difference| in the norm p, times grad; 0 where the distance
 * is. */
static core_tensor *norm_slope(core__scope *scope, core_tensor *difference,
                               core_tensor *distance, core_tensor *grad,
                               double p)
{
    core_tensor *size, *x, *none;

    if (p == 0)
        return core__x_zeros_like(scope, core__x_mul(scope, difference, grad));
    x = core__x_sign(scope, difference);
    if (p == 1)
        return core__x_mul(scope, x, grad);
    size = core__x_abs(scope, difference);
    none = core__x_eq_scalar(scope, distance, 0);
    if (p == INFINITY) {
        none =
            core__x_logical_or(scope, none, core__x_ne(scope, size, distance));
        x = core__x_mul(scope, x, grad);
    } else if (p == 2) {
        x = core__x_mul(scope, core__x_div(scope, difference, distance), grad);
    } else {
        /* Equal coordinates have no slope, whatever the power says. */
        none =
            core__x_logical_or(scope, none, core__x_eq_scalar(scope, size, 0));
        size = core__x_pow_scalar(scope, core__x_div(scope, size, distance),
                                  p - 1);
        x = core__x_mul(scope, core__x_mul(scope, x, size), grad);
    }
    return core__x_zero_where(scope, x, none);
}

/* _cdist_backward(grad_output, x1, x2, p, cdist): the gradient of x1 */
CORE__COMPOSITE(cdist_backward)
{
    core_tensor *a = args[1].u.tensor, *b = args[2].u.tensor;
    double p = core__double_of(&args[3]);
    core_tensor *x;

    if (a->ndim < 2 || b->ndim < 2 || args[0].u.tensor->ndim < 2 || !(p >= 0))
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "x1 and x2 have %u and %u dimensions and p is "
                              "%g; they must have at least 2, and p be 0 or "
                              "more",
                              a->ndim, b->ndim, p);
    x = core__x_sub(scope, core__x_unsqueeze(scope, a, -2),
                    core__x_unsqueeze(scope, b, -3));
    x = norm_slope(scope, x, core__x_unsqueeze(scope, args[4].u.tensor, -1),
                   core__x_unsqueeze(scope, args[0].u.tensor, -1), p);
    return core__scope_result(
        scope, core__x_sum_dim(scope, x, (const int64_t[]){-2}, 1, false),
        &results[0]);
}

/* _pdist_backward(grad_output, self, p, pdist): pairs i < j in row order */
CORE__COMPOSITE(pdist_backward)
{
    core_tensor *self = args[1].u.tensor;
    double p = core__double_of(&args[2]);
    core_tensor *places, *i, *j, *x, *out;

    if (self->ndim != 2 || !(p >= 0))
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self has %u dimensions and p is %g; self must "
                              "have 2, and p be 0 or more",
                              self->ndim, p);
    places = CORE__DO(scope, core_triu_indices, self->sizes[0], self->sizes[0],
                      1, CORE_I64, self->device);
    i = CORE__DO(scope, core_select, places, 0, 0);
    j = CORE__DO(scope, core_select, places, 0, 1);
    x = core__x_sub(scope, CORE__DO(scope, core_index_select, self, 0, i),
                    CORE__DO(scope, core_index_select, self, 0, j));
    x = norm_slope(scope, x, core__x_unsqueeze(scope, args[3].u.tensor, -1),
                   core__x_unsqueeze(scope, args[0].u.tensor, -1), p);
    out = core__x_new_zeros(scope, x, self->sizes, 2);
    out = CORE__DO(scope, core_index_add, out, 0, i, x, core_int(1));
    out = CORE__DO(scope, core_index_add, out, 0, j, x, core_int(-1));
    return core__scope_result(scope, out, &results[0]);
}

/* ------------------------------------------------------ windows, pooling -- */

/* unfold_backward(grad_in, input_sizes, dim, size, step): adds each window to
 * the positions that it came from. */
CORE__COMPOSITE(unfold_backward)
{
    core_tensor *grad = args[0].u.tensor;
    size_t count;
    const int64_t *sizes = core__ints_of(&args[1], &count);
    int64_t flat[CORE_MAX_NDIM];
    core_tensor *index, *x;
    uint32_t dim;

    CORE_TRY(core__sizes_check(call->op, count, sizes));
    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, (uint32_t)count, &dim));
    if (grad->ndim != count + 1)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "grad_in has %u dimensions; it must have %zu",
                              grad->ndim, count + 1);
    if (count == 0)
        return core__scope_result(
            scope, core__x_reshape(scope, core__x_sum(scope, grad), NULL, 0),
            &results[0]);
    index = core__x_arange(scope, grad, sizes[dim]);
    index = CORE__DO(scope, core_unfold, index, 0, args[3].u.i, args[4].u.i);
    index = core__x_reshape(scope, index, (const int64_t[]){-1}, 1);
    if (scope->status != CORE_OK)
        return scope->status;
    x = CORE__DO(scope, core_movedim, grad, -1, (int64_t)dim + 1);
    memcpy(flat, sizes, count * sizeof *flat);
    flat[dim] = index->numel;
    x = core__x_reshape(scope, x, flat, count);
    x = CORE__DO(scope, core_index_add,
                 core__x_new_zeros(scope, grad, sizes, count), dim, index, x,
                 core_int(1));
    return core__scope_result(scope, x, &results[0]);
}

/* fractional_max_pool2d_backward and _3d_backward(grad_output, self,
 * kernel_size, output_size, indices): indices count in a plane. */
CORE__COMPOSITE(fractional_pool_backward)
{
    core_tensor *grad = args[0].u.tensor, *self = args[1].u.tensor;
    core_tensor *indices = args[4].u.tensor, *x;
    uint32_t spatial = strstr(call->op->data->name, "3d") ? 3 : 2;
    int64_t planes = 1, size = 1, kernel[3], pooled[CORE_MAX_NDIM];

    if (self->ndim < spatial + 1 || self->numel == 0 ||
        indices->dtype != CORE_I64)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self has %u dimensions and indices is %s; self "
                              "must have at least %u, and elements, and "
                              "indices be i64",
                              self->ndim, core__dtype_name(indices->dtype),
                              spatial + 1);
    for (uint32_t i = 0; i < self->ndim; i++)
        *(i + spatial < self->ndim ? &planes : &size) *= self->sizes[i];
    CORE_TRY(
        core__ints_fill(call->op, "kernel_size", &args[2], spatial, 1, kernel));
    memcpy(pooled, self->sizes, (self->ndim - spatial) * sizeof *pooled);
    CORE_TRY(core__ints_fill(call->op, "output_size", &args[3], spatial, 1,
                             pooled + self->ndim - spatial));
    CORE_TRY(core__sizes_check_equal(call->op, "grad_output", grad, self->ndim,
                                     pooled));
    CORE_TRY(core__sizes_check_equal(call->op, "indices", indices, self->ndim,
                                     pooled));
    grad = core__x_reshape(scope, grad,
                           (const int64_t[]){planes, grad->numel / planes}, 2);
    indices = core__x_reshape(
        scope, indices, (const int64_t[]){planes, indices->numel / planes}, 2);
    x = core__x_new_zeros(scope, grad, (const int64_t[]){planes, size}, 2);
    x = CORE__DO(scope, core_scatter_add, x, 1, indices, grad);
    return core__scope_result(
        scope, core__x_reshape(scope, x, self->sizes, self->ndim), &results[0]);
}
