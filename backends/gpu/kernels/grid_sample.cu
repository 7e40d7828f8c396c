/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* grid_sample.cu: grid_sampler_2d and its gradients.  A grid point (x, y) in
 * [-1, 1] is a position in the image; its value is a sum over taps, which are
 * elements with weights.  The derivative of each weight by the coordinate gives
 * the gradient. */

#include "types.h"

#include <gpu/shared_resample.h>

GPU_DEVICE float floor_of(float x)
{
    return floorf(x);
}
GPU_DEVICE double floor_of(double x)
{
    return floor(x);
}
GPU_DEVICE float nearest_of(float x)
{
    return rintf(x);
}
GPU_DEVICE double nearest_of(double x)
{
    return rint(x);
}
GPU_DEVICE float rest_of(float x, float y)
{
    return fmodf(x, y);
}
GPU_DEVICE double rest_of(double x, double y)
{
    return fmod(x, y);
}

template <class T> struct taps {
    int count;
    int64_t index[4]; /* -1: outside, contributes 0 */
    T weight[4], derivative[4];
};

/* Reflects at the borders; the sign of *derivative follows. */
template <class T> GPU_DEVICE T reflect(T at, T low, T high, T *derivative)
{
    T span = high - low, rest, flips;

    if (span <= 0) {
        *derivative = 0;
        return 0;
    }
    at -= low;
    if (at < 0) {
        at = -at;
        *derivative = -*derivative;
    }
    rest = rest_of(at, span);
    flips = floor_of(at / span);
    if (rest_of(flips, (T)2) == 0)
        return rest + low;
    *derivative = -*derivative;
    return span - rest + low;
}

template <class T>
GPU_DEVICE T padded(const gpu_grid_sample &p, T at, int64_t size, T *derivative)
{
    T last = (T)(size - 1);

    if (p.padding == GPU_GRID_ZEROS)
        return at;
    if (p.padding == GPU_GRID_REFLECTION)
        at = p.align ? reflect(at, (T)0, last, derivative)
                     : reflect(at, (T)-0.5, last + (T)0.5, derivative);
    if (at > 0 && at < last)
        return at;
    *derivative = 0;
    return at >= last ? last : 0;
}

template <class T> GPU_DEVICE int64_t inside(T at, int64_t size)
{
    return at >= 0 && at < (T)size ? (int64_t)at : -1;
}

/* Cubic convolution with a = -3/4, and its derivative. */
template <class T> GPU_DEVICE void cubic(T x, T *weight, T *derivative)
{
    const T a = (T)-0.75;
    T sign = x < 0 ? -1 : 1;

    x *= sign;
    if (x <= 1) {
        *weight = ((a + 2) * x - (a + 3)) * x * x + 1;
        *derivative = sign * (3 * (a + 2) * x - 2 * (a + 3)) * x;
    } else {
        *weight = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
        *derivative = sign * ((3 * a * x - 10 * a) * x + 8 * a);
    }
}

template <class T>
GPU_NOINLINE taps<T> taps_at(const gpu_grid_sample &p, T grid, int64_t size)
{
    taps<T> t = {};
    T derivative = p.align ? (T)(size - 1) / 2 : (T)size / 2;
    T at = p.align ? (grid + 1) * derivative : ((grid + 1) * (T)size - 1) / 2;
    T whole, ignored = 0;

    if (p.mode == GPU_GRID_BICUBIC) {
        whole = floor_of(at);
        t.count = 4;
        for (int k = 0; k < 4; k++) {
            cubic(at - whole - (T)(k - 1), &t.weight[k], &t.derivative[k]);
            t.derivative[k] *= derivative;
            t.index[k] =
                inside(padded(p, whole + (T)(k - 1), size, &ignored), size);
        }
        return t;
    }
    at = padded(p, at, size, &derivative);
    if (p.mode == GPU_GRID_NEAREST) {
        t.count = 1;
        t.index[0] = inside(nearest_of(at), size);
        t.weight[0] = 1;
        return t;
    }
    whole = floor_of(at);
    t.count = 2;
    t.index[0] = inside(whole, size);
    t.index[1] = inside(whole + 1, size);
    t.weight[0] = whole + 1 - at;
    t.weight[1] = at - whole;
    t.derivative[0] = -derivative;
    t.derivative[1] = derivative;
    return t;
}

/* f16 and bf16 are read as float. */
GPU_DEVICE void read_as(const gpu_grid_sample &p, const void *from, int64_t i,
                        float *out)
{
    *out = p.dtype == GPU_F32
               ? ((const float *)from)[i]
               : (float)gpu_read_f64((const uint16_t *)from + i, p.dtype);
}
GPU_DEVICE void read_as(const gpu_grid_sample &, const void *from, int64_t i,
                        double *out)
{
    *out = ((const double *)from)[i];
}
template <class T>
GPU_DEVICE T get(const gpu_grid_sample &p, const void *from, int64_t i)
{
    T x;

    read_as(p, from, i, &x);
    return x;
}
GPU_DEVICE void put(const gpu_grid_sample &p, void *to, int64_t i, float x)
{
    gpu_write_f64((char *)to + i * gpu_bytes(p.dtype), p.dtype, x);
}
GPU_DEVICE void put(const gpu_grid_sample &, void *to, int64_t i, double x)
{
    ((double *)to)[i] = x;
}

