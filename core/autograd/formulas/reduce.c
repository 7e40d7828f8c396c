/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of reductions and of cumulative operators. */

#include "autograd/formulas/formulas.h"

#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/inference.h"
#include "ops/expression.h"
#include "ops/functions.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>

#include <math.h>

/* The reduced dimensions as a mask: dims of a tensor with ndim. */
static uint32_t reduced_mask(uint32_t ndim, const int64_t *dims, size_t count)
{
    uint32_t mask = 0;

    for (size_t i = 0; i < count; i++)
        mask |= 1u << (dims[i] < 0 ? dims[i] + (ndim ? ndim : 1) : dims[i]);
    return count == 0 ? UINT32_MAX : mask;
}

static double reduced_numel(const int64_t *sizes, size_t ndim, uint32_t mask)
{
    double numel = 1;

    for (size_t i = 0; i < ndim; i++)
        if (mask >> i & 1)
            numel *= (double)sizes[i];
    return numel;
}

/* x as with keepdim: it broadcasts against the argument. */
static core_tensor *unsqueeze_reduced(core__scope *s, core_tensor *x,
                                      uint32_t ndim, uint32_t mask,
                                      bool keepdim)
{
    if (keepdim || ndim == 0)
        return x;
    if (s->status == CORE_OK && x->ndim == 0)
        return x;
    for (uint32_t i = 0; i < ndim; i++)
        if (mask >> i & 1)
            x = core__x_unsqueeze(s, x, i);
    return x;
}

core_status core__formula_expanded(core_tensor *grad, const int64_t *sizes,
                                   size_t sizes_count, const int64_t *dim,
                                   size_t dim_count, bool keepdim,
                                   core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = unsqueeze_reduced(&s, grad, (uint32_t)sizes_count,
                          reduced_mask((uint32_t)sizes_count, dim, dim_count),
                          keepdim);
    x = CORE__DO(&s, core_expand, x, sizes, sizes_count, false);
    return core__scope_finish(&s, x, out);
}

core_status core__formula_mean_grad(core_tensor *grad, const int64_t *sizes,
                                    size_t sizes_count, const int64_t *dim,
                                    size_t dim_count, bool keepdim,
                                    core_tensor **out)
{
    uint32_t mask = reduced_mask((uint32_t)sizes_count, dim, dim_count);
    double numel = reduced_numel(sizes, sizes_count, mask);
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_div_scalar(&s, grad, numel);
    x = unsqueeze_reduced(&s, x, (uint32_t)sizes_count, mask, keepdim);
    x = CORE__DO(&s, core_expand, x, sizes, sizes_count, false);
    return core__scope_finish(&s, x, out);
}

/* 2 (x - mean) / (n - correction), times the gradient */
static core_tensor *var_grad(core__scope *s, core_tensor *grad,
                             core_tensor *self, const int64_t *dim,
                             size_t dim_count, const core_scalar *correction,
                             bool keepdim)
{
    uint32_t mask = reduced_mask(self->ndim, dim, dim_count);
    double n = reduced_numel(self->sizes, self->ndim, mask);
    double divisor = n - (correction ? core__scalar_double(*correction) : 1);
    core_tensor *mean =
        CORE__DO(s, core_mean_dim, self, dim, dim_count, true, CORE_DTYPE_NONE);
    core_tensor *x = core__x_sub(s, self, mean);

    x = core__x_mul_scalar(s, x, 2 / (divisor > 0 ? divisor : 0));
    return core__x_mul(s, unsqueeze_reduced(s, grad, self->ndim, mask, keepdim),
                       x);
}

core_status core__formula_var_grad(core_tensor *grad, core_tensor *self,
                                   const int64_t *dim, size_t dim_count,
                                   const core_scalar *correction, bool keepdim,
                                   core_tensor **out)
{
    core__scope s;

    core__scope_begin(&s);
    return core__scope_finish(
        &s, var_grad(&s, grad, self, dim, dim_count, correction, keepdim), out);
}

/* Where the deviation is 0 the gradient is defined as 0. */
core_status core__formula_std_grad(core_tensor *grad, core_tensor *self,
                                   core_tensor *result, const int64_t *dim,
                                   size_t dim_count,
                                   const core_scalar *correction, bool keepdim,
                                   core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_div(&s, grad, core__x_mul_scalar(&s, result, 2));
    x = core__x_zero_where(&s, x, core__x_eq_scalar(&s, result, 0));
    x = var_grad(&s, x, self, dim, dim_count, correction, keepdim);
    return core__scope_finish(&s, x, out);
}

/* Divided evenly among all elements equal to the extremum.  nan: NaN equals
 * NaN; otherwise a NaN result makes all of them NaN. */
