/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* pad.cu: results whose elements are each an element of the input: roll, and
 * padding by reflection or replication; the gradient of padding; evenly spaced
 * numbers, and the indices of triangles. */

#include "types.h"

#include <gpu/shared_pad.h>

GPU_DEVICE int64_t comes_from(const gpu_pad &p, uint32_t d, int64_t o)
{
    int64_t n = p.in[d], i = o - p.before[d];

    if (p.kind == GPU_ROLL)
        return i < 0 ? i + n : i;
    if (p.kind == GPU_REPLICATE)
        return i < 0 ? 0 : i >= n ? n - 1 : i;
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

template <class W> GPU_DEVICE void frame(const gpu_pad &p)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t left = at, from = 0, stride = 1;

        for (uint32_t d = 0; d < p.ndim; d++) {
            int64_t k;

            left = gpu_split(left, p.out[d], &k);
            from += comes_from(p, d, k) * stride;
            stride *= p.in[d];
        }
        ((W *)p.to)[at] = ((const W *)p.from)[from];
    }
}

/* The output positions that may come from i: at most three ranges. */
GPU_DEVICE int ranges(const gpu_pad &p, uint32_t d, int64_t i, int64_t first[3],
                      int64_t last[3])
{
    int64_t n = p.in[d], o = i + p.before[d];

    first[0] = last[0] = o;
    if (p.kind == GPU_REPLICATE) {
        first[0] = i == 0 ? 0 : o;
        last[0] = i == n - 1 ? p.out[d] - 1 : o;
        return 1;
    }
    first[1] = last[1] = p.before[d] - i;
    first[2] = last[2] = p.before[d] + 2 * (n - 1) - i;
    return 3;
}

/* Each output position o along d that comes from i, once. */
#define EACH_FROM(d, i, o)                                                     \
    int64_t first##d[3], last##d[3];                                           \
    int n##d = ranges(p, d, i, first##d, last##d);                             \
    for (int r##d = 0; r##d < n##d; r##d++)                                    \
        for (int64_t o = first##d[r##d] > 0 ? first##d[r##d] : 0;              \
             o <= last##d[r##d] && o < p.out[d]; o++)                          \
            if (comes_from(p, d, o) == i && (r##d == 0 || o != first##d[0]) && \
                (r##d < 2 || o != first##d[1]))

template <class M> GPU_DEVICE void pad_grad(const gpu_pad &p)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t x, y, z, plane = gpu_split(at, p.in[0], &x);
        typename gpu_type<M>::compute sum = 0;

        plane = gpu_split(plane, p.in[1], &y);
        plane = gpu_split(plane, p.in[2], &z);
        EACH_FROM(2, z, oz)
        {
            EACH_FROM(1, y, oy)
            {
                const M *from =
                    (const M *)p.from +
                    ((plane * p.out[2] + oz) * p.out[1] + oy) * p.out[0];

                EACH_FROM(0, x, ox)
                {
                    sum += gpu_load(from[ox]);
                }
            }
        }
        gpu_store(((M *)p.to)[at], sum);
    }
}

#define FRAME(name, W)              \
    GPU_KERNEL(pad_##name, gpu_pad) \
    {                               \
        frame<W>(p);                \
    }
FRAME(w8, uint8_t)
FRAME(w16, uint16_t)
FRAME(w32, uint32_t)
FRAME(w64, uint64_t)
#define FRAME_SLOPE(name, M)             \
    GPU_KERNEL(pad_grad_##name, gpu_pad) \
    {                                    \
        pad_grad<M>(p);                  \
    }
FRAME_SLOPE(f32, float)
FRAME_SLOPE(f64, double)
FRAME_SLOPE(f16, gpu_f16)
FRAME_SLOPE(bf16, gpu_bf16)

/* --------------------------------------------------------------- rules -- */

/* Both ends are exact: each half counts from its own end.  For integers, which
 * are truncated, the product is not rounded: 2 must not become 1. */
GPU_DEVICE double line_at(const gpu_range &p, int64_t i)
{
    bool first = i < p.count / 2 || p.count == 1;
    double from = first ? p.start : p.end;
    double steps = first ? (double)i : -(double)(p.count - 1 - i);

    return p.dtype <= GPU_BF16 ? from + steps * p.width
                               : fma(steps, p.width, from);
}

GPU_KERNEL(pad_linspace, gpu_range)
{
    uint32_t bytes = gpu_bytes(p.dtype);
    int64_t step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < p.count; i += step) {
        char *to = (char *)p.to + i * bytes;

        if (p.dtype <= GPU_BF16)
            gpu_write_f64(to, p.dtype, line_at(p, i));
        else
            gpu_write_i64(to, p.dtype, gpu_whole(line_at(p, i)));
    }
}

GPU_DEVICE int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
GPU_DEVICE int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The number of elements in the rows before `row`. */
GPU_DEVICE int64_t before_row(const gpu_range &p, int64_t row)
{
    int64_t full;

    if (p.upper) {
        full = least_of(most_of(-p.offset, 0), row);
        return full * p.columns + (row - full) * (p.columns - p.offset) -
               (row * (row - 1) - full * (full - 1)) / 2;
    }
    full = most_of(p.begin, least_of(row, p.columns - p.offset - 1));
    return (full * (full + 1) - p.begin * (p.begin + 1)) / 2 +
           (full - p.begin) * p.offset + (row - full) * p.columns;
}

/* A block has a row; the result has two rows: row and column indices. */
GPU_KERNEL(pad_triangle, gpu_range)
{
    uint32_t bytes = gpu_bytes(p.dtype);

    for (int64_t row = p.begin + gpu_block.x; row < p.stop; row += gpu_grid.x) {
        int64_t from = p.upper ? most_of(row + p.offset, 0) : 0;
        int64_t upto =
            p.upper ? p.columns : least_of(row + p.offset + 1, p.columns);
        char *to = (char *)p.to + before_row(p, row) * bytes;

        for (int64_t c = from + gpu_thread.x; c < upto; c += 256) {
            gpu_write_i64(to + (c - from) * bytes, p.dtype, row);
            gpu_write_i64(to + (p.count + c - from) * bytes, p.dtype, c);
        }
    }
}
