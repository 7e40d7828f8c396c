/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reducers.c: reducers that combine mapped elements by one operation, in any
 * order: sums, products, extremes, tests, norms.
 *
 * A run is combined in LANES independent lanes, which are then folded in
 * halves, so that the result does not depend on the width of vectors.  Sums
 * of f32 are added to a wider type after at most a run or a group of rows;
 * sums of f64 carry their rounding error. */

#include "reduce.h"

#include <math.h>
#include <string.h>

#include <expressions/number.h>

#include "bf16/pair.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { LANES = 64, FEW = 16, FOLDED = 4 };

/* Lanes from FIRST on, so few that no loop remains: between two of these the
 * lanes stay in registers. */
#define TAKE_IN(FIRST, COMBINE, MAP) \
    for (j = 0; j < FEW; j++)        \
        lanes[FIRST + j] = COMBINE(lanes[FIRST + j], MAP(x[k + FIRST + j]));

/* Halves the number of lanes. */
#define FOLD(HALF, COMBINE)    \
    for (j = 0; j < HALF; j++) \
        lanes[j] = COMBINE(lanes[j], lanes[j + HALF]);

/* The first FOLDED lanes of n > FEW elements of x. */
#define FILL_LANES(MAP, COMBINE)                             \
    if (n < LANES) {                                         \
        for (k = 0; k < FEW; k++)                            \
            lanes[k] = MAP(x[k]);                            \
        for (k = FEW; k + FEW <= n; k += FEW)                \
            for (j = 0; j < FEW; j++)                        \
                lanes[j] = COMBINE(lanes[j], MAP(x[k + j])); \
        for (j = 0; j < n - k; j++)                          \
            lanes[j] = COMBINE(lanes[j], MAP(x[k + j]));     \
    } else {                                                 \
        for (k = 0; k < LANES; k++)                          \
            lanes[k] = MAP(x[k]);                            \
        for (k = LANES; k + LANES <= n; k += LANES) {        \
            TAKE_IN(0, COMBINE, MAP)                         \
            TAKE_IN(FEW, COMBINE, MAP)                       \
            TAKE_IN(2 * FEW, COMBINE, MAP)                   \
            TAKE_IN(3 * FEW, COMBINE, MAP)                   \
        }                                                    \
        for (j = 0; j < n - k; j++)                          \
            lanes[j] = COMBINE(lanes[j], MAP(x[k + j]));     \
        FOLD(LANES / 2, COMBINE)                             \
        FOLD(LANES / 4, COMBINE)                             \
    }                                                        \
    FOLD(FEW / 2, COMBINE)                                   \
    FOLD(FEW / 4, COMBINE)

/* Defines run, rows and merge of a reducer named NAME_TYPE.
 *
 * TYPE: of the elements; LANE: what they are mapped to by MAP(x); WORD: d or
 * i.  COMBINE(a, b): of lanes, a found before b.  TAKE(w, n, k, x) takes a lane
 * x into the words of output k. */
#define REDUCER(NAME, TYPE, LANE, MAP, COMBINE, TAKE, MERGE)               \
    REDUCER_FROM(FILL_LANES(MAP, COMBINE), NAME, TYPE, LANE, MAP, COMBINE, \
                 TAKE, MERGE)

/* The same for rarely used reducers: the last elements one by one, because
 * vectors of them are long code. */
#define RARE_REDUCER(NAME, TYPE, LANE, MAP, COMBINE, TAKE, MERGE)          \
    REDUCER_FROM(RARE_LANES(MAP, COMBINE), NAME, TYPE, LANE, MAP, COMBINE, \
                 TAKE, MERGE)
#define RARE_LANES(MAP, COMBINE)                           \
    const int width = n < LANES ? FEW : LANES;             \
    for (k = 0; k < width; k++)                            \
        lanes[k] = MAP(x[k]);                              \
    for (; width == FEW && k + FEW <= n; k += FEW) {       \
        TAKE_IN(0, COMBINE, MAP)                           \
    }                                                      \
    for (; width == LANES && k + LANES <= n; k += LANES) { \
        TAKE_IN(0, COMBINE, MAP)                           \
        TAKE_IN(FEW, COMBINE, MAP)                         \
        TAKE_IN(2 * FEW, COMBINE, MAP)                     \
        TAKE_IN(3 * FEW, COMBINE, MAP)                     \
    }                                                      \
    for (j = 0; j < n - k; j++) {                          \
        __asm__ volatile(""); /* not vectorized */         \
        lanes[j] = COMBINE(lanes[j], MAP(x[k + j]));       \
    }                                                      \
    for (int half = width / 2; half >= FOLDED; half /= 2)  \
    FOLD(half, COMBINE)

