/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of LU factors, spectra, and of pooling and unpooling by index.  In
 * the formulas A' is the transpose of A. */

#include "autograd/formulas/formulas.h"

#include "ops/expression.h"

/* x + y, either of which may be absent */
static core_tensor *plus(core__scope *s, core_tensor *x, core_tensor *y)
{
    if (!x || !y)
        return x ? x : y;
    return core__x_add(s, x, y);
}

/* -------------------------------------------------------------------- LU -- */

static core_tensor *part(core__scope *s, core_tensor *x, int64_t dim,
                         int64_t begin, int64_t end)
{
    return core__x_slice(s, x, dim, begin, end);
}

/* With A = P L U, for square matrices: L⁻' (tril(L' gL, -1) + triu(gU U')) U⁻',
 * with rows then permuted by P.  The last argument is taken from the
 * triangles. */
static core_tensor *lu_square(core__scope *s, core_tensor *gl, core_tensor *gu,
                              core_tensor *l, core_tensor *u,
                              core_tensor *from_l, core_tensor *from_u)
{
    core_tensor *x = core__x_matmul(s, core__x_adjoint(s, l), gl);
    core_tensor *y = core__x_matmul(s, gu, core__x_adjoint(s, u));

    if (from_l)
        x = core__x_sub(s, x, from_l);
    if (from_u)
        y = core__x_sub(s, y, from_u);
    x = core__x_add(s, CORE__DO(s, core_tril, x, -1),
                    CORE__DO(s, core_triu, y, 0));
    x = core__x_solve_triangular(s, core__x_adjoint(s, u), x, false, false,
                                 false);
    return core__x_solve_triangular(s, core__x_adjoint(s, l), x, true, true,
                                    true);
}

/* A wide matrix is [A1 A2] = P L [U1 U2], a tall one [A1; A2] = P [L1; L2] U:
 * the second part is a product with an inverse, whose gradient contributes to
 * the first. */
static core_tensor *lu_parts(core__scope *s, core_tensor *gl, core_tensor *gu,
                             core_tensor *l, core_tensor *u)
{
    int64_t m = l->sizes[l->ndim - 2];
    int64_t k = l->sizes[l->ndim - 1];
    int64_t n = u->sizes[u->ndim - 1];
    core_tensor *parts[2];
    core_tensor *g;

    if (m == n)
        return lu_square(s, gl, gu, l, u, NULL, NULL);
    if (m < n) {
        g = part(s, gu, -1, k, n);
        parts[0] = lu_square(
            s, gl, part(s, gu, -1, 0, k), l, part(s, u, -1, 0, k),
            core__x_matmul(s, g, core__x_adjoint(s, part(s, u, -1, k, n))),
            NULL);
        parts[1] = core__x_solve_triangular(s, core__x_adjoint(s, l), g, true,
                                            true, true);
        return CORE__DO(s, core_cat, parts, 2, -1);
    }
    g = part(s, gl, -2, k, m);
    parts[0] = lu_square(
        s, part(s, gl, -2, 0, k), gu, part(s, l, -2, 0, k), u, NULL,
        core__x_matmul(s, core__x_adjoint(s, part(s, l, -2, k, m)), g));
    parts[1] = core__x_solve_triangular(s, core__x_adjoint(s, u), g, false,
                                        false, false);
    return CORE__DO(s, core_cat, parts, 2, -2);
}

core_status core__formula_lu_factor_grad(core_tensor *grad, core_tensor *LU,
                                         core_tensor *pivots, core_tensor **out)
{
    int64_t m = LU->sizes[LU->ndim - 2];
    int64_t n = LU->sizes[LU->ndim - 1];
    int64_t k = m < n ? m : n;
    core__scope s;
    core_tensor *l;
    core_tensor *u;
    core_tensor *gl;
    core_tensor *x;

    core__scope_begin(&s);
    l = CORE__DO(&s, core_tril, part(&s, LU, -1, 0, k), -1);
    l = core__x_add(&s, l,
                    CORE__DO(&s, core_eye_m, m, k, LU->dtype, LU->device));
    u = CORE__DO(&s, core_triu, part(&s, LU, -2, 0, k), 0);
    gl = CORE__DO(&s, core_tril, part(&s, grad, -1, 0, k), -1);
    x = CORE__DO(&s, core_triu, part(&s, grad, -2, 0, k), 0);
    if (s.status == CORE_OK)
        x = lu_parts(&s, gl, x, l, u);
    x = core__x_matmul(
        &s, CORE__DO(&s, core_lu_permutation, pivots, m, LU->dtype), x);
    return core__scope_finish(&s, x, out);
}

