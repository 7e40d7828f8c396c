/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Decompositions of element-wise operators and reductions. */

#include "base/memory.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

/* Rounded division.  Kernels round quotients of f16 and bf16 to the dtype
 * before they truncate them; those by a single number are not rounded. */
static core_tensor *rounded(core__scope *scope, core_tensor *self,
                            core_tensor *other, const char *mode)
{
    core_dtype dtype = self->dtype;

    if (other->ndim > 0 || (dtype != CORE_F16 && dtype != CORE_BF16) ||
        (self->ndim == 0 && other->dtype != dtype))
        return CORE__DO(scope, core_div_rounded, self, other, mode);
    self = core__x_cast(scope, self, CORE_F32);
    other = core__x_cast(scope, other, CORE_F32);
    self = CORE__DO(scope, core_div_rounded, self, other, mode);
    return core__x_cast(scope, self, dtype);
}

/* A number as a tensor without dimensions that does not change the dtype of a
 * result with self: an integer, or in self's floating dtype or f32. */
static core_tensor *number_as_tensor(core__scope *scope, core_tensor *self,
                                     const core_scalar *number)
{
    core_dtype dtype = CORE_F32;

    if (core__dtype_is_floating(self->dtype) ||
        (number->tag == CORE_VALUE_INT && core__dtype_is_integer(self->dtype)))
        dtype = (core_dtype)self->dtype;
    return CORE__DO(scope, core_full, NULL, 0, *number, dtype, self->device);
}

/* Rounded division keeps integers and has no slope; true division is div. */
CORE__COMPOSITE(div_mode)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *other = args[1].tag == CORE_VALUE_TENSOR
                             ? args[1].u.tensor
                             : number_as_tensor(scope, self, &args[1]);
    const char *mode =
        args[2].tag == CORE_VALUE_STRING ? args[2].u.string : NULL;

    if (!mode)
        return core__scope_result(scope, core__x_div(scope, self, other),
                                  &results[0]);
    if (strcmp(mode, "trunc") != 0 && strcmp(mode, "floor") != 0)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "rounding_mode must be \"trunc\", \"floor\" or none, not \"%s\"",
            mode);
    if (scope->status != CORE_OK)
        return scope->status;
    return core__scope_result(scope, rounded(scope, self, other, mode),
                              &results[0]);
}

/* xlogy.Scalar_Other(self, other) */
CORE__COMPOSITE(xlogy_scalar_other)
{
    core_tensor *other = number_as_tensor(scope, args[0].u.tensor, &args[1]);

    return core__scope_result(
        scope, CORE__DO(scope, core_xlogy, args[0].u.tensor, other),
        &results[0]);
}

/* special_xlog1py.other_scalar(self, other) */
CORE__COMPOSITE(special_xlog1py_other_scalar)
{
    core_tensor *other = number_as_tensor(scope, args[0].u.tensor, &args[1]);

    return core__scope_result(
        scope, CORE__DO(scope, core_special_xlog1py, args[0].u.tensor, other),
        &results[0]);
}

static core_tensor *power_of_two(core__scope *scope, core_tensor *exponent)
{
    return CORE__DO(scope, core_pow_of_scalar, core_float(2), exponent);
}

/* Floating self times 2 to an integer power: in self's dtype, and in three
 * steps, since 2 to that power alone may overflow or underflow.  Only the last
 * step, the largest, rounds. */
static core_tensor *scaled(core__scope *scope, core_tensor *self,
                           core_tensor *other)
{
    bool wide = self->dtype == CORE_F64;
    core_dtype dtype = wide ? CORE_F64 : CORE_F32;
    core_scalar low = core_float(wide ? -1022 : -126);
    core_scalar high = core_float(wide ? 1023 : 127);
    core_tensor *left = core__x_cast(scope, other, dtype);
    core_tensor *steps[3];
    core_tensor *x = core__x_cast(scope, self, dtype);

    for (int i = 0; i < 3; i++) {
        steps[i] = CORE__DO(scope, core_clamp, left, &low, &high);
        left = core__x_sub(scope, left, steps[i]);
    }
    for (int i = 3; i-- > 0;)
        x = core__x_mul(scope, x, power_of_two(scope, steps[i]));
    return core__x_cast(scope, x, self->dtype);
}

