/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* blas.h: products of dense matrices.
 *
 * OpenBLAS is opened at the first product of some size, and is limited to
 * one thread: this backend distributes tiles of the result, whose shape
 * depends on the problem alone.  Without it a built-in product is used. */

#ifndef CPU_BLAS_H
#define CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* C = alpha op(A) op(B) + beta C, everything row-major with the given distance
 * between rows; op(A) is m x k, op(B) k x n.  With beta 0 C is not read.
 * Computed in the calling thread. */
#define CPU_GEMM(NAME, TYPE)                                                 \
    void cpu_gemm_##NAME(bool transpose_a, bool transpose_b, int64_t m,      \
                         int64_t n, int64_t k, TYPE alpha, const TYPE *a,    \
                         int64_t lda, const TYPE *b, int64_t ldb, TYPE beta, \
                         TYPE *c, int64_t ldc);
CPU_GEMM(f32, float)
CPU_GEMM(f64, double)
CPU_GEMM(i64, int64_t)
#undef CPU_GEMM

/* Returns the sides of the tiles of an m x n result.  Depends on the problem
 * alone. */
void cpu_gemm_tiles(int64_t m, int64_t n, int64_t k, int64_t *rows,
                    int64_t *columns);

/* Returns "OpenBLAS 0.3.21 …", or why the built-in product is used.  Opens the
 * library. */
const char *cpu_blas_information(void);

#endif
