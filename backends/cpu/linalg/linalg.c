/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Factorizations and triangular systems of small matrices, in f64.  Signs are
 * LAPACK's. */

#include <math.h>
#include <stdlib.h>

#include "tables.h"
#include "view.h"

static int64_t batches(const core_view *view)
{
    int64_t count = 1;

    for (uint32_t i = 0; i + 2 < view->ndim; i++)
        count *= view->sizes[i];
    return count;
}

static int truth(const core_value *value)
{
    return value->tag != CORE_VALUE_NONE && value->u.i != 0;
}

/* ------------------------------------------------------------- Cholesky -- */

/* The lower factor of the lower (or transposed upper) triangle of a; 0, or the
 * order of the first minor that is not positive. */
static int32_t cholesky(const double *a, double *l, int64_t n, int upper)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n; i++) {
            double sum = i < j ? 0 : upper ? a[j * n + i] : a[i * n + j];

            for (int64_t k = 0; i >= j && k < j; k++)
                sum -= l[i * n + k] * l[j * n + k];
            if (i == j && !(sum > 0))
                return (int32_t)(j + 1);
            l[i * n + j] = i < j ? 0 : i == j ? sqrt(sum) : sum;
            if (i > j)
                l[i * n + j] /= l[j * n + j];
        }
    }
    return 0;
}

static void transpose(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            double x = a[i * n + j];

            a[i * n + j] = a[j * n + i];
            a[j * n + i] = x;
        }
}

/* linalg_cholesky_ex(self, *, upper, check_errors) -> (L, info) */
static core_status launch_cholesky(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    int64_t n = self->sizes[self->ndim - 1];
    cpu_dense a = {0}, l = {0}, info = {0};
    int upper = truth(&args[1]);
    core_status status = cpu_dense_read(self, CORE_F64, &a);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &l);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I64, &info);
    for (int64_t b = 0; status == CORE_OK && b < batches(self); b++) {
        double *to = (double *)l.data + b * n * n;
        int32_t minor;

        if (n > 0)
            memset(to, 0, (size_t)(n * n) * sizeof *to);
        minor = cholesky((const double *)a.data + b * n * n, to, n, upper);
        ((int64_t *)info.data)[b] = minor;
        if (upper)
            transpose(to, n);
        if (minor && truth(&args[2])) {
            core_string name = cpu_operator(call);

            status =
                cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                          "%.*s: matrix %lld is not positive definite: "
                          "its minor of order %d is not",
                          (int)name.size, name.data, (long long)b, (int)minor);
        }
    }
    if (status == CORE_OK) {
        cpu_dense_write(&l);
        cpu_dense_write(&info);
    }
    cpu_dense_close(&a);
    cpu_dense_close(&l);
    cpu_dense_close(&info);
    return status;
}

/* ------------------------------------------------------------------- QR -- */

/* Householder's reflection of column k of the m by n matrix r, kept in v. */
static double reflect(double *r, int64_t m, int64_t n, int64_t k, double *v)
{
    double below = 0, norm, tau;

    for (int64_t i = 0; i < m; i++) {
        v[i] = i < k ? 0 : r[i * n + k];
        below += i > k ? v[i] * v[i] : 0;
    }
    if (below == 0)
        return 0;
    norm = sqrt(v[k] * v[k] + below);
    norm = v[k] > 0 ? -norm : norm;
    tau = (norm - v[k]) / norm;
    for (int64_t i = m - 1; i >= k; i--)
        v[i] = i == k ? 1 : v[i] / (v[k] - norm);
    return tau;
}

/* (1 - tau v vᵀ) a, a being m by n */
static void apply(double *a, int64_t m, int64_t n, const double *v, double tau)
{
    for (int64_t j = 0; tau != 0 && j < n; j++) {
        double sum = 0;

        for (int64_t i = 0; i < m; i++)
            sum += v[i] * a[i * n + j];
        for (int64_t i = 0; i < m; i++)
            a[i * n + j] -= tau * sum * v[i];
    }
}

/* a is m by n and overwritten; q m by columns (or NULL), r rows by n. */
static core_status qr(double *a, int64_t m, int64_t n, double *q,
                      int64_t columns, double *r, int64_t rows)
{
    int64_t steps = m < n ? m : n;
    double *v = cpu_allocate((steps ? steps : 1) * (m + 1), sizeof *v);

    if (!v)
        return CORE_ERROR_OUT_OF_MEMORY;
    for (int64_t k = 0; k < steps; k++) {
        double *own = v + k * (m + 1);

        own[m] = reflect(a, m, n, k, own);
        apply(a, m, n, own, own[m]);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++)
            r[i * n + j] = i <= j ? a[i * n + j] : 0;
    for (int64_t i = 0; q && i < m; i++)
        for (int64_t j = 0; j < columns; j++)
            q[i * columns + j] = i == j;
    for (int64_t k = steps; q && k-- > 0;)
        apply(q, m, columns, v + k * (m + 1), v[k * (m + 1) + m]);
    free(v);
    return CORE_OK;
}

