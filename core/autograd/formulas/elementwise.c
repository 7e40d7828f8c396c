/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of element-wise operators. */

#include "autograd/formulas/formulas.h"

#include "ops/expression.h"

#include <math.h>

core_status core__formula_scale(core_tensor *grad, core_scalar alpha,
                                core_tensor **out)
{
    if (core__scalar_double(alpha) == 1) {
        *out = core__formula_same(grad);
        return CORE_OK;
    }
    return core_mul_scalar(grad, alpha, out);
}

core_status core__formula_copied(core_tensor *grad, core_device *device,
                                 core_tensor **out)
{
    return core_to(grad, CORE_DTYPE_NONE, device, false, false, -1, out);
}

/* For arguments without a derivative of an operator that has others with
 * one. */
core_status core__formula_refused(core_tensor *grad, const char *op,
                                  const char *argument, core_tensor **out)
{
    (void)grad;
    *out = NULL;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s has no derivative with respect to %s", op, argument);
}

/* value / self, and its limit where self is 0. */
core_status core__formula_over_or(core_tensor *value, core_tensor *self,
                                  double limit, core_tensor **out)
{
    core__scope s;
    core_tensor *zero;
    core_tensor *x;

    core__scope_begin(&s);
    zero = core__x_eq_scalar(&s, self, 0);
    x = CORE__DO(&s, core_masked_fill, self, zero, core_int(1));
    x = core__x_div(&s, value, x);
    x = CORE__DO(&s, core_masked_fill, x, zero, core_float(limit));
    return core__scope_finish(&s, x, out);
}

/* value / (self² + other²); the slopes of atan2 at the origin are 0. */
core_status core__formula_atan2_grad(core_tensor *value, core_tensor *self,
                                     core_tensor *other, core_tensor **out)
{
    core__scope s;
    core_tensor *square;
    core_tensor *zero;

    core__scope_begin(&s);
    square = core__x_add(&s, core__x_mul(&s, self, self),
                         core__x_mul(&s, other, other));
    zero = core__x_logical_and(&s, core__x_eq_scalar(&s, self, 0),
                               core__x_eq_scalar(&s, other, 0));
    square = CORE__DO(&s, core_masked_fill, square, zero, core_int(1));
    return core__scope_finish(
        &s, core__x_zero_where(&s, core__x_div(&s, value, square), zero), out);
}

/* -------------------------------------------------------------- bounds -- */

/* Half of the gradient where `tie`, nothing where `none`, all of it
 * elsewhere. */
static core_tensor *divided(core__scope *scope, core_tensor *grad,
                            core_tensor *tie, core_tensor *none)
{
    core_tensor *half =
        core__x_where(scope, tie, core__x_div_scalar(scope, grad, 2), grad);

    return core__x_zero_where(scope, half, none);
}

core_status core__formula_halved(core_tensor *grad, core_tensor *tie,
                                 core_tensor *none, core_tensor **out)
{
    core__scope scope;

    core__scope_begin(&scope);
    return core__scope_finish(&scope, divided(&scope, grad, tie, none), out);
}

/* For the larger of two: the whole gradient where self is larger, half where
 * they are equal. */
core_status core__formula_larger(core_tensor *grad, core_tensor *self,
                                 core_tensor *other, core_tensor **out)
{
    core__scope scope;

    core__scope_begin(&scope);
    return core__scope_finish(&scope,
                              divided(&scope, grad,
                                      core__x_eq(&scope, self, other),
                                      core__x_lt(&scope, self, other)),
                              out);
}

/* The whole gradient strictly between the bounds; nothing at a bound or at
 * NaN. */
core_status core__formula_clamp_grad(core_tensor *grad, core_tensor *self,
                                     const core_scalar *min,
                                     const core_scalar *max, core_tensor **out)
{
    core__scope scope;
    core_tensor *x = grad;

    core__scope_begin(&scope);
    if (min)
        x = core__x_zero_where(
            &scope, x,
            core__x_logical_not(&scope,
                                CORE__DO(&scope, core_gt_scalar, self, *min)));
    if (max)
        x = core__x_zero_where(
            &scope, x,
            core__x_logical_not(&scope,
                                CORE__DO(&scope, core_lt_scalar, self, *max)));
    return core__scope_finish(&scope, x, out);
}

/* self at a bound shares its gradient with the bound, unless the bounds are
 * equal or crossed: then self has all of it inside, and max outside. */
