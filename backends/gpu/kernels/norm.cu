/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* norm.cu: layer, group and batch normalisation, forward and backward.  A block
 * has a row or a channel; the row of a layer is kept in the registers of a team
 * or a block (row_registers.h).  With h = (x - mean) spread and g = grad
 * weight,
 *
 *     grad_x      = (g - mean(g) - h mean(g h)) spread
 *     grad_weight = sum(grad h),  grad_bias = sum(grad). */

#include "row_registers.h"

#include <gpu/shared_norm.h>

GPU_DEVICE float spread_of(float variance, double eps)
{
    return 1 / sqrtf(variance + (float)eps);
}
GPU_DEVICE double spread_of(double variance, double eps)
{
    return 1 / sqrt(variance + eps);
}

/* M: the type of elements; P: of weights and biases. */
template <class M, class P> struct normed {
    typedef typename gpu_type<M>::compute T;
    typedef typename gpu_type<P>::compute W;

    static GPU_DEVICE_MEMBER T at(const void *from, int64_t i)
    {
        return gpu_load(((const M *)from)[i]);
    }
    static GPU_DEVICE_MEMBER void put(void *to, int64_t i, T x)
    {
        gpu_store(((M *)to)[i], x);
    }
    static GPU_DEVICE_MEMBER T weight(const gpu_norm &p, int64_t i)
    {
        return p.weight != 0 ? (T)gpu_load(((const P *)p.weight)[i]) : (T)1;
    }
    static GPU_DEVICE_MEMBER T bias(const gpu_norm &p, int64_t i)
    {
        return p.bias != 0 ? (T)gpu_load(((const P *)p.bias)[i]) : (T)0;
    }
    static GPU_DEVICE_MEMBER T number(const void *from, uint32_t dtype,
                                      int64_t i)
    {
        return (T)gpu_read_f64((const char *)from + i * gpu_bytes(dtype),
                               dtype);
    }
    /* The same for statistics, most of which have type T. */
    static GPU_DEVICE_MEMBER T statistic(const void *from, uint32_t dtype,
                                         int64_t i)
    {
        return dtype == (sizeof(T) == 8 ? GPU_F64 : GPU_F32)
                   ? ((const T *)from)[i]
                   : number(from, dtype, i);
    }
    static GPU_DEVICE_MEMBER void keep(void *to, uint32_t dtype, int64_t i,
                                       double x)
    {
        if (to != 0)
            gpu_write_f64((char *)to + i * gpu_bytes(dtype), dtype, x);
    }

    /* The channel of element i of a row. */
    static GPU_DEVICE_MEMBER int64_t channel(const gpu_norm &p, int64_t i)
    {
        int64_t rest;

        return p.inner == 1 ? i : gpu_split(i, p.inner, &rest);
    }

    static GPU_DEVICE_MEMBER void forward(const gpu_norm &p)
    {
        GPU_SHARED T shared[256];
        int64_t size = p.channels * p.inner;

        for (int64_t row = gpu_block.x; row < p.rows; row += gpu_grid.x) {
            int64_t base = row * size, first = row % p.groups * p.channels;
            T sum = 0, mean, spread;

            for (int64_t i = gpu_thread.x; i < size; i += 256)
                sum += at(p.from, base + i);
            mean = gpu_block_sum(shared, sum) / (T)size;
            sum = 0;
            for (int64_t i = gpu_thread.x; i < size; i += 256) {
                T x = at(p.from, base + i) - mean;

                sum += x * x;
            }
            sum = gpu_block_sum(shared, sum) / (T)size;
            spread = spread_of(sum, p.eps);
            for (int64_t i = gpu_thread.x; i < size; i += 256) {
                int64_t c = first + channel(p, i);
                T x = (at(p.from, base + i) - mean) * spread;

                put(p.to, base + i, x * weight(p, c) + bias(p, c));
            }
            if (gpu_thread.x == 0) {
                keep(p.mean, p.statistics, row, mean);
                keep(p.spread, p.statistics, row, spread);
            }
        }
    }

    template <int SIDE, int N>
    static GPU_DEVICE_MEMBER void held(const gpu_norm &p)
    {
        GPU_SHARED T shared[256];

        gpu_for_each_row<SIDE>(
            p.rows, p.channels, [&](int64_t row, int32_t size) {
                gpu_row_registers<T, SIDE, N> h;
                T count = (T)p.channels, sum = 0, mean, spread;

                h.load((const M *)p.from + row * p.channels, size);
                h.each(size, [&](int k, int32_t) { sum += h.x[k]; });
                mean = gpu_combine<SIDE, gpu_add<T>>(shared, sum) / count;
                sum = 0;
                h.each(size, [&](int k, int32_t) {
                    h.x[k] -= mean;
                    sum += h.x[k] * h.x[k];
                });
                sum = gpu_combine<SIDE, gpu_add<T>>(shared, sum) / count;
                spread = spread_of(sum, p.eps);
                h.each(size, [&](int k, int32_t) { h.x[k] *= spread; });
                h.store((M *)p.to + row * p.channels, size, [&](int v) {
                    if (p.weight != 0)
                        h.with((const P *)p.weight, v,
                               [](T &x, T y) { x *= y; });
                    if (p.bias != 0)
                        h.with((const P *)p.bias, v, [](T &x, T y) { x += y; });
                });
                if (gpu_thread.x % SIDE == 0 && size > 0) {
                    keep(p.mean, p.statistics, row, mean);
                    keep(p.spread, p.statistics, row, spread);
                }
            });
    }

    template <int SIDE, int N>
    static GPU_DEVICE_MEMBER void held_grad(const gpu_norm &p)
    {
        GPU_SHARED T shared[256];

        gpu_for_each_row<SIDE>(
            p.rows, p.channels, [&](int64_t row, int32_t size) {
                gpu_row_registers<T, SIDE, N> g, h;
                T count = (T)p.channels, sum = 0, moment = 0;
                T mean = statistic(p.mean, p.statistics, row);
                T spread = statistic(p.spread, p.statistics, row);

                g.load((const M *)p.grad + row * p.channels, size);
                h.load((const M *)p.from + row * p.channels, size);
                if (p.weight != 0)
#pragma unroll
                    for (int v = 0; v < g.GROUPS; v++)
                        if (g.index_of(v) < size)
                            g.with((const P *)p.weight, v,
                                   [](T &x, T y) { x *= y; });
                g.each(size, [&](int k, int32_t) {
                    h.x[k] = (h.x[k] - mean) * spread;
                    sum += g.x[k];
                    moment += g.x[k] * h.x[k];
                });
                sum = gpu_combine<SIDE, gpu_add<T>>(shared, sum) / count;
                moment = gpu_combine<SIDE, gpu_add<T>>(shared, moment) / count;
                g.each(size, [&](int k, int32_t) {
                    g.x[k] = (g.x[k] - sum - h.x[k] * moment) * spread;
                });
                g.store((M *)p.to + row * p.channels, size);
            });
    }

    static GPU_DEVICE_MEMBER void gradient(const gpu_norm &p)
    {
        GPU_SHARED T shared[256];
        int64_t size = p.channels * p.inner;

        for (int64_t row = gpu_block.x; row < p.rows; row += gpu_grid.x) {
            int64_t base = row * size, first = row % p.groups * p.channels;
            T mean = number(p.mean, p.statistics, row);
            T spread = number(p.spread, p.statistics, row);
            T sum = 0, moment = 0;

            for (int64_t i = gpu_thread.x; i < size; i += 256) {
                int64_t c = first + channel(p, i);
                T g = at(p.grad, base + i) * weight(p, c);

                sum += g;
                moment += g * ((at(p.from, base + i) - mean) * spread);
            }
            sum = gpu_block_sum(shared, sum) / (T)size;
            moment = gpu_block_sum(shared, moment) / (T)size;
            for (int64_t i = gpu_thread.x; i < size; i += 256) {
                int64_t c = first + channel(p, i);
                T g = at(p.grad, base + i) * weight(p, c);
                T h = (at(p.from, base + i) - mean) * spread;

                put(p.to, base + i, (g - sum - h * moment) * spread);
            }
        }
    }

    static GPU_DEVICE_MEMBER void weights_put(const gpu_norm &p, int64_t c, T w,
                                              T b)
    {
        if (p.to_weight != 0)
            gpu_store(((P *)p.to_weight)[c], (W)w);
        if (p.to_bias != 0)
            gpu_store(((P *)p.to_bias)[c], (W)b);
    }

    /* Sums over the rows and positions of a channel, which one block has. */
    static GPU_DEVICE_MEMBER void weights(const gpu_norm &p)
    {
        GPU_SHARED T shared[256];
        int64_t all = p.groups * p.channels;
        int64_t count = p.rows / p.groups * p.inner;

        for (int64_t c = gpu_block.x; c < all; c += gpu_grid.x) {
            int64_t within, group = gpu_split(c, p.channels, &within);
            T w = 0, b = 0;

            for (int64_t i = gpu_thread.x; i < count; i += 256) {
                int64_t k, image = gpu_split(i, p.inner, &k);
                int64_t row = group + image * p.groups;
                int64_t index = (row * p.channels + within) * p.inner + k;
                T g = at(p.grad, index);

                b += g;
                w += g *
                     ((at(p.from, index) - number(p.mean, p.statistics, row)) *
                      number(p.spread, p.statistics, row));
            }
            w = gpu_block_sum(shared, w);
            b = gpu_block_sum(shared, b);
            if (gpu_thread.x == 0)
                weights_put(p, c, w, b);
        }
    }

    /* The same for layers, whose channels are adjacent: a block has COLUMNS of
     * them and a part of the rows (or of the parts), which LANES threads
     * share. */
    enum { COLUMNS = 32, LANES = GPU_ALL / COLUMNS };

    /* The threads of the first lane get the sums of their columns. */
    static GPU_DEVICE_MEMBER void lanes_sum(T (*shared)[2], T &w, T &b)
    {
        uint32_t t = gpu_thread.x;

        shared[t][0] = w;
        shared[t][1] = b;
        gpu_barrier();
        for (uint32_t k = 1; t < COLUMNS && k < LANES; k++) {
            w += shared[t + k * COLUMNS][0];
            b += shared[t + k * COLUMNS][1];
        }
        gpu_barrier();
    }

    static GPU_DEVICE_MEMBER void columns(const gpu_norm &p)
    {
        GPU_SHARED T shared[GPU_ALL][2];
        int64_t each = (p.rows + p.parts - 1) / p.parts;
        int64_t begin = (int64_t)gpu_block.y * each, end = begin + each;
        int64_t lane = gpu_thread.x / COLUMNS;
        T *partial = (T *)p.partial + 2 * (int64_t)gpu_block.y * p.channels;

        end = end < p.rows ? end : p.rows;
        for (int64_t first = (int64_t)gpu_block.x * COLUMNS; first < p.channels;
             first += (int64_t)gpu_grid.x * COLUMNS) {
            int64_t c = first + gpu_thread.x % COLUMNS;
            T w = 0, b = 0;

#pragma unroll 4
            for (int64_t row = begin + lane; c < p.channels && row < end;
                 row += LANES) {
                T g = at(p.grad, row * p.channels + c);

                b += g;
                w += g * ((at(p.from, row * p.channels + c) -
                           statistic(p.mean, p.statistics, row)) *
                          statistic(p.spread, p.statistics, row));
            }
            lanes_sum(shared, w, b);
            if (lane == 0 && c < p.channels) {
                partial[2 * c] = w;
                partial[2 * c + 1] = b;
            }
        }
    }
    static GPU_DEVICE_MEMBER void together(const gpu_norm &p)
    {
        GPU_SHARED T shared[GPU_ALL][2];
        const T *partial = (const T *)p.partial;
        int64_t lane = gpu_thread.x / COLUMNS;

        for (int64_t first = (int64_t)gpu_block.x * COLUMNS; first < p.channels;
             first += (int64_t)gpu_grid.x * COLUMNS) {
            int64_t c = first + gpu_thread.x % COLUMNS;
            T w = 0, b = 0;

#pragma unroll 4
            for (int64_t k = lane; c < p.channels && k < p.parts; k += LANES) {
                w += partial[2 * (k * p.channels + c)];
                b += partial[2 * (k * p.channels + c) + 1];
            }
            lanes_sum(shared, w, b);
            if (lane == 0 && c < p.channels)
                weights_put(p, c, w, b);
        }
    }

    /* ----------------------------------------------------------- batches -- */

    static GPU_DEVICE_MEMBER int64_t index_of(const gpu_norm &p, int64_t c,
                                              int64_t i)
    {
        int64_t k, image = gpu_split(i, p.inner, &k);

        return (image * p.channels + c) * p.inner + k;
    }
    static GPU_DEVICE_MEMBER void batch_running(const gpu_norm &p, int64_t c,
                                                T mean, T squares, T count)
    {
        double mix = p.momentum;

        if (p.running_mean != 0)
            keep(p.running_mean, p.running, c,
                 (1 - mix) * number(p.running_mean, p.running, c) + mix * mean);
        if (p.running_var != 0)
            keep(p.running_var, p.running, c,
                 (1 - mix) * number(p.running_var, p.running, c) +
                     mix * squares / (count - 1));
    }
    static GPU_DEVICE_MEMBER T batch_spread(const gpu_norm &p, int64_t c)
    {
        return (T)(1 /
                   sqrt((double)number(p.running_var, p.running, c) + p.eps));
    }

    static GPU_DEVICE_MEMBER void batch(const gpu_norm &p)
    {
        GPU_SHARED T shared[256];
        int64_t count = p.rows * p.inner;

        for (int64_t c = gpu_block.x; c < p.channels; c += gpu_grid.x) {
            T sum = 0, mean, spread, scale, shift = bias(p, c);

            if (p.training) {
                for (int64_t i = gpu_thread.x; i < count; i += 256)
                    sum += at(p.from, index_of(p, c, i));
                mean = gpu_block_sum(shared, sum) / (T)count;
                sum = 0;
                for (int64_t i = gpu_thread.x; i < count; i += 256) {
                    T x = at(p.from, index_of(p, c, i)) - mean;

                    sum += x * x;
                }
                sum = gpu_block_sum(shared, sum);
                spread = (T)(1 / sqrt((double)sum / (double)count + p.eps));
            } else {
                mean = number(p.running_mean, p.running, c);
                spread = batch_spread(p, c);
            }
            if (gpu_thread.x == 0) {
                keep(p.mean, p.statistics, c, mean);
                keep(p.spread, p.statistics, c, spread);
                if (p.training)
                    batch_running(p, c, mean, sum, (T)count);
            }
            scale = spread * weight(p, c);
            for (int64_t i = gpu_thread.x; i < count; i += 256) {
                int64_t k = index_of(p, c, i);

                put(p.to, k, (at(p.from, k) - mean) * scale + shift);
            }
        }
    }

    static GPU_DEVICE_MEMBER void batch_grad(const gpu_norm &p)
    {
        GPU_SHARED T shared[256];
        int64_t count = p.rows * p.inner;

        for (int64_t c = gpu_block.x; c < p.channels; c += gpu_grid.x) {
            T mean = p.training ? number(p.mean, p.statistics, c)
                                : number(p.running_mean, p.running, c);
            T spread = p.training ? number(p.spread, p.statistics, c)
                                  : batch_spread(p, c);
            T sum = 0, moment = 0, factor = spread * weight(p, c);

            for (int64_t i = gpu_thread.x; i < count; i += 256) {
                T g = at(p.grad, index_of(p, c, i));

                sum += g;
                moment += g * (at(p.from, index_of(p, c, i)) - mean);
            }
            sum = gpu_block_sum(shared, sum);
            moment = gpu_block_sum(shared, moment) * spread;
            if (gpu_thread.x == 0)
                weights_put(p, c, moment, sum);
            sum = p.training ? sum / (T)count : 0;
            moment = p.training ? moment * spread / (T)count : 0;
            for (int64_t i = gpu_thread.x; p.to != 0 && i < count; i += 256) {
                int64_t k = index_of(p, c, i);

                put(p.to, k,
                    factor * (at(p.grad, k) - sum -
                              (at(p.from, k) - mean) * moment));
            }
        }
    }
};

