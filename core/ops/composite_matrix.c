/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Matrix products of any rank, and distances. */

#include "ops/expression.h"
#include "ops/shape.h"

#include <math.h>
#include <string.h>

/* -------------------------------------------------------------- matmul -- */

/* [..., n] or [..., m, n] reshaped to one matrix [rows, n]. */
static core_tensor *folded(core__scope *scope, core_tensor *x)
{
    int64_t n = x->sizes[x->ndim - 1];
    int64_t rows = 1;

    for (uint32_t i = 0; i + 1 < x->ndim; i++)
        rows *= x->sizes[i];
    return core__x_reshape(scope, x, (const int64_t[]){rows, n}, 2);
}

/* [..., m, k] times [k, n] or [k] */
static core_tensor *times_matrix(core__scope *scope, core_tensor *a,
                                 core_tensor *b)
{
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim = a->ndim - (b->ndim == 1);
    core_tensor *x = folded(scope, a);

    memcpy(sizes, a->sizes, ndim * sizeof *sizes);
    if (b->ndim == 2) {
        sizes[ndim - 1] = b->sizes[1];
        x = core__x_mm(scope, x, b);
    } else {
        x = CORE__DO(scope, core_mv, x, b);
    }
    return core__x_reshape(scope, x, sizes, ndim);
}

/* x broadcast to `batch` and its own last two dimensions, reshaped to [n, r,
 * c]. */
static core_tensor *batched(core__scope *scope, core_tensor *x,
                            uint32_t batch_ndim, const int64_t *batch,
                            int64_t n)
{
    int64_t sizes[CORE_MAX_NDIM];
    int64_t rows = x->sizes[x->ndim - 2];
    int64_t columns = x->sizes[x->ndim - 1];

    memcpy(sizes, batch, batch_ndim * sizeof *sizes);
    sizes[batch_ndim] = rows;
    sizes[batch_ndim + 1] = columns;
    x = CORE__DO(scope, core_expand, x, sizes, batch_ndim + 2, false);
    return core__x_reshape(scope, x, (const int64_t[]){n, rows, columns}, 3);
}

static core_status __attribute__((cold))
batches_differ(const core_operator *op, const core_tensor *a,
               const core_tensor *b)
{
    return core__op_shapes_error(op, "the left operand", a, "the right operand",
                                 b, "the batch dimensions do not broadcast");
}

static core_status batches(core__scope *scope, const core_operator *op,
                           core_tensor *a, core_tensor *b, core_tensor **out)
{
    core_tensor *x = a;
    core_tensor *y = b;
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim;
    int64_t n;

    if (a->ndim == 1)
        x = core__x_unsqueeze(scope, a, 0);
    if (b->ndim == 1)
        y = core__x_unsqueeze(scope, b, 1);
    if (scope->status != CORE_OK)
        return scope->status;
    if (core__sizes_broadcast(op, x->ndim - 2, x->sizes, y->ndim - 2, y->sizes,
                              &ndim, sizes) != CORE_OK)
        return batches_differ(op, a, b);
    CORE_TRY(core__sizes_numel(ndim, sizes, &n));
    sizes[ndim] = x->sizes[x->ndim - 2];
    sizes[ndim + 1] = y->sizes[y->ndim - 1];
    x = batched(scope, x, ndim, sizes, n);
    sizes[ndim] = a->ndim == 1 ? 1 : a->sizes[a->ndim - 2];
    y = batched(scope, y, ndim, sizes, n);
    x = core__x_bmm(scope, x, y);
    if (a->ndim > 1)
        sizes[ndim++] = a->sizes[a->ndim - 2];
    if (b->ndim > 1)
        sizes[ndim++] = b->sizes[b->ndim - 1];
    *out = core__x_reshape(scope, x, sizes, ndim);
    return scope->status;
}

static core_status product(core__scope *scope, const core_operator *op,
                           core_tensor *a, core_tensor *b, core_tensor **out)
{
    int64_t inner_a;
    int64_t inner_b;
    char text_a[256];
    char text_b[256];

    if (scope->status != CORE_OK)
        return scope->status;
    if (a->ndim == 0 || b->ndim == 0)
        return core__op_shapes_error(op, "the left operand", a,
                                     "the right operand", b,
                                     "both must have at least 1 dimension");
    inner_a = a->sizes[a->ndim - 1];
    inner_b = b->sizes[b->ndim - (b->ndim > 1 ? 2 : 1)];
    if (inner_a != inner_b)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "sizes %s and %s cannot be multiplied: %lld is not %lld",
            core__sizes_text(a->ndim, a->sizes, text_a, sizeof text_a),
            core__sizes_text(b->ndim, b->sizes, text_b, sizeof text_b),
            (long long)inner_a, (long long)inner_b);
    if (a->ndim == 1 && b->ndim == 1)
        *out = CORE__DO(scope, core_dot, a, b);
    else if (a->ndim == 2 && b->ndim == 2)
        *out = core__x_mm(scope, a, b);
    else if (a->ndim == 2 && b->ndim == 1)
        *out = CORE__DO(scope, core_mv, a, b);
    else if (a->ndim == 1 && b->ndim == 2)
        *out = CORE__DO(scope, core_mv, core__x_t(scope, b), a);
    else if (a->ndim > 2 && b->ndim <= 2)
        *out = times_matrix(scope, a, b);
    else
        return batches(scope, op, a, b, out);
    return scope->status;
}

