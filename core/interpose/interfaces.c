/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin's optional interfaces.  Those that this libcore does not know are
 * between the plugin and the program that asks for them by name: they stay as
 * they are. */

#include "base/memory.h"
#include "interpose/interposer.h"

#include <string.h>

#define REAL(device) (&(device)->backend->interfaces)

static core_status enter(layer_call *call, const layer_device *device,
                         const char *slot, layer_kind kind)
{
    return layer_enter(call, device->backend->layers, device->backend->type,
                       slot, kind);
}

static void *word_of(const layer_device *device, void *other)
{
    layer_device *found;

    return layer_device_word(device->backend->layers, other, &found);
}

/* ---------------------------------------------------------------- timing -- */

static core_status elapsed(void *word, void *start, void *end, int64_t *out)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "timing.elapsed", LAYER_INTERFACE));
    if (layer_uses(&call, LAYER_EVENT_OBJECT, device, start, true) &&
        layer_uses(&call, LAYER_EVENT_OBJECT, device, end, true))
        status = REAL(device)->timing.elapsed(device->impl, start, end, out);
    return layer_leave(&call, status, "%p, %p, %p -> %lld ns", device->impl,
                       start, end, (long long)*out);
}

/* ------------------------------------------------------------- callbacks -- */

typedef struct layer_callback {
    struct layer_callback *next;
    core__layers *layers;
    layer_device *device;
    void (*function)(void *context);
    void (*drop)(void *context);
    void *context;
    _Atomic uint32_t ends;
} layer_callback;

/* Once, and no more: who comes second is told, and calls nothing.  It stays in
 * memory for the sake of that, as long as the plugin. */
static void callback_end(void *context, bool runs)
{
    layer_callback *callback = context;
    layer_call call;

    layer_enter(&call, callback->layers, callback->device->backend->type,
                runs ? "host_callback.function" : "host_callback.drop",
                LAYER_NEVER);
    call.outwards = true;
    if (atomic_fetch_add(&callback->ends, 1) > 0) {
        layer_breach(&call, "the callback's end comes a second time");
    } else if (runs) {
        layer_in_callback = true;
        callback->function(callback->context);
        layer_in_callback = false;
    } else if (callback->drop) {
        callback->drop(callback->context);
    }
    layer_leave_void(&call, "%p", callback->context);
}

static void callback_run(void *context)
{
    callback_end(context, true);
}

static void callback_drop(void *context)
{
    callback_end(context, false);
}

void layer_callbacks_free(core__layers *layers)
{
    while (layers->callbacks) {
        layer_callback *next = layers->callbacks->next;

        core__free(layers->callbacks);
        layers->callbacks = next;
    }
}

static core_status callback_enqueue(void *word, void *stream,
                                    void (*function)(void *context),
                                    void *context, void (*drop)(void *context))
{
    layer_device *device = word;
    layer_callback *callback;
    layer_call call;
    core_status status = CORE_OK;

    callback = core__alloc_zero(sizeof *callback);
    if (!callback)
        status = core__error_memory(sizeof *callback);
    if (status == CORE_OK)
        status = enter(&call, device, "host_callback.enqueue", LAYER_INTERFACE);
    if (status != CORE_OK) {
        core__free(callback);
        if (drop)
            drop(context);
        return status;
    }
    callback->layers = device->backend->layers;
    callback->device = device;
    callback->function = function;
    callback->drop = drop;
    callback->context = context;
    layer_lock(call.layers);
    callback->next = call.layers->callbacks;
    call.layers->callbacks = callback;
    pthread_mutex_unlock(&call.layers->lock);
    layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true);
    status = REAL(device)->host_callback.enqueue(
        device->impl, stream, callback_run, callback, callback_drop);
    if (status != CORE_OK && atomic_load(&callback->ends) == 0 &&
        layer_validates(call.layers)) {
        layer_breach(&call, "fails and does not drop the callback");
        callback_drop(callback);
    }
    return layer_leave(&call, status, "%p, %p, %p", device->impl, stream,
                       context);
}

