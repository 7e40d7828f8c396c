/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How near tensors are to one another. */

#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <math.h>

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

    CORE_TRY(core__dtypes_check_equal(op, "self and other", self, other));
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

/* ----------------------------------------------- distances between rows -- */

/* The differences of all rows would need much more memory than their distances:
 * beyond so many elements, one half of the distances is computed after the
 * other. */
enum { BLOCK = 1 << 20 };

static int64_t size_at(const core_tensor *x, int64_t dim)
{
    return x->ndim + dim < 0 ? 1 : x->sizes[x->ndim + dim];
}

/* The dimension before the last one of the distances of a [..., n, d] and b [...,
 * m, d] to be divided, counted from the end, and its size; 0: none. */
static int64_t divided(const core_tensor *a, const core_tensor *b,
                       int64_t *out_size)
{
    double count = (double)size_at(a, -1) * (double)size_at(b, -2);
    int64_t found = 0;

    for (int64_t dim = -CORE_MAX_NDIM; dim < -1; dim++) {
        int64_t n = size_at(a, dim), m = dim == -2 ? 1 : size_at(b, dim);
        int64_t size = n == 1 ? m : n;

        if (size != m && m != 1)
            return 0; /* which the subtraction reports */
        if (size > 1 && found == 0) {
            found = dim;
            *out_size = size;
        }
        count *= (double)size;
    }
    return count > BLOCK ? found : 0;
}

/* Half of a dimension of this size; x if it is broadcast along it. */
static core_tensor *half(core__scope *scope, core_tensor *x, int64_t dim,
                         int64_t size, int which)
{
    if (size_at(x, dim) != size)
        return x;
    return CORE__DO(scope, core_narrow, x, dim, which ? size / 2 : 0,
                    which ? size - size / 2 : size / 2);
}

/* The rows of b of that half of the distances. */
static core_tensor *right_half(core__scope *scope, core_tensor *b, int64_t dim,
                               int64_t size, int which)
{
    return dim == -2 ? b : half(scope, b, dim, size, which);
}

/* The norm along the last dimension; of nothing it is 0 for every order. */
static core_tensor *distances(core__scope *scope, core_tensor *d, double p)
{
    const int64_t last = -1;

    if (scope->status == CORE_OK && d->sizes[d->ndim - 1] == 0)
        p = 2;
    return CORE__DO(scope, core_linalg_vector_norm, d, core_float(p), &last, 1,
                    false, CORE_DTYPE_NONE);
}

/* Rows of -2 x, |x|^2 and 1 for the left operand; of x, 1 and |x|^2 for the
 * right one. */
static core_tensor *with_squares(core__scope *scope, core_tensor *x, bool left)
{
    const int64_t last = -1;
    core_tensor *parts[3];

    parts[left ? 1 : 2] =
        core__x_sum_dim(scope, core__x_mul(scope, x, x), &last, 1, true);
    parts[left ? 2 : 1] = CORE__DO(scope, core_ones_like, parts[left ? 1 : 2],
                                   CORE_DTYPE_NONE, NULL, -1);
    parts[0] = left ? core__x_mul_scalar(scope, x, -2) : x;
    return CORE__DO(scope, core_cat, parts, 3, -1);
}

/* |a - b|^2 = |a|^2 + |b|^2 - 2 a b as one product, as ATen computes it: no
 * difference is kept.  Where it rounds to 0 or below, the distance is 0, and has
 * no gradient.  16-bit rows are computed in f32: the squares leave the range of
 * f16, and a difference of them rounded to 16 bits has none of the digits of a
 * distance. */
