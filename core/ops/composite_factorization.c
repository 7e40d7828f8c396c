/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Linear systems and matrix factors, composed of factorizations and triangular
 * solves. */

#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <string.h>

static core_status check_matrices(const core_operator *op, const char *name,
                                  const core_tensor *x, bool square)
{
    char text[256];

    if (!core__dtype_is_floating(x->dtype))
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "%s must have a floating dtype, not %s", name,
                              core__dtype_name(x->dtype));
    if (x->ndim >= 2 &&
        (!square || x->sizes[x->ndim - 1] == x->sizes[x->ndim - 2]))
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op,
        "%s has sizes %s; it must be a %smatrix or a batch of them", name,
        core__sizes_text(x->ndim, x->sizes, text, sizeof text),
        square ? "square " : "");
}

/* -------------------------------------------------------------- Cholesky -- */

/* cholesky_solve(self, input2, upper): X with A X = self, where input2 is the
 * factor of A */
CORE__COMPOSITE(cholesky_solve)
{
    core_tensor *x = args[0].u.tensor;
    core_tensor *factor = args[1].u.tensor;
    core_tensor *other;
    bool upper = core__arg_bool(args, 2, false);

    CORE_TRY(check_matrices(call->op, "self", x, false));
    CORE_TRY(check_matrices(call->op, "input2", factor, true));
    CORE_TRY(core__dtypes_check_equal(call->op, "self and input2", x, factor));
    other = core__x_adjoint(scope, factor);
    x = core__x_solve_triangular(scope, upper ? other : factor, x, false, true,
                                 false);
    x = core__x_solve_triangular(scope, upper ? factor : other, x, true, true,
                                 false);
    return core__scope_result(scope, x, &results[0]);
}

/* _cholesky_solve_helper(self, A, upper): cholesky_solve */
CORE__COMPOSITE(cholesky_solve_helper)
{
    return core__scope_result(scope,
                              CORE__DO(scope, core_cholesky_solve,
                                       args[0].u.tensor, args[1].u.tensor,
                                       core__arg_bool(args, 2, false)),
                              &results[0]);
}

CORE__COMPOSITE(cholesky_inverse)
{
    core_tensor *factor = args[0].u.tensor;
    core_tensor *x;

    CORE_TRY(check_matrices(call->op, "self", factor, true));
    x = CORE__DO(scope, core_eye, factor->sizes[factor->ndim - 1],
                 factor->dtype, factor->device);
    x = CORE__DO(scope, core_expand, x, factor->sizes, factor->ndim, false);
    x = CORE__DO(scope, core_cholesky_solve, x, factor,
                 core__arg_bool(args, 1, false));
    return core__scope_result(scope, x, &results[0]);
}

/* -------------------------------------------------------------------- LU -- */

typedef struct factors {
    core_tensor *p, *l, *u;
} factors;

/* Extracts L and U from the packed matrix of a factorization. */
static void unpack(core__scope *s, core_tensor *lu, factors *out)
{
    int64_t m = lu->sizes[lu->ndim - 2];
    int64_t n = lu->sizes[lu->ndim - 1];
    int64_t k = m < n ? m : n;
    core_tensor *ones = CORE__DO(s, core_eye_m, m, k, lu->dtype, lu->device);

    out->l = CORE__DO(s, core_tril, core__x_slice(s, lu, -1, 0, k), -1);
    out->l = core__x_add(s, out->l, ones);
    out->u = CORE__DO(s, core_triu, core__x_slice(s, lu, -2, 0, k), 0);
}

static core_tensor *nothing(core__scope *s, core_tensor *like)
{
    return core__x_new_zeros(s, like, (const int64_t[]){0}, 1);
}

static core_status store_results(core__scope *s, const factors *f,
                                 core_value *results)
{
    CORE_TRY(core__scope_result(s, f->p, &results[0]));
    CORE_TRY(core__scope_result(s, f->l, &results[1]));
    return core__scope_result(s, f->u, &results[2]);
}

