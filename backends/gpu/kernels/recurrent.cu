/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* recurrent.cu: the cells of LSTM and GRU after their products, and their
 * gradients.  A thread has a hidden unit of a sample. */

#include "types.h"

#include <gpu/shared_recurrent.h>

GPU_DEVICE float squash(float x)
{
    return sigmoid_f32(x);
}
GPU_DEVICE double squash(double x)
{
    return sigmoid_f64(x);
}
GPU_DEVICE float bend(float x)
{
    return tanh_f32(x);
}
GPU_DEVICE double bend(double x)
{
    return tanh_f64(x);
}

/* Element `at` of an operand; 0 if that is absent. */
template <class M>
GPU_DEVICE typename gpu_type<M>::compute part(const void *from, int64_t at)
{
    return from ? gpu_load(((const M *)from)[at]) : 0;
}

template <class M, class T> GPU_DEVICE void put(void *to, int64_t at, T x)
{
    gpu_store(((M *)to)[at], x);
}

/* What was computed with must be what is saved, so it is rounded first. */
template <class M, class T> GPU_DEVICE T saved(void *to, int64_t at, T x)
{
    put<M>(to, at, x);
    return part<M>(to, at);
}

/* c' = f c + i g, h' = o tanh(c') */
template <class M> GPU_DEVICE void lstm(const gpu_cell &p)
{
    typedef typename gpu_type<M>::compute T;
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t unit, row = gpu_split(at, p.units, &unit);
        T x[4];

        for (int k = 0; k < 4; k++) {
            int64_t column = k * p.units + unit;
            int64_t place = row * 4 * p.units + column;
            T sum = part<M>(p.input, place) + part<M>(p.input_bias, column) +
                    part<M>(p.hidden, place) + part<M>(p.hidden_bias, column);

            x[k] = saved<M>(p.saved, place, k == 2 ? bend(sum) : squash(sum));
        }
        x[1] = saved<M>(p.c, at, x[1] * part<M>(p.state, at) + x[0] * x[2]);
        put<M>(p.h, at, x[3] * bend(x[1]));
    }
}

/* h' = n + z (h - n), n = tanh(x + r m) */
template <class M> GPU_DEVICE void gru(const gpu_cell &p)
{
    typedef typename gpu_type<M>::compute T;
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t unit, row = gpu_split(at, p.units, &unit);
        int64_t to = row * 5 * p.units + unit;
        T x[3], h[3], state = part<M>(p.state, at);

        for (int k = 0; k < 3; k++) {
            int64_t column = k * p.units + unit;
            int64_t place = row * 3 * p.units + column;

            x[k] = part<M>(p.input, place) + part<M>(p.input_bias, column);
            h[k] = part<M>(p.hidden, place) + part<M>(p.hidden_bias, column);
        }
        x[0] = saved<M>(p.saved, to, squash(x[0] + h[0]));
        x[1] = saved<M>(p.saved, to + p.units, squash(x[1] + h[1]));
        h[2] = saved<M>(p.saved, to + 4 * p.units, h[2]);
        x[2] = saved<M>(p.saved, to + 2 * p.units, bend(x[2] + x[0] * h[2]));
        put<M>(p.saved, to + 3 * p.units, state);
        put<M>(p.h, at, x[2] + x[1] * (state - x[2]));
    }
}

template <class M> GPU_DEVICE void lstm_grad(const gpu_cell_grad &p)
{
    typedef typename gpu_type<M>::compute T;
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t unit, row = gpu_split(at, p.units, &unit);
        int64_t to = row * 4 * p.units + unit;
        T i = part<M>(p.saved, to), f = part<M>(p.saved, to + p.units);
        T g = part<M>(p.saved, to + 2 * p.units);
        T o = part<M>(p.saved, to + 3 * p.units);
        T t = bend(part<M>(p.c, at)), grad = part<M>(p.grad_h, at);
        T cell = grad * o * (1 - t * t) + part<M>(p.grad_c, at);

        put<M>(p.to_input, to, cell * g * i * (1 - i));
        put<M>(p.to_input, to + p.units,
               cell * part<M>(p.state, at) * f * (1 - f));
        put<M>(p.to_input, to + 2 * p.units, cell * i * (1 - g * g));
        put<M>(p.to_input, to + 3 * p.units, grad * t * o * (1 - o));
        put<M>(p.to_state, at, cell * f);
    }
}

template <class M> GPU_DEVICE void gru_grad(const gpu_cell_grad &p)
{
    typedef typename gpu_type<M>::compute T;
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t unit, row = gpu_split(at, p.units, &unit);
        int64_t from = row * 5 * p.units + unit, to = row * 3 * p.units + unit;
        T r = part<M>(p.saved, from), z = part<M>(p.saved, from + p.units);
        T n = part<M>(p.saved, from + 2 * p.units);
        T h = part<M>(p.saved, from + 3 * p.units);
        T m = part<M>(p.saved, from + 4 * p.units);
        T grad = part<M>(p.grad_h, at), fresh = grad * (1 - z) * (1 - n * n);
        T update = grad * (h - n) * z * (1 - z),
          reset = fresh * m * r * (1 - r);

        put<M>(p.to_input, to, reset);
        put<M>(p.to_input, to + p.units, update);
        put<M>(p.to_input, to + 2 * p.units, fresh);
        put<M>(p.to_hidden, to, reset);
        put<M>(p.to_hidden, to + p.units, update);
        put<M>(p.to_hidden, to + 2 * p.units, fresh * r);
        put<M>(p.to_state, at, grad * z);
    }
}

#define CELL(name, M)                           \
    GPU_KERNEL(lstm_##name, gpu_cell)           \
    {                                           \
        lstm<M>(p);                             \
    }                                           \
    GPU_KERNEL(gru_##name, gpu_cell)            \
    {                                           \
        gru<M>(p);                              \
    }                                           \
    GPU_KERNEL(lstm_grad_##name, gpu_cell_grad) \
    {                                           \
        lstm_grad<M>(p);                        \
    }                                           \
    GPU_KERNEL(gru_grad_##name, gpu_cell_grad)  \
    {                                           \
        gru_grad<M>(p);                         \
    }
CELL(f32, float)
CELL(f64, double)
CELL(f16, gpu_f16)
CELL(bf16, gpu_bf16)