#define COMMA ,
#define COOPERATIVE(stem, name, M, P, function)     \
    GPU_KERNEL_COOPERATIVE(stem##_##name, gpu_norm) \
    {                                               \
        normed<M COMMA P>::function(p);             \
    }
#define ROW_KERNEL(stem, name, M, P, function, SIDE, N, ROWS) \
    GPU_KERNEL_RESIDENT(stem##_##name, gpu_norm, ROWS(M))     \
    {                                                         \
        normed<M COMMA P>::template function<SIDE, N>(p);     \
    }
/* _team: layers of up to 32 GPU_ROW_REGISTERS elements, a vector at a time;
 * _single: the same for layers that are not aligned; _wide: layers of up to 256
 * GPU_ROW_REGISTERS. */
#define LAYER(stem, name, M, P, function, N, ROWS)                             \
    ROW_KERNEL(stem##_team, name, M, P, function, GPU_TEAM, N, ROWS)           \
    ROW_KERNEL(stem##_single, name, M, P, function, GPU_TEAM, 1, GPU_TWO_ROWS) \
    ROW_KERNEL(stem##_wide, name, M, P, function, GPU_ALL, N, ROWS)
/* N: the number of elements in 16 bytes of the wider type. */
#define NORM(name, M, P, N)                                  \
    LAYER(norm_forward, name, M, P, held, N, GPU_ONE_ROW)    \
    LAYER(norm_grad, name, M, P, held_grad, N, GPU_TWO_ROWS) \
    COOPERATIVE(norm_forward, name, M, P, forward)           \
    COOPERATIVE(norm_grad, name, M, P, gradient)             \
    COOPERATIVE(norm_weights, name, M, P, weights)           \
    COOPERATIVE(norm_batch, name, M, P, batch)               \
    COOPERATIVE(norm_batch_grad, name, M, P, batch_grad)     \
    COOPERATIVE(norm_columns, name, M, P, columns)           \
    COOPERATIVE(norm_together, name, M, P, together)
NORM(f32_f32, float, float, 4)
NORM(f64_f64, double, double, 2)
NORM(f16_f16, gpu_f16, gpu_f16, 8)
NORM(bf16_bf16, gpu_bf16, gpu_bf16, 8)
NORM(f16_f32, gpu_f16, float, 4)
NORM(bf16_f32, gpu_bf16, float, 4)
