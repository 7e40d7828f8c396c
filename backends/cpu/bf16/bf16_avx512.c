/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The inner parts of bf16.h for AVX512-BF16.  Compiled with the flags of that
 * instruction set, and called only if the machine has it. */

#include <immintrin.h>

#include "bf16.h"
#include "move/transpose_tile.h"

#define INLINE static inline __attribute__((always_inline))

/* ------------------------------------------------------------- packing -- */

/* The low n bits of a mask of 16 or 32. */
INLINE uint32_t low_bits(int64_t n)
{
    return n <= 0 ? 0 : n >= 32 ? UINT32_MAX : (UINT32_C(1) << n) - 1;
}

/* Sixteen lines that are dense along k: pairs are words, to be transposed. */
static void pack_dense_k(uint32_t *to, int64_t group, const uint16_t *from,
                         int64_t line, int64_t count, int64_t k)
{
    int64_t pairs = (k + 1) / 2;

    for (int64_t p = 0; p < pairs; p += 16) {
        __mmask32 words = low_bits(k - 2 * p);
        int64_t last = pairs - p < 16 ? pairs - p : 16;
        __m512 x[16];

#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            x[i] = i < count ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(
                                   words, from + i * line + 2 * p))
                             : _mm512_setzero_ps();
        cpu_transpose_16(x);
        if (last == 16) {
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                _mm512_storeu_ps(to + (p + i) * group, x[i]);
        } else {
            __m512 y[16];

#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                _mm512_storeu_ps(&y[i], x[i]);
            for (int64_t i = 0; i < last; i++)
                _mm512_storeu_ps(to + (p + i) * group, y[i]);
        }
    }
}