core_status core__formula_extremum(core_tensor *grad, core_tensor *self,
                                   core_tensor *result, const int64_t *dim,
                                   size_t dim_count, bool keepdim, bool nan,
                                   core_tensor **out)
{
    uint32_t mask = reduced_mask(self->ndim, dim, dim_count);
    core__scope s;
    core_tensor *chosen;
    core_tensor *x;

    core__scope_begin(&s);
    result = unsqueeze_reduced(&s, result, self->ndim, mask, keepdim);
    grad = unsqueeze_reduced(&s, grad, self->ndim, mask, keepdim);
    chosen = core__x_eq(&s, self, result);
    if (nan)
        chosen =
            core__x_logical_or(&s, chosen,
                               core__x_logical_and(&s, core__x_isnan(&s, self),
                                                   core__x_isnan(&s, result)));
    x = core__x_sum_dim(&s, chosen, dim, dim_count, true);
    x = core__x_mul(&s, core__x_div(&s, grad, x), chosen);
    return core__scope_finish(&s, x, out);
}

/* Scatters the gradient of values selected along dim to their positions. */
core_status core__formula_selected(core_tensor *grad, const int64_t *sizes,
                                   size_t sizes_count, int64_t dim,
                                   core_tensor *indices, bool keepdim,
                                   core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    if (!keepdim && sizes_count > 0) {
        grad = core__x_unsqueeze(&s, grad, dim);
        indices = core__x_unsqueeze(&s, indices, dim);
    }
    x = core__x_new_zeros(&s, grad, sizes, sizes_count);
    x = CORE__DO(&s, core_scatter, x, dim, indices, grad);
    return core__scope_finish(&s, x, out);
}

/* exp(x - result), times the gradient */
core_status core__formula_logsumexp_grad(core_tensor *grad, core_tensor *self,
                                         core_tensor *result,
                                         const int64_t *dim, size_t dim_count,
                                         bool keepdim, core_tensor **out)
{
    uint32_t mask = reduced_mask(self->ndim, dim, dim_count);
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_sub(&s, self,
                    unsqueeze_reduced(&s, result, self->ndim, mask, keepdim));
    x = core__x_mul(&s, unsqueeze_reduced(&s, grad, self->ndim, mask, keepdim),
                    core__x_exp(&s, x));
    return core__scope_finish(&s, x, out);
}

/* --------------------------------------------------------------- norms -- */

static core_tensor *norm_grad(core__scope *s, core_tensor *grad,
                              core_tensor *self, core_tensor *result, double p,
                              const int64_t *dim, size_t dim_count)
{
    core_tensor *x;

    if (p == 0)
        return core__x_zeros_like(s, self);
    if (p == 1)
        return core__x_mul(s, core__x_sign(s, self), grad);
    if (p == 2) {
        x = core__x_mul(s, self, core__x_div(s, grad, result));
        return core__x_zero_where(s, x, core__x_eq_scalar(s, result, 0));
    }
    if (isinf(p)) {
        core_tensor *size = core__x_abs(s, self);
        core_tensor *chosen = core__x_eq(s, size, result);
        core_tensor *count = core__x_sum_dim(s, chosen, dim, dim_count, true);

        x = core__x_mul(s, core__x_sign(s, self), chosen);
        return core__x_mul(s, x, core__x_div(s, grad, count));
    }
    /* sign(x) |x|^(p-1) / result^(p-1) */
    x = core__x_pow_scalar(s, core__x_abs(s, self), p - 1);
    x = core__x_mul(s, core__x_sign(s, self), x);
    if (p < 1)
        x = core__x_zero_where(s, x, core__x_eq_scalar(s, self, 0));
    grad = core__x_div(s, grad, core__x_pow_scalar(s, result, p - 1));
    grad = core__x_zero_where(s, grad, core__x_eq_scalar(s, result, 0));
    return core__x_mul(s, x, grad);
}

core_status core__formula_vector_norm_grad(core_tensor *grad, core_tensor *self,
                                           core_tensor *result, core_scalar ord,
                                           const int64_t *dim, size_t dim_count,
                                           bool keepdim, core_tensor **out)
{
    uint32_t mask = reduced_mask(self->ndim, dim, dim_count);
    core__scope s;

    core__scope_begin(&s);
    grad = unsqueeze_reduced(&s, grad, self->ndim, mask, keepdim);
    result = unsqueeze_reduced(&s, result, self->ndim, mask, keepdim);
    return core__scope_finish(&s,
                              norm_grad(&s, grad, self, result,
                                        core__scalar_double(ord), dim,
                                        dim_count),
                              out);
}

/* ------------------------------------- products and cumulative operators -- */

static core_tensor *reversed(core__scope *s, core_tensor *x, int64_t dim)
{
    return CORE__DO(s, core_flip, x, &dim, 1);
}

