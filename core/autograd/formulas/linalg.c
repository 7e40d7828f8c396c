/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of factorizations and triangular solves. */

#include "autograd/formulas/formulas.h"

#include "ops/expression.h"

#include <string.h>

/* With A = L Lᵀ: L⁻ᵀ S L⁻¹, where S is half of tril(Lᵀ gL) plus its mirror
 * image, with the diagonal counted once (Murray 2016, "Differentiation of the
 * Cholesky decomposition"). */
core_status core__formula_cholesky_grad(core_tensor *grad, core_tensor *L,
                                        bool upper, core_tensor **out)
{
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    if (upper) {
        L = core__x_adjoint(&s, L);
        grad = core__x_adjoint(&s, grad);
    }
    x = CORE__DO(&s, core_tril,
                 core__x_matmul(&s, core__x_adjoint(&s, L), grad), 0);
    x = core__x_add(&s, x, core__x_adjoint(&s, CORE__DO(&s, core_tril, x, -1)));
    x = core__x_mul_scalar(&s, x, 0.5);
    x = core__x_solve_triangular(&s, core__x_adjoint(&s, L), x, true, true,
                                 false);
    return core__scope_finish(
        &s, core__x_solve_triangular(&s, L, x, false, false, false), out);
}

/* For R square and of full rank: (gQ + Q sym(triu(gR Rᵀ - Qᵀ gQ))) R⁻ᵀ, where
 * sym mirrors the upper triangle into the lower one (Walter, Lehmann 2018). */
static core_tensor *qr_square(core__scope *s, core_tensor *gq, core_tensor *gr,
                              core_tensor *q, core_tensor *r)
{
    core_tensor *x =
        core__x_sub(s, core__x_matmul(s, gr, core__x_adjoint(s, r)),
                    core__x_matmul(s, core__x_adjoint(s, q), gq));

    x = core__x_add(s, CORE__DO(s, core_triu, x, 0),
                    core__x_adjoint(s, CORE__DO(s, core_triu, x, 1)));
    x = core__x_add(s, gq, core__x_matmul(s, q, x));
    return core__x_solve_triangular(s, core__x_adjoint(s, r), x, false, false,
                                    false);
}

core_status core__formula_qr_grad(core_tensor *grad_Q, core_tensor *grad_R,
                                  core_tensor *Q, core_tensor *R,
                                  const char *mode, core_tensor **out)
{
    core__scope s;
    core_tensor *parts[2];
    int64_t k = R->sizes[R->ndim - 2];
    int64_t n = R->sizes[R->ndim - 1];

    *out = NULL;
    if (strcmp(mode, "r") == 0 || k > n)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the gradient of linalg_qr is supported in mode "
                           "\"reduced\", and in mode \"complete\" for matrices "
                           "with at most as many rows as columns");
    core__scope_begin(&s);
    if (k == n)
        return core__scope_finish(&s, qr_square(&s, grad_Q, grad_R, Q, R), out);
    /* A = [X Y], R = [U V]: X = Q U, Y = Q V */
    parts[1] = core__x_slice(&s, grad_R, -1, k, n);
    grad_Q = core__x_add(
        &s, grad_Q,
        core__x_matmul(&s,
                       core__x_matmul(&s, Q, core__x_slice(&s, R, -1, k, n)),
                       core__x_adjoint(&s, parts[1])));
    parts[0] = qr_square(&s, grad_Q, core__x_slice(&s, grad_R, -1, 0, k), Q,
                         core__x_slice(&s, R, -1, 0, k));
    parts[1] = core__x_matmul(&s, Q, parts[1]);
    return core__scope_finish(&s, CORE__DO(&s, core_cat, parts, 2, -1), out);
}

/* -gB Xᵀ, or -Xᵀ gB from the right; only the triangle that is read. */
core_status core__formula_triangular_grad(core_tensor *grad_B,
                                          core_tensor *result, bool upper,
                                          bool left, bool unitriangular,
                                          core_tensor **out)
{
    int64_t diagonal = unitriangular ? 1 : 0;
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = left ? core__x_matmul(&s, grad_B, core__x_adjoint(&s, result))
             : core__x_matmul(&s, core__x_adjoint(&s, result), grad_B);
    x = core__x_neg(&s, x);
    x = upper ? CORE__DO(&s, core_triu, x, diagonal)
              : CORE__DO(&s, core_tril, x, -diagonal);
    return core__scope_finish(&s, x, out);
}
