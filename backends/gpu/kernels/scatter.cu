/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scatter.cu: writing by indices (shared_scatter.h), in the order of the
 * indices for every shape of launch.  A bad index is reported and skipped or,
 * when reading, replaced with 0. */

#include "types.h"

#include <gpu/shared_scatter.h>

GPU_DEVICE int64_t index_at(const gpu_scatter &p, uint32_t tensor, int64_t i)
{
    return p.index_dtype == GPU_I64 ? ((const int64_t *)p.index[tensor])[i]
                                    : ((const int32_t *)p.index[tensor])[i];
}

/* The index, counted from the start; -1: bad, and reported. */
GPU_DEVICE int64_t check_index(const gpu_scatter &p, uint32_t k, int64_t index)
{
    int64_t limit = p.limits[k];

    if (index < (p.wraps ? -limit : 0) || index >= limit) {
        gpu_fail(p.error, GPU_BAD_INDEX, p.call, index);
        return -1;
    }
    return index < 0 ? index + limit : index;
}

/* The position of entry e, from the index tensors. */
GPU_DEVICE int64_t position_of(const gpu_scatter &p, int64_t e)
{
    int64_t position = 0;

    for (uint32_t k = 0; k < p.tensors; k++) {
        int64_t index = index_at(p, k, e), i;

        i = index == p.padding ? -1 : check_index(p, k, index);
        if (i < 0)
            return -1;
        position += i * p.steps[k];
    }
    return position;
}

GPU_KERNEL(scatter_keys, gpu_scatter)
{
    int64_t step = (int64_t)gpu_step();

    for (int64_t e = (int64_t)gpu_first(); e < p.entries; e += step) {
        int64_t left = e, position = 0;

        if (p.tensors > 0) {
            p.keys[e] = position_of(p, e);
            continue;
        }
        for (uint32_t d = 0; d < p.index_ndim; d++) {
            int64_t k;

            left = gpu_split(left, p.index_sizes[d], &k);
            if (d == p.dim)
                k = check_index(p, 0, index_at(p, 0, e));
            if (k < 0) {
                position = -1;
                break;
            }
            position += k * p.index_steps[d];
        }
        p.keys[e] = position;
    }
}

/* The same as in kernels/sort.cu. */
struct entry {
    uint64_t bits;
    int64_t at;

    GPU_DEVICE_MEMBER int64_t position() const
    {
        return (int64_t)(bits ^ UINT64_C(1) << 63);
    }
};

GPU_DEVICE int64_t neighbour(const gpu_scatter &p, int64_t outer, int64_t rest)
{
    int64_t at = outer * p.outer_step;

    for (uint32_t d = 0; d < p.ndim; d++) {
        int64_t k;

        rest = gpu_split(rest, p.sizes[d], &k);
        at += k * p.strides[d];
    }
    return at;
}

/* The offset of an entry's element in `from`. */
GPU_DEVICE int64_t source_of(const gpu_scatter &p, int64_t e, int64_t o,
                             int64_t r)
{
    int64_t at = 0;

    if (p.tensors > 0)
        return (o * p.entries + e) * p.rest + r;
    for (uint32_t d = 0; d < p.index_ndim; d++) {
        int64_t k;

        e = gpu_split(e, p.index_sizes[d], &k);
        at += k * p.from_steps[d];
    }
    return at;
}

/* For item i of a thread: the sorted entry s, if it is the first of its
 * position, and the element of `to`.  Otherwise -1. */
GPU_DEVICE int64_t element_of(const gpu_scatter &p, int64_t i, int64_t *s,
                              int64_t *o, int64_t *r)
{
    const entry *entries = (const entry *)p.pairs;
    int64_t position;

    *o = gpu_split(gpu_split(i, p.rest, r), p.entries, s);
    position = entries[*s].position();
    if (position < 0 || (*s > 0 && entries[*s - 1].position() == position))
        return -1;
    return position + neighbour(p, *o, *r);
}