static core_tensor *between(core__scope *scope, core_tensor *grad,
                            core_tensor *self, core_tensor *min,
                            core_tensor *max)
{
    core_tensor *outside = core__x_logical_or(
        scope, core__x_lt(scope, self, min), core__x_gt(scope, self, max));
    core_tensor *tie = core__x_logical_or(scope, core__x_eq(scope, self, min),
                                          core__x_eq(scope, self, max));

    tie = core__x_logical_and(scope, tie, core__x_lt(scope, min, max));
    return divided(scope, grad, tie, outside);
}

core_status core__formula_clamp_tensor_grad(core_tensor *grad,
                                            core_tensor *self, core_tensor *min,
                                            core_tensor *max, core_tensor **out)
{
    core__scope scope;

    if (!max && min)
        return core__formula_larger(grad, self, min, out);
    if (!min && max)
        return core__formula_larger(grad, max, self, out);
    core__scope_begin(&scope);
    return core__scope_finish(&scope, between(&scope, grad, self, min, max),
                              out);
}

/* With crossed bounds (max below min) the result is max. */
core_status core__formula_clamp_bound(core_tensor *grad, core_tensor *self,
                                      core_tensor *min, core_tensor *max,
                                      bool upper, core_tensor **out)
{
    core__scope scope;
    core_tensor *whole, *tie;

    if (upper && !min)
        return core__formula_larger(grad, self, max, out);
    if (!upper && !max)
        return core__formula_larger(grad, min, self, out);
    core__scope_begin(&scope);
    whole = core__x_logical_and(&scope,
                                upper ? core__x_gt(&scope, self, max)
                                      : core__x_lt(&scope, self, min),
                                core__x_le(&scope, min, max));
    if (upper)
        whole = core__x_logical_or(&scope, whole, core__x_lt(&scope, max, min));
    tie =
        core__x_logical_and(&scope, core__x_eq(&scope, self, upper ? max : min),
                            core__x_lt(&scope, min, max));
    whole = core__x_logical_or(&scope, whole, tie);
    return core__scope_finish(
        &scope, divided(&scope, grad, tie, core__x_logical_not(&scope, whole)),
        out);
}

/* -------------------------------------------------------------- powers -- */

core_status core__formula_pow_scalar_grad(core_tensor *grad, core_tensor *self,
                                          core_scalar exponent,
                                          core_tensor **out)
{
    double e = core__scalar_double(exponent);
    core__scope scope;
    core_tensor *x;

    core__scope_begin(&scope);
    if (e == 0)
        return core__scope_finish(&scope, core__x_zeros_like(&scope, grad),
                                  out);
    x = e == 2 ? self : core__x_pow_scalar(&scope, self, e - 1);
    x = core__x_mul_scalar(&scope, x, e);
    return core__scope_finish(&scope, core__x_mul(&scope, grad, x), out);
}

core_status core__formula_pow_self(core_tensor *grad, core_tensor *self,
                                   core_tensor *exponent, core_tensor **out)
{
    core__scope scope;
    core_tensor *x;

    core__scope_begin(&scope);
    x = core__x_pow(&scope, self, core__x_add_scalar(&scope, exponent, -1));
    x = core__x_mul(&scope, grad, core__x_mul(&scope, exponent, x));
    x = core__x_zero_where(&scope, x, core__x_eq_scalar(&scope, exponent, 0));
    return core__scope_finish(&scope, x, out);
}

/* 0 where self is 0 and the exponent at least 0: the power is constant there,
 * although its logarithm is not finite. */
core_status core__formula_pow_exponent(core_tensor *grad, core_tensor *self,
                                       core_tensor *exponent,
                                       core_tensor *result, core_tensor **out)
{
    core__scope scope;
    core_tensor *flat;
    core_tensor *x;

    core__scope_begin(&scope);
    flat = core__x_logical_and(
        &scope, core__x_eq_scalar(&scope, self, 0),
        CORE__DO(&scope, core_ge_scalar, exponent, core_int(0)));
    x = core__x_mul(&scope, result, core__x_log(&scope, self));
    x = core__x_mul(&scope, grad, x);
    return core__scope_finish(&scope, core__x_zero_where(&scope, x, flat), out);
}

core_status core__formula_pow_of_scalar_grad(core_tensor *grad,
                                             core_scalar self,
                                             core_tensor *exponent,
                                             core_tensor *result,
                                             core_tensor **out)
{
    double base = core__scalar_double(self);
    core__scope scope;
    core_tensor *x;

    core__scope_begin(&scope);
    x = core__x_mul(&scope, grad,
                    core__x_mul_scalar(&scope, result, log(base)));
    if (base == 0)
        x = core__x_zero_where(
            &scope, x, CORE__DO(&scope, core_ge_scalar, exponent, core_int(0)));
    return core__scope_finish(&scope, x, out);
}

