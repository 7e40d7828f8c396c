/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of determinants.
 *
 * A determinant is a polynomial, so all its derivatives exist at singular
 * matrices too, where det(A) A⁻' and its derivatives are 0 times infinity, and
 * near which they are mostly rounding error.  The first derivative is computed
 * from the LU factors and the second from singular values, both without
 * dividing by values that may be 0; the third is computed from the inverse
 * where that is accurate, and refused elsewhere. */

#include "autograd/formulas/formulas.h"

#include "ops/expression.h"
#include "tensor/batched.h"

#include <libcore/autograd.h>

/* One number per matrix, as a 1 x 1 matrix. */
static core_tensor *numbers(core__scope *s, core_tensor *x)
{
    return core__x_unsqueeze(s, core__x_unsqueeze(s, x, -1), -1);
}

static core_tensor *trace(core__scope *s, core_tensor *x)
{
    return numbers(s, core__x_sum_dim(s, core__x_diagonal(s, x),
                                      (int64_t[]){-1}, 1, false));
}

/* Replaces 0 with 1. */
static core_tensor *or_one(core__scope *s, core_tensor *x)
{
    return CORE__DO(s, core_masked_fill, x, core__x_eq_scalar(s, x, 0),
                    core_int(1));
}

/* -------------------------------------------------------------- cofactors -- */

/* 1, or -1 for an odd number of row exchanges */
static core_tensor *parity(core__scope *s, core_tensor *pivots,
                           core_dtype dtype)
{
    core_tensor *x = core__x_arange(s, pivots, pivots->sizes[pivots->ndim - 1]);

    x = core__x_ne(s, core__x_add_scalar(s, x, 1), pivots);
    x = core__x_add_scalar(
        s, core__x_mul_scalar(s, core__x_cast(s, x, dtype), -2), 1);
    return CORE__DO(s, core_prod_dim, x, -1, false, CORE_DTYPE_NONE);
}

/* det(A) A⁻', from factors whose pivots are not 0: a pivot of 0 is replaced by
 * one that is tiny compared to the others, by which the product is divided
 * again. */
static core_tensor *cofactors(core__scope *s, core_tensor *lu,
                              core_tensor *pivots)
{
    double eps = lu->dtype == CORE_F64 ? 0x1p-52 : 0x1p-23;
    int64_t n = lu->sizes[lu->ndim - 1], last[2] = {-2, -1};
    core_tensor *u = CORE__DO(s, core_triu, lu, 0);
    core_tensor *most =
        CORE__DO(s, core_amax, core__x_abs(s, u), last, 2, true);
    core_tensor *small = core__x_mul_scalar(s, most, eps);
    core_tensor *unit = CORE__DO(s, core_eye, n, lu->dtype, lu->device);
    core_tensor *zeros = core__x_cast(
        s, core__x_eq_scalar(s, core__x_diagonal(s, lu), 0), lu->dtype);
    core_tensor *det, *x;

    u = core__x_add(
        s, u, core__x_mul(s, core__x_diag_embed(s, zeros), or_one(s, small)));
    x = core__x_solve_triangular(s, core__x_adjoint(s, u), unit, false, true,
                                 false);
    det = CORE__DO(s, core_prod_dim, core__x_diagonal(s, u), -1, false,
                   CORE_DTYPE_NONE);
    det = core__x_mul(s, det, parity(s, pivots, lu->dtype));
    x = core__x_solve_triangular(s, core__x_adjoint(s, lu), x, true, true,
                                 true);
    x = core__x_matmul(
        s, CORE__DO(s, core_lu_permutation, pivots, n, lu->dtype), x);
    x = core__x_mul(s, numbers(s, det), x);
    /* Nothing is tiny compared to 0; minors of a matrix of zeros are 0. */
    return n > 1 ? core__x_zero_where(s, x, core__x_eq_scalar(s, most, 0)) : x;
}

static core_tensor *cofactors_of(core__scope *s, core_tensor *A)
{
    core_tensor *pivots = NULL, *info = NULL, *x = NULL;

    if (A->numel == 0)
        return core__x_zeros_like(s, A);
    if (s->status == CORE_OK)
        x = core__scope_add(s, core_linalg_lu_factor_ex(A, true, false,
                                                        &s->pending, &pivots,
                                                        &info));
    if (s->status == CORE_OK)
        x = cofactors(s, x, pivots);
    core_tensor_release(pivots);
    core_tensor_release(info);
    return x;
}

/* ------------------------------------------- derivative of the cofactors -- */

