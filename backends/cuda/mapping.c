/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* mapping.c: memory mapped to address ranges.  CUDA can unmap only whole
 * mappings, while the core unmaps any part: so each granule is a mapping. */

#include "mapping.h"

#include "api.h"

#include <string.h>

#define POINTER(data) ((CUdeviceptr)(uintptr_t)(data))

static CUmemAllocationProp properties(CUdevice device)
{
    CUmemAllocationProp p;

    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

int cuda_granularity(CUdevice device, uint64_t *out_bytes)
{
    CUmemAllocationProp p = properties(device);
    size_t bytes = 0;
    int code = cuda.MemGetAllocationGranularity(
        &bytes, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);

    *out_bytes = bytes;
    return code == 0 && bytes == 0 ? CUDA_ERROR_NOT_SUPPORTED : code;
}

/* The mapping keeps the memory alive: its handle is released at once. */
static int map_step(const CUmemAllocationProp *p, CUdeviceptr at, uint64_t step)
{
    CUmemGenericAllocationHandle handle = 0;
    int code = cuda.MemCreate(&handle, step, p, 0);

    if (code != 0)
        return code;
    code = cuda.MemMap(at, step, 0, handle, 0);
    cuda.MemRelease(handle);
    return code;
}

static int unmap_steps(CUdeviceptr at, uint64_t size, uint64_t step)
{
    int code = 0;

    for (uint64_t done = 0; done < size; done += step) {
        int one = cuda.MemUnmap(at + done, step);

        code = code != 0 ? code : one;
    }
    return code;
}

int cuda_map(CUdevice device, void *data, uint64_t size)
{
    CUmemAllocationProp p = properties(device);
    CUmemAccessDesc access;
    uint64_t step, done = 0;
    int code = cuda_granularity(device, &step);

    memset(&access, 0, sizeof access);
    access.location = p.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    while (code == 0 && done < size) {
        code = map_step(&p, POINTER(data) + done, step);
        done += code == 0 ? step : 0;
    }
    if (code == 0)
        code = cuda.MemSetAccess(POINTER(data), size, &access, 1);
    if (code != 0)
        (void)unmap_steps(POINTER(data), done, step);
    return code;
}

int cuda_unmap(CUdevice device, void *data, uint64_t size)
{
    uint64_t step;
    int code = cuda_granularity(device, &step);

    return code != 0 ? code : unmap_steps(POINTER(data), size, step);
}