/* self times 2 to the power other */
CORE__COMPOSITE(ldexp)
{
    core_tensor *self = args[0].u.tensor, *other = args[1].u.tensor;
    core_tensor *x;

    if (core__dtype_is_floating(self->dtype) &&
        !core__dtype_is_floating(other->dtype))
        x = scaled(scope, self, other);
    else
        x = core__x_mul(scope, self, power_of_two(scope, other));
    return core__scope_result(scope, x, &results[0]);
}

CORE__COMPOSITE(isfinite)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *bad = CORE__DO(scope, core_isinf, self);

    bad = core__x_logical_or(scope, bad, core__x_isnan(scope, self));
    return core__scope_result(scope, core__x_logical_not(scope, bad),
                              &results[0]);
}

CORE__COMPOSITE(masked_fill_tensor)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *value = args[2].u.tensor;

    if (value->ndim != 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "value must have no dimensions, not %u",
                              value->ndim);
    value = CORE__DO(scope, core_to, value, self->dtype, self->device, false,
                     false, -1);
    return core__scope_result(
        scope, core__x_where(scope, args[1].u.tensor, value, self),
        &results[0]);
}

/* The tensor is the first argument, unlike in polygamma, so the variant is not
 * generated.  The formula reads what is overwritten, so it gets a copy. */
CORE__OP(polygamma_)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *value;
    core__scope scope;
    core_status status;

    if (!core__dtype_is_floating(self->dtype))
        return core__op_error(
            CORE_ERROR_DTYPE, call->op,
            "self is %s, which cannot hold the floating result",
            core__dtype_name(self->dtype));
    core__scope_begin(&scope);
    value = CORE__DO(&scope, core_clone, self, -1);
    value = CORE__DO(&scope, core_polygamma, args[1].u.i, value);
    CORE__RUN(&scope, core_copy_(self, value, false));
    status = core__scope_end(&scope);
    if (status == CORE_OK && nresults > 0) {
        core__tensor_retain(self);
        core__result_tensor(&results[0], self);
    }
    return status;
}

/* -------------------------------------------------------------- bounds -- */

static bool needs_float(const core_tensor *self, const core_value *bound)
{
    return bound->tag == CORE_VALUE_FLOAT &&
           !core__dtype_is_floating(self->dtype);
}

static const core_scalar *number(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : value;
}

static core_status clamped(core__scope *scope, const core_operator *op,
                           core_tensor *self, const core_value *low,
                           const core_value *high, core_value *result)
{
    if (low->tag == CORE_VALUE_NONE && high->tag == CORE_VALUE_NONE)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, op,
            "min and max are both missing; at least one must be given");
    if (needs_float(self, low) || needs_float(self, high))
        self = core__x_cast(scope, self, core__dtype_default());
    else if (self->dtype == CORE_BOOL)
        self = core__x_cast(scope, self, CORE_I64);
    return core__scope_result(
        scope,
        CORE__DO(scope, core_clamp_same, self, number(low), number(high)),
        result);
}

CORE__COMPOSITE(clamp)
{
    return clamped(scope, call->op, args[0].u.tensor, &args[1], &args[2],
                   &results[0]);
}

CORE__COMPOSITE(clamp_min)
{
    static const core_value none;

    return clamped(scope, call->op, args[0].u.tensor, &args[1], &none,
                   &results[0]);
}

CORE__COMPOSITE(clamp_max)
{
    static const core_value none;

    return clamped(scope, call->op, args[0].u.tensor, &none, &args[1],
                   &results[0]);
}

CORE__COMPOSITE(max_other)
{
    return core__scope_result(
        scope,
        CORE__DO(scope, core_maximum, args[0].u.tensor, args[1].u.tensor),
        &results[0]);
}