/* The same with statements that fill the first FOLDED lanes. */
#define REDUCER_FROM(FILL, NAME, TYPE, LANE, MAP, COMBINE, TAKE, MERGE)        \
    static void NAME##_run(cpu_states *s, const void *data, int64_t n,         \
                           int64_t index, const cpu_reduction *reduction)      \
    {                                                                          \
        const TYPE *x = data;                                                  \
        const double number = reduction->number;                               \
        LANE lanes[LANES];                                                     \
        int64_t k, j;                                                          \
                                                                               \
        (void)index;                                                           \
        (void)number;                                                          \
        if (n <= FEW) {                                                        \
            lanes[0] = MAP(x[0]);                                              \
            for (k = 1; k < n; k++)                                            \
                lanes[0] = COMBINE(lanes[0], MAP(x[k]));                       \
            TAKE(s, 0, lanes[0]);                                              \
            return;                                                            \
        }                                                                      \
        FILL FOLD(FOLDED / 2, COMBINE) FOLD(FOLDED / 4, COMBINE)               \
            TAKE(s, 0, lanes[0]);                                              \
    }                                                                          \
    static void NAME##_rows(cpu_states *s, const void *const *data, int rows,  \
                            int64_t n, int64_t index,                          \
                            const cpu_reduction *reduction)                    \
    {                                                                          \
        const double number = reduction->number;                               \
        LANE t[CPU_BLOCK];                                                     \
        const TYPE *x = data[0];                                               \
        int64_t k;                                                             \
        int r;                                                                 \
                                                                               \
        (void)index;                                                           \
        (void)number;                                                          \
        for (k = 0; k < n; k++)                                                \
            t[k] = MAP(x[k]);                                                  \
        for (r = 1; r + 2 < rows; r += 3) {                                    \
            const TYPE *y = data[r + 1], *z = data[r + 2];                     \
                                                                               \
            x = data[r];                                                       \
            for (k = 0; k < n; k++) {                                          \
                LANE both = COMBINE(MAP(y[k]), MAP(z[k]));                     \
                                                                               \
                t[k] = COMBINE(COMBINE(t[k], MAP(x[k])), both);                \
            }                                                                  \
        }                                                                      \
        for (; r < rows; r++) {                                                \
            x = data[r];                                                       \
            for (k = 0; k < n; k++)                                            \
                t[k] = COMBINE(t[k], MAP(x[k]));                               \
        }                                                                      \
        MATH_LOOP                                                              \
        for (k = 0; k < n; k++)                                                \
            TAKE(s, k, t[k]);                                                  \
    }                                                                          \
                                                                               \
    static void NAME##_merge(cpu_states *s, const cpu_states *from, int64_t n) \
    {                                                                          \
        for (int64_t k = 0; k < n; k++)                                        \
            MERGE(s, from, k);                                                 \
    }

/* Copies FEW elements in whole vectors.  A load of a vector that narrower
 * stores have just written would wait until these reach the cache. */
static inline void copy_few(float *to, const float *x)
{
#if defined(__AVX512F__)
    _mm512_storeu_ps(to, _mm512_loadu_ps(x));
#elif defined(__AVX2__)
    _mm256_storeu_ps(to, _mm256_loadu_ps(x));
    _mm256_storeu_ps(to + 8, _mm256_loadu_ps(x + 8));
#else
    memcpy(to, x, FEW * sizeof(*to));
#endif
}

/* Copies n < FEW elements, and sets the rest to a number that changes no
 * lane. */
