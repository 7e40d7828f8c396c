/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* lanes.h: sums, maxima and exponentials of rows, in vectors of 64 bytes that
 * the compiler maps to what the instruction set has (isa.h).  The order of
 * additions does not depend on the instruction set. */

#ifndef CPU_LANES_H
#define CPU_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float lanes_f32 __attribute__((vector_size(64)));
typedef double lanes_f64 __attribute__((vector_size(64)));
typedef int32_t lanes_i32 __attribute__((vector_size(64)));

/* Sums run in lanes over at most so many elements, then in double: the error
 * of a sum does not grow with its length. */
enum { LANES_BLOCK = 2048 };

/* The sum of a term over a row.  TERM is an expression of the vectors x and y,
 * TERM1 the same of the numbers x and y; ROWS of them are read. */
#define LANES_SUM(FUNCTION, TYPE, LANES, COUNT, TERM)                         \
    static inline double FUNCTION(const TYPE *a, const TYPE *b, TYPE shift,   \
                                  int64_t n)                                  \
    {                                                                         \
        double total = 0;                                                     \
        (void)b;                                                              \
        (void)shift;                                                          \
        while (n > 0) {                                                       \
            int64_t m = n < LANES_BLOCK ? n : LANES_BLOCK, i = 0;             \
            LANES sum = {0}, sum1 = {0};                                      \
            for (; i + 2 * COUNT <= m; i += 2 * COUNT) {                      \
                LANES x, y = {0};                                             \
                memcpy(&x, a + i, sizeof x);                                  \
                if (b)                                                        \
                    memcpy(&y, b + i, sizeof y);                              \
                sum += TERM;                                                  \
                memcpy(&x, a + i + COUNT, sizeof x);                          \
                if (b)                                                        \
                    memcpy(&y, b + i + COUNT, sizeof y);                      \
                sum1 += TERM;                                                 \
            }                                                                 \
            sum += sum1;                                                      \
            for (int width = COUNT / 2; width > 0; width /= 2)                \
                for (int l = 0; l < width; l++)                               \
                    sum[l] += sum[l + width];                                 \
            for (; i < m; i++) {                                              \
                TYPE x = a[i], y = b ? b[i] : 0;                              \
                (void)y;                                                      \
                total += TERM;                                                \
            }                                                                 \
            total += sum[0];                                                  \
            a += m;                                                           \
            b = b ? b + m : b;                                                \
            n -= m;                                                           \
        }                                                                     \
        return total;                                                         \
    }

LANES_SUM(lanes_sum_f32, float, lanes_f32, 16, x)
LANES_SUM(lanes_sum_f64, double, lanes_f64, 8, x)
LANES_SUM(lanes_dot_f32, float, lanes_f32, 16, x *y)
LANES_SUM(lanes_dot_f64, double, lanes_f64, 8, x *y)
/* sum of (x - shift)^2 */
LANES_SUM(lanes_square_f32, float, lanes_f32, 16, (x - shift) * (x - shift))
LANES_SUM(lanes_square_f64, double, lanes_f64, 8, (x - shift) * (x - shift))
/* sum of (x - shift) y */
LANES_SUM(lanes_moment_f32, float, lanes_f32, 16, (x - shift) * y)
LANES_SUM(lanes_moment_f64, double, lanes_f64, 8, (x - shift) * y)
#undef LANES_SUM

/* The largest; NaN may or may not be among what is compared. */
#define LANES_MAX(NAME, TYPE, LANES, COUNT)                                   \
    static inline TYPE lanes_max_##NAME(const TYPE *a, int64_t n)             \
    {                                                                         \
        TYPE best = -INFINITY;                                                \
        TYPE lane[COUNT];                                                     \
        int64_t i = 0;                                                        \
        for (int l = 0; l < COUNT; l++)                                       \
            lane[l] = -INFINITY;                                              \
        for (; i + COUNT <= n; i += COUNT)                                    \
            for (int l = 0; l < COUNT; l++)                                   \
                lane[l] = a[i + l] > lane[l] ? a[i + l] : lane[l];            \
        for (int l = 0; l < COUNT; l++)                                       \
            best = lane[l] > best ? lane[l] : best;                           \
        for (; i < n; i++)                                                    \
            best = a[i] > best ? a[i] : best;                                 \
        return best;                                                          \
    }
LANES_MAX(f32, float, lanes_f32, 16)
LANES_MAX(f64, double, lanes_f64, 8)
#undef LANES_MAX

/* to = exp(from - shift), within 2 ulp: a power of two times a polynomial in
 * what is left, |r| <= ln 2 / 2 (Taylor to degree 7). */
static inline void lanes_exp_block_f32(float *to, const float *from,
                                       float shift)
{
    lanes_f32 x, n, r, p;
    lanes_i32 low, high, exponent, half;

    memcpy(&x, from, sizeof x);
    x -= shift;
    low = x < -104.0f;
    high = x > 89.0f;
    x = (lanes_f32)(((lanes_i32)x & ~(low | high)) |
                    (low & (int32_t)0xc2d00000) | (high & 0x42b20000));
    n = x * 0x1.715476p0f + 0x1.8p23f; /* rounds: its low bits count */
    exponent = (lanes_i32)n - 0x4b400000;
    n -= 0x1.8p23f;
    r = x - n * 0x1.63p-1f;           /* ln 2 in two parts: the first is */
    r -= n * -0x1.bd0106p-13f;        /* exact in the product */
    p = r * 0x1.a01a02p-13f + 0x1.6c16c2p-10f;
    p = p * r + 0x1.111112p-7f;
    p = p * r + 0x1.555556p-5f;
    p = p * r + 0x1.555556p-3f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    half = exponent >> 1; /* in two steps, for subnormal results */
    p *= (lanes_f32)((half + 127) << 23);
    p *= (lanes_f32)((exponent - half + 127) << 23);
    memcpy(to, &p, sizeof p);
}

static inline void lanes_exp_f32(float *to, const float *from, float shift,
                                 int64_t n)
{
    float tail[16] = {0};
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        lanes_exp_block_f32(to + i, from + i, shift);
    if (i < n) {
        memcpy(tail, from + i, (size_t)(n - i) * sizeof(float));
        lanes_exp_block_f32(tail, tail, shift);
        memcpy(to + i, tail, (size_t)(n - i) * sizeof(float));
    }
}

static inline void lanes_exp_f64(double *to, const double *from, double shift,
                                 int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = exp(from[i] - shift);
}

#endif
