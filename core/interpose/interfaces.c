/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrappers of a plugin's optional interfaces.  Interfaces that this libcore
 * does not know are between the plugin and the program that requests them by
 * name: they are not wrapped. */

#include "base/memory.h"
#include "interpose/interposer.h"

#include <string.h>

#define REAL(device) (&(device)->backend->interfaces)

static core_status enter(interposer_call *call, const interposer_device *device,
                         const char *slot, interposer_kind kind)
{
    return interposer_enter(call, device->backend->interposers,
                            device->backend->type, slot, kind);
}

static void *handle_of(const interposer_device *device, void *other)
{
    interposer_device *found;

    return interposer_device_handle(device->backend->interposers, other,
                                    &found);
}

/* -------------------------------------------------------------- timing -- */

static core_status elapsed(void *handle, void *start, void *end, int64_t *out)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "timing.elapsed", INTERPOSER_INTERFACE));
    if (interposer_uses(&call, INTERPOSER_EVENT_OBJECT, device, start, true) &&
        interposer_uses(&call, INTERPOSER_EVENT_OBJECT, device, end, true))
        status = REAL(device)->timing.elapsed(device->impl, start, end, out);
    return interposer_leave(&call, status, "%p, %p, %p -> %lld ns",
                            device->impl, start, end, (long long)*out);
}

/* ----------------------------------------------------------- callbacks -- */

typedef struct interposer_callback {
    struct interposer_callback *next;
    core__interposers *interposers;
    interposer_device *device;
    void (*function)(void *context);
    void (*drop)(void *context);
    void *context;
    _Atomic uint32_t ends;
} interposer_callback;

/* A callback ends once.  A second end is reported and calls nothing.  The
 * record stays allocated as long as the plugin, so that a second end can be
 * detected. */
static void callback_end(void *context, bool runs)
{
    interposer_callback *callback = context;
    interposer_call call;

    interposer_enter(&call, callback->interposers,
                     callback->device->backend->type,
                     runs ? "host_callback.function" : "host_callback.drop",
                     INTERPOSER_NEVER);
    call.to_host = true;
    if (atomic_fetch_add(&callback->ends, 1) > 0) {
        interposer_violation(&call, "ends a callback twice");
    } else if (runs) {
        interposer_in_callback = true;
        callback->function(callback->context);
        interposer_in_callback = false;
    } else if (callback->drop) {
        callback->drop(callback->context);
    }
    interposer_leave_void(&call, "%p", callback->context);
}

static void callback_run(void *context)
{
    callback_end(context, true);
}

static void callback_drop(void *context)
{
    callback_end(context, false);
}

void interposer_callbacks_free(core__interposers *interposers)
{
    while (interposers->callbacks) {
        interposer_callback *next = interposers->callbacks->next;

        core__free(interposers->callbacks);
        interposers->callbacks = next;
    }
}

static core_status callback_enqueue(void *handle, void *stream,
                                    void (*function)(void *context),
                                    void *context, void (*drop)(void *context))
{
    interposer_device *device = handle;
    interposer_callback *callback;
    interposer_call call;
    core_status status = CORE_OK;

    callback = core__alloc_zero(sizeof *callback);
    if (!callback)
        status = core__error_memory(sizeof *callback);
    if (status == CORE_OK)
        status =
            enter(&call, device, "host_callback.enqueue", INTERPOSER_INTERFACE);
    if (status != CORE_OK) {
        core__free(callback);
        if (drop)
            drop(context);
        return status;
    }
    callback->interposers = device->backend->interposers;
    callback->device = device;
    callback->function = function;
    callback->drop = drop;
    callback->context = context;
    interposer_lock(call.interposers);
    callback->next = call.interposers->callbacks;
    call.interposers->callbacks = callback;
    pthread_mutex_unlock(&call.interposers->lock);
    interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream, true);
    status = REAL(device)->host_callback.enqueue(
        device->impl, stream, callback_run, callback, callback_drop);
    if (status != CORE_OK && atomic_load(&callback->ends) == 0 &&
        interposer_validates(call.interposers)) {
        interposer_violation(&call, "fails and does not drop the callback");
        callback_drop(callback);
    }
    return interposer_leave(&call, status, "%p, %p, %p", device->impl, stream,
                            context);
}

/* --------------------------------------------------------- host memory -- */

