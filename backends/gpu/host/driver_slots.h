/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* driver_slots.h: the slots of gpu_driver whose calls differ between vendors only
 * in the names of types.  A vendor's driver.c includes it once, after its
 * api_names.h, which defines
 *
 *     GPU_API               the table of the library's functions; its fields have
 *                           the names used below
 *     gpu_api_…, GPU_API_…  the library's types and constants
 *
 * and after its type `context`, with the member `device`. */

#ifndef GPU_DRIVER_SLOTS_H
#define GPU_DRIVER_SLOTS_H

#include <gpu/driver.h>

/* Defined by the vendor.  `enter` makes the device the thread's current one;
 * `leave` restores *out_before.  Returns 0 or the driver's code. */
static int enter(const context *c, int *out_before);
static void leave(int before);

/* The code of a call made on the device of a context. */
#define ON_DEVICE(context_, call)                         \
    __extension__({                                       \
        int before_, code_ = enter((context_), &before_); \
                                                          \
        if (code_ == 0)                                   \
            code_ = (int)(call);                          \
        leave(before_);                                   \
        code_;                                            \
    })

/* The same for a call that may wait, allocate or load (capture_mode.h). */
#define RELAXED_ON_DEVICE(context_, call) ON_DEVICE(context_, RELAXED(call))
#define RELAXED(call)                                      \
    __extension__({                                        \
        gpu_api_capture_mode mode_ = gpu_captures_relax(); \
        int result_ = (int)(call);                         \
                                                           \
        gpu_captures_restore(mode_);                       \
        result_;                                           \
    })

static int use_begin(void *c, gpu_use *out_before)
{
    int code = enter(c, &out_before->device);

    if (code == 0)
        out_before->mode = (int)gpu_captures_relax();
    else
        leave(out_before->device);
    return code;
}

static void use_end(const gpu_use *before)
{
    gpu_captures_restore((gpu_api_capture_mode)before->mode);
    leave(before->device);
}

/* -------------------------------------------------------------- memory -- */

static int memory(void *c, uint64_t *out_free, uint64_t *out_total)
{
    size_t available = 0, total = 0;
    int code = ON_DEVICE(c, GPU_API.MemGetInfo(&available, &total));

    *out_free = available;
    *out_total = total;
    return code;
}

/* Any call returns a sticky error; this one does not wait. */
static int device_check(void *c)
{
    uint64_t available, total;

    return memory(c, &available, &total);
}

/* ------------------------------------------------------------- streams -- */

static int busy(int code)
{
    return code == GPU_API_NOT_READY ? GPU_BUSY : code;
}

static int stream_create(void *c, int32_t priority, void **out_stream)
{
    return RELAXED_ON_DEVICE(
        c, GPU_API.StreamCreateWithPriority((gpu_api_stream *)out_stream,
                                            GPU_API_NON_BLOCKING, priority));
}

static int stream_query(void *c, void *stream)
{
    return busy(RELAXED_ON_DEVICE(c, GPU_API.StreamQuery(stream)));
}

static int stream_is_capturing(void *c, void *stream, uint32_t *out_yes)
{
    gpu_api_capture_status status = GPU_API_NOT_CAPTURING;
    int code = ON_DEVICE(c, GPU_API.StreamIsCapturing(stream, &status));

    *out_yes = status != GPU_API_NOT_CAPTURING;
    return code;
}

static int stream_synchronize(void *c, void *stream)
{
    return RELAXED_ON_DEVICE(c, GPU_API.StreamSynchronize(stream));
}

static int stream_wait(void *c, void *stream, void *event)
{
    return ON_DEVICE(c, GPU_API.StreamWaitEvent(stream, event, 0));
}

/* -------------------------------------------------------------- events -- */

static int event_create(void *c, int kind, void **out_event)
{
    unsigned flags = (kind == GPU_EVENT_TIMING ? 0 : GPU_API_NO_TIMING) |
                     (kind == GPU_EVENT_SLEEPING ? GPU_API_BLOCKING_SYNC : 0);

    return ON_DEVICE(c, GPU_API.EventCreate((gpu_api_event *)out_event, flags));
}

static int event_destroy(void *c, void *event)
{
    return ON_DEVICE(c, GPU_API.EventDestroy(event));
}