CORE__COMPOSITE(min_other)
{
    return core__scope_result(
        scope,
        CORE__DO(scope, core_minimum, args[0].u.tensor, args[1].u.tensor),
        &results[0]);
}

/* --------------------------------------------------------- activations -- */

/* Clevert, Unterthiner, Hochreiter 2016; Barron 2017 for celu. */
CORE__COMPOSITE(celu)
{
    double alpha = core__double_of(&args[1]);

    if (alpha == 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "alpha is 0; it must be another number");
    return core__scope_result(scope,
                              CORE__DO(scope, core_elu, args[0].u.tensor,
                                       args[1], core_int(1),
                                       core_float(1 / alpha)),
                              &results[0]);
}

/* Klambauer et al. 2017 */
CORE__COMPOSITE(selu)
{
    return core__scope_result(
        scope,
        CORE__DO(scope, core_elu, args[0].u.tensor,
                 core_float(1.6732632423543772848170429916717),
                 core_float(1.0507009873554804934193349852946), core_int(1)),
        &results[0]);
}

CORE__COMPOSITE(relu6)
{
    return core__scope_result(scope,
                              CORE__DO(scope, core_hardtanh, args[0].u.tensor,
                                       core_int(0), core_int(6)),
                              &results[0]);
}

/* min(x, 0) - log1p(exp(-|x|)), exact at both ends; the second result is that
 * exponential, for computing the gradient by hand. */
CORE__COMPOSITE(log_sigmoid_forward)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *least = CORE__DO(scope, core_clamp_max, self, core_int(0));
    core_tensor *buffer =
        core__x_exp(scope, core__x_neg(scope, core__x_abs(scope, self)));
    core_tensor *out = core__x_sub(scope, least, core__x_log1p(scope, buffer));

    CORE_TRY(core__scope_result(scope, out, &results[0]));
    return core__scope_result(scope, buffer, &results[1]);
}

CORE__OP(log_sigmoid)
{
    core_tensor *out = NULL;
    core_tensor *buffer = NULL;

    CORE_TRY(core_log_sigmoid_forward(args[0].u.tensor, &out, &buffer));
    core__tensor_release(buffer);
    core__result_tensor(&results[0], out);
    return CORE_OK;
}

CORE__COMPOSITE(prelu)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *weight = args[1].u.tensor;
    int64_t channels = self->ndim > 1 ? self->sizes[1] : 1;
    core_tensor *positive;
    core_tensor *negative;

    if (weight->ndim > 1)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "weight has %u dimensions; it must have at most 1", weight->ndim);
    if (weight->numel != 1 && weight->numel != channels)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "weight has %lld elements; it must have 1, or "
                              "one for each of the %lld channels",
                              (long long)weight->numel, (long long)channels);
    if (weight->ndim > 0) {
        int64_t sizes[CORE_MAX_NDIM];

        for (uint32_t i = 0; i < self->ndim; i++)
            sizes[i] = i == 1 ? weight->numel : 1;
        weight = core__x_reshape(scope, weight, sizes, self->ndim);
    }
    /* Positive elements, even infinity, do not affect the weight's gradient. */
    positive = CORE__DO(scope, core_gt_scalar, self, core_int(0));
    negative = core__x_zero_where(scope, self, positive);
    negative = core__x_mul(scope, negative, weight);
    return core__scope_result(
        scope, core__x_where(scope, positive, self, negative), &results[0]);
}

/* _prelu_kernel(self, weight): prelu with weight in a shape that broadcasts */
CORE__COMPOSITE(prelu_kernel)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *positive = CORE__DO(scope, core_gt_scalar, self, core_int(0));
    core_tensor *negative = core__x_zero_where(scope, self, positive);

    negative = core__x_mul(scope, negative, args[1].u.tensor);
    return core__scope_result(
        scope, core__x_where(scope, positive, self, negative), &results[0]);
}

/* _prelu_kernel_backward(grad_output, self, weight): the gradient of weight is
 * not summed over what was broadcast. */