static core_status host_alloc(void *handle, uint64_t size, void **out_data)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    *out_data = NULL;
    CORE_TRY(enter(&call, device, "host_memory.alloc", INTERPOSER_ALLOC));
    status = REAL(device)->host_memory.alloc(device->impl, size, out_data);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_HOST_OBJECT, device, *out_data, 0,
                           size);
    return interposer_leave(&call, status, "%p, %llu -> %p", device->impl,
                            (unsigned long long)size, *out_data);
}

static void host_free(void *handle, void *data, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "host_memory.free", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_HOST_OBJECT, device, data, 0,
                            size))
        REAL(device)->host_memory.free(device->impl, data, size);
    interposer_leave_void(&call, "%p, %p, %llu", device->impl, data,
                          (unsigned long long)size);
}

static core_status host_register(void *handle, void *data, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(
        enter(&call, device, "host_memory.register_memory", INTERPOSER_ALLOC));
    status =
        REAL(device)->host_memory.register_memory(device->impl, data, size);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_HOST_OBJECT, device, data, 0,
                           size);
    return interposer_leave(&call, status, "%p, %p, %llu", device->impl, data,
                            (unsigned long long)size);
}

static void host_unregister(void *handle, void *data, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "host_memory.unregister_memory", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_HOST_OBJECT, device, data, 0,
                            size))
        REAL(device)->host_memory.unregister_memory(device->impl, data, size);
    interposer_leave_void(&call, "%p, %p, %llu", device->impl, data,
                          (unsigned long long)size);
}

/* ------------------------------------------------------------- streams -- */

static core_status adopt(void *handle, void *native, void **out_stream)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    *out_stream = NULL;
    CORE_TRY(enter(&call, device, "stream_adopt.adopt", INTERPOSER_STREAM));
    status = REAL(device)->stream_adopt.adopt(device->impl, native, out_stream);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_STREAM_OBJECT, device, *out_stream,
                           0, 0);
    return interposer_leave(&call, status, "%p, %p -> %p", device->impl, native,
                            *out_stream);
}

static core_status native(void *handle, void *stream, void **out_native)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "stream_adopt.native", INTERPOSER_INTERFACE));
    interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream, true);
    status =
        REAL(device)->stream_adopt.native(device->impl, stream, out_native);
    return interposer_leave(&call, status, "%p, %p", device->impl, stream);
}

static core_status priority_range(void *handle, int32_t *out_least,
                                  int32_t *out_greatest)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(
        enter(&call, device, "stream_priority.range", INTERPOSER_INTERFACE));
    status = REAL(device)->stream_priority.range(device->impl, out_least,
                                                 out_greatest);
    if (status == CORE_OK && interposer_validates(call.interposers) &&
        (*out_greatest > 0 || *out_least < 0))
        interposer_violation(
            &call, "reports priorities %d to %d, which do not include 0",
            *out_greatest, *out_least);
    return interposer_leave(&call, status, "%p -> %d to %d", device->impl,
                            *out_least, *out_greatest);
}

static core_status priority_create(void *handle, uint32_t flags,
                                   int32_t priority, void **out_stream)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    *out_stream = NULL;
    CORE_TRY(enter(&call, device, "stream_priority.create", INTERPOSER_STREAM));
    status = REAL(device)->stream_priority.create(device->impl, flags, priority,
                                                  out_stream);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_STREAM_OBJECT, device, *out_stream,
                           0, 0);
    return interposer_leave(&call, status, "%p, %d -> %p", device->impl,
                            priority, *out_stream);
}

/* ------------------------------------------------------ virtual memory -- */

static core_status vm_granularity(void *handle, uint64_t *out_bytes)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "virtual_memory.granularity",
                   INTERPOSER_INTERFACE));
    status = REAL(device)->virtual_memory.granularity(device->impl, out_bytes);
    return interposer_leave(&call, status, "%p -> %llu", device->impl,
                            (unsigned long long)*out_bytes);
}

static core_status vm_reserve(void *handle, uint64_t size, core_memory *out)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    *out = (core_memory){0};
    CORE_TRY(enter(&call, device, "virtual_memory.reserve", INTERPOSER_ALLOC));
    status = REAL(device)->virtual_memory.reserve(device->impl, size, out);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_MEMORY, device, out->handle,
                           out->offset, size);
    return interposer_leave(&call, status, "%p, %llu -> %p + %llu",
                            device->impl, (unsigned long long)size, out->handle,
                            (unsigned long long)out->offset);
}

