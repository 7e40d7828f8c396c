/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* attention.cu: softmax(scale Q Kᵀ + bias) V by tiles, and its gradients; no
 * matrix of queries x keys elements is stored (T.  Dao and others,
 * "FlashAttention", 2022; for the running maximum: M.  Milakov and N.
 * Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 * A block has TILE lines and processes the lines that they are combined with, a
 * tile at a time.  Its 256 threads form a grid of 16 x 16; each has R x R
 * elements of a tile.  Every product is of two tiles in shared memory, stored
 * with the depth first and the lines second.  Each result is written by one
 * block, with an order of summation that depends only on the sizes. */

#include "attention.h"

GPU_DEVICE float exponential(float x)
{
    return exp_f32(x);
}
GPU_DEVICE double exponential(double x)
{
    return exp(x);
}
GPU_DEVICE float logarithm(float x)
{
    return log_f32(x);
}
GPU_DEVICE double logarithm(double x)
{
    return log(x);
}
GPU_DEVICE float fused(float a, float b, float c)
{
    return fmaf(a, b, c);
}
GPU_DEVICE double fused(double a, double b, double c)
{
    return fma(a, b, c);
}

/* R numbers that are loaded at once. */
template <class T, int R> struct alignas(sizeof(T) * R) group {
    T x[R];
};

template <class M> struct tile {
    typedef typename gpu_type<M>::compute T;
    enum {
        R = sizeof(T) == 8 ? 2 : 4,
        SIDE = 16 * R, /* lines, and elements of them, at a time */
        PITCH = SIDE / R + 1
    };
    typedef group<T, R> G;
    typedef G store[SIDE * PITCH];

    static GPU_DEVICE_MEMBER T &at(G *to, uint32_t depth, uint32_t line)
    {
        return to[depth * PITCH + line / R].x[line % R];
    }

    /* Loads SIDE elements of SIDE lines, with 0 for missing ones.  ALONG: the
     * elements of a line become the tile's lines, otherwise its depth. */
    template <bool ALONG>
    static GPU_DEVICE_MEMBER void load(G *to, const lines<M> &from,
                                       int64_t line, int64_t item)
    {
#pragma unroll 4
        for (uint32_t i = gpu_thread.x; i < SIDE * SIDE; i += 256) {
            uint32_t l = i / SIDE, k = i % SIDE;
            T x = 0;

            if (line + l < from.count && item + k < from.width)
                x = gpu_load(
                    from.data[(line + l) * from.row + (item + k) * from.item]);
            at(to, ALONG ? l : k, ALONG ? k : l) = x;
        }
    }

    /* sum[i][j] += a[][y + i] b[][x + j] */
    static GPU_DEVICE_MEMBER void multiply(T (*sum)[R], const G *a, const G *b)
    {
        uint32_t y = gpu_thread.x / 16, x = gpu_thread.x % 16;

#pragma unroll 4
        for (int d = 0; d < SIDE; d++) {
            G left = a[d * PITCH + y], right = b[d * PITCH + x];

#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++)
                    sum[i][j] = fused(left.x[i], right.x[j], sum[i][j]);
        }
    }

    /* Stores the threads' results as a left operand, whose depth is x's. */
    static GPU_DEVICE_MEMBER void store_left(G *to, T (*from)[R])
    {
        uint32_t y = gpu_thread.x / 16, x = gpu_thread.x % 16;

#pragma unroll
        for (int j = 0; j < R; j++) {
            G column;

#pragma unroll
            for (int i = 0; i < R; i++)
                column.x[i] = from[i][j];
            to[(x * R + j) * PITCH + y] = column;
        }
    }

    /* The products of all elements of lines of a with those of b. */
    static GPU_DEVICE_MEMBER void scores(T (*sum)[R], G *left, G *right,
                                         const lines<M> &a, int64_t first,
                                         const lines<M> &b, int64_t second)
    {
        for (int i = 0; i < R; i++)
            for (int j = 0; j < R; j++)
                sum[i][j] = 0;
        for (int64_t k = 0; k < a.width; k += SIDE) {
            gpu_barrier();
            load<false>(left, a, first, k);
            load<false>(right, b, second, k);
            gpu_barrier();
            multiply(sum, left, right);
        }
    }

    static GPU_DEVICE_MEMBER void write(const lines<M> &to, int64_t line,
                                        int64_t item, T (*from)[R], T scale)
    {
        uint32_t y = gpu_thread.x / 16 * R, x = gpu_thread.x % 16 * R;

        for (int i = 0; i < R; i++)
            for (int j = 0; j < R; j++)
                if (line + y + i < to.count && item + x + j < to.width)
                    gpu_store(to.data[(line + y + i) * to.row +
                                      (item + x + j) * to.item],
                              from[i][j] * scale);
    }
};

/* -------------------------------------------------------------- forward -- */

template <class M, int PARTS> struct attend {
    typedef typename gpu_type<M>::compute T;
    typedef tile<M> t;
    typedef typename t::G G;
    enum { R = t::R, SIDE = t::SIDE };

    /* Replaces scores with their exponentials, and rescales the previous sums
     * to the new maximum. */
    static GPU_DEVICE_MEMBER void update_softmax(const gpu_attention &p,
                                                 const block_position<M> &at,
                                                 T (*x)[R], T (*sum)[R][R],
                                                 T *most, T *total, int64_t row,
                                                 int64_t column)
    {
#pragma unroll
        for (int i = 0; i < R; i++) {
            T largest = most[i], share = 0, factor;
            drawing d = no_drawing();

#pragma unroll
            for (int j = 0; j < R; j++) {
                bool hidden;

                if (row + i < p.rows && column + j < p.columns)
                    x[i][j] = score_of<M>(p, at, x[i][j], row + i, column + j,
                                          &hidden);
                else
                    x[i][j] = -(T)INFINITE_f64;
                if (x[i][j] > largest || x[i][j] != x[i][j])
                    largest = x[i][j];
            }
            for (int by = 8; by > 0; by /= 2) {
                T other = gpu_shuffle_xor(largest, by);

                if (other > largest || other != other)
                    largest = other;
            }
            /* Nothing so far, or everything masked: avoids infinity minus
             * infinity. */
            factor = largest == -(T)INFINITE_f64
                         ? (T)1
                         : exponential(most[i] - largest);
#pragma unroll
            for (int j = 0; j < R; j++) {
                x[i][j] = x[i][j] == -(T)INFINITE_f64
                              ? (T)0
                              : exponential(x[i][j] - largest);
                share += x[i][j];
            }
            for (int by = 8; by > 0; by /= 2)
                share += gpu_shuffle_xor(share, by);
            most[i] = largest;
            total[i] = fused(total[i], factor, share);
#pragma unroll
            for (int c = 0; c < PARTS; c++)
#pragma unroll
                for (int j = 0; j < R; j++)
                    sum[c][i][j] *= factor;
            if (p.dropout)
                for (int j = 0; j < R; j++)
                    x[i][j] = kept(p, at, &d, row + i, column + j)
                                  ? x[i][j] * (T)p.kept_scale
                                  : (T)0;
        }
    }

    static GPU_DEVICE_MEMBER void finish(const gpu_attention &p,
                                         const block_position<M> &at,
                                         T (*sum)[R][R], const T *most,
                                         const T *total, int64_t first)
    {
        lines<M> to = lines_of<M>(p.output, at.batch, at.head, p.rows, p.outer);
        int64_t row = first + gpu_thread.x / 16 * R;

#pragma unroll
        for (int c = 0; c < PARTS; c++) {
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++)
                    sum[c][i][j] =
                        total[i] != 0 ? sum[c][i][j] / total[i] : (T)0;
            t::write(to, first, c * SIDE, sum[c], (T)1);
        }
        if (p.sum.data != 0 && gpu_thread.x % 16 == 0)
            for (int i = 0; i < R; i++)
                if (row + i < p.rows)
                    *sum_of<M>(p, at, row + i) = most[i] + logarithm(total[i]);
    }

    static GPU_DEVICE_MEMBER void rows(const gpu_attention &p,
                                       block_position<M> &at, G *left, G *right,
                                       int64_t first)
    {
        int64_t row = first + gpu_thread.x / 16 * R, end = p.columns;
        T sum[PARTS][R][R] = {}, most[R], total[R];

        if (p.causal && end > first + SIDE)
            end = first + SIDE;
        for (int i = 0; i < R; i++) {
            most[i] = -(T)INFINITE_f64;
            total[i] = 0;
        }
        for (int64_t c = 0; c < end; c += SIDE) {
            T x[R][R];

            t::scores(x, left, right, at.query, first, at.key, c);
            update_softmax(p, at, x, sum, most, total, row,
                           c + gpu_thread.x % 16 * R);
            gpu_barrier();
            t::store_left(left, x);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                if (part * SIDE >= p.outer)
                    break;
                gpu_barrier();
                t::template load<true>(right, at.value, c, part * SIDE);
                gpu_barrier();
                t::multiply(sum[part], left, right);
            }
        }
        finish(p, at, sum, most, total, first);
    }

    static GPU_DEVICE_MEMBER void all(const gpu_attention &p)
    {
        GPU_SHARED typename t::store left, right;
        int64_t tiles = p.row_tiles * p.batch * p.heads;
        uint64_t seed = p.counter != 0 ? p.counter[1] : p.seed;
        uint64_t offset = p.offset + (p.counter != 0 ? p.counter[0] : 0);

        if (gpu_block.x == 0 && gpu_thread.x == 0) {
            *p.state[0] = seed;
            *p.state[1] = offset;
        }
        for (int64_t i = gpu_block.x; i < tiles; i += gpu_grid.x) {
            int64_t line, plane = gpu_split(i, p.row_tiles, &line);
            block_position<M> at = block_position_of<M>(p, plane);

            at.seed = seed;
            at.offset = offset;
            rows(p, at, left, right, line * SIDE);
        }
    }
};