/* Sixteen adjacent lines: one row for each of two k. */
static void pack_dense_lines(uint32_t *to, int64_t group, const uint16_t *from,
                             int64_t step, int64_t count, int64_t k)
{
    __mmask16 lines = (__mmask16)low_bits(count);

    for (int64_t p = 0; p < k; p += 2) {
        const uint16_t *at = from + p * step;
        __m256i low = _mm256_maskz_loadu_epi16(lines, at);
        __m256i high = p + 1 < k ? _mm256_maskz_loadu_epi16(lines, at + step)
                                 : _mm256_setzero_si256();

        _mm512_storeu_si512(
            to + p / 2 * group,
            _mm512_or_si512(
                _mm512_cvtepu16_epi32(low),
                _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
    }
}

static void pack_sparse(uint32_t *to, int64_t group, const uint16_t *from,
                        int64_t line, int64_t step, int64_t count, int64_t k)
{
    for (int64_t p = 0; p < k; p += 2)
        for (int64_t i = 0; i < 16; i++) {
            const uint16_t *at = from + i * line + p * step;
            uint32_t pair = 0;

            if (i < count)
                pair = at[0];
            if (i < count && p + 1 < k)
                pair |= (uint32_t)at[step] << 16;
            to[p / 2 * group + i] = pair;
        }
}

static void pack(uint32_t *to, int64_t group, const uint16_t *from,
                 int64_t line, int64_t step, int64_t count, int64_t k)
{
    for (int64_t i = 0; i < group; i += 16) {
        const uint16_t *at = from + (i < count ? i * line : 0);

        if (step == 1)
            pack_dense_k(to + i, group, at, line, count - i, k);
        else if (line == 1)
            pack_dense_lines(to + i, group, at, step, count - i, k);
        else
            pack_sparse(to + i, group, at, line, step, count - i, k);
    }
}

/* ------------------------------------------------------------ products -- */

#define ROWS(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

/* rows and wide are constants where this is inlined: 28 sums in registers, and
 * each word of A is multiplied by 32 columns. */
INLINE void product(const uint32_t *a, const uint32_t *b, int64_t pairs,
                    const int rows, const bool wide, float *sums,
                    int64_t distance, bool add)
{
#define START(i)                                                  \
    __m512 left##i = _mm512_setzero_ps(), right##i = left##i;     \
    if (rows > i && add) {                                        \
        left##i = _mm512_loadu_ps(sums + i * distance);           \
        if (wide)                                                 \
            right##i = _mm512_loadu_ps(sums + i * distance + 16); \
    }
#define STEP(i)                                              \
    if (rows > i) {                                          \
        __m512bh x = (__m512bh)_mm512_set1_epi32((int)a[i]); \
        left##i = _mm512_dpbf16_ps(left##i, x, left);        \
        if (wide)                                            \
            right##i = _mm512_dpbf16_ps(right##i, x, right); \
    }
#define END(i)                                                    \
    if (rows > i) {                                               \
        _mm512_storeu_ps(sums + i * distance, left##i);           \
        if (wide)                                                 \
            _mm512_storeu_ps(sums + i * distance + 16, right##i); \
    }
    ROWS(START)
    for (int64_t p = 0; p < pairs; p++) {
        __m512bh left = (__m512bh)_mm512_loadu_si512(b);
        __m512bh right = (__m512bh)_mm512_loadu_si512(b + 16);

        ROWS(STEP)
        a += CPU_BF16_GROUP_A;
        b += CPU_BF16_GROUP_B;
    }
    ROWS(END)
#undef START
#undef STEP
#undef END
}

static void multiply(const uint32_t *a, const uint32_t *b, int64_t pairs,
                     int64_t rows, int64_t columns, float *sums,
                     int64_t distance, bool add)
{
#define CASE(i)                                                        \
    case (i) + 1:                                                      \
        if (columns > 16)                                              \
            product(a, b, pairs, (i) + 1, true, sums, distance, add);  \
        else                                                           \
            product(a, b, pairs, (i) + 1, false, sums, distance, add); \
        break;
    switch (rows) {
        ROWS(CASE)
    default:
        break;
    }
#undef CASE
}

/* ------------------------------------------------------------- results -- */

/* Rounds to nearest, ties to even; NaN stays NaN. */
static __attribute__((noinline)) __m256i rounded_subnormal(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i number = _mm512_add_epi32(
        bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);

    number =
        _mm512_mask_or_epi32(number, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(number, 16));
}

/* Keeps subnormal numbers, which the conversion instruction would drop. */
INLINE __m256i rounded(__m512 x)
{
    enum { SUBNORMAL = 1 << 5 };

    if (__builtin_expect(_mm512_fpclass_ps_mask(x, SUBNORMAL) != 0, 0))
        return rounded_subnormal(x);
    return (__m256i)_mm512_cvtneps_pbh(x);
}

/* Sixteen elements of a row, or the first of them. */
INLINE __m512 finished(const float *sums, float alpha, const float *s,
                       __mmask16 lanes)
{
    __m512 x = _mm512_mul_ps(_mm512_set1_ps(alpha),
                             _mm512_maskz_loadu_ps(lanes, sums));

    return s ? _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, s)) : x;
}

/* A whole row of adjacent columns, without masks, which make stores slow. */
INLINE void finish_whole(const float *sums, float alpha, const float *s,
                         core_dtype dtype, void *c)
{
    __m512 left = finished(sums, alpha, s, 0xffff);
    __m512 right = finished(sums + 16, alpha, s ? s + 16 : NULL, 0xffff);

    if (dtype == CORE_BF16) {
        _mm256_storeu_si256((__m256i *)c, rounded(left));
        _mm256_storeu_si256((__m256i *)c + 1, rounded(right));
    } else {
        _mm512_storeu_ps(c, left);
        _mm512_storeu_ps((float *)c + 16, right);
    }
}

static void finish(const float *sums, float alpha, const float *s,
                   core_dtype dtype, void *c, int64_t column_stride,
                   int64_t columns)
{
    uint16_t halves[CPU_BF16_COLUMNS];
    float singles[CPU_BF16_COLUMNS];
    bool dense = column_stride == 1;
    uint16_t *half = dense && dtype == CORE_BF16 ? c : halves;
    float *single = dense && dtype == CORE_F32 ? c : singles;

    if (dense && columns == CPU_BF16_COLUMNS) {
        finish_whole(sums, alpha, s, dtype, c);
        return;
    }
    for (int64_t j = 0; j < columns; j += 16) {
        __mmask16 lanes = (__mmask16)low_bits(columns - j);
        __m512 x = finished(sums + j, alpha, s ? s + j : NULL, lanes);

        if (dtype == CORE_BF16)
            _mm256_mask_storeu_epi16(half + j, lanes, rounded(x));
        else
            _mm512_mask_storeu_ps(single + j, lanes, x);
    }
    for (int64_t j = 0; j < columns && !dense; j++)
        if (dtype == CORE_BF16)
            ((uint16_t *)c)[j * column_stride] = halves[j];
        else
            ((float *)c)[j * column_stride] = singles[j];
}

static void finish_rows(const float *sums, int64_t distance, int64_t rows,
                        float alpha, core_dtype dtype, void *c,
                        int64_t row_stride)
{
    if (dtype == CORE_BF16)
        for (int64_t i = 0; i < rows; i++)
            finish_whole(sums + i * distance, alpha, NULL, CORE_BF16,
                         (uint16_t *)c + i * row_stride);
    else
        for (int64_t i = 0; i < rows; i++)
            finish_whole(sums + i * distance, alpha, NULL, CORE_F32,
                         (float *)c + i * row_stride);
}

static void scale(float *to, const uint16_t *from, float beta, int64_t n)
{
    for (int64_t j = 0; j < n; j += 16) {
        __mmask16 lanes = (__mmask16)low_bits(n - j);
        __m512i bits = _mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from + j)),
            16);

        _mm512_mask_storeu_ps(
            to + j, lanes,
            _mm512_mul_ps(_mm512_set1_ps(beta), _mm512_castsi512_ps(bits)));
    }
}

const cpu_bf16_functions cpu_bf16_avx512 = {
    .pack = pack,
    .multiply = multiply,
    .finish_rows = finish_rows,
    .finish = finish,
    .scale = scale,
};
