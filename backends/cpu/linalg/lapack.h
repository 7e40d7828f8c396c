/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* lapack.h: LAPACK's factorizations in f64, from the library that blas.h
 * opens.
 *
 * Matrices are column-major, numbers are passed by address, and the lengths
 * of characters come last, as in Fortran. */

#ifndef CPU_LAPACK_H
#define CPU_LAPACK_H

#include <libcore/kernel.h>

#include <stddef.h>
#include <stdint.h>

typedef struct cpu_lapack {
    void (*getrf)(const int *m, const int *n, double *a, const int *lda,
                  int *pivots, int *info);
    void (*getrs)(const char *transpose, const int *n, const int *columns,
                  const double *a, const int *lda, const int *pivots, double *b,
                  const int *ldb, int *info, size_t);
    void (*geqrf)(const int *m, const int *n, double *a, const int *lda,
                  double *tau, double *work, const int *lwork, int *info);
    void (*sytrf)(const char *half, const int *n, double *a, const int *lda,
                  int *pivots, double *work, const int *lwork, int *info,
                  size_t);
    void (*sytrs)(const char *half, const int *n, const int *columns,
                  const double *a, const int *lda, const int *pivots, double *b,
                  const int *ldb, int *info, size_t);
    void (*syevd)(const char *job, const char *half, const int *n, double *a,
                  const int *lda, double *values, double *work,
                  const int *lwork, int *iwork, const int *liwork, int *info,
                  size_t, size_t);
    void (*gesdd)(const char *job, const int *m, const int *n, double *a,
                  const int *lda, double *s, double *u, const int *ldu,
                  double *vt, const int *ldvt, double *work, const int *lwork,
                  int *iwork, int *info, size_t);
} cpu_lapack;

/* Opens the library; without it, reports UNSUPPORTED for the operator.  Refuses
 * sizes that exceed Fortran's integers. */
core_status cpu_lapack_open(const core_call *call, int64_t m, int64_t n,
                            const cpu_lapack **out_lapack);

/* Converts a row-major m by n matrix to column-major; the other way around with
 * m and n exchanged. */
void cpu_transpose(double *to, const double *from, int64_t m, int64_t n);

/* Returns the number of matrices in the batches of a view. */
int64_t cpu_matrices(const core_view *view);

#endif