/* For values S on the diagonal: the products of all of them but two, indexed by
 * those two, and 0 on the diagonal.  Values that are 0 up to rounding are
 * replaced by tiny ones. */
static core_tensor *products_but_two(core__scope *s, core_tensor *S)
{
    double least = S && S->dtype == CORE_F64 ? 0x1p-60 : 0x1p-30;
    int64_t n = S ? S->sizes[S->ndim - 1] : 0;
    core_tensor *most = CORE__DO(s, core_amax, S, (int64_t[]){-1}, 1, true);
    core_tensor *r = core__x_div(s, S, or_one(s, most)), *x;

    r = CORE__DO(s, core_clamp_min, r, core_float(least));
    x = core__x_mul(s, core__x_unsqueeze(s, r, -1),
                    core__x_unsqueeze(s, r, -2));
    r = CORE__DO(s, core_prod_dim, r, -1, true, CORE_DTYPE_NONE);
    r = core__x_mul(s, r, core__x_pow_scalar(s, most, (double)(n - 2)));
    x = core__x_div(s, core__x_unsqueeze(s, r, -1), x);
    return core__x_sub(s, x, core__x_diag_embed(s, core__x_diagonal(s, x)));
}

/* 1 or -1: the determinant of an orthogonal matrix. */
static core_tensor *sign_of(core__scope *s, core_tensor *Q)
{
    core_tensor *LU = NULL, *pivots = NULL, *x = NULL;

    if (s->status == CORE_OK)
        x = core__scope_add(
            s, core_linalg_det_parts(Q, &s->pending, &LU, &pivots));
    core_tensor_release(LU);
    core_tensor_release(pivots);
    return numbers(s, core__x_sign(s, x));
}

/* With A = U S V', P the products of all but two and X = U' g V: det(U) det(V)
 * U (diag(P diag(X)) - P X') V', where P X' is element-wise. */
static core_tensor *second(core__scope *s, core_tensor *g, core_tensor *A)
{
    core_tensor *U = NULL, *S = NULL, *Vh = NULL, *P, *x, *y;

    if (A->numel == 0 || A->sizes[A->ndim - 1] == 1)
        return core__x_zeros_like(s, g);
    if (s->status == CORE_OK)
        U = core__scope_add(s, core_linalg_svd_parts(A, false, true, NULL,
                                                     &s->pending, &S, &Vh));
    P = products_but_two(s, S);
    x = core__x_matmul(s, core__x_matmul(s, core__x_adjoint(s, U), g),
                       core__x_adjoint(s, Vh));
    y = core__x_sum_dim(
        s, core__x_mul(s, P, core__x_unsqueeze(s, core__x_diagonal(s, x), -2)),
        (int64_t[]){-1}, 1, false);
    x = core__x_sub(s, core__x_diag_embed(s, y),
                    core__x_mul(s, P, core__x_adjoint(s, x)));
    x = core__x_matmul(s, core__x_matmul(s, U, x), Vh);
    x = core__x_mul(s, core__x_mul(s, sign_of(s, U), sign_of(s, Vh)), x);
    core_tensor_release(S);
    core_tensor_release(Vh);
    return x;
}

/* A⁻¹, differentiable */
static core_tensor *inverse_of(core__scope *s, core_tensor *A)
{
    core_tensor *info = NULL;
    core_tensor *x;

    if (s->status != CORE_OK)
        return NULL;
    x = core__scope_add(s, core_linalg_inv_ex(A, false, &s->pending, &info));
    core_tensor_release(info);
    return x;
}

/* The same from K = A⁻¹ and X = K g: det(A) (tr(X) K - X K)'. */
static core_tensor *second_by_inverse(core__scope *s, core_tensor *g,
                                      core_tensor *A)
{
    core_tensor *K = inverse_of(s, A), *X = core__x_matmul(s, K, g);
    core_tensor *LU = NULL, *pivots = NULL, *det = NULL, *x;

    if (s->status == CORE_OK)
        det = core__scope_add(
            s, core_linalg_det_parts(A, &s->pending, &LU, &pivots));
    core_tensor_release(LU);
    core_tensor_release(pivots);
    x = core__x_sub(s, core__x_mul(s, trace(s, X), K), core__x_matmul(s, X, K));
    return core__x_mul(s, numbers(s, det), core__x_adjoint(s, x));
}

/* x divided by the largest magnitude in each row, then in each column: the
 * scaling of rows and columns does not affect whether a matrix is singular. */
