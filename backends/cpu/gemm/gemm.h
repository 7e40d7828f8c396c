/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gemm.h: products of f32 matrices by this backend's own kernels, where they
 * are faster than the library of blas.h.
 *
 * B is read in place if that is free; otherwise a block of it is packed.  If
 * GEMM_BLOCK_K rows of a panel of columns fit in the first-level cache, so does
 * that panel while a block of packed rows of A passes, which stays in the
 * second-level cache; otherwise the block of B does while all rows of A, in
 * place, are processed.  The sides of blocks follow from the size of that
 * cache.  A sum runs along k in one order, split at multiples of GEMM_BLOCK_K:
 * its bits do not depend on blocks, tiles, the layout of the operands, the
 * number of threads, or the available memory. */

#ifndef CPU_GEMM_H
#define CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* Strides in elements: A[i][p] = a[i * row_a + p * step_a], B[p][j] =
 * b[p * step_b + j * column_b].  C is row-major and shares no memory with
 * them. */
typedef struct gemm_problem {
    int64_t m, n, k;
    const float *a;
    int64_t row_a, step_a;
    const float *b;
    int64_t step_b, column_b;
    float *c;
    int64_t distance;
    float alpha, beta; /* C = alpha A B + beta C; with 0 C is not read */
    /* NULL, or is called for each part of C that is finished. */
    void (*finished)(void *context, int64_t row, int64_t rows, int64_t column,
                     int64_t columns);
    void *context;
} gemm_problem;

/* Returns whether these kernels should compute a product of this size on this
 * machine. */
bool cpu_gemm_is_faster(int64_t m, int64_t n, int64_t k);

/* Computes a product, or a part of one that cpu_gemm_is_faster accepts, in the
 * calling thread; more slowly without memory to pack operands.  Returns false,
 * with C unchanged, if neither rows nor columns of an operand are dense, a side
 * is 0, alpha is 0, or this machine has no kernels. */
bool cpu_gemm_multiply(const gemm_problem *problem);

/* For tests: products assume a second-level cache of so many bytes; 0: that of
 * the processor. */
void cpu_gemm_assume_cache(int64_t bytes);

/* ------------------------------------------------ per instruction set -- */

enum {
    GEMM_BLOCK_K = 384,
    GEMM_LINES_MOST = 12,
    GEMM_COLUMNS_MOST = 32,
    GEMM_GATHER_BEYOND = 16
};

/* Some lines of C: c[i][j] = alpha sum_p a[i * row_a + p * step_a] *
 * b[p * step_b + j] + beta c[i][j]. */
typedef struct gemm_lines {
    const float *a;
    int64_t row_a, step_a;
    const float *b;
    int64_t step_b, k;
    float *c;
    int64_t distance;
    float alpha, beta;
} gemm_lines;

typedef struct gemm_functions {
    int64_t lines, columns; /* at once */
    /* rows: at most `lines`; columns: at most `columns`; only these of b and c
     * are accessed. */
    void (*multiply)(const gemm_lines *lines, int64_t rows, int64_t columns);
    /* `columns` columns of B, each dense along p, side by side: to[p *
     * columns + j] = b[j * column_b + p]; 0 beyond `count`. */
    void (*transpose)(float *to, const float *b, int64_t column_b,
                      int64_t count, int64_t k);
    /* At most `lines` rows of A, each dense along p, side by side: to[p * rows
     * + i] = a[i * row_a + p].  Writes up to GEMM_GATHER_BEYOND more. */
    void (*gather)(float *to, const float *a, int64_t row_a, int64_t rows,
                   int64_t k);
} gemm_functions;

/* NULL functions: not available in this instruction set. */
extern const gemm_functions cpu_gemm_functions_baseline,
    cpu_gemm_functions_avx2, cpu_gemm_functions_avx512;

#endif