static core_status check_factors(const core_operator *op, const core_tensor *lu,
                                 const core_tensor *pivots)
{
    int64_t wanted[CORE_MAX_NDIM];
    int64_t m;
    int64_t n;

    if (lu->ndim < 2)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "LU has %u dimensions; it must be a matrix or a batch of them",
            lu->ndim);
    m = lu->sizes[lu->ndim - 2];
    n = lu->sizes[lu->ndim - 1];
    memcpy(wanted, lu->sizes, lu->ndim * sizeof *wanted);
    wanted[lu->ndim - 2] = m < n ? m : n;
    if (pivots->dtype != CORE_I32)
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "pivots must be i32, not %s",
                              core__dtype_name(pivots->dtype));
    return core__sizes_check_equal(op, "pivots", pivots, lu->ndim - 1, wanted);
}

/* lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots) -> (P, L, U) */
CORE__COMPOSITE(lu_unpack)
{
    core_tensor *lu = args[0].u.tensor;
    factors f;

    CORE_TRY(check_factors(call->op, lu, args[1].u.tensor));
    f.p = f.l = f.u = nothing(scope, lu);
    if (core__arg_bool(args, 2, true))
        unpack(scope, lu, &f);
    if (core__arg_bool(args, 3, true))
        f.p = CORE__DO(scope, core_lu_permutation, args[1].u.tensor,
                       lu->sizes[lu->ndim - 2], lu->dtype);
    return store_results(scope, &f, results);
}

/* linalg_lu(A, *, pivot) -> (P, L, U) */
CORE__COMPOSITE(linalg_lu)
{
    bool pivot = core__arg_bool(args, 1, true);
    core_tensor *lu = NULL;
    core_tensor *pivots = NULL;
    core_tensor *info = NULL;
    core_status status = core_linalg_lu_factor_ex(args[0].u.tensor, pivot,
                                                  false, &lu, &pivots, &info);
    factors f;

    if (status == CORE_OK) {
        unpack(scope, lu, &f);
        f.p = !pivot ? nothing(scope, lu)
                     : CORE__DO(scope, core_lu_permutation, pivots,
                                lu->sizes[lu->ndim - 2], lu->dtype);
        status = store_results(scope, &f, results);
    }
    core_tensor_release(lu);
    core_tensor_release(pivots);
    core_tensor_release(info);
    return status;
}

/* linalg_lu_solve(LU, pivots, B, *, left, adjoint): X with A X = B, or X A =
 * B, which is Aᵀ Xᵀ = Bᵀ */
CORE__COMPOSITE(linalg_lu_solve)
{
    core_tensor *lu = args[0].u.tensor;
    core_tensor *x = args[2].u.tensor;
    bool left = core__arg_bool(args, 3, true);
    bool turned = core__arg_bool(args, 4, false) == left;
    factors f;

    CORE_TRY(check_matrices(call->op, "LU", lu, true));
    CORE_TRY(check_matrices(call->op, "B", x, false));
    CORE_TRY(core__dtypes_check_equal(call->op, "LU and B", lu, x));
    CORE_TRY(check_factors(call->op, lu, args[1].u.tensor));
    unpack(scope, lu, &f);
    f.p = CORE__DO(scope, core_lu_permutation, args[1].u.tensor,
                   lu->sizes[lu->ndim - 2], lu->dtype);
    if (!left)
        x = core__x_adjoint(scope, x);
    if (turned) {
        x = core__x_solve_triangular(scope, core__x_adjoint(scope, f.u), x,
                                     false, true, false);
        x = core__x_solve_triangular(scope, core__x_adjoint(scope, f.l), x,
                                     true, true, true);
        x = core__x_matmul(scope, f.p, x);
    } else {
        x = core__x_matmul(scope, core__x_adjoint(scope, f.p), x);
        x = core__x_solve_triangular(scope, f.l, x, false, true, true);
        x = core__x_solve_triangular(scope, f.u, x, true, true, false);
    }
    if (!left)
        x = core__x_adjoint(scope, x);
    return core__scope_result(scope, x, &results[0]);
}

/* B is a vector, or a batch of them, if it has the sizes of A without those of
 * its last dimension. */
static bool is_vector(const core_tensor *a, const core_tensor *b)
{
    return b->ndim == 1 ||
           (b->ndim + 1u == a->ndim &&
            memcmp(b->sizes, a->sizes, b->ndim * sizeof *b->sizes) == 0);
}