/* ------------------------------------------------------------- backward -- */

/* The sum of gradient times output of every query, by 16 threads each. */
template <class M> GPU_DEVICE void deltas(const gpu_attention &p)
{
    typedef typename gpu_type<M>::compute T;
    int64_t count = p.batch * p.heads * p.rows;
    int64_t step = (int64_t)gpu_grid.x * 16;

    for (int64_t first = (int64_t)gpu_block.x * 16; first < count;
         first += step) {
        int64_t i = first + gpu_thread.x / 16, row, head, batch;
        T sum = 0;

        if (i < count) {
            batch = gpu_split(gpu_split(i, p.rows, &row), p.heads, &head);
            lines<M> g = lines_of<M>(p.grad, batch, head, p.rows, p.outer);
            lines<M> y = lines_of<M>(p.output, batch, head, p.rows, p.outer);

            for (int64_t k = gpu_thread.x % 16; k < p.outer; k += 16)
                sum = fused(gpu_load(g.data[row * g.row + k * g.item]),
                            gpu_load(y.data[row * y.row + k * y.item]), sum);
        }
        for (int by = 8; by > 0; by /= 2)
            sum += gpu_shuffle_xor(sum, by);
        if (i < count && gpu_thread.x % 16 == 0)
            ((T *)p.delta)[i] = sum;
    }
}