template <class T>
GPU_NOINLINE T tapped(const gpu_grid_sample &p, int64_t plane, const taps<T> &h,
                      const T *by_h, const taps<T> &w, const T *by_w)
{
    T sum = 0;

    for (int i = 0; i < h.count; i++)
        for (int j = 0; j < w.count; j++)
            if (h.index[i] >= 0 && w.index[j] >= 0)
                sum += get<T>(p, p.from,
                              plane + h.index[i] * p.in[1] + w.index[j]) *
                       by_h[i] * by_w[j];
    return sum;
}

template <class T> struct sampler {
    static GPU_DEVICE_MEMBER void forward(const gpu_grid_sample &p)
    {
        int64_t in = p.in[0] * p.in[1], out = p.out[0] * p.out[1];
        int64_t step = (int64_t)gpu_step();

        for (int64_t at = (int64_t)gpu_first(); at < p.images * out;
             at += step) {
            int64_t position, image = gpu_split(at, out, &position);
            taps<T> w = taps_at<T>(p, get<T>(p, p.grid, 2 * at), p.in[1]);
            taps<T> h = taps_at<T>(p, get<T>(p, p.grid, 2 * at + 1), p.in[0]);

            for (int64_t c = 0; c < p.channels; c++) {
                int64_t plane = image * p.channels + c;

                put(p, p.to, plane * out + position,
                    tapped<T>(p, plane * in, h, h.weight, w, w.weight));
            }
        }
    }

    static GPU_DEVICE_MEMBER void grid_grad(const gpu_grid_sample &p)
    {
        int64_t in = p.in[0] * p.in[1], out = p.out[0] * p.out[1];
        int64_t step = (int64_t)gpu_step();

        for (int64_t at = (int64_t)gpu_first(); at < p.images * out;
             at += step) {
            int64_t position, image = gpu_split(at, out, &position);
            taps<T> w = taps_at<T>(p, get<T>(p, p.grid, 2 * at), p.in[1]);
            taps<T> h = taps_at<T>(p, get<T>(p, p.grid, 2 * at + 1), p.in[0]);
            T by_x = 0, by_y = 0;

            for (int64_t c = 0; c < p.channels; c++) {
                int64_t plane = image * p.channels + c;
                T g = get<T>(p, p.grad, plane * out + position);

                by_x +=
                    g * tapped<T>(p, plane * in, h, h.weight, w, w.derivative);
                by_y +=
                    g * tapped<T>(p, plane * in, h, h.derivative, w, w.weight);
            }
            put(p, p.to_grid, 2 * at, by_x);
            put(p, p.to_grid, 2 * at + 1, by_y);
        }
    }

    /* Each thread has an element of the image and searches all grid points for
     * taps there.  The work is the product of the sizes of image and grid, but
     * the order is fixed and there are no atomic additions. */
    static GPU_DEVICE_MEMBER void image_grad(const gpu_grid_sample &p)
    {
        int64_t in = p.in[0] * p.in[1], out = p.out[0] * p.out[1];
        int64_t step = (int64_t)gpu_step();

        for (int64_t k = (int64_t)gpu_first(); k < p.images * p.channels * in;
             k += step) {
            int64_t own, x, plane = gpu_split(k, in, &own);
            int64_t y = gpu_split(own, p.in[1], &x);
            int64_t image = plane / p.channels;
            T sum = 0;

            for (int64_t position = 0; position < out; position++) {
                int64_t at = 2 * (image * out + position);
                taps<T> w = taps_at<T>(p, get<T>(p, p.grid, at), p.in[1]);
                T by_w = 0, by_h = 0;
                taps<T> h;

                for (int j = 0; j < w.count; j++)
                    by_w += w.index[j] == x ? w.weight[j] : 0;
                if (by_w == 0)
                    continue;
                h = taps_at<T>(p, get<T>(p, p.grid, at + 1), p.in[0]);
                for (int i = 0; i < h.count; i++)
                    by_h += h.index[i] == y ? h.weight[i] : 0;
                sum += get<T>(p, p.grad, plane * out + position) * by_h * by_w;
            }
            put(p, p.to, k, sum);
        }
    }
};

#define SAMPLER(name, T)                            \
    GPU_KERNEL(grid_sample_##name, gpu_grid_sample) \
    {                                               \
        sampler<T>::forward(p);                     \
    }                                               \
    GPU_KERNEL(grid_image_##name, gpu_grid_sample)  \
    {                                               \
        sampler<T>::image_grad(p);                  \
    }                                               \
    GPU_KERNEL(grid_grid_##name, gpu_grid_sample)   \
    {                                               \
        sampler<T>::grid_grad(p);                   \
    }
SAMPLER(f32, float)
SAMPLER(f64, double)