static void vm_release(void *handle, core_memory memory, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "virtual_memory.release", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_MEMORY, device, memory.handle,
                            memory.offset, size))
        REAL(device)->virtual_memory.release(device->impl, memory, size);
    interposer_leave_void(&call, "%p, %p", device->impl, memory.handle);
}

static core_status vm_map(void *handle, core_memory memory, uint64_t offset,
                          uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;
    core_memory part = {memory.handle, memory.offset + offset};

    CORE_TRY(enter(&call, device, "virtual_memory.map", INTERPOSER_ALLOC));
    interposer_uses_memory(&call, device, part, size);
    status =
        REAL(device)->virtual_memory.map(device->impl, memory, offset, size);
    return interposer_leave(&call, status, "%p, %p, %llu, %llu", device->impl,
                            memory.handle, (unsigned long long)offset,
                            (unsigned long long)size);
}

static void vm_unmap(void *handle, core_memory memory, uint64_t offset,
                     uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "virtual_memory.unmap", INTERPOSER_NEVER);
    REAL(device)->virtual_memory.unmap(device->impl, memory, offset, size);
    interposer_leave_void(&call, "%p, %p, %llu, %llu", device->impl,
                          memory.handle, (unsigned long long)offset,
                          (unsigned long long)size);
}

/* --------------------------------------------------------------- peers -- */

static core_status can_access(void *handle, void *other, uint32_t *out_yes)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "peer.can_access", INTERPOSER_INTERFACE));
    status = REAL(device)->peer.can_access(device->impl,
                                           handle_of(device, other), out_yes);
    return interposer_leave(&call, status, "%p -> %u", device->impl, *out_yes);
}

static core_status peer_copy(void *handle, void *stream, core_memory to,
                             void *from_device, core_memory from, uint64_t size)
{
    interposer_device *device = handle, *source;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;
    void *real = interposer_device_handle(device->backend->interposers,
                                          from_device, &source);

    CORE_TRY(enter(&call, device, "peer.copy", INTERPOSER_COPY));
    interposer_uses_memory(&call, device, to, size);
    interposer_uses_memory(&call, source, from, size);
    if (!call.violated)
        status =
            REAL(device)->peer.copy(device->impl, stream, to, real, from, size);
    return interposer_leave(
        &call, status, "%p, %p, %p + %llu, %p, %p + %llu, %llu", device->impl,
        stream, to.handle, (unsigned long long)to.offset, real, from.handle,
        (unsigned long long)from.offset, (unsigned long long)size);
}

/* ------------------------------------------------------------- capture -- */

static core_status capture_begin(void *handle, void *stream)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "graph_capture.begin", INTERPOSER_INTERFACE));
    interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream, true);
    status = REAL(device)->graph_capture.begin(device->impl, stream);
    if (status == CORE_OK)
        interposer_captures(&call, device, stream, true);
    return interposer_leave(&call, status, "%p, %p", device->impl, stream);
}

static core_status capture_end(void *handle, void *stream, void **out_graph)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    /* A capture must end, so this never fails before the call. */
    enter(&call, device, "graph_capture.end", INTERPOSER_NEVER);
    interposer_captures(&call, device, stream, false);
    status = REAL(device)->graph_capture.end(device->impl, stream, out_graph);
    if (status == CORE_OK && out_graph)
        interposer_created(&call, INTERPOSER_GRAPH_OBJECT, device, *out_graph,
                           0, 0);
    return interposer_leave(&call, status, "%p, %p -> %p", device->impl, stream,
                            out_graph ? *out_graph : NULL);
}

static core_status graph_launch(void *handle, void *graph, void *stream)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "graph_capture.launch", INTERPOSER_LAUNCH));
    if (interposer_uses(&call, INTERPOSER_GRAPH_OBJECT, device, graph, true) &&
        interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream, true))
        status =
            REAL(device)->graph_capture.launch(device->impl, graph, stream);
    return interposer_leave(&call, status, "%p, %p, %p", device->impl, graph,
                            stream);
}

static void graph_destroy(void *handle, void *graph)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "graph_capture.destroy", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_GRAPH_OBJECT, device, graph, 0,
                            0))
        REAL(device)->graph_capture.destroy(device->impl, graph);
    interposer_leave_void(&call, "%p, %p", device->impl, graph);
}

/* ------------------------------------------------ reset, stream errors -- */