static inline void copy_padded(float *to, const float *x, int64_t n,
                               float neutral)
{
#if defined(__AVX512F__)
    _mm512_storeu_ps(to, _mm512_mask_loadu_ps(_mm512_set1_ps(neutral),
                                              (__mmask16)((1 << n) - 1), x));
#elif defined(__AVX2__)
    static const int32_t ones_and_zeros[2 * FEW] = {
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

    for (int j = 0; j < FEW; j += 8) {
        const void *from = ones_and_zeros + FEW - n + j;
        __m256i mask = _mm256_loadu_si256(from);

        _mm256_storeu_ps(to + j,
                         _mm256_blendv_ps(_mm256_set1_ps(neutral),
                                          _mm256_maskload_ps(x + j, mask),
                                          _mm256_castsi256_ps(mask)));
    }
#else
    for (int j = 0; j < FEW; j++)
        to[j] = j < n ? x[j] : neutral;
#endif
}

#define TAKE_PADDED(FIRST, COMBINE) \
    for (j = 0; j < FEW; j++)       \
        lanes[FIRST + j] = COMBINE(lanes[FIRST + j], padded[j]);

/* What FILL_LANES does for f32, as a function for run and runs.  Lanes stay in
 * registers, because the compiler knows to which of them the last elements
 * belong.  COMBINE(x, NEUTRAL) is x for every x. */
#define LANES_OF(NAME, COMBINE, NEUTRAL)                                      \
    static __attribute__((noinline)) void NAME##_lanes(const float *x,        \
                                                       int64_t n, float *out) \
    {                                                                         \
        float lanes[LANES], padded[FEW];                                      \
        int64_t k, j;                                                         \
                                                                              \
        copy_few(lanes, x);                                                   \
        copy_padded(padded, x + (n & -FEW), n & (FEW - 1), NEUTRAL);          \
        if (n < LANES) {                                                      \
            for (k = FEW; k + FEW <= n; k += FEW) {                           \
                TAKE_IN(0, COMBINE, SAME)                                     \
            }                                                                 \
            TAKE_PADDED(0, COMBINE)                                           \
        } else {                                                              \
            for (k = FEW; k < LANES; k += FEW)                                \
                copy_few(lanes + k, x + k);                                   \
            for (; k + LANES <= n; k += LANES) {                              \
                TAKE_IN(0, COMBINE, SAME)                                     \
                TAKE_IN(FEW, COMBINE, SAME)                                   \
                TAKE_IN(2 * FEW, COMBINE, SAME)                               \
                TAKE_IN(3 * FEW, COMBINE, SAME)                               \
            }                                                                 \
            if (n - k < FEW) {                                                \
                TAKE_PADDED(0, COMBINE)                                       \
            } else if (n - k < 2 * FEW) {                                     \
                TAKE_IN(0, COMBINE, SAME)                                     \
                TAKE_PADDED(FEW, COMBINE)                                     \
            } else if (n - k < 3 * FEW) {                                     \
                TAKE_IN(0, COMBINE, SAME)                                     \
                TAKE_IN(FEW, COMBINE, SAME)                                   \
                TAKE_PADDED(2 * FEW, COMBINE)                                 \
            } else {                                                          \
                TAKE_IN(0, COMBINE, SAME)                                     \
                TAKE_IN(FEW, COMBINE, SAME)                                   \
                TAKE_IN(2 * FEW, COMBINE, SAME)                               \
                TAKE_PADDED(3 * FEW, COMBINE)                                 \
            }                                                                 \
            FOLD(LANES / 2, COMBINE)                                          \
            FOLD(LANES / 4, COMBINE)                                          \
        }                                                                     \
        FOLD(FEW / 2, COMBINE)                                                \
        FOLD(FEW / 4, COMBINE)                                                \
        for (j = 0; j < FOLDED; j++)                                          \
            out[j] = lanes[j];                                                \
    }

/* The same for other types: half of the lanes after the other, because 64 of f64
 * are more than AVX2 has registers for.  ACCUMULATE(a, x) is COMBINE(a,
 * MAP(x)). */
#define ACCUMULATE_IN(FIRST, ACCUMULATE)                                  \
    _Pragma("GCC unroll 16") for (j = 0; j < FEW; j++) lanes[FIRST + j] = \
        ACCUMULATE(lanes[FIRST + j], x[k + FIRST + j]);
#define LANES_IN_HALVES(NAME, TYPE, LANE, MAP, COMBINE, ACCUMULATE)          \
    static __attribute__((noinline)) void NAME##_lanes(const TYPE *x,        \
                                                       int64_t n, LANE *out) \
    {                                                                        \
        LANE lanes[LANES];                                                   \
        int64_t k, j, width = n < LANES ? FEW : LANES;                       \
                                                                             \
        for (k = 0; k < width; k++)                                          \
            lanes[k] = MAP(x[k]);                                            \
        for (; width == LANES && k + LANES <= n; k += LANES) {               \
            ACCUMULATE_IN(0, ACCUMULATE)                                     \
            ACCUMULATE_IN(FEW, ACCUMULATE)                                   \
        }                                                                    \
        for (k = width; width == LANES && k + LANES <= n; k += LANES) {      \
            ACCUMULATE_IN(2 * FEW, ACCUMULATE)                               \
            ACCUMULATE_IN(3 * FEW, ACCUMULATE)                               \
        }                                                                    \
        FOLD_ALL(COMBINE, ACCUMULATE)                                        \
    }
/* The last elements, and all folds. */
#define FOLD_ALL(COMBINE, ACCUMULATE)                           \
    for (; k < n; k += width)                                   \
        for (j = 0; j < width && j < n - k; j++)                \
            lanes[j] = ACCUMULATE(lanes[j], x[k + j]);          \
    for (; width > FOLDED; width /= 2)                          \
        for (j = 0; j < width / 2; j++)                         \
            lanes[j] = COMBINE(lanes[j], lanes[j + width / 2]); \
    for (j = 0; j < FOLDED; j++)                                \
        out[j] = lanes[j];

