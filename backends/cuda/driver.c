/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver.c: the gpu_driver of CUDA.  A device is its primary context, which other
 * libraries of the process share.  Each call makes it current and afterwards
 * restores the context that the thread had, if any. */

#include "api_names.h"
#include "architectures.h"
#include "blas.h"
#include "dnn.h"
#include "failure.h"
#include "blas_lt.h"
#include "mapping.h"
#include "nvrtc.h"
#include "ranges.h"
#include "trace.h"

#include <gpu/driver.h>

#include <libcore/plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct context {
    CUdevice device;
    CUcontext handle;
} context;

#include <gpu/host/driver_slots.h>

/* Sets *out_pushed to 1 if the thread had another context. */
static int enter(const context *c, int *out_pushed)
{
    CUcontext now = NULL;
    int code = cuda.CtxGetCurrent(&now);

    *out_pushed = 0;
    if (code != 0 || now == c->handle)
        return code;
    if (now == NULL)
        return cuda.CtxSetCurrent(c->handle);
    code = cuda.CtxPushCurrent(c->handle);
    *out_pushed = code == 0;
    return code;
}

static void leave(int pushed)
{
    CUcontext popped;

    if (pushed)
        cuda.CtxPopCurrent(&popped);
}

/* ------------------------------------------------------------- devices -- */

static const char *find(uint32_t *out_count)
{
    static char text[160];
    const char *reason = cuda_api_open(), *name = NULL;
    int code, version = 0, count = 0;

    *out_count = 0;
    if (reason != NULL)
        return reason;
    code = cuda.Init(0);
    if (code == 0)
        code = cuda.DriverGetVersion(&version);
    if (code == 0 && version / 1000 < CUDA_VERSION / 1000) {
        snprintf(text, sizeof text,
                 "the driver supports CUDA %d.%d, the kernels were built for "
                 "CUDA %d.%d (error 35: driver too old)",
                 version / 1000, version % 1000 / 10, CUDA_VERSION / 1000,
                 CUDA_VERSION % 1000 / 10);
        return text;
    }
    if (code == 0)
        code = cuda.DeviceGetCount(&count);
    if (code == CUDA_ERROR_NO_DEVICE || (code == 0 && count == 0))
        return "CUDA found no device (error 100)";
    /* The runtime's code, which some drivers return. */
    if (code == 35)
        return "the NVIDIA driver is too old (error 35)";
    if (code != 0) {
        cuda.GetErrorName((CUresult)code, &name);
        snprintf(text, sizeof text, "CUDA does not start: %s (error %d)",
                 name != NULL ? name : "unnamed error", code);
        return text;
    }
    *out_count = (uint32_t)count;
    return NULL;
}

static int attribute(CUdevice device, CUdevice_attribute what)
{
    int value = 0;

    cuda.DeviceGetAttribute(&value, what, device);
    return value;
}