static int event_record(void *c, void *event, void *stream)
{
    return ON_DEVICE(c, GPU_API.EventRecord(event, stream));
}

static int event_query(void *c, void *event)
{
    return busy(RELAXED_ON_DEVICE(c, GPU_API.EventQuery(event)));
}

static int event_synchronize(void *c, void *event)
{
    return RELAXED_ON_DEVICE(c, GPU_API.EventSynchronize(event));
}

static int event_elapsed(void *c, void *start, void *end,
                         int64_t *out_nanoseconds)
{
    float milliseconds = 0;
    int code =
        ON_DEVICE(c, GPU_API.EventElapsedTime(&milliseconds, start, end));

    *out_nanoseconds = (int64_t)((double)milliseconds * 1e6);
    return code;
}

/* -------------------------------------------------------------- graphs -- */

static int finish_capture(void *stream, void **out_graph)
{
    gpu_api_graph graph = NULL;
    gpu_api_graph_exec executable = NULL;
    int code = (int)GPU_API.StreamEndCapture(stream, &graph);

    if (code == 0 && out_graph != NULL)
        code = (int)GPU_API_INSTANTIATE(&executable, graph);
    if (graph != NULL)
        (void)GPU_API.GraphDestroy(graph);
    if (out_graph != NULL)
        *out_graph = executable;
    return code;
}

static int capture_end(void *c, void *stream, void **out_graph)
{
    if (out_graph != NULL)
        *out_graph = NULL;
    return ON_DEVICE(c, finish_capture(stream, out_graph));
}

static int graph_launch(void *c, void *graph, void *stream)
{
    return ON_DEVICE(c, GPU_API.GraphLaunch(graph, stream));
}

static int graph_destroy(void *c, void *graph)
{
    return ON_DEVICE(c, GPU_API.GraphExecDestroy(graph));
}

/* --------------------------------------------------------------- peers -- */

static int peer_accessible(void *c, void *other, uint32_t *out_yes)
{
    int device = ((const context *)c)->device;
    int from = ((const context *)other)->device;
    int can = 0, code;

    *out_yes = 0;
    if (device == from)
        return 0;
    code = (int)GPU_API.DeviceCanAccessPeer(&can, device, from);
    *out_yes = code == 0 && can;
    return code;
}

/* ------------------------------------------------------------- kernels -- */

static int module_load(void *c, const void *image, void **out_module)
{
    return RELAXED_ON_DEVICE(
        c, GPU_API.ModuleLoadData((gpu_api_module *)out_module, image));
}

static int module_unload(void *c, void *module)
{
    return RELAXED_ON_DEVICE(c, GPU_API.ModuleUnload(module));
}

static int function_find(void *c, void *module, const char *name,
                         void **out_function)
{
    return RELAXED_ON_DEVICE(
        c, GPU_API.ModuleGetFunction((gpu_api_function *)out_function, module,
                                     name));
}

static int launch(void *c, void *stream, void *function, const uint32_t grid[3],
                  const uint32_t block[3], uint32_t shared_bytes,
                  const void *parameters, size_t size)
{
    void *arguments[1] = {(void *)(uintptr_t)parameters};

    (void)size;
    return ON_DEVICE(c, GPU_API.LaunchKernel(function, grid[0], grid[1],
                                             grid[2], block[0], block[1],
                                             block[2], shared_bytes, stream,
                                             arguments, NULL));
}

/* The entries of these functions in the vendor's table. */
#define GPU_DRIVER_SLOTS                                                    \
    .device_check = device_check, .memory = memory,                         \
    .stream_create = stream_create, .stream_query = stream_query,           \
    .stream_is_capturing = stream_is_capturing,                             \
    .stream_synchronize = stream_synchronize, .stream_wait = stream_wait,   \
    .event_create = event_create, .event_destroy = event_destroy,           \
    .event_record = event_record, .event_query = event_query,               \
    .event_synchronize = event_synchronize, .event_elapsed = event_elapsed, \
    .capture_end = capture_end, .graph_launch = graph_launch,               \
    .graph_destroy = graph_destroy, .peer_accessible = peer_accessible,     \
    .module_load = module_load, .module_unload = module_unload,             \
    .function_find = function_find, .launch = launch

#endif
