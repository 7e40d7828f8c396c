/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Random tensors of several distributions, made from uniform and normal ones. */

#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <math.h>

/* Numbers are drawn in f32, or f64 for an f64 result. */
static core_dtype drawn_dtype(const core_tensor *self)
{
    return self->dtype == CORE_F64 ? CORE_F64 : CORE_F32;
}

static core_tensor *uniform(core__scope *s, core_tensor *self,
                            const core_value *generator)
{
    core_tensor *x =
        CORE__DO(s, core_empty_like, self, drawn_dtype(self), NULL, -1);

    CORE__RUN(s, core_uniform_(x, 0, 1, core__generator_of(generator)));
    return x;
}

static core_tensor *normal(core__scope *s, core_tensor *self,
                           const core_value *generator)
{
    core_tensor *x =
        CORE__DO(s, core_empty_like, self, drawn_dtype(self), NULL, -1);

    CORE__RUN(s, core_normal_(x, 0, 1, core__generator_of(generator)));
    return x;
}

static core_status check_floating(const core_operator *op,
                                  const core_tensor *self)
{
    if (core__dtype_is_floating(self->dtype))
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, op,
                          "self must have a floating dtype, not %s",
                          core__dtype_name(self->dtype));
}

/* Refuses a finite parameter that the dtype cannot hold, as normal_ does: it
 * would become infinite, and 0 times it NaN. */
static core_status want_within(const core_operator *op, core_dtype dtype,
                               const char *name, double value)
{
    double largest = core__dtype_largest(dtype);

    if (!isfinite(value) || fabs(value) <= largest)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "%s is %g, but the largest number of %s is %g", name,
                          value, core__dtype_name(dtype), largest);
}

static core_status drawn(core__scope *scope, core_tensor *x, core_tensor *self,
                         core_value *result)
{
    return core__scope_result(scope, core__x_cast(scope, x, self->dtype),
                              result);
}

