/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* api.h: HIP's functions, found at run time. */

#ifndef ROCM_API_H
#define ROCM_API_H

#include <hip/hip_runtime_api.h>

/* X(field, symbol): the functions that both platforms have.  backends/gpu/host
 * determines the names of the fields that it uses. */
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
    X(EventCreate, hipEventCreateWithFlags)                                \
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
    X(LaunchKernel, hipModuleLaunchKernel)

/* The functions that only the AMD platform has. */
#ifdef __HIP_PLATFORM_AMD__
/* HIP 6 has a new hipDeviceProp_t; the function without a suffix fills the old
 * one. */
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

/* Returns NULL, or why there is no usable HIP; the text stays valid. */
const char *rocm_api_open(void);

#endif
