/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop.h: the kernels of loop programs (libcore/codegen.h), around a struct that
 * host/loop_source.c writes for each program:
 *
 *     struct gpu_loop {
 *         enum { OPERANDS, VECTOR };
 *         static const uint32_t NUMBERS;         one bit per operand
 *         struct elements { float e0; gpu_f16 e1; … };    of those in memory
 *         struct vectors { gpu_vector<float, VECTOR> e0; … };
 *         load, load_at, load_vectors            from memory: inputs
 *         store, store_at, store_vectors         to memory: outputs
 *         take, put                              element k of vectors
 *         run                                    computes outputs from inputs
 *     };
 *
 * A value has the type that its elements have in memory, so that moving one
 * keeps its bits; operators compute as their own kernels do (gpu_load,
 * gpu_store). */

#ifndef GPU_LOOP_H
#define GPU_LOOP_H

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#include "without_c_library.h"
#endif

#include "conversions.h"

#include <gpu/shared_loop.h>

#include <expressions/philox.h>

/* The element whose bits these are. */
template <class M> GPU_DEVICE M gpu_of_bits(uint64_t bits)
{
    M value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --------------------------------------------------------------- kernels -- */

template <class L> GPU_DEVICE void gpu_loop_dense_run(const gpu_loop_dense &p)
{
    uint64_t i = gpu_first(), step = gpu_step();
    typename L::elements one;
    typename L::vectors some;
    int failed = 0;

    if (p.vectors) {
        for (; i < p.count / L::VECTOR; i += step) {
            L::load_vectors(some, p, i);
#pragma unroll
            for (int k = 0; k < L::VECTOR; k++) {
                L::take(one, some, k);
                L::run(one, p, i * L::VECTOR + (uint64_t)k, 0, 0, &failed);
                L::put(some, one, k);
            }
            L::store_vectors(some, p, i);
        }
        i = p.count / L::VECTOR * L::VECTOR + gpu_first();
    }
    for (; i < p.count; i += step) {
        L::load(one, p, i);
        L::run(one, p, i, 0, 0, &failed);
        L::store(one, p, i);
    }
    if (failed)
        gpu_fail(p.error, GPU_BAD_ARGUMENT, p.call, 0);
}

/* *rest / the size of dimension d; *rest is that, and the result the
 * remainder. */
GPU_DEVICE int64_t gpu_loop_index(const gpu_loop_strided &p, uint32_t d,
                                  uint64_t *rest)
{
    uint64_t next, size = (uint64_t)p.wide_sizes[d], before = *rest;

    if (p.count < UINT64_C(1) << 31) {
        uint32_t short_next = gpu_divide((uint32_t)before, p.sizes[d]);

        *rest = short_next;
        return (uint32_t)before - short_next * p.sizes[d].value;
    }
    next = before / size;
    *rest = next;
    return (int64_t)(before - next * size);
}

template <class L>
GPU_DEVICE void gpu_loop_strided_run(const gpu_loop_strided &p)
{
    int64_t index[GPU_DIMS], offset[L::OPERANDS];
    typename L::elements one;
    int failed = 0;

    for (uint64_t i = gpu_first(); i < p.count; i += gpu_step()) {
        uint64_t rest = i;

#pragma unroll
        for (int k = 0; k < L::OPERANDS; k++)
            offset[k] = 0;
#pragma unroll
        for (uint32_t d = 0; d < GPU_DIMS; d++) {
            index[d] = d < p.ndim ? gpu_loop_index(p, d, &rest) : 0;
#pragma unroll
            for (int k = 0; k < L::OPERANDS; k++)
                if (!(L::NUMBERS >> k & 1))
                    offset[k] += index[d] * p.strides[k][d];
        }
        L::load_at(one, p, offset);
        L::run(one, p, i, index, p.wide_sizes, &failed);
        L::store_at(one, p, offset);
    }
    if (failed)
        gpu_fail(p.error, GPU_BAD_ARGUMENT, p.call, 0);
}

#include "loop_rows.h"

#endif