static core_status reset(void *handle)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "device_reset.reset", INTERPOSER_INTERFACE));
    status = REAL(device)->device_reset.reset(device->impl);
    if (status == CORE_OK)
        interposer_objects_drop(device->backend->interposers, device);
    if (status == CORE_OK)
        atomic_store(&device->recording, false);
    return interposer_leave(&call, status, "%p", device->impl);
}

static core_status take(void *handle, void *stream, core_stream_error *out)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "stream_error.take", INTERPOSER_NEVER));
    interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream, true);
    status = REAL(device)->stream_error.take(device->impl, stream, out);
    return interposer_leave(&call, status, "%p, %p -> %d", device->impl, stream,
                            out->code);
}

/* ---------------------------------------------- what a device declares -- */

static core_status numerics_get(void *handle, core_numerics *out)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "numerics.get", INTERPOSER_INTERFACE));
    status = REAL(device)->numerics.get(device->impl, out);
    if (status == CORE_OK && interposer_validates(call.interposers) &&
        (out->product_bits > 24 || !(out->max_ulp >= 0)))
        interposer_violation(&call, "reports %u bits of products and %g ulp",
                             out->product_bits, out->max_ulp);
    return interposer_leave(&call, status, "%p -> %u bits, %g ulp",
                            device->impl, out->product_bits, out->max_ulp);
}

static double function_ulp(void *handle, core_string name, core_dtype dtype)
{
    interposer_device *device = handle;
    interposer_call call;
    double ulp;

    enter(&call, device, "numerics.function_ulp", INTERPOSER_NEVER);
    ulp = REAL(device)->numerics.function_ulp(device->impl, name, dtype);
    interposer_leave_void(&call, "%p, %.*s, %u -> %g", device->impl,
                          (int)name.size, name.data, dtype, ulp);
    return ulp;
}

static core_status measure(void *handle, uint32_t index, core_measurement *out)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    enter(&call, device, "telemetry.read", INTERPOSER_NEVER);
    status = REAL(device)->telemetry.read(device->impl, index, out);
    interposer_leave_void(&call, "%p, %u -> %d", device->impl, index, status);
    return status; /* the end of the list needs no message */
}

/* ------------------------------------------- memory managed by devices -- */

static core_status allocator_alloc(void *handle, void *stream, uint64_t size,
                                   core_memory *out)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    *out = (core_memory){0};
    CORE_TRY(enter(&call, device, "allocator.alloc", INTERPOSER_ALLOC));
    if (stream)
        interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream, true);
    status = REAL(device)->allocator.alloc(device->impl, stream, size, out);
    if (status == CORE_OK) {
        uint64_t address = (uint64_t)(uintptr_t)out->handle + out->offset;
        uint64_t start =
            device->flags & CORE_DEVICE_FLAT ? address : out->offset;

        interposer_created(&call, INTERPOSER_MEMORY, device, out->handle,
                           out->offset, size + device->tail_padding);
        if (interposer_validates(call.interposers) &&
            device->base_alignment > 1 && start % device->base_alignment != 0)
            interposer_violation(
                &call, "returns %p + %llu, which is not aligned to %llu",
                out->handle, (unsigned long long)out->offset,
                (unsigned long long)device->base_alignment);
    }
    return interposer_leave(&call, status, "%p, %p, %llu -> %p + %llu",
                            device->impl, stream, (unsigned long long)size,
                            out->handle, (unsigned long long)out->offset);
}

static void allocator_free(void *handle, void *stream, core_memory memory,
                           uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "allocator.free", INTERPOSER_NEVER);
    if (stream)
        interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream, true);
    if (interposer_destroys(&call, INTERPOSER_MEMORY, device, memory.handle,
                            memory.offset, size + device->tail_padding))
        REAL(device)->allocator.free(device->impl, stream, memory, size);
    interposer_leave_void(
        &call, "%p, %p, %p + %llu, %llu", device->impl, stream, memory.handle,
        (unsigned long long)memory.offset, (unsigned long long)size);
}

static core_status allocator_trim(void *handle)
{
    interposer_device *device = handle;
    interposer_call call;

    CORE_TRY(enter(&call, device, "allocator.trim", INTERPOSER_INTERFACE));
    return interposer_leave(&call, REAL(device)->allocator.trim(device->impl),
                            "%p", device->impl);
}

/* For a child of fork, in which the interposers' locks may be held. */
static void forked(void *handle)
{
    interposer_device *device = handle;

    REAL(device)->fork_safe.child(device->impl);
}