static core_tensor *distances_by_product(core__scope *scope, core_tensor *a,
                                         core_tensor *b)
{
    core_dtype dtype = core__dtype_promote(a->dtype, b->dtype);
    core_dtype wide = dtype == CORE_F64 ? CORE_F64 : CORE_F32;
    core_tensor *y, *none;

    a = with_squares(scope, core__x_cast(scope, a, wide), true);
    b = with_squares(scope, core__x_cast(scope, b, wide), false);
    y = core__x_matmul(scope, a, core__x_adjoint(scope, b));
    none = CORE__DO(scope, core_le_scalar, y, core_int(0));
    y = CORE__DO(scope, core_masked_fill, y, none, core_int(1));
    y = core__x_zero_where(scope, CORE__DO(scope, core_sqrt, y), none);
    return core__x_cast(scope, y, dtype);
}

static core_status check_compute_mode(const core_call *call, int64_t mode)
{
    if (mode >= 0 && mode <= 2)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                          "compute_mode is %lld; it must be 0, 1 or 2",
                          (long long)mode);
}

/* Mode 0 computes by a product if a or b has more than 25 rows, mode 1 always,
 * mode 2 never.  Only p = 2 has a product. */
static bool uses_product(const core_tensor *a, const core_tensor *b, double p,
                         int64_t mode)
{
    enum { ROWS = 25 };

    if (p != 2 || a->sizes[a->ndim - 1] == 0 ||
        !core__dtype_is_floating(a->dtype) ||
        !core__dtype_is_floating(b->dtype))
        return false;
    return mode == 1 || (mode == 0 && (a->sizes[a->ndim - 2] > ROWS ||
                                       b->sizes[b->ndim - 2] > ROWS));
}

static core_status check_rows(const core_call *call, const core_tensor *a,
                              const core_tensor *b, double p, int64_t mode)
{
    if (!(p >= 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "p is %g; it must be 0 or more", p);
    CORE_TRY(check_compute_mode(call, mode));
    if (a->ndim < 2 || b->ndim < 2 ||
        a->sizes[a->ndim - 1] != b->sizes[b->ndim - 1])
        return core__op_shapes_error(
            call->op, "x1", a, "x2", b,
            "both must have at least 2 dimensions, the last "
            "ones of the same size");
    return CORE_OK;
}

static core_tensor *row_differences(core__scope *scope, core_tensor *a,
                                    core_tensor *b)
{
    return core__x_sub(scope, core__x_unsqueeze(scope, a, -2),
                       core__x_unsqueeze(scope, b, -3));
}

/* Without a product. */
static core_tensor *distances_by_halves(core__scope *scope, core_tensor *a,
                                        core_tensor *b, double p)
{
    static const int64_t never = 2;
    core_tensor *d[2];
    int64_t size, dim = divided(a, b, &size);

    if (dim == 0) {
        d[0] = row_differences(scope, a, b);
        return distances(scope, d[0], p);
    }
    for (int i = 0; i < 2; i++)
        d[i] = CORE__DO(scope, core_cdist_forward, half(scope, a, dim, size, i),
                        right_half(scope, b, dim, size, i), p, &never);
    return CORE__DO(scope, core_cat, d, 2, dim);
}

/* _cdist_forward(x1 [..., p, m], x2 [..., r, m], p, compute_mode) ->
 * [..., p, r] */
CORE__COMPOSITE(cdist_forward)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *b = args[1].u.tensor;
    double p = core__double_of(&args[2]);
    int64_t mode = core__arg_int(args, 3, 0);

    CORE_TRY(check_rows(call, a, b, p, mode));
    return core__scope_result(scope,
                              uses_product(a, b, p, mode)
                                  ? distances_by_product(scope, a, b)
                                  : distances_by_halves(scope, a, b, p),
                              &results[0]);
}

/* cdist(x1, x2, p, compute_mode): a product has the gradients of its operators,
 * which are products, too */
CORE__COMPOSITE(cdist)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *b = args[1].u.tensor;
    double p = args[2].tag == CORE_VALUE_NONE ? 2 : core__double_of(&args[2]);
    int64_t mode = core__arg_int(args, 3, 0);

    CORE_TRY(check_rows(call, a, b, p, mode));
    return core__scope_result(
        scope,
        uses_product(a, b, p, mode)
            ? distances_by_product(scope, a, b)
            : CORE__DO(scope, core_cdist_forward, a, b, p, &mode),
        &results[0]);
}