template <class M, int PARTS> struct retreat {
    typedef typename gpu_type<M>::compute T;
    typedef tile<M> t;
    typedef typename t::G G;
    enum { R = t::R, SIDE = t::SIDE };

    /* One element: x is the product of query and key, g that of gradient and
     * value.  x becomes the weight of the value after dropout, and g the
     * gradient of the score. */
    static GPU_DEVICE_MEMBER void element(const gpu_attention &p,
                                          const block_position<M> &at, T *x,
                                          T *g, drawing *d, int64_t row,
                                          int64_t column)
    {
        bool hidden, drops = p.dropout != 0, stays = true;
        T weight, sum, scale = drops ? (T)p.kept_scale : (T)1;

        if (row >= p.rows || column >= p.columns) {
            *x = *g = 0;
            return;
        }
        weight = score_of<M>(p, at, *x, row, column, &hidden);
        sum = *sum_of<M>(p, at, row);
        /* Every key is masked: there are no weights. */
        weight = sum == -(T)INFINITE_f64 ? (T)0 : exponential(weight - sum);
        if (drops)
            stays = kept(p, at, d, row, column);
        *x = stays ? weight * scale : (T)0;
        *g = stays ? *g * scale : (T)0;
        *g = hidden ? (T)0
                    : weight *
                          (*g - ((const T *)p.delta)[at.plane * p.rows + row]);
    }

    /* dQ = scale dS K for a tile of queries. */
    static GPU_DEVICE_MEMBER void queries(const gpu_attention &p,
                                          const block_position<M> &at, G *left,
                                          G *right, int64_t first)
    {
        lines<M> grad = lines_of<M>(p.grad, at.batch, at.head, p.rows, p.outer);
        int64_t row = first + gpu_thread.x / 16 * R, end = p.columns;
        T sum[PARTS][R][R] = {};

        if (p.causal && p.to_bias.data == 0 && end > first + SIDE)
            end = first + SIDE;
        for (int64_t c = 0; c < end; c += SIDE) {
            int64_t column = c + gpu_thread.x % 16 * R;
            T x[R][R], g[R][R];

            t::scores(x, left, right, at.query, first, at.key, c);
            t::scores(g, left, right, grad, first, at.value, c);
#pragma unroll
            for (int i = 0; i < R; i++) {
                drawing d = no_drawing();

#pragma unroll
                for (int j = 0; j < R; j++)
                    element(p, at, &x[i][j], &g[i][j], &d, row + i, column + j);
            }
            if (p.to_bias.data != 0)
                t::write(lines_of<M>(p.to_bias, at.batch, at.head, p.rows,
                                     p.columns),
                         first, c, g, (T)1);
            gpu_barrier();
            t::store_left(left, g);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                if (part * SIDE >= p.inner)
                    break;
                gpu_barrier();
                t::template load<true>(right, at.key, c, part * SIDE);
                gpu_barrier();
                t::multiply(sum[part], left, right);
            }
        }
        if (p.to_query.data == 0)
            return;
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            t::write(
                lines_of<M>(p.to_query, at.batch, at.head, p.rows, p.inner),
                first, part * SIDE, sum[part], (T)p.scale);
    }

    /* sum += aᵀ from, where the threads have a with its lines along x. */
    static GPU_DEVICE_MEMBER void gather(T (*sum)[R][R], T (*a)[R], G *left,
                                         G *right, const lines<M> &from,
                                         int64_t line)
    {
        gpu_barrier();
        t::store_left(left, a);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            if (part * SIDE >= from.width)
                break;
            gpu_barrier();
            t::template load<true>(right, from, line, part * SIDE);
            gpu_barrier();
            t::multiply(sum[part], left, right);
        }
    }

    /* dV = Pᵀ dO and dK = scale dSᵀ Q for a tile of keys. */
    static GPU_DEVICE_MEMBER void keys(const gpu_attention &p,
                                       const block_position<M> &at, G *left,
                                       G *right, int64_t first)
    {
        lines<M> grad = lines_of<M>(p.grad, at.batch, at.head, p.rows, p.outer);
        int64_t column = first + gpu_thread.x / 16 * R;
        T to_key[PARTS][R][R] = {}, to_value[PARTS][R][R] = {};

        for (int64_t c = p.causal ? first : 0; c < p.rows; c += SIDE) {
            int64_t row = c + gpu_thread.x % 16 * R;
            T x[R][R], g[R][R];

            t::scores(x, left, right, at.key, first, at.query, c);
            t::scores(g, left, right, at.value, first, grad, c);
#pragma unroll
            for (int j = 0; j < R; j++) {
                drawing d = no_drawing();

#pragma unroll
                for (int i = 0; i < R; i++)
                    element(p, at, &x[i][j], &g[i][j], &d, row + j, column + i);
            }
            if (p.to_value.data != 0)
                gather(to_value, x, left, right, grad, c);
            if (p.to_key.data != 0)
                gather(to_key, g, left, right, at.query, c);
        }
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            if (p.to_key.data != 0)
                t::write(lines_of<M>(p.to_key, at.batch, at.head, p.columns,
                                     p.inner),
                         first, part * SIDE, to_key[part], (T)p.scale);
            if (p.to_value.data != 0)
                t::write(lines_of<M>(p.to_value, at.batch, at.head, p.columns,
                                     p.outer),
                         first, part * SIDE, to_value[part], (T)1);
        }
    }

    static GPU_DEVICE_MEMBER void all(const gpu_attention &p, bool of_queries)
    {
        GPU_SHARED typename t::store left, right;
        int64_t tiles = of_queries ? p.row_tiles : p.column_tiles;
        int64_t count = tiles * p.batch * p.heads;

        for (int64_t i = gpu_block.x; i < count; i += gpu_grid.x) {
            int64_t line, plane = gpu_split(i, tiles, &line);
            block_position<M> at = block_position_of<M>(p, plane);

            at.seed = *p.state[0];
            at.offset = *p.state[1];
            if (of_queries)
                queries(p, at, left, right, line * SIDE);
            else
                keys(p, at, left, right, line * SIDE);
        }
    }
};