#define SQUARE(x) ((double)(x) * (double)(x))
/* The product is exact in f64, so these have the same bits. */
#if defined(__FMA__)
#define ADD_SQUARE(a, x) __builtin_fma((double)(x), (double)(x), a)
#else
#define ADD_SQUARE(a, x) ((a) + SQUARE(x))
#endif

#if defined(__AVX2__)

/* Numbers of bf16 at even and at odd places have lanes of their own. */
enum { PAIRS = LANES / 2 };

/* Pairs in a vector. */
#if defined(__AVX512F__)
enum { VECTOR = 16 };
#else
enum { VECTOR = 8 };
#endif
typedef float floats __attribute__((vector_size(VECTOR * 4)));
typedef uint32_t words __attribute__((vector_size(VECTOR * 4)));
typedef words loose_words __attribute__((aligned(2), may_alias));

/* The lanes of n >= LANES elements without those after the last whole group.  A
 * lane begins with -0, which changes no number, -0 neither. */
static inline void add_pairs(const uint16_t *x, int64_t n, float *even,
                             float *odd)
{
    floats sums[2][PAIRS / VECTOR];

    for (int i = 0; i < PAIRS / VECTOR; i++)
        sums[0][i] = sums[1][i] = -(floats){0};
    for (int64_t k = 0; k + LANES <= n; k += LANES) {
#pragma GCC unroll 4
        for (int i = 0; i < PAIRS / VECTOR; i++) {
            words both = *(const loose_words *)(x + k + 2 * i * VECTOR);

            sums[0][i] += (floats)CPU_BF16_FIRST(both);
            sums[1][i] += (floats)CPU_BF16_SECOND(both);
        }
    }
    memcpy(even, sums[0], sizeof(sums[0]));
    memcpy(odd, sums[1], sizeof(sums[1]));
}

#define SQUARES_IN(FIRST)                                                      \
    _Pragma("GCC unroll 16") /* lanes stay in registers */                     \
        for (int j = 0; j < FEW; j++)                                          \
    {                                                                          \
        even[FIRST + j] =                                                      \
            ADD_SQUARE(even[FIRST + j], cpu_bf16_first(pairs[k + FIRST + j])); \
        odd[FIRST + j] =                                                       \
            ADD_SQUARE(odd[FIRST + j], cpu_bf16_second(pairs[k + FIRST + j])); \
    }

static inline void add_squares_of_pairs(const uint16_t *x, int64_t n,
                                        double *even, double *odd)
{
    const cpu_bf16_pair *pairs = (const cpu_bf16_pair *)x;
    int64_t k;

    for (k = 0; k < PAIRS; k++)
        even[k] = odd[k] = 0;
    for (k = 0; 2 * k + LANES <= n; k += PAIRS) {
        SQUARES_IN(0)
    }
    for (k = 0; 2 * k + LANES <= n; k += PAIRS) {
        SQUARES_IN(FEW)
    }
}

/* The lanes of n > FEW elements of bf16. */
#define LANES_OF_BF16(NAME, LANE, MAP, COMBINE, ACCUMULATE, ADD_PAIRS)       \
    static __attribute__((noinline)) void NAME##_lanes(const uint16_t *x,    \
                                                       int64_t n, LANE *out) \
    {                                                                        \
        LANE lanes[LANES], even[PAIRS], odd[PAIRS];                          \
        int64_t k, j, width = n < LANES ? FEW : LANES;                       \
                                                                             \
        if (n < LANES) {                                                     \
            for (k = 0; k < FEW; k++)                                        \
                lanes[k] = MAP(x[k]);                                        \
        } else {                                                             \
            ADD_PAIRS(x, n, even, odd);                                      \
            for (j = 0; j < PAIRS; j++) {                                    \
                lanes[2 * j] = even[j];                                      \
                lanes[2 * j + 1] = odd[j];                                   \
            }                                                                \
            k = n & -LANES;                                                  \
        }                                                                    \
        FOLD_ALL(COMBINE, ACCUMULATE)                                        \
    }

#endif

/* Defines runs of a reducer: as run for each, with the lanes of all folded at
 * once. */
#define FOLD_RUNS(HALF, COMBINE)              \
    for (j = 0; j < HALF; j++)                \
        for (k = 0; k < CPU_REDUCE_RUNS; k++) \
            folded[j][k] = COMBINE(folded[j][k], folded[j + HALF][k]);