CORE__COMPOSITE(matmul)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *b = args[1].u.tensor;
    core_tensor *out = NULL;

    CORE_TRY(core__dtypes_check_equal(call->op, "self and other", a, b));
    CORE_TRY(product(scope, call->op, a, b, &out));
    return core__scope_result(scope, out, &results[0]);
}

static core_status check_linear(const core_operator *op,
                                const core_tensor *input,
                                const core_tensor *weight,
                                const core_tensor *bias)
{
    if (weight->ndim > 2 || weight->ndim == 0 || input->ndim == 0)
        return core__op_shapes_error(
            op, "input", input, "weight", weight,
            "input must have 1 or more dimensions, and weight 2, [out, in], or "
            "1, [in]");
    if (input->sizes[input->ndim - 1] != weight->sizes[weight->ndim - 1])
        return core__op_shapes_error(
            op, "input", input, "weight", weight,
            "the last dimensions must have the same size");
    if (bias && weight->ndim == 2 && bias->ndim >= 1 &&
        bias->sizes[bias->ndim - 1] != 1 &&
        bias->sizes[bias->ndim - 1] != weight->sizes[0])
        return core__op_shapes_error(
            op, "weight", weight, "bias", bias,
            "bias must have %lld elements in its last dimension",
            (long long)weight->sizes[0]);
    if (input->dtype != weight->dtype)
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "input is %s and weight %s; they must have the "
                              "same dtype",
                              core__dtype_name(input->dtype),
                              core__dtype_name(weight->dtype));
    return CORE_OK;
}

CORE__COMPOSITE(linear)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *weight = args[1].u.tensor;
    core_tensor *bias = core__tensor_of(&args[2]);
    core_tensor *out = NULL;

    CORE_TRY(check_linear(call->op, input, weight, bias));
    if (bias && bias->ndim == 1 && input->ndim == 2 && weight->ndim == 2)
        return core__scope_result(scope,
                                  CORE__DO(scope, core_addmm, bias, input,
                                           core__x_t(scope, weight),
                                           core_int(1), core_int(1)),
                                  &results[0]);
    CORE_TRY(product(scope, call->op, input, core__x_t(scope, weight), &out));
    if (bias)
        out = core__x_add(scope, out, bias);
    return core__scope_result(scope, out, &results[0]);
}

CORE__COMPOSITE(outer)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *b = args[1].u.tensor;

    if (a->ndim != 1 || b->ndim != 1)
        return core__op_shapes_error(call->op, "self", a, "vec2", b,
                                     "both must have 1 dimension");
    return core__scope_result(
        scope, core__x_mul(scope, core__x_unsqueeze(scope, a, 1), b),
        &results[0]);
}

/* ----------------------------------------------------------- distances -- */

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

/* _cdist_forward(x1 [..., p, m], x2 [..., r, m], p, compute_mode) ->
 * [..., p, r] */
CORE__COMPOSITE(cdist_forward)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *b = args[1].u.tensor;
    double p = core__double_of(&args[2]);
    int64_t mode = core__arg_int(args, 3, 0);
    core_tensor *d;

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
    if (uses_product(a, b, p, mode))
        return core__scope_result(scope, distances_by_product(scope, a, b),
                                  &results[0]);
    d = core__x_sub(scope, core__x_unsqueeze(scope, a, -2),
                    core__x_unsqueeze(scope, b, -3));
    return core__scope_result(scope, distances(scope, d, p), &results[0]);
}

/* cdist(x1, x2, p, compute_mode) */
CORE__COMPOSITE(cdist)
{
    int64_t mode = core__arg_int(args, 3, 0);

    CORE_TRY(check_compute_mode(call, mode));
    return core__scope_result(
        scope,
        CORE__DO(scope, core_cdist_forward, args[0].u.tensor, args[1].u.tensor,
                 args[2].tag == CORE_VALUE_NONE ? 2 : core__double_of(&args[2]),
                 &mode),
        &results[0]);
}

