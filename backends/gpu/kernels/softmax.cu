/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* softmax.cu: softmax and its logarithm, forward and backward, along the middle
 * dimension of outer x size x inner.  If inner is 1, lines that fit are kept in
 * the registers of a team or a block (row_registers.h), and a block reads
 * longer ones; otherwise a thread has a line, and adjacent threads read
 * adjacent elements. */

#include "row_registers.h"

/* The number of elements that a thread sums before it adds their sum to the
 * total: a long sequential sum would lose small addends. */
enum { PART = 64 };

/* The compiler's expf is within two units of the last place and takes half the
 * work of exp_f32, which would take longer than memory does. */
GPU_DEVICE float exp_of(float x)
{
    return expf(x);
}
GPU_DEVICE double exp_of(double x)
{
    return exp(x);
}
GPU_DEVICE float log_of(float x)
{
    return log_f32(x);
}
GPU_DEVICE double log_of(double x)
{
    return log(x);
}
GPU_DEVICE float least(float)
{
    return -INFINITE_f32;
}
GPU_DEVICE double least(double)
{
    return -INFINITE_f64;
}

template <class M, class O> struct line {
    typedef typename gpu_type<M>::compute T;

    static GPU_DEVICE_MEMBER void write(const gpu_rows &p, O *to, T x, T most,
                                        T total)
    {
        T shifted = x - most;

        if (p.logarithm)
            gpu_store(*to, (typename gpu_type<O>::compute)(shifted - total));
        else
            gpu_store(*to,
                      (typename gpu_type<O>::compute)(exp_of(shifted) * total));
    }

    /* The maximum may ignore NaN: the sum contains it. */
    template <int SIDE, int N>
    static GPU_DEVICE_MEMBER void held(const gpu_rows &p)
    {
        GPU_SHARED T shared[256];

        gpu_for_each_row<SIDE>(p.outer, p.size, [&](int64_t row, int32_t size) {
            gpu_row_registers<T, SIDE, N> h;
            T most = least((T)0), total = 0;

            h.load((const M *)p.from + row * p.size, size);
            h.each(size, [&](int k, int32_t) {
                most = h.x[k] > most ? h.x[k] : most;
            });
            most = gpu_combine<SIDE, gpu_maximum<T>>(shared, most);
            h.each(size, [&](int k, int32_t) {
                T shifted = h.x[k] - most, power = exp_of(shifted);

                h.x[k] = p.logarithm ? shifted : power;
                total += power;
            });
            total = gpu_combine<SIDE, gpu_add<T>>(shared, total);
            total = p.logarithm ? log_of(total) : 1 / total;
            h.each(size, [&](int k, int32_t) {
                h.x[k] = p.logarithm ? h.x[k] - total : h.x[k] * total;
            });
            h.store((O *)p.to + row * p.size, size);
        });
    }

    static GPU_DEVICE_MEMBER void block(const gpu_rows &p)
    {
        GPU_SHARED T shared[256];

        for (int64_t row = gpu_block.x; row < p.outer; row += gpu_grid.x) {
            const M *from = (const M *)p.from + row * p.size;
            O *to = (O *)p.to + row * p.size;
            T most = least((T)0), total = 0;

            for (int64_t i = gpu_thread.x; i < p.size; i += 256) {
                T x = gpu_load(from[i]);

                most = x > most || x != x ? x : most;
            }
            most = gpu_block_max(shared, most);
            for (int64_t i = gpu_thread.x; i < p.size; i += 256)
                total += exp_of(gpu_load(from[i]) - most);
            total = gpu_block_sum(shared, total);
            total = p.logarithm ? log_of(total) : 1 / total;
            for (int64_t i = gpu_thread.x; i < p.size; i += 256)
                write(p, to + i, gpu_load(from[i]), most, total);
        }
    }

    static GPU_DEVICE_MEMBER void alone(const gpu_rows &p)
    {
        int64_t lines = p.outer * p.inner, step = (int64_t)gpu_step();

        for (int64_t l = (int64_t)gpu_first(); l < lines; l += step) {
            int64_t first = l / p.inner * p.size * p.inner + l % p.inner;
            const M *from = (const M *)p.from + first;
            O *to = (O *)p.to + first;
            T most = least((T)0), total;
            double sum = 0;

            for (int64_t i = 0; i < p.size; i++) {
                T x = gpu_load(from[i * p.inner]);

                most = x > most || x != x ? x : most;
            }
            for (int64_t i = 0; i < p.size;) {
                int64_t end = i + PART < p.size ? i + PART : p.size;
                T part = 0;

                for (; i < end; i++)
                    part += exp_of(gpu_load(from[i * p.inner]) - most);
                sum += (double)part;
            }
            total = (T)sum;
            total = p.logarithm ? log_of(total) : 1 / total;
            for (int64_t i = 0; i < p.size; i++)
                write(p, to + i * p.inner, gpu_load(from[i * p.inner]), most,
                      total);
        }
    }
};

/* from: the gradient g; other: the output y.  Computes y (g - sum(g y)), or g -
 * exp(y) sum(g).  M: the type of both; O: of the result. */