#define RUNS(NAME, LANE, COMBINE, TAKE)                                       \
    static void NAME##_runs(cpu_states *s, const void *const *data, int runs, \
                            int64_t n, int step)                              \
    {                                                                         \
        LANE folded[FOLDED][CPU_REDUCE_RUNS];                                 \
        int64_t k, j;                                                         \
        int r;                                                                \
                                                                              \
        if (runs < CPU_REDUCE_RUNS)                                           \
            memset(folded, 0, sizeof(folded));                                \
        for (r = 0; r < runs; r++) {                                          \
            LANE lanes[FOLDED];                                               \
                                                                              \
            NAME##_lanes(data[r], n, lanes);                                  \
            for (j = 0; j < FOLDED; j++)                                      \
                folded[j][r] = lanes[j];                                      \
        }                                                                     \
        FOLD_RUNS(FOLDED / 2, COMBINE)                                        \
        FOLD_RUNS(FOLDED / 4, COMBINE)                                        \
        for (r = 0; r < runs; r++)                                            \
            TAKE(s, (r) * (step), folded[0][r]);                              \
    }

#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
/* NaN wins. */
#define MOST(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define LEAST(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

#define SAME(x) (x)
#define DOUBLE(x) ((double)(x))
#define NONZERO(x) ((x) != 0)
#define ABSOLUTE(x) ((x) < 0 ? -(x) : (x))
#define POWER(x) pow(fabs((double)(x)), number)
#define WITHOUT_NAN(x) ((x) != (x) ? 0 : (x))
#define OF_BF16(x) math_f32_of_bf16(x)
#define SQUARE_OF_BF16(x) SQUARE(OF_BF16(x))
#define MULTIPLY_DOUBLE(a, x) ((a) * (double)(x))
#define ADD_OF_BF16(a, x) ((a) + OF_BF16(x))
#define ADD_SQUARE_OF_BF16(a, x) ADD_SQUARE(a, OF_BF16(x))

/* A sum with its rounding error (Neumaier). */
static inline void add_exactly(double *sum, double *lost, double x)
{
    double total = *sum + x;
    double big = fabs(*sum) >= fabs(x) ? *sum : x;
    double small = fabs(*sum) >= fabs(x) ? x : *sum;

    *lost += big - total + small;
    *sum = total;
}

#define TAKE_SUM(s, k, x) add_exactly(&(s)->w[0][k].d, &(s)->w[1][k].d, x)
#define MERGE_SUM(s, from, k) \
    (TAKE_SUM(s, k, (from)->w[0][k].d), (s)->w[1][k].d += (from)->w[1][k].d)

#define TAKE_D(COMBINE, s, k, x) \
    ((s)->w[0][k].d = COMBINE((s)->w[0][k].d, (double)(x)))
#define TAKE_I(COMBINE, s, k, x) \
    ((s)->w[0][k].i = COMBINE((s)->w[0][k].i, (int64_t)(x)))
#define TAKE_D_ADD(s, k, x) TAKE_D(ADD, s, k, x)
#define TAKE_D_MULTIPLY(s, k, x) TAKE_D(MULTIPLY, s, k, x)
#define TAKE_D_MOST(s, k, x) TAKE_D(MOST, s, k, x)
#define TAKE_D_LEAST(s, k, x) TAKE_D(LEAST, s, k, x)
#define TAKE_I_ADD(s, k, x) TAKE_I(ADD, s, k, x)
#define TAKE_I_MULTIPLY(s, k, x) TAKE_I(MULTIPLY, s, k, x)
#define TAKE_I_MOST(s, k, x) TAKE_I(MOST, s, k, x)
#define TAKE_I_LEAST(s, k, x) TAKE_I(LEAST, s, k, x)
#define MERGE_D_MULTIPLY(s, from, k) TAKE_D(MULTIPLY, s, k, (from)->w[0][k].d)
#define MERGE_D_MOST(s, from, k) TAKE_D(MOST, s, k, (from)->w[0][k].d)
#define MERGE_D_LEAST(s, from, k) TAKE_D(LEAST, s, k, (from)->w[0][k].d)
#define MERGE_I_ADD(s, from, k) TAKE_I(ADD, s, k, (from)->w[0][k].i)
#define MERGE_I_MULTIPLY(s, from, k) TAKE_I(MULTIPLY, s, k, (from)->w[0][k].i)
#define MERGE_I_MOST(s, from, k) TAKE_I(MOST, s, k, (from)->w[0][k].i)
#define MERGE_I_LEAST(s, from, k) TAKE_I(LEAST, s, k, (from)->w[0][k].i)

