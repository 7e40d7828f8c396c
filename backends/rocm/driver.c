/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver.c: the gpu_driver of HIP.  A device is its number.  Each call makes it
 * the thread's current device and afterwards restores the one before. */

#include "api_names.h"
#include "architectures.h"
#include "blas.h"
#include "failure.h"
#include "hiprtc.h"

#include <gpu/driver.h>

#include <libcore/plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct context {
    int device;
} context;

#include <gpu/host/driver_slots.h>

/* On HIP's NVIDIA platform some calls are CUDA's driver's, which needs a
 * context; the runtime creates one for a thread only when the thread sets a
 * device. */
static int use_current(int device)
{
#ifdef __HIP_PLATFORM_NVIDIA__
    static _Thread_local int is_set;

    if (!is_set) {
        is_set = 1;
        return hip.SetDevice(device);
    }
#endif
    (void)device;
    return 0;
}

/* Sets *out_before to the device to restore, or -1. */
static int enter(const context *c, int *out_before)
{
    int now = 0, code = hip.GetDevice(&now);

    *out_before = -1;
    if (code != 0)
        return code;
    if (now == c->device)
        return use_current(now);
    code = hip.SetDevice(c->device);
    if (code == 0)
        *out_before = now;
    return code;
}

static void leave(int before)
{
    if (before >= 0)
        hip.SetDevice(before);
}

/* ------------------------------------------------------------- devices -- */

static const char *find(uint32_t *out_count)
{
    static char text[160];
    const char *reason = rocm_api_open(), *name;
    int code, count = 0;

    *out_count = 0;
    if (reason != NULL)
        return reason;
    code = hip.Init(0);
    if (code == 0)
        code = hip.GetDeviceCount(&count);
    if (code == hipErrorNoDevice || (code == 0 && count == 0))
        return "HIP found no device (error 100)";
    if (code == hipErrorInsufficientDriver)
        return "the AMD GPU driver is too old for HIP (error 35)";
    if (code != 0) {
        name = hip.GetErrorName((hipError_t)code);
        snprintf(text, sizeof text, "HIP does not start: %s (error %d)",
                 name != NULL ? name : "unnamed error", code);
        return text;
    }
    *out_count = (uint32_t)count;
    return NULL;
}

static int attribute(int device, hipDeviceAttribute_t what)
{
    int value = 0;

    (void)hip.DeviceGetAttribute(&value, what, device);
    return value;
}

/* "gfx90a:sramecc+:xnack-, wavefront 64": the instruction set, and the width,
 * which its name does not tell. */
static void name_architecture(int device, gpu_facts *out)
{
#ifdef __HIP_PLATFORM_AMD__
    /* A newer HIP of the same major version may have more members. */
    union {
        hipDeviceProp_t known;
        char reserved[8192];
    } p;

    memset(&p, 0, sizeof p);
    if (hip.GetDeviceProperties(&p.known, device) == 0 &&
        p.known.gcnArchName[0] != 0) {
        snprintf(out->architecture, sizeof out->architecture,
                 "%.*s, wavefront %u", 44, p.known.gcnArchName, out->warp);
        return;
    }
#else
    (void)device;
#endif
    snprintf(out->architecture, sizeof out->architecture, "wavefront %u",
             out->warp);
}

static void describe(const context *c, gpu_facts *out)
{
    size_t total = 0;
    int version = 0;

    memset(out, 0, sizeof *out);
    (void)hip.DeviceGetName(out->name, sizeof out->name, c->device);
    (void)hip.DeviceTotalMem(&total, c->device);
    (void)hip.DriverGetVersion(&version);
    memcpy(out->stable_id, "pci-", 5);
    (void)hip.DeviceGetPCIBusId(out->stable_id + 4, sizeof out->stable_id - 4,
                                c->device);
    snprintf(out->driver, sizeof out->driver, "HIP %d", version);
    snprintf(out->runtime, sizeof out->runtime, "kernels of HIP %d.%d",
             HIP_VERSION_MAJOR, HIP_VERSION_MINOR);
    out->total_memory = total;
    out->shared_bytes = (uint64_t)attribute(
        c->device, hipDeviceAttributeMaxSharedMemoryPerBlock);
    out->units =
        (uint32_t)attribute(c->device, hipDeviceAttributeMultiprocessorCount);
    out->warp = (uint32_t)attribute(c->device, hipDeviceAttributeWarpSize);
    name_architecture(c->device, out);
    out->unified = attribute(c->device, hipDeviceAttributeIntegrated) != 0;
    out->numa_node = UINT32_MAX;
}

