/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* matrix_units.h: the matrix units of CDNA (MFMA).  The 64 lanes of a wavefront
 * add the product of 16 x 4 and 4 x 16 numbers to 16 x 16 f32 sums: lane l
 * provides left[l % 16][l / 16] and right[l / 16][l % 16], and has the four
 * sums [l / 16 * 4 + i][l % 16]. */

#ifndef GPU_MATRIX_UNITS_H
#define GPU_MATRIX_UNITS_H

#include <gpu/gpu.h>

#if defined(GPU_EMULATED)

/* The emulated device has them if its warps have 64 lanes. */
#define GPU_MATRIX_UNITS (GPU_WARP == 64)
typedef float gpu_sums __attribute__((vector_size(16)));

/* All threads of the block must call this. */
GPU_DEVICE gpu_sums gpu_add_product(float left, float right, gpu_sums sums)
{
    GPU_SHARED float lefts[256], rights[256];
    uint32_t wave = gpu_thread.x / 64 * 64, lane = gpu_thread.x % 64;

    lefts[gpu_thread.x] = left;
    rights[gpu_thread.x] = right;
    gpu_barrier();
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 4; i++)
            sums[i] = fmaf(lefts[wave + k * 16 + lane / 16 * 4 + i],
                           rights[wave + k * 16 + lane % 16], sums[i]);
    gpu_barrier();
    return sums;
}

#elif defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) || \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__)

#define GPU_MATRIX_UNITS 1
typedef float gpu_sums __attribute__((ext_vector_type(4)));

GPU_DEVICE gpu_sums gpu_add_product(float left, float right, gpu_sums sums)
{
    return __builtin_amdgcn_mfma_f32_16x16x4f32(left, right, sums, 0, 0, 0);
}

#else

#define GPU_MATRIX_UNITS 0
struct gpu_sums {
    float at[4];
    GPU_DEVICE_MEMBER float &operator[](uint32_t i)
    {
        return at[i];
    }
};

/* Never called. */
GPU_DEVICE gpu_sums gpu_add_product(float, float, gpu_sums sums)
{
    return sums;
}

#endif
#endif
