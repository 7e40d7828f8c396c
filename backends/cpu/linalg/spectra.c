/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Eigenvalues of symmetric matrices, singular values, and the matrix
 * exponential. */

#include <math.h>
#include <stdlib.h>

#include "gemm/blas.h"
#include "lapack.h"
#include "tables.h"
#include "view.h"

/* LAPACK's iterations may not end for input that is not finite. */
static core_status check_finite(const core_call *call, const double *a,
                                int64_t n, int64_t matrix)
{
    core_string name = cpu_operator(call);

    for (int64_t i = 0; i < n; i++)
        if (!isfinite(a[i]))
            return cpu_error(
                CORE_ERROR_INVALID_ARGUMENT,
                "%.*s: matrix %lld contains %g, which is not finite",
                (int)name.size, name.data, (long long)matrix, a[i]);
    return CORE_OK;
}

static core_status diverged(const core_call *call, int64_t matrix, int info)
{
    core_string name = cpu_operator(call);

    return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                     "%.*s: the iteration for matrix %lld did not converge "
                     "(%d)",
                     (int)name.size, name.data, (long long)matrix, info);
}

/* ----------------------------------------------------------- eigenvalues -- */

/* _linalg_eigh(A, UPLO, compute_v) -> (eigenvalues, eigenvectors) */
static core_status launch_eigh(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    const core_view *out_vectors = cpu_view(&results[1]);
    int64_t n = self->sizes[self->ndim - 1];
    bool vectors = out_vectors->ndim == self->ndim && n > 0;
    int64_t workspace = 1 + 6 * n + 2 * n * n;
    int order = (int)n, lwork = (int)workspace, liwork = (int)(3 + 5 * n),
        info = 0;
    double *a = cpu_allocate(n * n + workspace, sizeof *a);
    int *iwork = cpu_allocate(liwork, sizeof *iwork);
    char half =
        args[1].u.string[0] == 'U' || args[1].u.string[0] == 'u' ? 'U' : 'L';
    cpu_dense from = {0}, values = {0}, to = {0};
    const cpu_lapack *lapack;
    core_status status = cpu_lapack_open(call, workspace, n, &lapack);

    (void)nargs;
    (void)nresults;
    if (!a || !iwork)
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK)
        status = cpu_dense_read(self, CORE_F64, &from);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &values);
    if (status == CORE_OK && vectors)
        status = cpu_dense_open(out_vectors, CORE_F64, &to);
    for (int64_t b = 0; status == CORE_OK && n > 0 && b < cpu_matrices(self);
         b++) {
        cpu_transpose(a, (const double *)from.data + b * n * n, n, n);
        status = check_finite(call, a, n * n, b);
        if (status != CORE_OK)
            break;
        lapack->syevd(vectors ? "V" : "N", &half, &order, a, &order,
                      (double *)values.data + b * n, a + n * n, &lwork, iwork,
                      &liwork, &info, 1, 1);
        if (info != 0)
            status = diverged(call, b, info);
        if (vectors)
            cpu_transpose((double *)to.data + b * n * n, a, n, n);
    }
    if (status == CORE_OK) {
        cpu_dense_write(&values);
        cpu_dense_write(&to);
    }
    free(a);
    free(iwork);
    cpu_dense_close(&from);
    cpu_dense_close(&values);
    cpu_dense_close(&to);
    return status;
}

/* ----------------------------------------------------- singular values -- */

typedef struct svd {
    int64_t m, n, k, columns, rows; /* U is m by columns, Vh rows by n */
    double *a, *u, *vt, *work;
    int lwork, *iwork;
    char job;
} svd;

static core_status svd_open(svd *job, const core_view *self, bool vectors,
                            bool full)
{
    int64_t m = self->sizes[self->ndim - 2], n = self->sizes[self->ndim - 1];
    int64_t k = m < n ? m : n, most = m < n ? n : m;
    int64_t work = 4 * k * k + 7 * k + most + 64 * (most + k) + 1;

    *job = (svd){.m = m,
                 .n = n,
                 .k = k,
                 .columns = full ? m : k,
                 .rows = full ? n : k,
                 .job = !vectors ? 'N'
                        : full   ? 'A'
                                 : 'S'};
    job->lwork = (int)(work < INT32_MAX ? work : INT32_MAX);
    job->a = cpu_allocate(m * n, sizeof(double));
    job->u = cpu_allocate(m * job->columns, sizeof(double));
    job->vt = cpu_allocate(job->rows * n, sizeof(double));
    job->work = cpu_allocate(job->lwork, sizeof(double));
    job->iwork = cpu_allocate(8 * k, sizeof(int));
    return job->a && job->u && job->vt && job->work && job->iwork
               ? CORE_OK
               : CORE_ERROR_OUT_OF_MEMORY;
}

static void svd_close(svd *job)
{
    free(job->a);
    free(job->u);
    free(job->vt);
    free(job->work);
    free(job->iwork);
}

static void unit(double *a, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++)
        a[i] = i % (n + 1) == 0;
}

