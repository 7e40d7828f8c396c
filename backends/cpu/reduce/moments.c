/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reducers beyond sums: variance and mean, and the logarithm of a sum of
 * exponentials.  Each run is reduced about its own mean or maximum, then merged
 * (Chan, Golub, LeVeque 1979), so that nothing cancels or overflows. */

#include "reduce.h"

#include <math.h>

#include <expressions/number.h>
#include <expressions/vecmath.h>

enum { LANES = 16 };

/* ------------------------------------------------------------ variance -- */

/* Words: count, mean, sum of squared distances from it. */

static inline void take_moments(cpu_states *s, int64_t k, double count,
                                double mean, double squares)
{
    double before = s->w[0][k].d, total = before + count;
    double distance = mean - s->w[1][k].d;
    double share = count / total;

    s->w[0][k].d = total;
    s->w[1][k].d = before == 0 ? mean : s->w[1][k].d + distance * share;
    s->w[2][k].d +=
        squares + (before == 0 ? 0 : distance * distance * before * share);
}

#define MOMENTS(NAME, TYPE)                                                   \
    static void NAME##_run(cpu_states *s, const void *data, int64_t n,        \
                           int64_t index, const cpu_reduction *reduction)     \
    {                                                                         \
        const TYPE *x = data;                                                 \
        double lanes[LANES] = {0}, squares[LANES] = {0}, sum = 0, mean;       \
        int64_t k, j;                                                         \
                                                                              \
        (void)index;                                                          \
        (void)reduction;                                                      \
        for (k = 0; k + LANES <= n; k += LANES)                               \
            MATH_EACH_LANE(double, LANES, l, lanes[l] += (double)x[k + l];)   \
        for (j = 0; j < n - k; j++)                                           \
            lanes[j] += (double)x[k + j];                                     \
        for (j = 0; j < LANES; j++)                                           \
            sum += lanes[j];                                                  \
        mean = sum / (double)n;                                               \
        for (k = 0; k + LANES <= n; k += LANES)                               \
            MATH_EACH_LANE(double, LANES, l,                                  \
                           double d = (double)x[k + l] - mean;                \
                           squares[l] += d * d;)                              \
        for (j = 0; j < n - k; j++) {                                         \
            double d = (double)x[k + j] - mean;                               \
            squares[j] += d * d;                                              \
        }                                                                     \
        sum = 0;                                                              \
        for (j = 0; j < LANES; j++)                                           \
            sum += squares[j];                                                \
        take_moments(s, 0, (double)n, mean, sum);                             \
    }                                                                         \
                                                                              \
    static void NAME##_rows(cpu_states *s, const void *const *data, int rows, \
                            int64_t n, int64_t index,                         \
                            const cpu_reduction *reduction)                   \
    {                                                                         \
        double mean[CPU_BLOCK], squares[CPU_BLOCK];                           \
        int64_t k;                                                            \
        int r;                                                                \
                                                                              \
        (void)index;                                                          \
        (void)reduction;                                                      \
        for (k = 0; k < n; k++) {                                             \
            mean[k] = 0;                                                      \
            squares[k] = 0;                                                   \
        }                                                                     \
        for (r = 0; r < rows; r++) {                                          \
            const TYPE *x = data[r];                                          \
            for (k = 0; k < n; k++)                                           \
                mean[k] += (double)x[k];                                      \
        }                                                                     \
        for (k = 0; k < n; k++)                                               \
            mean[k] /= rows;                                                  \
        for (r = 0; r < rows; r++) {                                          \
            const TYPE *x = data[r];                                          \
            for (k = 0; k < n; k++) {                                         \
                double d = (double)x[k] - mean[k];                            \
                squares[k] += d * d;                                          \
            }                                                                 \
        }                                                                     \
        MATH_LOOP                                                             \
        for (k = 0; k < n; k++)                                               \
            take_moments(s, k, rows, mean[k], squares[k]);                    \
    }