static int device_open(uint32_t index, gpu_facts *out, void **out_context)
{
    context *c = calloc(1, sizeof *c);
    int before, code;

    *out_context = NULL;
    if (c == NULL)
        return hipErrorOutOfMemory;
    c->device = (int)index;
    code = enter(c, &before);
    leave(before);
    if (code != 0) {
        free(c);
        return code;
    }
    describe(c, out);
    if (!rocm_arches_fit(HIP_ARCHES, out->architecture)) {
        free(c);
        return hipErrorNoBinaryForGpu;
    }
    *out_context = c;
    return 0;
}

static int destroy_library_handles(void *c, int lost)
{
    gpu_blas_destroy(&rocm_blas, c, lost);
    return 0;
}

static void device_close(void *c)
{
    int before, code = enter(c, &before);

    (void)RELAXED(destroy_library_handles(c, code != 0));
    leave(before);
    free(c);
}

static int device_reset(void *c)
{
    return RELAXED_ON_DEVICE(
        c, (destroy_library_handles(c, 1), hip.DeviceReset()));
}

/* -------------------------------------------------------------- memory -- */

static int device_alloc(void *c, uint64_t size, void **out)
{
    return RELAXED_ON_DEVICE(c, hip.Malloc(out, size));
}

static int device_free(void *c, void *data)
{
    return RELAXED_ON_DEVICE(c, hip.Free(data));
}

static int host_alloc(void *c, uint64_t size, void **out)
{
    return RELAXED_ON_DEVICE(
        c,
        hip.HostMalloc(out, size, hipHostMallocPortable | hipHostMallocMapped));
}

static int host_free(void *c, void *data)
{
    return RELAXED_ON_DEVICE(c, hip.HostFree(data));
}

static int host_pin(void *c, void *data, uint64_t size)
{
    return RELAXED_ON_DEVICE(
        c, hip.HostRegister(data, size, hipHostRegisterPortable));
}

static int host_unpin(void *c, void *data)
{
    return RELAXED_ON_DEVICE(c, hip.HostUnregister(data));
}

static int copy(void *c, void *stream, void *to, const void *from,
                uint64_t size, int direction)
{
    return ON_DEVICE(
        c, hip.MemcpyAsync(to, from, size,
                           direction == GPU_TO_DEVICE ? hipMemcpyHostToDevice
                           : direction == GPU_TO_HOST ? hipMemcpyDeviceToHost
                                                      : hipMemcpyDeviceToDevice,
                           stream));
}

static int fill(void *c, void *stream, void *to, uint32_t pattern,
                uint32_t bytes, uint64_t count)
{
    hipDeviceptr_t at = (hipDeviceptr_t)(uintptr_t)to;

    if (bytes == 1)
        return ON_DEVICE(
            c, hip.MemsetD8Async(at, (unsigned char)pattern, count, stream));
    if (bytes == 2)
        return ON_DEVICE(
            c, hip.MemsetD16Async(at, (unsigned short)pattern, count, stream));
    return ON_DEVICE(c, hip.MemsetD32Async(at, (int)pattern, count, stream));
}

/* ------------------------------------------------------------- streams -- */

static int priority_range(void *c, int32_t *out_least, int32_t *out_greatest)
{
    return ON_DEVICE(c,
                     hip.DeviceGetStreamPriorityRange(out_least, out_greatest));
}

static int release_handles(void *c, void *stream)
{
    gpu_blas_release(c, stream);
    return 0;
}

static int stream_destroy(void *c, void *stream)
{
    return RELAXED_ON_DEVICE(
        c, (release_handles(c, stream), hip.StreamDestroy(stream)));
}

static int stream_release(void *c, void *stream)
{
    return ON_DEVICE(c, release_handles(c, stream));
}

typedef struct callback {
    void (*function)(void *);
    void *argument;
} callback;

static void run_callback(hipStream_t stream, hipError_t status, void *user)
{
    callback *given = user;

    (void)stream;
    (void)status;
    given->function(given->argument);
    free(given);
}