/* The product of all elements before each position. */
static core_tensor *before(core__scope *s, core_tensor *x, int64_t dim)
{
    core_tensor *parts[2];
    core_tensor *first = core__x_slice(s, x, dim, 0, 1);
    int64_t size;

    if (s->status != CORE_OK)
        return NULL;
    size = core_tensor_size(x, dim);
    parts[0] = CORE__DO(s, core_ones_like, first, CORE_DTYPE_NONE, NULL, -1);
    parts[1] = core__x_slice(s, x, dim, 0, size - 1);
    x = CORE__DO(s, core_cat, parts, 2, dim);
    return CORE__DO(s, core_cumprod, x, dim, CORE_DTYPE_NONE);
}

/* The product of all other elements, correct even if some are 0. */
static core_tensor *others(core__scope *s, core_tensor *x, int64_t dim)
{
    core_tensor *behind;

    if (core_tensor_size(x, dim) < 1)
        return x;
    behind = reversed(s, before(s, reversed(s, x, dim), dim), dim);
    return core__x_mul(s, before(s, x, dim), behind);
}

core_status core__formula_prod_grad(core_tensor *grad, core_tensor *self,
                                    const int64_t *dim, bool keepdim,
                                    core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    if (self->ndim == 0)
        return core__scope_finish(&s, grad, out);
    if (dim) {
        x = others(&s, self, *dim);
        if (!keepdim)
            grad = core__x_unsqueeze(&s, grad, *dim);
        x = core__x_mul(&s, grad, x);
    } else {
        x = core__x_reshape(&s, self, &(int64_t){-1}, 1);
        x = s.status == CORE_OK ? others(&s, x, 0) : NULL;
        x = core__x_reshape(&s, x, self->sizes, self->ndim);
        x = core__x_mul(&s, grad, x);
    }
    return core__scope_finish(&s, x, out);
}

static core_tensor *summed_from(core__scope *s, core_tensor *x, int64_t dim)
{
    x = reversed(s, x, dim);
    x = CORE__DO(s, core_cumsum, x, dim, CORE_DTYPE_NONE);
    return reversed(s, x, dim);
}

core_status core__formula_cumsum_grad(core_tensor *grad, int64_t dim,
                                      core_tensor **out)
{
    core__scope s;

    core__scope_begin(&s);
    if (grad->ndim == 0)
        return core__scope_finish(&s, grad, out);
    return core__scope_finish(&s, summed_from(&s, grad, dim), out);
}

/* log x where x is positive; elsewhere a number whose exponential is 0, but
 * which is finite, for the second derivative. */
static core_tensor *log_positive(core__scope *s, core_tensor *x)
{
    core_tensor *other = CORE__DO(s, core_le_scalar, x, core_int(0));
    double little = s->status == CORE_OK && x->dtype == CORE_F16 ? -3e4 : -1e30;

    x = CORE__DO(s, core_masked_fill, x, other, core_int(1));
    return CORE__DO(s, core_masked_fill, core__x_log(s, x), other,
                    core_float(little));
}

/* sum over i >= k of g_i exp(x_k - r_i), with bounded exponents: positive and
 * negative gradients separately, each as a logarithm. */
core_status core__formula_logcumsumexp_grad(core_tensor *grad,
                                            core_tensor *self,
                                            core_tensor *result, int64_t dim,
                                            core_tensor **out)
{
    core__scope s;
    core_tensor *parts[2];

    core__scope_begin(&s);
    if (self->ndim == 0)
        return core__scope_finish(&s, grad, out);
    for (int sign = 0; sign < 2; sign++) {
        core_tensor *x = log_positive(&s, sign ? core__x_neg(&s, grad) : grad);

        x = core__x_sub(&s, x, result);
        x = reversed(&s, x, dim);
        x = CORE__DO(&s, core_logcumsumexp, x, dim);
        x = core__x_add(&s, reversed(&s, x, dim), self);
        parts[sign] = core__x_exp(&s, x);
    }
    return core__scope_finish(&s, core__x_sub(&s, parts[0], parts[1]), out);
}

/* The gradient of element k: the product before it, times the sum over later
 * results of their gradient and the product between. */
