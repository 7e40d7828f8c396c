/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* failure.c: what the driver's codes mean. */

#include "failure.h"

#include "api.h"

#include <libcore/plugin.h>

/* Those that not every header of CUDA has. */
enum {
    CONTAINED = 226,
    TENSOR_MEMORY_LEAK = 721,
    MPS_CLIENT_TERMINATED = 810,
    EXTERNAL_DEVICE = 911
};

gpu_failure cuda_failure(int code)
{
    gpu_failure f = {CORE_ERROR_INTERNAL, 0, NULL};

    if (cuda.GetErrorName != NULL)
        cuda.GetErrorName((CUresult)code, &f.name);
    switch (code) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        f.status = CORE_ERROR_OUT_OF_MEMORY;
        break;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        f.status = CORE_ERROR_UNSUPPORTED;
        f.name = "CUDA_ERROR_NO_BINARY_FOR_GPU, the kernels here are "
                 "for " CUDA_ARCHES;
        break;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_NOT_SUPPORTED:
        f.status = CORE_ERROR_UNSUPPORTED;
        break;
    case CUDA_ERROR_NOT_FOUND:
        f.status = CORE_ERROR_NOT_FOUND;
        break;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
        f.status = CORE_ERROR_NO_DEVICE;
        break;
    /* What no later call recovers from. */
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN:
    case CONTAINED:
    case TENSOR_MEMORY_LEAK:
    case EXTERNAL_DEVICE:
    case MPS_CLIENT_TERMINATED:
        f.status = CORE_ERROR_DEVICE_LOST;
        f.lost = 1;
        break;
    default:
        break;
    }
    return f;
}
