/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Factorizations by elimination (LU, LDLᵀ) and reflection, and what is computed
 * from them: inverses, determinants. */

#include <math.h>
#include <stdlib.h>

#include "lapack.h"
#include "tables.h"
#include "view.h"

static bool truth(const core_value *value)
{
    return value->tag != CORE_VALUE_NONE && value->u.i != 0;
}

/* Of the last two dimensions. */
static int64_t rows_of(const core_view *view)
{
    return view->sizes[view->ndim - 2];
}

static int64_t columns_of(const core_view *view)
{
    return view->sizes[view->ndim - 1];
}

static core_status singular(const core_call *call, int64_t matrix, int place)
{
    core_string name = cpu_operator(call);

    return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                     "%.*s: matrix %lld is singular: its pivot %d is 0",
                     (int)name.size, name.data, (long long)matrix, place);
}

/* -------------------------------------------------------------------- LU -- */

/* Without row exchanges; column-major, like LAPACK. */
static int eliminate(double *a, int64_t m, int64_t n, int *pivots)
{
    int64_t steps = m < n ? m : n;
    int info = 0;

    for (int64_t k = 0; k < steps; k++) {
        pivots[k] = (int)k + 1;
        if (a[k * m + k] == 0) {
            info = info ? info : (int)k + 1;
            continue;
        }
        for (int64_t i = k + 1; i < m; i++)
            a[k * m + i] /= a[k * m + k];
        for (int64_t j = k + 1; j < n; j++)
            for (int64_t i = k + 1; i < m; i++)
                a[j * m + i] -= a[k * m + i] * a[j * m + k];
    }
    return info;
}

/* Factorizes a column-major matrix in place; returns the first pivot that is 0,
 * counted from 1, or 0. */
static int factor(const cpu_lapack *lapack, double *a, int64_t m, int64_t n,
                  bool exchange, int *pivots)
{
    int rows = (int)m, columns = (int)n, lda = rows > 1 ? rows : 1, info = 0;

    if (m == 0 || n == 0)
        return 0;
    if (!exchange)
        return eliminate(a, m, n, pivots);
    lapack->getrf(&rows, &columns, a, &lda, pivots, &info);
    return info > 0 ? info : 0;
}

/* linalg_lu_factor_ex(A, *, pivot, check_errors) -> (LU, pivots, info) */
static core_status launch_lu(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    int64_t m = rows_of(self), n = columns_of(self), k = m < n ? m : n;
    double *a = cpu_allocate(m * n, sizeof *a);
    cpu_dense lu = {0}, pivots = {0}, info = {0};
    const cpu_lapack *lapack;
    core_status status = cpu_lapack_open(call, m, n, &lapack);

    (void)nargs;
    (void)nresults;
    if (!a)
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK)
        status = cpu_dense_copy(cpu_view(&results[0]), self, CORE_F64, &lu);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I32, &pivots);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[2]), CORE_I32, &info);
    for (int64_t b = 0; status == CORE_OK && b < cpu_matrices(self); b++) {
        double *own = (double *)lu.data + b * m * n;
        int failed;

        cpu_transpose(a, own, m, n);
        failed = factor(lapack, a, m, n, truth(&args[1]),
                        (int *)pivots.data + b * k);
        cpu_transpose(own, a, n, m);
        ((int32_t *)info.data)[b] = failed;
        if (failed && truth(&args[2]))
            status = singular(call, b, failed);
    }
    if (status == CORE_OK) {
        cpu_dense_write(&lu);
        cpu_dense_write(&pivots);
        cpu_dense_write(&info);
    }
    free(a);
    cpu_dense_close(&lu);
    cpu_dense_close(&pivots);
    cpu_dense_close(&info);
    return status;
}