MOMENTS(moments_f32, float)
MOMENTS(moments_f64, double)

static void moments_merge(cpu_states *s, const cpu_states *from, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (from->w[0][k].d > 0)
            take_moments(s, k, from->w[0][k].d, from->w[1][k].d,
                         from->w[2][k].d);
}

static inline double variance(const cpu_states *s, int64_t k,
                              const cpu_reduction *r)
{
    double freedom = (double)r->count - r->number;

    /* 0 / 0 is NaN, as it should be; the variance of no elements is NaN. */
    if (r->count == 0)
        return NAN;
    return s->w[2][k].d / (freedom > 0 ? freedom : 0);
}

static void finish_moments(cpu_states *s, int64_t n, const cpu_reduction *r)
{
    for (int64_t k = 0; k < n; k++) {
        s->w[0][k].d = variance(s, k, r);
        s->w[1][k].d = r->count == 0 ? NAN : s->w[1][k].d;
    }
}

static void finish_deviation(cpu_states *s, int64_t n, const cpu_reduction *r)
{
    finish_moments(s, n, r);
    for (int64_t k = 0; k < n; k++)
        s->w[0][k].d = sqrt(s->w[0][k].d);
}

#define TABLE(name, finish)                                         \
    static const cpu_reducer name##_of_f32 = {3,                    \
                                              {CORE_F64, CORE_F64}, \
                                              {{.d = 0}},           \
                                              moments_f32_run,      \
                                              moments_f32_rows,     \
                                              moments_merge,        \
                                              finish,               \
                                              NULL};                \
    static const cpu_reducer name##_of_f64 = {3,                    \
                                              {CORE_F64, CORE_F64}, \
                                              {{.d = 0}},           \
                                              moments_f64_run,      \
                                              moments_f64_rows,     \
                                              moments_merge,        \
                                              finish,               \
                                              NULL};                \
    const cpu_reducers CPU_NAME(cpu_reduce_##name) = {              \
        &name##_of_f32, &name##_of_f64, NULL, NULL};
TABLE(var, finish_moments)
TABLE(std, finish_deviation)

/* ----------------------------------------------------------- logsumexp -- */

/* Words: the maximum, the sum of exp(x - maximum). */

static inline void take_exponentials(cpu_states *s, int64_t k, double most,
                                     double sum)
{
    double before = s->w[0][k].d;
    double greater = most > before || most != most ? most : before;
    /* Differences of infinities are NaN; then only the infinities count. */
    double shift = fabs(greater) == INFINITY ? 0 : greater;

    s->w[1][k].d = s->w[1][k].d * exp(before - shift) + sum * exp(most - shift);
    s->w[0][k].d = greater;
}

#define EXPONENTIALS(NAME, TYPE, S)                                           \
    /* The largest element, in lanes; NaN if there is one. */                 \
    static TYPE NAME##_most(const TYPE *x, int64_t n)                         \
    {                                                                         \
        TYPE lanes[LANES], most = x[0];                                       \
        int64_t k = 0, j;                                                     \
        int nan = 0;                                                          \
                                                                              \
        for (j = 0; j < LANES; j++)                                           \
            lanes[j] = most;                                                  \
        for (; k + LANES <= n; k += LANES)                                    \
            MATH_EACH_LANE(TYPE, LANES, l,                                    \
                           lanes[l] =                                         \
                               x[k + l] > lanes[l] ? x[k + l] : lanes[l];     \
                           nan |= x[k + l] != x[k + l];)                      \
        for (; !nan && k < n; k++)                                            \
            most = x[k] > most || x[k] != x[k] ? x[k] : most;                 \
        for (j = 0; !nan && j < LANES; j++)                                   \
            most = lanes[j] > most ? lanes[j] : most;                         \
        for (k = 0; nan && k < n; k++)                                        \
            most = x[k] > most || x[k] != x[k] ? x[k] : most;                 \
        return most;                                                          \
    }                                                                         \
    static void NAME##_run(cpu_states *s, const void *data, int64_t n,        \
                           int64_t index, const cpu_reduction *reduction)     \
    {                                                                         \
        const TYPE *x = data;                                                 \
        TYPE most = NAME##_most(x, n), values[CPU_BLOCK], shift;              \
        double lanes[LANES] = {0}, sum = 0;                                   \
        int64_t k, j;                                                         \
                                                                              \
        (void)index;                                                          \
        (void)reduction;                                                      \
        shift = most > (TYPE)0x1.8p127 || most < -(TYPE)0x1.8p127 ? 0 : most; \
        for (k = 0; k < n; k++)                                               \
            values[k] = exp_##S(x[k] - shift);                                \
        for (k = 0; k + LANES <= n; k += LANES)                               \
            MATH_EACH_LANE(double, LANES, l,                                  \
                           lanes[l] += (double)values[k + l];)                \
        for (j = 0; j < n - k; j++)                                           \
            lanes[j] += (double)values[k + j];                                \
        for (j = 0; j < LANES; j++)                                           \
            sum += lanes[j];                                                  \
        /* The sum is of exp(x - shift); express it about the maximum. */     \
        take_exponentials(s, 0, (double)most,                                 \
                          shift == most ? sum                                 \
                          : sum > 0     ? 1                                   \
                                        : 0);                                     \
    }                                                                         \
                                                                              \
    static void NAME##_rows(cpu_states *s, const void *const *data, int rows, \
                            int64_t n, int64_t index,                         \
                            const cpu_reduction *reduction)                   \
    {                                                                         \
        (void)index;                                                          \
        (void)reduction;                                                      \
        for (int64_t k = 0; k < n; k++) {                                     \
            TYPE column[CPU_REDUCE_ROWS] = {0}, most;                         \
            double sum = 0;                                                   \
                                                                              \
            for (int r = 0; r < rows; r++)                                    \
                column[r] = ((const TYPE *)data[r])[k];                       \
            most = column[0];                                                 \
            for (int r = 1; r < rows; r++)                                    \
                most = column[r] > most || column[r] != column[r] ? column[r] \
                                                                  : most;     \
            if (fabs((double)most) == INFINITY)                               \
                sum = most > 0;                                               \
            else                                                              \
                for (int r = 0; r < rows; r++)                                \
                    sum += (double)exp_##S(column[r] - most);                 \
            take_exponentials(s, k, (double)most, sum);                       \
        }                                                                     \
    }
