/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* If source and destination are dense along different dimensions, tiles use
 * each cache line once. */

#include "transpose.h"

#include <string.h>

#include "runtime/thread_pool.h"
#include "transpose_tile.h"

enum { TILE = 64 };

typedef struct transposition {
    const core_loop *loop;
    uint32_t other; /* the dimension along which the source is dense */
    uint32_t bytes;
    int64_t tiles; /* along the other dimension: a strip has TILE of it */
    bool streams;  /* uses non-temporal stores */
} transposition;

/* Reads whole lines, transposes them in the first-level cache, and writes whole
 * lines: otherwise a stride that is a power of two would evict them. */
#define TRANSPOSE(BITS)                                                   \
    static void transpose_##BITS(char *to, int64_t to_stride,             \
                                 const char *from, int64_t from_stride,   \
                                 int64_t rows, int64_t columns)           \
    {                                                                     \
        uint##BITS##_t tile[TILE][TILE];                                  \
                                                                          \
        for (int64_t c = 0; c < columns; c++)                             \
            memcpy(tile[c], from + c * from_stride,                       \
                   (size_t)rows * sizeof(tile[0][0]));                    \
        for (int64_t r = 0; r < rows; r++) {                              \
            uint##BITS##_t *out = (uint##BITS##_t *)(to + r * to_stride); \
            for (int64_t c = 0; c < columns; c++)                         \
                out[c] = tile[c][r];                                      \
        }                                                                 \
    }
TRANSPOSE(8)
TRANSPOSE(16)
TRANSPOSE(32)
TRANSPOSE(64)
#undef TRANSPOSE

#if defined(__AVX512F__)

enum { BLOCK = 16, LARGE = 1 << 20 /* elements */ };

/* BLOCK lines of as many 32-bit words. */
static inline void transpose_block(char *to, int64_t to_stride,
                                   const char *from, int64_t from_stride,
                                   bool streams)
{
    __m512 a[BLOCK];

#pragma GCC unroll 16
    for (int i = 0; i < BLOCK; i++)
        a[i] = _mm512_loadu_ps((const float *)(from + i * from_stride));
    cpu_transpose_16(a);
#pragma GCC unroll 16
    for (int i = 0; i < BLOCK; i++)
        if (streams)
            _mm512_stream_ps((float *)(to + i * to_stride), a[i]);
        else
            _mm512_storeu_ps((float *)(to + i * to_stride), a[i]);
}

/* Whole blocks.  Writes whole cache lines, to no more pages at a time than the
 * TLB has entries for. */
static void transpose_blocks(const transposition *t, char *to, const char *from,
                             int64_t rows, int64_t columns)
{
    int64_t to_stride = t->loop->operands[0].strides[t->other];
    int64_t from_stride = t->loop->operands[1].strides[0];

    for (int64_t c = 0; c < columns; c += BLOCK)
        for (int64_t r = 0; r < rows; r += BLOCK)
            if (t->streams)
                transpose_block(to + r * to_stride + c * 4, to_stride,
                                from + c * from_stride + r * 4, from_stride,
                                true);
            else
                transpose_block(to + r * to_stride + c * 4, to_stride,
                                from + c * from_stride + r * 4, from_stride,
                                false);
    if (t->streams)
        _mm_sfence();
}

/* For cache lines aligned to vectors, and more data than the caches hold. */
static void choose(transposition *t)
{
    const core_loop *loop = t->loop;
    uintptr_t parts = (uintptr_t)cpu_address(loop->operands[0].memory);
    uint32_t d;

    for (d = 1; d < loop->ndim; d++)
        parts |= (uintptr_t)loop->operands[0].strides[d];
    t->streams = t->bytes == 4 && loop->numel >= LARGE && parts % 64 == 0;
}

#else

enum { BLOCK = 1 << 30 };

static void transpose_blocks(const transposition *t, char *to, const char *from,
                             int64_t rows, int64_t columns)
{
    (void)t;
    (void)to;
    (void)from;
    (void)rows;
    (void)columns;
}

static void choose(transposition *t)
{
    (void)t;
}

#endif