/* _lu_permutation(pivots, rows, dtype): the matrix P of A = P L U */
static core_status launch_permutation(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core_view *pivots = cpu_view(&args[0]);
    int64_t m = cpu_int(&args[1]), k = pivots->sizes[pivots->ndim - 1];
    int64_t *order = cpu_allocate(m, sizeof *order);
    cpu_dense at = {0}, p = {0};
    core_status status = order ? cpu_dense_read(pivots, CORE_I64, &at)
                               : CORE_ERROR_OUT_OF_MEMORY;
    int64_t count;

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &p);
    count = status == CORE_OK ? cpu_view(&results[0])->numel / (m * m) : 0;
    for (int64_t b = 0; status == CORE_OK && b < count; b++) {
        double *to = (double *)p.data + b * m * m;

        for (int64_t i = 0; i < m; i++)
            order[i] = i;
        for (int64_t i = 0; status == CORE_OK && i < k; i++) {
            int64_t other = ((const int64_t *)at.data)[b * k + i] - 1;
            int64_t row = order[i];

            if (other < 0 || other >= m) {
                status = cpu_index_error(call, "LU_pivots", other + 1, m,
                                         pivots->ndim - 1);
                break;
            }
            order[i] = order[other];
            order[other] = row;
        }
        memset(to, 0, (size_t)(m * m) * sizeof *to);
        for (int64_t i = 0; status == CORE_OK && i < m; i++)
            to[order[i] * m + i] = 1;
    }
    if (status == CORE_OK)
        cpu_dense_write(&p);
    free(order);
    cpu_dense_close(&at);
    cpu_dense_close(&p);
    return status;
}

/* ---------------------------------------------- inverses, determinants -- */

/* linalg_inv_ex(A, *, check_errors) -> (inverse, info): the result for a
 * singular matrix is not finite */
static core_status launch_inverse(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    int64_t n = columns_of(self);
    int order = (int)n, ignored;
    double *a = cpu_allocate(2 * n * n, sizeof *a), *x = a + n * n;
    int *pivots = cpu_allocate(n, sizeof *pivots);
    cpu_dense inverse = {0}, info = {0};
    const cpu_lapack *lapack;
    core_status status = cpu_lapack_open(call, n, n, &lapack);

    (void)nargs;
    (void)nresults;
    if (!a || !pivots)
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK)
        status =
            cpu_dense_copy(cpu_view(&results[0]), self, CORE_F64, &inverse);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I32, &info);
    for (int64_t b = 0; status == CORE_OK && b < cpu_matrices(self); b++) {
        double *own = (double *)inverse.data + b * n * n;
        int failed;

        cpu_transpose(a, own, n, n);
        failed = factor(lapack, a, n, n, true, pivots);
        ((int32_t *)info.data)[b] = failed;
        if (failed && truth(&args[1]))
            status = singular(call, b, failed);
        for (int64_t i = 0; i < n * n; i++)
            x[i] = i % (n + 1) == 0;
        if (n > 0)
            lapack->getrs("N", &order, &order, a, &order, pivots, x, &order,
                          &ignored, 1);
        cpu_transpose(own, x, n, n);
    }
    if (status == CORE_OK) {
        cpu_dense_write(&inverse);
        cpu_dense_write(&info);
    }
    free(a);
    free(pivots);
    cpu_dense_close(&inverse);
    cpu_dense_close(&info);
    return status;
}

/* The product of the pivots, or its sign and the sum of their logarithms. */
static double determinant(const double *lu, const int *pivots, int64_t n,
                          bool logarithm, double *out_logarithm)
{
    double product = 1, sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = lu[i * n + i];

        if (pivots[i] != i + 1)
            product = -product;
        sum += log(fabs(x));
        product *= !logarithm ? x : x < 0 ? -1 : x > 0 ? 1 : x;
    }
    *out_logarithm = sum;
    return product;
}

/* _linalg_det(A) -> (result, LU, pivots); call->user: _linalg_slogdet(A) ->
 * (sign, logabsdet, LU, pivots).  Factorizes the transpose if A is row-major,
 * so that nothing has to be transposed. */
