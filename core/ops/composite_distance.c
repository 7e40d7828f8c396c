/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How near tensors are to one another. */

#include "dispatch/structured.h"
#include "ops/expression.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

/* ------------------------------------------------------------ tolerance -- */

/* |self - other| <= atol + rtol |other|, or both are equal; NaN are near one
 * another if equal_nan. */
static core_status near(core__scope *scope, const core_operator *op,
                        const core_value *args, core_tensor **out)
{
    core_tensor *self = args[0].u.tensor, *other = args[1].u.tensor;
    double rtol =
        args[2].tag == CORE_VALUE_NONE ? 1e-5 : core__double_of(&args[2]);
    double atol =
        args[3].tag == CORE_VALUE_NONE ? 1e-8 : core__double_of(&args[3]);
    core_tensor *allowed, *apart, *close;

    if (self->dtype != other->dtype)
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "self has dtype %s and other %s; they must have "
                              "the same",
                              core__dtype_name(self->dtype),
                              core__dtype_name(other->dtype));
    if (!(rtol >= 0) || !(atol >= 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "rtol is %g and atol %g; they must not be "
                              "negative",
                              rtol, atol);
    close = core__x_eq(scope, self, other);
    if (core__arg_bool(args, 4, false))
        close = core__x_logical_or(
            scope, close,
            core__x_logical_and(scope, core__x_isnan(scope, self),
                                core__x_isnan(scope, other)));
    if (rtol != 0 || atol != 0) {
        if (!core__dtype_is_floating(self->dtype)) {
            self = core__x_cast(scope, self, CORE_F32);
            other = core__x_cast(scope, other, CORE_F32);
        }
        allowed = core__x_abs(scope, core__x_mul_scalar(scope, other, rtol));
        allowed = core__x_add_scalar(scope, allowed, atol);
        apart = core__x_abs(scope, core__x_sub(scope, self, other));
        close = core__x_logical_or(
            scope, close,
            core__x_logical_and(scope, CORE__DO(scope, core_isfinite, apart),
                                core__x_le(scope, apart, allowed)));
    }
    *out = close;
    return scope->status;
}

/* isclose(self, other, rtol, atol, equal_nan) */
CORE__COMPOSITE(isclose)
{
    core_tensor *close;

    CORE_TRY(near(scope, call->op, args, &close));
    return core__scope_result(scope, close, &results[0]);
}

/* allclose(self, other, rtol, atol, equal_nan): whether all elements are */
CORE__COMPOSITE(allclose)
{
    core_tensor *close;

    CORE_TRY(near(scope, call->op, args, &close));
    results[0] = core_bool(core__read_all(scope, close));
    return scope->status;
}

/* ------------------------------------------------------------ distances -- */

/* The norm of x along dim, at least eps, with the gradient of the norm. */
static core_tensor *norm_of(core__scope *scope, core_tensor *x, int64_t dim,
                            double eps)
{
    core_tensor *norm = CORE__DO(scope, core_linalg_vector_norm, x, core_int(2),
                                 &dim, 1, true, CORE_DTYPE_NONE);
    core_tensor *value = core__x_detach(scope, norm);
    core_tensor *missing =
        CORE__DO(scope, core_rsub_scalar, value, core_float(eps), core_int(1));

    /* Of an infinite norm nothing is missing. */
    return core__x_add(scope, norm,
                       CORE__DO(scope, core_clamp_min, missing, core_int(0)));
}

/* cosine_similarity(x1, x2, dim, eps): sum of x1 x2 / (|x1| |x2|) along dim */
CORE__COMPOSITE(cosine_similarity)
{
    core_tensor *a = args[0].u.tensor, *b = args[1].u.tensor;
    int64_t dim = core__arg_int(args, 2, 1);
    double eps =
        args[3].tag == CORE_VALUE_NONE ? 1e-8 : core__double_of(&args[3]);
    core_dtype dtype = core__dtype_promote(a->dtype, b->dtype);
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim;

    if (!core__dtype_is_floating(dtype))
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "x1 has dtype %s and x2 %s; at least one must "
                              "have a floating dtype",
                              core__dtype_name(a->dtype),
                              core__dtype_name(b->dtype));
    CORE_TRY(core__sizes_broadcast(call->op, a->ndim, a->sizes, b->ndim,
                                   b->sizes, &ndim, sizes));
    a = core__x_cast(scope, a, dtype);
    b = core__x_cast(scope, b, dtype);
    a = CORE__DO(scope, core_expand, a, sizes, ndim, false);
    b = CORE__DO(scope, core_expand, b, sizes, ndim, false);
    a = core__x_div(scope, a, norm_of(scope, a, dim, eps));
    b = core__x_div(scope, b, norm_of(scope, b, dim, eps));
    return core__scope_result(
        scope, core__x_sum_dim(scope, core__x_mul(scope, a, b), &dim, 1, false),
        &results[0]);
}

/* pairwise_distance(x1, x2, p, eps, keepdim): the p-norm of x1 - x2 + eps along
 * the last dimension */
CORE__COMPOSITE(pairwise_distance)
{
    double p = args[2].tag == CORE_VALUE_NONE ? 2 : core__double_of(&args[2]);
    double eps =
        args[3].tag == CORE_VALUE_NONE ? 1e-6 : core__double_of(&args[3]);
    core_tensor *x = core__x_sub(scope, args[0].u.tensor, args[1].u.tensor);
    int64_t dim = -1;

    x = core__x_add_scalar(scope, x, eps);
    return core__scope_result(
        scope,
        CORE__DO(scope, core_linalg_vector_norm, x, core_float(p), &dim, 1,
                 core__arg_bool(args, 4, false), CORE_DTYPE_NONE),
        &results[0]);
}