/* _linalg_solve_ex(A, B, *, left, check_errors) -> (result, LU, pivots, info):
 * X with A X = B, or X A = B if not left */
CORE__COMPOSITE(linalg_solve_ex)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *b = args[1].u.tensor;
    bool left = core__arg_bool(args, 2, true);
    core_tensor *lu = NULL, *pivots = NULL, *info = NULL, *x;
    bool vector;

    CORE_TRY(check_matrices(call->op, "A", a, true));
    CORE_TRY(core__dtypes_check_equal(call->op, "A and B", a, b));
    vector = is_vector(a, b);
    if (vector && !left)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "left is false and B a vector, which cannot be "
                              "solved from the right");
    CORE__RUN(scope,
              core_linalg_lu_factor_ex(a, true, core__arg_bool(args, 3, false),
                                       &lu, &pivots, &info));
    core__scope_keep(scope, lu);
    core__scope_keep(scope, pivots);
    core__scope_keep(scope, info);
    x = vector ? core__x_unsqueeze(scope, b, -1) : b;
    x = CORE__DO(scope, core_linalg_lu_solve, lu, pivots, x, left, false);
    if (vector)
        x = CORE__DO(scope, core_squeeze_dim, x, -1);
    CORE_TRY(core__scope_result(scope, x, &results[0]));
    CORE_TRY(core__scope_result(scope, core__x_detach(scope, lu), &results[1]));
    CORE_TRY(core__scope_result(scope, pivots, &results[2]));
    return core__scope_result(scope, info, &results[3]);
}

/* triangular_solve(self, A, upper, transpose, unitriangular) -> (solution,
 * cloned_coefficient): batches broadcast */
CORE__COMPOSITE(triangular_solve)
{
    core_tensor *b = args[0].u.tensor;
    core_tensor *a = args[1].u.tensor;
    bool upper = core__arg_bool(args, 2, true);
    bool turned = core__arg_bool(args, 3, false);
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim;
    core_tensor *copy;

    CORE_TRY(check_matrices(call->op, "self", b, false));
    CORE_TRY(check_matrices(call->op, "A", a, true));
    CORE_TRY(core__dtypes_check_equal(call->op, "self and A", b, a));
    CORE_TRY(core__sizes_broadcast(call->op, a->ndim - 2, a->sizes, b->ndim - 2,
                                   b->sizes, &ndim, sizes));
    memcpy(sizes + ndim, a->sizes + a->ndim - 2, 2 * sizeof *sizes);
    copy = CORE__DO(scope, core_expand, a, sizes, ndim + 2, false);
    copy = CORE__DO(scope, core_clone, copy, CORE_FORMAT_CONTIGUOUS);
    if (turned)
        a = core__x_adjoint(scope, a);
    b = core__x_solve_triangular(scope, a, b, upper != turned, true,
                                 core__arg_bool(args, 4, false));
    CORE_TRY(core__scope_result(scope, b, &results[0]));
    return core__scope_result(scope, copy, &results[1]);
}

/* linalg_ldl_solve(LD, pivots, B, *, hermitian): batches broadcast; the kernel
 * receives them expanded. */
CORE__COMPOSITE(linalg_ldl_solve)
{
    core_tensor *ld = args[0].u.tensor;
    core_tensor *pivots = args[1].u.tensor;
    core_tensor *b = args[2].u.tensor;
    int64_t sizes[CORE_MAX_NDIM];
    int64_t rows;
    uint32_t ndim;

    CORE_TRY(check_matrices(call->op, "LD", ld, true));
    CORE_TRY(check_matrices(call->op, "B", b, false));
    CORE_TRY(check_factors(call->op, ld, pivots));
    CORE_TRY(core__sizes_broadcast(call->op, ld->ndim - 2, ld->sizes,
                                   b->ndim - 2, b->sizes, &ndim, sizes));
    rows = ld->sizes[ld->ndim - 1];
    sizes[ndim] = rows;
    pivots = CORE__DO(scope, core_expand, pivots, sizes, ndim + 1, false);
    sizes[ndim + 1] = rows;
    ld = CORE__DO(scope, core_expand, ld, sizes, ndim + 2, false);
    memcpy(sizes + ndim, b->sizes + b->ndim - 2, 2 * sizeof *sizes);
    b = CORE__DO(scope, core_expand, b, sizes, ndim + 2, false);
    b = CORE__DO(scope, core_ldl_solve_same, ld, pivots, b,
                 core__arg_bool(args, 3, false));
    return core__scope_result(scope, b, &results[0]);
}

