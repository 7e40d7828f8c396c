/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* attention.h: what the kernels of attention.cu and attention_mma.cu share. */

#ifndef GPU_ATTENTION_H
#define GPU_ATTENTION_H

#include "types.h"

#include <expressions/philox.h>
#include <gpu/shared_attention.h>

/* The lines of one batch and head, and the number of their elements. */
template <class M> struct lines {
    M *data;
    int64_t row, item, count, width;
};

template <class M>
GPU_DEVICE lines<M> lines_of(const gpu_heads &all, int64_t batch, int64_t head,
                             int64_t count, int64_t width)
{
    lines<M> some = {(M *)all.data + batch * all.batch + head * all.head,
                     all.row, all.item, count, width};

    return some;
}

/* What all threads of a block share. */
template <class M> struct block_position {
    typedef typename gpu_type<M>::compute T;
    int64_t batch, head, plane; /* which: of batches x heads */
    lines<M> query, key, value;
    uint64_t seed, offset;
};

template <class M>
GPU_DEVICE block_position<M> block_position_of(const gpu_attention &p,
                                               int64_t plane)
{
    block_position<M> at;

    at.plane = plane;
    at.batch = gpu_split(plane, p.heads, &at.head);
    at.query = lines_of<M>(p.query, at.batch, at.head, p.rows, p.inner);
    at.key = lines_of<M>(p.key, at.batch, at.head, p.columns, p.inner);
    at.value = lines_of<M>(p.value, at.batch, at.head, p.columns, p.outer);
    at.seed = at.offset = 0;
    return at;
}

template <class M>
GPU_DEVICE typename gpu_type<M>::compute *sum_of(const gpu_attention &p,
                                                 const block_position<M> &at,
                                                 int64_t row)
{
    return (typename gpu_type<M>::compute *)p.sum.data +
           at.batch * p.sum.batch + at.head * p.sum.head + row * p.sum.row;
}

/* A score with scale, bias and masks.  *out_hidden: it is masked, and has no
 * gradient. */
template <class M, class T>
GPU_DEVICE T score_of(const gpu_attention &p, const block_position<M> &at,
                      T product, int64_t row, int64_t column, bool *out_hidden)
{
    T x = product * (T)p.scale;
    bool hidden = p.causal && column > row;

    if (p.bias.data != 0) {
        int64_t i = at.batch * p.bias.batch + at.head * p.bias.head +
                    row * p.bias.row + column * p.bias.item;

        if (p.whole_bias)
            hidden = hidden || ((const uint8_t *)p.bias.data)[i] == 0;
        else
            x += gpu_load(((const M *)p.bias.data)[i]);
    }
    *out_hidden = hidden;
    return hidden ? -(T)INFINITE_f64 : x;
}

/* Draws the mask of dropout, element by element like bernoulli_; adjacent
 * elements share a block of random numbers. */
struct drawing {
    uint64_t block;
    uint32_t a, b, c, d;
};

GPU_NOINLINE drawing draw(uint64_t seed, uint64_t offset, uint64_t block)
{
    uint32_t word[4];

    philox_block(seed, offset + block, word);
    return {block, word[0], word[1], word[2], word[3]};
}

template <class M>
GPU_DEVICE bool kept(const gpu_attention &p, const block_position<M> &at,
                     drawing *d, int64_t row, int64_t column)
{
    uint64_t i = ((uint64_t)at.plane * p.rows + row) * p.columns + column;
    uint32_t word;

    if (d->block != i / 4)
        *d = draw(at.seed, at.offset, i / 4);
    word = i & 2 ? (i & 1 ? d->d : d->c) : (i & 1 ? d->b : d->a);
    return word < p.kept_below;
}

/* The number of no block. */
GPU_DEVICE drawing no_drawing(void)
{
    return {~UINT64_C(0), 0, 0, 0, 0};
}

#endif
