/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The inner parts of gemm.h: sums of two vectors of columns for as many lines
 * as there are registers; each number of A is multiplied by all columns. */

#include "gemm.h"
#include "isa.h"
#include "move/transpose_tile.h"

#if defined(__AVX512F__)

enum { LINES = 12, WIDTH = 16 };
typedef __m512 vector;
typedef __mmask16 mask;
#define MASK(n) ((mask)((UINT32_C(1) << (n)) - 1))
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define LOAD_MASKED(m, p) _mm512_maskz_loadu_ps(m, p)
#define STORE_MASKED(m, p, v) _mm512_mask_storeu_ps(p, m, v)
#define SAME(x) _mm512_set1_ps(x)
#define MULTIPLY(a, b) _mm512_mul_ps(a, b)
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define ZERO _mm512_setzero_ps()
#define TRANSPOSE_TILE(a) cpu_transpose_16(a)
#define EACH_LINES(X) \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define WITH_VECTORS

#elif defined(__AVX2__) && defined(__FMA__)

enum { LINES = 6, WIDTH = 8 };
typedef __m256 vector;
typedef __m256i mask;
/* Ones and zeros from which masks are loaded. */
static const int32_t ones_and_zeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
#define MASK(n) _mm256_loadu_si256((const __m256i *)(ones_and_zeros + 8 - (n)))
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define LOAD_MASKED(m, p) _mm256_maskload_ps(p, m)
#define STORE_MASKED(m, p, v) _mm256_maskstore_ps(p, m, v)
#define SAME(x) _mm256_set1_ps(x)
#define MULTIPLY(a, b) _mm256_mul_ps(a, b)
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define ZERO _mm256_setzero_ps()
#define TRANSPOSE_TILE(a) cpu_transpose_8(a)
#define EACH_LINES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define WITH_VECTORS

#endif

#ifdef WITH_VECTORS

#define INLINE __attribute__((always_inline)) static inline

enum { COLUMNS = 2 * WIDTH, AHEAD = 8 /* rows of B that are prefetched */ };

/* Which columns are valid: all; all of the left vector and some of the right;
 * some of the left. */
enum { WHOLE, RIGHT_PARTIAL, LEFT_PARTIAL };

INLINE vector read_masked(const float *from, mask lanes, const bool whole)
{
    return whole ? LOAD(from) : LOAD_MASKED(lanes, from);
}

/* Writes the sums of some columns.  Not inlined, since it is rarely used and
 * would be most of the expanded code. */
static void finish_some(const gemm_lines *l, int64_t rows, int64_t columns,
                        const float *sums)
{
    const vector alpha = SAME(l->alpha), beta = SAME(l->beta);
    const bool adds = l->beta != 0;

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += WIDTH) {
            float *c = l->c + i * l->distance + j;
            mask lanes = MASK(columns - j < WIDTH ? columns - j : WIDTH);
            vector sum = MULTIPLY(LOAD(sums + i * COLUMNS + j), alpha);

            if (adds)
                sum = MULTIPLY_ADD(LOAD_MASKED(lanes, c), beta, sum);
            STORE_MASKED(lanes, c, sum);
        }
}

INLINE void finish_whole(const gemm_lines *l, const int rows,
                         vector sums[LINES][2])
{
    const vector alpha = SAME(l->alpha), beta = SAME(l->beta);
    const int64_t distance = l->distance;
    float *c = l->c;

#pragma GCC unroll 24
    for (int i = 0; i < 2 * rows; i++)
        sums[i / 2][i % 2] = MULTIPLY(sums[i / 2][i % 2], alpha);
    if (l->beta != 0)
#pragma GCC unroll 24
        for (int i = 0; i < 2 * rows; i++)
            sums[i / 2][i % 2] =
                MULTIPLY_ADD(LOAD(c + i / 2 * distance + i % 2 * WIDTH), beta,
                             sums[i / 2][i % 2]);
#pragma GCC unroll 24
    for (int i = 0; i < 2 * rows; i++)
        STORE(c + i / 2 * distance + i % 2 * WIDTH, sums[i / 2][i % 2]);
}

/* Expanded for each count of rows, so that the sums are in registers.  to: for
 * finish_some, unless which is WHOLE. */