/* ----------------------------------------------------------- host memory -- */

static core_status host_alloc(void *word, uint64_t size, void **out_data)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    *out_data = NULL;
    CORE_TRY(enter(&call, device, "host_memory.alloc", LAYER_ALLOC));
    status = REAL(device)->host_memory.alloc(device->impl, size, out_data);
    if (status == CORE_OK && !*out_data && layer_validates(call.layers))
        layer_breach(&call, "gives NULL");
    else if (status == CORE_OK)
        layer_made(&call, LAYER_HOST_OBJECT, device, *out_data, 0, size);
    return layer_leave(&call, status, "%p, %llu -> %p", device->impl,
                       (unsigned long long)size, *out_data);
}

static void host_free(void *word, void *data, uint64_t size)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "host_memory.free", LAYER_NEVER);
    if (layer_destroys(&call, LAYER_HOST_OBJECT, device, data, 0, size))
        REAL(device)->host_memory.free(device->impl, data, size);
    layer_leave_void(&call, "%p, %p, %llu", device->impl, data,
                     (unsigned long long)size);
}

/* --------------------------------------------------------------- streams -- */

static core_status adopt(void *word, void *native, void **out_stream)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    *out_stream = NULL;
    CORE_TRY(enter(&call, device, "stream_adopt.adopt", LAYER_STREAM));
    status = REAL(device)->stream_adopt.adopt(device->impl, native, out_stream);
    if (status == CORE_OK)
        layer_made(&call, LAYER_STREAM_OBJECT, device, *out_stream, 0, 0);
    return layer_leave(&call, status, "%p, %p -> %p", device->impl, native,
                       *out_stream);
}

static core_status native(void *word, void *stream, void **out_native)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "stream_adopt.native", LAYER_INTERFACE));
    layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true);
    status =
        REAL(device)->stream_adopt.native(device->impl, stream, out_native);
    return layer_leave(&call, status, "%p, %p", device->impl, stream);
}

static core_status priority_range(void *word, int32_t *out_least,
                                  int32_t *out_greatest)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "stream_priority.range", LAYER_INTERFACE));
    status = REAL(device)->stream_priority.range(device->impl, out_least,
                                                 out_greatest);
    if (status == CORE_OK && layer_validates(call.layers) &&
        (*out_greatest > 0 || *out_least < 0))
        layer_breach(&call, "has priorities %d to %d, which leave out 0",
                     *out_greatest, *out_least);
    return layer_leave(&call, status, "%p -> %d to %d", device->impl,
                       *out_least, *out_greatest);
}

static core_status priority_create(void *word, uint32_t flags, int32_t priority,
                                   void **out_stream)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    *out_stream = NULL;
    CORE_TRY(enter(&call, device, "stream_priority.create", LAYER_STREAM));
    status = REAL(device)->stream_priority.create(device->impl, flags, priority,
                                                  out_stream);
    if (status == CORE_OK)
        layer_made(&call, LAYER_STREAM_OBJECT, device, *out_stream, 0, 0);
    return layer_leave(&call, status, "%p, %d -> %p", device->impl, priority,
                       *out_stream);
}

/* -------------------------------------------------------- virtual memory -- */

static core_status vm_granularity(void *word, uint64_t *out_bytes)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(
        enter(&call, device, "virtual_memory.granularity", LAYER_INTERFACE));
    status = REAL(device)->virtual_memory.granularity(device->impl, out_bytes);
    return layer_leave(&call, status, "%p -> %llu", device->impl,
                       (unsigned long long)*out_bytes);
}

