/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_rows.h: the kernels of loop programs with reductions, around a struct
 * that host/loop_rows.c writes for each program:
 *
 *     struct gpu_loop {
 *         enum { OPERANDS };
 *         static const uint32_t ELEMENTS, ROWS;  one bit per operand in memory:
 *                               of elements of rows, and of whole rows
 *         template <int SIDE> row(q, row, size, failed)
 *                               computes a row with SIDE threads; the size is 0
 *                               after the last row: nothing is written
 *     }; */

#ifndef GPU_LOOP_ROWS_H
#define GPU_LOOP_ROWS_H

#include "block.h"

enum { GPU_ALONE = 1 };

template <class T> struct gpu_minimum {
    static GPU_DEVICE_MEMBER T of(T a, T b)
    {
        return b < a || b != b ? b : a;
    }
};

/* gpu_combine, also for a thread alone. */
template <int SIDE, class F, class T> struct gpu_loop_combined {
    static GPU_DEVICE_MEMBER T of(T *shared, T x)
    {
        return gpu_combine<SIDE, F>(shared, x);
    }
};
template <class F, class T> struct gpu_loop_combined<GPU_ALONE, F, T> {
    static GPU_DEVICE_MEMBER T of(T *, T x)
    {
        return x;
    }
};

/* The indices of a row, and its offset in each operand. */
template <class L>
GPU_DEVICE void gpu_loop_row(const gpu_loop_rows &q, uint64_t row,
                             int64_t *index, int64_t *base)
{
    uint64_t rest = row;

#pragma unroll
    for (int k = 0; k < L::OPERANDS; k++)
        base[k] = 0;
#pragma unroll
    for (uint32_t d = 0; d < GPU_DIMS; d++) {
        bool kept = d >= q.nreduced && d < q.loop.ndim;

        index[d] = kept ? gpu_loop_index(q.loop, d, &rest) : 0;
#pragma unroll
        for (int k = 0; k < L::OPERANDS; k++)
            if ((L::ELEMENTS | L::ROWS) >> k & 1)
                base[k] += index[d] * q.loop.strides[k][d];
    }
}

/* Those of an element of the row. */
template <class L>
GPU_DEVICE void gpu_loop_row_element(const gpu_loop_rows &q, uint64_t element,
                                     const int64_t *base, int64_t *index,
                                     int64_t *offset)
{
    uint64_t rest = element;

    if (q.nreduced == 1) {
        index[0] = (int64_t)element;
#pragma unroll
        for (int k = 0; k < L::OPERANDS; k++)
            if (L::ELEMENTS >> k & 1)
                offset[k] = base[k] + (int64_t)element * q.loop.strides[k][0];
        return;
    }
#pragma unroll
    for (int k = 0; k < L::OPERANDS; k++)
        offset[k] = base[k];
#pragma unroll
    for (uint32_t d = 0; d < GPU_DIMS; d++) {
        if (d >= q.nreduced)
            continue;
        index[d] = gpu_loop_index(q.loop, d, &rest);
#pragma unroll
        for (int k = 0; k < L::OPERANDS; k++)
            if (L::ELEMENTS >> k & 1)
                offset[k] += index[d] * q.loop.strides[k][d];
    }
}

/* After the last row, threads compute the first one of their block again, so
 * that all of them reach its barriers. */
template <class L, int SIDE>
GPU_DEVICE void gpu_loop_rows_run(const gpu_loop_rows &q)
{
    const uint64_t rows = GPU_ALL / SIDE;
    int failed = 0;

    for (uint64_t first = gpu_block.x * rows; first < q.rows;
         first += gpu_grid.x * rows) {
        uint64_t row = first + gpu_thread.x / SIDE;
        bool is_one = row < q.rows;
        int bad = 0;

        L::template row<SIDE>(q, is_one ? row : first, is_one ? q.size : 0,
                              &bad);
        if (is_one)
            failed |= bad;
    }
    if (failed)
        gpu_fail(q.loop.error, GPU_BAD_ARGUMENT, q.loop.call, 0);
}

#define GPU_LOOP_ROWS(name, L)                      \
    GPU_KERNEL(name##_l, gpu_loop_rows)             \
    {                                               \
        gpu_loop_rows_run<L, GPU_ALONE>(p);         \
    }                                               \
    GPU_KERNEL_COOPERATIVE(name##_t, gpu_loop_rows) \
    {                                               \
        gpu_loop_rows_run<L, GPU_TEAM>(p);          \
    }                                               \
    GPU_KERNEL_COOPERATIVE(name##_b, gpu_loop_rows) \
    {                                               \
        gpu_loop_rows_run<L, GPU_ALL>(p);           \
    }

#endif