/* ---------------------------------------------------------------- spectra -- */

/* x[j] - x[i] for each pair, 1 on the diagonal */
static core_tensor *gaps(core__scope *s, core_tensor *x)
{
    core_tensor *d = core__x_sub(s, core__x_unsqueeze(s, x, -2),
                                 core__x_unsqueeze(s, x, -1));
    core_tensor *unit =
        CORE__DO(s, core_eye, x->sizes[x->ndim - 1], x->dtype, x->device);

    return core__x_add(s, d, unit);
}

/* x - x' */
static core_tensor *skew(core__scope *s, core_tensor *x)
{
    return core__x_sub(s, x, core__x_adjoint(s, x));
}

/* V (diag(gL) + skew(V' gV) / 2 (L[j] - L[i])) V', which is symmetric (Giles
 * 2008, "An extended collection of matrix derivative results"). */
core_status core__formula_eigh_grad(core_tensor *gL, core_tensor *gV,
                                    core_tensor *L, core_tensor *V,
                                    bool compute_v, core_tensor **out)
{
    core__scope s;
    core_tensor *x = NULL;

    *out = NULL;
    if (!compute_v)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the gradient of _linalg_eigh needs eigenvectors; "
                           "compute_v must be true");
    core__scope_begin(&s);
    if (gV) {
        x = skew(&s, core__x_matmul(&s, core__x_adjoint(&s, V), gV));
        x = core__x_mul_scalar(&s, core__x_div(&s, x, gaps(&s, L)), .5);
    }
    if (gL)
        x = plus(&s, x, core__x_diag_embed(&s, gL));
    if (x)
        x = core__x_matmul(&s, V,
                           core__x_matmul(&s, x, core__x_adjoint(&s, V)));
    else
        x = core__x_zeros_like(&s, V);
    return core__scope_finish(&s, x, out);
}

/* The part that changes U within its own span and V within its own: diag(gS) +
 * skew(U' gU) / E S + S skew(V' gV) / E, E[i, j] = S[j]² - S[i]². */
static core_tensor *svd_inner(core__scope *s, core_tensor *gU, core_tensor *gS,
                              core_tensor *gV, core_tensor *U, core_tensor *S,
                              core_tensor *V)
{
    core_tensor *e = gaps(s, core__x_mul(s, S, S));
    core_tensor *x = gS ? core__x_diag_embed(s, gS) : NULL;
    core_tensor *y;

    if (gU) {
        y = core__x_div(
            s, skew(s, core__x_matmul(s, core__x_adjoint(s, U), gU)), e);
        x = plus(s, x, core__x_mul(s, y, core__x_unsqueeze(s, S, -2)));
    }
    if (gV) {
        y = core__x_div(
            s, skew(s, core__x_matmul(s, core__x_adjoint(s, V), gV)), e);
        x = plus(s, x, core__x_mul(s, core__x_unsqueeze(s, S, -1), y));
    }
    return x;
}

/* The part of g / S outside the span of U's columns. */
static core_tensor *outside(core__scope *s, core_tensor *g, core_tensor *U,
                            core_tensor *S)
{
    core_tensor *x = core__x_div(s, g, core__x_unsqueeze(s, S, -2));

    return core__x_sub(
        s, x,
        core__x_matmul(s, U, core__x_matmul(s, core__x_adjoint(s, U), x)));
}

/* (Townsend 2016, "Differentiating the singular value decomposition".) The
 * extra columns of full matrices are not determined by A, so their gradients do
 * not contribute. */
