/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* block.h: what the 256 threads of a block find together, in an order that
 * never changes.  shared: 256 of them, free again after the call's end. */

#ifndef GPU_BLOCK_H
#define GPU_BLOCK_H

#include "types.h"

template <class T> GPU_DEVICE T gpu_block_sum(T *shared, T x)
{
    uint32_t t = gpu_thread.x;
    T total;

    shared[t] = x;
    gpu_barrier();
    for (uint32_t half = 128; half > 0; half /= 2) {
        if (t < half)
            shared[t] += shared[t + half];
        gpu_barrier();
    }
    total = shared[0];
    gpu_barrier();
    return total;
}

/* NaN where one of them is. */
template <class T> GPU_DEVICE T gpu_block_max(T *shared, T x)
{
    uint32_t t = gpu_thread.x;
    T most;

    shared[t] = x;
    gpu_barrier();
    for (uint32_t half = 128; half > 0; half /= 2) {
        T other = t < half ? shared[t + half] : x;

        if (t < half && (other > shared[t] || other != other))
            shared[t] = other;
        gpu_barrier();
    }
    most = shared[0];
    gpu_barrier();
    return most;
}

/* The sum of those before this thread; *out_total: of all. */
template <class T> GPU_DEVICE T gpu_block_before(T *shared, T x, T *out_total)
{
    uint32_t t = gpu_thread.x;
    T mine;

    shared[t] = x;
    gpu_barrier();
    for (uint32_t by = 1; by < 256; by *= 2) {
        T other = t >= by ? shared[t - by] : (T)0;

        gpu_barrier();
        shared[t] += other;
        gpu_barrier();
    }
    mine = t > 0 ? shared[t - 1] : (T)0;
    *out_total = shared[255];
    gpu_barrier();
    return mine;
}

#endif
