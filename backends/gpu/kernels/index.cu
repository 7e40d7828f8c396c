/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index.cu: reading and summing by indices.  Sums are made by destination, in
 * the order of the indices, so that they are always the same.  A bad index is
 * passed over, or 0 instead, and told. */

#include "types.h"

#include <gpu/shared_index.h>

GPU_DEVICE int64_t index_at(const gpu_indexing &p, int64_t i)
{
    return p.index_dtype == GPU_I64 ? ((const int64_t *)p.index)[i]
                                    : ((const int32_t *)p.index)[i];
}

GPU_DEVICE bool good(const gpu_indexing &p, int64_t index)
{
    if (index >= 0 && index < p.limit)
        return true;
    gpu_fail(p.error, GPU_BAD_INDEX, p.call, index);
    return false;
}

/* index_select and embedding */
template <class W> GPU_DEVICE void select_lines(const gpu_indexing &p)
{
    for (uint64_t at = gpu_first(); at < p.count; at += gpu_step()) {
        int64_t k = (int64_t)(at % (uint64_t)p.inner);
        int64_t line = (int64_t)(at / (uint64_t)p.inner);
        int64_t i = index_at(p, line % p.n);

        if (!good(p, i))
            i = 0;
        ((W *)p.to)[at] =
            ((const W *)p.from)[(line / p.n * p.limit + i) * p.inner + k];
    }
}

template <class W> GPU_DEVICE void gather(const gpu_indexing &p)
{
    for (uint64_t at = gpu_first(); at < p.count; at += gpu_step()) {
        uint32_t rest = (uint32_t)at;
        int64_t from = 0;

        for (uint32_t d = 0; d < p.ndim; d++) {
            uint32_t next = gpu_divide(rest, p.sizes[d]);
            int64_t k = rest - next * p.sizes[d].value;

            rest = next;
            if (d == p.dim) {
                k = index_at(p, (int64_t)at);
                if (!good(p, k))
                    k = 0;
            }
            from += k * p.source_strides[d];
        }
        ((W *)p.to)[at] = ((const W *)p.from)[from];
    }
}

/* Where the indices and sources of a destination begin; false: there are none.
 * *out_place: the destination's place along the dimension. */
GPU_DEVICE bool beginnings(const gpu_indexing &p, uint32_t at,
                           int64_t *out_index, int64_t *out_source,
                           int64_t *out_place)
{
    int64_t index = 0, source = 0;
    bool any = true;

    for (uint32_t d = 0; d < p.ndim; d++) {
        uint32_t next = gpu_divide(at, p.sizes[d]);
        int64_t k = at - next * p.sizes[d].value;

        at = next;
        if (d == p.dim) {
            *out_place = k;
            continue;
        }
        any = any && k < p.index_sizes[d];
        index += k * p.index_strides[d];
        source += k * p.source_strides[d];
    }
    *out_index = index;
    *out_source = source;
    return any;
}

/* The last index that names a destination decides. */
template <class W> GPU_DEVICE void scatter(const gpu_indexing &p)
{
    for (uint64_t at = gpu_first(); at < p.count; at += gpu_step()) {
        W value = ((const W *)p.from)[at];
        int64_t index, source, place = 0;

        if (beginnings(p, (uint32_t)at, &index, &source, &place))
            for (int64_t k = 0; k < p.index_sizes[p.dim]; k++) {
                int64_t i = index_at(p, index + k * p.index_strides[p.dim]);

                if (good(p, i) && i == place)
                    value = ((const W *)p.source)[source +
                                                  k * p.source_strides[p.dim]];
            }
        ((W *)p.to)[at] = value;
    }
}

/* What sums of T are made in. */
template <class T> struct sums {
    typedef T type;
};
template <> struct sums<float> {
    typedef double type;
};

template <class M> GPU_DEVICE void scatter_add(const gpu_indexing &p)
{
    typedef typename gpu_type<M>::compute T;

    for (uint64_t at = gpu_first(); at < p.count; at += gpu_step()) {
        typename sums<T>::type total = gpu_load(((const M *)p.from)[at]);
        int64_t index, source, place = 0;

        if (beginnings(p, (uint32_t)at, &index, &source, &place))
            for (int64_t k = 0; k < p.index_sizes[p.dim]; k++) {
                int64_t i = index_at(p, index + k * p.index_strides[p.dim]);

                if (good(p, i) && i == place)
                    total += gpu_load(
                        ((const M *)p.source)[source +
                                              k * p.source_strides[p.dim]]);
            }
        gpu_store(((M *)p.to)[at], (T)total);
    }
}

