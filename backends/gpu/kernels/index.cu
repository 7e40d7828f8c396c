/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index.cu: reading by indices; nll_loss; tensors made of a rule.  A bad index
 * is 0 instead, and told.  (scatter.cu writes by indices.) */

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

/* What a bad index has got: the first of a line, which may have none. */
template <class W>
GPU_DEVICE W element_at(const gpu_indexing &p, int64_t at, bool is_good)
{
    return is_good || p.limit > 0 ? ((const W *)p.from)[at] : (W)0;
}

/* index_select and embedding */
template <class W> GPU_DEVICE void select_lines(const gpu_indexing &p)
{
    for (uint64_t at = gpu_first(); at < p.count; at += gpu_step()) {
        int64_t k, e, line = gpu_split((int64_t)at, p.inner, &k);
        int64_t outer = gpu_split(line, p.n, &e), i = index_at(p, e);
        bool is_good = good(p, i);

        if (!is_good)
            i = 0;
        ((W *)p.to)[at] =
            element_at<W>(p, (outer * p.limit + i) * p.inner + k, is_good);
    }
}

template <class W> GPU_DEVICE void gather(const gpu_indexing &p)
{
    for (uint64_t at = gpu_first(); at < p.count; at += gpu_step()) {
        uint32_t rest = (uint32_t)at;
        bool is_good = true;
        int64_t from = 0;

        for (uint32_t d = 0; d < p.ndim; d++) {
            uint32_t next = gpu_divide(rest, p.sizes[d]);
            int64_t k = rest - next * p.sizes[d].value;

            rest = next;
            if (d == p.dim) {
                k = index_at(p, (int64_t)at);
                is_good = good(p, k);
                if (!is_good)
                    k = 0;
            }
            from += k * p.from_strides[d];
        }
        ((W *)p.to)[at] = element_at<W>(p, from, is_good);
    }
}

#define MOVES(name, W)                            \
    GPU_KERNEL(index_select_##name, gpu_indexing) \
    {                                             \
        select_lines<W>(p);                       \
    }                                             \
    GPU_KERNEL(index_gather_##name, gpu_indexing) \
    {                                             \
        gather<W>(p);                             \
    }
MOVES(w8, uint8_t)
MOVES(w16, uint16_t)
MOVES(w32, uint32_t)
MOVES(w64, uint64_t)

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

    for (uint64_t i = gpu_first(); i < p.count; i += gpu_step()) {
        int64_t column, row = gpu_split((int64_t)i, p.columns, &column);

        gpu_write_i64((char *)p.to + i * bytes, p.dtype, row == column);
    }
}

template <class W> GPU_DEVICE void triangle(const gpu_rule &p)
{
    for (uint64_t i = gpu_first(); i < p.count; i += gpu_step()) {
        int64_t column, row, rows = gpu_split((int64_t)i, p.columns, &column);
        bool keep;

        gpu_split(rows, p.rows, &row);
        keep =
            p.upper ? column - row >= p.diagonal : column - row <= p.diagonal;

        ((W *)p.to)[i] = keep ? ((const W *)p.from)[i] : (W)0;
    }
}

#define TRIANGLE(name, W)                      \
    GPU_KERNEL(rule_triangle_##name, gpu_rule) \
    {                                          \
        triangle<W>(p);                        \
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
        int64_t k, o = gpu_split(i, p.inner, &k), t = class_at(p, i);
        int64_t at = (o * p.classes + t) * p.inner + k;
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
        int64_t k, o = gpu_split(i, p.inner, &k), t = class_at(p, i);
        M *to = (M *)p.to + o * p.classes * p.inner + k;
        double g = 0;

        if (t >= 0) {
            g = -weight_of<M>(p, t) *
                (double)gpu_load(((const M *)p.from)[p.reduction == 0 ? i : 0]);
            if (p.reduction == 1)
                g /= (double)gpu_load(*(const M *)p.total);
        }
        for (int64_t c = 0; c < p.classes; c++)
            gpu_store(to[c * p.inner], (T)(c == t ? g : 0));
    }
}

#define LOSS(name, M)                                    \
    GPU_KERNEL_COOPERATIVE(nll_forward_##name, gpu_loss) \
    {                                                    \
        loss_forward<M>(p);                              \
    }                                                    \
    GPU_KERNEL(nll_backward_##name, gpu_loss)            \
    {                                                    \
        loss_backward<M>(p);                             \
    }
LOSS(f32, float)
LOSS(f64, double)
LOSS(f16, gpu_f16)
LOSS(bf16, gpu_bf16)
