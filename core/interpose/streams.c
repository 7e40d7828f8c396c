/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrappers of a plugin's streams and events. */

#include "interpose/interposer.h"

static core_status enter(interposer_call *call, const interposer_device *device,
                         const char *slot, interposer_kind kind)
{
    return interposer_enter(call, device->backend->interposers,
                            device->backend->type, slot, kind);
}

/* ------------------------------------------------------------- streams -- */

static core_status stream_create(void *handle, uint32_t flags,
                                 void **out_stream)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    *out_stream = NULL;
    CORE_TRY(enter(&call, device, "stream_create", INTERPOSER_STREAM));
    status = device->backend->streams.create(device->impl, flags, out_stream);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_STREAM_OBJECT, device, *out_stream,
                           0, 0);
    return interposer_leave(&call, status, "%p, 0x%x -> %p", device->impl,
                            flags, *out_stream);
}

static void stream_destroy(void *handle, void *stream)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "stream_destroy", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_STREAM_OBJECT, device, stream, 0,
                            0))
        device->backend->streams.destroy(device->impl, stream);
    interposer_leave_void(&call, "%p, %p", device->impl, stream);
}

static core_status stream_query(void *handle, void *stream)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "stream_query", INTERPOSER_NEVER));
    if (interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream,
                        true)) {
        if (interposer_validates(call.interposers) &&
            interposer_is_capturing(call.interposers, device, stream))
            interposer_violation(
                &call, "libcore queries a stream (%p) that is capturing",
                stream);
        status = device->backend->streams.query(device->impl, stream);
    }
    return interposer_leave(&call, status, "%p, %p", device->impl, stream);
}

static core_status stream_synchronize(void *handle, void *stream)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(
        enter(&call, device, "stream_synchronize", INTERPOSER_SYNCHRONIZE));
    if (interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream,
                        true) &&
        interposer_waits(&call, device, stream))
        status = device->backend->streams.synchronize(device->impl, stream);
    if (status == CORE_ERROR_BUSY && interposer_validates(call.interposers))
        interposer_violation(&call, "waits and returns BUSY");
    return interposer_leave(&call, status, "%p, %p", device->impl, stream);
}

/* The event may be one of another device of the same backend. */
static bool check_event(interposer_call *call, const interposer_device *device,
                        const void *event)
{
    const interposer_device *owner = device;

    if (!interposer_validates(call->interposers))
        return true;
    if (interposer_alive(call->interposers, INTERPOSER_EVENT_OBJECT, device) ==
        0)
        return true; /* not checked: another backend's */
    return interposer_uses(call, INTERPOSER_EVENT_OBJECT, owner, event,
                           false) &&
           interposer_was_recorded(call, owner, event);
}

static core_status stream_wait_event(void *handle, void *stream, void *event)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "stream_wait_event", INTERPOSER_SYNCHRONIZE));
    if (interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream,
                        true) &&
        check_event(&call, device, event))
        status =
            device->backend->streams.wait_event(device->impl, stream, event);
    return interposer_leave(&call, status, "%p, %p, %p", device->impl, stream,
                            event);
}

/* -------------------------------------------------------------- events -- */

static core_status event_create(void *handle, uint32_t flags, void **out_event)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    *out_event = NULL;
    CORE_TRY(enter(&call, device, "event_create", INTERPOSER_EVENT));
    status = device->backend->events.create(device->impl, flags, out_event);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_EVENT_OBJECT, device, *out_event,
                           0, 0);
    return interposer_leave(&call, status, "%p, 0x%x -> %p", device->impl,
                            flags, *out_event);
}

static void event_destroy(void *handle, void *event)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "event_destroy", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_EVENT_OBJECT, device, event, 0,
                            0))
        device->backend->events.destroy(device->impl, event);
    interposer_leave_void(&call, "%p, %p", device->impl, event);
}

static core_status event_record(void *handle, void *event, void *stream)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "event_record", INTERPOSER_EVENT));
    if (interposer_uses(&call, INTERPOSER_EVENT_OBJECT, device, event, true) &&
        interposer_uses(&call, INTERPOSER_STREAM_OBJECT, device, stream,
                        !interposer_names_stream))
        status = device->backend->events.record(device->impl, event, stream);
    if (status == CORE_OK)
        interposer_records(&call, device, event);
    return interposer_leave(&call, status, "%p, %p, %p", device->impl, event,
                            stream);
}

static core_status event_query(void *handle, void *event)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "event_query", INTERPOSER_NEVER));
    if (interposer_uses(&call, INTERPOSER_EVENT_OBJECT, device, event, true) &&
        interposer_was_recorded(&call, device, event))
        status = device->backend->events.query(device->impl, event);
    return interposer_leave(&call, status, "%p, %p", device->impl, event);
}

static core_status event_synchronize(void *handle, void *event)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "event_synchronize", INTERPOSER_SYNCHRONIZE));
    if (interposer_uses(&call, INTERPOSER_EVENT_OBJECT, device, event, true) &&
        interposer_was_recorded(&call, device, event) &&
        interposer_waits(&call, device, NULL))
        status = device->backend->events.synchronize(device->impl, event);
    if (status == CORE_ERROR_BUSY && interposer_validates(call.interposers))
        interposer_violation(&call, "waits and returns BUSY");
    return interposer_leave(&call, status, "%p, %p", device->impl, event);
}

/* ------------------------------------------------------------ wrapping -- */

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

void interposer_wrap_streams(interposer_backend *backend)
{
    const core_stream_table *real = &backend->streams;
    core_stream_table *wrapped = &backend->wrapped_streams;

    *wrapped = stream_wrappers;
    INTERPOSER_KEEP(create);
    INTERPOSER_KEEP(destroy);
    INTERPOSER_KEEP(query);
    INTERPOSER_KEEP(synchronize);
    INTERPOSER_KEEP(wait_event);
    backend->wrapped.streams = wrapped;
}

void interposer_wrap_events(interposer_backend *backend)
{
    const core_event_table *real = &backend->events;
    core_event_table *wrapped = &backend->wrapped_events;

    if (!backend->real.events)
        return;
    *wrapped = event_wrappers;
    INTERPOSER_KEEP(create);
    INTERPOSER_KEEP(destroy);
    INTERPOSER_KEEP(record);
    INTERPOSER_KEEP(query);
    INTERPOSER_KEEP(synchronize);
    backend->wrapped.events = wrapped;
}