LANES_OF(sum_f32, ADD, -0.f)
REDUCER_FROM(sum_f32_lanes(x, n, lanes);
             , sum_f32, float, float, SAME, ADD, TAKE_SUM, MERGE_SUM)
#if defined(__AVX2__)
LANES_OF_BF16(sum_bf16, float, OF_BF16, ADD, ADD_OF_BF16, add_pairs)
REDUCER_FROM(sum_bf16_lanes(x, n, lanes);
             , sum_bf16, uint16_t, float, OF_BF16, ADD, TAKE_SUM, MERGE_SUM)
#endif
REDUCER(sum_f64, double, double, SAME, ADD, TAKE_SUM, MERGE_SUM)
REDUCER(sum_i64, int64_t, int64_t, SAME, ADD, TAKE_I_ADD, MERGE_I_ADD)
REDUCER(nansum_f32, float, float, WITHOUT_NAN, ADD, TAKE_SUM, MERGE_SUM)
REDUCER(nansum_f64, double, double, WITHOUT_NAN, ADD, TAKE_SUM, MERGE_SUM)
#if defined(__AVX2__)
LANES_IN_HALVES(prod_f32, float, double, DOUBLE, MULTIPLY, MULTIPLY_DOUBLE)
REDUCER_FROM(prod_f32_lanes(x, n, lanes);, prod_f32, float, double, DOUBLE,
                                         MULTIPLY, TAKE_D_MULTIPLY,
                                         MERGE_D_MULTIPLY)
#else
REDUCER(prod_f32, float, double, DOUBLE, MULTIPLY, TAKE_D_MULTIPLY,
        MERGE_D_MULTIPLY)
#endif
REDUCER(prod_f64, double, double, SAME, MULTIPLY, TAKE_D_MULTIPLY,
        MERGE_D_MULTIPLY)
REDUCER(prod_i64, int64_t, int64_t, SAME, MULTIPLY, TAKE_I_MULTIPLY,
        MERGE_I_MULTIPLY)
LANES_OF(amax_f32, MOST, -INFINITY)
REDUCER_FROM(amax_f32_lanes(x, n, lanes);
             , amax_f32, float, float, SAME, MOST, TAKE_D_MOST, MERGE_D_MOST)
REDUCER(amax_f64, double, double, SAME, MOST, TAKE_D_MOST, MERGE_D_MOST)
REDUCER(amax_i64, int64_t, int64_t, SAME, MOST, TAKE_I_MOST, MERGE_I_MOST)
LANES_OF(amin_f32, LEAST, INFINITY)
REDUCER_FROM(amin_f32_lanes(x, n, lanes);
             , amin_f32, float, float, SAME, LEAST, TAKE_D_LEAST, MERGE_D_LEAST)
REDUCER(amin_f64, double, double, SAME, LEAST, TAKE_D_LEAST, MERGE_D_LEAST)
REDUCER(amin_i64, int64_t, int64_t, SAME, LEAST, TAKE_I_LEAST, MERGE_I_LEAST)
RARE_REDUCER(any_f32, float, int32_t, NONZERO, MOST, TAKE_I_MOST, MERGE_I_MOST)
RARE_REDUCER(any_f64, double, int64_t, NONZERO, MOST, TAKE_I_MOST, MERGE_I_MOST)
RARE_REDUCER(any_i64, int64_t, int64_t, NONZERO, MOST, TAKE_I_MOST,
             MERGE_I_MOST)
RARE_REDUCER(all_f32, float, int32_t, NONZERO, LEAST, TAKE_I_LEAST,
             MERGE_I_LEAST)
RARE_REDUCER(all_f64, double, int64_t, NONZERO, LEAST, TAKE_I_LEAST,
             MERGE_I_LEAST)
RARE_REDUCER(all_i64, int64_t, int64_t, NONZERO, LEAST, TAKE_I_LEAST,
             MERGE_I_LEAST)
RARE_REDUCER(count_f32, float, int32_t, NONZERO, ADD, TAKE_I_ADD, MERGE_I_ADD)
RARE_REDUCER(count_f64, double, int64_t, NONZERO, ADD, TAKE_I_ADD, MERGE_I_ADD)
RARE_REDUCER(count_i64, int64_t, int64_t, NONZERO, ADD, TAKE_I_ADD, MERGE_I_ADD)
REDUCER(norm_1_f32, float, float, ABSOLUTE, ADD, TAKE_SUM, MERGE_SUM)
RARE_REDUCER(norm_1_f64, double, double, ABSOLUTE, ADD, TAKE_SUM, MERGE_SUM)
#if defined(__AVX2__)
LANES_IN_HALVES(norm_2_f32, float, double, SQUARE, ADD, ADD_SQUARE)
REDUCER_FROM(norm_2_f32_lanes(x, n, lanes);
             , norm_2_f32, float, double, SQUARE, ADD, TAKE_SUM, MERGE_SUM)
