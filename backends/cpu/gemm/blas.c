/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* OpenBLAS, opened lazily, and the product that is used without it. */

#include "blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/once.h"
#include "runtime/thread_pool.h"
#include "view.h"

/* -------------------------------------------------------------- library -- */

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

#define BLAS_TYPES(NAME, TYPE)                                               \
    typedef void (*gemm_##NAME)(int order, int transpose_a, int transpose_b, \
                                int m, int n, int k, TYPE alpha,             \
                                const TYPE *a, int lda, const TYPE *b,       \
                                int ldb, TYPE beta, TYPE *c, int ldc);       \
    typedef void (*gemv_##NAME)(                                             \
        int order, int transpose, int m, int n, TYPE alpha, const TYPE *a,   \
        int lda, const TYPE *x, int incx, TYPE beta, TYPE *y, int incy);
CPU_COMPUTE_FLOATS(BLAS_TYPES)

static struct {
    cpu_once_state once;
    gemm_f32 gemm_f32;
    gemm_f64 gemm_f64;
    gemv_f32 gemv_f32;
    gemv_f64 gemv_f64;
    char information[192];
} blas;

/* OpenBLAS starts a thread for each processor when it is opened, and maps a
 * buffer for each of its threads and of ours.  If it cannot, it tries for ever, so
 * that a product, or the end of the process, would not return. */
enum { BUFFER = 1 << 27, ITSELF = 1 << 26, STACK = 1 << 23 };

/* Without a limit of the address space it is not asked: the system gives memory
 * when it is used. */
static bool has_memory(void)
{
    const uint64_t threads =
        (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) + cpu_thread_pool_threads() + 1;
    const uint64_t size = ITSELF + threads * (BUFFER + STACK);
    struct rlimit limit;
    void *all;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return true;
    /* All at once, so that another thread does not lack it meanwhile. */
    all = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return false;
    munmap(all, size);
    return true;
}

static void open_library(void)
{
    void (*set_threads)(int) = NULL;
    char *(*configuration)(void) = NULL;
    const char *reason = "too little memory for the buffers of OpenBLAS";
    void *library =
        has_memory() ? cpu_once_open("libopenblas.so.0", &reason) : NULL;

    if (!library)
        goto none;
    if (!cpu_once_find(library, "openblas_set_num_threads", &set_threads) ||
        !cpu_once_find(library, "cblas_sgemm", &blas.gemm_f32) ||
        !cpu_once_find(library, "cblas_dgemm", &blas.gemm_f64) ||
        !cpu_once_find(library, "cblas_sgemv", &blas.gemv_f32) ||
        !cpu_once_find(library, "cblas_dgemv", &blas.gemv_f64)) {
        reason = "libopenblas.so.0 lacks its CBLAS functions";
        goto none;
    }
    set_threads(1);
    if (cpu_once_find(library, "openblas_get_config", &configuration))
        snprintf(blas.information, sizeof blas.information, "%s",
                 configuration());
    else
        snprintf(blas.information, sizeof blas.information, "OpenBLAS");
    return;
none:
    blas.gemm_f32 = NULL;
    blas.gemm_f64 = NULL;
    snprintf(blas.information, sizeof blas.information,
             "built-in matrix product: %s", reason ? reason : "no library");
    if (library)
        dlclose(library);
}

const char *cpu_blas_information(void)
{
    cpu_once(&blas.once, open_library);
    return blas.information;
}

/* ------------------------------------------------------------- built in -- */

/* Below this many multiply-adds a call of the library costs more than it
 * saves. */
enum { SMALL = 256 };

/* Rows of B stay in the cache while all rows of A are processed. */
enum { BLOCK_K = 128, BLOCK_N = 512 };

#define SCALE(NAME, TYPE)                                               \
    static void scale_##NAME(int64_t m, int64_t n, TYPE beta, TYPE *c,  \
                             int64_t ldc)                               \
    {                                                                   \
        for (int64_t i = 0; i < m && beta != 1; i++)                    \
            for (int64_t j = 0; j < n; j++)                             \
                c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j]; \
    }

/* C += alpha A B^T, as dot products. */
#define DOTS(NAME, TYPE)                                                      \
    static void dots_##NAME(int64_t m, int64_t n, int64_t k, TYPE alpha,      \
                            const TYPE *a, int64_t row_a, int64_t step_a,     \
                            const TYPE *b, int64_t ldb, TYPE *c, int64_t ldc) \
    {                                                                         \
        for (int64_t i = 0; i < m; i++)                                       \
            for (int64_t j = 0; j < n; j++) {                                 \
                TYPE sum = 0;                                                 \
                for (int64_t p = 0; p < k; p++)                               \
                    sum += a[i * row_a + p * step_a] * b[j * ldb + p];        \
                c[i * ldc + j] += alpha * sum;                                \
            }                                                                 \
    }

/* C += alpha A B, a block of B's rows at a time. */
#define AXPYS(NAME, TYPE)                                                      \
    static void axpys_##NAME(int64_t m, int64_t n, int64_t k, TYPE alpha,      \
                             const TYPE *a, int64_t row_a, int64_t step_a,     \
                             const TYPE *b, int64_t ldb, TYPE *c, int64_t ldc) \
    {                                                                          \
        for (int64_t p0 = 0; p0 < k; p0 += BLOCK_K)                            \
            for (int64_t j0 = 0; j0 < n; j0 += BLOCK_N) {                      \
                int64_t p1 = p0 + BLOCK_K < k ? p0 + BLOCK_K : k;              \
                int64_t j1 = j0 + BLOCK_N < n ? j0 + BLOCK_N : n;              \
                for (int64_t i = 0; i < m; i++)                                \
                    for (int64_t p = p0; p < p1; p++) {                        \
                        TYPE factor = alpha * a[i * row_a + p * step_a];       \
                        const TYPE *from = b + p * ldb;                        \
                        TYPE *to = c + i * ldc;                                \
                        for (int64_t j = j0; j < j1; j++)                      \
                            to[j] += factor * from[j];                         \
                    }                                                          \
            }                                                                  \
    }