static core_status launch_determinant(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    bool log = call->user != NULL, turned = self->flags & CORE_VIEW_CONTIGUOUS;
    const core_value *factors = results + (log ? 2 : 1);
    int64_t n = columns_of(self);
    double *a = cpu_allocate(n * n, sizeof *a), logarithm;
    cpu_dense det = {0}, logs = {0}, lu = {0}, pivots = {0};
    const cpu_lapack *lapack;
    core_status status = cpu_lapack_open(call, n, n, &lapack);

    (void)nargs;
    (void)nresults;
    if (!a)
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &det);
    if (status == CORE_OK && log)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_F64, &logs);
    if (status == CORE_OK)
        status = cpu_dense_copy(cpu_view(&factors[0]), self, CORE_F64, &lu);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&factors[1]), CORE_I32, &pivots);
    for (int64_t b = 0; status == CORE_OK && b < cpu_matrices(self); b++) {
        double *own = (double *)lu.data + b * n * n;
        int *order = (int *)pivots.data + b * n;

        if (turned && n > 0)
            memcpy(a, own, (size_t)(n * n) * sizeof *a);
        else
            cpu_transpose(a, own, n, n);
        factor(lapack, a, n, n, true, order);
        cpu_transpose(own, a, n, n);
        ((double *)det.data)[b] = determinant(a, order, n, log, &logarithm);
        if (log)
            ((double *)logs.data)[b] = logarithm;
    }
    if (status == CORE_OK) {
        cpu_dense_write(&det);
        cpu_dense_write(&logs);
        cpu_dense_write(&lu);
        cpu_dense_write(&pivots);
    }
    free(a);
    cpu_dense_close(&det);
    cpu_dense_close(&logs);
    cpu_dense_close(&lu);
    cpu_dense_close(&pivots);
    return status;
}

/* ------------------------------------------------------------------ LDLᵀ -- */

/* linalg_ldl_factor_ex(self, *, hermitian, check_errors) -> (LD, pivots,
 * info): of the lower triangle */
static core_status launch_ldl(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    int64_t n = columns_of(self);
    int order = (int)n, lwork = (int)(64 * n + 1), failed;
    double *a = cpu_allocate(n * n + lwork, sizeof *a);
    cpu_dense ld = {0}, pivots = {0}, info = {0};
    const cpu_lapack *lapack;
    core_status status = cpu_lapack_open(call, n * 64, n, &lapack);

    (void)nargs;
    (void)nresults;
    if (!a)
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK)
        status = cpu_dense_copy(cpu_view(&results[0]), self, CORE_F64, &ld);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I32, &pivots);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[2]), CORE_I32, &info);
    for (int64_t b = 0; status == CORE_OK && b < cpu_matrices(self); b++) {
        double *own = (double *)ld.data + b * n * n;

        failed = 0;
        cpu_transpose(a, own, n, n);
        if (n > 0)
            lapack->sytrf("L", &order, a, &order, (int *)pivots.data + b * n,
                          a + n * n, &lwork, &failed, 1);
        cpu_transpose(own, a, n, n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++)
                own[i * n + j] = 0;
        ((int32_t *)info.data)[b] = failed;
        if (failed && truth(&args[2]))
            status = singular(call, b, failed);
    }
    if (status == CORE_OK) {
        cpu_dense_write(&ld);
        cpu_dense_write(&pivots);
        cpu_dense_write(&info);
    }
    free(a);
    cpu_dense_close(&ld);
    cpu_dense_close(&pivots);
    cpu_dense_close(&info);
    return status;
}

/* Checks that a factorization could have produced the pivots: LAPACK does
 * not. */
static core_status check_pivots(const core_call *call, const int *pivots,
                                int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t p = pivots[i] < 0 ? -(int64_t)pivots[i] : pivots[i];

        if (p < 1 || p > n)
            return cpu_index_error(call, "pivots", pivots[i], n, 0);
        if (pivots[i] < 0 && (i + 1 == n || pivots[i + 1] != pivots[i]))
            return cpu_index_error(call, "pivots", pivots[i], n, 0);
        i += pivots[i] < 0;
    }
    return CORE_OK;
}