/* ---------------------------------------------------------------- spectra -- */

/* x with column k times scales[k] */
static core_tensor *scaled_columns(core__scope *s, core_tensor *x,
                                   core_tensor *scales)
{
    return core__x_mul(s, x, core__x_unsqueeze(s, scales, -2));
}

/* linalg_matrix_sqrth(self): X with X X = self, of which the lower triangle is
 * read.  Negative eigenvalues count as 0. */
CORE__COMPOSITE(linalg_matrix_sqrth)
{
    core_tensor *values = NULL, *vectors = NULL, *x;

    CORE_TRY(check_matrices(call->op, "self", args[0].u.tensor, true));
    CORE__RUN(scope, core_linalg_eigh_parts(args[0].u.tensor, "L", true,
                                            &values, &vectors));
    values = core__scope_keep(scope, values);
    vectors = core__scope_keep(scope, vectors);
    values = CORE__DO(scope, core_clamp_min, values, core_int(0));
    x = scaled_columns(scope, vectors, core__x_sqrt(scope, values));
    x = core__x_matmul(scope, x, core__x_adjoint(scope, vectors));
    return core__scope_result(scope, x, &results[0]);
}

/* linalg_polar(A) -> (U, H): A = W S V' is U H with U = W V' and H = V S V'. */
CORE__COMPOSITE(linalg_polar)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *w = NULL, *values = NULL, *vh = NULL, *x;
    uint32_t n = a->ndim;

    CORE_TRY(check_matrices(call->op, "A", a, false));
    if (a->sizes[n - 2] < a->sizes[n - 1])
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "A has %lld rows and %lld columns; it must not "
                              "have more columns than rows",
                              (long long)a->sizes[n - 2],
                              (long long)a->sizes[n - 1]);
    CORE__RUN(scope,
              core_linalg_svd_parts(a, false, true, NULL, &w, &values, &vh));
    w = core__scope_keep(scope, w);
    values = core__scope_keep(scope, values);
    vh = core__scope_keep(scope, vh);
    CORE_TRY(
        core__scope_result(scope, core__x_matmul(scope, w, vh), &results[0]));
    x = scaled_columns(scope, core__x_adjoint(scope, vh), values);
    return core__scope_result(scope, core__x_matmul(scope, x, vh), &results[1]);
}

/* ------------------------------------------------------------ reflections -- */

/* Applies reflection k to x or its rows: x - tau v (vᵀ x), or x - tau (x v) vᵀ.
 * Releases its reference to x. */
static core_status reflect(core_tensor *v, core_tensor *tau, int64_t k,
                           bool left, core_tensor **x)
{
    core_tensor *to = *x;
    core_tensor *factor;
    core_tensor *product;
    core__scope s;

    core__scope_begin(&s);
    v = core__x_slice(&s, v, -1, k, k + 1);
    factor = core__x_unsqueeze(&s, core__x_slice(&s, tau, -1, k, k + 1), -1);
    product = left ? core__x_matmul(
                         &s, v, core__x_matmul(&s, core__x_adjoint(&s, v), to))
                   : core__x_matmul(&s, core__x_matmul(&s, to, v),
                                    core__x_adjoint(&s, v));
    product = core__x_sub(&s, to, core__x_mul(&s, factor, product));
    *x = NULL;
    CORE_TRY(core__scope_finish(&s, product, x));
    return CORE_OK;
}