GPU_DEVICE float factor(const gpu_indexing &p, float)
{
    return (float)p.alpha;
}
GPU_DEVICE double factor(const gpu_indexing &p, double)
{
    return p.alpha;
}
template <class T> GPU_DEVICE T factor(const gpu_indexing &p, T)
{
    return (T)p.alpha_whole;
}

/* index_add: to = from + alpha source by lines; embedding's gradient: from is
 * none, and rows that are padding stay 0. */
template <class M> GPU_DEVICE void add_lines(const gpu_indexing &p)
{
    typedef typename gpu_type<M>::compute T;
    T alpha = factor(p, (T)0);

    for (uint64_t at = gpu_first(); at < p.count; at += gpu_step()) {
        int64_t k = (int64_t)(at % (uint64_t)p.inner);
        int64_t line = (int64_t)(at / (uint64_t)p.inner);
        int64_t row = line % p.limit, o = line / p.limit, used = 0;
        typename sums<T>::type total = 0;

        for (int64_t i = 0; i < p.n; i++) {
            int64_t which = index_at(p, i);

            if (!good(p, which) || which != row || row == p.padding)
                continue;
            total += gpu_load(
                ((const M *)p.source)[(o * p.n + i) * p.inner + k]);
            used++;
        }
        if (p.by_frequency && used > 1)
            total /= (typename sums<T>::type)used;
        total *= alpha;
        if (p.from != 0)
            total += gpu_load(((const M *)p.from)[at]);
        gpu_store(((M *)p.to)[at], (T)total);
    }
}