/* ------------------------------------------------------------ wrapping -- */

/* profiler.c has the others. */
static const core__interfaces wrappers = {
    .timing = {sizeof(core_timing_interface), 0, elapsed},
    .host_callback = {sizeof(core_host_callback_interface), 0,
                      callback_enqueue},
    .host_memory = {sizeof(core_host_memory_interface), 0, host_alloc,
                    host_free, host_register, host_unregister},
    .stream_adopt = {sizeof(core_stream_adopt_interface), 0, adopt, native},
    .stream_priority = {sizeof(core_stream_priority_interface), 0,
                        priority_range, priority_create},
    .virtual_memory = {sizeof(core_virtual_memory_interface), 0, vm_granularity,
                       vm_reserve, vm_release, vm_map, vm_unmap},
    .peer = {sizeof(core_peer_interface), 0, can_access, peer_copy},
    .graph_capture = {sizeof(core_graph_capture_interface), 0, capture_begin,
                      capture_end, graph_launch, graph_destroy},
    .device_reset = {sizeof(core_device_reset_interface), 0, reset},
    .stream_error = {sizeof(core_stream_error_interface), 0, take},
    .numerics = {sizeof(core_numerics_interface), 0, numerics_get,
                 function_ulp},
    .telemetry = {sizeof(core_telemetry_interface), 0, measure},
    .fork_safe = {sizeof(core_fork_safe_interface), 0, forked},
    .allocator = {sizeof(core_allocator_interface), 0, allocator_alloc,
                  allocator_free, allocator_trim},
};

/* Tables are struct_size, flags or reserved, and functions.  A function that the plugin
 * lacks is NULL in the wrapping table, too. */
static void wrap_table(void *real, void *wrapped, const void *wrapper,
                       size_t full, const void *from)
{
    uint32_t known;
    void *slot;

    memcpy(&known, from, sizeof known);
    memset(real, 0, full);
    memcpy(real, from, known < full ? known : full);
    memcpy(wrapped, wrapper, full);
    /* What follows struct_size: numbers, or reserved. */
    memcpy((char *)wrapped + 4, (const char *)real + 4, 4);
    for (size_t at = 8; at + sizeof slot <= full; at += sizeof slot) {
        memcpy(&slot, (const char *)real + at, sizeof slot);
        if (!slot)
            memset((char *)wrapped + at, 0, sizeof slot);
    }
}

const void *interposer_get_interface(void *user, core_string name,
                                     uint32_t version)
{
    interposer_backend *backend = user;
    core__interfaces *real = &backend->interfaces;
    core__interfaces *wrapped = &backend->wrapped_interfaces;
#define OTHER(field)                                                        \
    {                                                                       \
        "core." #field, &real->field, &wrapped->field, &interposer_##field, \
            sizeof real->field                                              \
    }
    const struct {
        const char *name;
        void *real, *wrapped;
        const void *wrapper;
        size_t size;
    } rows[] = {
#define ROW(field)                                                   \
    {"core." #field, &real->field, &wrapped->field, &wrappers.field, \
     sizeof real->field}
        ROW(timing),
        ROW(host_callback),
        ROW(host_memory),
        ROW(stream_adopt),
        ROW(stream_priority),
        ROW(virtual_memory),
        ROW(peer),
        ROW(graph_capture),
        ROW(device_reset),
        ROW(stream_error),
        ROW(numerics),
        ROW(telemetry),
        ROW(fork_safe),
        ROW(allocator),
        OTHER(profiler),
        OTHER(layout),
        OTHER(ranges),
        OTHER(ipc),
        OTHER(codegen),
        {"core.hotplug", &backend->hotplug, &backend->wrapped_hotplug,
         &interposer_hotplug, sizeof backend->hotplug},
#undef ROW
#undef OTHER
    };
    interposer_call call;
    const void *table;

    interposer_enter(&call, backend->interposers, backend->type,
                     "get_interface", INTERPOSER_NEVER);
    table = backend->real.get_interface(backend->real.user, name, version);
    for (size_t i = 0; table && i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == name.size &&
            memcmp(rows[i].name, name.data, name.size) == 0) {
            wrap_table(rows[i].real, rows[i].wrapped, rows[i].wrapper,
                       rows[i].size, table);
            table = rows[i].wrapped;
        }
    interposer_leave_void(&call, "%.*s, %u -> %p", (int)name.size, name.data,
                          version, table);
    return table;
}
