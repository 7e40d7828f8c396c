/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reducers that find the greatest or least element, the first of equal ones;
 * NaN is both.  Word 0 is the value, word 1 its index among the reduced
 * elements, with dimension 0 of the loop counting fastest. */

#include "reduce.h"

#include <math.h>
#include <string.h>

#include <expressions/number.h>

enum { LANES = 16 };

/* x is preferred to `than`. */
#define BETTER(x, OP, than) ((x)OP(than) || ((x) != (x) && (than) == (than)))

#define EXTREME(NAME, TYPE, WORD, OP)                                          \
    static inline void NAME##_take(cpu_states *s, int64_t k, TYPE x,           \
                                   int64_t index)                              \
    {                                                                          \
        /* Nothing was found while the index is -1. */                         \
        int better = s->w[1][k].i < 0 || BETTER(x, OP, (TYPE)s->w[0][k].WORD); \
                                                                               \
        s->w[0][k].WORD = better ? x : s->w[0][k].WORD;                        \
        s->w[1][k].i = better ? index : s->w[1][k].i;                          \
    }                                                                          \
                                                                               \
    static void NAME##_run(cpu_states *s, const void *data, int64_t n,         \
                           int64_t index, const cpu_reduction *reduction)      \
    {                                                                          \
        const TYPE *x = data;                                                  \
        TYPE lanes[LANES], best = x[0];                                        \
        int64_t k, j;                                                          \
                                                                               \
        (void)reduction;                                                       \
        if (n >= LANES) {                                                      \
            for (j = 0; j < LANES; j++)                                        \
                lanes[j] = x[j];                                               \
            for (k = LANES; k + LANES <= n; k += LANES)                        \
                MATH_EACH_LANE(TYPE, LANES, l,                                 \
                               lanes[l] = BETTER(x[k + l], OP, lanes[l])       \
                                              ? x[k + l]                       \
                                              : lanes[l];)                     \
            best = lanes[0];                                                   \
            for (j = 1; j < LANES; j++)                                        \
                best = BETTER(lanes[j], OP, best) ? lanes[j] : best;           \
        } else {                                                               \
            k = 1;                                                             \
        }                                                                      \
        for (; k < n; k++)                                                     \
            best = BETTER(x[k], OP, best) ? x[k] : best;                       \
        if (s->w[1][0].i >= 0 && !BETTER(best, OP, (TYPE)s->w[0][0].WORD))     \
            return;                                                            \
        for (k = 0; k < n - 1 && !(x[k] == best || x[k] != x[k]); k++)         \
            ;                                                                  \
        NAME##_take(s, 0, x[k], index + k);                                    \
    }                                                                          \
                                                                               \
    static void NAME##_rows(cpu_states *s, const void *const *data, int rows,  \
                            int64_t n, int64_t index,                          \
                            const cpu_reduction *reduction)                    \
    {                                                                          \
        (void)reduction;                                                       \
        for (int r = 0; r < rows; r++) {                                       \
            const TYPE *x = data[r];                                           \
            for (int64_t k = 0; k < n; k++)                                    \
                NAME##_take(s, k, x[k], index + r);                            \
        }                                                                      \
    }                                                                          \
                                                                               \
    static void NAME##_merge(cpu_states *s, const cpu_states *from, int64_t n) \
    {                                                                          \
        for (int64_t k = 0; k < n; k++)                                        \
            if (from->w[1][k].i >= 0)                                          \
                NAME##_take(s, k, (TYPE)from->w[0][k].WORD, from->w[1][k].i);  \
    }

EXTREME(max_f32, float, d, >)
EXTREME(max_f64, double, d, >)
EXTREME(max_i64, int64_t, i, >)
EXTREME(min_f32, float, d, <)
EXTREME(min_f64, double, d, <)
EXTREME(min_i64, int64_t, i, <)

/* Keeps only the index. */
static void keep_index(cpu_states *s, int64_t n, const cpu_reduction *r)
{
    (void)r;
    memcpy(s->w[0], s->w[1], (size_t)n * sizeof(cpu_word));
}

#define REDUCER(name, functions, word, result, finish)         \
    static const cpu_reducer name = {2,                        \
                                     {result, CORE_I64},       \
                                     {{.word = 0}, {.i = -1}}, \
                                     functions##_run,          \
                                     functions##_rows,         \
                                     functions##_merge,        \
                                     finish,                   \
                                     NULL};
#define TABLE(name, functions)                                            \
    REDUCER(functions##_index_of_f32, functions##_f32, d, CORE_F64, NULL) \
    REDUCER(functions##_index_of_f64, functions##_f64, d, CORE_F64, NULL) \
    REDUCER(functions##_index_of_i64, functions##_i64, i, CORE_I64, NULL) \
    const cpu_reducers CPU_NAME(cpu_reduce_##functions##_index) = {       \
        &functions##_index_of_f32, &functions##_index_of_f64,             \
        &functions##_index_of_i64, NULL};                                 \
    REDUCER(name##_of_f32, functions##_f32, d, CORE_I64, keep_index)      \
    REDUCER(name##_of_f64, functions##_f64, d, CORE_I64, keep_index)      \
    REDUCER(name##_of_i64, functions##_i64, i, CORE_I64, keep_index)      \
    const cpu_reducers CPU_NAME(cpu_reduce_##name) = {                    \
        &name##_of_f32, &name##_of_f64, &name##_of_i64, NULL};

TABLE(argmax, max)
TABLE(argmin, min)
