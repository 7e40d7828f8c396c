/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Pseudo-inverses and least squares, by singular values. */

#include "device/device.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <string.h>

/* The default tolerance for singular values, relative to the largest. */
static double default_rtol(const core_tensor *self)
{
    int64_t m = self->sizes[self->ndim - 2];
    int64_t n = self->sizes[self->ndim - 1];
    double epsilon = self->dtype == CORE_F64 ? 0x1p-52 : 0x1p-23;

    return epsilon * (double)(m > n ? m : n);
}

/* rtol, or the default; the default is 0 if atol is above 0. */
static core_tensor *relative(core__scope *s, core_tensor *self,
                             core_tensor *atol, core_tensor *rtol)
{
    if (rtol)
        return rtol;
    if (!atol)
        return CORE__DO(s, core_full, NULL, 0, core_float(default_rtol(self)),
                        self->dtype, self->device);
    atol = CORE__DO(s, core_le_scalar, atol, core_int(0));
    return core__x_mul_scalar(s, core__x_cast(s, atol, self->dtype),
                              default_rtol(self));
}

/* The threshold, per matrix, from which a singular value counts. */
static core_tensor *threshold(core__scope *s, core_tensor *self,
                              core_tensor *values, core_tensor *atol,
                              core_tensor *rtol)
{
    core_tensor *x =
        CORE__DO(s, core_amax, values, (const int64_t[]){-1}, 1, true);

    rtol = relative(s, self, atol, rtol);
    if (rtol && rtol->ndim > 0)
        rtol = core__x_unsqueeze(s, rtol, -1);
    x = core__x_mul(s, x, rtol);
    if (!atol)
        return x;
    if (atol->ndim > 0)
        atol = core__x_unsqueeze(s, atol, -1);
    return CORE__DO(s, core_maximum, x, core__x_cast(s, atol, self->dtype));
}

/* self = U diag(S) Vh with S >= 0; for a symmetric matrix from its eigenvalues,
 * whose signs go to U. */
static void decompose(core__scope *s, core_tensor *self, bool symmetric,
                      core_tensor **u, core_tensor **values, core_tensor **vh)
{
    core_tensor *parts[3] = {NULL, NULL, NULL};
    core_tensor *sign;

    if (s->status != CORE_OK)
        return;
    if (!symmetric) {
        CORE__RUN(s, core_linalg_svd_parts(self, false, true, NULL, &parts[0],
                                           &parts[1], &parts[2]));
    } else {
        CORE__RUN(
            s, core_linalg_eigh_parts(self, "L", true, &parts[1], &parts[0]));
    }
    for (int i = 0; i < 3; i++) {
        s->pending = parts[i];
        parts[i] = core__scope_add(s, s->status);
    }
    *u = parts[0];
    *values = parts[1];
    *vh = parts[2];
    if (!symmetric)
        return;
    *vh = core__x_adjoint(s, *u);
    sign = core__x_unsqueeze(s, CORE__DO(s, core_sgn, *values), -2);
    *u = core__x_mul(s, *u, sign);
    *values = core__x_abs(s, *values);
}

static core_status check_floats(const core_operator *op, const char *name,
                                const core_tensor *x)
{
    if (core__dtype_is_floating(x->dtype) && x->ndim >= 2)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "%s is %s with %u dimensions; it must be a matrix of "
                          "a floating dtype or a batch of them",
                          name, core__dtype_name(x->dtype), x->ndim);
}

/* linalg_pinv.atol_rtol_tensor(self, *, atol, rtol, hermitian) */
CORE__COMPOSITE(linalg_pinv)
{
    core_tensor *self = args[0].u.tensor;
    bool symmetric = core__arg_bool(args, 3, false);
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t n = self->ndim;
    core_tensor *u = NULL;
    core_tensor *values = NULL;
    core_tensor *vh = NULL;
    core_tensor *least;

    CORE_TRY(check_floats(call->op, "self", self));
    if (symmetric && self->sizes[n - 1] != self->sizes[n - 2])
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "hermitian is true and self %lld by %lld; it must be square",
            (long long)self->sizes[n - 2], (long long)self->sizes[n - 1]);
    if (self->numel == 0) {
        memcpy(sizes, self->sizes, n * sizeof *sizes);
        sizes[n - 1] = self->sizes[n - 2];
        sizes[n - 2] = self->sizes[n - 1];
        return core__scope_result(
            scope, core__x_new_zeros(scope, self, sizes, n), &results[0]);
    }
    decompose(scope, self, symmetric, &u, &values, &vh);
    least = threshold(scope, self, values, core__tensor_of(&args[1]),
                      core__tensor_of(&args[2]));
    values = core__x_zero_where(scope, core__x_reciprocal(scope, values),
                                core__x_le(scope, values, least));
    vh = core__x_mul(scope, core__x_adjoint(scope, vh),
                     core__x_unsqueeze(scope, values, -2));
    return core__scope_result(
        scope, core__x_matmul(scope, vh, core__x_adjoint(scope, u)),
        &results[0]);
}

/* --------------------------------------------------------- least squares -- */

typedef struct least {
    core_tensor *a, *b; /* b as columns */
    double rcond;
    bool vector; /* b was given as vectors */
    bool ranks;  /* the driver returns ranks */
    bool values; /* and singular values */
    bool want_residuals;
} least;

