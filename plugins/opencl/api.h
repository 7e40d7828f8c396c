/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* api.h: OpenCL's functions, resolved at run time.  The plugin is not linked
 * with an OpenCL library, so on machines without one it loads and reports why
 * it has no device. */

#ifndef OPENCL_API_H
#define OPENCL_API_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <libcore/sdk.h>

#define OPENCL_FUNCTIONS(X)       \
    X(GetPlatformIDs)             \
    X(GetPlatformInfo)            \
    X(GetDeviceIDs)               \
    X(GetDeviceInfo)              \
    X(CreateContext)              \
    X(ReleaseContext)             \
    X(CreateCommandQueue)         \
    X(RetainCommandQueue)         \
    X(ReleaseCommandQueue)        \
    X(GetCommandQueueInfo)        \
    X(CreateBuffer)               \
    X(RetainMemObject)            \
    X(ReleaseMemObject)           \
    X(CreateProgramWithSource)    \
    X(CreateProgramWithBinary)    \
    X(BuildProgram)               \
    X(GetProgramInfo)             \
    X(GetProgramBuildInfo)        \
    X(ReleaseProgram)             \
    X(CreateKernel)               \
    X(ReleaseKernel)              \
    X(SetKernelArg)               \
    X(EnqueueNDRangeKernel)       \
    X(EnqueueReadBuffer)          \
    X(EnqueueWriteBuffer)         \
    X(EnqueueCopyBuffer)          \
    X(EnqueueFillBuffer)          \
    X(EnqueueMapBuffer)           \
    X(EnqueueMarkerWithWaitList)  \
    X(EnqueueBarrierWithWaitList) \
    X(CreateUserEvent)            \
    X(SetUserEventStatus)         \
    X(SetEventCallback)           \
    X(GetEventInfo)               \
    X(GetEventProfilingInfo)      \
    X(WaitForEvents)              \
    X(RetainEvent)                \
    X(ReleaseEvent)               \
    X(Flush)                      \
    X(Finish)

typedef struct opencl_api {
#define X(name) __typeof__(cl##name) *name;
    OPENCL_FUNCTIONS(X)
#undef X
} opencl_api;

extern opencl_api cl;

/* Returns NULL if all functions were found, else the reason, as static text. */
const char *opencl_api_open(void);

/* Returns "CL_OUT_OF_RESOURCES" and so on, or NULL for an unknown code. */
const char *opencl_code_name(cl_int code);

#endif
