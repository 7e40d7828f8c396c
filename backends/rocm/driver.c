/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver.c: HIP behind driver.h's table.  A device is its number; each call
 * makes it the thread's current one, and gives that back. */

#include "api.h"
#include "blas.h"
#include "failure.h"
#include "images.h"

#include <gpu/driver.h>

#include <libcore/plugin.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct context {
    int device;
} context;

#define EACH_DEVICE(c, before, code) int before = -1, code = enter((c), &before)

/* CUDA's driver, which does some of the calls there, wants a context, and the
 * runtime gives a thread none before it is told of a device. */
static int use_current(int device)
{
#ifdef __HIP_PLATFORM_NVIDIA__
    static _Thread_local int told;

    if (!told) {
        told = 1;
        return hip.SetDevice(device);
    }
#endif
    (void)device;
    return 0;
}

/* What *out_before says, leave makes current again; -1: nothing. */
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

static int leave(int before, int code)
{
    if (before >= 0)
        hip.SetDevice(before);
    return code;
}

/* A call on the device of `word`, and what it answers. */
#define ON_DEVICE(word, call)                         \
    do {                                              \
        EACH_DEVICE((context *)(word), before, code); \
        if (code == 0)                                \
            code = (call);                            \
        return leave(before, code);                   \
    } while (0)

/* The same of a call that may wait, take memory or load. */
#define RELAXED_ON_DEVICE(word, call)                 \
    do {                                              \
        EACH_DEVICE((context *)(word), before, code); \
        if (code == 0) {                              \
            hipStreamCaptureMode mode = rocm_relax(); \
                                                      \
            code = rocm_relaxed(mode, (int)(call));   \
        }                                             \
        return leave(before, code);                   \
    } while (0)

/* ------------------------------------------------------------- devices -- */

/* Threads that the driver starts take no signals. */
static void quiet(sigset_t *before)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

static const char *find_now(uint32_t *out_count)
{
    static char text[160];
    const char *why = rocm_api_open(), *name;
    int code, count = 0;

    *out_count = 0;
    if (why != NULL)
        return why;
    code = hip.Init(0);
    if (code == 0)
        code = hip.GetDeviceCount(&count);
    if (code == hipErrorNoDevice || (code == 0 && count == 0))
        return "HIP finds no device (error 100)";
    if (code == hipErrorInsufficientDriver)
        return "the driver of AMD's GPUs is too old for HIP (error 35)";
    if (code != 0) {
        name = hip.GetErrorName((hipError_t)code);
        snprintf(text, sizeof text, "HIP does not start: %s (error %d)",
                 name != NULL ? name : "an error without a name", code);
        return text;
    }
    *out_count = (uint32_t)count;
    return NULL;
}

static const char *find(uint32_t *out_count)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    sigset_t before;
    const char *why;

    pthread_mutex_lock(&lock);
    quiet(&before);
    why = find_now(out_count);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&lock);
    return why;
}

static int attribute(int device, hipDeviceAttribute_t what)
{
    int value = 0;

    (void)hip.DeviceGetAttribute(&value, what, device);
    return value;
}

/* "gfx90a:sramecc+:xnack-, wavefront 64": which code runs there, and what that
 * name does not say. */
