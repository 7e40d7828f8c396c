/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* block.h: operations of the 256 threads of a block, or of the 32 of a team, in
 * a fixed order.  The threads of a team are adjacent in a warp, so that warps
 * of either width consist of whole teams.  `shared` may be reused after a call.
 * All threads of a block must make each call. */

#ifndef GPU_BLOCK_H
#define GPU_BLOCK_H

#include "types.h"

enum { GPU_TEAM = 32, GPU_ALL = 256 };

template <class T> struct gpu_add {
    static GPU_DEVICE_MEMBER T of(T a, T b)
    {
        return a + b;
    }
};
/* NaN if either is NaN. */
template <class T> struct gpu_maximum {
    static GPU_DEVICE_MEMBER T of(T a, T b)
    {
        return b > a || b != b ? b : a;
    }
};

/* SIDE: GPU_TEAM or GPU_ALL.  Every thread gets the result.  shared: an element
 * for each team of the block; a team alone does not use it. */
template <int SIDE, class F, class T> GPU_DEVICE T gpu_combine(T *shared, T x)
{
    T all;

    for (uint32_t by = GPU_TEAM / 2; by > 0; by /= 2)
        x = F::of(x, gpu_shuffle_xor(x, by));
    if (SIDE == GPU_TEAM)
        return x;
    if (gpu_thread.x % GPU_TEAM == 0)
        shared[gpu_thread.x / GPU_TEAM] = x;
    gpu_barrier();
    all = shared[0];
    for (uint32_t k = 1; k < GPU_ALL / GPU_TEAM; k++)
        all = F::of(all, shared[k]);
    gpu_barrier();
    return all;
}

template <class T> GPU_DEVICE T gpu_block_sum(T *shared, T x)
{
    return gpu_combine<GPU_ALL, gpu_add<T>>(shared, x);
}

/* NaN if any is NaN. */
template <class T> GPU_DEVICE T gpu_block_max(T *shared, T x)
{
    return gpu_combine<GPU_ALL, gpu_maximum<T>>(shared, x);
}

/* The sum over the threads before this one; *out_total: over all.  shared: an
 * element for each thread. */
template <class T> GPU_DEVICE T gpu_block_prefix(T *shared, T x, T *out_total)
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