template <class M, class O> struct gradient {
    typedef typename gpu_type<M>::compute T;

    static GPU_DEVICE_MEMBER T term(const gpu_rows &p, T g, T y)
    {
        return p.logarithm ? g : g * y;
    }
    static GPU_DEVICE_MEMBER T result(const gpu_rows &p, T g, T y, T total)
    {
        return p.logarithm ? g - exp_of(y) * total : y * (g - total);
    }
    static GPU_DEVICE_MEMBER void write(const gpu_rows &p, O *to, T g, T y,
                                        T total)
    {
        gpu_store(*to, (typename gpu_type<O>::compute)result(p, g, y, total));
    }

    template <int SIDE, int N>
    static GPU_DEVICE_MEMBER void held(const gpu_rows &p)
    {
        GPU_SHARED T shared[256];

        gpu_for_each_row<SIDE>(p.outer, p.size, [&](int64_t row, int32_t size) {
            gpu_row_registers<T, SIDE, N> g, y;
            T total = 0;

            g.load((const M *)p.from + row * p.size, size);
            y.load((const M *)p.other + row * p.size, size);
            g.each(size,
                   [&](int k, int32_t) { total += term(p, g.x[k], y.x[k]); });
            total = gpu_combine<SIDE, gpu_add<T>>(shared, total);
            g.each(size, [&](int k, int32_t) {
                g.x[k] = result(p, g.x[k], y.x[k], total);
            });
            g.store((O *)p.to + row * p.size, size);
        });
    }

    static GPU_DEVICE_MEMBER void block(const gpu_rows &p)
    {
        GPU_SHARED T shared[256];

        for (int64_t row = gpu_block.x; row < p.outer; row += gpu_grid.x) {
            const M *g = (const M *)p.from + row * p.size;
            const M *y = (const M *)p.other + row * p.size;
            O *to = (O *)p.to + row * p.size;
            T total = 0;

            for (int64_t i = gpu_thread.x; i < p.size; i += 256)
                total += term(p, gpu_load(g[i]), gpu_load(y[i]));
            total = gpu_block_sum(shared, total);
            for (int64_t i = gpu_thread.x; i < p.size; i += 256)
                write(p, to + i, gpu_load(g[i]), gpu_load(y[i]), total);
        }
    }

    static GPU_DEVICE_MEMBER void alone(const gpu_rows &p)
    {
        int64_t lines = p.outer * p.inner, step = (int64_t)gpu_step();

        for (int64_t l = (int64_t)gpu_first(); l < lines; l += step) {
            int64_t first = l / p.inner * p.size * p.inner + l % p.inner;
            const M *g = (const M *)p.from + first;
            const M *y = (const M *)p.other + first;
            O *to = (O *)p.to + first;
            double sum = 0;
            T total;

            for (int64_t i = 0; i < p.size;) {
                int64_t end = i + PART < p.size ? i + PART : p.size;
                T part = 0;

                for (; i < end; i++)
                    part += term(p, gpu_load(g[i * p.inner]),
                                 gpu_load(y[i * p.inner]));
                sum += (double)part;
            }
            total = (T)sum;
            for (int64_t i = 0; i < p.size * p.inner; i += p.inner)
                write(p, to + i, gpu_load(g[i]), gpu_load(y[i]), total);
        }
    }
};

#define COMMA ,
#define ROW_KERNEL(name, F, FROM, TO, SIDE, N, ROWS) \
    GPU_KERNEL_RESIDENT(name, gpu_rows, ROWS(FROM))  \
    {                                                \
        F<FROM COMMA TO>::template held<SIDE, N>(p); \
    }
/* _team: lines of up to 32 GPU_ROW_REGISTERS elements, a vector at a time;
 * _single: the same for lines that are not aligned; _wide: lines of up to 256
 * GPU_ROW_REGISTERS. */
#define KERNELS(name, F, FROM, TO, N, ROWS)                           \
    ROW_KERNEL(name##_team, F, FROM, TO, GPU_TEAM, N, ROWS)           \
    ROW_KERNEL(name##_single, F, FROM, TO, GPU_TEAM, 1, GPU_TWO_ROWS) \
    ROW_KERNEL(name##_wide, F, FROM, TO, GPU_ALL, N, ROWS)            \
    GPU_KERNEL_COOPERATIVE(name##_block, gpu_rows)                    \
    {                                                                 \
        F<FROM COMMA TO>::block(p);                                   \
    }                                                                 \
    GPU_KERNEL(name##_alone, gpu_rows)                                \
    {                                                                 \
        F<FROM COMMA TO>::alone(p);                                   \
    }
/* softmax_FROM_TO, softmax_grad_FROM_TO; N: the number of elements in 16 bytes
 * of the wider type. */
#define SOFTMAX(from, FROM, to, TO, N)                             \
    KERNELS(softmax_##from##_##to, line, FROM, TO, N, GPU_ONE_ROW) \
    KERNELS(softmax_grad_##from##_##to, gradient, FROM, TO, N, GPU_TWO_ROWS)
SOFTMAX(f32, float, f32, float, 4)
SOFTMAX(f64, double, f64, double, 2)
SOFTMAX(f16, gpu_f16, f16, gpu_f16, 8)
SOFTMAX(bf16, gpu_bf16, bf16, gpu_bf16, 8)
/* half_to_float, and back */
SOFTMAX(f16, gpu_f16, f32, float, 4)
SOFTMAX(bf16, gpu_bf16, f32, float, 4)
SOFTMAX(f32, float, f16, gpu_f16, 4)
SOFTMAX(f32, float, bf16, gpu_bf16, 4)