static core_tensor *cumprod_element(core__scope *s, core_tensor *grad,
                                    core_tensor *self, int64_t dim, int64_t k)
{
    int64_t size = core_tensor_size(self, dim);
    core_tensor *parts[2];
    core_tensor *first = core__x_slice(s, self, dim, k, k + 1);
    core_tensor *x;

    parts[0] = CORE__DO(s, core_ones_like, first, CORE_DTYPE_NONE, NULL, -1);
    parts[1] = core__x_slice(s, self, dim, k + 1, size);
    x = CORE__DO(s, core_cat, parts, 2, dim);
    x = CORE__DO(s, core_cumprod, x, dim, CORE_DTYPE_NONE);
    x = core__x_mul(s, x, core__x_slice(s, grad, dim, k, size));
    x = core__x_sum_dim(s, x, &dim, 1, true);
    if (k > 0) {
        first = CORE__DO(s, core_prod_dim, core__x_slice(s, self, dim, 0, k),
                         dim, true, CORE_DTYPE_NONE);
        x = core__x_mul(s, x, first);
    }
    return x;
}

static core_status cumprod_by_element(core__scope *s, core_tensor *grad,
                                      core_tensor *self, int64_t dim,
                                      core_tensor **out)
{
    int64_t size = core_tensor_size(self, dim);
    core_tensor **parts = core__alloc_zero((size_t)size * sizeof *parts);
    core_status status = CORE_OK;

    if (!parts)
        return core__error_memory((size_t)size * sizeof *parts);
    for (int64_t k = 0; status == CORE_OK && k < size; k++) {
        core__scope inner;

        core__scope_begin(&inner);
        status = core__scope_finish(
            &inner, cumprod_element(&inner, grad, self, dim, k), &parts[k]);
    }
    if (status == CORE_OK)
        status = core_cat(parts, (size_t)size, dim, out);
    core_tensors_release(parts, (size_t)size);
    if (s->status == CORE_OK)
        s->status = status;
    return core__scope_end(s);
}

static core_status cumprod_gradient(core_tensor *grad, core_tensor *self,
                                    core_tensor *result, int64_t dim,
                                    core_tensor **out)
{
    core__scope s;
    bool zeros;
    core_tensor *x;

    core__scope_begin(&s);
    zeros = core__read_any(&s, core__x_eq_scalar(&s, self, 0));
    if (s.status == CORE_OK && zeros)
        return cumprod_by_element(&s, grad, self, dim, out);
    x = summed_from(&s, core__x_mul(&s, grad, result), dim);
    x = core__x_div(&s, x, self);
    /* As the other formula, whatever the content of self. */
    return core__scope_finish(
        &s, CORE__DO(&s, core_contiguous, x, CORE_FORMAT_CONTIGUOUS), out);
}

/* Which formula is used depends on the content of self.  So a program has one
 * node, if this gradient needs none itself. */
core_status core__formula_cumprod_grad(core_tensor *grad, core_tensor *self,
                                       core_tensor *result, int64_t dim,
                                       core_tensor **out)
{
    const core__thread *thread = core__thread_self();

    *out = NULL;
    if (self->ndim == 0 || self->numel == 0)
        return core_alias(grad, out);
    return thread->trace && thread->no_grad
               ? core_cumprod_backward(grad, self, result, dim, out)
               : cumprod_gradient(grad, self, result, dim, out);
}

static core_status check_cumprod(const core_operator *op,
                                 const core_value *args, uint32_t *out_dim)
{
    const core_tensor *grad = args[0].u.tensor;

    for (int i = 0; i < 3; i++)
        if (args[i].u.tensor->dtype != grad->dtype ||
            !core__dtype_is_floating(grad->dtype))
            return core__op_error(
                CORE_ERROR_DTYPE, op,
                "grad has dtype %s, self %s and result %s; they must have the "
                "same floating dtype",
                core__dtype_name(grad->dtype),
                core__dtype_name(args[1].u.tensor->dtype),
                core__dtype_name(args[2].u.tensor->dtype));
    CORE_TRY(core__sizes_check_equal(op, "self", args[1].u.tensor, grad->ndim,
                                     grad->sizes));
    CORE_TRY(core__sizes_check_equal(op, "result", args[2].u.tensor, grad->ndim,
                                     grad->sizes));
    return core__dim_wrap(op, args[3].u.i, grad->ndim, out_dim);
}

/* _cumprod_backward(grad, self, result, dim) */
CORE__OP(cumprod_backward)
{
    core_tensor *grad = args[0].u.tensor, *out = NULL;
    core_status status;
    uint32_t dim;
    bool before;

    CORE_TRY(check_cumprod(call->op, args, &dim));
    before = core_grad_mode_set(false);
    if (!grad->storage || grad->numel == 0)
        status = core_empty_like(grad, CORE_DTYPE_NONE, NULL,
                                 CORE_FORMAT_CONTIGUOUS, &out);
    else if (grad->ndim == 0)
        status = core_clone(grad, -1, &out);
    else
        status = cumprod_gradient(grad, args[1].u.tensor, args[2].u.tensor, dim,
                                  &out);
    core_grad_mode_set(before);
    if (status == CORE_OK)
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = out}};
    return status;
}