CORE__COMPOSITE(prelu_kernel_backward)
{
    core_tensor *grad = args[0].u.tensor;
    core_tensor *self = args[1].u.tensor;
    core_tensor *positive = CORE__DO(scope, core_gt_scalar, self, core_int(0));
    core_tensor *slope = core__x_mul(scope, grad, args[2].u.tensor);

    CORE_TRY(core__scope_result(
        scope, core__x_where(scope, positive, grad, slope), &results[0]));
    slope = core__x_mul(scope, core__x_zero_where(scope, self, positive), grad);
    return core__scope_result(scope, slope, &results[1]);
}

CORE__COMPOSITE(glu)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *a;
    core_tensor *b;
    uint32_t dim;
    int64_t half;

    CORE_TRY(core__dim_wrap(call->op, args[1].u.i, self->ndim, &dim));
    if (self->ndim == 0 || self->sizes[dim] % 2 != 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self must have an even size in dimension %u",
                              dim);
    half = self->sizes[dim] / 2;
    a = core__x_slice(scope, self, dim, 0, half);
    b = core__x_slice(scope, self, dim, half, 2 * half);
    return core__scope_result(
        scope, core__x_mul(scope, a, core__x_sigmoid(scope, b)), &results[0]);
}

/* ---------------------------------------------------------- reductions -- */

static const core_scalar *correction_of(const core_value *value)
{
    return value->tag == CORE_VALUE_NONE ? NULL : value;
}

static core_tensor *mean_of(core__scope *scope, const core_value *args)
{
    size_t count;
    const int64_t *dims = core__ints_of(&args[1], &count);

    return CORE__DO(scope, core_mean_dim, args[0].u.tensor, dims, count,
                    core__arg_bool(args, 3, false), CORE_DTYPE_NONE);
}

/* var_mean(self, dim, *, correction, keepdim) */
CORE__COMPOSITE(var_mean)
{
    size_t count;
    const int64_t *dims = core__ints_of(&args[1], &count);
    core_tensor *var =
        CORE__DO(scope, core_var, args[0].u.tensor, dims, count,
                 correction_of(&args[2]), core__arg_bool(args, 3, false));
    core_tensor *mean = mean_of(scope, args);

    CORE_TRY(core__scope_result(scope, var, &results[0]));
    return core__scope_result(scope, mean, &results[1]);
}

CORE__COMPOSITE(std_mean)
{
    size_t count;
    const int64_t *dims = core__ints_of(&args[1], &count);
    core_tensor *std =
        CORE__DO(scope, core_std, args[0].u.tensor, dims, count,
                 correction_of(&args[2]), core__arg_bool(args, 3, false));
    core_tensor *mean = mean_of(scope, args);

    CORE_TRY(core__scope_result(scope, std, &results[0]));
    return core__scope_result(scope, mean, &results[1]);
}

/* The overloads with a bool: a correction of 1, or 0 if it is false.  args are
 * those of the overload with dim; without it, dim is absent. */
static core_status moments(uint32_t id, const core_value *args, bool has_dim,
                           core_value *results, uint32_t count)
{
    core_value own[4] = {args[0], {0}, {0}, {0}};

    if (has_dim) {
        own[1] = args[1];
        own[3] = args[3];
    }
    own[2] = core_pack_int(core__arg_bool(args, has_dim ? 2 : 1, true));
    return core_op_invoke_on(core_op_at(id), own, 4, results, count);
}