LANES_OF_BF16(norm_2_bf16, double, SQUARE_OF_BF16, ADD, ADD_SQUARE_OF_BF16,
              add_squares_of_pairs)
REDUCER_FROM(norm_2_bf16_lanes(x, n, lanes);, norm_2_bf16, uint16_t, double,
                                            SQUARE_OF_BF16, ADD, TAKE_SUM,
                                            MERGE_SUM)
#else
REDUCER(norm_2_f32, float, double, SQUARE, ADD, TAKE_SUM, MERGE_SUM)
#endif
REDUCER(norm_2_f64, double, double, SQUARE, ADD, TAKE_SUM, MERGE_SUM)
RARE_REDUCER(norm_p_f32, float, double, POWER, ADD, TAKE_SUM, MERGE_SUM)
RARE_REDUCER(norm_p_f64, double, double, POWER, ADD, TAKE_SUM, MERGE_SUM)
RARE_REDUCER(norm_most_f32, float, float, ABSOLUTE, MOST, TAKE_D_MOST,
             MERGE_D_MOST)
RARE_REDUCER(norm_most_f64, double, double, ABSOLUTE, MOST, TAKE_D_MOST,
             MERGE_D_MOST)
RARE_REDUCER(norm_least_f32, float, float, ABSOLUTE, LEAST, TAKE_D_LEAST,
             MERGE_D_LEAST)
RARE_REDUCER(norm_least_f64, double, double, ABSOLUTE, LEAST, TAKE_D_LEAST,
             MERGE_D_LEAST)

#if defined(__AVX2__)
RUNS(sum_f32, float, ADD, TAKE_SUM)
RUNS(sum_bf16, float, ADD, TAKE_SUM)
RUNS(prod_f32, double, MULTIPLY, TAKE_D_MULTIPLY)
RUNS(norm_2_f32, double, ADD, TAKE_SUM)
RUNS(norm_2_bf16, double, ADD, TAKE_SUM)
RUNS(amax_f32, float, MOST, TAKE_D_MOST)
RUNS(amin_f32, float, LEAST, TAKE_D_LEAST)
#else
#define sum_f32_runs NULL /* they are for wide vectors */
#define prod_f32_runs NULL
#define norm_2_f32_runs NULL
#define amax_f32_runs NULL
#define amin_f32_runs NULL
#endif

/* -------------------------------------------------------------- finish -- */

/* Once a sum is not finite, its rounding error is NaN and is ignored. */
static inline double whole_sum(const cpu_states *s, int64_t k)
{
    double sum = s->w[0][k].d, lost = s->w[1][k].d;

    return isfinite(sum) ? sum + lost : sum;
}

static void finish_sum(cpu_states *s, int64_t n, const cpu_reduction *r)
{
    (void)r;
    for (int64_t k = 0; k < n; k++)
        s->w[0][k].d = whole_sum(s, k);
}

static void finish_mean(cpu_states *s, int64_t n, const cpu_reduction *r)
{
    for (int64_t k = 0; k < n; k++)
        s->w[0][k].d = whole_sum(s, k) / (double)r->count;
}

static void finish_norm_2(cpu_states *s, int64_t n, const cpu_reduction *r)
{
    (void)r;
    for (int64_t k = 0; k < n; k++)
        s->w[0][k].d = sqrt(whole_sum(s, k));
}

static void finish_norm_p(cpu_states *s, int64_t n, const cpu_reduction *r)
{
    for (int64_t k = 0; k < n; k++)
        s->w[0][k].d = pow(whole_sum(s, k), 1 / r->number);
}

static void finish_integer_mean(cpu_states *s, int64_t n,
                                const cpu_reduction *r)
{
    for (int64_t k = 0; k < n; k++)
        s->w[0][k].i = r->count > 0 ? s->w[0][k].i / r->count : 0;
}

/* -------------------------------------------------------------- tables -- */

#define FLOATS_WITH(name, functions, runs_, words_, first_, finish_) \
    static const cpu_reducer name##_of_f32 = {words_,                \
                                              {CORE_F64, CORE_F64},  \
                                              {{.d = first_}},       \
                                              functions##_f32_run,   \
                                              functions##_f32_rows,  \
                                              functions##_f32_merge, \
                                              finish_,               \
                                              runs_};                \
    static const cpu_reducer name##_of_f64 = {words_,                \
                                              {CORE_F64, CORE_F64},  \
                                              {{.d = first_}},       \
                                              functions##_f64_run,   \
                                              functions##_f64_rows,  \
                                              functions##_f64_merge, \
                                              finish_,               \
                                              NULL};
