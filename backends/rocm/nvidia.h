/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nvidia.h: included first when the sources are built as HIP on its NVIDIA
 * platform.  HIP's headers there are written for an older CUDA: this restores
 * what CUDA 13 changed, and adds what the headers lack. */

#ifndef ROCM_NVIDIA_H
#define ROCM_NVIDIA_H

#include <cuda.h>
#include <cuda_runtime.h>

#if CUDA_VERSION >= 13000

/* Members that HIP copies; their value is 0. */
#define CORE_OLD_MEMBERS              \
    int clockRate;                    \
    int memoryClockRate;              \
    int computeMode;                  \
    int cooperativeMultiDeviceLaunch; \
    int kernelExecTimeoutEnabled;
#ifdef __cplusplus
struct core_old_prop : cudaDeviceProp {
    CORE_OLD_MEMBERS
};
#else
struct core_old_prop {
    struct cudaDeviceProp; /* with -fms-extensions */
    CORE_OLD_MEMBERS
};
#endif

static inline cudaError_t core_old_properties(struct core_old_prop *prop,
                                              int device)
{
    return cudaGetDeviceProperties((struct cudaDeviceProp *)prop, device);
}

static inline struct cudaMemLocation core_old_location(int device)
{
    struct cudaMemLocation location;

    location.type =
        device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    location.id = device < 0 ? 0 : device;
    return location;
}

static inline cudaError_t core_old_choose(int *device,
                                          const struct core_old_prop *prop)
{
    return cudaChooseDevice(device, (const struct cudaDeviceProp *)prop);
}

#define cudaDeviceProp core_old_prop
#undef cudaGetDeviceProperties
#define cudaGetDeviceProperties core_old_properties
#define cudaChooseDevice core_old_choose
#define cudaMemAdvise(at, size, advice, device) \
    (cudaMemAdvise)(at, size, advice, core_old_location(device))
#define cudaMemPrefetchAsync(at, size, device, stream) \
    (cudaMemPrefetchAsync)(at, size, core_old_location(device), 0, stream)
#define cudaDevAttrCooperativeMultiDeviceLaunch cudaDevAttrCooperativeLaunch
#undef cuCtxCreate
#define cuCtxCreate(out, flags, device) cuCtxCreate_v4(out, NULL, flags, device)
#define cudaGraphAddDependencies(graph, from, to, count) \
    (cudaGraphAddDependencies)(graph, from, to, NULL, count)
#define cudaGraphRemoveDependencies(graph, from, to, count) \
    (cudaGraphRemoveDependencies)(graph, from, to, NULL, count)
#define cudaGraphGetEdges(graph, from, to, count) \
    (cudaGraphGetEdges)(graph, from, to, NULL, count)
#define cudaGraphNodeGetDependencies(node, to, count) \
    (cudaGraphNodeGetDependencies)(node, to, NULL, count)
#define cudaGraphNodeGetDependentNodes(node, to, count) \
    (cudaGraphNodeGetDependentNodes)(node, to, NULL, count)
#define cudaStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count) \
    (cudaStreamGetCaptureInfo)(stream, status, id, graph, nodes, NULL, count)
#define cudaStreamUpdateCaptureDependencies(stream, nodes, count, flags) \
    (cudaStreamUpdateCaptureDependencies)(stream, nodes, NULL, count, flags)

#endif

/* Texture references, which CUDA has removed; they are not used here. */
#if defined(__CUDACC__) && CUDA_VERSION >= 12000
template <class T, int dim = 1,
          enum cudaTextureReadMode mode = cudaReadModeElementType>
struct texture {
};
struct textureReference;
#define CORE_GONE(name)                                               \
    template <class... Any> static inline cudaError_t name(Any &&...) \
    {                                                                 \
        return cudaErrorNotSupported;                                 \
    }
CORE_GONE(cudaBindTexture)
CORE_GONE(cudaBindTexture2D)
CORE_GONE(cudaBindTextureToArray)
CORE_GONE(cudaBindTextureToMipmappedArray)
CORE_GONE(cudaUnbindTexture)
CORE_GONE(cudaGetTextureAlignmentOffset)
CORE_GONE(cudaGetTextureReference)
CORE_GONE(cudaLaunchCooperativeKernelMultiDevice)
#undef CORE_GONE
#endif

#include <hip/hip_runtime_api.h>

/* HIP's headers declare graphs only for the sources of kernels. */
#ifndef __CUDACC__
typedef cudaGraph_t hipGraph_t;
typedef cudaGraphExec_t hipGraphExec_t;
#define hipStreamCaptureModeThreadLocal cudaStreamCaptureModeThreadLocal

static inline hipError_t hipStreamBeginCapture(hipStream_t stream,
                                               enum cudaStreamCaptureMode mode)
{
    return hipCUDAErrorTohipError(cudaStreamBeginCapture(stream, mode));
}

static inline hipError_t hipStreamEndCapture(hipStream_t stream,
                                             hipGraph_t *graph)
{
    return hipCUDAErrorTohipError(cudaStreamEndCapture(stream, graph));
}

static inline hipError_t hipThreadExchangeStreamCaptureMode(
    enum cudaStreamCaptureMode *mode)
{
    return hipCUDAErrorTohipError(cudaThreadExchangeStreamCaptureMode(mode));
}

static inline hipError_t hipStreamIsCapturing(hipStream_t stream,
                                              hipStreamCaptureStatus *status)
{
    return hipCUDAErrorTohipError(cudaStreamIsCapturing(stream, status));
}

static inline hipError_t hipGraphInstantiate(hipGraphExec_t *out,
                                             hipGraph_t graph, void *node,
                                             char *log, size_t size)
{
    (void)node;
    (void)log;
    (void)size;
    return hipCUDAErrorTohipError(cudaGraphInstantiate(out, graph, 0));
}

static inline hipError_t hipGraphDestroy(hipGraph_t graph)
{
    return hipCUDAErrorTohipError(cudaGraphDestroy(graph));
}

static inline hipError_t hipGraphLaunch(hipGraphExec_t graph,
                                        hipStream_t stream)
{
    return hipCUDAErrorTohipError(cudaGraphLaunch(graph, stream));
}

static inline hipError_t hipGraphExecDestroy(hipGraphExec_t graph)
{
    return hipCUDAErrorTohipError(cudaGraphExecDestroy(graph));
}
#endif

#endif
