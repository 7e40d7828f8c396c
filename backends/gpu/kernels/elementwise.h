/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elementwise.h: the three kernels of every element-wise operator, around a
 * struct that gen_kernels.py writes:
 *
 *     struct F {
 *         typedef … T, M0, M1, M2, M3;   type computed with; types in memory
 *         enum { INPUTS };
 *         static M0's compute type run(a, b, c, const gpu_parameters *q,
 *                                      int *bad);
 *     }; */

#ifndef GPU_ELEMENTWISE_H
#define GPU_ELEMENTWISE_H

#include "types.h"

template <class M>
GPU_DEVICE typename gpu_type<M>::compute gpu_dense_at(const void *from,
                                                      const uint64_t *number,
                                                      uint64_t i)
{
    return gpu_load(from == 0 ? *(const M *)number : ((const M *)from)[i]);
}

template <class F>
GPU_DEVICE void gpu_dense_one(const gpu_dense &p, uint64_t i, int *bad)
{
    typedef typename F::M1 M1;
    typedef typename F::M2 M2;
    typedef typename F::M3 M3;
    typename gpu_type<M1>::compute a = gpu_dense_at<M1>(p.from[0], p.number, i);
    typename gpu_type<M2>::compute b = {};
    typename gpu_type<M3>::compute c = {};

    if (F::INPUTS > 1)
        b = gpu_dense_at<M2>(p.from[1], p.number + 1, i);
    if (F::INPUTS > 2)
        c = gpu_dense_at<M3>(p.from[2], p.number + 2, i);
    gpu_store(((typename F::M0 *)p.to)[i], F::run(a, b, c, &p.q, bad));
}

template <class M, int N>
GPU_DEVICE void gpu_dense_load(gpu_vector<M, N> &to, const void *from,
                               const uint64_t *number, uint64_t i)
{
    if (from != 0)
        to = ((const gpu_vector<M, N> *)from)[i];
    else
        for (int k = 0; k < N; k++)
            to.at[k] = *(const M *)number;
}

template <class F, int N>
GPU_DEVICE void gpu_dense_some(const gpu_dense &p, uint64_t i, int *bad)
{
    gpu_vector<typename F::M0, N> to;
    gpu_vector<typename F::M1, N> a;
    gpu_vector<typename F::M2, N> b;
    gpu_vector<typename F::M3, N> c;

    gpu_dense_load(a, p.from[0], p.number, i);
    if (F::INPUTS > 1)
        gpu_dense_load(b, p.from[1], p.number + 1, i);
    if (F::INPUTS > 2)
        gpu_dense_load(c, p.from[2], p.number + 2, i);
#pragma unroll
    for (int k = 0; k < N; k++) {
        typename gpu_type<typename F::M2>::compute y = {};
        typename gpu_type<typename F::M3>::compute z = {};

        if (F::INPUTS > 1)
            y = gpu_load(b.at[k]);
        if (F::INPUTS > 2)
            z = gpu_load(c.at[k]);
        gpu_store(to.at[k], F::run(gpu_load(a.at[k]), y, z, &p.q, bad));
    }
    ((gpu_vector<typename F::M0, N> *)p.to)[i] = to;
}

template <class F> GPU_DEVICE void gpu_dense_run(const gpu_dense &p)
{
    enum {
        LARGEST = gpu_larger<typename F::M0, typename F::M1>::value,
        N = 16 / LARGEST > GPU_ROW ? GPU_ROW : 16 / LARGEST
    };
    uint64_t i = gpu_first(), step = gpu_step();
    int bad = 0;

    if (p.vectors) {
        for (; i < p.count / N; i += step)
            gpu_dense_some<F, N>(p, i, &bad);
        i = p.count / N * N + gpu_first();
    }
    for (; i < p.count; i += step)
        gpu_dense_one<F>(p, i, &bad);
    if (bad)
        gpu_fail(p.error, GPU_BAD_ARGUMENT, p.call, 0);
}

template <class M>
GPU_DEVICE typename gpu_type<M>::compute gpu_strided_at(const gpu_strided &p,
                                                        int k, int64_t offset)
{
    if (p.data[k] == 0)
        return gpu_load(*(const M *)&p.number[k]);
    return gpu_load(*(const M *)((const char *)p.data[k] + offset));
}

/* Computes the offset of element i in each operand; returns its index in
 * dimension 0. */
template <class F>
GPU_DEVICE uint32_t gpu_strided_offsets(const gpu_strided &p, uint32_t i,
                                        int64_t offset[4])
{
    uint32_t rest = i, first = 0;

    for (int k = 0; k < 4; k++)
        offset[k] = 0;
    for (uint32_t d = 0; d < p.ndim; d++) {
        uint32_t next = gpu_divide(rest, p.sizes[d]);
        uint32_t at = rest - next * p.sizes[d].value;

        rest = next;
        first = d == 0 ? at : first;
        offset[0] += at * p.strides[0][d];
        offset[1] += at * p.strides[1][d];
        if (F::INPUTS > 1)
            offset[2] += at * p.strides[2][d];
        if (F::INPUTS > 2)
            offset[3] += at * p.strides[3][d];
    }
    return first;
}

template <class F>
GPU_DEVICE void gpu_strided_one(const gpu_strided &p, uint32_t i, int *bad)
{
    typedef typename F::M2 M2;
    typedef typename F::M3 M3;
    int64_t offset[4];
    typename gpu_type<M2>::compute b = {};
    typename gpu_type<M3>::compute c = {};

    gpu_strided_offsets<F>(p, i, offset);
    if (F::INPUTS > 1)
        b = gpu_strided_at<M2>(p, 2, offset[2]);
    if (F::INPUTS > 2)
        c = gpu_strided_at<M3>(p, 3, offset[3]);
    gpu_store(*(typename F::M0 *)((char *)p.data[0] + offset[0]),
              F::run(gpu_strided_at<typename F::M1>(p, 1, offset[1]), b, c,
                     &p.q, bad));
}