#define MOMENTS(name, id, count)                         \
    CORE__OP(name##_unbiased)                            \
    {                                                    \
        return moments(id, args, false, results, count); \
    }                                                    \
    CORE__OP(name##_dim)                                 \
    {                                                    \
        return moments(id, args, true, results, count);  \
    }
MOMENTS(var, CORE_OP_VAR_CORRECTION, 1)
MOMENTS(std, CORE_OP_STD_CORRECTION, 1)
MOMENTS(var_mean, CORE_OP_VAR_MEAN_CORRECTION, 2)
MOMENTS(std_mean, CORE_OP_STD_MEAN_CORRECTION, 2)
#undef MOMENTS

CORE__COMPOSITE(aminmax)
{
    core_tensor *self = args[0].u.tensor;
    bool keepdim = core__arg_bool(args, 2, false);
    size_t count;
    const int64_t *dims = core__ints_of(&args[1], &count);
    core_tensor *low, *high;

    low = CORE__DO(scope, core_amin, self, dims, count, keepdim);
    high = CORE__DO(scope, core_amax, self, dims, count, keepdim);
    CORE_TRY(core__scope_result(scope, low, &results[0]));
    return core__scope_result(scope, high, &results[1]);
}

/* Integers and bool are converted to floats. */
CORE__COMPOSITE(logsumexp)
{
    core_tensor *self = args[0].u.tensor;
    size_t count;
    const int64_t *dims = core__ints_of(&args[1], &count);

    if (!core__dtype_is_floating(self->dtype))
        self = core__x_cast(scope, self, core__dtype_default());
    return core__scope_result(scope,
                              CORE__DO(scope, core_logsumexp_same, self, dims,
                                       count, core__arg_bool(args, 2, false)),
                              &results[0]);
}

/* norm(self, p, dim, keepdim) */
CORE__COMPOSITE(norm)
{
    core_scalar p = args[1].tag == CORE_VALUE_NONE ? core_int(2) : args[1];
    size_t count;
    const int64_t *dims = core__ints_of(&args[2], &count);

    return core__scope_result(
        scope,
        CORE__DO(scope, core_linalg_vector_norm, args[0].u.tensor, p, dims,
                 count, core__arg_bool(args, 3, false), CORE_DTYPE_NONE),
        &results[0]);
}

CORE__OP(argsort)
{
    core_tensor *values = NULL;
    core_tensor *indices = NULL;

    CORE_TRY(core_sort(args[0].u.tensor, args[1].u.i, args[2].u.i != 0, &values,
                       &indices));
    core__tensor_release(values);
    core__result_tensor(&results[0], indices);
    return CORE_OK;
}

/* argsort.stable(self, *, stable, dim, descending) */
CORE__OP(argsort_stable)
{
    bool stable = core__arg_bool(args, 1, true);
    core_tensor *values = NULL, *indices = NULL;

    CORE_TRY(core_sort_stable(args[0].u.tensor, &stable, args[2].u.i,
                              args[3].u.i != 0, &values, &indices));
    core__tensor_release(values);
    core__result_tensor(&results[0], indices);
    return CORE_OK;
}

/* mvlgamma(self, p): the sum of lgamma(self - i / 2) for i below p, plus p (p -
 * 1) / 4 log pi. */
CORE__COMPOSITE(mvlgamma)
{
    int64_t p = args[1].u.i, last = -1;
    core_tensor *x = args[0].u.tensor;
    core_dtype dtype = core__dtype_is_floating(x->dtype) ? x->dtype : CORE_F32;
    core_tensor *steps;

    if (p < 1)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "p must be 1 or more, not %lld", (long long)p);
    x = core__x_cast(scope, x, dtype);
    steps = core__x_arange(scope, x, p);
    steps = core__x_mul_scalar(scope, steps, -0.5);
    x = core__x_add(scope, core__x_unsqueeze(scope, x, -1),
                    core__x_cast(scope, steps, dtype));
    x = CORE__DO(scope, core_lgamma, x);
    x = core__x_sum_dim(scope, x, &last, 1, false);
    x = core__x_add_scalar(
        scope, x, (double)p * (double)(p - 1) / 4 * 1.1447298858494002);
    return core__scope_result(scope, x, &results[0]);
}

CORE__COMPOSITE(square)
{
    return core__scope_result(
        scope, CORE__DO(scope, core_pow_scalar, args[0].u.tensor, core_int(2)),
        &results[0]);
}

/* ------------------------------------------------------------- reductions -- */

/* all.dims and any.dims(self, dim, keepdim): no dimensions at all for an empty
 * list, and all of them for none */
static core_status over_dims(core__scope *scope, const core_operator *op,
                             const core_value *args,
                             core_status (*reduce)(core_tensor *, int64_t, bool,
                                                   core_tensor **),
                             core_value *result)
{
    core_tensor *x = args[0].u.tensor;
    bool keepdim = core__arg_bool(args, 2, false);
    uint32_t mask, ndim = x->ndim;

    CORE_TRY(core__dims_mask(op, &args[1], ndim, &mask));
    if (args[1].tag == CORE_VALUE_NONE)
        mask = UINT32_MAX;
    if (mask == 0 || ndim == 0) {
        core_dtype dtype = x->dtype == CORE_U8 ? CORE_U8 : CORE_BOOL;

        x = CORE__DO(scope, core_ne_scalar, x, core_int(0));
        return core__scope_result(scope, core__x_cast(scope, x, dtype), result);
    }
    for (uint32_t i = ndim; i-- > 0;)
        if (mask >> i & 1)
            x = CORE__DO(scope, reduce, x, i, keepdim);
    return core__scope_result(scope, x, result);
}

CORE__COMPOSITE(all_dims)
{
    return over_dims(scope, call->op, args, core_all_dim, &results[0]);
}

CORE__COMPOSITE(any_dims)
{
    return over_dims(scope, call->op, args, core_any_dim, &results[0]);
}

CORE__COMPOSITE(aminmax_whole)
{
    core_tensor *low = NULL, *high = NULL;
    core_status status =
        core_aminmax(args[0].u.tensor, NULL, false, &low, &high);

    core__result_tensor(&results[0], low);
    core__result_tensor(&results[1], high);
    return status;
}

CORE__COMPOSITE(aminmax_dim)
{
    core_tensor *low = NULL, *high = NULL;
    core_status status =
        core_aminmax(args[0].u.tensor, &args[1].u.i,
                     core__arg_bool(args, 2, false), &low, &high);

    core__result_tensor(&results[0], low);
    core__result_tensor(&results[1], high);
    return status;
}

/* --------------------------------------------------------------- products -- */

/* A factor of _trilinear with the missing dimensions inserted, in ascending
 * order. */
static core_status widened(core__scope *scope, const core_operator *op,
                           core_tensor *x, const core_value *at,
                           core_tensor **out)
{
    size_t count;
    const int64_t *dims = core__ints_of(at, &count);

    for (size_t i = 0; i < count; i++) {
        if (i > 0 && dims[i] <= dims[i - 1])
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                  "the dimensions to insert must be in "
                                  "ascending order");
        x = core__x_unsqueeze(scope, x, dims[i]);
    }
    *out = x;
    return scope->status;
}

