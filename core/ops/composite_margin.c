/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Margin losses, distances, and bounded norms. */

#include "ops/expression.h"
#include "ops/shape.h"

#include <math.h>
#include <string.h>

/* A distance is the norm of a difference. */
CORE__COMPOSITE(dist)
{
    core_tensor *x = core__x_sub(scope, args[0].u.tensor, args[1].u.tensor);
    core_scalar p = core_float(
        args[2].tag == CORE_VALUE_NONE ? 2 : core__double_of(&args[2]));

    x = CORE__DO(scope, core_linalg_vector_norm, x, p, NULL, 0, false,
                 CORE_DTYPE_NONE);
    return core__scope_result(scope, x, &results[0]);
}

/* The factor for a slice whose norm exceeds the bound; 1 for the others. */
static core_tensor *shrinking(core__scope *scope, core_tensor *norm,
                              double most)
{
    core_tensor *x =
        CORE__DO(scope, core_reciprocal, core__x_add_scalar(scope, norm, 1e-7));
    core_tensor *above =
        CORE__DO(scope, core_gt_scalar, norm, core_float(most));

    x = core__x_mul_scalar(scope, x, most);
    return CORE__DO(scope, core_masked_fill, x,
                    core__x_logical_not(scope, above), core_int(1));
}

/* renorm(self, p, dim, maxnorm): each slice along dim has its own norm */
CORE__COMPOSITE(renorm)
{
    core_tensor *self = args[0].u.tensor;
    double p = core__double_of(&args[1]);
    double most = core__double_of(&args[3]);
    core_dtype wide = self->dtype == CORE_F64 ? CORE_F64 : CORE_F32;
    int64_t others[CORE_MAX_NDIM];
    uint32_t count = 0;
    core_tensor *x;
    uint32_t dim;

    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, self->ndim, &dim));
    if (self->ndim < 2)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self must have at least 2 dimensions, not %u",
                              self->ndim);
    if (!core__dtype_is_floating(self->dtype))
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "self must have a floating dtype, not %s",
                              core__dtype_name(self->dtype));
    if (!(p > 0) || !(most >= 0))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "p is %g and maxnorm %g; p must be above 0 and maxnorm 0 or more",
            p, most);
    for (uint32_t i = 0; i < self->ndim; i++)
        if (i != dim)
            others[count++] = i;
    x = CORE__DO(scope, core_linalg_vector_norm, self, core_float(p), others,
                 count, true, wide);
    x = core__x_cast(scope, shrinking(scope, x, most), self->dtype);
    return core__scope_result(scope, core__x_mul(scope, self, x), &results[0]);
}

/* The rows that indices name, with bounded norms: args are self, indices,
 * max_norm, norm_type.  indices becomes a vector. */
static core_status rows_bounded(core__scope *scope, const core_operator *op,
                                const core_value *args, core_tensor **indices,
                                core_tensor **out_rows)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *rows;

    if (self->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "self has %u dimensions; it must have 2",
                              self->ndim);
    *indices =
        core__x_reshape(scope, args[1].u.tensor, (const int64_t[]){-1}, 1);
    rows = CORE__DO(scope, core_index_select, self, 0, *indices);
    *out_rows = CORE__DO(scope, core_renorm, rows, args[3], 0, args[2]);
    return scope->status;
}

/* embedding_renorm(self, indices, max_norm, norm_type): renorm of the rows that
 * indices name */
CORE__COMPOSITE(embedding_renorm)
{
    core_tensor *indices, *rows;

    CORE_TRY(rows_bounded(scope, call->op, args, &indices, &rows));
    return core__scope_result(
        scope,
        CORE__DO(scope, core_index_copy, args[0].u.tensor, 0, indices, rows),
        &results[0]);
}

/* embedding_renorm_ changes those rows only, without a copy of the others. */
CORE__OP(embedding_renorm_)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *indices, *rows;
    core__scope scope;
    core_status status;

    core__scope_begin(&scope);
    status = rows_bounded(&scope, call->op, args, &indices, &rows);
    if (status == CORE_OK)
        status = core_index_copy_(self, 0, indices, rows);
    CORE_TRY(core__scope_close(&scope, call->op, status, NULL, 0));
    if (nresults > 0) {
        core__tensor_retain(self);
        core__result_tensor(&results[0], self);
    }
    return CORE_OK;
}

static core_status reduced(core__scope *scope, core_tensor *loss,
                           int64_t reduction, core_value *result)
{
    if (reduction == CORE_REDUCTION_MEAN)
        loss = core__x_mean(scope, loss);
    else if (reduction == CORE_REDUCTION_SUM)
        loss = core__x_sum(scope, loss);
    return core__scope_result(scope, loss, result);
}

/* One row per element of a batch; a 0-dim tensor is a row with one class. */
static core_status check_rows(const core_operator *op, const core_tensor *self,
                              const core_tensor *target)
{
    if (self->ndim > 2 || (self->ndim && self->sizes[self->ndim - 1] == 0))
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "self has %u dimensions; it must have at most 2, "
                              "and at least one class",
                              self->ndim);
    if (!core__dtype_is_floating(self->dtype) || target->dtype != CORE_I64)
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "self is %s and target %s; self must have a "
                              "floating dtype and target i64",
                              core__dtype_name(self->dtype),
                              core__dtype_name(target->dtype));
    return CORE_OK;
}

