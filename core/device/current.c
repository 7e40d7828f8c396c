/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Each thread's current stream per device, and the guards of streams and
 * devices. */

#include "base/memory.h"
#include "device/stream.h"

core_stream *core__stream_current_slow(core__thread *self, core_device *device)
{
    core_stream *stream = device->ordinal < self->nstreams
                              ? self->streams[device->ordinal]
                              : NULL;

    return stream ? stream : device->stream;
}

/* Grows this thread's array to include the device. */
static core_status grow_streams(core__thread *self, const core_device *device)
{
    uint32_t capacity = (device->ordinal / 8 + 1) * 8;
    core_stream **streams;

    if (device->ordinal < self->nstreams)
        return CORE_OK;
    if (self->shared)
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "no host memory for this thread's current streams");
    streams = core__realloc(self->streams, capacity * sizeof(core_stream *));
    if (!streams)
        return core__error_memory(capacity * sizeof(core_stream *));
    for (uint32_t i = self->nstreams; i < capacity; i++)
        streams[i] = NULL;
    self->streams = streams;
    self->nstreams = capacity;
    return CORE_OK;
}

/* Makes the stream current, with a reference unless it is the default one, and
 * passes the previous one's reference to the caller: NULL for the default
 * stream. */
static core_status exchange(core_stream *stream, core_stream **out_before)
{
    core__thread *self = core__thread_self();
    core_device *device = stream->device;
    bool is_default = stream == device->stream;
    core_stream **slot;

    *out_before = NULL;
    if (is_default && device->ordinal >= self->nstreams)
        return CORE_OK;
    CORE_TRY(grow_streams(self, device));
    slot = &self->streams[device->ordinal];
    *out_before = *slot;
    *slot = is_default ? NULL : core_stream_retain(stream);
    return CORE_OK;
}

core_status core__stream_swap(core_stream *stream, core_stream **out_before)
{
    CORE_TRY(exchange(stream, out_before));
    if (!*out_before)
        *out_before = core_stream_retain(stream->device->stream);
    return CORE_OK;
}

void core__stream_restore(core_stream *before)
{
    core_stream *replaced = NULL;

    if (!before)
        return;
    /* The array is large enough: core__stream_swap has grown it. */
    exchange(before, &replaced);
    core_stream_release(replaced);
    core_stream_release(before);
}

core_status core_stream_default(core_device *device, core_stream **out_stream)
{
    CORE__NOT_NULL(out_stream);
    *out_stream = NULL;
    CORE__NOT_NULL(device);
    *out_stream = device->stream;
    return CORE_OK;
}

core_status core_stream_current(core_device *device, core_stream **out_stream)
{
    CORE__NOT_NULL(out_stream);
    *out_stream = NULL;
    CORE__NOT_NULL(device);
    *out_stream = core__stream_current(device);
    return CORE_OK;
}

core_status core_stream_set_current(core_stream *stream)
{
    core_stream *before;

    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_cut(__func__));
    CORE_TRY(exchange(stream, &before));
    core_stream_release(before);
    return CORE_OK;
}

/* -------------------------------------------------------------- guards -- */

core_status core_stream_guard_enter(core_stream *stream,
                                    core_stream_guard *guard)
{
    core__thread *self = core__thread_self();

    CORE__NOT_NULL(guard);
    *guard = (core_stream_guard){0};
    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_cut(__func__));
    CORE_TRY(core__stream_swap(stream, &guard->stream));
    guard->entered = core_stream_retain(stream);
    guard->device = self->device;
    self->device = stream->device;
    return CORE_OK;
}

void core_stream_guard_leave(core_stream_guard *guard)
{
    if (!guard || !guard->entered)
        return;
    core__thread_cut_later(__func__);
    core__thread_self()->device = guard->device;
    core__stream_restore(guard->stream);
    core_stream_release(guard->entered);
    *guard = (core_stream_guard){0};
}

core_status core_device_guard_enter(core_device *device,
                                    core_device_guard *guard)
{
    core__thread *self = core__thread_self();

    CORE__NOT_NULL(guard);
    *guard = (core_device_guard){0};
    CORE__NOT_NULL(device);
    guard->device = self->device;
    guard->entered = 1;
    self->device = device;
    return CORE_OK;
}

void core_device_guard_leave(core_device_guard *guard)
{
    if (!guard || !guard->entered)
        return;
    core__thread_self()->device = guard->device;
    *guard = (core_device_guard){0};
}

/* ------------------------------------------------------------- threads -- */

void core__stream_thread_end(core__thread *thread)
{
    for (uint32_t i = 0; i < thread->nstreams; i++)
        core_stream_release(thread->streams[i]);
    core__free(thread->streams);
    thread->streams = NULL;
    thread->nstreams = 0;
}

/* One stream at a time: releasing one may end a thread of the plugin, which
 * must not meet the lock of the list of threads. */
typedef struct current_entry {
    core_device *device;
    core_stream *stream;
} current_entry;

static void take_current(core__thread *thread, void *context)
{
    current_entry *found = context;
    uint32_t ordinal = found->device->ordinal;

    if (found->stream || ordinal >= thread->nstreams)
        return;
    found->stream = thread->streams[ordinal];
    thread->streams[ordinal] = NULL;
}

void core__stream_reset_current(core_device *device)
{
    current_entry found;

    do {
        found = (current_entry){device, NULL};
        core__thread_each(take_current, &found);
        core_stream_release(found.stream);
    } while (found.stream);
}