/* ------------------------------------------------------------ near zeros -- */

/* f16 has neither the range nor the precision for the quotients here. */
static core_tensor *widened(core__scope *s, core_tensor *x)
{
    return x->dtype == CORE_F16 || x->dtype == CORE_BF16
               ? core__x_cast(s, x, CORE_F32)
               : x;
}

/* (x - t) / ((1 - x) x), limited to 1e12 */
core_status core__formula_bce_self(core_tensor *grad, core_tensor *self,
                                   core_tensor *target, core_tensor **out)
{
    core_tensor *x, *d;
    core__scope s;

    core__scope_begin(&s);
    x = widened(&s, self);
    d = core__x_mul(&s, core__x_rsub_scalar(&s, 1, x), x);
    d = CORE__DO(&s, core_clamp_min, d, core_float(1e-12));
    x = core__x_mul(&s, grad, core__x_sub(&s, x, target));
    return core__scope_finish(&s, core__x_div(&s, x, d), out);
}

/* (y cos y - sin y) / (x y) with y = pi x; for small y its series, since the
 * difference cancels. */
core_status core__formula_sinc_grad(core_tensor *grad, core_tensor *self,
                                    core_tensor **out)
{
    static const double terms[] = {-1. / 3991680, 1. / 45360, -1. / 840,
                                   1. / 30, -1. / 3};
    core_tensor *x, *y, *small, *near, *far;
    core__scope s;

    core__scope_begin(&s);
    x = widened(&s, self);
    small = core__x_lt_scalar(&s, core__x_abs(&s, x), .08);
    y = core__x_mul_scalar(&s, core__x_mul(&s, x, x), M_PI * M_PI);
    near = core__x_mul_scalar(&s, y, terms[0]);
    for (int i = 1; i < 4; i++)
        near = core__x_mul(&s, core__x_add_scalar(&s, near, terms[i]), y);
    near = core__x_mul(&s, core__x_add_scalar(&s, near, terms[4]), x);
    near = core__x_mul_scalar(&s, near, M_PI * M_PI);
    /* Moved away from 0, so that the branch not chosen has no infinite
     * derivative. */
    x = CORE__DO(&s, core_masked_fill, x, small, core_int(1));
    y = core__x_mul_scalar(&s, x, M_PI);
    far = core__x_mul(&s, y, core__x_cos(&s, y));
    far = core__x_sub(&s, far, CORE__DO(&s, core_sin, y));
    far = core__x_div(&s, far, core__x_mul(&s, x, y));
    x = core__x_mul(&s, grad, core__x_where(&s, small, near, far));
    return core__scope_finish(&s, x, out);
}

/* ------------------------------------- second derivatives of activations -- */

/* Second derivative of gelu (Hendrycks, Gimpel 2016), times both gradients:
 * exactly, phi(x) (2 - x²); for the approximation by tanh(u) with u = k (x + c
 * x³), the derivative of 0.5 (1 + t) + 0.5 x (1 - t²) u'. */
core_status core__formula_gelu_self(core_tensor *grad, core_tensor *grad_output,
                                    core_tensor *self, const char *approximate,
                                    core_tensor **out)
{
    static const double k = 0.79788456080286535588, c = 0.044715;
    core__scope s;
    core_tensor *square;
    core_tensor *x;

    core__scope_begin(&s);
    square = core__x_mul(&s, self, self);
    if (!core__string_equal(approximate, "tanh")) {
        x = core__x_exp(&s, core__x_mul_scalar(&s, square, -0.5));
        x = core__x_mul_scalar(&s, x, 0.3989422804014327);
        x = core__x_mul(&s, x, core__x_rsub_scalar(&s, 2, square));
    } else {
        core_tensor *u =
            core__x_add_scalar(&s, core__x_mul_scalar(&s, square, c), 1);
        core_tensor *t = core__x_mul(&s, self, core__x_mul_scalar(&s, u, k));
        core_tensor *slope = core__x_add_scalar(
            &s, core__x_mul_scalar(&s, square, 3 * k * c), k);
        core_tensor *rest;

        t = core__x_tanh(&s, t);
        rest = core__x_rsub_scalar(&s, 1, core__x_mul(&s, t, t));
        x = core__x_mul(&s, core__x_mul(&s, slope, slope),
                        core__x_mul_scalar(&s, t, -2));
        x = core__x_add(&s, x, core__x_mul_scalar(&s, self, 6 * k * c));
        x = core__x_mul_scalar(&s, core__x_mul(&s, self, x), 0.5);
        x = core__x_mul(&s, rest, core__x_add(&s, slope, x));
    }
    x = core__x_mul(&s, core__x_mul(&s, grad, grad_output), x);
    return core__scope_finish(&s, x, out);
}

