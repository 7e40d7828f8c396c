/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* move.cu: fills and copies, by the size of an element; casts. */

#include "conversions.h"
#include "elementwise.h"

/* --------------------------------------------------------------- fills -- */

GPU_KERNEL(fill_w64, gpu_fill)
{
    for (uint64_t i = gpu_first(); i < p.count; i += gpu_step())
        ((uint64_t *)p.to)[i] = p.pattern;
}

/* For addresses that are not aligned to the pattern; count is in bytes. */
GPU_DEVICE void fill_bytes(const gpu_fill &p, uint32_t size)
{
    for (uint64_t i = gpu_first(); i < p.count; i += gpu_step())
        ((uint8_t *)p.to)[i] = (uint8_t)(p.pattern >> i % size * 8);
}
GPU_KERNEL(fill_bytes_2, gpu_fill)
{
    fill_bytes(p, 2);
}
GPU_KERNEL(fill_bytes_4, gpu_fill)
{
    fill_bytes(p, 4);
}
GPU_KERNEL(fill_bytes_8, gpu_fill)
{
    fill_bytes(p, 8);
}

/* -------------------------------------------------------------- copies -- */

template <class W> GPU_DEVICE void copy_strided(const gpu_convert &p)
{
    uint32_t step = (uint32_t)gpu_step();

    for (uint32_t i = (uint32_t)gpu_first(); i < p.count; i += step) {
        int64_t to = 0, from = 0;
        uint32_t rest = i;

        for (uint32_t d = 0; d < p.ndim; d++) {
            uint32_t next = gpu_divide(rest, p.sizes[d]);
            uint32_t at = rest - next * p.sizes[d].value;

            rest = next;
            to += at * p.to_strides[d];
            from += at * p.from_strides[d];
        }
        *(W *)((char *)p.to + to) =
            p.from == 0 ? *(const W *)&p.number
                        : *(const W *)((const char *)p.from + from);
    }
}

/* Dimension 0 is dense in `to`, and dimension 1 in `from`: copying via tiles
 * lets both sides access whole lines.  Block x: a tile of both; y: the rest. */
enum { TILE = 32, TILE_ROWS = 8 };

template <class W> GPU_DEVICE void copy_transposed(const gpu_convert &p)
{
    GPU_SHARED W tile[TILE][TILE + 1];
    uint32_t across = (p.sizes[0].value + TILE - 1) / TILE;
    uint32_t x0 = gpu_block.x % across * TILE, y0 = gpu_block.x / across * TILE;
    uint32_t rest = gpu_block.y;
    int64_t to = 0, from = 0;

    for (uint32_t d = 2; d < p.ndim; d++) {
        uint32_t next = gpu_divide(rest, p.sizes[d]);
        uint32_t at = rest - next * p.sizes[d].value;

        rest = next;
        to += at * p.to_strides[d];
        from += at * p.from_strides[d];
    }
    for (uint32_t r = gpu_thread.y; r < TILE; r += TILE_ROWS) {
        uint32_t x = x0 + r, y = y0 + gpu_thread.x;

        if (x < p.sizes[0].value && y < p.sizes[1].value)
            tile[r][gpu_thread.x] =
                *(const W *)((const char *)p.from + from +
                             x * p.from_strides[0] + y * p.from_strides[1]);
    }
    gpu_barrier();
    for (uint32_t r = gpu_thread.y; r < TILE; r += TILE_ROWS) {
        uint32_t x = x0 + gpu_thread.x, y = y0 + r;

        if (x < p.sizes[0].value && y < p.sizes[1].value)
            *(W *)((char *)p.to + to + x * p.to_strides[0] +
                   y * p.to_strides[1]) = tile[gpu_thread.x][r];
    }
}

#define COPIES(name, W)                                \
    GPU_KERNEL(copy_s_##name, gpu_convert)             \
    {                                                  \
        copy_strided<W>(p);                            \
    }                                                  \
    GPU_KERNEL_COOPERATIVE(copy_t_##name, gpu_convert) \
    {                                                  \
        copy_transposed<W>(p);                         \
    }
COPIES(w8, uint8_t)
COPIES(w16, uint16_t)
COPIES(w32, uint32_t)
COPIES(w64, uint64_t)

/* --------------------------------------------------------------- casts -- */

/* From any dtype to any other: integers via i64, others via f64. */
GPU_KERNEL(convert_any, gpu_convert)
{
    uint32_t step = (uint32_t)gpu_step();
    uint32_t wide = gpu_bytes(p.to_dtype), narrow = gpu_bytes(p.from_dtype);

    for (uint32_t i = (uint32_t)gpu_first(); i < p.count; i += step) {
        int64_t to = (int64_t)i * wide, from = (int64_t)i * narrow;
        uint32_t rest = i;
        const void *source;

        if (!p.dense) {
            to = from = 0;
            for (uint32_t d = 0; d < p.ndim; d++) {
                uint32_t next = gpu_divide(rest, p.sizes[d]);
                uint32_t at = rest - next * p.sizes[d].value;

                rest = next;
                to += at * p.to_strides[d];
                from += at * p.from_strides[d];
            }
        }
        source = p.from == 0 ? (const void *)&p.number
                             : (const void *)((const char *)p.from + from);
        if (p.from_dtype >= GPU_I64)
            gpu_write_i64((char *)p.to + to, p.to_dtype,
                          gpu_read_i64(source, p.from_dtype));
        else
            gpu_write_converted((char *)p.to + to, p.to_dtype,
                                gpu_read_f64(source, p.from_dtype),
                                p.from_dtype);
    }
}

/* Casts between floating-point dtypes, dense, with wide loads. */
template <class TO, class FROM> struct cast {
    typedef TO M0;
    typedef FROM M1;
    typedef uint8_t M2, M3;
    enum { INPUTS = 1 };
    static GPU_DEVICE_MEMBER typename gpu_type<TO>::compute run(
        typename gpu_type<FROM>::compute a, uint8_t, uint8_t,
        const gpu_parameters *, int *)
    {
        return (typename gpu_type<TO>::compute)a;
    }
};

#define CAST(from, FROM, to, TO)              \
    GPU_KERNEL(cast_##from##_##to, gpu_dense) \
    {                                         \
        gpu_dense_run<cast<TO, FROM>>(p);     \
    }
CAST(f32, float, f16, gpu_f16)
CAST(f32, float, bf16, gpu_bf16)
CAST(f32, float, f64, double)
CAST(f16, gpu_f16, f32, float)
CAST(bf16, gpu_bf16, f32, float)
CAST(f64, double, f32, float)