/* The differences of rows i and j, for all i < j. */
static core_tensor *pair_differences(core__scope *scope, core_tensor *self,
                                     core_tensor *rows[2])
{
    int64_t n = self->sizes[0];
    core_tensor *pairs =
        CORE__DO(scope, core_triu_indices, n, n, 1, CORE_I64, self->device);
    core_tensor *x[2];

    for (int k = 0; k < 2; k++) {
        rows[k] = CORE__DO(scope, core_select, pairs, 0, k);
        x[k] = CORE__DO(scope, core_index_select, self, 0, rows[k]);
    }
    return core__x_sub(scope, x[0], x[1]);
}

CORE__COMPOSITE(pdist_forward)
{
    core_tensor *self = args[0].u.tensor, *rows[2];

    if (self->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self must have 2 dimensions, not %u",
                              self->ndim);
    return core__scope_result(scope,
                              distances(scope,
                                        pair_differences(scope, self, rows),
                                        core__double_of(&args[1])),
                              &results[0]);
}

/* ------------------------------------------- gradients of distances -- */

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

/* Of a, for the distances of a and b. */
static core_tensor *row_gradient(core__scope *scope, core_tensor *grad,
                                 core_tensor *a, core_tensor *b, double p,
                                 core_tensor *distance)
{
    core_tensor *x[2];
    int64_t size, dim = divided(a, b, &size);

    if (dim == 0) {
        x[0] = row_differences(scope, a, b);
        x[0] = norm_slope(scope, x[0], core__x_unsqueeze(scope, distance, -1),
                          core__x_unsqueeze(scope, grad, -1), p);
        return core__x_sum_dim(scope, x[0], (const int64_t[]){-2}, 1, false);
    }
    for (int i = 0; i < 2; i++)
        x[i] = CORE__DO(
            scope, core_cdist_backward, half(scope, grad, dim, size, i),
            half(scope, a, dim, size, i), right_half(scope, b, dim, size, i), p,
            half(scope, distance, dim, size, i));
    return CORE__DO(scope, core_cat, x, 2, dim);
}

/* _cdist_backward(grad_output, x1, x2, p, cdist): the gradient of x1 */
CORE__COMPOSITE(cdist_backward)
{
    core_tensor *a = args[1].u.tensor, *b = args[2].u.tensor;
    double p = core__double_of(&args[3]);

    if (a->ndim < 2 || b->ndim < 2 || args[0].u.tensor->ndim < 2 || !(p >= 0))
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "x1 and x2 have %u and %u dimensions and p is "
                              "%g; they must have at least 2, and p be 0 or "
                              "more",
                              a->ndim, b->ndim, p);
    return core__scope_result(
        scope, row_gradient(scope, args[0].u.tensor, a, b, p, args[4].u.tensor),
        &results[0]);
}

/* _pdist_backward(grad_output, self, p, pdist): pairs i < j in row order */
CORE__COMPOSITE(pdist_backward)
{
    core_tensor *self = args[1].u.tensor;
    double p = core__double_of(&args[2]);
    core_tensor *rows[2], *x, *out;

    if (self->ndim != 2 || !(p >= 0))
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self has %u dimensions and p is %g; self must "
                              "have 2, and p be 0 or more",
                              self->ndim, p);
    x = pair_differences(scope, self, rows);
    x = norm_slope(scope, x, core__x_unsqueeze(scope, args[3].u.tensor, -1),
                   core__x_unsqueeze(scope, args[0].u.tensor, -1), p);
    out = core__x_new_zeros(scope, x, self->sizes, 2);
    out = CORE__DO(scope, core_index_add, out, 0, rows[0], x, core_int(1));
    out = CORE__DO(scope, core_index_add, out, 0, rows[1], x, core_int(-1));
    return core__scope_result(scope, out, &results[0]);
}
