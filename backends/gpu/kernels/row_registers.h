/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* row_registers.h: a row kept in the registers of SIDE threads,
 * GPU_ROW_REGISTERS elements each, so that memory is read once.  N adjacent
 * elements are one load: if N is not 1, it divides the size of the row, and
 * rows start at multiples of 16 bytes. */

#ifndef GPU_ROW_REGISTERS_H
#define GPU_ROW_REGISTERS_H

#include "block.h"

#include <gpu/shared.h>

/* Blocks per multiprocessor of 65536 registers, for kernels that keep one row
 * or two: enough rows are in flight to keep memory busy. */
#define GPU_ONE_ROW(T) (sizeof(T) == 8 ? 1 : 3)
#define GPU_TWO_ROWS(T) (sizeof(T) == 8 ? 1 : 2)

template <class T, int SIDE, int N> struct gpu_row_registers {
    enum { GROUPS = GPU_ROW_REGISTERS / N };
    T x[GPU_ROW_REGISTERS];

    /* The index in the row of the thread's group v. */
    static GPU_DEVICE_MEMBER int32_t index_of(int v)
    {
        return (v * SIDE + (int32_t)(gpu_thread.x % SIDE)) * N;
    }

    /* Calls f(k, i) for each element that exists: x[k], element i of the
     * row. */
    template <class F> static GPU_DEVICE_MEMBER void each(int32_t size, F f)
    {
#pragma unroll
        for (int v = 0; v < GROUPS; v++)
            if (index_of(v) < size) {
#pragma unroll
                for (int k = 0; k < N; k++)
                    f(v * N + k, index_of(v) + k);
            }
    }

    /* Issues all loads before the first result is used. */
    template <class M> GPU_DEVICE_MEMBER void load(const M *from, int32_t size)
    {
        gpu_vector<M, N> some[GROUPS];

#pragma unroll
        for (int v = 0; v < GROUPS; v++)
            if (index_of(v) < size)
                some[v] = *(const gpu_vector<M, N> *)(from + index_of(v));
#pragma unroll
        for (int v = 0; v < GROUPS; v++)
            if (index_of(v) < size) {
#pragma unroll
                for (int k = 0; k < N; k++)
                    x[v * N + k] = (T)gpu_load(some[v].at[k]);
            }
    }

    /* Calls f(x[k], y) with elements y that all rows share.  They are loaded a
     * group at a time: they are in a cache, and would need as many registers
     * again. */
    template <class M, class F>
    GPU_DEVICE_MEMBER void with(const M *other, int v, F f)
    {
        gpu_vector<M, N> some =
            *(const gpu_vector<M, N> *)(other + index_of(v));

#pragma unroll
        for (int k = 0; k < N; k++)
            f(x[v * N + k], (T)gpu_load(some.at[k]));
    }

    /* Calls f(v) before group v is stored. */
    template <class M, class F>
    GPU_DEVICE_MEMBER void store(M *to, int32_t size, F f) const
    {
        typedef typename gpu_type<M>::compute C;

#pragma unroll
        for (int v = 0; v < GROUPS; v++)
            if (index_of(v) < size) {
                gpu_vector<M, N> some;

                f(v);
#pragma unroll
                for (int k = 0; k < N; k++)
                    gpu_store(some.at[k], (C)x[v * N + k]);
                *(gpu_vector<M, N> *)(to + index_of(v)) = some;
            }
    }
    template <class M> GPU_DEVICE_MEMBER void store(M *to, int32_t size) const
    {
        store(to, size, [](int) {});
    }
};

/* Calls f(row, size) for the rows of a launch, one per SIDE threads.  After the
 * last row, size is 0, so that all threads of a block reach its barriers. */
template <int SIDE, class F>
GPU_DEVICE void gpu_for_each_row(int64_t rows, int64_t size, F f)
{
    enum { ROWS = GPU_ALL / SIDE };

    for (int64_t first = (int64_t)gpu_block.x * ROWS; first < rows;
         first += (int64_t)gpu_grid.x * ROWS) {
        int64_t row = first + gpu_thread.x / SIDE;

        f(row < rows ? row : first, row < rows ? (int32_t)size : 0);
    }
}

#endif
