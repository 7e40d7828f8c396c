/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elementwise.h: the two kernels of every element-wise operator, around a
 * struct that gen_kernels.py writes:
 *
 *     struct F {
 *         typedef … T, M0, M1, M2, M3;   what is computed with; in memory
 *         enum { INPUTS };
 *         static M0's compute type run(a, b, c, const gpu_parameters *q,
 *                                      int *bad);
 *     };
 */

#ifndef GPU_ELEMENTWISE_H
#define GPU_ELEMENTWISE_H

#include "types.h"

/* So many elements that the widest has 16 bytes, in one load each. */
template <class M, int N> struct alignas(sizeof(M) * N) gpu_vector {
    M at[N];
};

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

template <class A, class B> struct gpu_larger {
    enum { value = sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B) };
};

template <class F> GPU_DEVICE void gpu_dense_run(const gpu_dense &p)
{
    enum {
        LARGEST = gpu_larger<typename F::M0, typename F::M1>::value,
        N = 16 / LARGEST > 8 ? 8 : 16 / LARGEST
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

template <class F> GPU_DEVICE void gpu_strided_run(const gpu_strided &p)
{
    typedef typename F::M2 M2;
    typedef typename F::M3 M3;
    uint32_t step = (uint32_t)gpu_step();
    int bad = 0;

    for (uint32_t i = (uint32_t)gpu_first(); i < p.count; i += step) {
        int64_t offset[4] = {0, 0, 0, 0};
        typename gpu_type<M2>::compute b = {};
        typename gpu_type<M3>::compute c = {};
        uint32_t rest = i;

        for (uint32_t d = 0; d < p.ndim; d++) {
            uint32_t next = gpu_divide(rest, p.sizes[d]);
            uint32_t at = rest - next * p.sizes[d].value;

            rest = next;
            offset[0] += at * p.strides[0][d];
            offset[1] += at * p.strides[1][d];
            if (F::INPUTS > 1)
                offset[2] += at * p.strides[2][d];
            if (F::INPUTS > 2)
                offset[3] += at * p.strides[3][d];
        }
        if (F::INPUTS > 1)
            b = gpu_strided_at<M2>(p, 2, offset[2]);
        if (F::INPUTS > 2)
            c = gpu_strided_at<M3>(p, 3, offset[3]);
        gpu_store(*(typename F::M0 *)((char *)p.data[0] + offset[0]),
                  F::run(gpu_strided_at<typename F::M1>(p, 1, offset[1]), b, c,
                         &p.q, &bad));
    }
    if (bad)
        gpu_fail(p.error, GPU_BAD_ARGUMENT, p.call, 0);
}

/* The kernels name_d and name_s. */
#define GPU_ELEMENTWISE(name)         \
    GPU_KERNEL(name##_d, gpu_dense)   \
    {                                 \
        gpu_dense_run<name##_f>(p);   \
    }                                 \
    GPU_KERNEL(name##_s, gpu_strided) \
    {                                 \
        gpu_strided_run<name##_f>(p); \
    }

#endif
