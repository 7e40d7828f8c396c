/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* pooling.cu: maxima and averages of windows that slide or adapt to the output,
 * and their gradients.  A thread writes an element: a gradient is summed by the
 * thread of the input element, in the order of the windows. */

#include "types.h"

#include <gpu/shared_window.h>

struct window {
    int64_t begin, end, step; /* end: exclusive; may be outside */
};

GPU_DEVICE window window_of(const gpu_pooling &p, int d, int64_t o)
{
    window w;

    w.step = p.dilation[d];
    if (p.adaptive) {
        w.begin = o * p.in[d] / p.out[d];
        w.end = ((o + 1) * p.in[d] + p.out[d] - 1) / p.out[d];
    } else {
        w.begin = o * p.stride[d] - p.pad[d];
        w.end = w.begin + p.kernel[d] * w.step;
    }
    return w;
}

/* The first window that can contain a position. */
GPU_DEVICE int64_t first_window(const gpu_pooling &p, int d, int64_t at)
{
    int64_t from;

    if (p.adaptive)
        return at * p.out[d] / p.in[d];
    from = at + p.pad[d] - (p.kernel[d] - 1) * p.dilation[d];
    return from <= 0 ? 0 : (from + p.stride[d] - 1) / p.stride[d];
}

GPU_DEVICE bool has(const window &w, int64_t at)
{
    return at >= w.begin && at < w.end && (at - w.begin) % w.step == 0;
}

struct position {
    int64_t at[3], plane;
};

GPU_DEVICE position position_of(const int64_t *sizes, int64_t i)
{
    position a;

    for (int d = 2; d >= 0; d--)
        i = gpu_split(i, sizes[d], &a.at[d]);
    a.plane = i;
    return a;
}

GPU_DEVICE int64_t size_of(const int64_t *sizes)
{
    return sizes[0] * sizes[1] * sizes[2];
}

/* The divisor of a window's sum. */
GPU_DEVICE int64_t extent(const gpu_pooling &p, const window *w)
{
    int64_t n = 1;

    if (p.divisor != 0)
        return p.divisor;
    for (int d = 0; d < 3; d++) {
        int64_t low = w[d].begin, high = w[d].end;

        if (p.with_padding) {
            high = high < p.in[d] + p.pad[d] ? high : p.in[d] + p.pad[d];
        } else {
            low = low > 0 ? low : 0;
            high = high < p.in[d] ? high : p.in[d];
        }
        n *= high - low;
    }
    return n;
}

GPU_DEVICE float nothing(float)
{
    return -INFINITE_f32;
}
GPU_DEVICE double nothing(double)
{
    return -INFINITE_f64;
}
GPU_DEVICE int64_t nothing(int64_t)
{
    return INT64_MIN;
}
/* Integer means round toward 0, like integer division. */
template <class T> GPU_DEVICE T mean_of(T sum, int64_t n)
{
    return sum / (T)n;
}

/* Each position of a window that is inside; i is its index in the plane. */
#define EACH_INSIDE(w)                                                 \
    for (int64_t z = w[0].begin; z < w[0].end; z += w[0].step)         \
        if (z >= 0 && z < p.in[0])                                     \
            for (int64_t y = w[1].begin; y < w[1].end; y += w[1].step) \
                if (y >= 0 && y < p.in[1])                             \
                    for (int64_t x = w[2].begin,                       \
                                 i = (z * p.in[1] + y) * p.in[2] + x;  \
                         x < w[2].end; x += w[2].step, i += w[2].step) \
                        if (x >= 0 && x < p.in[2])

/* Each window w that contains the input position a; o is its index in the
 * plane. */
#define EACH_WINDOW(a, w)                                                    \
    for (int64_t z = first_window(p, 0, a.at[0]); z < p.out[0]; z++)         \
        if (!((w[0] = window_of(p, 0, z)).begin <= a.at[0]))                 \
            break;                                                           \
        else if (has(w[0], a.at[0]))                                         \
            for (int64_t y = first_window(p, 1, a.at[1]); y < p.out[1]; y++) \
                if (!((w[1] = window_of(p, 1, y)).begin <= a.at[1]))         \
                    break;                                                   \
                else if (has(w[1], a.at[1]))                                 \
                    for (int64_t x = first_window(p, 2, a.at[2]),            \
                                 o = (z * p.out[1] + y) * p.out[2] + x;      \
                         x < p.out[2]; x++, o++)                             \
                        if (!((w[2] = window_of(p, 2, x)).begin <= a.at[2])) \
                            break;                                           \
                        else if (has(w[2], a.at[2]))

