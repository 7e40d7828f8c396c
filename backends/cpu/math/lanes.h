/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* lanes.h: sums, maxima and exponentials of rows.  Sums run in a fixed number
 * of lanes, which the compiler turns into vectors of the available width, so
 * their order does not depend on the instruction set. */

#ifndef CPU_LANES_H
#define CPU_LANES_H

#include <expressions/vecmath.h>

/* Lanes sum at most this many elements before they are added to a double: the
 * error of a sum does not grow with its length. */
enum { LANES = 32, LANES_BLOCK = 4096 };

/* Adds the upper half of the lanes to the lower one, until one is left. */
#define LANES_FOLD(lane)                              \
    MATH_UNROLL                                       \
    for (int half = LANES / 2; half > 0; half /= 2) { \
        for (int l = 0; l < half; l++)                \
            lane[l] += lane[l + half];                \
    }

/* The sum of a term of x (of row a) and y (of row b, which may be NULL where
 * the term has no y). */
#define LANES_SUM(FUNCTION, TYPE, Y, TERM)                                  \
    static inline double FUNCTION(const TYPE *a, const TYPE *b, TYPE shift, \
                                  int64_t n)                                \
    {                                                                       \
        double total = 0;                                                   \
        (void)b;                                                            \
        (void)shift;                                                        \
        for (int64_t at = 0; at < n; at += LANES_BLOCK) {                   \
            int64_t end = n - at < LANES_BLOCK ? n : at + LANES_BLOCK, i;   \
            TYPE lane[LANES] = {0};                                         \
            for (i = at; i + LANES <= end; i += LANES)                      \
                MATH_EACH_LANE(TYPE, LANES, l, TYPE x = a[i + l],           \
                               y = Y(b, i + l);                             \
                               (void)y; lane[l] += TERM;)                   \
            LANES_FOLD(lane)                                                \
            total += (double)lane[0];                                       \
            for (; i < end; i++) {                                          \
                TYPE x = a[i], y = Y(b, i);                                 \
                (void)y;                                                    \
                total += (double)(TERM);                                    \
            }                                                               \
        }                                                                   \
        return total;                                                       \
    }
#define LANES_WITH(b, i) (b)[i]
#define LANES_WITHOUT(b, i) 0

#define LANES_OF(NAME, TYPE)                                                   \
    LANES_SUM(lanes_sum_##NAME, TYPE, LANES_WITHOUT, x)                        \
    LANES_SUM(lanes_dot_##NAME, TYPE, LANES_WITH, x *y)                        \
    LANES_SUM(lanes_square_##NAME, TYPE, LANES_WITHOUT,                        \
              (x - shift) * (x - shift))                                       \
    LANES_SUM(lanes_moment_##NAME, TYPE, LANES_WITH, (x - shift) * y)          \
    /* The maximum; the result with NaN is unspecified. */                     \
    static inline TYPE lanes_max_##NAME(const TYPE *a, int64_t n)              \
    {                                                                          \
        TYPE best = -INFINITY, lane[LANES];                                    \
        int64_t i = 0;                                                         \
        for (int l = 0; l < LANES; l++)                                        \
            lane[l] = -INFINITY;                                               \
        for (; i + LANES <= n; i += LANES)                                     \
            MATH_EACH_LANE(TYPE, LANES, l,                                     \
                           lane[l] = a[i + l] > lane[l] ? a[i + l] : lane[l];) \
        for (int l = 0; l < LANES; l++)                                        \
            best = lane[l] > best ? lane[l] : best;                            \
        for (; i < n; i++)                                                     \
            best = a[i] > best ? a[i] : best;                                  \
        return best;                                                           \
    }
LANES_OF(f32, float)
LANES_OF(f64, double)
#undef LANES_OF
#undef LANES_SUM

/* to = exp(from - shift), and its sum, as by lanes_sum.  Meanwhile prefetches
 * `next`, and `next_to` for writing; NULL: nothing. */
#define LANES_EXP(NAME, TYPE, EXP)                                         \
    static inline double lanes_exp_##NAME(TYPE *to, const TYPE *from,      \
                                          TYPE shift, int64_t n,           \
                                          const TYPE *next, TYPE *next_to) \
    {                                                                      \
        double total = 0;                                                  \
        for (int64_t at = 0; at < n; at += LANES_BLOCK) {                  \
            int64_t end = n - at < LANES_BLOCK ? n : at + LANES_BLOCK, i;  \
            TYPE lane[LANES] = {0};                                        \
            for (i = at; i + LANES <= end; i += LANES) {                   \
                for (int l = 0; next && l < LANES;                         \
                     l += 64 / (int)sizeof(TYPE)) {                        \
                    __builtin_prefetch(next + i + l);                      \
                    __builtin_prefetch(next_to + i + l, 1);                \
                }                                                          \
                MATH_LOOP                                                  \
                for (int l = 0; l < LANES; l++) {                          \
                    TYPE y = EXP(from[i + l] - shift);                     \
                    to[i + l] = y;                                         \
                    lane[l] += y;                                          \
                }                                                          \
            }                                                              \
            LANES_FOLD(lane)                                               \
            total += (double)lane[0];                                      \
            for (; i < end; i++) {                                         \
                to[i] = EXP(from[i] - shift);                              \
                total += (double)to[i];                                    \
            }                                                              \
        }                                                                  \
        return total;                                                      \
    }

/* For differences not above 88; results that would be subnormal are 0.  NaN
 * stays NaN. */
MATH_INLINE float lanes_power_f32(float x)
{
    return math_exp_normal(x < -88 ? -88 : x);
}

LANES_EXP(f32, float, lanes_power_f32)
LANES_EXP(f64, double, exp_f64)
#undef LANES_EXP

#endif