/* _trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim): the
 * sum over sumdim of the products of three factors, in their dtype.  16-bit
 * floating factors are multiplied and summed in f32. */
CORE__COMPOSITE(trilinear)
{
    core_tensor *parts[3];
    core_dtype dtype = args[0].u.tensor->dtype;
    bool narrow = dtype == CORE_F16 || dtype == CORE_BF16;
    size_t count;
    const int64_t *dims = core__ints_of(&args[6], &count);
    core_tensor *x;

    for (int i = 0; i < 3; i++) {
        if (args[i].u.tensor->dtype != dtype || dtype == CORE_BOOL)
            return core__op_error(CORE_ERROR_DTYPE, call->op,
                                  "i%d is %s and i1 is %s; they must have one "
                                  "dtype, not bool",
                                  i + 1,
                                  core__dtype_name(args[i].u.tensor->dtype),
                                  core__dtype_name(dtype));
        CORE_TRY(widened(scope, call->op, args[i].u.tensor, &args[3 + i],
                         &parts[i]));
        if (narrow)
            parts[i] = core__x_cast(scope, parts[i], CORE_F32);
    }
    x = core__x_mul(scope, core__x_mul(scope, parts[0], parts[2]), parts[1]);
    if (count > 0)
        x = core__x_sum_dim(scope, x, dims, count, false);
    return core__scope_result(scope, core__x_cast(scope, x, dtype),
                              &results[0]);
}

