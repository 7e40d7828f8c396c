/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* optim.cu: optimizer steps of many tensors in a launch.  A block has a chunk
 * of one tensor.  An element takes the same steps as in the sequence of
 * operators that define the optimizer, with the same roundings in f32 and f64;
 * f16 and bf16 are rounded only at the end. */

#include "types.h"

#include <gpu/shared_optim.h>

GPU_DEVICE float fused(float a, float b, float c)
{
    return fmaf(a, b, c);
}
GPU_DEVICE double fused(double a, double b, double c)
{
    return fma(a, b, c);
}
GPU_DEVICE float root_of(float x)
{
    return sqrtf(x);
}
GPU_DEVICE double root_of(double x)
{
    return sqrt(x);
}

/* The tensor to which a chunk belongs. */
GPU_DEVICE uint32_t tensor_of(const gpu_step_list &list, uint32_t chunk)
{
    uint32_t low = 0, high = list.count - 1;

    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;

        if (list.first[middle] <= chunk)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Calls f for all elements of the block. */
template <class F> GPU_DEVICE void each(const gpu_step_list &list, F f)
{
    if (list.found_inf != 0 && *list.found_inf > 0)
        return;
    for (uint32_t chunk = gpu_block.x; chunk < list.first[list.count];
         chunk += gpu_grid.x) {
        uint32_t k = tensor_of(list, chunk);
        uint64_t begin = (uint64_t)(chunk - list.first[k]) * GPU_STEP_CHUNK;
        uint64_t end = begin + GPU_STEP_CHUNK;

        if (end > list.size[k])
            end = list.size[k];
#pragma unroll 4
        for (uint64_t i = begin + gpu_thread.x; i < end; i += 256)
            f(k, i);
    }
}

template <class M> struct element {
    typedef typename gpu_type<M>::compute T;

    static GPU_DEVICE_MEMBER M *at(const gpu_step_list &list, int which,
                                   uint32_t k, uint64_t i)
    {
        return (M *)list.data[which][k] + i;
    }
    static GPU_DEVICE_MEMBER T get(const gpu_step_list &list, int which,
                                   uint32_t k, uint64_t i)
    {
        return gpu_load(*at(list, which, k, i));
    }
    static GPU_DEVICE_MEMBER T gradient(const gpu_step_list &list, uint32_t k,
                                        uint64_t i)
    {
        T g = get(list, 1, k, i);

        return list.grad_scale != 0 ? g / (T)*list.grad_scale : g;
    }
};

template <class M> struct adam {
    typedef element<M> E;
    typedef typename E::T T;
    const gpu_adam &p;
    const double rate, root, remainder;

    GPU_DEVICE_MEMBER explicit adam(const gpu_adam &of)
        : p(of), rate(of.list.numbers ? of.list.numbers[0] : of.rate),
          root(of.list.numbers ? of.list.numbers[1] : of.root),
          remainder(of.list.numbers ? of.list.numbers[2] : of.remainder)
    {
    }

    GPU_DEVICE_MEMBER void operator()(uint32_t k, uint64_t i) const
    {
        const gpu_step_list &list = p.list;
        T x = E::get(list, 0, k, i), g = E::gradient(list, k, i);
        T m = E::get(list, 2, k, i), v = E::get(list, 3, k, i), below;

        if (p.decoupled)
            x = x * (T)remainder;
        else if (p.decay != 0)
            g = fused((T)p.decay, x, g);
        m = fused((T)(1 - p.beta1), g, m * (T)p.beta1);
        v = fused((T)(1 - p.beta2) * g, g, v * (T)p.beta2);
        below = root_of(v) / (T)root + (T)p.epsilon;
        x = fused((T)rate, m / below, x);
        gpu_store(*E::at(list, 0, k, i), x);
        gpu_store(*E::at(list, 2, k, i), m);
        gpu_store(*E::at(list, 3, k, i), v);
    }
};

template <class M> struct descent {
    typedef element<M> E;
    typedef typename E::T T;
    const gpu_sgd &p;
    const double rate;
    const bool first;

    GPU_DEVICE_MEMBER explicit descent(const gpu_sgd &of)
        : p(of), rate(of.list.numbers ? -of.list.numbers[0] : of.rate),
          first(of.list.numbers ? of.list.numbers[1] != 0 : of.first != 0)
    {
    }

    GPU_DEVICE_MEMBER void operator()(uint32_t k, uint64_t i) const
    {
        const gpu_step_list &list = p.list;
        T x = E::get(list, 0, k, i), g = E::gradient(list, k, i);

        if (p.decay != 0)
            g = fused((T)p.decay, x, g);
        if (p.momentum != 0) {
            T b = first ? g
                          : fused((T)p.share, g,
                                  E::get(list, 2, k, i) * (T)p.momentum);

            gpu_store(*E::at(list, 2, k, i), b);
            g = p.nesterov ? fused((T)p.momentum, b, g) : b;
        }
        gpu_store(*E::at(list, 0, k, i), fused((T)rate, g, x));
    }
};

#define STEPS(suffix, M)                      \
    GPU_KERNEL(optim_adam_##suffix, gpu_adam) \
    {                                         \
        each(p.list, adam<M>(p));                \
    }                                         \
    GPU_KERNEL(optim_sgd_##suffix, gpu_sgd)   \
    {                                         \
        each(p.list, descent<M>(p));          \
    }
STEPS(f32, float)
STEPS(f64, double)
STEPS(f16, gpu_f16)
STEPS(bf16, gpu_bf16)