/* _linalg_ldl_solve(LD, pivots, B, *, hermitian): batches have been expanded */
static core_status launch_ldl_solve(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    int64_t n = rows_of(result), k = columns_of(result);
    int order = (int)n, columns = (int)k, failed;
    double *a = cpu_allocate(n * n + n * k, sizeof *a), *x = a + n * n;
    cpu_dense ld = {0}, pivots = {0}, b = {0};
    const cpu_lapack *lapack;
    core_status status = cpu_lapack_open(call, n, k, &lapack);

    (void)nargs;
    (void)nresults;
    if (!a)
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[0]), CORE_F64, &ld);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[1]), CORE_I32, &pivots);
    if (status == CORE_OK)
        status = cpu_dense_copy(result, cpu_view(&args[2]), CORE_F64, &b);
    for (int64_t i = 0; status == CORE_OK && i < cpu_matrices(result); i++) {
        const int *own = (const int *)pivots.data + i * n;
        double *to = (double *)b.data + i * n * k;

        status = check_pivots(call, own, n);
        if (status != CORE_OK)
            break;
        cpu_transpose(a, (const double *)ld.data + i * n * n, n, n);
        cpu_transpose(x, to, n, k);
        lapack->sytrs("L", &order, &columns, a, &order, own, x, &order, &failed,
                      1);
        cpu_transpose(to, x, k, n);
    }
    if (status == CORE_OK)
        cpu_dense_write(&b);
    free(a);
    cpu_dense_close(&ld);
    cpu_dense_close(&pivots);
    cpu_dense_close(&b);
    return status;
}

/* --------------------------------------------------------- reflections -- */

/* geqrf(self) -> (a, tau): R above, the reflections below */
static core_status launch_reflections(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    int64_t m = rows_of(self), n = columns_of(self), k = m < n ? m : n;
    int rows = (int)m, columns = (int)n, lwork = (int)(32 * n + 1), failed;
    double *x = cpu_allocate(m * n + lwork, sizeof *x);
    cpu_dense a = {0}, tau = {0};
    const cpu_lapack *lapack;
    core_status status = cpu_lapack_open(call, m, 32 * n, &lapack);

    (void)nargs;
    (void)nresults;
    if (!x)
        status = CORE_ERROR_OUT_OF_MEMORY;
    if (status == CORE_OK)
        status = cpu_dense_copy(cpu_view(&results[0]), self, CORE_F64, &a);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_F64, &tau);
    for (int64_t b = 0; status == CORE_OK && k > 0 && b < cpu_matrices(self);
         b++) {
        double *own = (double *)a.data + b * m * n;

        cpu_transpose(x, own, m, n);
        lapack->geqrf(&rows, &columns, x, &rows, (double *)tau.data + b * k,
                      x + m * n, &lwork, &failed);
        cpu_transpose(own, x, n, m);
    }
    if (status == CORE_OK) {
        cpu_dense_write(&a);
        cpu_dense_write(&tau);
    }
    free(x);
    cpu_dense_close(&a);
    cpu_dense_close(&tau);
    return status;
}

#define WIDE (CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32))
#define I32 CORE_DTYPE_MASK(CORE_I32)

static const cpu_kernel kernels[] = {
    {"linalg_lu_factor_ex", launch_lu, NULL, {WIDE, WIDE, I32, I32}, 0},
    {"_lu_permutation", launch_permutation, NULL, {I32, CPU_ALL}, 0},
    {"linalg_inv_ex", launch_inverse, NULL, {WIDE, WIDE, I32}, 0},
    {"_linalg_det", launch_determinant, NULL, {WIDE, WIDE, WIDE, I32}, 0},
    {"_linalg_slogdet",
     launch_determinant,
     (void *)1,
     {WIDE, WIDE, WIDE, WIDE, I32},
     0},
    {"linalg_ldl_factor_ex", launch_ldl, NULL, {WIDE, WIDE, I32, I32}, 0},
    {"_linalg_ldl_solve", launch_ldl_solve, NULL, {WIDE, I32, WIDE, WIDE}, 0},
    {"geqrf", launch_reflections, NULL, {WIDE, WIDE, WIDE}, 0},
};

const cpu_kernel_table cpu_factors_kernels = {kernels, sizeof kernels /
                                                           sizeof kernels[0]};