INLINE void product_of(const gemm_lines *l, const int rows, const int which,
                       mask lanes, float *to)
{
    const int64_t row_a = l->row_a, step_a = l->step_a, step_b = l->step_b;
    const float *a = l->a, *b = l->b;
    vector sums[LINES][2];

#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        sums[i][0] = ZERO;
        sums[i][1] = ZERO;
        if (which == WHOLE) {
            __builtin_prefetch(l->c + i * l->distance);
            __builtin_prefetch(l->c + i * l->distance + WIDTH);
        }
    }
    for (int64_t k = l->k; k > 0; k--) {
        const vector left = read_masked(b, lanes, which != LEFT_PARTIAL);
        const vector right =
            which == LEFT_PARTIAL
                ? left
                : read_masked(b + WIDTH, lanes, which == WHOLE);

        __builtin_prefetch(b + AHEAD * step_b);
        __builtin_prefetch(b + AHEAD * step_b + WIDTH);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            const vector x = SAME(a[i * row_a]);

            sums[i][0] = MULTIPLY_ADD(x, left, sums[i][0]);
            if (which != LEFT_PARTIAL)
                sums[i][1] = MULTIPLY_ADD(x, right, sums[i][1]);
        }
        a += step_a;
        b += step_b;
    }
    if (which == WHOLE) {
        finish_whole(l, rows, sums);
        return;
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        STORE(to + i * COLUMNS, sums[i][0]);
        if (which == RIGHT_PARTIAL)
            STORE(to + i * COLUMNS + WIDTH, sums[i][1]);
    }
}

static void multiply(const gemm_lines *l, int64_t rows, int64_t columns)
{
    _Alignas(64) float sums[LINES * COLUMNS];

#define CASE_WHOLE(n)                               \
    case n:                                         \
        product_of(l, n, WHOLE, MASK(WIDTH), NULL); \
        break;
#define CASE_RIGHT(n)                                                 \
    case n:                                                           \
        product_of(l, n, RIGHT_PARTIAL, MASK(columns - WIDTH), sums); \
        break;
#define CASE_LEFT(n)                                         \
    case n:                                                  \
        product_of(l, n, LEFT_PARTIAL, MASK(columns), sums); \
        break;
    if (columns == COLUMNS) {
        switch (rows) {
            EACH_LINES(CASE_WHOLE)
        }
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        __builtin_prefetch(l->c + i * l->distance);
    if (columns > WIDTH)
        switch (rows) {
            EACH_LINES(CASE_RIGHT)
        }
    else
        switch (rows) {
            EACH_LINES(CASE_LEFT)
        }
    finish_some(l, rows, columns, sums);
}

/* So many columns are read at a time, because processors follow few streams; and
 * so many elements ahead, where a vector is a whole line of the cache. */
enum { STREAMS = 16, FAR = WIDTH == 16 ? 128 : 0 };

/* WIDTH columns by as many k. */
INLINE void transpose_block(float *to, const float *b, int64_t column_b)
{
    vector lines[WIDTH];

#pragma GCC unroll 16
    for (int i = 0; i < WIDTH; i++) {
        lines[i] = LOAD(b + i * column_b);
        if (FAR > 0)
            __builtin_prefetch(b + i * column_b + FAR);
    }
    TRANSPOSE_TILE(lines);
#pragma GCC unroll 16
    for (int i = 0; i < WIDTH; i++)
        STORE(to + i * COLUMNS, lines[i]);
}

static void transpose(float *to, const float *b, int64_t column_b,
                      int64_t count, int64_t k)
{
    int64_t p = k / WIDTH * WIDTH, whole = count / WIDTH * WIDTH;

    for (int64_t first = 0; first < whole; first += STREAMS)
        for (int64_t q = 0; q < p; q += WIDTH)
            for (int64_t j = first; j < whole && j < first + STREAMS;
                 j += WIDTH)
                transpose_block(to + q * COLUMNS + j, b + j * column_b + q,
                                column_b);
    for (int64_t q = 0; q < k; q++)
        for (int64_t j = q < p ? whole : 0; j < COLUMNS; j++)
            to[q * COLUMNS + j] = j < count ? b[j * column_b + q] : 0;
}

static void gather(float *to, const float *a, int64_t row_a, int64_t rows,
                   int64_t k)
{
    int64_t p = 0;

    for (; p + WIDTH <= k; p += WIDTH) {
        vector lines[WIDTH];

#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; i++)
            lines[i] = LOAD(a + (i < rows ? i : rows - 1) * row_a + p);
        TRANSPOSE_TILE(lines);
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; i++)
            STORE(to + (p + i) * rows, lines[i]);
    }
    for (; p < k; p++)
        for (int64_t i = 0; i < rows; i++)
            to[p * rows + i] = a[i * row_a + p];
}

const gemm_functions CPU_NAME(cpu_gemm_functions) = {LINES, COLUMNS, multiply,
                                                     transpose, gather};

#else

const gemm_functions CPU_NAME(cpu_gemm_functions) = {0, 0, NULL, NULL, NULL};

#endif