EXPONENTIALS(exponentials_f32, float, f32)
EXPONENTIALS(exponentials_f64, double, f64)

static void exponentials_merge(cpu_states *s, const cpu_states *from, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        take_exponentials(s, k, from->w[0][k].d, from->w[1][k].d);
}

static void finish_exponentials(cpu_states *s, int64_t n,
                                const cpu_reduction *r)
{
    (void)r;
    for (int64_t k = 0; k < n; k++)
        if (fabs(s->w[0][k].d) != INFINITY)
            s->w[0][k].d += log(s->w[1][k].d);
}

static const cpu_reducer logsumexp_of_f32 = {2,
                                             {CORE_F64, CORE_F64},
                                             {{.d = -INFINITY}, {.d = 0}},
                                             exponentials_f32_run,
                                             exponentials_f32_rows,
                                             exponentials_merge,
                                             finish_exponentials,
                                             NULL};
static const cpu_reducer logsumexp_of_f64 = {2,
                                             {CORE_F64, CORE_F64},
                                             {{.d = -INFINITY}, {.d = 0}},
                                             exponentials_f64_run,
                                             exponentials_f64_rows,
                                             exponentials_merge,
                                             finish_exponentials,
                                             NULL};
const cpu_reducers CPU_NAME(cpu_reduce_logsumexp) = {
    &logsumexp_of_f32, &logsumexp_of_f64, NULL, NULL};
