/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nvidia.c: HIP on its NVIDIA platform.  HIP's functions are inline functions
 * of its headers there.  They call CUDA's runtime, which is linked in and opens
 * the driver itself, and CUDA's driver, which is opened here and called through
 * the functions below. */

#include "api.h"

#include <cuda/api.h>

rocm_api hip;

const char *rocm_api_open(void)
{
    const char *reason = cuda_api_open();

    if (reason != NULL)
        return reason;
#define ROW(field, symbol) hip.field = symbol;
    ROCM_FUNCTIONS(ROW)
#undef ROW
    return NULL;
}

CUresult cuInit(unsigned flags)
{
    return cuda.Init(flags);
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    return cuda.DeviceGetName(name, size, device);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    return cuda.DeviceTotalMem(bytes, device);
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char x, size_t count,
                         CUstream stream)
{
    return cuda.MemsetD8Async(at, x, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr at, unsigned short x, size_t count,
                          CUstream stream)
{
    return cuda.MemsetD16Async(at, x, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr at, unsigned x, size_t count,
                          CUstream stream)
{
    return cuda.MemsetD32Async(at, x, count, stream);
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    return cuda.ModuleLoadData(out, image);
}

CUresult cuModuleUnload(CUmodule module)
{
    return cuda.ModuleUnload(module);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    return cuda.ModuleGetFunction(out, module, name);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                        unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared, CUstream stream,
                        void **parameters, void **extra)
{
    return cuda.LaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                             block_z, shared, stream, parameters, extra);
}