/* attention_ELEMENTS_TYPE: for queries and values of at most ELEMENTS elements;
 * f64 has two sizes. */
#define SIZE(size, suffix, M)                                               \
    GPU_KERNEL_COOPERATIVE(attention_##size##_##suffix, gpu_attention)      \
    {                                                                       \
        attend<M, (size) / tile<M>::SIDE>::all(p);                          \
    }                                                                       \
    GPU_KERNEL_COOPERATIVE(attention_rows_##size##_##suffix, gpu_attention) \
    {                                                                       \
        retreat<M, (size) / tile<M>::SIDE>::all(p, true);                   \
    }                                                                       \
    GPU_KERNEL_COOPERATIVE(attention_keys_##size##_##suffix, gpu_attention) \
    {                                                                       \
        retreat<M, (size) / tile<M>::SIDE>::all(p, false);                  \
    }
#define ATTENTION(suffix, M)                                        \
    SIZE(64, suffix, M)                                             \
    SIZE(256, suffix, M)                                            \
    GPU_KERNEL_COOPERATIVE(attention_delta_##suffix, gpu_attention) \
    {                                                               \
        deltas<M>(p);                                               \
    }
ATTENTION(f32, float)
ATTENTION(f64, double)
ATTENTION(f16, gpu_f16)
ATTENTION(bf16, gpu_bf16)
SIZE(128, f32, float)
SIZE(128, f16, gpu_f16)
SIZE(128, bf16, gpu_bf16)
