/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* If source and destination are dense along different dimensions, tiles use
 * each cache line once. */

#include "transpose.h"

#include "nontemporal.h"
#include "runtime/thread_pool.h"
#include "transpose_lines.h"

enum {
    LINE = CPU_NONTEMPORAL_LINE,
    /* Rows of a tile; its columns are a cache line of non-temporal stores, or
     * as many. */
    TILE = 64,
    /* Rows in a strip; of large ones, so many that a few kilobytes of a page of
     * the source are read at a time. */
    STRIP = 64,
    STRIP_LARGE = 1024,
    LARGE = 4 << 20 /* bytes */
};

typedef struct transposition {
    const core_loop *loop;
    uint32_t other; /* the dimension along which the source is dense */
    uint32_t bytes;
    int64_t strip; /* elements along the other dimension */
    int64_t strips;
    bool streams; /* uses non-temporal stores */
} transposition;

/* For cache lines aligned to vectors, and more data than the caches hold. */
static void choose(transposition *t)
{
    const core_loop *loop = t->loop;
    bool large = loop->numel * (int64_t)t->bytes >= LARGE;
    uintptr_t parts = (uintptr_t)cpu_address(loop->operands[0].memory);
    uint32_t d;

    for (d = 1; d < loop->ndim; d++)
        parts |= (uintptr_t)loop->operands[0].strides[d];
    t->streams = large && parts % LINE == 0;
    t->strip = large ? STRIP_LARGE : STRIP;
    t->strips = (loop->sizes[t->other] + t->strip - 1) / t->strip;
}

/* A tile of rows of the destination, each of so many columns. */
static void turn(const transposition *t, char *to, const char *from,
                 int64_t rows, int64_t columns)
{
    _Alignas(64) char tile[TILE * LINE];
    int64_t to_stride = t->loop->operands[0].strides[t->other];
    int64_t from_stride = t->loop->operands[1].strides[0];

    if (!t->streams) {
        CPU_NAME(cpu_transpose_lines)
        (t->bytes, to, to_stride, from, from_stride, columns, rows);
        return;
    }
    cpu_prefetch_lines(from + TILE * t->bytes, from_stride, columns,
                       rows * t->bytes);
    CPU_NAME(cpu_transpose_lines)
    (t->bytes, tile, LINE, from, from_stride, columns, rows);
    for (int64_t r = 0; r < rows; r++)
        cpu_copy_nontemporal(to + r * to_stride, tile + r * LINE,
                             columns * t->bytes);
}

/* A strip: some elements of the other dimension by all of the inner one. */
static void transpose_strip(const transposition *t, char *to, const char *from,
                            int64_t rows)
{
    int64_t to_stride = t->loop->operands[0].strides[t->other];
    int64_t from_stride = t->loop->operands[1].strides[0];
    int64_t all = t->loop->sizes[0], bytes = t->bytes;
    int64_t width = t->streams ? LINE / bytes : TILE;

    for (int64_t c = 0; c < all; c += width)
        for (int64_t r = 0; r < rows; r += TILE)
            turn(t, to + r * to_stride + c * bytes,
                 from + c * from_stride + r * bytes,
                 rows - r < TILE ? rows - r : TILE,
                 all - c < width ? all - c : width);
    if (t->streams)
        cpu_nontemporal_end();
}

/* An index counts strips, then the remaining dimensions. */
static void transpose_task(void *context, int64_t begin, int64_t end)
{
    const transposition *t = context;
    const core_loop *loop = t->loop;
    int64_t k;

    for (k = begin; k < end; k++) {
        int64_t rest = k / t->strips, strip = k % t->strips * t->strip;
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
        transpose_strip(t, to, from, rows < t->strip ? rows : t->strip);
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
        from[0] == (int64_t)bytes || loop->sizes[0] < 2)
        return false;
    for (d = 1; d < loop->ndim; d++)
        if (from[d] == (int64_t)bytes && loop->sizes[d] >= 4)
            t.other = d;
    if (t.other == 0)
        return false;
    choose(&t);
    strips = loop->numel / loop->sizes[0] / loop->sizes[t.other] * t.strips;
    grain = 65536 / (t.strip * loop->sizes[0]);
    cpu_parallel_for(strips, grain < 1 ? 1 : grain, transpose_task, &t);
    return true;
}