static core_tensor *balanced(core__scope *s, core_tensor *x)
{
    for (int64_t dim = -1; dim >= -2; dim--) {
        core_tensor *most =
            CORE__DO(s, core_amax, core__x_abs(s, x), &dim, 1, true);

        x = core__x_div(s, x, or_one(s, most));
    }
    return x;
}

/* Whether the inverse of A, and products of a few inverses, are accurate in
 * most of their digits. */
static bool is_regular(core__scope *s, core_tensor *A)
{
    double least = A->dtype == CORE_F64 ? 0x1p-13 : 0x1p-6;
    core_tensor *pivots = NULL, *info = NULL, *x;

    if (A->numel == 0 || core__tensor_is_on_meta(A))
        return true;
    x = balanced(s, core__x_detach(s, A));
    if (s->status == CORE_OK)
        x = core__scope_add(s, core_linalg_lu_factor_ex(x, true, false,
                                                        &s->pending, &pivots,
                                                        &info));
    core_tensor_release(pivots);
    core_tensor_release(info);
    x = core__x_abs(s, core__x_diagonal(s, x));
    x = core__x_lt(
        s, CORE__DO(s, core_amin, x, (int64_t[]){-1}, 1, false),
        core__x_mul_scalar(
            s, CORE__DO(s, core_amax, x, (int64_t[]){-1}, 1, false), least));
    return !core__read_any(s, x);
}

/* --------------------------------------------------------------- recording -- */

/* Records x as a function of the inputs, computed with grad mode off. */
static void recorded(core__scope *s, core_tensor *x, core_tensor *const *inputs,
                     size_t ninputs,
                     core_status (*backward)(core_node *, void *,
                                             core_tensor *const *, size_t,
                                             core_tensor **, size_t))
{
    core_function_info info = {.struct_size = sizeof info,
                               .name = "the cofactors of a determinant",
                               .backward = backward};

    CORE__RUN(s, core_function_record(&info, inputs, ninputs, inputs, ninputs,
                                      &x, 1, NULL));
}

static core_tensor *saved_of(core__scope *s, core_node *node, size_t index)
{
    return CORE__DO(s, core_node_saved, node, index);
}

static core_tensor *derivative(core__scope *s, core_tensor *g, core_tensor *A);

/* The map is linear in g and its own transpose. */
static core_status derivative_backward(core_node *node, void *context,
                                       core_tensor *const *grads, size_t ngrads,
                                       core_tensor **gradients,
                                       size_t ngradients)
{
    core__scope s;

    (void)context;
    (void)ngrads;
    (void)ngradients;
    if (core_node_needs_gradient(node, 1))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "the third derivative of a determinant is not supported for "
            "singular or nearly singular matrices");
    core__scope_begin(&s);
    return core__scope_finish(
        &s, derivative(&s, grads[0], saved_of(&s, node, 1)), &gradients[0]);
}

static core_tensor *derivative(core__scope *s, core_tensor *g, core_tensor *A)
{
    core_tensor *x;

    if (s->status != CORE_OK)
        return NULL;
    if (!core_grad_mode())
        return second(s, g, A);
    if (is_regular(s, A))
        return second_by_inverse(s, g, A);
    core_grad_mode_set(false);
    x = s->status == CORE_OK ? second(s, g, A) : NULL;
    core_grad_mode_set(true);
    recorded(s, x, (core_tensor *[]){g, A}, 2, derivative_backward);
    return x;
}

static core_status cofactors_backward(core_node *node, void *context,
                                      core_tensor *const *grads, size_t ngrads,
                                      core_tensor **gradients,
                                      size_t ngradients)
{
    core__scope s;

    (void)context;
    (void)ngrads;
    (void)ngradients;
    core__scope_begin(&s);
    return core__scope_finish(
        &s, derivative(&s, grads[0], saved_of(&s, node, 0)), &gradients[0]);
}

core_status core__formula_det_grad(core_tensor *grad, core_tensor *A,
                                   core_tensor **out)
{
    bool recording = core_grad_mode_set(false);
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = cofactors_of(&s, A);
    core_grad_mode_set(recording);
    if (recording)
        recorded(&s, x, &A, 1, cofactors_backward);
    return core__scope_finish(&s, core__x_mul(&s, numbers(&s, grad), x), out);
}

/* grad is the logarithm's; the sign is locally constant. */
core_status core__formula_slogdet_grad(core_tensor *grad, core_tensor *A,
                                       core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = !grad ? core__x_zeros_like(&s, A)
              : core__x_mul(&s, numbers(&s, grad),
                            core__x_adjoint(&s, inverse_of(&s, A)));
    return core__scope_finish(&s, x, out);
}
