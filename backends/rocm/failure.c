/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* failure.c: what HIP's codes mean. */

#include "failure.h"

#include "api.h"

#include <gpu/host/failure.h>

static const gpu_failure_row rows[] = {
    {hipErrorOutOfMemory, CORE_ERROR_OUT_OF_MEMORY},
    {hipErrorNoBinaryForGpu, CORE_ERROR_UNSUPPORTED},
    {hipErrorInvalidImage, CORE_ERROR_UNSUPPORTED},
    {hipErrorNotSupported, CORE_ERROR_UNSUPPORTED},
    {hipErrorNotFound, CORE_ERROR_NOT_FOUND},
    {hipErrorNoDevice, CORE_ERROR_NO_DEVICE},
    {hipErrorInvalidDevice, CORE_ERROR_NO_DEVICE},
    {hipErrorDeinitialized, CORE_ERROR_DEVICE_LOST},
    {hipErrorInvalidContext, CORE_ERROR_DEVICE_LOST},
    {hipErrorECCNotCorrectable, CORE_ERROR_DEVICE_LOST},
    {hipErrorIllegalAddress, CORE_ERROR_DEVICE_LOST},
    {hipErrorLaunchTimeOut, CORE_ERROR_DEVICE_LOST},
    {hipErrorContextIsDestroyed, CORE_ERROR_DEVICE_LOST},
    {hipErrorAssert, CORE_ERROR_DEVICE_LOST},
    {hipErrorLaunchFailure, CORE_ERROR_DEVICE_LOST},
    {hipErrorUnknown, CORE_ERROR_DEVICE_LOST},
};

gpu_failure rocm_failure(int code)
{
    const char *name = NULL;

    if (hip.GetErrorName != NULL)
        name = hip.GetErrorName((hipError_t)code);
    if (code == hipErrorNoBinaryForGpu)
        name = "hipErrorNoBinaryForGpu, the kernels were built for " HIP_ARCHES;
    return gpu_failure_of(code, name, rows, sizeof rows / sizeof *rows);
}
