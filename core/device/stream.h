/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.h: streams and events, inside the core. */

#ifndef CORE_DEVICE_STREAM_H
#define CORE_DEVICE_STREAM_H

#include "base/thread.h"
#include "device/device.h"

#include <libcore/stream.h>

#include <pthread.h>

struct core_stream {
    _Atomic uint32_t references;
    uint32_t generation; /* of the device, when it was made */
    core_device *device; /* referenced, but for the default stream */
    void *impl;          /* backend's word; NULL on a synchronous device */
    uint64_t id;         /* 0: the default stream */
    int32_t priority;
    bool adopted;
    bool shared; /* impl serves other streams too (max_streams) */
    /* The plugin's calls on this stream, one at a time.  A leaf: nothing else
     * is taken, and no other plugin called, while it is held. */
    pthread_mutex_t lock;
    /* Kernel calls since the last success: first and newest; ids are 0 while
     * there are none. */
    _Atomic uint64_t first_call;
    _Atomic uint64_t last_call;
    core_operator *_Atomic first_op;
    core_operator *_Atomic last_op;
    /* STREAM or DEVICE_LOST once it is poisoned, and what was said then. */
    _Atomic core_status failed;
    char *failure;
    void *capture; /* capture.c: the capture under way; NULL */
    void *pool;    /* memory/: where its blocks come from */
};

struct core_event {
    _Atomic uint32_t references;
    uint32_t generation;
    core_device *device;
    void *impl; /* NULL on a synchronous device */
    uint32_t flags;
    bool recorded;
    core_stream *stream;  /* of the newest record; referenced */
    uint64_t recorded_ns; /* synchronous devices: host clock */
    pthread_mutex_t lock;
};

/* This thread's stream of a device, never NULL: its default one has no other
 * cost than this. */
core_stream *core__stream_current_slow(core__thread *self, core_device *device);
static inline core_stream *core__stream_current(core_device *device)
{
    core__thread *self = core__thread_self();

    if (core__likely(!self->streams))
        return device->stream;
    return core__stream_current_slow(self, device);
}

/* Without changes to the current device; stream may be NULL (none). */
core_status core__stream_swap(core_stream *stream, core_stream **out_before);

/* A kernel call was given to it: for the messages of errors that come later.
 * Under LIBCORE_BLOCKING it waits, and an error names this operator. */
core_status core__stream_launched(core_stream *stream, core_operator *op,
                                  uint64_t id);
/* Before work is given: CORE_OK, or the error of a stream that is poisoned, or
 * of a device that was lost or reset since the stream was made. */
core_status core__stream_check_slow(core_stream *stream);
static inline core_status core__stream_check(core_stream *stream)
{
    if (core__likely(atomic_load_explicit(&stream->failed,
                                          memory_order_relaxed) == CORE_OK &&
                     stream->generation == stream->device->generation))
        return CORE_OK;
    return core__stream_check_slow(stream);
}
/* Waits for the stream, counted, refused while it is capturing; takes its error
 * word.  reason: "item", "copy to the host". */
core_status core__stream_wait(core_stream *stream, const char *reason);
/* What a plugin's call on this stream answered, turned into what the user is
 * told: range of operators, poison, loss. */
core_status core__stream_result(core_stream *stream, core_status status,
                                const char *reason);

/* `later` waits for all that was given to `earlier`; nothing if they are equal,
 * and no event is made then. */
core_status core__stream_order(core_stream *later, core_stream *earlier);

/* Events for the core's own use, from a per-device stock. */
core_status core__event_take(core_device *device, core_event **out_event);
void core__event_give(core_event *event);

/* Kernel calls, numbered over the process. */
uint64_t core__call_number(void);

/* The default stream of a device that is being opened, and back. */
core_status core__stream_default_make(core_device *device);
void core__stream_default_drop(core_device *device);
/* When a thread ends, or a device closes. */
void core__stream_thread_end(core__thread *thread);
void core__stream_thread_forget(core__thread *thread, core_device *device);

#endif
