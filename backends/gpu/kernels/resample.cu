/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* resample.cu: nearest, linear and cubic interpolation, separable, and the
 * gradient, which sums what each element contributed. */

#include "types.h"

#include <gpu/shared_resample.h>

GPU_DEVICE double cubic(double x)
{
    const double a = -0.75;

    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* Rounds down to an index. */
GPU_DEVICE int64_t index_near(double at, int64_t size)
{
    return !(at > 0) ? 0 : at >= (double)(size - 1) ? size - 1 : (int64_t)at;
}

/* Tap k of an output coordinate: the input coordinate and its weight. */
GPU_DEVICE int64_t tap(const gpu_resample &p, int d, int64_t o, uint32_t k,
                       double *weight)
{
    int64_t in = p.in[d], i;
    double at, whole;

    *weight = 1;
    if (p.taps[d] == GPU_NEAREST) {
        if (in == p.out[d])
            return o;
        if (p.out[d] == 2 * in)
            return o / 2;
        return index_near((double)((float)o * (float)p.ratio[d]), in);
    }
    at =
        p.align ? (double)o * p.ratio[d] : ((double)o + 0.5) * p.ratio[d] - 0.5;
    if (p.taps[d] == GPU_LINEAR) {
        at = !(at > 0) ? 0 : at > (double)(in - 1) ? (double)(in - 1) : at;
        i = index_near(at, in);
        *weight = k == 0 ? 1 - (at - (double)i) : at - (double)i;
        return k == 0 ? i : i + (i + 1 < in);
    }
    /* There, all taps are the last. */
    at = at < (double)in + 2 ? at : (double)in + 2;
    whole = floor(at);
    *weight = cubic(at - whole - ((double)k - 1));
    return index_near(whole + ((double)k - 1), in);
}

template <class M> GPU_DEVICE void resample(const gpu_resample &p)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t x, y, z, plane = gpu_split(at, p.out[2], &x);
        double sum = 0, wz, wy, wx;
        const M *from;

        plane = gpu_split(plane, p.out[1], &y);
        plane = gpu_split(plane, p.out[0], &z);
        from = (const M *)p.from + plane * p.in[0] * p.in[1] * p.in[2];
        for (uint32_t i = 0; i < p.taps[0]; i++) {
            int64_t iz = tap(p, 0, z, i, &wz);

            for (uint32_t j = 0; j < p.taps[1]; j++) {
                int64_t iy = tap(p, 1, y, j, &wy);
                double row = 0;

                for (uint32_t k = 0; k < p.taps[2]; k++) {
                    int64_t ix = tap(p, 2, x, k, &wx);

                    row += wx * (double)gpu_load(
                                    from[(iz * p.in[1] + iy) * p.in[2] + ix]);
                }
                sum += wz * wy * row;
            }
        }
        gpu_store(((M *)p.to)[at], (typename gpu_type<M>::compute)sum);
    }
}

/* Nearest, for elements of any type. */
template <class W> GPU_DEVICE void resample_move(const gpu_resample &p)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t left = at, o, from = 0, stride = 1;
        double weight;

        for (int d = 2; d >= 0; d--) {
            left = gpu_split(left, p.out[d], &o);
            from += tap(p, d, o, 0, &weight) * stride;
            stride *= p.in[d];
        }
        ((W *)p.to)[at] = ((const W *)p.from)[left * stride + from];
    }
}

/* The outputs that may use an input coordinate. */
GPU_DEVICE void outputs_near(const gpu_resample &p, int d, int64_t i,
                             int64_t *first, int64_t *last)
{
    double centre =
        p.align ? (double)i / p.ratio[d] : ((double)i + 0.5) / p.ratio[d] - 0.5;
    double radius = 3 / p.ratio[d] + 2;
    int64_t times = p.out[d] / p.in[d];

    *first = 0;
    *last = p.out[d] - 1;
    /* The outputs that use it for every ratio. */
    if (p.taps[d] == GPU_NEAREST && times * p.in[d] == p.out[d] &&
        (times == 1 || times == 2)) {
        *first = i * times;
        *last = *first + times - 1;
        return;
    }
    if (i == 0 || i == p.in[d] - 1 || !(p.ratio[d] > 0))
        return;
    if (centre - radius > 0)
        *first = index_near(centre - radius, p.out[d]);
    if (centre + radius < (double)*last)
        *last = (int64_t)(centre + radius);
}

/* The weight of an input coordinate in an output coordinate.  Returns false if
 * it is not used, which differs from a weight of 0. */
GPU_DEVICE bool weight_in(const gpu_resample &p, int d, int64_t o, int64_t i,
                          double *share)
{
    double weight;
    bool any = false;

    *share = 0;
    for (uint32_t k = 0; k < p.taps[d]; k++)
        if (tap(p, d, o, k, &weight) == i) {
            *share += weight;
            any = true;
        }
    return any;
}

template <class M> GPU_DEVICE void resample_grad(const gpu_resample &p)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t at = (int64_t)gpu_first(); at < p.count; at += step) {
        int64_t x, y, z, plane = gpu_split(at, p.in[2], &x);
        int64_t z0, z1, y0, y1, x0, x1;
        double sum = 0;
        const M *from;

        plane = gpu_split(plane, p.in[1], &y);
        plane = gpu_split(plane, p.in[0], &z);
        from = (const M *)p.from + plane * p.out[0] * p.out[1] * p.out[2];
        outputs_near(p, 0, z, &z0, &z1);
        outputs_near(p, 1, y, &y0, &y1);
        outputs_near(p, 2, x, &x0, &x1);
        for (int64_t oz = z0; oz <= z1; oz++) {
            double wz, wy, wx;

            if (!weight_in(p, 0, oz, z, &wz))
                continue;
            for (int64_t oy = y0; oy <= y1; oy++) {
                if (!weight_in(p, 1, oy, y, &wy))
                    continue;
                for (int64_t ox = x0; ox <= x1; ox++)
                    if (weight_in(p, 2, ox, x, &wx))
                        sum += wz * wy * wx *
                               (double)gpu_load(
                                   from[(oz * p.out[1] + oy) * p.out[2] + ox]);
            }
        }
        gpu_store(((M *)p.to)[at], (typename gpu_type<M>::compute)sum);
    }
}

#define RESAMPLE(name, M)                          \
    GPU_KERNEL(resample_##name, gpu_resample)      \
    {                                              \
        resample<M>(p);                            \
    }                                              \
    GPU_KERNEL(resample_grad_##name, gpu_resample) \
    {                                              \
        resample_grad<M>(p);                       \
    }
#define RESAMPLE_MOVE(name, W)                     \
    GPU_KERNEL(resample_move_##name, gpu_resample) \
    {                                              \
        resample_move<W>(p);                       \
    }
RESAMPLE_MOVE(w8, uint8_t)
RESAMPLE_MOVE(w16, uint16_t)
RESAMPLE_MOVE(w32, uint32_t)
RESAMPLE_MOVE(w64, uint64_t)
RESAMPLE(f32, float)
RESAMPLE(f64, double)
RESAMPLE(f16, gpu_f16)
RESAMPLE(bf16, gpu_bf16)