static core_status vm_reserve(void *word, uint64_t size, core_memory *out)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    *out = (core_memory){0};
    CORE_TRY(enter(&call, device, "virtual_memory.reserve", LAYER_ALLOC));
    status = REAL(device)->virtual_memory.reserve(device->impl, size, out);
    if (status == CORE_OK)
        layer_made(&call, LAYER_MEMORY, device, out->handle, out->offset, size);
    return layer_leave(&call, status, "%p, %llu -> %p + %llu", device->impl,
                       (unsigned long long)size, out->handle,
                       (unsigned long long)out->offset);
}

static void vm_release(void *word, core_memory memory, uint64_t size)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "virtual_memory.release", LAYER_NEVER);
    if (layer_destroys(&call, LAYER_MEMORY, device, memory.handle,
                       memory.offset, size))
        REAL(device)->virtual_memory.release(device->impl, memory, size);
    layer_leave_void(&call, "%p, %p", device->impl, memory.handle);
}

static core_status vm_map(void *word, core_memory memory, uint64_t offset,
                          uint64_t size)
{
    layer_device *device = word;
    layer_call call;
    core_status status;
    core_memory part = {memory.handle, memory.offset + offset};

    CORE_TRY(enter(&call, device, "virtual_memory.map", LAYER_ALLOC));
    layer_uses_memory(&call, device, part, size);
    status =
        REAL(device)->virtual_memory.map(device->impl, memory, offset, size);
    return layer_leave(&call, status, "%p, %p, %llu, %llu", device->impl,
                       memory.handle, (unsigned long long)offset,
                       (unsigned long long)size);
}

static void vm_unmap(void *word, core_memory memory, uint64_t offset,
                     uint64_t size)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "virtual_memory.unmap", LAYER_NEVER);
    REAL(device)->virtual_memory.unmap(device->impl, memory, offset, size);
    layer_leave_void(&call, "%p, %p, %llu, %llu", device->impl, memory.handle,
                     (unsigned long long)offset, (unsigned long long)size);
}

/* ------------------------------------------------------------------ peers -- */

static core_status can_access(void *word, void *other, uint32_t *out_yes)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "peer.can_access", LAYER_INTERFACE));
    status = REAL(device)->peer.can_access(device->impl, word_of(device, other),
                                           out_yes);
    return layer_leave(&call, status, "%p -> %u", device->impl, *out_yes);
}

static core_status peer_copy(void *word, void *stream, core_memory to,
                             void *from_device, core_memory from, uint64_t size)
{
    layer_device *device = word, *source;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;
    void *real =
        layer_device_word(device->backend->layers, from_device, &source);

    CORE_TRY(enter(&call, device, "peer.copy", LAYER_COPY));
    layer_uses_memory(&call, device, to, size);
    layer_uses_memory(&call, source, from, size);
    if (!call.broken)
        status =
            REAL(device)->peer.copy(device->impl, stream, to, real, from, size);
    return layer_leave(
        &call, status, "%p, %p, %p + %llu, %p, %p + %llu, %llu", device->impl,
        stream, to.handle, (unsigned long long)to.offset, real, from.handle,
        (unsigned long long)from.offset, (unsigned long long)size);
}

/* ---------------------------------------------------------------- capture -- */

static core_status capture_begin(void *word, void *stream)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "graph_capture.begin", LAYER_INTERFACE));
    layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true);
    status = REAL(device)->graph_capture.begin(device->impl, stream);
    if (status == CORE_OK)
        layer_captures(&call, device, stream, true);
    return layer_leave(&call, status, "%p, %p", device->impl, stream);
}

static core_status capture_end(void *word, void *stream, void **out_graph)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    /* It must end, so it is never failed before it is made. */
    enter(&call, device, "graph_capture.end", LAYER_NEVER);
    layer_captures(&call, device, stream, false);
    status = REAL(device)->graph_capture.end(device->impl, stream, out_graph);
    if (status == CORE_OK && out_graph)
        layer_made(&call, LAYER_GRAPH_OBJECT, device, *out_graph, 0, 0);
    return layer_leave(&call, status, "%p, %p -> %p", device->impl, stream,
                       out_graph ? *out_graph : NULL);
}

