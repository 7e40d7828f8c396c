/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver.c: CUDA's driver interface behind driver.h's table.  A device is its
 * primary context, which other libraries of the process share; each call makes
 * it current, and gives a thread that had another one that back. */

#include "api.h"
#include "blas.h"
#include "dnn.h"
#include "failure.h"
#include "images.h"
#include "lt.h"
#include "mapping.h"
#include "ranges.h"
#include "trace.h"

#include <gpu/driver.h>

#include <libcore/plugin.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct context {
    CUdevice device;
    CUcontext handle;
} context;

#define EACH_DEVICE(c, pushed, code) int pushed = 0, code = enter((c), &pushed)

/* 1 in *out_pushed: leave pops. */
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

static int leave(int pushed, int code)
{
    CUcontext popped;

    if (pushed)
        cuda.CtxPopCurrent(&popped);
    return code;
}

/* A call on the device of `word`, and what it answers. */
#define ON_DEVICE(word, call)                         \
    do {                                              \
        EACH_DEVICE((context *)(word), pushed, code); \
        if (code == 0)                                \
            code = (call);                            \
        return leave(pushed, code);                   \
    } while (0)

/* The same of a call that may wait, take memory or load. */
#define RELAXED_ON_DEVICE(word, call)                  \
    do {                                               \
        EACH_DEVICE((context *)(word), pushed, code);  \
        if (code == 0) {                               \
            CUstreamCaptureMode before = cuda_relax(); \
                                                       \
            code = cuda_relaxed(before, (call));       \
        }                                              \
        return leave(pushed, code);                    \
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
    const char *why = cuda_api_open(), *name = NULL;
    int code, version = 0, count = 0;

    *out_count = 0;
    if (why != NULL)
        return why;
    code = cuda.Init(0);
    if (code == 0)
        code = cuda.DriverGetVersion(&version);
    if (code == 0 && version / 1000 < CUDA_VERSION / 1000) {
        snprintf(text, sizeof text,
                 "the driver knows CUDA %d.%d, the kernels were built for CUDA "
                 "%d.%d (error 35: driver too old)",
                 version / 1000, version % 1000 / 10, CUDA_VERSION / 1000,
                 CUDA_VERSION % 1000 / 10);
        return text;
    }
    if (code == 0)
        code = cuda.DeviceGetCount(&count);
    if (code == CUDA_ERROR_NO_DEVICE || (code == 0 && count == 0))
        return "CUDA finds no device (error 100)";
    /* The runtime's number, which a driver may give on. */
    if (code == 35)
        return "the NVIDIA driver here is too old (error 35)";
    if (code != 0) {
        cuda.GetErrorName((CUresult)code, &name);
        snprintf(text, sizeof text, "CUDA does not start: %s (error %d)",
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
    out->unified = attribute(d, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0;
    out->numa_node = UINT32_MAX;
}

static int device_open(uint32_t index, gpu_facts *out, void **out_context)
{
    context *c = calloc(1, sizeof *c);
    sigset_t before;
    int code;

    *out_context = NULL;
    if (c == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    quiet(&before);
    code = cuda.DeviceGet(&c->device, (int)index);
    if (code == 0 && !cuda_arches_fit(CUDA_ARCHES, capability(c->device)))
        code = CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (code == 0)
        code = cuda.DevicePrimaryCtxRetain(&c->handle, c->device);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        free(c);
        return code;
    }
    describe(c, out);
    cuda_lt_open(c, c->device, c->handle);
    *out_context = c;
    return 0;
}

static void device_close(void *word)
{
    context *c = word;
    EACH_DEVICE(c, pushed, code);
    CUstreamCaptureMode mode = cuda_relax();

    cuda_blas_forget(c, code != 0);
    cuda_dnn_forget(c, code != 0);
    cuda_lt_close(c);
    leave(pushed, cuda_relaxed(mode, code));
    cuda.DevicePrimaryCtxRelease(c->device);
    free(c);
}

/* A sticky error comes back from any call; this one waits for nothing. */
static int device_check(void *word)
{
    size_t some, all;

    ON_DEVICE(word, cuda.MemGetInfo(&some, &all));
}

static int device_reset(void *word)
{
    context *c = word;
    EACH_DEVICE(c, pushed, code);
    CUstreamCaptureMode mode = cuda_relax();

    /* Libraries destroy what they have where it was made. */
    cuda_lt_renew(c, NULL);
    cuda_blas_forget(c, 1);
    cuda_dnn_forget(c, 1);
    leave(pushed, cuda_relaxed(mode, code));
    code = cuda.DevicePrimaryCtxReset(c->device);
    /* The reset took what every holder had; ours is taken anew. */
    cuda.DevicePrimaryCtxRelease(c->device);
    if (code == 0)
        code = cuda.DevicePrimaryCtxRetain(&c->handle, c->device);
    if (code == 0)
        cuda_lt_renew(c, c->handle);
    return code;
}

/* -------------------------------------------------------------- memory -- */

#define POINTER(data) ((CUdeviceptr)(uintptr_t)(data))

static int device_alloc(void *word, uint64_t size, void **out)
{
    CUdeviceptr at = 0;
    EACH_DEVICE((context *)word, pushed, code);

    if (code == 0) {
        CUstreamCaptureMode before = cuda_relax();

        code = cuda_relaxed(before, cuda.MemAlloc(&at, size));
    }
    *out = (void *)(uintptr_t)at;
    return leave(pushed, code);
}

static int device_free(void *word, void *data)
{
    RELAXED_ON_DEVICE(word, cuda.MemFree(POINTER(data)));
}

static int memory(void *word, uint64_t *out_free, uint64_t *out_total)
{
    size_t some = 0, all = 0;
    EACH_DEVICE((context *)word, pushed, code);

    if (code == 0)
        code = cuda.MemGetInfo(&some, &all);
    *out_free = some;
    *out_total = all;
    return leave(pushed, code);
}

static int host_alloc(void *word, uint64_t size, void **out)
{
    RELAXED_ON_DEVICE(word, cuda.MemHostAlloc(out, size,
                                              CU_MEMHOSTALLOC_PORTABLE |
                                                  CU_MEMHOSTALLOC_DEVICEMAP));
}

static int host_free(void *word, void *data)
{
    RELAXED_ON_DEVICE(word, cuda.MemFreeHost(data));
}

static int host_pin(void *word, void *data, uint64_t size)
{
    RELAXED_ON_DEVICE(
        word, cuda.MemHostRegister(data, size, CU_MEMHOSTREGISTER_PORTABLE));
}

static int host_unpin(void *word, void *data)
{
    RELAXED_ON_DEVICE(word, cuda.MemHostUnregister(data));
}

static int copy(void *word, void *stream, void *to, const void *from,
                uint64_t size, int direction)
{
    if (direction == GPU_TO_DEVICE)
        ON_DEVICE(word, cuda.MemcpyHtoDAsync(POINTER(to), from, size, stream));
    if (direction == GPU_TO_HOST)
        ON_DEVICE(word, cuda.MemcpyDtoHAsync(to, POINTER(from), size, stream));
    ON_DEVICE(word,
              cuda.MemcpyDtoDAsync(POINTER(to), POINTER(from), size, stream));
}

static int fill(void *word, void *stream, void *to, uint32_t pattern,
                uint32_t bytes, uint64_t count)
{
    if (bytes == 1)
        ON_DEVICE(word, cuda.MemsetD8Async(POINTER(to), (unsigned char)pattern,
                                           count, stream));
    if (bytes == 2)
        ON_DEVICE(word,
                  cuda.MemsetD16Async(POINTER(to), (unsigned short)pattern,
                                      count, stream));
    ON_DEVICE(word, cuda.MemsetD32Async(POINTER(to), pattern, count, stream));
}

/* ------------------------------------------------------ address ranges -- */

static int virtual_granularity(void *word, uint64_t *out_bytes)
{
    return cuda_granularity(((context *)word)->device, out_bytes);
}

static int virtual_reserve(void *word, uint64_t size, void **out)
{
    CUdeviceptr at = 0;
    EACH_DEVICE((context *)word, pushed, code);

    if (code == 0) {
        CUstreamCaptureMode before = cuda_relax();

        code = cuda_relaxed(before, cuda.MemAddressReserve(&at, size, 0, 0, 0));
    }
    *out = (void *)(uintptr_t)at;
    return leave(pushed, code);
}

static int virtual_release(void *word, void *data, uint64_t size)
{
    RELAXED_ON_DEVICE(word, cuda.MemAddressFree(POINTER(data), size));
}

static int virtual_map(void *word, void *data, uint64_t size)
{
    RELAXED_ON_DEVICE(word, cuda_map(((context *)word)->device, data, size));
}

static int virtual_unmap(void *word, void *data, uint64_t size)
{
    RELAXED_ON_DEVICE(word, cuda_unmap(((context *)word)->device, data, size));
}

/* ------------------------------------------------------------- streams -- */

static int busy(int code)
{
    return code == CUDA_ERROR_NOT_READY ? GPU_BUSY : code;
}

static int stream_range(void *word, int32_t *out_least, int32_t *out_greatest)
{
    ON_DEVICE(word, cuda.CtxGetStreamPriorityRange(out_least, out_greatest));
}

static int stream_create(void *word, int32_t priority, void **out_stream)
{
    RELAXED_ON_DEVICE(
        word, cuda.StreamCreateWithPriority((CUstream *)out_stream,
                                            CU_STREAM_NON_BLOCKING, priority));
}

static int stream_destroy(void *word, void *stream)
{
    RELAXED_ON_DEVICE(word, (cuda_blas_leave(word, stream),
                             cuda_dnn_leave(word, stream),
                             cuda.StreamDestroy(stream)));
}

static int stream_leave(void *word, void *stream)
{
    ON_DEVICE(word,
              (cuda_blas_leave(word, stream), cuda_dnn_leave(word, stream), 0));
}

static int stream_query(void *word, void *stream)
{
    RELAXED_ON_DEVICE(word, busy(cuda.StreamQuery(stream)));
}

static int stream_captures(void *word, void *stream, uint32_t *out_yes)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EACH_DEVICE((context *)word, pushed, code);

    if (code == 0)
        code = cuda.StreamIsCapturing(stream, &status);
    *out_yes = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return leave(pushed, code);
}

static int stream_synchronize(void *word, void *stream)
{
    RELAXED_ON_DEVICE(word, cuda.StreamSynchronize(stream));
}

static int stream_wait(void *word, void *stream, void *event)
{
    ON_DEVICE(word, cuda.StreamWaitEvent(stream, event, 0));
}

static int stream_call(void *word, void *stream, void (*function)(void *),
                       void *argument)
{
    ON_DEVICE(word, cuda.LaunchHostFunc(stream, function, argument));
}

static int gate_create(void *word, uint32_t **out_gate)
{
    const context *c = word;
    int code;

    *out_gate = NULL;
    if (!attribute(c->device,
                   CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
        return GPU_ABSENT;
    code = host_alloc(word, sizeof **out_gate, (void **)out_gate);
    if (code == 0)
        **out_gate = 0;
    return code;
}

static int gate_destroy(void *word, uint32_t *gate)
{
    return host_free(word, gate);
}

static int stream_gate(void *word, void *stream, uint32_t *gate,
                       uint32_t number)
{
    ON_DEVICE(word, cuda.StreamWaitValue32(stream, POINTER(gate), number,
                                           CU_STREAM_WAIT_VALUE_GEQ));
}

/* -------------------------------------------------------------- events -- */

static int event_create(void *word, int kind, void **out_event)
{
    unsigned flags = (kind == GPU_EVENT_TIMING ? 0 : CU_EVENT_DISABLE_TIMING) |
                     (kind == GPU_EVENT_SLEEPING ? CU_EVENT_BLOCKING_SYNC : 0);

    ON_DEVICE(word, cuda.EventCreate((CUevent *)out_event, flags));
}

static int event_destroy(void *word, void *event)
{
    ON_DEVICE(word, cuda.EventDestroy(event));
}

static int event_record(void *word, void *event, void *stream)
{
    ON_DEVICE(word, cuda.EventRecord(event, stream));
}

static int event_query(void *word, void *event)
{
    RELAXED_ON_DEVICE(word, busy(cuda.EventQuery(event)));
}

static int event_synchronize(void *word, void *event)
{
    RELAXED_ON_DEVICE(word, cuda.EventSynchronize(event));
}

static int event_elapsed(void *word, void *start, void *end,
                         int64_t *out_nanoseconds)
{
    float milliseconds = 0;
    EACH_DEVICE((context *)word, pushed, code);

    if (code == 0)
        code = cuda.EventElapsedTime(&milliseconds, start, end);
    *out_nanoseconds = (int64_t)((double)milliseconds * 1e6);
    return leave(pushed, code);
}

/* -------------------------------------------------------------- graphs -- */

/* Relaxed: the thread takes memory and loads kernels while it captures. */
static int capture_begin(void *word, void *stream)
{
    ON_DEVICE(
        word,
        (cuda_blas_prepare(word, stream), cuda_dnn_prepare(word, stream),
         cuda.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED)));
}

static int capture_end(void *word, void *stream, void **out_graph)
{
    CUgraph graph = NULL;
    CUgraphExec ready = NULL;
    EACH_DEVICE((context *)word, pushed, code);

    if (code == 0)
        code = cuda.StreamEndCapture(stream, &graph);
    if (code == 0 && out_graph != NULL)
        code = cuda.GraphInstantiate(&ready, graph, 0);
    if (graph != NULL)
        cuda.GraphDestroy(graph);
    if (out_graph != NULL)
        *out_graph = ready;
    return leave(pushed, code);
}

static int graph_launch(void *word, void *graph, void *stream)
{
    ON_DEVICE(word, cuda.GraphLaunch(graph, stream));
}

static int graph_destroy(void *word, void *graph)
{
    ON_DEVICE(word, cuda.GraphExecDestroy(graph));
}

/* --------------------------------------------------------------- peers -- */

static int peer_can(void *word, void *other, uint32_t *out_yes)
{
    const context *c = word, *from = other;
    int can = 0, code;

    *out_yes = 0;
    if (c->device == from->device)
        return 0;
    code = cuda.DeviceCanAccessPeer(&can, c->device, from->device);
    *out_yes = code == 0 && can;
    return code;
}

/* Without access the driver takes what it copies through the host.  Where it
 * was enabled before, or cannot be, the call says so, and it copies all the
 * same. */
static int copy_from_peer(const context *c, const context *source, void *stream,
                          void *to, const void *from, uint64_t size)
{
    (void)cuda.CtxEnablePeerAccess(source->handle, 0);
    return cuda.MemcpyPeerAsync(POINTER(to), c->handle, POINTER(from),
                                source->handle, size, stream);
}

static int peer_copy(void *word, void *stream, void *to, void *from_context,
                     const void *from, uint64_t size)
{
    ON_DEVICE(word, copy_from_peer(word, from_context, stream, to, from, size));
}

/* ------------------------------------------------------------- kernels -- */

static int module_load(void *word, const void *image, void **out_module)
{
    RELAXED_ON_DEVICE(word, cuda.ModuleLoadData((CUmodule *)out_module, image));
}

static int module_unload(void *word, void *module)
{
    RELAXED_ON_DEVICE(word, cuda.ModuleUnload(module));
}

static int function_find(void *word, void *module, const char *name,
                         void **out_function)
{
    RELAXED_ON_DEVICE(
        word, cuda.ModuleGetFunction((CUfunction *)out_function, module, name));
}

static int launch(void *word, void *stream, void *function,
                  const uint32_t grid[3], const uint32_t block[3],
                  uint32_t shared_bytes, const void *parameters, size_t size)
{
    void *given[1] = {(void *)(uintptr_t)parameters};

    (void)size;
    ON_DEVICE(word, cuda.LaunchKernel(function, grid[0], grid[1], grid[2],
                                      block[0], block[1], block[2],
                                      shared_bytes, stream, given, NULL));
}

static int multiply(void *word, void *stream, const gpu_gemm *g)
{
    ON_DEVICE(word, cuda_blas_multiply(word, stream, g));
}

static int convolve_ask(void *word, void *stream, gpu_convolution *g)
{
    ON_DEVICE(word, cuda_dnn_ask(word, stream, g));
}

static int convolve(void *word, void *stream, const gpu_convolution *g)
{
    ON_DEVICE(word, cuda_dnn_convolve(word, stream, g));
}

/* ------------------------------------------------------------- records -- */

static int trace_start(void *word, gpu_tell tell, void *told)
{
    ON_DEVICE(word, cuda_trace_start(((context *)word)->device, tell, told));
}

static int trace_stop(void *word)
{
    ON_DEVICE(word, cuda_trace_stop(((context *)word)->device));
}

extern const gpu_driver cuda_driver;
const gpu_driver cuda_driver = {
    .component = "cuda",
    .find = find,
    .failure = cuda_failure,
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
    .gate_create = gate_create,
    .gate_destroy = gate_destroy,
    .stream_gate = stream_gate,
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
    .virtual_granularity = virtual_granularity,
    .virtual_reserve = virtual_reserve,
    .virtual_release = virtual_release,
    .virtual_map = virtual_map,
    .virtual_unmap = virtual_unmap,
    .module_load = module_load,
    .module_unload = module_unload,
    .function_find = function_find,
    .launch = launch,
    .multiply = multiply,
    .multiply_workspace = CUDA_BLAS_WORKSPACE,
    .scaled_ask = cuda_lt_ask,
    .scaled = cuda_lt_multiply,
    .convolve_ask = convolve_ask,
    .convolve = convolve,
    .trace_start = trace_start,
    .trace_stop = trace_stop,
    .trace_correlate = cuda_trace_correlate,
    .trace_clock = cuda_trace_clock,
    .range_shown = cuda_range_shown,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
};
