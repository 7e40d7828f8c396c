/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Streams: which is current, and what a wait for one says. */

#include "device/stream.h"

#include "base/memory.h"
#include "dispatch/dispatch.h"

#include <stdlib.h>

static _Atomic uint64_t waits;
static _Atomic uint64_t calls;

uint64_t core_host_waits(void)
{
    return atomic_load(&waits);
}

uint64_t core__call_number(void)
{
    return atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
}

core_status core__stream_default_make(core_device *device)
{
    core_stream *stream = core__alloc_zero(sizeof *stream);

    if (!stream)
        return core__error_memory(sizeof *stream);
    atomic_init(&stream->references, 1);
    stream->device = device;
    stream->generation = device->generation;
    pthread_mutex_init(&stream->lock, NULL);
    if (!device->synchronous) {
        core_status status =
            device->backend->streams.create(device->impl, 0, &stream->impl);

        if (status != CORE_OK) {
            core__free(stream);
            return status;
        }
    }
    device->stream = stream;
    return CORE_OK;
}

void core__stream_default_drop(core_device *device)
{
    core_stream *stream = device->stream;

    if (!stream)
        return;
    device->stream = NULL;
    if (!device->synchronous)
        device->backend->streams.destroy(device->impl, stream->impl);
    pthread_mutex_destroy(&stream->lock);
    core__free(stream);
}

core_stream *core__stream_current_slow(core__thread *self, core_device *device)
{
    core_stream *stream = device->ordinal < self->nstreams
                              ? self->streams[device->ordinal]
                              : NULL;

    return stream ? stream : device->stream;
}

void core__stream_thread_end(core__thread *thread)
{
    free(thread->streams);
    thread->streams = NULL;
    thread->nstreams = 0;
}

void core__stream_thread_forget(core__thread *thread, core_device *device)
{
    if (device->ordinal < thread->nstreams)
        thread->streams[device->ordinal] = NULL;
}

core_status core__stream_check_slow(core_stream *stream)
{
    return core__error(CORE_ERROR_STREAM, "%s: the stream failed before",
                       stream->device->name);
}

core_status core__stream_launched(core_stream *stream, core_operator *op,
                                  uint64_t id)
{
    (void)stream;
    (void)op;
    (void)id;
    return CORE_OK;
}

core_status core__stream_wait(core_stream *stream, const char *reason)
{
    core_device *device = stream->device;
    core_status status;

    atomic_fetch_add_explicit(&waits, 1, memory_order_relaxed);
    status = device->backend->streams.synchronize(device->impl, stream->impl);
    if (core__unlikely(status != CORE_OK))
        core__error_prefix("%s: work given to the device failed (found by %s)",
                           device->name, reason);
    return status;
}