/* s' (2 + x (1 - 2 s)), s the sigmoid of x and s' = s (1 - s) */
core_status core__formula_silu_self(core_tensor *grad, core_tensor *grad_output,
                                    core_tensor *self, core_tensor **out)
{
    core__scope s;
    core_tensor *y;
    core_tensor *x;

    core__scope_begin(&s);
    y = core__x_sigmoid(&s, self);
    x = core__x_rsub_scalar(&s, 1, core__x_mul_scalar(&s, y, 2));
    x = core__x_add_scalar(&s, core__x_mul(&s, self, x), 2);
    y = core__x_mul(&s, y, core__x_rsub_scalar(&s, 1, y));
    x = core__x_mul(&s, x, y);
    x = core__x_mul(&s, core__x_mul(&s, grad, grad_output), x);
    return core__scope_finish(&s, x, out);
}

/* With t = tanh(softplus(x)) and s the sigmoid of x: u (2 + x (1 - s - 2 t s)),
 * where u = s (1 - t²) is the slope of t. */
core_status core__formula_mish_self(core_tensor *grad, core_tensor *grad_output,
                                    core_tensor *self, core_tensor **out)
{
    core__scope k;
    core_tensor *t;
    core_tensor *s;
    core_tensor *u;
    core_tensor *x;

    core__scope_begin(&k);
    s = core__x_sigmoid(&k, self);
    t = core__x_tanh(
        &k, CORE__DO(&k, core_softplus, self, core_int(1), core_int(20)));
    u = core__x_rsub_scalar(&k, 1, core__x_mul(&k, t, t));
    u = core__x_mul(&k, s, u);
    x = core__x_mul(&k, s,
                    core__x_add_scalar(&k, core__x_mul_scalar(&k, t, 2), 1));
    x = core__x_mul(&k, self, core__x_rsub_scalar(&k, 1, x));
    x = core__x_mul(&k, u, core__x_add_scalar(&k, x, 2));
    x = core__x_mul(&k, core__x_mul(&k, grad, grad_output), x);
    return core__scope_finish(&k, x, out);
}

/* The slope is scale above 0; below it is input_scale times the result plus
 * alpha scale, where the result's own slope is the same. */
core_status core__formula_elu_self(core_tensor *grad, core_tensor *grad_output,
                                   core_scalar alpha, core_scalar scale,
                                   core_scalar input_scale, bool is_result,
                                   core_tensor *self_or_result,
                                   core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_mul(&s, grad, grad_output);
    if (!is_result)
        x = CORE__DO(&s, core_elu_backward, x, alpha, scale, input_scale, false,
                     self_or_result);
    x = CORE__DO(&s, core_mul_scalar, x, input_scale);
    x = core__x_zero_where(
        &s, x, CORE__DO(&s, core_gt_scalar, self_or_result, core_int(0)));
    return core__scope_finish(&s, x, out);
}

/* L = sum G y (g - sum(g y)); by y: G g - G sum(g y) - g sum(G y) */
core_status core__formula_softmax_output(core_tensor *grad,
                                         core_tensor *grad_output,
                                         core_tensor *output, int64_t dim,
                                         core_tensor **out)
{
    core__scope s;
    core_tensor *a;
    core_tensor *b;
    core_tensor *x;

    core__scope_begin(&s);
    a = core__x_sum_dim(&s, core__x_mul(&s, grad_output, output), &dim, 1,
                        true);
    b = core__x_sum_dim(&s, core__x_mul(&s, grad, output), &dim, 1, true);
    x = core__x_mul(&s, grad, core__x_sub(&s, grad_output, a));
    x = core__x_sub(&s, x, core__x_mul(&s, grad_output, b));
    return core__scope_finish(&s, x, out);
}

core_status core__formula_dropout_grad(core_tensor *grad, core_tensor *mask,
                                       double p, const bool *train,
                                       core_tensor **out)
{
    double scale = train && !*train ? 1 : p == 1 ? 0 : 1 / (1 - p);

    return core_native_dropout_backward(grad, mask, scale, out);
}
