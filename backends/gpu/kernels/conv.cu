/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* conv.cu: images to columns for matrix products, and back. */

#include "block.h"

#include <gpu/shared_window.h>

template <class W> GPU_DEVICE void unfold(const gpu_columns &p)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < p.count; i += step) {
        int64_t left = i, at[3], from = 0;
        bool inside = true;

        for (int d = 2; d >= 0; d--) {
            left = gpu_split(left, p.out[d], &at[d]);
            at[d] = at[d] * p.stride[d] - p.pad[d];
        }
        for (int d = 2; d >= 0; d--) {
            int64_t k;

            left = gpu_split(left, p.kernel[d], &k);
            at[d] += k * p.dilation[d];
        }
        for (int d = 0; d < 3; d++) {
            inside = inside && at[d] >= 0 && at[d] < p.in[d];
            from = from * p.in[d] + at[d];
        }
        from += left * p.in[0] * p.in[1] * p.in[2];
        ((W *)p.to)[i] = inside ? ((const W *)p.from)[from] : (W)0;
    }
}

/* The output position that tap k moves an input position to; -1: none. */
GPU_DEVICE int64_t output_position(const gpu_columns &p, int d, int64_t at,
                                   int64_t k)
{
    int64_t x = at + p.pad[d] - k * p.dilation[d], rest;

    if (x < 0)
        return -1;
    x = gpu_split(x, p.stride[d], &rest);
    return rest != 0 || x >= p.out[d] ? -1 : x;
}

/* Each element of the image sums the columns that it went to, in a fixed
 * order. */
template <class M> GPU_DEVICE void fold(const gpu_columns &p)
{
    typedef typename gpu_type<M>::compute T;
    int64_t step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < p.count; i += step) {
        int64_t plane = i, at[3];
        T sum = 0;

        for (int d = 2; d >= 0; d--)
            plane = gpu_split(plane, p.in[d], &at[d]);
        for (int64_t kz = 0; kz < p.kernel[0]; kz++) {
            int64_t z = output_position(p, 0, at[0], kz);

            for (int64_t ky = 0; z >= 0 && ky < p.kernel[1]; ky++) {
                int64_t y = output_position(p, 1, at[1], ky);

                for (int64_t kx = 0; y >= 0 && kx < p.kernel[2]; kx++) {
                    int64_t x = output_position(p, 2, at[2], kx);
                    int64_t row =
                        ((plane * p.kernel[0] + kz) * p.kernel[1] + ky) *
                            p.kernel[2] +
                        kx;

                    if (x >= 0)
                        sum += gpu_load(
                            ((const M *)
                                 p.from)[((row * p.out[0] + z) * p.out[1] + y) *
                                             p.out[2] +
                                         x]);
                }
            }
        }
        gpu_store(((M *)p.to)[i], sum);
    }
}

template <class M> GPU_DEVICE void add_bias(const gpu_channels &p)
{
    typedef typename gpu_type<M>::compute T;
    int64_t count = p.images * p.channels * p.positions;
    int64_t step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < count; i += step) {
        int64_t position, channel;

        gpu_split(gpu_split(i, p.positions, &position), p.channels, &channel);
        gpu_store(((M *)p.to)[i], (T)(gpu_load(((const M *)p.to)[i]) +
                                      gpu_load(((const M *)p.from)[channel])));
    }
}

/* The sum of a channel over images and positions. */
template <class M> GPU_DEVICE void sum_channels(const gpu_channels &p)
{
    typedef typename gpu_type<M>::compute T;
    GPU_SHARED T shared[256];

    for (int64_t c = gpu_block.x; c < p.channels; c += gpu_grid.x) {
        T sum = 0;

        for (int64_t i = gpu_thread.x; i < p.images * p.positions; i += 256) {
            int64_t position, image = gpu_split(i, p.positions, &position);

            sum += gpu_load((
                (const M *)
                    p.from)[(image * p.channels + c) * p.positions + position]);
        }
        sum = gpu_block_sum(shared, sum);
        if (gpu_thread.x == 0)
            gpu_store(((M *)p.to)[c], sum);
    }
}

#define UNFOLD(name, W)                         \
    GPU_KERNEL(conv_unfold_##name, gpu_columns) \
    {                                           \
        unfold<W>(p);                           \
    }
UNFOLD(w8, uint8_t)
UNFOLD(w16, uint16_t)
UNFOLD(w32, uint32_t)
UNFOLD(w64, uint64_t)

#define CONV(name, M)                          \
    GPU_KERNEL(conv_fold_##name, gpu_columns)  \
    {                                          \
        fold<M>(p);                            \
    }                                          \
    GPU_KERNEL(conv_bias_##name, gpu_channels) \
    {                                          \
        add_bias<M>(p);                        \
    }
#define CONV_SUM(name, M)                                 \
    GPU_KERNEL_COOPERATIVE(conv_sum_##name, gpu_channels) \
    {                                                     \
        sum_channels<M>(p);                               \
    }
CONV(f32, float)
CONV(f64, double)
CONV(f16, gpu_f16)
CONV(bf16, gpu_bf16)
CONV(i64, int64_t)
CONV(i32, int32_t)
CONV(i16, int16_t)
CONV(i8, int8_t)
CONV(u8, uint8_t)
CONV_SUM(f32, float)
CONV_SUM(f64, double)
CONV_SUM(f16, gpu_f16)
CONV_SUM(bf16, gpu_bf16)