template <class F> GPU_DEVICE void gpu_strided_run(const gpu_strided &p)
{
    uint32_t step = (uint32_t)gpu_step();
    int bad = 0;

    for (uint32_t i = (uint32_t)gpu_first(); i < p.count; i += step)
        gpu_strided_one<F>(p, i, &bad);
    if (bad)
        gpu_fail(p.error, GPU_BAD_ARGUMENT, p.call, 0);
}

/* N elements from `first` on.  All operands are dense or constant along
 * dimension 0, which has at least N elements: the first `left` elements are in
 * one row, the others in the next. */
struct gpu_group {
    int64_t offset[4], next[4]; /* in the first row, and in the next one */
    uint32_t first, left;
};

/* The address of element j of operand k. */
template <class M>
GPU_DEVICE char *gpu_group_at(const gpu_strided &p, const gpu_group &g, int k,
                              uint32_t j)
{
    int64_t stride = p.strides[k][0];

    return (char *)p.data[k] +
           (j < g.left ? g.offset[k] + j * stride
                       : g.next[k] + (int64_t)(j - g.left) * stride);
}

/* The address of all N elements of operand k, or NULL if they are not adjacent
 * and aligned. */
template <class M, int N>
GPU_DEVICE gpu_vector<M, N> *gpu_group_whole(const gpu_strided &p,
                                             const gpu_group &g, int k)
{
    char *at = (char *)p.data[k];

    if (p.flat >> k & 1) /* even across rows */
        at += (int64_t)g.first * (int64_t)sizeof(M);
    else if (g.left >= N && p.strides[k][0] != 0)
        at += g.offset[k];
    else
        return 0;
    return (uintptr_t)at % sizeof(gpu_vector<M, N>) == 0
               ? (gpu_vector<M, N> *)at
               : 0;
}

template <class M, int N>
GPU_DEVICE void gpu_group_load(gpu_vector<M, N> &to, const gpu_strided &p,
                               const gpu_group &g, int k)
{
    const gpu_vector<M, N> *whole = gpu_group_whole<M, N>(p, g, k);

    if (p.data[k] == 0 || (g.left >= N && p.strides[k][0] == 0)) {
        M one = p.data[k] == 0
                    ? *(const M *)&p.number[k]
                    : *(const M *)((const char *)p.data[k] + g.offset[k]);

#pragma unroll
        for (int j = 0; j < N; j++)
            to.at[j] = one;
    } else if (whole != 0) {
        to = *whole;
    } else {
#pragma unroll
        for (int j = 0; j < N; j++)
            to.at[j] = *(const M *)gpu_group_at<M>(p, g, k, j);
    }
}

template <class F, int N>
GPU_DEVICE void gpu_group_run(const gpu_strided &p, const gpu_group &g,
                              int *bad)
{
    typedef typename F::M0 M0;
    gpu_vector<M0, N> to, *whole = gpu_group_whole<M0, N>(p, g, 0);
    gpu_vector<typename F::M1, N> a;
    gpu_vector<typename F::M2, N> b;
    gpu_vector<typename F::M3, N> c;

    gpu_group_load(a, p, g, 1);
    if (F::INPUTS > 1)
        gpu_group_load(b, p, g, 2);
    if (F::INPUTS > 2)
        gpu_group_load(c, p, g, 3);
#pragma unroll
    for (int k = 0; k < N; k++) {
        typename gpu_type<typename F::M2>::compute y = {};
        typename gpu_type<typename F::M3>::compute z = {};

        if (F::INPUTS > 1)
            y = gpu_load(b.at[k]);
        if (F::INPUTS > 2)
            z = gpu_load(c.at[k]);
        gpu_store(to.at[k], F::run(gpu_load(a.at[k]), y, z, &p.q, bad));
    }
    if (whole != 0) {
        *whole = to;
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        *(M0 *)gpu_group_at<M0>(p, g, 0, k) = to.at[k];
}

template <class F> GPU_DEVICE void gpu_rows_run(const gpu_strided &p)
{
    enum {
        LARGEST = gpu_larger<typename F::M0, typename F::M1>::value,
        N = 16 / LARGEST > GPU_ROW ? GPU_ROW : 16 / LARGEST
    };
    uint32_t step = (uint32_t)gpu_step(), groups = p.count / N;
    int bad = 0;

    for (uint32_t i = (uint32_t)gpu_first(); i < groups; i += step) {
        gpu_group g;

        g.first = i * N;
        g.left =
            p.sizes[0].value - gpu_strided_offsets<F>(p, g.first, g.offset);
        if (g.left < N)
            gpu_strided_offsets<F>(p, g.first + g.left, g.next);
        gpu_group_run<F, N>(p, g, &bad);
    }
    for (uint32_t i = groups * N + (uint32_t)gpu_first(); i < p.count;
         i += step)
        gpu_strided_one<F>(p, i, &bad);
    if (bad)
        gpu_fail(p.error, GPU_BAD_ARGUMENT, p.call, 0);
}

/* Defines the kernels name_d (dense), name_r (rows) and name_s (strided). */
#define GPU_ELEMENTWISE(name)         \
    GPU_KERNEL(name##_d, gpu_dense)   \
    {                                 \
        gpu_dense_run<name##_f>(p);   \
    }                                 \
    GPU_KERNEL(name##_r, gpu_strided) \
    {                                 \
        gpu_rows_run<name##_f>(p);    \
    }                                 \
    GPU_KERNEL(name##_s, gpu_strided) \
    {                                 \
        gpu_strided_run<name##_f>(p); \
    }

#endif