template <class M> struct pool {
    typedef typename gpu_type<M>::compute T;
    typedef gpu_element<M> element;

    static GPU_DEVICE_MEMBER void most(const gpu_pooling &p)
    {
        int64_t size = size_of(p.in), step = (int64_t)gpu_step();

        for (int64_t k = (int64_t)gpu_first(); k < p.count; k += step) {
            position a = position_of(p.out, k);
            T value = nothing((T)0);
            int64_t best = -1;
            window w[3];

            for (int d = 0; d < 3; d++)
                w[d] = window_of(p, d, a.at[d]);
            EACH_INSIDE(w)
            {
                T v = element::get(p.from, a.plane * size + i, p.dtype);

                if (best < 0 || v > value || v != v) {
                    best = i;
                    value = v;
                }
            }
            element::put(p.to, k, p.dtype, value);
            p.where[k] = best;
        }
    }

    static GPU_DEVICE_MEMBER void mean(const gpu_pooling &p)
    {
        int64_t size = size_of(p.in), step = (int64_t)gpu_step();

        for (int64_t k = (int64_t)gpu_first(); k < p.count; k += step) {
            position a = position_of(p.out, k);
            window w[3];
            T sum = 0;

            for (int d = 0; d < 3; d++)
                w[d] = window_of(p, d, a.at[d]);
            EACH_INSIDE(w)
            {
                sum += element::get(p.from, a.plane * size + i, p.dtype);
            }
            element::put(p.to, k, p.dtype, mean_of(sum, extent(p, w)));
        }
    }

    /* An index outside its window is reported: no thread would add it. */
    static GPU_DEVICE_MEMBER void most_grad(const gpu_pooling &p)
    {
        int64_t size = size_of(p.out), step = (int64_t)gpu_step();

        for (int64_t k = (int64_t)gpu_first(); k < p.count; k += step) {
            position a = position_of(p.in, k);
            int64_t own = (a.at[0] * p.in[1] + a.at[1]) * p.in[2] + a.at[2];
            window w[3];
            T sum = 0;

            EACH_WINDOW(a, w)
            {
                int64_t at = p.chosen[a.plane * size + o];
                position b = position_of(p.in, at > 0 ? at : 0);

                if (at == own)
                    sum += element::get(p.from, a.plane * size + o, p.dtype);
                else if (at < -1 || b.plane != 0 || !has(w[0], b.at[0]) ||
                         !has(w[1], b.at[1]) || !has(w[2], b.at[2]))
                    if (at != -1)
                        gpu_fail(p.error, GPU_BAD_INDEX, p.call, at);
            }
            element::put(p.to, k, p.dtype, sum);
        }
    }

    static GPU_DEVICE_MEMBER void mean_grad(const gpu_pooling &p)
    {
        int64_t size = size_of(p.out), step = (int64_t)gpu_step();

        for (int64_t k = (int64_t)gpu_first(); k < p.count; k += step) {
            position a = position_of(p.in, k);
            window w[3];
            T sum = 0;

            EACH_WINDOW(a, w)
            {
                sum +=
                    mean_of(element::get(p.from, a.plane * size + o, p.dtype),
                            extent(p, w));
            }
            element::put(p.to, k, p.dtype, sum);
        }
    }
};

#define POOL_FORWARD(name, M)                 \
    GPU_KERNEL(pool_max_##name, gpu_pooling)  \
    {                                         \
        pool<M>::most(p);                     \
    }                                         \
    GPU_KERNEL(pool_mean_##name, gpu_pooling) \
    {                                         \
        pool<M>::mean(p);                     \
    }
#define POOL(name, M)                              \
    POOL_FORWARD(name, M)                          \
    GPU_KERNEL(pool_max_grad_##name, gpu_pooling)  \
    {                                              \
        pool<M>::most_grad(p);                     \
    }                                              \
    GPU_KERNEL(pool_mean_grad_##name, gpu_pooling) \
    {                                              \
        pool<M>::mean_grad(p);                     \
    }
POOL(f32, float)
POOL(f64, double)
POOL(f16, gpu_f16)
POOL(bf16, gpu_bf16)
POOL_FORWARD(whole, gpu_integer)