/* linalg_qr(A, mode) -> (Q, R) */
static core_status launch_qr(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    const core_view *out_q = cpu_view(&results[0]);
    const core_view *out_r = cpu_view(&results[1]);
    int64_t m = self->sizes[self->ndim - 2], n = self->sizes[self->ndim - 1];
    int64_t rows = out_r->sizes[out_r->ndim - 2];
    int64_t columns = out_q->numel ? out_q->sizes[out_q->ndim - 1] : 0;
    cpu_dense a = {0}, q = {0}, r = {0};
    double *scratch = cpu_allocate(m * n, sizeof *scratch);
    core_status status =
        scratch ? cpu_dense_read(self, CORE_F64, &a) : CORE_ERROR_OUT_OF_MEMORY;

    (void)call;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK && columns)
        status = cpu_dense_open(out_q, CORE_F64, &q);
    if (status == CORE_OK)
        status = cpu_dense_open(out_r, CORE_F64, &r);
    for (int64_t b = 0; status == CORE_OK && b < batches(self); b++) {
        if (m * n > 0)
            memcpy(scratch, (const double *)a.data + b * m * n,
                   (size_t)(m * n) * sizeof *scratch);
        status = qr(scratch, m, n,
                    columns ? (double *)q.data + b * m * columns : NULL,
                    columns, (double *)r.data + b * rows * n, rows);
    }
    if (status == CORE_OK && columns)
        cpu_dense_write(&q);
    if (status == CORE_OK)
        cpu_dense_write(&r);
    cpu_dense_close(&a);
    cpu_dense_close(&q);
    cpu_dense_close(&r);
    free(scratch);
    return status;
}

/* ---------------------------------------------------- triangular systems -- */

/* Solves for one column of the unknown, in place; element i of a row of the
 * matrix and of the column are `row`, `column` and `step` elements apart. */
static void substitute(const double *a, int64_t n, int64_t row, int64_t column,
                       int upper, int unit, double *x, int64_t step)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t i = upper ? n - 1 - k : k;
        double sum = x[i * step];

        for (int64_t j = upper ? i + 1 : 0; j < (upper ? n : i); j++)
            sum -= a[i * row + j * column] * x[j * step];
        x[i * step] = unit ? sum : sum / a[i * row + i * column];
    }
}

/* linalg_solve_triangular(self, B, *, upper, left, unitriangular): X with
 * self X = B, or X self = B; batches have been expanded. */
static core_status launch_solve(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    const core_view *result = cpu_view(&results[0]);
    int64_t n = self->sizes[self->ndim - 1];
    int64_t m = result->sizes[result->ndim - 2];
    int64_t k = result->sizes[result->ndim - 1];
    int upper = truth(&args[2]), left = truth(&args[3]);
    int unit = truth(&args[4]);
    cpu_dense a = {0}, x = {0};
    core_status status = cpu_dense_read(self, CORE_F64, &a);

    (void)call;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_copy(result, cpu_view(&args[1]), CORE_F64, &x);
    for (int64_t b = 0; status == CORE_OK && b < batches(result); b++) {
        const double *own = (const double *)a.data + b * n * n;
        double *to = (double *)x.data + b * m * k;

        for (int64_t j = 0; left && j < k; j++)
            substitute(own, n, n, 1, upper, unit, to + j, k);
        /* X A = B is Aᵀ Xᵀ = Bᵀ */
        for (int64_t i = 0; !left && i < m; i++)
            substitute(own, n, 1, n, !upper, unit, to + i * k, 1);
    }
    if (status == CORE_OK)
        cpu_dense_write(&x);
    cpu_dense_close(&a);
    cpu_dense_close(&x);
    return status;
}

#define WIDE (CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32))

static const cpu_kernel kernels[] = {
    {"linalg_cholesky_ex", launch_cholesky, NULL, {WIDE, WIDE, 0}, 0},
    {"linalg_qr", launch_qr, NULL, {WIDE, WIDE, WIDE}, 0},
    {"linalg_solve_triangular", launch_solve, NULL, {WIDE, WIDE, WIDE}, 0},
};

const cpu_kernel_table cpu_linalg_kernels = {kernels, sizeof kernels /
                                                          sizeof kernels[0]};