/* H(0) H(1) … times x, or x times the product; backwards: in reverse order. */
static core_status reflect_all(core__scope *scope, core_tensor *input,
                               core_tensor *tau, core_tensor *x, bool left,
                               bool backwards, core_tensor **out)
{
    int64_t n = tau->sizes[tau->ndim - 1];
    int64_t m = input->sizes[input->ndim - 2];
    core_tensor *v =
        CORE__DO(scope, core_tril, core__x_slice(scope, input, -1, 0, n), -1);
    core_status status;

    v = core__x_add(
        scope, v,
        CORE__DO(scope, core_eye_m, m, n, input->dtype, input->device));
    *out = NULL;
    if (scope->status != CORE_OK)
        return scope->status;
    status = CORE_OK;
    core__tensor_retain(x);
    for (int64_t i = 0; status == CORE_OK && i < n; i++) {
        core_tensor *next = x;

        status =
            reflect(v, tau, left != backwards ? n - 1 - i : i, left, &next);
        core__tensor_release(x);
        x = next;
    }
    *out = x;
    return status;
}

static core_status check_reflections(const core_operator *op,
                                     const core_tensor *input,
                                     const core_tensor *tau)
{
    uint32_t n = input->ndim;

    CORE_TRY(check_matrices(op, "the matrix of reflections", input, false));
    CORE_TRY(core__dtypes_check_equal(op, "the matrix of reflections and tau",
                                      input, tau));
    if (tau->ndim + 1u == n &&
        memcmp(tau->sizes, input->sizes, (n - 2) * sizeof(int64_t)) == 0 &&
        tau->sizes[n - 2] <= input->sizes[n - 1] &&
        tau->sizes[n - 2] <= input->sizes[n - 2])
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "tau must have one element for each reflection, at "
                          "most %lld, and the batch dimensions of the matrix",
                          (long long)(input->sizes[n - 1] < input->sizes[n - 2]
                                          ? input->sizes[n - 1]
                                          : input->sizes[n - 2]));
}

/* linalg_householder_product(input, tau): the first columns of the product */
CORE__COMPOSITE(linalg_householder_product)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *made;
    core_tensor *x;
    uint32_t n = input->ndim;

    CORE_TRY(check_reflections(call->op, input, args[1].u.tensor));
    if (input->sizes[n - 1] > input->sizes[n - 2])
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "input has %lld columns and %lld rows; it must "
                              "have at least as many rows as columns",
                              (long long)input->sizes[n - 1],
                              (long long)input->sizes[n - 2]);
    /* Of input's sizes; without reflections, input has a gradient of zeros. */
    x = core__x_zero_where(scope, input,
                           CORE__DO(scope, core_full, NULL, 0, core_bool(true),
                                    CORE_BOOL, input->device));
    x = core__x_add(scope, x,
                    CORE__DO(scope, core_eye_m, input->sizes[n - 2],
                             input->sizes[n - 1], input->dtype, input->device));
    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(
        reflect_all(scope, input, args[1].u.tensor, x, true, false, &made));
    core__result_tensor(&results[0], made);
    return CORE_OK;
}

/* ormqr(self, input2, input3, left, transpose): the product of the reflections
 * in self and input2, times input3, or input3 times it */
CORE__COMPOSITE(ormqr)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *x = args[2].u.tensor;
    bool left = core__arg_bool(args, 3, true);
    uint32_t n = input->ndim;
    core_tensor *made;

    CORE_TRY(check_reflections(call->op, input, args[1].u.tensor));
    CORE_TRY(check_matrices(call->op, "input3", x, false));
    CORE_TRY(core__dtypes_check_equal(call->op, "self and input3", input, x));
    if (x->ndim != n ||
        memcmp(x->sizes, input->sizes, (n - 2) * sizeof(int64_t)) != 0 ||
        x->sizes[left ? n - 2 : n - 1] != input->sizes[n - 2])
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "input3 must have %lld %s and the batch dimensions of self",
            (long long)input->sizes[n - 2], left ? "rows" : "columns");
    if (args[1].u.tensor->sizes[n - 2] == 0)
        x = CORE__DO(scope, core_clone, x, CORE_FORMAT_PRESERVE);
    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(reflect_all(scope, input, args[1].u.tensor, x, left,
                         core__arg_bool(args, 4, false), &made));
    core__result_tensor(&results[0], made);
    return CORE_OK;
}