/* _compute_linear_combination(input, coefficients): each row of coefficients
 * weights the entries of input along its first dimension. */
CORE__COMPOSITE(compute_linear_combination)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *coefficients = args[1].u.tensor;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t row = 1; /* elements of an entry */
    core_tensor *x;

    if (input->ndim == 0 || coefficients->ndim != 2 ||
        coefficients->sizes[1] != input->sizes[0])
        return core__op_shapes_error(call->op, "input", input, "coefficients",
                                     coefficients,
                                     "they must be [n, ...] and [m, n]");
    memcpy(sizes, input->sizes, input->ndim * sizeof *sizes);
    sizes[0] = coefficients->sizes[0];
    for (uint32_t i = 1; i < input->ndim; i++)
        row *= sizes[i];
    x = core__x_reshape(scope, input, (const int64_t[]){input->sizes[0], row},
                        2);
    x = core__x_mm(scope, coefficients, x);
    return core__scope_result(
        scope, core__x_reshape(scope, x, sizes, input->ndim), &results[0]);
}

/* _cummax_helper and _cummin_helper(self, values, indices, dim) */
CORE__COMPOSITE(cummax_helper)
{
    return core_cummax_out(args[0].u.tensor, args[3].u.i, args[1].u.tensor,
                           args[2].u.tensor);
}

CORE__COMPOSITE(cummin_helper)
{
    return core_cummin_out(args[0].u.tensor, args[3].u.i, args[1].u.tensor,
                           args[2].u.tensor);
}

CORE__COMPOSITE(logcumsumexp_same)
{
    return core__scope_result(
        scope,
        CORE__DO(scope, core_logcumsumexp, args[0].u.tensor, args[1].u.i),
        &results[0]);
}

/* norm.ScalarOpt_dim_dtype(self, p, dim, keepdim, *, dtype) */
CORE__COMPOSITE(norm_dtype)
{
    size_t count;
    const int64_t *dims = core__ints_of(&args[2], &count);
    core_scalar p = args[1].tag == CORE_VALUE_NONE ? core_int(2) : args[1];

    return core__scope_result(scope,
                              CORE__DO(scope, core_linalg_vector_norm,
                                       args[0].u.tensor, p, dims, count,
                                       core__arg_bool(args, 3, false),
                                       core__dtype_of(&args[4])),
                              &results[0]);
}

/* _amp_update_scale(self, growth_tracker, found_inf, scale_growth_factor,
 * scale_backoff_factor, growth_interval) -> (scale, growth_tracker) */
CORE__COMPOSITE(amp_update_scale)
{
    core_tensor *scale = args[0].u.tensor, *tracker = args[1].u.tensor;
    core_tensor *found =
        CORE__DO(scope, core_ne_scalar, args[2].u.tensor, core_int(0));
    core_tensor *next, *grown, *due;

    next = CORE__DO(scope, core_add_scalar, tracker, core_int(1), core_int(1));
    due = CORE__DO(scope, core_eq_scalar, next, args[5]);
    grown = core__x_mul_scalar(scope, scale, core__double_of(&args[3]));
    grown = core__x_where(
        scope,
        core__x_logical_and(scope, due, CORE__DO(scope, core_isfinite, grown)),
        grown, scale);
    grown = core__x_where(
        scope, found,
        core__x_mul_scalar(scope, scale, core__double_of(&args[4])), grown);
    next =
        core__x_zero_where(scope, next, core__x_logical_or(scope, found, due));
    CORE_TRY(core__scope_result(scope, grown, &results[0]));
    return core__scope_result(scope, next, &results[1]);
}

