/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* api.h: the functions of CUDA's driver, found at run time.  They have the names
 * that the library exports, so that building with newer headers does not require
 * a newer driver. */

#ifndef CUDA_API_H
#define CUDA_API_H

#include <cuda.h>

/* X(field, symbol, arguments) */
#define CUDA_FUNCTIONS(X)                                                      \
    X(Init, cuInit, (unsigned))                                                \
    X(DriverGetVersion, cuDriverGetVersion, (int *))                           \
    X(GetErrorName, cuGetErrorName, (CUresult, const char **))                 \
    X(DeviceGetCount, cuDeviceGetCount, (int *))                               \
    X(DeviceGet, cuDeviceGet, (CUdevice *, int))                               \
    X(DeviceGetName, cuDeviceGetName, (char *, int, CUdevice))                 \
    X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, CUdevice))               \
    X(DeviceGetAttribute, cuDeviceGetAttribute,                                \
      (int *, CUdevice_attribute, CUdevice))                                   \
    X(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice)) \
    X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain,                        \
      (CUcontext *, CUdevice))                                                 \
    X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice))       \
    X(DevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (CUdevice))           \
    X(CtxGetCurrent, cuCtxGetCurrent, (CUcontext *))                           \
    X(CtxSetCurrent, cuCtxSetCurrent, (CUcontext))                             \
    X(CtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext))                        \
    X(CtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *))                        \
    X(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext, unsigned))       \
    X(CtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int *, int *))  \
    X(MemAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t))                        \
    X(MemFree, cuMemFree_v2, (CUdeviceptr))                                    \
    X(MemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                       \
    X(MemHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))               \
    X(MemFreeHost, cuMemFreeHost, (void *))                                    \
    X(MemHostRegister, cuMemHostRegister_v2, (void *, size_t, unsigned))       \
    X(PointerGetAttribute, cuPointerGetAttribute,                              \
      (void *, CUpointer_attribute, CUdeviceptr))                              \
    X(MemHostUnregister, cuMemHostUnregister, (void *))                        \
    X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                   \
      (CUdeviceptr, const void *, size_t, CUstream))                           \
    X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                   \
      (void *, CUdeviceptr, size_t, CUstream))                                 \
    X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                   \
      (CUdeviceptr, CUdeviceptr, size_t, CUstream))                            \
    X(MemcpyPeerAsync, cuMemcpyPeerAsync,                                      \
      (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))      \
    X(MemsetD8Async, cuMemsetD8Async,                                          \
      (CUdeviceptr, unsigned char, size_t, CUstream))                          \
    X(MemsetD16Async, cuMemsetD16Async,                                        \
      (CUdeviceptr, unsigned short, size_t, CUstream))                         \
    X(MemsetD32Async, cuMemsetD32Async,                                        \
      (CUdeviceptr, unsigned, size_t, CUstream))                               \
    X(MemGetAllocationGranularity, cuMemGetAllocationGranularity,              \
      (size_t *, const CUmemAllocationProp *,                                  \
       CUmemAllocationGranularity_flags))                                      \
    X(MemAddressReserve, cuMemAddressReserve,                                  \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))        \
    X(MemAddressFree, cuMemAddressFree, (CUdeviceptr, size_t))                 \
    X(MemCreate, cuMemCreate,                                                  \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,    \
       unsigned long long))                                                    \
    X(MemRelease, cuMemRelease, (CUmemGenericAllocationHandle))                \
    X(MemMap, cuMemMap,                                                        \
      (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,              \
       unsigned long long))                                                    \
    X(MemSetAccess, cuMemSetAccess,                                            \
      (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                  \
    X(MemUnmap, cuMemUnmap, (CUdeviceptr, size_t))                             \
    X(StreamCreateWithPriority, cuStreamCreateWithPriority,                    \
      (CUstream *, unsigned, int))                                             \
    X(StreamDestroy, cuStreamDestroy_v2, (CUstream))                           \
    X(StreamIsCapturing, cuStreamIsCapturing,                                  \
      (CUstream, CUstreamCaptureStatus *))                                     \
    X(StreamQuery, cuStreamQuery, (CUstream))                                  \
    X(StreamSynchronize, cuStreamSynchronize, (CUstream))                      \
    X(StreamWaitEvent, cuStreamWaitEvent, (CUstream, CUevent, unsigned))       \
    X(LaunchHostFunc, cuLaunchHostFunc, (CUstream, CUhostFn, void *))          \
    X(StreamWaitValue32, cuStreamWaitValue32_v2,                               \
      (CUstream, CUdeviceptr, cuuint32_t, unsigned))                           \
    X(EventCreate, cuEventCreate, (CUevent *, unsigned))                       \
    X(EventDestroy, cuEventDestroy_v2, (CUevent))                              \
    X(EventRecord, cuEventRecord, (CUevent, CUstream))                         \
    X(EventQuery, cuEventQuery, (CUevent))                                     \
    X(EventSynchronize, cuEventSynchronize, (CUevent))                         \
    X(EventElapsedTime, cuEventElapsedTime, (float *, CUevent, CUevent))       \
    X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode,      \
      (CUstreamCaptureMode *))                                                 \
    X(StreamBeginCapture, cuStreamBeginCapture_v2,                             \
      (CUstream, CUstreamCaptureMode))                                         \
    X(StreamEndCapture, cuStreamEndCapture, (CUstream, CUgraph *))             \
    X(GraphInstantiate, cuGraphInstantiateWithFlags,                           \
      (CUgraphExec *, CUgraph, unsigned long long))                            \
    X(GraphDestroy, cuGraphDestroy, (CUgraph))                                 \
    X(GraphLaunch, cuGraphLaunch, (CUgraphExec, CUstream))                     \
    X(GraphExecDestroy, cuGraphExecDestroy, (CUgraphExec))                     \
    X(ModuleLoadData, cuModuleLoadData, (CUmodule *, const void *))            \
    X(ModuleUnload, cuModuleUnload, (CUmodule))                                \
    X(ModuleGetFunction, cuModuleGetFunction,                                  \
      (CUfunction *, CUmodule, const char *))                                  \
    X(LaunchKernel, cuLaunchKernel,                                            \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
       unsigned, CUstream, void **, void **))

typedef struct cuda_api {
#define FIELD(field, symbol, arguments) CUresult(*field) arguments;
    CUDA_FUNCTIONS(FIELD)
#undef FIELD
} cuda_api;
extern cuda_api cuda;

/* Returns NULL, or why there is no usable driver; the text stays valid. */
const char *cuda_api_open(void);

#endif