/* cauchy(self, median, sigma, generator): median + sigma tan(pi (u - 1/2)) */
CORE__COMPOSITE(cauchy)
{
    core_tensor *self = args[0].u.tensor;
    double median = core__arg_float(args, 1, 0);
    double sigma = core__arg_float(args, 2, 1);
    core_tensor *x;

    CORE_TRY(check_floating(call->op, self));
    if (!(sigma > 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "sigma is %g; it must be above 0", sigma);
    CORE_TRY(want_within(call->op, self->dtype, "median", median));
    CORE_TRY(want_within(call->op, self->dtype, "sigma", sigma));
    x = uniform(scope, self, &args[3]);
    x = core__x_mul_scalar(scope, core__x_add_scalar(scope, x, -0.5), M_PI);
    x = core__x_mul_scalar(scope, CORE__DO(scope, core_tan, x), sigma);
    return drawn(scope, core__x_add_scalar(scope, x, median), self,
                 &results[0]);
}

/* log(1 - u), below 0 although u may be 0: it is at most -eps / 2, as in
 * PyTorch. */
static core_tensor *log_uniform(core__scope *s, core_tensor *self,
                                const core_value *generator)
{
    core_tensor *x = core__x_neg(s, uniform(s, self, generator));

    return CORE__DO(
        s, core_clamp_max, core__x_log1p(s, x),
        core_float(drawn_dtype(self) == CORE_F64 ? -0x1p-53 : -0x1p-24));
}

/* exponential(self, lambd, generator): -log(1 - u) / lambd */
CORE__COMPOSITE(exponential)
{
    core_tensor *self = args[0].u.tensor;
    double rate = core__arg_float(args, 1, 1);
    core_tensor *x;

    CORE_TRY(check_floating(call->op, self));
    if (!(rate > 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "lambd is %g; it must be above 0", rate);
    x = core__x_mul_scalar(scope, log_uniform(scope, self, &args[2]),
                           -1 / rate);
    return drawn(scope, x, self, &results[0]);
}

/* geometric(self, p, generator): the number of trials up to the first success,
 * the least integer not below log(1 - u) / log(1 - p) */
CORE__COMPOSITE(geometric)
{
    core_tensor *self = args[0].u.tensor;
    double p = core__double_of(&args[1]);
    core_tensor *x;

    if (!(p > 0 && p < 1) || self->dtype == CORE_BOOL)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "p is %g and self is %s; p must be between 0 and 1, and self hold "
            "numbers",
            p, core__dtype_name(self->dtype));
    x = core__x_mul_scalar(scope, log_uniform(scope, self, &args[2]),
                           1 / log1p(-p));
    x = CORE__DO(scope, core_ceil, x);
    x = CORE__DO(scope, core_clamp_min, x, core_int(1));
    return drawn(scope, x, self, &results[0]);
}

/* log_normal(self, mean, std, generator): exp of a normal number */
CORE__COMPOSITE(log_normal)
{
    core_tensor *self = args[0].u.tensor;
    double mean = core__arg_float(args, 1, 1);
    double std = core__arg_float(args, 2, 2);
    core_tensor *x;

    CORE_TRY(check_floating(call->op, self));
    if (!(std > 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "std is %g; it must be above 0", std);
    CORE_TRY(want_within(call->op, drawn_dtype(self), "mean", mean));
    CORE_TRY(want_within(call->op, drawn_dtype(self), "std", std));
    x = core__x_mul_scalar(scope, normal(scope, self, &args[3]), std);
    x = core__x_exp(scope, core__x_add_scalar(scope, x, mean));
    return drawn(scope, x, self, &results[0]);
}

/* normal.Tensor_float, .float_Tensor, .Tensor_Tensor(mean, std, generator) */
CORE__COMPOSITE(normal_of_tensors)
{
    core_tensor *mean = core__tensor_of(&args[0]);
    core_tensor *std = core__tensor_of(&args[1]);
    core_tensor *like = mean ? mean : std;
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim;
    core_tensor *x;

    CORE_TRY(check_floating(call->op, like));
    if (mean && std)
        CORE_TRY(core__sizes_broadcast(call->op, mean->ndim, mean->sizes,
                                       std->ndim, std->sizes, &ndim, sizes));
    if (!std && !(core__double_of(&args[1]) >= 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "std is %g; it must be 0 or more",
                              core__double_of(&args[1]));
    if (!mean)
        CORE_TRY(want_within(call->op, like->dtype, "mean",
                             core__double_of(&args[0])));
    if (!std)
        CORE_TRY(want_within(call->op, like->dtype, "std",
                             core__double_of(&args[1])));
    if (mean && std)
        like = CORE__DO(scope, core_new_empty, like, sizes, ndim,
                        CORE_DTYPE_NONE, NULL);
    if (scope->status != CORE_OK)
        return scope->status;
    x = normal(scope, like, &args[2]);
    x = std ? core__x_mul(scope, x, core__x_detach(scope, std))
            : core__x_mul_scalar(scope, x, core__double_of(&args[1]));
    x = mean ? core__x_add(scope, x, core__x_detach(scope, mean))
             : core__x_add_scalar(scope, x, core__double_of(&args[0]));
    return drawn(scope, x, like, &results[0]);
}

/* bernoulli.Tensor(self, p, generator): p contains the probabilities */
CORE__COMPOSITE(bernoulli_tensor)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *p = core__x_detach(scope, args[1].u.tensor);

    CORE_TRY(check_floating(call->op, args[1].u.tensor));
    p = CORE__DO(scope, core_expand, p, self->sizes, self->ndim, false);
    return drawn(
        scope, CORE__DO(scope, core_bernoulli, p, core__generator_of(&args[2])),
        self, &results[0]);
}

static core_status integers(core__scope *scope, core_tensor *self,
                            const int64_t *to, const core_value *generator,
                            core_value *result)
{
    core_tensor *x =
        CORE__DO(scope, core_empty_like, self, CORE_DTYPE_NONE, NULL, -1);

    CORE__RUN(scope,
              core_random_from_(x, 0, to, core__generator_of(generator)));
    return core__scope_result(scope, x, result);
}

/* random(self, generator): from 0 to the largest integer of the dtype */
CORE__COMPOSITE(random)
{
    return integers(scope, args[0].u.tensor, NULL, &args[1], &results[0]);
}

/* random.to(self, to, generator): from 0 to to - 1 */
CORE__COMPOSITE(random_to)
{
    return integers(scope, args[0].u.tensor, &args[1].u.i, &args[2],
                    &results[0]);
}

static core_status integers_filled(core_tensor *self, const int64_t *to,
                                   const core_value *generator,
                                   uint32_t nresults, core_value *results)
{
    CORE_TRY(core_random_from_(self, 0, to, core__generator_of(generator)));
    if (nresults > 0) {
        core__tensor_retain(self);
        core__result_tensor(&results[0], self);
    }
    return CORE_OK;
}

/* random_(self, generator) and random_.to(self, to, generator) fill self without
 * a copy. */
CORE__OP(random_)
{
    return integers_filled(args[0].u.tensor, NULL, &args[1], nresults, results);
}

CORE__OP(random_to_)
{
    return integers_filled(args[0].u.tensor, &args[1].u.i, &args[2], nresults,
                           results);
}

/* rrelu_with_noise(self, noise, lower, upper, training, generator): the slope
 * of negative elements is random in training, and noise gets the slopes. */
CORE__COMPOSITE(rrelu_with_noise)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *noise = args[1].u.tensor;
    double low =
        args[2].tag == CORE_VALUE_NONE ? .125 : core__double_of(&args[2]);
    double high =
        args[3].tag == CORE_VALUE_NONE ? 1.0 / 3 : core__double_of(&args[3]);
    core_tensor *slope;

    CORE_TRY(check_floating(call->op, self));
    CORE_TRY(core__sizes_check_equal(call->op, "noise", noise, self->ndim,
                                     self->sizes));
    if (!(low <= high))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "lower is %g and upper %g; lower must not be "
                              "above upper",
                              low, high);
    if (!core__arg_bool(args, 4, false))
        return core__scope_result(scope,
                                  CORE__DO(scope, core_leaky_relu, self,
                                           core_float((low + high) / 2)),
                                  &results[0]);
    slope = CORE__DO(scope, core_empty_like, self, CORE_DTYPE_NONE, NULL, -1);
    CORE__RUN(scope,
              core_uniform_(slope, low, high, core__generator_of(&args[5])));
    slope = CORE__DO(scope, core_masked_fill, slope,
                     CORE__DO(scope, core_gt_scalar, self, core_int(0)),
                     core_int(1));
    CORE__RUN(scope, core_copy_(noise, slope, false));
    return core__scope_result(scope, core__x_mul(scope, self, slope),
                              &results[0]);
}