/* The distances of rows i and j, for all i < j. */
CORE__COMPOSITE(pdist_forward)
{
    core_tensor *self = args[0].u.tensor;
    int64_t n;
    core_tensor *pairs;
    core_tensor *d;

    if (self->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self must have 2 dimensions, not %u",
                              self->ndim);
    n = self->sizes[0];
    pairs = CORE__DO(scope, core_triu_indices, n, n, 1, CORE_I64, self->device);
    d = core__x_sub(scope,
                    CORE__DO(scope, core_index_select, self, 0,
                             CORE__DO(scope, core_select, pairs, 0, 0)),
                    CORE__DO(scope, core_index_select, self, 0,
                             CORE__DO(scope, core_select, pairs, 0, 1)));
    return core__scope_result(
        scope, distances(scope, d, core__double_of(&args[1])), &results[0]);
}

CORE__COMPOSITE(linalg_cross)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *b = args[1].u.tensor;
    uint32_t ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t shift = 1;
    int64_t other = 2;
    int64_t dim;
    uint32_t wrapped;
    core_tensor *left;
    core_tensor *right;

    CORE_TRY(core__dim_wrap(call->op, args[2].u.i, ndim, &wrapped));
    dim = (int64_t)wrapped - ndim;
    if (core_tensor_size(a, dim) != 3 || core_tensor_size(b, dim) != 3)
        return core__op_shapes_error(call->op, "self", a, "other", b,
                                     "dimension %lld must have size 3",
                                     (long long)args[2].u.i);
    /* c[i] = a[i+1] b[i+2] - a[i+2] b[i+1] */
    left = core__x_mul(scope, CORE__DO(scope, core_roll, a, &other, 1, &dim, 1),
                       CORE__DO(scope, core_roll, b, &shift, 1, &dim, 1));
    right =
        core__x_mul(scope, CORE__DO(scope, core_roll, a, &shift, 1, &dim, 1),
                    CORE__DO(scope, core_roll, b, &other, 1, &dim, 1));
    return core__scope_result(scope, core__x_sub(scope, left, right),
                              &results[0]);
}

/* cross(self, other, dim): without dim, along the first dimension of size 3 */
CORE__COMPOSITE(cross)
{
    core_tensor *self = args[0].u.tensor;
    uint32_t first = 0;

    while (first < self->ndim && self->sizes[first] != 3)
        first++;
    if (args[2].tag == CORE_VALUE_NONE && first == self->ndim)
        return core__op_shapes_error(call->op, "self", self, "other",
                                     args[1].u.tensor,
                                     "self has no dimension of size 3");
    return core__scope_result(scope,
                              CORE__DO(scope, core_linalg_cross, self,
                                       args[1].u.tensor,
                                       core__arg_int(args, 2, first)),
                              &results[0]);
}

/* _addmm_activation(self, mat1, mat2, *, beta, alpha, use_gelu): relu or gelu of
 * addmm */
CORE__COMPOSITE(addmm_activation)
{
    core_tensor *x = CORE__DO(
        scope, core_addmm, args[0].u.tensor, args[1].u.tensor, args[2].u.tensor,
        core__arg_number(args, 3, 1), core__arg_number(args, 4, 1));

    x = core__arg_bool(args, 5, false) ? CORE__DO(scope, core_gelu, x, "none")
                                       : core__x_relu(scope, x);
    return core__scope_result(scope, x, &results[0]);
}

/* _int_mm(self, mat2): the product of i8 matrices in i32 */
CORE__COMPOSITE(int_mm)
{
    core_tensor *a = args[0].u.tensor, *b = args[1].u.tensor;

    if (a->dtype != CORE_I8 || b->dtype != CORE_I8)
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "self is %s and mat2 %s; both must be i8",
                              core__dtype_name(a->dtype),
                              core__dtype_name(b->dtype));
    a = core__x_cast(scope, a, CORE_I32);
    b = core__x_cast(scope, b, CORE_I32);
    return core__scope_result(scope, core__x_mm(scope, a, b), &results[0]);
}

/* _weight_int8pack_mm(self [m, k], mat2 [n, k] of i8, scales [n]) */
CORE__COMPOSITE(weight_int8pack_mm)
{
    core_tensor *self = args[0].u.tensor, *mat2 = args[1].u.tensor, *x;

    if (mat2->dtype != CORE_I8 || mat2->ndim != 2 ||
        !core__dtype_is_floating(self->dtype))
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "self is %s and mat2 %s with %u dimensions; self "
                              "must have a floating dtype, and mat2 be a "
                              "matrix of i8",
                              core__dtype_name(self->dtype),
                              core__dtype_name(mat2->dtype), mat2->ndim);
    CORE_TRY(core__sizes_check_equal(call->op, "scales", args[2].u.tensor, 1,
                                     mat2->sizes));
    x = core__x_t(scope, core__x_cast(scope, mat2, self->dtype));
    x = core__x_mul(scope, core__x_mm(scope, self, x), args[2].u.tensor);
    return core__scope_result(scope, core__x_cast(scope, x, self->dtype),
                              &results[0]);
}