core_status core__formula_svd_grad(core_tensor *gU, core_tensor *gS,
                                   core_tensor *gVh, core_tensor *U,
                                   core_tensor *S, core_tensor *Vh,
                                   bool compute_uv, const int64_t *sizes,
                                   size_t sizes_count, core_tensor **out)
{
    int64_t k = S->sizes[S->ndim - 1];
    int64_t m = sizes[sizes_count - 2];
    int64_t n = sizes[sizes_count - 1];
    core_tensor *gV = NULL;
    core_tensor *V;
    core__scope s;
    core_tensor *x;

    *out = NULL;
    if (!compute_uv)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the gradient of _linalg_svd needs singular "
                           "vectors; compute_uv must be true");
    core__scope_begin(&s);
    U = part(&s, U, -1, 0, k);
    V = core__x_adjoint(&s, part(&s, Vh, -2, 0, k));
    gU = gU ? part(&s, gU, -1, 0, k) : NULL;
    gV = gVh ? core__x_adjoint(&s, part(&s, gVh, -2, 0, k)) : NULL;
    x = svd_inner(&s, gU, gS, gV, U, S, V);
    x = x ? core__x_matmul(&s, U, x) : NULL;
    if (gU && m > k)
        x = plus(&s, x, outside(&s, gU, U, S));
    x = x ? core__x_matmul(&s, x, core__x_adjoint(&s, V)) : NULL;
    if (gV && n > k)
        x = plus(
            &s, x,
            core__x_matmul(&s, U, core__x_adjoint(&s, outside(&s, gV, V, S))));
    if (!x)
        x = core__x_new_zeros(&s, S, sizes, sizes_count);
    return core__scope_finish(&s, x, out);
}

/* H = V diag(L) V' */
typedef struct spectrum {
    core_tensor *L, *V, *vt;
} spectrum;

static spectrum spectrum_of(core__scope *s, core_tensor *H)
{
    spectrum h = {0};

    CORE__RUN(s, core_linalg_eigh_parts(H, "L", true, &h.L, &h.V));
    h.L = core__scope_keep(s, h.L);
    h.V = core__scope_keep(s, h.V);
    h.vt = core__x_adjoint(s, h.V);
    return h;
}

/* X with H X + X H = g */
static core_tensor *solve_lyapunov(core__scope *s, const spectrum *h,
                                   core_tensor *g)
{
    core_tensor *sums = core__x_add(s, core__x_unsqueeze(s, h->L, -2),
                                    core__x_unsqueeze(s, h->L, -1));
    core_tensor *x = core__x_matmul(s, core__x_matmul(s, h->vt, g), h->V);

    x = core__x_div(s, x, sums);
    return core__x_matmul(s, core__x_matmul(s, h->V, x), h->vt);
}

/* (1 - U U') g / H */
static core_tensor *beyond(core__scope *s, core_tensor *g, core_tensor *U,
                           const spectrum *h)
{
    core_tensor *x =
        core__x_matmul(s, U, core__x_matmul(s, core__x_adjoint(s, U), g));

    x = core__x_matmul(s, core__x_sub(s, g, x), h->V);
    x = core__x_div(s, x, core__x_unsqueeze(s, h->L, -2));
    return core__x_matmul(s, x, h->vt);
}

/* X X = A has the differential dX X + X dX = dA, which is self-adjoint.  The
 * gradient is symmetric, as A is. */
core_status core__formula_matrix_sqrth_grad(core_tensor *grad,
                                            core_tensor *result,
                                            core_tensor **out)
{
    core__scope s;
    core_tensor *x;
    spectrum h;

    core__scope_begin(&s);
    h = spectrum_of(&s, result);
    x = core__x_add(&s, grad, core__x_adjoint(&s, grad));
    x = solve_lyapunov(&s, &h, core__x_mul_scalar(&s, x, .5));
    return core__scope_finish(&s, x, out);
}

/* With U' U = 1, dU = U W + (1 - U U') dA / H and dH = U' dA - W H, where W is
 * skew and H W + W H = skew(U' dA).  So the gradient is U (gH + Z) +
 * (1 - U U') gU / H, where H Z + Z H = skew(U' gU - gH H). */