template <class W> GPU_DEVICE void scatter_put(const gpu_scatter &p)
{
    const entry *entries = (const entry *)p.pairs;
    int64_t all = p.outer * p.entries * p.rest, step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < all; i += step) {
        int64_t s, o, r, at = element_of(p, i, &s, &o, &r);

        if (at < 0)
            continue;
        while (s + 1 < p.entries &&
               entries[s + 1].position() == entries[s].position())
            s++;
        ((W *)p.to)[at] =
            p.from != 0 ? ((const W *)p.from)[source_of(p, entries[s].at, o, r)]
                        : (W)p.bits;
    }
}

/* The type of sums of T. */
template <class T> struct sums {
    typedef T type;
};
template <> struct sums<float> {
    typedef double type;
};

template <class T> GPU_DEVICE T combine(const gpu_scatter &p, T a, T b, T alpha)
{
    switch (p.mode) {
    case GPU_SCATTER_MULTIPLY:
        return a * b;
    case GPU_SCATTER_LARGEST:
        return a != a ? a : b > a || b != b ? b : a;
    case GPU_SCATTER_SMALLEST:
        return a != a ? a : b < a || b != b ? b : a;
    default:
        return a + alpha * b;
    }
}

GPU_DEVICE double average(double sum, int64_t count)
{
    return sum / (double)count;
}
GPU_DEVICE int64_t average(int64_t sum, int64_t count)
{
    return sum / count - (sum % count < 0);
}
GPU_DEVICE double number_of(const gpu_scatter &p, double)
{
    return p.number;
}
GPU_DEVICE int64_t number_of(const gpu_scatter &p, int64_t)
{
    return p.number_whole;
}
GPU_DEVICE double alpha_of(const gpu_scatter &p, double)
{
    return p.alpha;
}
GPU_DEVICE int64_t alpha_of(const gpu_scatter &p, int64_t)
{
    return p.alpha_whole;
}

template <class M> GPU_DEVICE void scatter_reduce(const gpu_scatter &p)
{
    typedef typename gpu_type<M>::compute C;
    typedef typename sums<C>::type T;
    typedef gpu_element<M> element;
    const entry *entries = (const entry *)p.pairs;
    int64_t all = p.outer * p.entries * p.rest, step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < all; i += step) {
        int64_t s, o, r, at = element_of(p, i, &s, &o, &r), position, n = 0;
        T sum;

        if (at < 0)
            continue;
        position = entries[s].position();
        sum = element::get(p.to, at, p.dtype);
        for (; s < p.entries && entries[s].position() == position; s++, n++) {
            T x = number_of(p, (T)0);

            if (p.from != 0)
                x = element::get(p.from, source_of(p, entries[s].at, o, r),
                                 p.dtype);
            sum = n == 0 && !p.with_self
                      ? x
                      : combine<T>(p, sum, x, alpha_of(p, (T)0));
        }
        if (p.mode == GPU_SCATTER_AVERAGE)
            sum = average(sum, n + (p.with_self != 0));
        element::put(p.to, at, p.dtype, (C)sum);
    }
}

/* to = from at the positions of the index tensors. */
template <class W> GPU_DEVICE void scatter_read(const gpu_scatter &p)
{
    int64_t all = p.outer * p.entries * p.rest, step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < all; i += step) {
        int64_t r, e, o = gpu_split(gpu_split(i, p.rest, &r), p.entries, &e);
        int64_t position = position_of(p, e);

        ((W *)p.to)[i] =
            ((const W *)
                 p.from)[neighbour(p, o, r) + (position < 0 ? 0 : position)];
    }
}

#define PLACE(name, W)                           \
    GPU_KERNEL(scatter_put_##name, gpu_scatter)  \
    {                                            \
        scatter_put<W>(p);                       \
    }                                            \
    GPU_KERNEL(scatter_read_##name, gpu_scatter) \
    {                                            \
        scatter_read<W>(p);                      \
    }
PLACE(w8, uint8_t)
PLACE(w16, uint16_t)
PLACE(w32, uint32_t)
PLACE(w64, uint64_t)

#define REDUCE(name, M)                            \
    GPU_KERNEL(scatter_reduce_##name, gpu_scatter) \
    {                                              \
        scatter_reduce<M>(p);                      \
    }
REDUCE(f32, float)
REDUCE(f64, double)
REDUCE(f16, gpu_f16)
REDUCE(bf16, gpu_bf16)
REDUCE(whole, gpu_integer)