/* Sets the true class's position in each row to 0. */
static core_tensor *without(core__scope *scope, core_tensor *x,
                            core_tensor *target)
{
    core_tensor *mask = core__x_arange(scope, x, x ? x->sizes[1] : 1);

    return core__x_zero_where(scope, x, core__x_eq(scope, mask, target));
}

/* multi_margin_loss(self, target, p, margin, weight, reduction): for each row
 * the mean of max(0, margin - x[target] + x[i])^p over the other classes */
CORE__COMPOSITE(multi_margin_loss)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *target = args[1].u.tensor;
    core_tensor *weight = core__tensor_of(&args[4]);
    double p = args[2].tag == CORE_VALUE_NONE ? 1 : core__double_of(&args[2]);
    double margin =
        args[3].tag == CORE_VALUE_NONE ? 1 : core__double_of(&args[3]);
    int64_t reduction = core__arg_int(args, 5, CORE_REDUCTION_MEAN);
    int64_t rows;
    int64_t classes;
    core_tensor *x;

    CORE_TRY(core__reduction_check(call->op, reduction));
    CORE_TRY(check_rows(call->op, self, target));
    rows = self->ndim == 2 ? self->sizes[0] : 1;
    classes = self->ndim ? self->sizes[self->ndim - 1] : 1;
    if (target->numel != rows || target->ndim > 1)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "target must have %lld elements, not %lld",
                              (long long)rows, (long long)target->numel);
    if (p != 1 && p != 2)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "p must be 1 or 2, not %g", p);
    CORE_TRY(core__sizes_check_equal(call->op, "weight", weight, 1, &classes));
    x = core__x_reshape(scope, self, (const int64_t[]){rows, classes}, 2);
    target = core__x_reshape(scope, target, (const int64_t[]){rows, 1}, 2);
    x = core__x_sub(scope, x,
                    CORE__DO(scope, core_gather, x, 1, target, false));
    x = core__x_relu(scope, core__x_add_scalar(scope, x, margin));
    if (p == 2)
        x = core__x_mul(scope, x, x);
    if (weight)
        x = core__x_mul(scope, x, CORE__DO(scope, core_take, weight, target));
    x = without(scope, x, target);
    x = core__x_sum_dim(scope, x, (const int64_t[]){1}, 1, false);
    x = core__x_div_scalar(scope, x, (double)classes);
    if (self->ndim < 2)
        x = core__x_reshape(scope, x, NULL, 0);
    return reduced(scope, x, reduction, &results[0]);
}

/* For each pair of a true class j and another class i: max(0, 1 - x[j] +
 * x[i]). */
static core_tensor *pairs(core__scope *scope, core_tensor *x,
                          core_tensor *targets, core_tensor *there,
                          core_tensor *is_target)
{
    core_tensor *z = CORE__DO(scope, core_gather, x, 1, targets, false);
    core_tensor *mask;

    z = core__x_sub(scope, core__x_unsqueeze(scope, x, 1),
                    core__x_unsqueeze(scope, z, 2));
    z = core__x_relu(scope, core__x_add_scalar(scope, z, 1));
    mask = core__x_logical_or(
        scope, core__x_unsqueeze(scope, core__x_logical_not(scope, there), 2),
        core__x_unsqueeze(scope, is_target, 1));
    return core__x_zero_where(scope, z, mask);
}

/* multilabel_margin_loss_forward(self, target, reduction) -> (output,
 * is_target): the first -1 ends a row's list of true classes */
CORE__COMPOSITE(multilabel_margin_loss_forward)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *target = args[1].u.tensor;
    int64_t shape[2] = {1, 1};
    core_tensor *there;
    core_tensor *is_target;
    core_tensor *x;

    CORE_TRY(core__reduction_check(call->op, args[2].u.i));
    CORE_TRY(check_rows(call->op, self, target));
    CORE_TRY(core__sizes_check_equal(call->op, "target", target, self->ndim,
                                     self->sizes));
    memcpy(shape + 2 - self->ndim, self->sizes, self->ndim * sizeof *shape);
    x = core__x_reshape(scope, self, shape, 2);
    target = core__x_reshape(scope, target, shape, 2);
    there = CORE__DO(scope, core_ge_scalar, target, core_int(0));
    there = CORE__DO(scope, core_cumprod, there, 1, CORE_DTYPE_NONE);
    target = CORE__DO(scope, core_clamp_min, target, core_int(0));
    is_target =
        CORE__DO(scope, core_zeros_like, there, CORE_DTYPE_NONE, NULL, -1);
    is_target = CORE__DO(scope, core_scatter_add, is_target, 1, target, there);
    is_target = CORE__DO(scope, core_gt_scalar, is_target, core_int(0));
    x = pairs(scope, x, target, there, is_target);
    x = core__x_sum_dim(scope, x, (const int64_t[]){1, 2}, 2, false);
    x = core__x_div_scalar(scope, x, (double)shape[1]);
    if (self->ndim < 2)
        x = core__x_reshape(scope, x, NULL, 0);
    is_target = core__x_cast(scope, is_target, self->dtype);
    is_target = core__x_reshape(scope, is_target, self->sizes, self->ndim);
    CORE_TRY(reduced(scope, x, args[2].u.i, &results[0]));
    return core__scope_result(scope, is_target, &results[1]);
}