/* The least normal number of a floating dtype, and the greatest below 1. */
static void inside_unit(core_dtype dtype, core_scalar *least, core_scalar *most)
{
    *least = core_float(dtype == CORE_F64   ? 0x1p-1022
                        : dtype == CORE_F16 ? 0x1p-14
                                            : 0x1p-126);
    *most = core_float(1 - (dtype == CORE_F64   ? 0x1p-53
                            : dtype == CORE_F32 ? 0x1p-24
                            : dtype == CORE_F16 ? 0x1p-11
                                                : 0x1p-8));
}

/* _sample_dirichlet(self, generator): gamma samples divided by their sum, as f64,
 * which holds those of smaller shapes; inside (0, 1) */
CORE__COMPOSITE(sample_dirichlet)
{
    core_tensor *self = args[0].u.tensor;
    core_scalar least, most;
    core_tensor *x, *sums;

    CORE_TRY(check_floating(call->op, self));
    inside_unit(self->dtype, &least, &most);
    x = core__x_cast(scope, core__x_detach(scope, self), CORE_F64);
    x = CORE__DO(scope, core_standard_gamma, x, core__generator_of(&args[1]));
    if (self->numel > 0) /* the sum of large samples would be infinite */
        x = core__x_div(
            scope, x,
            CORE__DO(scope, core_amax, x, (const int64_t[]){-1}, 1, true));
    sums = core__x_sum_dim(scope, x, (const int64_t[]){-1}, 1, true);
    x = CORE__DO(scope, core_clamp, core__x_div(scope, x, sums), &least, &most);
    return drawn(scope, x, self, &results[0]);
}