static void name_architecture(int device, gpu_facts *out)
{
#ifdef __HIP_PLATFORM_AMD__
    /* A newer HIP of the same major may have members behind those here. */
    union {
        hipDeviceProp_t has;
        char room[8192];
    } p;

    memset(&p, 0, sizeof p);
    if (hip.GetDeviceProperties(&p.has, device) == 0 &&
        p.has.gcnArchName[0] != 0) {
        snprintf(out->architecture, sizeof out->architecture,
                 "%.*s, wavefront %u", 44, p.has.gcnArchName, out->warp);
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
    sigset_t before;
    int was, code;

    *out_context = NULL;
    if (c == NULL)
        return hipErrorOutOfMemory;
    c->device = (int)index;
    quiet(&before);
    code = enter(c, &was);
    leave(was, code);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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

static void device_close(void *word)
{
    EACH_DEVICE((context *)word, before, code);
    hipStreamCaptureMode mode = rocm_relax();

    rocm_blas_forget(word, code != 0);
    leave(before, rocm_relaxed(mode, code));
    free(word);
}

/* A sticky error comes back from any call; this one waits for nothing. */
static int device_check(void *word)
{
    size_t some, all;

    ON_DEVICE(word, hip.MemGetInfo(&some, &all));
}

static int device_reset(void *word)
{
    RELAXED_ON_DEVICE(word, (rocm_blas_forget(word, 1), hip.DeviceReset()));
}

/* -------------------------------------------------------------- memory -- */

static int device_alloc(void *word, uint64_t size, void **out)
{
    RELAXED_ON_DEVICE(word, hip.Malloc(out, size));
}

static int device_free(void *word, void *data)
{
    RELAXED_ON_DEVICE(word, hip.Free(data));
}

static int memory(void *word, uint64_t *out_free, uint64_t *out_total)
{
    size_t some = 0, all = 0;
    EACH_DEVICE((context *)word, before, code);

    if (code == 0)
        code = hip.MemGetInfo(&some, &all);
    *out_free = some;
    *out_total = all;
    return leave(before, code);
}

static int host_alloc(void *word, uint64_t size, void **out)
{
    RELAXED_ON_DEVICE(
        word,
        hip.HostMalloc(out, size, hipHostMallocPortable | hipHostMallocMapped));
}

static int host_free(void *word, void *data)
{
    RELAXED_ON_DEVICE(word, hip.HostFree(data));
}

static int host_pin(void *word, void *data, uint64_t size)
{
    RELAXED_ON_DEVICE(word,
                      hip.HostRegister(data, size, hipHostRegisterPortable));
}

static int host_unpin(void *word, void *data)
{
    RELAXED_ON_DEVICE(word, hip.HostUnregister(data));
}

static int copy(void *word, void *stream, void *to, const void *from,
                uint64_t size, int direction)
{
    ON_DEVICE(word, hip.MemcpyAsync(
                        to, from, size,
                        direction == GPU_TO_DEVICE ? hipMemcpyHostToDevice
                        : direction == GPU_TO_HOST ? hipMemcpyDeviceToHost
                                                   : hipMemcpyDeviceToDevice,
                        stream));
}

static int fill(void *word, void *stream, void *to, uint32_t pattern,
                uint32_t bytes, uint64_t count)
{
    hipDeviceptr_t at = (hipDeviceptr_t)(uintptr_t)to;

    if (bytes == 1)
        ON_DEVICE(word,
                  hip.MemsetD8Async(at, (unsigned char)pattern, count, stream));
    if (bytes == 2)
        ON_DEVICE(word, hip.MemsetD16Async(at, (unsigned short)pattern, count,
                                           stream));
    ON_DEVICE(word, hip.MemsetD32Async(at, (int)pattern, count, stream));
}

/* ------------------------------------------------------------- streams -- */

static int busy(int code)
{
    return code == hipErrorNotReady ? GPU_BUSY : code;
}

static int stream_range(void *word, int32_t *out_least, int32_t *out_greatest)
{
    ON_DEVICE(word, hip.DeviceGetStreamPriorityRange(out_least, out_greatest));
}

static int stream_create(void *word, int32_t priority, void **out_stream)
{
    RELAXED_ON_DEVICE(
        word, hip.StreamCreateWithPriority((hipStream_t *)out_stream,
                                           hipStreamNonBlocking, priority));
}

static int stream_destroy(void *word, void *stream)
{
    RELAXED_ON_DEVICE(
        word, (rocm_blas_leave(word, stream), hip.StreamDestroy(stream)));
}

static int stream_leave(void *word, void *stream)
{
    ON_DEVICE(word, (rocm_blas_leave(word, stream), hipSuccess));
}

static int stream_query(void *word, void *stream)
{
    RELAXED_ON_DEVICE(word, busy(hip.StreamQuery(stream)));
}

static int stream_captures(void *word, void *stream, uint32_t *out_yes)
{
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    EACH_DEVICE((context *)word, before, code);

    if (code == 0)
        code = hip.StreamIsCapturing(stream, &status);
    *out_yes = status != hipStreamCaptureStatusNone;
    return leave(before, code);
}

static int stream_synchronize(void *word, void *stream)
{
    RELAXED_ON_DEVICE(word, hip.StreamSynchronize(stream));
}

static int stream_wait(void *word, void *stream, void *event)
{
    ON_DEVICE(word, hip.StreamWaitEvent(stream, event, 0));
}

typedef struct callback {
    void (*function)(void *);
    void *argument;
} callback;

static void run_callback(hipStream_t stream, hipError_t status, void *word)
{
    callback *c = word;

    (void)stream;
    (void)status;
    c->function(c->argument);
    free(c);
}

static int stream_call(void *word, void *stream, void (*function)(void *),
                       void *argument)
{
    callback *c = malloc(sizeof *c);
    EACH_DEVICE((context *)word, before, code);

    if (c == NULL)
        return leave(before, hipErrorOutOfMemory);
    c->function = function;
    c->argument = argument;
    if (code == 0)
        code = hip.StreamAddCallback(stream, run_callback, c, 0);
    if (code != 0)
        free(c);
    return leave(before, code);
}

#ifdef __HIP_PLATFORM_AMD__
/* The host writes where a stream may wait, too. */
static int gate_create(void *word, uint32_t **out_gate)
{
    void *signal = NULL;
    EACH_DEVICE((context *)word, before, code);

    *out_gate = NULL;
    if (code == 0 && !attribute(((context *)word)->device,
                                hipDeviceAttributeCanUseStreamWaitValue))
        code = GPU_ABSENT;
    if (code == 0) {
        hipStreamCaptureMode mode = rocm_relax();

        code = rocm_relaxed(
            mode, (int)hip.ExtMallocWithFlags(&signal, sizeof(uint64_t),
                                              hipMallocSignalMemory));
    }
    if (code == 0) {
        memset(signal, 0, sizeof(uint64_t));
        *out_gate = signal;
    }
    return leave(before, code);
}

static int gate_destroy(void *word, uint32_t *gate)
{
    RELAXED_ON_DEVICE(word, hip.Free(gate));
}

static int stream_gate(void *word, void *stream, uint32_t *gate,
                       uint32_t number)
{
    ON_DEVICE(word, hip.StreamWaitValue32(stream, gate, number,
                                          hipStreamWaitValueGte, UINT32_MAX));
}
#endif

/* -------------------------------------------------------------- events -- */

static int event_create(void *word, int kind, void **out_event)
{
    unsigned flags = (kind == GPU_EVENT_TIMING ? 0 : hipEventDisableTiming) |
                     (kind == GPU_EVENT_SLEEPING ? hipEventBlockingSync : 0);

    ON_DEVICE(word, hip.EventCreateWithFlags((hipEvent_t *)out_event, flags));
}

static int event_destroy(void *word, void *event)
{
    ON_DEVICE(word, hip.EventDestroy(event));
}

static int event_record(void *word, void *event, void *stream)
{
    ON_DEVICE(word, hip.EventRecord(event, stream));
}

static int event_query(void *word, void *event)
{
    RELAXED_ON_DEVICE(word, busy(hip.EventQuery(event)));
}

static int event_synchronize(void *word, void *event)
{
    RELAXED_ON_DEVICE(word, hip.EventSynchronize(event));
}

static int event_elapsed(void *word, void *start, void *end,
                         int64_t *out_nanoseconds)
{
    float milliseconds = 0;
    EACH_DEVICE((context *)word, before, code);

    if (code == 0)
        code = hip.EventElapsedTime(&milliseconds, start, end);
    *out_nanoseconds = (int64_t)((double)milliseconds * 1e6);
    return leave(before, code);
}

/* -------------------------------------------------------------- graphs -- */

/* Relaxed: the thread takes memory and loads kernels while it captures. */
static int capture_begin(void *word, void *stream)
{
    ON_DEVICE(word,
              (rocm_blas_prepare(word, stream),
               hip.StreamBeginCapture(stream, hipStreamCaptureModeRelaxed)));
}

static int capture_end(void *word, void *stream, void **out_graph)
{
    hipGraph_t graph = NULL;
    hipGraphExec_t ready = NULL;
    EACH_DEVICE((context *)word, before, code);

    if (code == 0)
        code = hip.StreamEndCapture(stream, &graph);
    if (code == 0 && out_graph != NULL)
        code = hip.GraphInstantiate(&ready, graph, NULL, NULL, 0);
    if (graph != NULL)
        hip.GraphDestroy(graph);
    if (out_graph != NULL)
        *out_graph = ready;
    return leave(before, code);
}

static int graph_launch(void *word, void *graph, void *stream)
{
    ON_DEVICE(word, hip.GraphLaunch(graph, stream));
}

static int graph_destroy(void *word, void *graph)
{
    ON_DEVICE(word, hip.GraphExecDestroy(graph));
}

/* --------------------------------------------------------------- peers -- */

static int peer_can(void *word, void *other, uint32_t *out_yes)
{
    const context *c = word, *from = other;
    int can = 0, code;

    *out_yes = 0;
    if (c->device == from->device)
        return 0;
    code = hip.DeviceCanAccessPeer(&can, c->device, from->device);
    *out_yes = code == 0 && can;
    return code;
}

/* Without access the driver takes what it copies through the host.  Where it
 * was enabled before, or cannot be, the call says so, and it copies all the
 * same. */
static int copy_from_peer(const context *c, const context *source, void *stream,
                          void *to, const void *from, uint64_t size)
{
    (void)hip.DeviceEnablePeerAccess(source->device, 0);
    return hip.MemcpyPeerAsync(to, c->device, from, source->device, size,
                               stream);
}

static int peer_copy(void *word, void *stream, void *to, void *from_context,
                     const void *from, uint64_t size)
{
    ON_DEVICE(word, copy_from_peer(word, from_context, stream, to, from, size));
}

/* ------------------------------------------------------------- kernels -- */

static int module_load(void *word, const void *image, void **out_module)
{
    RELAXED_ON_DEVICE(word,
                      hip.ModuleLoadData((hipModule_t *)out_module, image));
}

static int module_unload(void *word, void *module)
{
    RELAXED_ON_DEVICE(word, hip.ModuleUnload(module));
}

static int function_find(void *word, void *module, const char *name,
                         void **out_function)
{
    RELAXED_ON_DEVICE(word, hip.ModuleGetFunction((hipFunction_t *)out_function,
                                                  module, name));
}

/* HIP wants fewer than 2^32 threads along a side of a launch. */
static uint32_t most_blocks(uint32_t threads)
{
    return UINT32_MAX / threads;
}

static int launch(void *word, void *stream, void *function,
                  const uint32_t grid[3], const uint32_t block[3],
                  uint32_t shared_bytes, const void *parameters, size_t size)
{
    void *given[1] = {(void *)(uintptr_t)parameters};

    (void)size;
    ON_DEVICE(word, hip.ModuleLaunchKernel(function, grid[0], grid[1], grid[2],
                                           block[0], block[1], block[2],
                                           shared_bytes, stream, given, NULL));
}

static int multiply(void *word, void *stream, const gpu_gemm *g)
{
    ON_DEVICE(word, rocm_blas_multiply(word, stream, g));
}

extern const gpu_driver rocm_driver;
const gpu_driver rocm_driver = {
#ifdef __HIP_PLATFORM_NVIDIA__
    .component = "hipnv",
#else
    .component = "rocm",
#endif
    .find = find,
    .failure = rocm_failure,
    .device_open = device_open,
    .device_close = device_close,
    .device_check = device_check,
    .device_reset = device_reset,
    .alloc = device_alloc,
    .free = device_free,
    .memory = memory,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .host_pin = host_pin,
    .host_unpin = host_unpin,
    .copy = copy,
    .fill = fill,
    .stream_range = stream_range,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_leave = stream_leave,
    .stream_query = stream_query,
    .stream_captures = stream_captures,
    .stream_synchronize = stream_synchronize,
    .stream_wait = stream_wait,
    .stream_call = stream_call,
#ifdef __HIP_PLATFORM_AMD__
    .gate_create = gate_create,
    .gate_destroy = gate_destroy,
    .stream_gate = stream_gate,
#endif
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .peer_can = peer_can,
    .peer_copy = peer_copy,
    .module_load = module_load,
    .module_unload = module_unload,
    .function_find = function_find,
    .most_blocks = most_blocks,
    .launch = launch,
    .multiply = multiply,
    .multiply_workspace = ROCM_BLAS_WORKSPACE,
};
