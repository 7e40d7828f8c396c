/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin's streams and events. */

#include "interpose/interposer.h"

static core_status enter(layer_call *call, const layer_device *device,
                         const char *slot, layer_kind kind)
{
    return layer_enter(call, device->backend->layers, device->backend->type,
                       slot, kind);
}

/* Made with flags that are known; not NULL, and not twice. */
static void made(layer_call *call, layer_object_kind kind,
                 const layer_device *device, void *word)
{
    if (!layer_validates(call->layers))
        return;
    if (!word)
        layer_breach(call, "gives NULL");
    else
        layer_made(call, kind, device, word, 0, 0);
}

/* --------------------------------------------------------------- streams -- */

static core_status stream_create(void *word, uint32_t flags, void **out_stream)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    *out_stream = NULL;
    CORE_TRY(enter(&call, device, "stream_create", LAYER_STREAM));
    status = device->backend->streams.create(device->impl, flags, out_stream);
    if (status == CORE_OK)
        made(&call, LAYER_STREAM_OBJECT, device, *out_stream);
    return layer_leave(&call, status, "%p, 0x%x -> %p", device->impl, flags,
                       *out_stream);
}

static void stream_destroy(void *word, void *stream)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "stream_destroy", LAYER_NEVER);
    if (layer_destroys(&call, LAYER_STREAM_OBJECT, device, stream, 0, 0))
        device->backend->streams.destroy(device->impl, stream);
    layer_leave_void(&call, "%p, %p", device->impl, stream);
}

static core_status stream_query(void *word, void *stream)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "stream_query", LAYER_NEVER));
    if (layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true)) {
        if (layer_validates(call.layers) &&
            layer_is_capturing(call.layers, device, stream))
            layer_breach(&call, "libcore asks a stream (%p) that captures",
                         stream);
        status = device->backend->streams.query(device->impl, stream);
    }
    return layer_leave(&call, status, "%p, %p", device->impl, stream);
}

static core_status stream_synchronize(void *word, void *stream)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "stream_synchronize", LAYER_SYNCHRONIZE));
    if (layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true) &&
        layer_waits(&call, device, stream))
        status = device->backend->streams.synchronize(device->impl, stream);
    if (status == CORE_ERROR_BUSY && layer_validates(call.layers))
        layer_breach(&call, "waits and answers that it is busy");
    return layer_leave(&call, status, "%p, %p", device->impl, stream);
}

/* The event may be another device's of the same backend. */
static bool check_event(layer_call *call, const layer_device *device,
                        const void *event)
{
    const layer_device *owner = device;

    if (!layer_validates(call->layers))
        return true;
    if (layer_alive(call->layers, LAYER_EVENT_OBJECT, device) == 0)
        return true; /* not judged: another's */
    return layer_uses(call, LAYER_EVENT_OBJECT, owner, event, false) &&
           layer_was_recorded(call, owner, event);
}

static core_status stream_wait_event(void *word, void *stream, void *event)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "stream_wait_event", LAYER_SYNCHRONIZE));
    if (layer_uses(&call, LAYER_STREAM_OBJECT, device, stream, true) &&
        check_event(&call, device, event))
        status =
            device->backend->streams.wait_event(device->impl, stream, event);
    return layer_leave(&call, status, "%p, %p, %p", device->impl, stream,
                       event);
}

/* ---------------------------------------------------------------- events -- */

static core_status event_create(void *word, uint32_t flags, void **out_event)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    *out_event = NULL;
    CORE_TRY(enter(&call, device, "event_create", LAYER_EVENT));
    status = device->backend->events.create(device->impl, flags, out_event);
    if (status == CORE_OK)
        made(&call, LAYER_EVENT_OBJECT, device, *out_event);
    return layer_leave(&call, status, "%p, 0x%x -> %p", device->impl, flags,
                       *out_event);
}

static void event_destroy(void *word, void *event)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "event_destroy", LAYER_NEVER);
    if (layer_destroys(&call, LAYER_EVENT_OBJECT, device, event, 0, 0))
        device->backend->events.destroy(device->impl, event);
    layer_leave_void(&call, "%p, %p", device->impl, event);
}

static core_status event_record(void *word, void *event, void *stream)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "event_record", LAYER_EVENT));
    if (layer_uses(&call, LAYER_EVENT_OBJECT, device, event, true) &&
        layer_uses(&call, LAYER_STREAM_OBJECT, device, stream,
                   !layer_names_stream))
        status = device->backend->events.record(device->impl, event, stream);
    if (status == CORE_OK)
        layer_records(&call, device, event);
    return layer_leave(&call, status, "%p, %p, %p", device->impl, event,
                       stream);
}

static core_status event_query(void *word, void *event)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "event_query", LAYER_NEVER));
    if (layer_uses(&call, LAYER_EVENT_OBJECT, device, event, true) &&
        layer_was_recorded(&call, device, event))
        status = device->backend->events.query(device->impl, event);
    return layer_leave(&call, status, "%p, %p", device->impl, event);
}

static core_status event_synchronize(void *word, void *event)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "event_synchronize", LAYER_SYNCHRONIZE));
    if (layer_uses(&call, LAYER_EVENT_OBJECT, device, event, true) &&
        layer_was_recorded(&call, device, event) &&
        layer_waits(&call, device, NULL))
        status = device->backend->events.synchronize(device->impl, event);
    if (status == CORE_ERROR_BUSY && layer_validates(call.layers))
        layer_breach(&call, "waits and answers that it is busy");
    return layer_leave(&call, status, "%p, %p", device->impl, event);
}

/* --------------------------------------------------------------- wrapping -- */

static const core_stream_table stream_wrappers = {
    .struct_size = sizeof(core_stream_table),
    .create = stream_create,
    .destroy = stream_destroy,
    .query = stream_query,
    .synchronize = stream_synchronize,
    .wait_event = stream_wait_event,
};

static const core_event_table event_wrappers = {
    .struct_size = sizeof(core_event_table),
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .synchronize = event_synchronize,
};

void layer_wrap_streams(layer_backend *backend)
{
    const core_stream_table *real = &backend->streams;
    core_stream_table *wrapped = &backend->wrapped_streams;

    *wrapped = stream_wrappers;
    LAYER_KEEP(create);
    LAYER_KEEP(destroy);
    LAYER_KEEP(query);
    LAYER_KEEP(synchronize);
    LAYER_KEEP(wait_event);
    backend->wrapped.streams = wrapped;
}

void layer_wrap_events(layer_backend *backend)
{
    const core_event_table *real = &backend->events;
    core_event_table *wrapped = &backend->wrapped_events;

    if (!backend->real.events)
        return;
    *wrapped = event_wrappers;
    LAYER_KEEP(create);
    LAYER_KEEP(destroy);
    LAYER_KEEP(record);
    LAYER_KEEP(query);
    LAYER_KEEP(synchronize);
    backend->wrapped.events = wrapped;
}