static core_status least_read(const core_operator *op, const core_value *args,
                              least *out)
{
    core_tensor *a = args[0].u.tensor;
    core_tensor *b = args[1].u.tensor;
    const char *driver =
        args[3].tag == CORE_VALUE_STRING ? args[3].u.string : "gelsy";

    CORE_TRY(check_floats(op, "self", a));
    CORE_TRY(core__dtypes_check_equal(op, "self and b", a, b));
    if (strcmp(driver, "gels") != 0 && strcmp(driver, "gelsy") != 0 &&
        strcmp(driver, "gelsd") != 0 && strcmp(driver, "gelss") != 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "driver must be \"gels\", \"gelsy\", \"gelsd\" "
                              "or \"gelss\", not \"%s\"",
                              driver);
    out->a = a;
    out->b = b;
    out->vector = b->ndim == 1 ||
                  (b->ndim + 1 == a->ndim &&
                   memcmp(b->sizes, a->sizes, b->ndim * sizeof *b->sizes) == 0);
    out->ranks = strcmp(driver, "gels") != 0;
    out->values = driver[4] == 'd' || (driver[4] == 's' && driver[3] == 's');
    out->want_residuals = strcmp(driver, "gelsy") != 0;
    out->rcond = args[2].tag == CORE_VALUE_NONE ? default_rtol(a)
                                                : core__double_of(&args[2]);
    if (b->ndim == 0 ||
        b->sizes[b->ndim - (out->vector ? 1 : 2)] != a->sizes[a->ndim - 2])
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "b must have %lld rows, like self",
                              (long long)a->sizes[a->ndim - 2]);
    return CORE_OK;
}

/* No elements, but a gradient passes through. */
static core_tensor *no_residuals(core__scope *s, core_tensor *x)
{
    x = core__x_slice(s, core__x_reshape(s, x, (const int64_t[]){-1}, 1), 0, 0,
                      0);
    return CORE__DO(s, core_clone, x, CORE_FORMAT_CONTIGUOUS);
}

static core_tensor *nothing(core__scope *s, core_tensor *like, core_dtype dtype)
{
    return CORE__DO(s, core_new_zeros, like, (const int64_t[]){0}, 1, dtype,
                    NULL);
}

/* The number of singular values that count, per matrix; and the values. */
static core_tensor *rank(core__scope *s, const least *l, core_tensor **values)
{
    core_tensor *a = core__x_detach(s, l->a);
    core_tensor *u = NULL;
    core_tensor *vh = NULL;
    core_tensor *x;

    decompose(s, a, false, &u, values, &vh);
    if (s->status != CORE_OK || (*values)->sizes[(*values)->ndim - 1] == 0)
        return CORE__DO(s, core_new_zeros, a, a->sizes, a->ndim - 2, CORE_I64,
                        NULL);
    x = core__x_mul_scalar(s, core__x_slice(s, *values, -1, 0, 1), l->rcond);
    x = core__x_gt(s, *values, x);
    return core__x_sum_dim(s, x, (const int64_t[]){-1}, 1, false);
}

/* Squared residuals if all matrices have full rank and more rows than columns;
 * otherwise empty.  Reads the ranks on the host. */
static core_tensor *residuals(core__scope *s, const least *l, core_tensor *x,
                              core_tensor *ranks)
{
    int64_t m = l->a->sizes[l->a->ndim - 2];
    int64_t n = l->a->sizes[l->a->ndim - 1];

    if (m <= n || !l->want_residuals)
        return no_residuals(s, x);
    if (!core__read_all(s, core__x_eq_scalar(s, ranks, (double)n)))
        return no_residuals(s, x);
    x = core__x_sub(s, core__x_matmul(s, l->a, x), l->b);
    x = core__x_mul(s, x, x);
    return core__x_sum_dim(s, x, (const int64_t[]){-2}, 1, false);
}

/* "gels" requires matrices of full rank.  Reads the ranks on the host. */
static core_status check_full_rank(core__scope *s, const core_operator *op,
                                   const least *l, core_tensor *ranks)
{
    int64_t m = l->a->sizes[l->a->ndim - 2];
    int64_t n = l->a->sizes[l->a->ndim - 1];

    if (l->ranks || !ranks || ranks->device->meta)
        return s->status;
    ranks = core__x_eq_scalar(s, ranks, (double)(m < n ? m : n));
    if (core__read_all(s, ranks) || s->status != CORE_OK)
        return s->status;
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, op,
        "self contains a matrix without full rank, which driver \"gels\" does "
        "not support; use \"gelsy\", \"gelsd\" or \"gelss\"");
}

/* linalg_lstsq(self, b, rcond, *, driver) -> (solution, residuals, rank,
 * singular_values): for every driver the solution of least norm, by singular
 * values; drivers differ in what they return, and gels in what it accepts. */
CORE__COMPOSITE(linalg_lstsq)
{
    core_tensor *given[4];
    core_tensor *ranks;
    core_tensor *values = NULL;
    core_tensor *x;
    least l = {NULL};

    CORE_TRY(least_read(call->op, args, &l));
    if (l.vector)
        l.b = core__x_unsqueeze(scope, l.b, -1);
    x = CORE__DO(scope, core_full, NULL, 0, core_float(l.rcond), l.a->dtype,
                 l.a->device);
    x = CORE__DO(scope, core_linalg_pinv, l.a, NULL, x, false);
    x = core__x_matmul(scope, x, l.b);
    ranks = rank(scope, &l, &values);
    CORE_TRY(check_full_rank(scope, call->op, &l, ranks));
    given[0] = l.vector ? CORE__DO(scope, core_squeeze_dim, x, -1) : x;
    given[1] = residuals(scope, &l, x, ranks);
    given[2] = l.ranks ? ranks : nothing(scope, l.a, CORE_I64);
    given[3] = l.values ? values : nothing(scope, l.a, l.a->dtype);
    for (int i = 0; i < 4; i++)
        CORE_TRY(core__scope_result(scope, given[i], &results[i]));
    return CORE_OK;
}
