/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu.h: the language that kernels are written in; only this file maps names to
 * the vendors' languages.  Three compilers read it: CUDA's, HIP's, and the
 * host's C++ compiler (GPU_EMULATED), which compiles the same kernels for the
 * tests.
 *
 *     GPU_KERNEL(scale_f32, gpu_scale)      a kernel of independent threads
 *     {
 *         for (uint64_t i = gpu_first(); i < p.count; i += gpu_step())
 *             p.to[i] = p.from[i] * p.factor;
 *     }
 *
 * A kernel has one parameter, `p`, a struct that its host side shares (see
 * shared.h).  It is found in its image by its plain name.  A kernel whose
 * threads synchronise (gpu_barrier, gpu_shuffle_…) is a GPU_KERNEL_COOPERATIVE:
 * every thread of the block must reach every barrier and shuffle, so there is
 * no early return.  A GPU_KERNEL_RESIDENT is cooperative too, and limits its
 * registers so that a multiprocessor can run the given number of blocks at a
 * time.  A GPU_KERNEL_OF is cooperative and has blocks of the given number of
 * threads instead of 256. */

#ifndef GPU_GPU_H
#define GPU_GPU_H

#include <stdint.h>

#if defined(GPU_EMULATED)

#include <math.h>
#include <string.h>

#include <gpu/emulated/emulate.h>

#else

#if defined(__HIP__) || defined(__HIP_PLATFORM_NVIDIA__) || \
    defined(__HIP_PLATFORM_NVCC__)
#include <hip/hip_runtime.h>
#endif

#define GPU_DEVICE static __device__ __forceinline__
#define GPU_DEVICE_MEMBER __device__ __forceinline__
#define GPU_NOINLINE __device__ __noinline__
#define GPU_CONSTANT static __device__ const
#define GPU_KERNEL(name, parameters) \
    extern "C" __global__ void __launch_bounds__(256) name(const parameters p)
#define GPU_KERNEL_COOPERATIVE(name, parameters) GPU_KERNEL(name, parameters)
#define GPU_KERNEL_OF(name, parameters, threads)          \
    extern "C" __global__ void __launch_bounds__(threads) \
        name(const parameters p)
#define GPU_KERNEL_RESIDENT(name, parameters, blocks)         \
    extern "C" __global__ void __launch_bounds__(256, blocks) \
        name(const parameters p)

/* Shared memory of a block.  GPU_DYNAMIC: as many bytes as the launch set. */
#define GPU_SHARED __shared__
#define GPU_DYNAMIC(type, name)                                  \
    extern __shared__ __align__(16) unsigned char gpu_dynamic[]; \
    type *name = (type *)gpu_dynamic

#define gpu_thread threadIdx
#define gpu_block blockIdx
#define gpu_block_size blockDim
#define gpu_grid gridDim
#define gpu_barrier() __syncthreads()
/* Everyone, including the host, sees what this thread has written so far before
 * what it writes afterwards. */
#define gpu_fence_system() __threadfence_system()
/* Access, by a pointer to volatile, to a number that several threads may read
 * and write at a time. */
#define gpu_volatile_load(at) (*(at))
#define gpu_volatile_store(at, x) (*(at) = (x))

#if defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_HCC__)

/* 64 or 32 lanes, depending on the architecture.  Newer compilers have no
 * constant for it. */
#if defined(__AMDGCN_WAVEFRONT_SIZE)
#define GPU_WARP ((uint32_t)__AMDGCN_WAVEFRONT_SIZE)
#elif defined(__GFX9__)
#define GPU_WARP 64u
#else
#define GPU_WARP 32u
#endif
#define gpu_shuffle_down(x, by) __shfl_down(x, by)
#define gpu_shuffle_xor(x, by) __shfl_xor(x, by)
#define gpu_shuffle(x, lane) __shfl(x, lane)
#define gpu_ballot(x) ((uint64_t)__ballot(x))

#else

#define GPU_WARP 32u
#define gpu_shuffle_down(x, by) __shfl_down_sync(0xffffffffu, x, by)
#define gpu_shuffle_xor(x, by) __shfl_xor_sync(0xffffffffu, x, by)
#define gpu_shuffle(x, lane) __shfl_sync(0xffffffffu, x, lane)
#define gpu_ballot(x) ((uint64_t)__ballot_sync(0xffffffffu, x))

#endif

#define gpu_atomic_add(to, x) atomicAdd(to, x)
#define gpu_atomic_max(to, x) atomicMax(to, x)
#define gpu_atomic_min(to, x) atomicMin(to, x)
#define gpu_atomic_cas(to, expected, x) atomicCAS(to, expected, x)

#endif

#include <gpu/shared.h>

/* The index of this thread in a launch of one dimension, and the number of
 * threads. */
GPU_DEVICE uint64_t gpu_first(void)
{
    return (uint64_t)gpu_block.x * gpu_block_size.x + gpu_thread.x;
}

GPU_DEVICE uint64_t gpu_step(void)
{
    return (uint64_t)gpu_grid.x * gpu_block_size.x;
}

/* Reports bad data in the stream's error record, unless that already holds an
 * error; the kernel continues.  The record is in host memory.  Any thread of
 * the first kernel that fails may be the one that is reported. */
GPU_DEVICE void gpu_fail(gpu_error *error, int32_t code, int64_t call,
                         int64_t index)
{
    volatile gpu_error *to = error;

    if (to == 0 || gpu_volatile_load(&to->code) != 0)
        return;
    gpu_volatile_store(&to->call, call);
    gpu_volatile_store(&to->index, index);
    gpu_fence_system(); /* a code means that the rest is complete */
    gpu_volatile_store(&to->code, code);
}

#endif