static void turn_tile(const transposition *t, char *to, int64_t to_stride,
                      const char *from, int64_t from_stride, int64_t rows,
                      int64_t columns)
{
    switch (t->bytes) {
    case 1:
        transpose_8(to, to_stride, from, from_stride, rows, columns);
        break;
    case 2:
        transpose_16(to, to_stride, from, from_stride, rows, columns);
        break;
    case 4:
        transpose_32(to, to_stride, from, from_stride, rows, columns);
        break;
    default:
        transpose_64(to, to_stride, from, from_stride, rows, columns);
        break;
    }
}

/* Elements [row, rows) of the other dimension, [column, columns) of the
 * inner. */
static void transpose_rest(const transposition *t, char *to, const char *from,
                           int64_t row, int64_t rows, int64_t column,
                           int64_t columns)
{
    int64_t to_stride = t->loop->operands[0].strides[t->other];
    int64_t from_stride = t->loop->operands[1].strides[0];
    int64_t r, c;

    for (r = row; r < rows; r += TILE)
        for (c = column; c < columns; c += TILE)
            turn_tile(t, to + r * to_stride + c * t->bytes, to_stride,
                      from + c * from_stride + r * t->bytes, from_stride,
                      rows - r < TILE ? rows - r : TILE,
                      columns - c < TILE ? columns - c : TILE);
}

/* A strip: some elements of the other dimension by all of the inner one. */
static void transpose_strip(const transposition *t, char *to, const char *from,
                            int64_t rows)
{
    int64_t columns = t->loop->sizes[0], whole_rows = 0, whole_columns = 0;

    if (t->bytes == 4 && rows >= BLOCK && columns >= BLOCK) {
        whole_rows = rows / BLOCK * BLOCK;
        whole_columns = columns / BLOCK * BLOCK;
        transpose_blocks(t, to, from, whole_rows, whole_columns);
    }
    transpose_rest(t, to, from, 0, whole_rows, whole_columns, columns);
    transpose_rest(t, to, from, whole_rows, rows, 0, columns);
}

/* An index counts strips, then the remaining dimensions. */
static void transpose_task(void *context, int64_t begin, int64_t end)
{
    const transposition *t = context;
    const core_loop *loop = t->loop;
    int64_t k;

    for (k = begin; k < end; k++) {
        int64_t rest = k / t->tiles, strip = k % t->tiles * TILE;
        int64_t rows = loop->sizes[t->other] - strip;
        char *to = cpu_address(loop->operands[0].memory);
        const char *from = cpu_address(loop->operands[1].memory);
        uint32_t d;

        to += strip * loop->operands[0].strides[t->other];
        from += strip * loop->operands[1].strides[t->other];
        for (d = 1; d < loop->ndim; d++) {
            if (d == t->other)
                continue;
            to += rest % loop->sizes[d] * loop->operands[0].strides[d];
            from += rest % loop->sizes[d] * loop->operands[1].strides[d];
            rest /= loop->sizes[d];
        }
        transpose_strip(t, to, from, rows < TILE ? rows : TILE);
    }
}

bool CPU_NAME(cpu_transpose)(const core_loop *loop, uint32_t bytes)
{
    const int64_t *to = loop->operands[0].strides;
    const int64_t *from = loop->operands[1].strides;
    transposition t = {.loop = loop, .bytes = bytes};
    int64_t strips, grain;
    uint32_t d;

    if (loop->ndim < 2 || to[0] != (int64_t)bytes || from[0] == 0 ||
        from[0] == (int64_t)bytes || loop->sizes[0] < 4)
        return false;
    for (d = 1; d < loop->ndim; d++)
        if (from[d] == (int64_t)bytes && loop->sizes[d] >= 4)
            t.other = d;
    if (t.other == 0)
        return false;
    choose(&t);
    t.tiles = (loop->sizes[t.other] + TILE - 1) / TILE;
    strips = loop->numel / loop->sizes[0] / loop->sizes[t.other] * t.tiles;
    grain = 65536 / (TILE * loop->sizes[0]);
    cpu_parallel_for(strips, grain < 1 ? 1 : grain, transpose_task, &t);
    return true;
}