static int stream_call(void *c, void *stream, void (*function)(void *),
                       void *argument)
{
    callback *given = malloc(sizeof *given);
    int code;

    if (given == NULL)
        return hipErrorOutOfMemory;
    given->function = function;
    given->argument = argument;
    code = ON_DEVICE(c, hip.StreamAddCallback(stream, run_callback, given, 0));
    if (code != 0)
        free(given);
    return code;
}

#ifdef __HIP_PLATFORM_AMD__
/* The host can write signal memory, and streams can wait for it. */
static int gate_create(void *c, uint32_t **out_gate)
{
    void *signal = NULL;
    int code;

    *out_gate = NULL;
    if (!attribute(((const context *)c)->device,
                   hipDeviceAttributeCanUseStreamWaitValue))
        return GPU_ABSENT;
    code =
        RELAXED_ON_DEVICE(c, hip.ExtMallocWithFlags(&signal, sizeof(uint64_t),
                                                    hipMallocSignalMemory));
    if (code == 0) {
        memset(signal, 0, sizeof(uint64_t));
        *out_gate = signal;
    }
    return code;
}

static int gate_destroy(void *c, uint32_t *gate)
{
    return RELAXED_ON_DEVICE(c, hip.Free(gate));
}

static int stream_gate(void *c, void *stream, uint32_t *gate, uint32_t number)
{
    return ON_DEVICE(c,
                     hip.StreamWaitValue32(stream, gate, number,
                                           hipStreamWaitValueGte, UINT32_MAX));
}
#endif

/* -------------------------------------------------------------- graphs -- */

static int start_capture(void *c, void *stream)
{
    gpu_blas_prepare(&rocm_blas, c, stream);
    /* Relaxed: the thread allocates and loads kernels while it captures. */
    return hip.StreamBeginCapture(stream, hipStreamCaptureModeRelaxed);
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
    (void)hip.DeviceEnablePeerAccess(source->device, 0);
    return hip.MemcpyPeerAsync(to, c->device, from, source->device, size,
                               stream);
}

static int peer_copy(void *c, void *stream, void *to, void *from_context,
                     const void *from, uint64_t size)
{
    return ON_DEVICE(c,
                     copy_from_peer(c, from_context, stream, to, from, size));
}

/* ------------------------------------------------------------- kernels -- */

/* HIP limits the threads of a launch in each dimension to fewer than 2^32. */
static uint32_t max_blocks(uint32_t threads)
{
    return UINT32_MAX / threads;
}

/* On HIP's NVIDIA platform there is no hipRTC. */
#ifdef __HIP_PLATFORM_AMD__
static const char *compiler(void *c)
{
    (void)c;
    return rocm_hiprtc_missing(HIP_VERSION_MAJOR);
}

static void compiler_version(void *c, int *out_major, int *out_minor)
{
    (void)c;
    rocm_hiprtc_version(HIP_VERSION_MAJOR, out_major, out_minor);
}

static int compile(void *c, gpu_compilation *compilation)
{
    (void)c;
    return rocm_hiprtc_compile(HIP_VERSION_MAJOR, compilation);
}
#endif

static int multiply(void *c, void *stream, const gpu_gemm *g)
{
    return ON_DEVICE(c, gpu_blas_multiply(&rocm_blas, c, stream, g));
}

extern const gpu_driver rocm_driver;
const gpu_driver rocm_driver = {
    GPU_DRIVER_SLOTS,
#ifdef __HIP_PLATFORM_NVIDIA__
    .component = "hipnv",
#else
    .component = "rocm",
#endif
    .find = find,
    .failure = rocm_failure,
    .device_open = device_open,
    .device_close = device_close,
    .device_reset = device_reset,
    .alloc = device_alloc,
    .free = device_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .host_pin = host_pin,
    .host_unpin = host_unpin,
    .copy = copy,
    .fill = fill,
    .priority_range = priority_range,
    .stream_destroy = stream_destroy,
    .stream_release = stream_release,
    .stream_call = stream_call,
#ifdef __HIP_PLATFORM_AMD__
    .gate_create = gate_create,
    .gate_destroy = gate_destroy,
    .stream_gate = stream_gate,
    .compiler = compiler,
    .compiler_version = compiler_version,
    .compile = compile,
#endif
    .capture_begin = capture_begin,
    .peer_copy = peer_copy,
    .max_blocks = max_blocks,
    .multiply = multiply,
    .multiply_workspace = GPU_BLAS_WORKSPACE,
    .use_begin = use_begin,
    .use_end = use_end,
};