#define FLOATS(name, functions, words_, first_, finish_) \
    FLOATS_WITH(name, functions, NULL, words_, first_, finish_)
#define INTEGERS(name, functions, type, first_, finish_)                     \
    static const cpu_reducer name##_of_##type = {1,                          \
                                                 {CORE_I64, CORE_I64},       \
                                                 {{.i = first_}},            \
                                                 functions##_##type##_run,   \
                                                 functions##_##type##_rows,  \
                                                 functions##_##type##_merge, \
                                                 finish_,                    \
                                                 NULL};
/* Of bf16, which are converted as they are read, in vectors. */
#if defined(__AVX2__)
#define HALVES(name, functions, words_, first_, finish_)               \
    static const cpu_reducer name##_of_bf16 = {words_,                 \
                                               {CORE_F64, CORE_F64},   \
                                               {{.d = first_}},        \
                                               functions##_bf16_run,   \
                                               functions##_bf16_rows,  \
                                               functions##_bf16_merge, \
                                               finish_,                \
                                               functions##_bf16_runs};
#define OF_HALVES(name) &name##_of_bf16
#else
#define HALVES(name, functions, words_, first_, finish_)
#define OF_HALVES(name) NULL
#endif
#define FLOAT_TABLE(name)                              \
    const cpu_reducers CPU_NAME(cpu_reduce_##name) = { \
        &name##_of_f32, &name##_of_f64, NULL, NULL};
#define TABLE_WITH(name, bf16)                         \
    const cpu_reducers CPU_NAME(cpu_reduce_##name) = { \
        &name##_of_f32, &name##_of_f64, &name##_of_i64, bf16};
#define TABLE(name) TABLE_WITH(name, NULL)

FLOATS_WITH(sum, sum, sum_f32_runs, 2, 0, finish_sum)
INTEGERS(sum, sum, i64, 0, NULL)
HALVES(sum, sum, 2, 0, finish_sum)
TABLE_WITH(sum, OF_HALVES(sum))
FLOATS(nansum, nansum, 2, 0, finish_sum)
INTEGERS(nansum, sum, i64, 0, NULL)
TABLE(nansum)
FLOATS_WITH(mean, sum, sum_f32_runs, 2, 0, finish_mean)
INTEGERS(mean, sum, i64, 0, finish_integer_mean)
HALVES(mean, sum, 2, 0, finish_mean)
TABLE_WITH(mean, OF_HALVES(mean))
FLOATS_WITH(prod, prod, prod_f32_runs, 1, 1, NULL)
INTEGERS(prod, prod, i64, 1, NULL)
TABLE(prod)
FLOATS_WITH(amax, amax, amax_f32_runs, 1, -INFINITY, NULL)
INTEGERS(amax, amax, i64, INT64_MIN, NULL)
TABLE(amax)
FLOATS_WITH(amin, amin, amin_f32_runs, 1, INFINITY, NULL)
INTEGERS(amin, amin, i64, INT64_MAX, NULL)
TABLE(amin)
INTEGERS(any, any, f32, 0, NULL)
INTEGERS(any, any, f64, 0, NULL)
INTEGERS(any, any, i64, 0, NULL)
TABLE(any)
INTEGERS(all, all, f32, 1, NULL)
INTEGERS(all, all, f64, 1, NULL)
INTEGERS(all, all, i64, 1, NULL)
TABLE(all)
INTEGERS(count_nonzero, count, f32, 0, NULL)
INTEGERS(count_nonzero, count, f64, 0, NULL)
INTEGERS(count_nonzero, count, i64, 0, NULL)
TABLE(count_nonzero)
INTEGERS(norm_0, count, f32, 0, NULL)
INTEGERS(norm_0, count, f64, 0, NULL)
FLOAT_TABLE(norm_0)
FLOATS(norm_1, norm_1, 2, 0, finish_sum)
FLOAT_TABLE(norm_1)
FLOATS_WITH(norm_2, norm_2, norm_2_f32_runs, 2, 0, finish_norm_2)
HALVES(norm_2, norm_2, 2, 0, finish_norm_2)
const cpu_reducers CPU_NAME(cpu_reduce_norm_2) = {
    &norm_2_of_f32, &norm_2_of_f64, NULL, OF_HALVES(norm_2)};
FLOATS(norm_p, norm_p, 2, 0, finish_norm_p)
FLOAT_TABLE(norm_p)
FLOATS(norm_most, norm_most, 1, 0, NULL)
FLOAT_TABLE(norm_most)
FLOATS(norm_least, norm_least, 1, INFINITY, NULL)
FLOAT_TABLE(norm_least)