core_status core__formula_polar_grad(core_tensor *gU, core_tensor *gH,
                                     core_tensor *U, core_tensor *H,
                                     core_tensor **out)
{
    bool tall = U->sizes[U->ndim - 2] > U->sizes[U->ndim - 1];
    core_tensor *m = NULL, *x;
    core__scope s;
    spectrum h;

    core__scope_begin(&s);
    if (gU)
        m = core__x_matmul(&s, core__x_adjoint(&s, U), gU);
    if (gH)
        m = plus(&s, m, core__x_neg(&s, core__x_matmul(&s, gH, H)));
    if (!m)
        return core__scope_finish(&s, core__x_zeros_like(&s, U), out);
    h = spectrum_of(&s, H);
    x = plus(&s, solve_lyapunov(&s, &h, skew(&s, m)), gH);
    x = core__x_matmul(&s, U, x);
    if (gU && tall)
        x = core__x_add(&s, x, beyond(&s, gU, U, &h));
    return core__scope_finish(&s, x, out);
}

/* With P the pseudo-inverse: -P' g P' + (1 - A P) g' P P' + P' P g' (1 - P A)
 * (Golub, Pereyra 1973). */
core_status core__formula_pinv_grad(core_tensor *grad, core_tensor *self,
                                    core_tensor *result, core_tensor **out)
{
    core__scope s;
    core_tensor *p = result;
    core_tensor *pt;
    core_tensor *gt;
    core_tensor *x;
    core_tensor *y;

    core__scope_begin(&s);
    pt = core__x_adjoint(&s, p);
    gt = core__x_adjoint(&s, grad);
    x = core__x_neg(&s, core__x_matmul(&s, pt, core__x_matmul(&s, grad, pt)));
    y = core__x_matmul(&s, core__x_matmul(&s, gt, p), pt);
    y = core__x_sub(&s, y, core__x_matmul(&s, self, core__x_matmul(&s, p, y)));
    x = core__x_add(&s, x, y);
    y = core__x_matmul(&s, pt, core__x_matmul(&s, p, gt));
    y = core__x_sub(&s, y, core__x_matmul(&s, core__x_matmul(&s, y, p), self));
    return core__scope_finish(&s, core__x_add(&s, x, y), out);
}

/* The upper right block of exp([[A', g], [0, A']]) is the gradient (Mathias
 * 1996, "A chain rule for matrix functions"). */
core_status core__formula_matrix_exp_grad(core_tensor *grad, core_tensor *self,
                                          core_tensor **out)
{
    int64_t n = self->sizes[self->ndim - 1];
    core_tensor *rows[2];
    core_tensor *parts[2];
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    x = core__x_adjoint(&s, self);
    parts[0] = x;
    parts[1] = grad;
    rows[0] = CORE__DO(&s, core_cat, parts, 2, -1);
    parts[0] = core__x_zeros_like(&s, grad);
    parts[1] = x;
    rows[1] = CORE__DO(&s, core_cat, parts, 2, -1);
    x = CORE__DO(&s, core_cat, rows, 2, -2);
    x = CORE__DO(&s, core_linalg_matrix_exp, x);
    x = part(&s, part(&s, x, -2, 0, n), -1, n, 2 * n);
    return core__scope_finish(&s, x, out);
}

/* ---------------------------------------------------------------- pooling -- */

/* Adds gradients at the positions of the windows' maxima, which may coincide;
 * indices count in the last `spatial` dimensions. */
core_status core__formula_spread(core_tensor *grad, core_tensor *indices,
                                 const int64_t *sizes, size_t sizes_count,
                                 int64_t spatial, core_tensor **out)
{
    uint32_t before = (uint32_t)sizes_count - (uint32_t)spatial;
    int64_t flat[CORE_MAX_NDIM];
    core__scope s;
    core_tensor *x;

    core__scope_begin(&s);
    memcpy(flat, sizes, sizes_count * sizeof *flat);
    for (uint32_t i = before + 1; i < sizes_count; i++)
        flat[before] *= sizes[i];
    x = core__x_new_zeros(&s, grad, flat, before + 1);
    grad = CORE__DO(&s, core_flatten, grad, -spatial, -1);
    indices = CORE__DO(&s, core_flatten, indices, -spatial, -1);
    x = CORE__DO(&s, core_scatter_add, x, -1, indices, grad);
    x = core__x_reshape(&s, x, sizes, sizes_count);
    return core__scope_finish(&s, x, out);
}
