/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Blocks of lines are turned in registers, elements beyond them one by one. */

#include "transpose_lines.h"

#include "transpose_tile.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define EACH(BITS)                                                         \
    static void each_##BITS(char *to, int64_t to_stride, const char *from, \
                            int64_t from_stride, int64_t first_line,       \
                            int64_t lines, int64_t first, int64_t length)  \
    {                                                                      \
        typedef uint##BITS##_t __attribute__((may_alias)) element;         \
        for (int64_t j = first; j < length; j++)                           \
            for (int64_t i = first_line; i < lines; i++)                   \
                ((element *)(to + j * to_stride))[i] =                     \
                    ((const element *)(from + i * from_stride))[j];        \
    }
EACH(8)
EACH(16)
EACH(32)
EACH(64)
#undef EACH

#if defined(__SSE2__)

enum { SIDE_16 = 8 };

/* Eight lines of as many 16-bit elements. */
static void block_16(char *to, int64_t to_stride, const char *from,
                     int64_t from_stride)
{
    __m128i a[8], b[8];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = _mm_loadu_si128((const __m128i *)(from + i * from_stride));
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm_unpackhi_epi16(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm_unpacklo_epi32(b[i], b[i + 2]);
        a[i + 1] = _mm_unpackhi_epi32(b[i], b[i + 2]);
        a[i + 2] = _mm_unpacklo_epi32(b[i + 1], b[i + 3]);
        a[i + 3] = _mm_unpackhi_epi32(b[i + 1], b[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m128i low = _mm_unpacklo_epi64(a[i], a[i + 4]);
        __m128i high = _mm_unpackhi_epi64(a[i], a[i + 4]);

        _mm_storeu_si128((__m128i *)(to + 2 * i * to_stride), low);
        _mm_storeu_si128((__m128i *)(to + (2 * i + 1) * to_stride), high);
    }
}

#else

enum { SIDE_16 = 1 };

static void block_16(char *to, int64_t to_stride, const char *from,
                     int64_t from_stride)
{
    each_16(to, to_stride, from, from_stride, 0, 1, 0, 1);
}

#endif

#if defined(__AVX512F__)

enum { SIDE_32 = 16 };

static void block_32(char *to, int64_t to_stride, const char *from,
                     int64_t from_stride)
{
    __m512 a[16];

#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_loadu_ps((const float *)(from + i * from_stride));
    cpu_transpose_16(a);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_storeu_ps((float *)(to + i * to_stride), a[i]);
}

#elif defined(__AVX2__)

enum { SIDE_32 = 8 };

static void block_32(char *to, int64_t to_stride, const char *from,
                     int64_t from_stride)
{
    __m256 a[8];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_loadu_ps((const float *)(from + i * from_stride));
    cpu_transpose_8(a);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        _mm256_storeu_ps((float *)(to + i * to_stride), a[i]);
}

#else

enum { SIDE_32 = 1 };

static void block_32(char *to, int64_t to_stride, const char *from,
                     int64_t from_stride)
{
    each_32(to, to_stride, from, from_stride, 0, 1, 0, 1);
}

#endif

#if defined(__AVX2__)

enum { SIDE_64 = 4 };

static void block_64(char *to, int64_t to_stride, const char *from,
                     int64_t from_stride)
{
    __m256d a[4], b[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_loadu_pd((const double *)(from + i * from_stride));
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
        b[i] = _mm256_unpacklo_pd(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_pd(a[i], a[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m256d low = _mm256_permute2f128_pd(b[i], b[i + 2], 0x20);
        __m256d high = _mm256_permute2f128_pd(b[i], b[i + 2], 0x31);

        _mm256_storeu_pd((double *)(to + i * to_stride), low);
        _mm256_storeu_pd((double *)(to + (i + 2) * to_stride), high);
    }
}

#else

enum { SIDE_64 = 1 };

static void block_64(char *to, int64_t to_stride, const char *from,
                     int64_t from_stride)
{
    each_64(to, to_stride, from, from_stride, 0, 1, 0, 1);
}

#endif

#define LINES(BITS)                                                            \
    static void lines_##BITS(char *to, int64_t to_stride, const char *from,    \
                             int64_t from_stride, int64_t lines,               \
                             int64_t length)                                   \
    {                                                                          \
        enum { SIDE = SIDE_##BITS, SIZE = BITS / 8, LINE = 64 / SIZE };        \
        int64_t whole_lines = lines / SIDE * SIDE;                             \
        int64_t whole = length / SIDE * SIDE;                                  \
        for (int64_t y = 0; y < whole; y += LINE)                              \
            for (int64_t x = 0; x < whole_lines; x += LINE)                    \
                for (int64_t j = y; j < whole && j < y + LINE; j += SIDE)      \
                    for (int64_t i = x; i < whole_lines && i < x + LINE;       \
                         i += SIDE)                                            \
                        block_##BITS(to + j * to_stride + i * SIZE, to_stride, \
                                     from + i * from_stride + j * SIZE,        \
                                     from_stride);                             \
        each_##BITS(to, to_stride, from, from_stride, whole_lines, lines, 0,   \
                    whole);                                                    \
        each_##BITS(to, to_stride, from, from_stride, 0, lines, whole,         \
                    length);                                                   \
    }
LINES(16)
LINES(32)
LINES(64)
#undef LINES

void CPU_NAME(cpu_transpose_lines)(uint32_t size, char *to, int64_t to_stride,
                                   const char *from, int64_t from_stride,
                                   int64_t lines, int64_t length)
{
    if (size == 4)
        lines_32(to, to_stride, from, from_stride, lines, length);
    else if (size == 2)
        lines_16(to, to_stride, from, from_stride, lines, length);
    else if (size == 8)
        lines_64(to, to_stride, from, from_stride, lines, length);
    else
        each_8(to, to_stride, from, from_stride, 0, lines, 0, length);
}