static core_status graph_launch(void *word, void *graph, void *stream)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "graph_capture.launch", LAYER_LAUNCH));
    if (layer_uses(&call, LAYER_GRAPH_OBJECT, device, graph, true) &&
        layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true))
        status =
            REAL(device)->graph_capture.launch(device->impl, graph, stream);
    return layer_leave(&call, status, "%p, %p, %p", device->impl, graph,
                       stream);
}

static void graph_destroy(void *word, void *graph)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "graph_capture.destroy", LAYER_NEVER);
    if (layer_destroys(&call, LAYER_GRAPH_OBJECT, device, graph, 0, 0))
        REAL(device)->graph_capture.destroy(device->impl, graph);
    layer_leave_void(&call, "%p, %p", device->impl, graph);
}

/* ----------------------------------------------------------- reset, words -- */

static core_status reset(void *word)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "device_reset.reset", LAYER_INTERFACE));
    status = REAL(device)->device_reset.reset(device->impl);
    if (status == CORE_OK)
        layer_forget(device->backend->layers, device);
    if (status == CORE_OK)
        atomic_store(&device->recording, false);
    return layer_leave(&call, status, "%p", device->impl);
}

static core_status take(void *word, void *stream, core_stream_error *out)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "stream_error.take", LAYER_NEVER));
    layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true);
    status = REAL(device)->stream_error.take(device->impl, stream, out);
    return layer_leave(&call, status, "%p, %p -> %d", device->impl, stream,
                       out->code);
}

/* ------------------------------------------------- what a device declares -- */

static core_status numerics_get(void *word, core_numerics *out)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "numerics.get", LAYER_INTERFACE));
    status = REAL(device)->numerics.get(device->impl, out);
    if (status == CORE_OK && layer_validates(call.layers) &&
        (out->product_bits > 24 || !(out->max_ulp >= 0)))
        layer_breach(&call, "gives %u bits of products and %g ulp",
                     out->product_bits, out->max_ulp);
    return layer_leave(&call, status, "%p -> %u bits, %g ulp", device->impl,
                       out->product_bits, out->max_ulp);
}

static double function_ulp(void *word, core_string name, core_dtype dtype)
{
    layer_device *device = word;
    layer_call call;
    double ulp;

    enter(&call, device, "numerics.function_ulp", LAYER_NEVER);
    ulp = REAL(device)->numerics.function_ulp(device->impl, name, dtype);
    layer_leave_void(&call, "%p, %.*s, %u -> %g", device->impl, (int)name.size,
                     name.data, dtype, ulp);
    return ulp;
}

static core_status measure(void *word, uint32_t index, core_measurement *out)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    enter(&call, device, "telemetry.read", LAYER_NEVER);
    status = REAL(device)->telemetry.read(device->impl, index, out);
    layer_leave_void(&call, "%p, %u -> %d", device->impl, index, status);
    return status; /* that there is no more needs no words */
}

/* ------------------------------------------------- memory kept by devices -- */

static core_status own_alloc(void *word, void *stream, uint64_t size,
                             core_memory *out)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    *out = (core_memory){0};
    CORE_TRY(enter(&call, device, "allocator.alloc", LAYER_ALLOC));
    if (stream)
        layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true);
    status = REAL(device)->allocator.alloc(device->impl, stream, size, out);
    if (status == CORE_OK) {
        uint64_t address = (uint64_t)(uintptr_t)out->handle + out->offset;
        uint64_t start =
            device->flags & CORE_DEVICE_FLAT ? address : out->offset;

        layer_made(&call, LAYER_MEMORY, device, out->handle, out->offset,
                   size + device->tail_padding);
        if (layer_validates(call.layers) && device->base_alignment > 1 &&
            start % device->base_alignment != 0)
            layer_breach(&call, "gives %p + %llu, which is not aligned to %llu",
                         out->handle, (unsigned long long)out->offset,
                         (unsigned long long)device->base_alignment);
    }
    return layer_leave(&call, status, "%p, %p, %llu -> %p + %llu", device->impl,
                       stream, (unsigned long long)size, out->handle,
                       (unsigned long long)out->offset);
}