/* x times the scale; sets found to 1 if x has an element that is not finite. */
static core_status unscaled(core_tensor *x, core_tensor *scale,
                            core_tensor *found, core_tensor **out)
{
    core__scope scope, *s = &scope;
    core_tensor *finite, *scaled;

    core__scope_begin(s);
    finite = CORE__DO(s, core_all, CORE__DO(s, core_isfinite, x));
    CORE__RUN(s, core_masked_fill_(found, core__x_logical_not(s, finite),
                                   core_int(1)));
    /* The scale may be 0 in the dtype of halves. */
    scaled = x->dtype == CORE_F64 ? x : core__x_cast(s, x, CORE_F32);
    scaled = core__x_mul(s, scaled, scale);
    return core__scope_finish(s, core__x_cast(s, scaled, x->dtype), out);
}

static core_status check_unscaled(const core_operator *op,
                                  const core_value *args)
{
    const core_tensor *found = args[1].u.tensor, *scale = args[2].u.tensor;

    if (found->numel != 1 || found->dtype != CORE_F32 || scale->numel != 1 ||
        scale->dtype != CORE_F32)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "found_inf has %lld elements of %s and inv_scale "
            "%lld of %s; both must have 1 of f32",
            (long long)found->numel, core__dtype_name(found->dtype),
            (long long)scale->numel, core__dtype_name(scale->dtype));
    for (uint32_t i = 0; i < args[0].count; i++)
        if (!core__dtype_is_floating(args[0].u.tensors[i]->dtype))
            return core__op_error(
                CORE_ERROR_DTYPE, op,
                "self[%u] must have a floating dtype, not %s", i,
                core__dtype_name(args[0].u.tensors[i]->dtype));
    return CORE_OK;
}

/* _amp_foreach_non_finite_check_and_unscale(self, found_inf, inv_scale) ->
 * (self times inv_scale, found_inf, or 1 if an element is not finite) */
CORE__COMPOSITE(amp_foreach_non_finite_check_and_unscale)
{
    uint32_t count = args[0].count;
    core_tensor *found, *scale, **out;
    core_status status = CORE_OK;

    CORE_TRY(check_unscaled(call->op, args));
    found = CORE__DO(scope, core_clone, args[1].u.tensor, -1);
    scale = core__x_reshape(scope, args[2].u.tensor, NULL, 0);
    if (scope->status != CORE_OK)
        return scope->status;
    out = core__alloc_zero((count ? count : 1) * sizeof *out);
    if (!out)
        return core__error_memory(count * sizeof *out);
    for (uint32_t i = 0; status == CORE_OK && i < count; i++)
        status = unscaled(args[0].u.tensors[i], scale, found, &out[i]);
    if (status != CORE_OK) {
        core_tensors_release(out, count);
        return status;
    }
    results[0] = (core_value){CORE_VALUE_TENSOR_LIST, count, {.tensors = out}};
    return core__scope_result(scope, found, &results[1]);
}

/* Fails unless the element of self is not 0; waits for it. */
static core_status asserted(const core_operator *op, core_tensor *self,
                            const char *message)
{
    core_scalar value;

    if (self->numel != 1)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "self has %lld elements; it must have one",
                              (long long)self->numel);
    CORE_TRY(core_item(self, &value));
    if (core__double_of(&value) != 0)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op, "%s", message);
}

CORE__COMPOSITE(assert_async)
{
    return asserted(call->op, args[0].u.tensor, "self is 0");
}

CORE__COMPOSITE(assert_async_msg)
{
    return asserted(call->op, args[0].u.tensor, args[1].u.string);
}

/* _add_relu(self, other, alpha): relu of the sum */
CORE__COMPOSITE(add_relu)
{
    return core__scope_result(
        scope,
        core__x_relu(scope,
                     CORE__DO(scope, core_add, args[0].u.tensor,
                              args[1].u.tensor, core__arg_number(args, 2, 1))),
        &results[0]);
}

CORE__COMPOSITE(add_relu_scalar)
{
    return core__scope_result(
        scope,
        core__x_relu(scope, CORE__DO(scope, core_add_scalar, args[0].u.tensor,
                                     args[1], core__arg_number(args, 2, 1))),
        &results[0]);
}
