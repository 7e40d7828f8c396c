/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* transpose_lines.h: transposes some lines of elements of any size, for files
 * compiled with the instruction set. */

#ifndef CPU_TRANSPOSE_LINES_H
#define CPU_TRANSPOSE_LINES_H

#include <stdint.h>

#include "transpose_tile.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define CPU_TRANSPOSE_EACH(BITS)                                            \
    static inline void cpu_transpose_each_##BITS(                           \
        char *to, int64_t to_stride, const char *from, int64_t from_stride, \
        int64_t first_line, int64_t lines, int64_t first, int64_t length)   \
    {                                                                       \
        typedef uint##BITS##_t __attribute__((may_alias)) element;          \
        for (int64_t j = first; j < length; j++)                            \
            for (int64_t i = first_line; i < lines; i++)                    \
                ((element *)(to + j * to_stride))[i] =                      \
                    ((const element *)(from + i * from_stride))[j];         \
    }
CPU_TRANSPOSE_EACH(8)
CPU_TRANSPOSE_EACH(16)
CPU_TRANSPOSE_EACH(32)
CPU_TRANSPOSE_EACH(64)
#undef CPU_TRANSPOSE_EACH

#if defined(__SSE2__)

enum { CPU_TRANSPOSE_SIDE_16 = 8 };

/* Eight lines of as many 16-bit elements. */
static inline void cpu_transpose_block_16(char *to, int64_t to_stride,
                                          const char *from, int64_t from_stride)
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

enum { CPU_TRANSPOSE_SIDE_16 = 1 };

static inline void cpu_transpose_block_16(char *to, int64_t to_stride,
                                          const char *from, int64_t from_stride)
{
    cpu_transpose_each_16(to, to_stride, from, from_stride, 0, 1, 0, 1);
}

#endif

#if defined(__AVX512F__)

enum { CPU_TRANSPOSE_SIDE_32 = 16 };

static inline void cpu_transpose_block_32(char *to, int64_t to_stride,
                                          const char *from, int64_t from_stride)
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

enum { CPU_TRANSPOSE_SIDE_32 = 8 };

static inline void cpu_transpose_block_32(char *to, int64_t to_stride,
                                          const char *from, int64_t from_stride)
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

enum { CPU_TRANSPOSE_SIDE_32 = 1 };

static inline void cpu_transpose_block_32(char *to, int64_t to_stride,
                                          const char *from, int64_t from_stride)
{
    cpu_transpose_each_32(to, to_stride, from, from_stride, 0, 1, 0, 1);
}

#endif

#if defined(__AVX2__)

enum { CPU_TRANSPOSE_SIDE_64 = 4 };

static inline void cpu_transpose_block_64(char *to, int64_t to_stride,
                                          const char *from, int64_t from_stride)
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

enum { CPU_TRANSPOSE_SIDE_64 = 1 };

static inline void cpu_transpose_block_64(char *to, int64_t to_stride,
                                          const char *from, int64_t from_stride)
{
    cpu_transpose_each_64(to, to_stride, from, from_stride, 0, 1, 0, 1);
}

#endif

#define CPU_TRANSPOSE_LINES(BITS)                                             \
    static inline void cpu_transpose_lines_##BITS(                            \
        char *to, int64_t to_stride, const char *from, int64_t from_stride,   \
        int64_t lines, int64_t length)                                        \
    {                                                                         \
        enum {                                                                \
            SIDE = CPU_TRANSPOSE_SIDE_##BITS,                                 \
            SIZE = BITS / 8,                                                  \
            LINE = 64 / SIZE                                                  \
        };                                                                    \
        int64_t whole_lines = lines / SIDE * SIDE;                            \
        int64_t whole = length / SIDE * SIDE;                                 \
        for (int64_t y = 0; y < whole; y += LINE)                             \
            for (int64_t x = 0; x < whole_lines; x += LINE)                   \
                for (int64_t j = y; j < whole && j < y + LINE; j += SIDE)     \
                    for (int64_t i = x; i < whole_lines && i < x + LINE;      \
                         i += SIDE)                                           \
                        cpu_transpose_block_##BITS(                           \
                            to + j * to_stride + i * SIZE, to_stride,         \
                            from + i * from_stride + j * SIZE, from_stride);  \
        cpu_transpose_each_##BITS(to, to_stride, from, from_stride,           \
                                  whole_lines, lines, 0, whole);              \
        cpu_transpose_each_##BITS(to, to_stride, from, from_stride, 0, lines, \
                                  whole, length);                             \
    }
CPU_TRANSPOSE_LINES(16)
CPU_TRANSPOSE_LINES(32)
CPU_TRANSPOSE_LINES(64)
#undef CPU_TRANSPOSE_LINES

/* Transposes `lines` lines of `length` elements of `size` bytes: element j of
 * line i, at from + i * from_stride + j * size, is written to to + j *
 * to_stride + i * size.  Strides are in bytes.  Cache lines are completed soon
 * on both sides, since those at a stride that is a power of two evict each
 * other. */
static inline void cpu_transpose_lines(uint32_t size, char *to,
                                       int64_t to_stride, const char *from,
                                       int64_t from_stride, int64_t lines,
                                       int64_t length)
{
    if (size == 4)
        cpu_transpose_lines_32(to, to_stride, from, from_stride, lines, length);
    else if (size == 2)
        cpu_transpose_lines_16(to, to_stride, from, from_stride, lines, length);
    else if (size == 8)
        cpu_transpose_lines_64(to, to_stride, from, from_stride, lines, length);
    else
        cpu_transpose_each_8(to, to_stride, from, from_stride, 0, lines, 0,
                             length);
}

/* Prefetches `bytes` bytes of each of some lines to the second-level cache: in
 * the first, lines at a stride that is a power of two would evict each other
 * before they are used. */
static inline void cpu_prefetch_lines(const char *from, int64_t stride,
                                      int64_t lines, int64_t bytes)
{
    for (int64_t i = 0; i < lines; i++)
        for (int64_t k = 0; k < bytes; k += 64)
            __builtin_prefetch(from + i * stride + k, 0, 2);
}

#endif