#define MOVES(name, W)                                 \
    GPU_KERNEL(index_select_##name, gpu_indexing)      \
    {                                                  \
        select_lines<W>(p);                            \
    }                                                  \
    GPU_KERNEL(index_gather_##name, gpu_indexing)      \
    {                                                  \
        gather<W>(p);                                  \
    }                                                  \
    GPU_KERNEL(index_scatter_##name, gpu_indexing)     \
    {                                                  \
        scatter<W>(p);                                 \
    }
MOVES(w8, uint8_t)
MOVES(w16, uint16_t)
MOVES(w32, uint32_t)
MOVES(w64, uint64_t)

#define SUMS(name, M)                                      \
    GPU_KERNEL(index_scatter_add_##name, gpu_indexing)     \
    {                                                      \
        scatter_add<M>(p);                                 \
    }                                                      \
    GPU_KERNEL(index_add_lines_##name, gpu_indexing)       \
    {                                                      \
        add_lines<M>(p);                                   \
    }
SUMS(f32, float)
SUMS(f64, double)
SUMS(f16, gpu_f16)
SUMS(bf16, gpu_bf16)
SUMS(i64, int64_t)
SUMS(i32, int32_t)
SUMS(i16, int16_t)
SUMS(i8, int8_t)
SUMS(u8, uint8_t)

/* ---------------------------------------------------------------- rules -- */

GPU_KERNEL(rule_arange, gpu_rule)
{
    uint32_t bytes = gpu_bytes(p.dtype);

    for (uint64_t i = gpu_first(); i < p.count; i += gpu_step())
        if (p.dtype <= GPU_BF16)
            gpu_write_f64((char *)p.to + i * bytes, p.dtype,
                          p.start + (double)i * p.width);
        else
            gpu_write_i64((char *)p.to + i * bytes, p.dtype,
                          p.first + (int64_t)i * p.step);
}

GPU_KERNEL(rule_eye, gpu_rule)
{
    uint32_t bytes = gpu_bytes(p.dtype);

    for (uint64_t i = gpu_first(); i < p.count; i += gpu_step())
        gpu_write_i64((char *)p.to + i * bytes, p.dtype,
                      i / (uint64_t)p.columns == i % (uint64_t)p.columns);
}

template <class W> GPU_DEVICE void triangle(const gpu_rule &p)
{
    for (uint64_t i = gpu_first(); i < p.count; i += gpu_step()) {
        int64_t column = (int64_t)(i % (uint64_t)p.columns);
        int64_t row = (int64_t)(i / (uint64_t)p.columns % (uint64_t)p.rows);
        bool keep = p.upper ? column - row >= p.diagonal
                            : column - row <= p.diagonal;

        ((W *)p.to)[i] = keep ? ((const W *)p.from)[i] : (W)0;
    }
}

#define TRIANGLE(name, W)                       \
    GPU_KERNEL(rule_triangle_##name, gpu_rule)  \
    {                                           \
        triangle<W>(p);                         \
    }
TRIANGLE(w8, uint8_t)
TRIANGLE(w16, uint16_t)
TRIANGLE(w32, uint32_t)
TRIANGLE(w64, uint64_t)

/* ----------------------------------------------------------------- loss -- */

/* The class that was meant at a position; -1: ignored, or bad and told. */
GPU_DEVICE int64_t class_at(const gpu_loss &p, int64_t position)
{
    int64_t t = p.index_dtype == GPU_I64
                    ? ((const int64_t *)p.target)[position]
                    : ((const int32_t *)p.target)[position];

    if (t == p.ignore)
        return -1;
    if (t >= 0 && t < p.classes)
        return t;
    gpu_fail(p.error, GPU_BAD_INDEX, p.call, t);
    return -1;
}

template <class M> GPU_DEVICE double weight_of(const gpu_loss &p, int64_t t)
{
    return p.weight != 0 ? (double)gpu_load(((const M *)p.weight)[t]) : 1.0;
}

/* One block.  reduction: 0 none, 1 mean, 2 sum. */
template <class M> GPU_DEVICE void loss_forward(const gpu_loss &p)
{
    typedef typename gpu_type<M>::compute T;
    GPU_SHARED double losses[256];
    GPU_SHARED double weights[256];
    uint32_t me = gpu_thread.x;
    double sum = 0, all = 0;

    for (int64_t i = me; i < p.outer * p.inner; i += 256) {
        int64_t t = class_at(p, i);
        int64_t at = (i / p.inner * p.classes + t) * p.inner + i % p.inner;
        double w = t < 0 ? 0 : weight_of<M>(p, t);
        double loss =
            t < 0 ? 0 : -w * (double)gpu_load(((const M *)p.from)[at]);

        if (p.reduction == 0)
            gpu_store(((M *)p.to)[i], (T)loss);
        sum += loss;
        all += w;
    }
    losses[me] = sum;
    weights[me] = all;
    gpu_barrier();
    for (uint32_t half = 128; half > 0; half /= 2) {
        if (me < half) {
            losses[me] += losses[me + half];
            weights[me] += weights[me + half];
        }
        gpu_barrier();
    }
    if (me == 0) {
        if (p.reduction != 0)
            gpu_store(*(M *)p.to, (T)(p.reduction == 1 ? losses[0] / weights[0]
                                                       : losses[0]));
        gpu_store(*(M *)p.total, (T)(p.reduction == 0 ? 0 : weights[0]));
    }
}

template <class M> GPU_DEVICE void loss_backward(const gpu_loss &p)
{
    typedef typename gpu_type<M>::compute T;
    int64_t positions = p.outer * p.inner;

    for (int64_t i = (int64_t)gpu_first(); i < positions;
         i += (int64_t)gpu_step()) {
        M *to = (M *)p.to + i / p.inner * p.classes * p.inner + i % p.inner;
        int64_t t = class_at(p, i);
        double g = 0;

        if (t >= 0) {
            g = -weight_of<M>(p, t) *
                (double)gpu_load(
                    ((const M *)p.from)[p.reduction == 0 ? i : 0]);
            if (p.reduction == 1)
                g /= (double)gpu_load(*(const M *)p.total);
        }
        for (int64_t c = 0; c < p.classes; c++)
            gpu_store(to[c * p.inner], (T)(c == t ? g : 0));
    }
}

#define LOSS(name, M)                                      \
    GPU_KERNEL_MEETING(nll_forward_##name, gpu_loss)       \
    {                                                      \
        loss_forward<M>(p);                                \
    }                                                      \
    GPU_KERNEL(nll_backward_##name, gpu_loss)              \
    {                                                      \
        loss_backward<M>(p);                               \
    }
LOSS(f32, float)
LOSS(f64, double)
LOSS(f16, gpu_f16)
LOSS(bf16, gpu_bf16)
