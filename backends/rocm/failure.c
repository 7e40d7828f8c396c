/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* failure.c: what HIP's codes mean. */

#include "failure.h"

#include "api.h"

#include <libcore/plugin.h>

gpu_failure rocm_failure(int code)
{
    gpu_failure f = {CORE_ERROR_INTERNAL, 0, NULL};

    if (hip.GetErrorName != NULL)
        f.name = hip.GetErrorName((hipError_t)code);
    switch (code) {
    case hipErrorOutOfMemory:
        f.status = CORE_ERROR_OUT_OF_MEMORY;
        break;
    case hipErrorNoBinaryForGpu:
        f.status = CORE_ERROR_UNSUPPORTED;
        f.name = "hipErrorNoBinaryForGpu, the kernels here are for " HIP_ARCHES;
        break;
    case hipErrorInvalidImage:
    case hipErrorNotSupported:
        f.status = CORE_ERROR_UNSUPPORTED;
        break;
    case hipErrorNotFound:
        f.status = CORE_ERROR_NOT_FOUND;
        break;
    case hipErrorNoDevice:
    case hipErrorInvalidDevice:
        f.status = CORE_ERROR_NO_DEVICE;
        break;
    /* What no later call recovers from. */
    case hipErrorDeinitialized:
    case hipErrorInvalidContext:
    case hipErrorECCNotCorrectable:
    case hipErrorIllegalAddress:
    case hipErrorLaunchTimeOut:
    case hipErrorContextIsDestroyed:
    case hipErrorAssert:
    case hipErrorLaunchFailure:
    case hipErrorUnknown:
        f.status = CORE_ERROR_DEVICE_LOST;
        f.lost = 1;
        break;
    default:
        break;
    }
    return f;
}
