/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Quantiles: elements of sorted rows at fractions of the way through them. */

#include "dispatch/structured.h"
#include "ops/content_check.h"
#include "ops/expression.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <string.h>

enum { LINEAR, LOWER, HIGHER, MIDPOINT, NEAREST };

static core_status interpolation_of(const core_operator *op,
                                    const core_value *value, int *out)
{
    static const char *const names[] = {"linear", "lower", "higher", "midpoint",
                                        "nearest"};

    *out = LINEAR;
    if (value->tag == CORE_VALUE_NONE)
        return CORE_OK;
    for (int i = LINEAR; i <= NEAREST; i++)
        if (strcmp(value->u.string, names[i]) == 0) {
            *out = i;
            return CORE_OK;
        }
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "interpolation is \"%s\"; it must be linear, lower, "
                          "higher, midpoint or nearest",
                          value->u.string);
}

static core_status check(const core_operator *op, const core_tensor *self,
                         const core_tensor *q)
{
    if (!core__dtype_is_floating(self->dtype) || self->dtype != q->dtype)
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "self has dtype %s and q %s; they must have the "
                              "same floating dtype",
                              core__dtype_name(self->dtype),
                              core__dtype_name(q->dtype));
    if (self->numel == 0 || q->ndim > 1)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "self has %lld elements and q %u dimensions; "
                              "self must not be empty, and q be a number or a "
                              "list",
                              (long long)self->numel, q->ndim);
    return CORE_OK;
}

/* Where in sorted rows [.., n] the quantiles [count] are: [.., count] in f64, as
 * a rank that is rounded up to a whole number selects another element.  A row
 * with NaN, which are sorted to its end, gives NaN; or they do not count. */
static core_tensor *ranks_in(core__scope *scope, core_tensor *sorted,
                             core_tensor *q, bool ignore_nan)
{
    double last = (double)sorted->sizes[sorted->ndim - 1] - 1;
    core_tensor *nan = core__x_isnan(scope, sorted);
    core_tensor *ranks;
    int64_t dim = -1;

    q = core__x_cast(scope, q, CORE_F64);
    if (ignore_nan) {
        ranks = CORE__DO(scope, core_sum_dim, core__x_logical_not(scope, nan),
                         &dim, 1, true, CORE_F64);
        ranks = core__x_add_scalar(scope, ranks, -1);
        return CORE__DO(scope, core_clamp_min, core__x_mul(scope, q, ranks),
                        core_int(0));
    }
    nan = CORE__DO(scope, core_any_dim, nan, -1, true);
    ranks = core__x_mul_scalar(scope, q, last);
    return CORE__DO(scope, core_where_scalar_self, nan, core_float(last),
                    ranks);
}

/* The elements of sorted rows at ranks. */
static core_tensor *at_ranks(core__scope *scope, core_tensor *sorted,
                             core_tensor *ranks, int interpolation)
{
    core_tensor *below, *above, *weight;

    if (interpolation == LOWER)
        ranks = CORE__DO(scope, core_floor, ranks);
    if (interpolation == HIGHER)
        ranks = CORE__DO(scope, core_ceil, ranks);
    if (interpolation == NEAREST)
        ranks = CORE__DO(scope, core_round, ranks);
    below = core__x_cast(scope, ranks, CORE_I64);
    if (interpolation != LINEAR && interpolation != MIDPOINT)
        return CORE__DO(scope, core_gather, sorted, -1, below, false);
    above = core__x_cast(scope, CORE__DO(scope, core_ceil, ranks), CORE_I64);
    weight = core__x_sub(scope, ranks, core__x_cast(scope, below, CORE_F64));
    weight = core__x_cast(scope, weight, sorted->dtype);
    if (interpolation == MIDPOINT)
        weight = CORE__DO(scope, core_full_like, weight, core_float(.5),
                          CORE_DTYPE_NONE, NULL, -1);
    below = CORE__DO(scope, core_gather, sorted, -1, below, false);
    above = CORE__DO(scope, core_gather, sorted, -1, above, false);
    return CORE__DO(scope, core_lerp, below, above, weight);
}

/* rows [.., count] in the sizes of the result: the quantiles in front if q is a
 * list, and the dimension that they were taken along if keepdim. */
static core_tensor *arranged(core__scope *scope, const core_tensor *self,
                             core_tensor *rows, bool list, bool whole,
                             int64_t dim, bool keepdim)
{
    if (!list)
        rows = CORE__DO(scope, core_squeeze_dim, rows, -1);
    else
        rows = CORE__DO(scope, core_movedim, rows, -1, 0);
    if (!keepdim)
        return rows;
    for (uint32_t i = 0; whole && i < self->ndim; i++)
        rows = core__x_unsqueeze(scope, rows, -1);
    return whole ? rows : core__x_unsqueeze(scope, rows, dim + (list ? 1 : 0));
}

static core_status outside(const core_operator *op)
{
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "q has numbers outside of 0 to 1");
}

/* A number as a tensor like self. */
static core_tensor *fraction(core__scope *scope, const core_operator *op,
                             core_tensor *self, double q)
{
    if (!(q >= 0 && q <= 1)) {
        core__scope_add(scope, outside(op));
        return NULL;
    }
    return CORE__DO(scope, core_full, NULL, 0, core_float(q), self->dtype,
                    core_tensor_device(self));
}

static core_status quantiles(core__scope *scope, core_call *call,
                             const core_value *args, bool ignore_nan,
                             core_value *result)
{
    const core_operator *op = call->op;
    core_tensor *self = args[0].u.tensor, *q = core__tensor_of(&args[1]);
    core_tensor *sorted = NULL, *places = NULL, *values;
    core_tensor *rows = self;
    bool whole = args[2].tag == CORE_VALUE_NONE;
    bool keepdim = core__arg_bool(args, 3, false);
    int interpolation;
    uint32_t dim = 0;

    if (q)
        CORE_TRY(core__content_check(op, CORE__CHECK_FRACTIONS, q, 0));
    else
        q = fraction(scope, op, self, core__double_of(&args[1]));
    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(check(op, self, q));
    CORE_TRY(interpolation_of(op, &args[4], &interpolation));
    if (whole) {
        rows = CORE__DO(scope, core_flatten, self, 0, -1);
    } else {
        CORE_TRY(core__dim_wrap(op, args[2].u.i, self->ndim, &dim));
        if (self->ndim > 0)
            rows = CORE__DO(scope, core_movedim, self, dim, -1);
        else
            rows = core__x_unsqueeze(scope, self, 0);
    }
    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(core_sort(rows, -1, false, &sorted, &places));
    sorted = core__scope_keep(scope, sorted);
    core__scope_keep(scope, places);
    values = ranks_in(scope, sorted,
                      q->ndim ? q : core__x_unsqueeze(scope, q, 0), ignore_nan);
    values = at_ranks(scope, sorted, values, interpolation);
    return core__scope_result(scope,
                              arranged(scope, self, values, q->ndim == 1, whole,
                                       dim, keepdim && self->ndim > 0),
                              result);
}

/* quantile and quantile.scalar(self, q, dim, keepdim, interpolation) */
CORE__COMPOSITE(quantile)
{
    return quantiles(scope, call, args, false, &results[0]);
}

/* The same, of the elements that are not NaN. */
CORE__COMPOSITE(nanquantile)
{
    return quantiles(scope, call, args, true, &results[0]);
}
