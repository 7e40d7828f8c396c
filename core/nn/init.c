/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Initialization of parameters by random numbers. */

#include "nn/module.h"

#include "base/error.h"

#include <libcore/ops.h>

#include <math.h>
#include <string.h>

static core_status check(const char *function, const core_tensor *tensor,
                         uint32_t least)
{
    if (!core_dtype_is_floating(core_tensor_dtype(tensor)))
        return core__error(
            CORE_ERROR_DTYPE, "%s: tensor has dtype %s; it must be floating",
            function, core_dtype_name(core_tensor_dtype(tensor)));
    if (core_tensor_ndim(tensor) < least)
        return core__error(CORE_ERROR_SHAPE,
                           "%s: tensor has %u dimensions; it must have at "
                           "least %u",
                           function, core_tensor_ndim(tensor), least);
    return CORE_OK;
}

static core_status fans(const char *function, const core_tensor *tensor,
                        double *in, double *out)
{
    double further = 1;

    CORE_TRY(check(function, tensor, 2));
    for (uint32_t i = 2; i < core_tensor_ndim(tensor); i++)
        further *= (double)core_tensor_sizes(tensor)[i];
    *in = further * (double)core_tensor_sizes(tensor)[1];
    *out = further * (double)core_tensor_sizes(tensor)[0];
    return CORE_OK;
}

core_status core__init_uniform(core_tensor *tensor, double bound)
{
    bool before = core_grad_mode_set(false);
    core_status status = core_uniform_(tensor, -bound, bound, NULL);

    core_grad_mode_set(before);
    return status;
}

static core_status normal(core_tensor *tensor, double deviation)
{
    bool before = core_grad_mode_set(false);
    core_status status = core_normal_(tensor, 0, deviation, NULL);

    core_grad_mode_set(before);
    return status;
}

double core_init_gain(const char *nonlinearity, double slope)
{
    static const struct {
        const char *name;
        double gain;
    } gains[] = {{"linear", 1},
                 {"sigmoid", 1},
                 {"tanh", 5.0 / 3},
                 {"relu", M_SQRT2},
                 {"selu", .75}};

    if (nonlinearity && strcmp(nonlinearity, "leaky_relu") == 0)
        return sqrt(2 / (1 + slope * slope));
    for (size_t i = 0; nonlinearity && i < sizeof gains / sizeof *gains; i++)
        if (strcmp(nonlinearity, gains[i].name) == 0)
            return gains[i].gain;
    return (double)NAN;
}

/* The deviation of one of the methods below; 0 for a tensor without
 * elements. */
static double deviation_of(double gain, double fan)
{
    return fan > 0 ? gain / sqrt(fan) : 0;
}

core_status core_init_kaiming_uniform(core_tensor *tensor, double gain,
                                      core_fan fan)
{
    double in, out;

    CORE__NOT_NULL(tensor);
    CORE_TRY(fans(__func__, tensor, &in, &out));
    return core__init_uniform(
        tensor, sqrt(3) * deviation_of(gain, fan == CORE_FAN_OUT ? out : in));
}

core_status core_init_kaiming_normal(core_tensor *tensor, double gain,
                                     core_fan fan)
{
    double in, out;

    CORE__NOT_NULL(tensor);
    CORE_TRY(fans(__func__, tensor, &in, &out));
    return normal(tensor, deviation_of(gain, fan == CORE_FAN_OUT ? out : in));
}

core_status core_init_xavier_uniform(core_tensor *tensor, double gain)
{
    double in, out;

    CORE__NOT_NULL(tensor);
    CORE_TRY(fans(__func__, tensor, &in, &out));
    return core__init_uniform(tensor,
                              sqrt(3) * deviation_of(gain, (in + out) / 2));
}

core_status core_init_xavier_normal(core_tensor *tensor, double gain)
{
    double in, out;

    CORE__NOT_NULL(tensor);
    CORE_TRY(fans(__func__, tensor, &in, &out));
    return normal(tensor, deviation_of(gain, (in + out) / 2));
}

/* Q of a random matrix, with the signs that make R's diagonal positive, is
 * uniformly distributed among the orthogonal matrices. */
static core_status orthogonal(core_tensor *tensor, double gain)
{
    int64_t rows = core_tensor_sizes(tensor)[0];
    int64_t columns = core_tensor_numel(tensor) / rows;
    bool wide = rows < columns;
    core_dtype dtype =
        core_tensor_dtype(tensor) == CORE_F64 ? CORE_F64 : CORE_F32;
    int64_t sizes[2] = {wide ? columns : rows, wide ? rows : columns};
    core_scope scope = core_scope_begin();
    core_tensor *x = NULL, *q = NULL, *r = NULL;

    core_scope_own(
        core_randn(sizes, 2, NULL, dtype, core_tensor_device(tensor), &x), &x);
    if (core_scope_status() == CORE_OK)
        CORE_CHECK(core_linalg_qr(x, "reduced", &q, &r));
    q = core_scope_own(CORE_OK, &q);
    r = core_scope_own(CORE_OK, &r);
    r = core_scope_own(core_diagonal(r, 0, 0, 1, &x), &x);
    r = core_scope_own(core_sgn(r, &x), &x);
    q = core_scope_own(core_mul(q, r, &x), &x);
    q = core_scope_own(core_mul_scalar(q, core_float(gain), &x), &x);
    if (wide)
        q = core_scope_own(core_t(q, &x), &x);
    q = core_scope_own(core_reshape(q, core_tensor_sizes(tensor),
                                    core_tensor_ndim(tensor), &x),
                       &x);
    CORE_CHECK(core_copy_(tensor, q, false));
    return core_scope_end(scope);
}

core_status core_init_orthogonal(core_tensor *tensor, double gain)
{
    core_status status;
    bool before;

    CORE__NOT_NULL(tensor);
    CORE_TRY(check(__func__, tensor, 2));
    if (core_tensor_numel(tensor) == 0)
        return CORE_OK;
    before = core_grad_mode_set(false);
    status = orthogonal(tensor, gain);
    core_grad_mode_set(before);
    return status;
}

/* The value below which a standard normal number is with probability p. */
static double below(double x)
{
    return .5 * erfc(-x * M_SQRT1_2);
}

/* Uniform numbers between the probabilities of the bounds, through the inverse
 * of the distribution; rounding may leave the bounds, so the result is
 * clamped. */
core_status core_init_truncated_normal(core_tensor *tensor, double mean,
                                       double deviation, double low,
                                       double high)
{
    core_scalar least = core_float(low), most = core_float(high);
    core_status status;
    double from, to;
    bool before;

    CORE__NOT_NULL(tensor);
    CORE_TRY(check(__func__, tensor, 0));
    if (!(low < high) || !(deviation > 0))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: low is %g, high %g and deviation %g; low must "
                           "be below high, and deviation positive",
                           __func__, low, high, deviation);
    from = 2 * below((low - mean) / deviation) - 1;
    to = 2 * below((high - mean) / deviation) - 1;
    if (!(from < to))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the probability of numbers from %g to %g "
                           "rounds to 0",
                           __func__, low, high);
    before = core_grad_mode_set(false);
    status = core_uniform_(tensor, from, to, NULL);
    if (status == CORE_OK)
        status = core_erfinv_(tensor);
    if (status == CORE_OK)
        status = core_mul_scalar_(tensor, core_float(deviation * M_SQRT2));
    if (status == CORE_OK)
        status = core_add_scalar_(tensor, core_float(mean), core_int(1));
    if (status == CORE_OK)
        status = core_clamp_(tensor, &least, &most);
    core_grad_mode_set(before);
    return status;
}