static int capability(CUdevice device)
{
    return 10 *
               attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
           attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

static void describe(const context *c, gpu_facts *out)
{
    CUdevice d = c->device;
    size_t total = 0;
    int version = 0;

    memset(out, 0, sizeof *out);
    cuda.DeviceGetName(out->name, sizeof out->name, d);
    cuda.DeviceTotalMem(&total, d);
    cuda.DriverGetVersion(&version);
    snprintf(out->stable_id, sizeof out->stable_id, "pci-%04x:%02x:%02x",
             (unsigned)attribute(d, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
             (unsigned)attribute(d, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
             (unsigned)attribute(d, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    snprintf(out->driver, sizeof out->driver, "CUDA %d.%d", version / 1000,
             version % 1000 / 10);
    snprintf(out->runtime, sizeof out->runtime, "kernels of CUDA %d.%d; %s",
             CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, cuda_dnn_text());
    snprintf(out->architecture, sizeof out->architecture, "sm_%d",
             capability(d));
    out->total_memory = total;
    out->shared_bytes =
        (uint64_t)attribute(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    out->units =
        (uint32_t)attribute(d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    out->warp = 32;
    out->tensor_cores = cuda_code_for(CUDA_ARCHES, capability(d)) >= 80;
    out->unified = attribute(d, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0;
    out->numa_node = UINT32_MAX;
}

static int device_open(uint32_t index, gpu_facts *out, void **out_context)
{
    context *c = calloc(1, sizeof *c);
    int code;

    *out_context = NULL;
    if (c == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    code = cuda.DeviceGet(&c->device, (int)index);
    if (code == 0 && !cuda_arches_fit(CUDA_ARCHES, capability(c->device)))
        code = CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (code == 0)
        code = cuda.DevicePrimaryCtxRetain(&c->handle, c->device);
    if (code != 0) {
        free(c);
        return code;
    }
    describe(c, out);
    cuda_lt_open(c, c->device, c->handle);
    *out_context = c;
    return 0;
}

/* lost: the device's memory is already gone. */
static int destroy_library_handles(context *c, int lost)
{
    gpu_blas_destroy(&cuda_blas, c, lost);
    cuda_lt_destroy(c);
    cuda_dnn_destroy(c, lost);
    return 0;
}

static void device_close(void *opaque)
{
    context *c = opaque;
    int before, code = enter(c, &before);

    (void)RELAXED(destroy_library_handles(c, code != 0));
    cuda_lt_close(c);
    leave(before);
    cuda.DevicePrimaryCtxRelease(c->device);
    free(c);
}

static int device_reset(void *opaque)
{
    context *c = opaque;
    int before, code;

    /* Libraries destroy handles in the context in which these were created. */
    (void)enter(c, &before);
    cuda_lt_renew(c, NULL);
    (void)RELAXED(destroy_library_handles(c, 1));
    leave(before);
    code = cuda.DevicePrimaryCtxReset(c->device);
    /* The reset dropped all references to the context; this one is taken
     * again. */
    cuda.DevicePrimaryCtxRelease(c->device);
    if (code == 0)
        code = cuda.DevicePrimaryCtxRetain(&c->handle, c->device);
    if (code == 0)
        cuda_lt_renew(c, c->handle);
    return code;
}

/* -------------------------------------------------------------- memory -- */

#define POINTER(data) ((CUdeviceptr)(uintptr_t)(data))

static CUdevice device_of(const void *c)
{
    return ((const context *)c)->device;
}

static int device_alloc(void *c, uint64_t size, void **out)
{
    CUdeviceptr at = 0;
    int code = RELAXED_ON_DEVICE(c, cuda.MemAlloc(&at, size));

    *out = (void *)(uintptr_t)at;
    return code;
}

static int device_free(void *c, void *data)
{
    return RELAXED_ON_DEVICE(c, cuda.MemFree(POINTER(data)));
}

static int host_alloc(void *c, uint64_t size, void **out)
{
    return RELAXED_ON_DEVICE(c,
                             cuda.MemHostAlloc(out, size,
                                               CU_MEMHOSTALLOC_PORTABLE |
                                                   CU_MEMHOSTALLOC_DEVICEMAP));
}

static int host_free(void *c, void *data)
{
    return RELAXED_ON_DEVICE(c, cuda.MemFreeHost(data));
}

static int host_pin(void *c, void *data, uint64_t size)
{
    return RELAXED_ON_DEVICE(
        c, cuda.MemHostRegister(data, size, CU_MEMHOSTREGISTER_PORTABLE));
}

static int host_is_pinned(void *c, const void *data)
{
    unsigned kind = 0;
    int code = ON_DEVICE(
        c, cuda.PointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    POINTER(data)));

    return code == 0 && kind == CU_MEMORYTYPE_HOST;
}

static int host_unpin(void *c, void *data)
{
    return RELAXED_ON_DEVICE(c, cuda.MemHostUnregister(data));
}

static int copy(void *c, void *stream, void *to, const void *from,
                uint64_t size, int direction)
{
    if (direction == GPU_TO_DEVICE)
        return ON_DEVICE(c,
                         cuda.MemcpyHtoDAsync(POINTER(to), from, size, stream));
    if (direction == GPU_TO_HOST)
        return ON_DEVICE(c,
                         cuda.MemcpyDtoHAsync(to, POINTER(from), size, stream));
    return ON_DEVICE(
        c, cuda.MemcpyDtoDAsync(POINTER(to), POINTER(from), size, stream));
}

static int fill(void *c, void *stream, void *to, uint32_t pattern,
                uint32_t bytes, uint64_t count)
{
    if (bytes == 1)
        return ON_DEVICE(c,
                         cuda.MemsetD8Async(POINTER(to), (unsigned char)pattern,
                                            count, stream));
    if (bytes == 2)
        return ON_DEVICE(c, cuda.MemsetD16Async(POINTER(to),
                                                (unsigned short)pattern, count,
                                                stream));
    return ON_DEVICE(c,
                     cuda.MemsetD32Async(POINTER(to), pattern, count, stream));
}

/* ------------------------------------------------------ address ranges -- */

static int virtual_granularity(void *c, uint64_t *out_bytes)
{
    return cuda_granularity(device_of(c), out_bytes);
}

static int virtual_reserve(void *c, uint64_t size, void **out)
{
    CUdeviceptr at = 0;
    int code = RELAXED_ON_DEVICE(c, cuda.MemAddressReserve(&at, size, 0, 0, 0));

    *out = (void *)(uintptr_t)at;
    return code;
}

static int virtual_release(void *c, void *data, uint64_t size)
{
    return RELAXED_ON_DEVICE(c, cuda.MemAddressFree(POINTER(data), size));
}

static int virtual_map(void *c, void *data, uint64_t size)
{
    return RELAXED_ON_DEVICE(c, cuda_map(device_of(c), data, size));
}

static int virtual_unmap(void *c, void *data, uint64_t size)
{
    return RELAXED_ON_DEVICE(c, cuda_unmap(device_of(c), data, size));
}

/* ------------------------------------------------------------- streams -- */

static int priority_range(void *c, int32_t *out_least, int32_t *out_greatest)
{
    return ON_DEVICE(c,
                     cuda.CtxGetStreamPriorityRange(out_least, out_greatest));
}

/* The stream's handles are kept for the next stream. */
static int release_handles(void *c, void *stream)
{
    gpu_blas_release(c, stream);
    cuda_dnn_release(c, stream);
    return 0;
}

static int stream_destroy(void *c, void *stream)
{
    return RELAXED_ON_DEVICE(
        c, (release_handles(c, stream), cuda.StreamDestroy(stream)));
}

static int stream_release(void *c, void *stream)
{
    return ON_DEVICE(c, release_handles(c, stream));
}

static int stream_call(void *c, void *stream, void (*function)(void *),
                       void *argument)
{
    return ON_DEVICE(c, cuda.LaunchHostFunc(stream, function, argument));
}

static int gate_create(void *c, uint32_t **out_gate)
{
    int code;

    *out_gate = NULL;
    if (!attribute(device_of(c),
                   CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
        return GPU_ABSENT;
    code = host_alloc(c, sizeof **out_gate, (void **)out_gate);
    if (code == 0)
        **out_gate = 0;
    return code;
}

static int gate_destroy(void *c, uint32_t *gate)
{
    return host_free(c, gate);
}

static int stream_gate(void *c, void *stream, uint32_t *gate, uint32_t number)
{
    return ON_DEVICE(c, cuda.StreamWaitValue32(stream, POINTER(gate), number,
                                               CU_STREAM_WAIT_VALUE_GEQ));
}

/* -------------------------------------------------------------- graphs -- */

static int start_capture(void *c, void *stream)
{
    gpu_blas_prepare(&cuda_blas, c, stream);
    cuda_lt_prepare(c);
    cuda_dnn_prepare(c, stream);
    /* Relaxed: the thread allocates and loads kernels while it captures. */
    return cuda.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static int capture_begin(void *c, void *stream)
{
    return ON_DEVICE(c, start_capture(c, stream));
}

/* --------------------------------------------------------------- peers -- */

/* Without peer access the driver copies through the host.  An error of enabling
 * it is ignored: it is already enabled, or not possible. */
static int copy_from_peer(const context *c, const context *source, void *stream,
                          void *to, const void *from, uint64_t size)
{
    (void)cuda.CtxEnablePeerAccess(source->handle, 0);
    return cuda.MemcpyPeerAsync(POINTER(to), c->handle, POINTER(from),
                                source->handle, size, stream);
}

static int peer_copy(void *c, void *stream, void *to, void *from_context,
                     const void *from, uint64_t size)
{
    return ON_DEVICE(c,
                     copy_from_peer(c, from_context, stream, to, from, size));
}

/* ------------------------------------------------------------- kernels -- */

/* The major version of CUDA that the driver supports; 0: it does not say. */
static int supported(void)
{
    int version = 0;

    return cuda.DriverGetVersion(&version) == 0 ? version / 1000 : 0;
}

static const char *compiler(void *c)
{
    (void)c;
    return cuda_nvrtc_missing(supported());
}

static void compiler_version(void *c, int *out_major, int *out_minor)
{
    (void)c;
    cuda_nvrtc_version(supported(), out_major, out_minor);
}

static int compile(void *c, gpu_compilation *compilation)
{
    (void)c;
    return cuda_nvrtc_compile(supported(), compilation);
}

static int multiply(void *c, void *stream, const gpu_gemm *g)
{
    return ON_DEVICE(c, gpu_blas_multiply(&cuda_blas, c, stream, g));
}

static int convolve_query(void *c, void *stream, gpu_convolution *g)
{
    return ON_DEVICE(c, cuda_dnn_query(c, stream, g));
}

static int convolve(void *c, void *stream, const gpu_convolution *g)
{
    return ON_DEVICE(c, cuda_dnn_convolve(c, stream, g));
}

/* ------------------------------------------------------------- records -- */

static int trace_start(void *c, gpu_activity_callback callback, void *user)
{
    return ON_DEVICE(c, cuda_trace_start(device_of(c), callback, user));
}

static int trace_stop(void *c)
{
    return ON_DEVICE(c, cuda_trace_stop(device_of(c)));
}

extern const gpu_driver cuda_driver;
const gpu_driver cuda_driver = {
    GPU_DRIVER_SLOTS,
    .component = "cuda",
    .find = find,
    .failure = cuda_failure,
    .device_open = device_open,
    .device_close = device_close,
    .device_reset = device_reset,
    .alloc = device_alloc,
    .free = device_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .host_pin = host_pin,
    .host_is_pinned = host_is_pinned,
    .host_unpin = host_unpin,
    .copy = copy,
    .fill = fill,
    .priority_range = priority_range,
    .stream_destroy = stream_destroy,
    .stream_release = stream_release,
    .stream_call = stream_call,
    .gate_create = gate_create,
    .gate_destroy = gate_destroy,
    .stream_gate = stream_gate,
    .capture_begin = capture_begin,
    .peer_copy = peer_copy,
    .virtual_granularity = virtual_granularity,
    .virtual_reserve = virtual_reserve,
    .virtual_release = virtual_release,
    .virtual_map = virtual_map,
    .virtual_unmap = virtual_unmap,
    .compiler = compiler,
    .compiler_version = compiler_version,
    .compile = compile,
    .multiply = multiply,
    .multiply_workspace = GPU_BLAS_WORKSPACE,
    .scaled_query = cuda_lt_query,
    .scaled = cuda_lt_multiply,
    .convolve_query = convolve_query,
    .convolve = convolve,
    .trace_start = trace_start,
    .trace_stop = trace_stop,
    .trace_correlate = cuda_trace_correlate,
    .trace_clock = cuda_trace_clock,
    .ranges_enabled = cuda_ranges_enabled,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
    .use_begin = use_begin,
    .use_end = use_end,
};