#define BUILT_IN(NAME, TYPE)                                                \
    SCALE(NAME, TYPE)                                                       \
    DOTS(NAME, TYPE)                                                        \
    AXPYS(NAME, TYPE)                                                       \
    static void built_in_##NAME(bool ta, bool tb, int64_t m, int64_t n,     \
                                int64_t k, TYPE alpha, const TYPE *a,       \
                                int64_t lda, const TYPE *b, int64_t ldb,    \
                                TYPE beta, TYPE *c, int64_t ldc)            \
    {                                                                       \
        int64_t row_a = ta ? 1 : lda, step_a = ta ? lda : 1;                \
        scale_##NAME(m, n, beta, c, ldc);                                   \
        if (tb)                                                             \
            dots_##NAME(m, n, k, alpha, a, row_a, step_a, b, ldb, c, ldc);  \
        else                                                                \
            axpys_##NAME(m, n, k, alpha, a, row_a, step_a, b, ldb, c, ldc); \
    }
CPU_COMPUTE_FLOATS(BUILT_IN)
BUILT_IN(i64, uint64_t) /* wraps, like integers here */

/* ------------------------------------------------------------- one tile -- */

static bool fits_int(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb,
                     int64_t ldc)
{
    return (m | n | k | lda | ldb | ldc) <= INT_MAX;
}

#define ONE_TILE(NAME, TYPE)                                                   \
    void cpu_gemm_##NAME(bool ta, bool tb, int64_t m, int64_t n, int64_t k,    \
                         TYPE alpha, const TYPE *a, int64_t lda,               \
                         const TYPE *b, int64_t ldb, TYPE beta, TYPE *c,       \
                         int64_t ldc)                                          \
    {                                                                          \
        if (m <= 0 || n <= 0)                                                  \
            return;                                                            \
        if (k <= 0 || m * n * k <= SMALL) {                                    \
            built_in_##NAME(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c,   \
                            ldc);                                              \
            return;                                                            \
        }                                                                      \
        cpu_once(&blas.once, open_library);                                    \
        if (!blas.gemm_##NAME || !fits_int(m, n, k, lda, ldb, ldc))            \
            built_in_##NAME(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c,   \
                            ldc);                                              \
        else if (n == 1)                                                       \
            blas.gemv_##NAME(ROW_MAJOR, ta ? TRANSPOSE : NO_TRANSPOSE,         \
                             (int)(ta ? k : m), (int)(ta ? m : k), alpha, a,   \
                             (int)lda, b, tb ? 1 : (int)ldb, beta, c,          \
                             (int)ldc);                                        \
        else if (m == 1)                                                       \
            blas.gemv_##NAME(ROW_MAJOR, tb ? NO_TRANSPOSE : TRANSPOSE,         \
                             (int)(tb ? n : k), (int)(tb ? k : n), alpha, b,   \
                             (int)ldb, a, ta ? (int)lda : 1, beta, c, 1);      \
        else                                                                   \
            blas.gemm_##NAME(ROW_MAJOR, ta ? TRANSPOSE : NO_TRANSPOSE,         \
                             tb ? TRANSPOSE : NO_TRANSPOSE, (int)m, (int)n,    \
                             (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, \
                             (int)ldc);                                        \
    }
CPU_COMPUTE_FLOATS(ONE_TILE)

void cpu_gemm_i64(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                  int64_t alpha, const int64_t *a, int64_t lda,
                  const int64_t *b, int64_t ldb, int64_t beta, int64_t *c,
                  int64_t ldc)
{
    built_in_i64(ta, tb, m, n, k, (uint64_t)alpha, (const uint64_t *)a, lda,
                 (const uint64_t *)b, ldb, (uint64_t)beta, (uint64_t *)c, ldc);
}

/* ---------------------------------------------------------------- tiles -- */

/* The multiply-adds above which a problem is split, and above which a tile is:
 * each tile packs its own operands, so there should be few, but enough for some
 * threads.  No side of a tile falls below a limit.  A matrix-vector product
 * packs nothing: it is limited by memory. */
enum { WORK_WHOLE = 1 << 23, WORK_TILE = 1 << 25, WORK_VECTOR = 1 << 18 };
enum { SIDE_WHOLE = 128, SIDE_TILE = 256, TILES_MOST = 256 };

void cpu_gemm_tiles(int64_t m, int64_t n, int64_t k, int64_t *rows,
                    int64_t *columns)
{
    int64_t height = m, width = n, tiles = 1;

    while (tiles < TILES_MOST) {
        int64_t work = tiles > 1 ? WORK_TILE : WORK_WHOLE;
        int64_t side = tiles > 1 ? SIDE_TILE : SIDE_WHOLE;

        if (m == 1 || n == 1) {
            work = WORK_VECTOR;
            side = SIDE_WHOLE;
        }
        if (height * width * (k > 0 ? k : 1) <= work ||
            (height < 2 * side && width < 2 * side))
            break;
        if (height > width)
            height = (height / 2 + 15) / 16 * 16;
        else
            width = (width / 2 + 15) / 16 * 16;
        tiles = ((m + height - 1) / height) * ((n + width - 1) / width);
    }
    *rows = height > 0 ? height : 1;
    *columns = width > 0 ? width : 1;
}