static void own_free(void *word, void *stream, core_memory memory,
                     uint64_t size)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "allocator.free", LAYER_NEVER);
    if (stream)
        layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true);
    if (layer_destroys(&call, LAYER_MEMORY, device, memory.handle,
                       memory.offset, size + device->tail_padding))
        REAL(device)->allocator.free(device->impl, stream, memory, size);
    layer_leave_void(&call, "%p, %p, %p + %llu, %llu", device->impl, stream,
                     memory.handle, (unsigned long long)memory.offset,
                     (unsigned long long)size);
}

static core_status own_trim(void *word)
{
    layer_device *device = word;
    layer_call call;

    CORE_TRY(enter(&call, device, "allocator.trim", LAYER_INTERFACE));
    return layer_leave(&call, REAL(device)->allocator.trim(device->impl), "%p",
                       device->impl);
}

/* In a child of fork, where the layers' own locks may be held. */
static void forked(void *word)
{
    layer_device *device = word;

    REAL(device)->fork_safe.child(device->impl);
}

/* --------------------------------------------------------------- wrapping -- */

/* profiler.c has the rest. */
static const core__interfaces wrappers = {
    .timing = {sizeof(core_timing_interface), 0, elapsed},
    .host_callback = {sizeof(core_host_callback_interface), 0,
                      callback_enqueue},
    .host_memory = {sizeof(core_host_memory_interface), 0, host_alloc,
                    host_free},
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
    .allocator = {sizeof(core_allocator_interface), 0, own_alloc, own_free,
                  own_trim},
};

/* Tables are struct_size, reserved, and functions: one that the plugin lacks
 * is lacking in what stands for it. */
static void wrap_table(void *real, void *wrapped, const void *wrapper,
                       size_t full, const void *from)
{
    uint32_t known;
    void *slot;

    memcpy(&known, from, sizeof known);
    memset(real, 0, full);
    memcpy(real, from, known < full ? known : full);
    memcpy(wrapped, wrapper, full);
    for (size_t at = 8; at + sizeof slot <= full; at += sizeof slot) {
        memcpy(&slot, (const char *)real + at, sizeof slot);
        if (!slot)
            memset((char *)wrapped + at, 0, sizeof slot);
    }
}

const void *layer_get_interface(void *user, core_string name, uint32_t version)
{
    layer_backend *backend = user;
    core__interfaces *real = &backend->interfaces;
    core__interfaces *wrapped = &backend->wrapped_interfaces;
#define OTHER(field)                                                   \
    {                                                                  \
        "core." #field, &real->field, &wrapped->field, &layer_##field, \
            sizeof real->field                                         \
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
        ROW(timing),       ROW(host_callback),   ROW(host_memory),
        ROW(stream_adopt), ROW(stream_priority), ROW(virtual_memory),
        ROW(peer),         ROW(graph_capture),   ROW(device_reset),
        ROW(stream_error), ROW(numerics),        ROW(telemetry),
        ROW(fork_safe),    ROW(allocator),       OTHER(profiler),
        OTHER(layout),     OTHER(ranges),
#undef ROW
#undef OTHER
    };
    layer_call call;
    const void *table;

    layer_enter(&call, backend->layers, backend->type, "get_interface",
                LAYER_NEVER);
    table = backend->real.get_interface(backend->real.user, name, version);
    for (size_t i = 0; table && i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == name.size &&
            memcmp(rows[i].name, name.data, name.size) == 0) {
            wrap_table(rows[i].real, rows[i].wrapped, rows[i].wrapper,
                       rows[i].size, table);
            table = rows[i].wrapped;
        }
    layer_leave_void(&call, "%.*s, %u -> %p", (int)name.size, name.data,
                     version, table);
    return table;
}
