/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* api.h: HIP's functions, found when they are first wanted. */

#ifndef ROCM_API_H
#define ROCM_API_H

#include <hip/hip_runtime_api.h>

/* X(field, symbol): those that every HIP has. */
#define ROCM_FUNCTIONS(X)                                                  \
    X(Init, hipInit)                                                       \
    X(DriverGetVersion, hipDriverGetVersion)                               \
    X(GetErrorName, hipGetErrorName)                                       \
    X(GetDeviceCount, hipGetDeviceCount)                                   \
    X(GetDevice, hipGetDevice)                                             \
    X(SetDevice, hipSetDevice)                                             \
    X(DeviceGetName, hipDeviceGetName)                                     \
    X(DeviceTotalMem, hipDeviceTotalMem)                                   \
    X(DeviceGetAttribute, hipDeviceGetAttribute)                           \
    X(DeviceGetPCIBusId, hipDeviceGetPCIBusId)                             \
    X(DeviceCanAccessPeer, hipDeviceCanAccessPeer)                         \
    X(DeviceEnablePeerAccess, hipDeviceEnablePeerAccess)                   \
    X(DeviceReset, hipDeviceReset)                                         \
    X(DeviceGetStreamPriorityRange, hipDeviceGetStreamPriorityRange)       \
    X(Malloc, hipMalloc)                                                   \
    X(Free, hipFree)                                                       \
    X(MemGetInfo, hipMemGetInfo)                                           \
    X(HostMalloc, hipHostMalloc)                                           \
    X(HostFree, hipHostFree)                                               \
    X(HostRegister, hipHostRegister)                                       \
    X(HostUnregister, hipHostUnregister)                                   \
    X(MemcpyAsync, hipMemcpyAsync)                                         \
    X(MemcpyPeerAsync, hipMemcpyPeerAsync)                                 \
    X(MemsetD8Async, hipMemsetD8Async)                                     \
    X(MemsetD16Async, hipMemsetD16Async)                                   \
    X(MemsetD32Async, hipMemsetD32Async)                                   \
    X(StreamCreateWithPriority, hipStreamCreateWithPriority)               \
    X(StreamDestroy, hipStreamDestroy)                                     \
    X(StreamQuery, hipStreamQuery)                                         \
    X(StreamIsCapturing, hipStreamIsCapturing)                             \
    X(StreamSynchronize, hipStreamSynchronize)                             \
    X(StreamWaitEvent, hipStreamWaitEvent)                                 \
    X(StreamAddCallback, hipStreamAddCallback)                             \
    X(EventCreateWithFlags, hipEventCreateWithFlags)                       \
    X(EventDestroy, hipEventDestroy)                                       \
    X(EventRecord, hipEventRecord)                                         \
    X(EventQuery, hipEventQuery)                                           \
    X(EventSynchronize, hipEventSynchronize)                               \
    X(EventElapsedTime, hipEventElapsedTime)                               \
    X(ThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode) \
    X(StreamBeginCapture, hipStreamBeginCapture)                           \
    X(StreamEndCapture, hipStreamEndCapture)                               \
    X(GraphInstantiate, hipGraphInstantiate)                               \
    X(GraphDestroy, hipGraphDestroy)                                       \
    X(GraphLaunch, hipGraphLaunch)                                         \
    X(GraphExecDestroy, hipGraphExecDestroy)                               \
    X(ModuleLoadData, hipModuleLoadData)                                   \
    X(ModuleUnload, hipModuleUnload)                                       \
    X(ModuleGetFunction, hipModuleGetFunction)                             \
    X(ModuleLaunchKernel, hipModuleLaunchKernel)

/* And those of AMD's alone. */
#ifdef __HIP_PLATFORM_AMD__
/* HIP 6 has another hipDeviceProp_t, and gives the plain name to the old one. */
#if HIP_VERSION_MAJOR >= 6
#define ROCM_PROPERTIES(X) X(GetDeviceProperties, hipGetDevicePropertiesR0600)
#else
#define ROCM_PROPERTIES(X) X(GetDeviceProperties, hipGetDeviceProperties)
#endif
#define ROCM_OWN_FUNCTIONS(X)                  \
    ROCM_PROPERTIES(X)                         \
    X(StreamWaitValue32, hipStreamWaitValue32) \
    X(ExtMallocWithFlags, hipExtMallocWithFlags)
#else
#define ROCM_OWN_FUNCTIONS(X)
#endif

typedef struct rocm_api {
#define FIELD(field, symbol) __typeof__(&symbol) field;
    ROCM_FUNCTIONS(FIELD)
    ROCM_OWN_FUNCTIONS(FIELD)
#undef FIELD
} rocm_api;
extern rocm_api hip;

/* NULL, or why there is no HIP, in text that stays. */
const char *rocm_api_open(void);

/* Between them this thread's calls are taken as safe beside what other libraries
 * capture, in other threads too, as they are: nothing that they wait for, take or
 * load is a part of it.  Otherwise HIP refuses them, and spoils the capture. */
static inline hipStreamCaptureMode rocm_relax(void)
{
    hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;

    (void)hip.ThreadExchangeStreamCaptureMode(&mode);
    return mode;
}
static inline int rocm_relaxed(hipStreamCaptureMode before, int code)
{
    (void)hip.ThreadExchangeStreamCaptureMode(&before);
    return code;
}

#endif