/* One matrix, row-major; u and vh may be NULL. */
static core_status svd_run(svd *job, const core_call *call,
                           const cpu_lapack *lapack, int64_t matrix,
                           const double *a, double *u, double *s, double *vh)
{
    int m = (int)job->m, n = (int)job->n, rows = (int)job->rows, info = 0;
    core_status status;

    if (job->k == 0) {
        if (u)
            unit(u, job->columns == job->m ? job->m : 0);
        if (vh)
            unit(vh, job->rows == job->n ? job->n : 0);
        return CORE_OK;
    }
    status = check_finite(call, a, job->m * job->n, matrix);
    if (status != CORE_OK)
        return status;
    cpu_transpose(job->a, a, job->m, job->n);
    lapack->gesdd(&job->job, &m, &n, job->a, &m, s, job->u, &m, job->vt, &rows,
                  job->work, &job->lwork, job->iwork, &info, 1);
    if (info != 0)
        return diverged(call, matrix, info);
    if (u)
        cpu_transpose(u, job->u, job->columns, job->m);
    if (vh)
        cpu_transpose(vh, job->vt, job->n, job->rows);
    return CORE_OK;
}

/* _linalg_svd(A, full_matrices, compute_uv, *, driver) -> (U, S, Vh) */
static core_status launch_svd(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    bool vectors = cpu_int(&args[2]) != 0, full = cpu_int(&args[1]) != 0;
    cpu_dense from = {0}, u = {0}, s = {0}, vh = {0};
    const cpu_lapack *lapack;
    svd job;
    core_status status = svd_open(&job, self, vectors, full);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_lapack_open(call, job.k > 0 ? job.m * 8 : 0, job.n * 8,
                                 &lapack);
    if (status == CORE_OK)
        status = cpu_dense_read(self, CORE_F64, &from);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_F64, &s);
    if (status == CORE_OK && vectors)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &u);
    if (status == CORE_OK && vectors)
        status = cpu_dense_open(cpu_view(&results[2]), CORE_F64, &vh);
    for (int64_t b = 0; status == CORE_OK && b < cpu_matrices(self); b++)
        status =
            svd_run(&job, call, lapack, b,
                    (const double *)from.data + b * job.m * job.n,
                    vectors ? (double *)u.data + b * job.m * job.columns : NULL,
                    (double *)s.data + b * job.k,
                    vectors ? (double *)vh.data + b * job.rows * job.n : NULL);
    if (status == CORE_OK) {
        cpu_dense_write(&u);
        cpu_dense_write(&s);
        cpu_dense_write(&vh);
    }
    svd_close(&job);
    cpu_dense_close(&from);
    cpu_dense_close(&u);
    cpu_dense_close(&s);
    cpu_dense_close(&vh);
    return status;
}

/* --------------------------------------------------------- exponential -- */

/* The terms of the series that matter for a matrix of norm 1/2 or less: 2^-18 /
 * 18! is below the last bit. */
enum { TERMS = 18 };

static double largest_row(const double *a, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++) {
        double sum = 0;

        for (int64_t j = 0; j < n; j++)
            sum += fabs(a[i * n + j]);
        most = sum > most || sum != sum ? sum : most;
    }
    return most;
}

/* exp(a) = exp(a / 2^k)^(2^k); x and y are two more matrices.  a is
 * overwritten. */
static void exponential(double *a, double *to, double *x, int64_t n)
{
    double norm = largest_row(a, n);
    int halvings = 0;

    if (norm > .5 && isfinite(norm)) {
        frexp(norm, &halvings);
        halvings++;
    }
    for (int64_t i = 0; i < n * n; i++) {
        a[i] = ldexp(a[i], -halvings);
        to[i] = i % (n + 1) == 0;
    }
    /* Horner: 1 + a (1 + a/2 (1 + a/3 (…))) */
    for (int term = TERMS; term > 0; term--) {
        cpu_gemm_f64(false, false, n, n, n, 1.0 / term, a, n, to, n, 0, x, n);
        for (int64_t i = 0; i < n * n; i++)
            to[i] = x[i] + (i % (n + 1) == 0);
    }
    for (int k = 0; k < halvings; k++) {
        cpu_gemm_f64(false, false, n, n, n, 1, to, n, to, n, 0, x, n);
        memcpy(to, x, (size_t)(n * n) * sizeof *to);
    }
}

/* linalg_matrix_exp(self) */
static core_status launch_exponential(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    int64_t n = self->sizes[self->ndim - 1];
    double *a = cpu_allocate(2 * n * n, sizeof *a);
    cpu_dense from = {0}, to = {0};
    core_status status =
        a ? cpu_dense_read(self, CORE_F64, &from) : CORE_ERROR_OUT_OF_MEMORY;

    (void)call;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &to);
    for (int64_t b = 0; status == CORE_OK && b < cpu_matrices(self); b++) {
        memcpy(a, (const double *)from.data + b * n * n,
               (size_t)(n * n) * sizeof *a);
        exponential(a, (double *)to.data + b * n * n, a + n * n, n);
    }
    if (status == CORE_OK)
        cpu_dense_write(&to);
    free(a);
    cpu_dense_close(&from);
    cpu_dense_close(&to);
    return status;
}

#define WIDE (CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32))

static const cpu_kernel kernels[] = {
    {"_linalg_eigh", launch_eigh, NULL, {WIDE, WIDE, WIDE}, 0},
    {"_linalg_svd", launch_svd, NULL, {WIDE, WIDE, WIDE, WIDE}, 0},
    {"linalg_matrix_exp",
     launch_exponential,
     NULL,
     {CPU_FLOATS, CPU_FLOATS},
     0},
};

const cpu_kernel_table cpu_spectra_kernels = {kernels, sizeof kernels /
                                                           sizeof kernels[0]};
