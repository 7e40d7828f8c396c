/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.h: streams and events. */

#ifndef CORE_DEVICE_STREAM_H
#define CORE_DEVICE_STREAM_H

#include "base/thread.h"
#include "device/device.h"

#include <libcore/stream.h>

#include <pthread.h>

enum { CORE__QUEUE_RING = 64 };

typedef struct core__error_source core__error_source; /* error_propagation.c */
typedef struct core__error_source_link core__error_source_link;

/* A position in a queue: the calls submitted to it, and its waits for
 * others. */
typedef struct core__queue_mark {
    uint64_t launched;
    uint64_t waited;
} core__queue_mark;

/* A stream of the plugin.  Usually it serves one core_stream; if the device is
 * limited to max_streams, several share it. */
typedef struct core__queue {
    /* Guarded by the lock of the device's queues, like the next five fields. */
    uint32_t references;
    uint32_t streams; /* number of streams that it serves */
    uint32_t waiting; /* callers waiting for all queues, including this one */
    bool capturing;   /* its only stream is capturing */
    /* Its last stream ended before its work did: the list has a reference
     * until the work is done, and its error reported or kept. */
    bool outlives_streams;
    uint32_t served;     /* streams served in total */
    uint32_t generation; /* the device's at creation */
    core_device *device;
    void *impl;    /* the backend's handle; NULL on a synchronous device */
    uint32_t kind; /* CORE_STREAM_… */
    int32_t priority;
    bool adopted;
    /* The plugin has destroyed its stream, which events may outlive.  Set with
     * the lock held. */
    _Atomic bool ended;
    /* Serialises the plugin's calls that name this stream, except those that
     * submit work or wait.  No other lock is taken and no other plugin called
     * while it is held. */
    pthread_mutex_t lock;
    /* STREAM once it is poisoned; `failure`, the message, is set before. */
    _Atomic core_status failed;
    char *failure;
    _Atomic bool reported; /* the failure was reported to the user */
    /* Calls submitted, and how many are known to have succeeded.  The oldest
     * call after those and the newest calls, by number and operator. */
    _Atomic uint64_t launched;
    _Atomic uint64_t succeeded;
    _Atomic uint64_t first_call;
    core_operator *_Atomic first_op;
    struct {
        _Atomic uint64_t call;
        core_operator *_Atomic op;
    } ring[CORE__QUEUE_RING];
    /* Its own source, for others; NULL: no queue waited for it. */
    core__error_source *error_source;
    /* Queues whose errors are taken with its own (error_propagation.c).
     * Guarded by the lock; the counts are also read without it. */
    core__error_source_link *awaited_sources;
    uint32_t awaited_capacity;
    _Atomic uint32_t awaited_count;
    _Atomic uint64_t waited;
} core__queue;

struct core_stream {
    /* For a default stream, these are its device's references. */
    _Atomic uint32_t references;
    uint32_t generation;   /* the device's at creation */
    core_device *device;   /* with a reference, except for the default stream */
    core__queue *queue;    /* never NULL */
    void *impl;            /* the queue's handle */
    uint64_t id;           /* 0: the default stream */
    void *pool;            /* memory/heap.c: the heap of its blocks */
    void *_Atomic capture; /* capture/capture.c: the capture in progress, or
                            * NULL */
    /* The capture's number, which is never reused; 0: none. */
    _Atomic uint64_t capture_id;
    core_stream *next_ended; /* memory/heap.c: the next stream that ends */
};

struct core_event {
    _Atomic uint32_t references;
    uint32_t generation;
    core_device *device; /* with a reference, except for the core's own
                          * events */
    void *impl;          /* NULL on a synchronous device */
    uint32_t flags;
    bool own; /* from the stock: core__event_take */
    /* Guarded by the lock, which is taken before a queue's. */
    pthread_mutex_t lock;
    _Atomic uint8_t lock_mark; /* base/fork.h */
    bool recorded;
    core__queue *queue;    /* queue of the newest record, with a reference */
    core__queue_mark mark; /* position of the queue at that time */
    uint64_t capture_id;   /* number of the capture that its stream was in; 0:
                            * none */
    uint64_t recorded_ns;  /* synchronous devices: host clock */
    core_event *next;      /* in the stock */
};

/* This thread's current stream of a device, never NULL.  For the default
 * stream it costs no more than this inline code. */
core_stream *core__stream_current_slow(core__thread *self, core_device *device);
static inline core_stream *core__stream_current_of(core__thread *self,
                                                   core_device *device)
{
    if (core__likely(!self->streams))
        return device->stream;
    return core__stream_current_slow(self, device);
}

static inline core_stream *core__stream_current(core_device *device)
{
    return core__stream_current_of(core__thread_self(), device);
}

/* Makes a stream its device's current one in this thread, without changing the
 * current device.  *out_before, the previous one, has a reference, which
 * core__stream_restore takes back; it accepts NULL. */
core_status core__stream_swap(core_stream *stream, core_stream **out_before);
void core__stream_restore(core_stream *before);

/* Records that a kernel call was submitted, for the messages of later errors.
 * Under LIBCORE_BLOCKING it waits, and an error names this operator. */
core_status core__stream_record_launch(core_stream *stream, core_operator *op,
                                       uint64_t id);
/* Before work is submitted: fails if the stream is poisoned, or if the device
 * was lost or reset since the stream was created. */
core_status core__stream_check_slow(core_stream *stream);
static inline core_status core__stream_check(core_stream *stream)
{
    if (core__likely(atomic_load_explicit(&stream->queue->failed,
                                          memory_order_relaxed) == CORE_OK &&
                     stream->generation ==
                         atomic_load_explicit(&stream->device->generation,
                                              memory_order_relaxed)))
        return CORE_OK;
    return core__stream_check_slow(stream);
}
/* Waits for the stream and takes its errors.  The wait is counted, and refused
 * while the stream is capturing.  reason: "item", "copy to the host". */
core_status core__stream_wait(core_stream *stream, const char *reason);
/* Handles the status of a plugin's call that submits work to this stream: the
 * message is left unchanged; poisoning and loss are recorded.  errors:
 * core__error_sequence before the call. */
core_status core__stream_check_submitted(core_stream *stream,
                                         core_status status, uint32_t errors);

/* Makes `later` wait for all work submitted to `earlier`.  Does nothing, and
 * creates no event, if they are equal. */
core_status core__stream_order(core_stream *later, core_stream *earlier);
/* The same if `later` uses no results of `earlier` but only memory that it has
 * finished with: data errors found on `earlier` are then not reported to
 * callers that wait for `later`. */
core_status core__stream_order_reuse(core_stream *later, core_stream *earlier);
core_status core__stream_wait_event_reuse(core_stream *stream,
                                          core_event *event);

/* Events for the core's own use, from a stock per device. */
core_status core__event_take(core_device *device, core_event **out_event);
void core__event_return(core_event *event);

/* Records an event of the core on a stream that a plugin names by its handle:
 * one of the core's, or one that only the plugin knows. */
core_status core__event_record_handle(core_event *event, void *handle);

/* Numbers kernel calls over the whole process. */
uint64_t core__call_number(void);
/* Counts a wait outside core__stream_wait. */
void core__host_wait_count(void);

/* Creates and drops the default stream of a device. */
core_status core__stream_default_create(core_device *device);
void core__stream_default_destroy(core_device *device);
/* Puts the stream on a new queue, after a reset. */
core_status core__stream_default_renew(core_device *device);
/* Destroys a stream without references and memory. */
void core__stream_destroy(core_stream *stream);
/* Called when a thread ends. */
void core__stream_thread_end(core__thread *thread);
/* Makes the default stream current in all threads, when a device closes or is
 * reset. */
void core__stream_reset_current(core_device *device);

/* ------------------------------------- queues (queue.c, queue_error.c) -- */

/* The queue of synchronous devices; it never changes. */
extern core__queue core__queue_synchronous;

core_status core__queues_create(core_device *device);
/* All queues but the default stream's have ended, or are destroyed here. */
void core__queues_destroy(core_device *device);
/* Returns a queue for a new stream: its own, or a shared one. */
core_status core__queue_take(core_device *device, uint32_t kind,
                             int32_t priority, core__queue **out_queue);
core_status core__queue_adopt(core_device *device, void *native,
                              core__queue **out_queue);
/* Releases the queue of a stream that ends, which it took or adopted. */
void core__queue_stream_end(core__queue *queue);
/* Sets whether its stream is capturing.  UNSUPPORTED if it serves several: the
 * work of the others would be captured too. */
core_status core__queue_capture(core__queue *queue, bool on);
/* The queue that the plugin knows by this handle, with a reference; NULL: it
 * is not one of the core's. */
core__queue *core__queue_by_handle(core_device *device, const void *handle);
core__queue *core__queue_retain(core__queue *queue);
void core__queue_release(core__queue *queue);
/* Releases queues of ended streams whose work is done, and keeps their first
 * error for core__queues_wait.  Does not wait. */
void core__queues_reap(core_device *device);
/* Waits for all work of a device, including that of streams that have ended;
 * returns the first error. */
core_status core__queues_wait(core_device *device, const char *reason);
/* Waits, as far as possible, until nothing runs on the device, without taking
 * errors.  For observers such as the profiler. */
void core__queues_drain(core_device *device);

core_status core__queue_check(core__queue *queue);
core_status core__queue_wait(core__queue *queue, const char *reason);
/* Turns the status of a plugin's call that waits for or queries this queue
 * into the user's error: range of operators, poisoning, loss.  BUSY is passed
 * on.  errors: core__error_sequence before the call. */
core_status core__queue_check_status(core__queue *queue, core_status status,
                                     uint32_t errors, const char *reason);
/* Taken before the plugin is queried. */
static inline core__queue_mark core__queue_position(core__queue *queue)
{
    return (core__queue_mark){atomic_load(&queue->launched),
                              atomic_load(&queue->waited)};
}
/* Records that everything up to the position has succeeded; takes the queue's
 * data error, and those of the queues that it waited for. */
core_status core__queue_mark_succeeded(core__queue *queue,
                                       core__queue_mark mark,
                                       const char *reason);
/* Takes the queue's own data error, which a kernel found; reported once. */
core_status core__queue_take_error(core__queue *queue, const char *reason);

/* ------------------------------------------------- error_propagation.c -- */

/* Records that a wait for `other` was submitted: its errors, and those of all
 * queues that it waited for, are also reported to callers that wait for this
 * queue. */
core_status core__queue_add_awaited(core__queue *queue, core__queue *other);
/* Takes the errors of queues that were waited for up to that position; returns
 * the first. */
core_status core__queue_take_awaited_errors(core__queue *queue, uint64_t waited,
                                            const char *reason);
/* For a queue whose streams have ended: takes its own error, but only if no
 * queue that waited for it can report it. */
core_status core__queue_take_unshared_error(core__queue *queue,
                                            const char *reason);
/* Before the plugin's stream is destroyed. */
void core__queue_end_errors(core__queue *queue);
/* The same for its own errors only. */
void core__queue_end_own_errors(core__queue *queue);

/* Fails with UNSUPPORTED: what the host requests of this stream cannot be part
 * of a capture.  Its capture, if any, is invalidated. */
core_status core__capture_refuse(core_stream *stream, const char *what);

core_status core__event_stock_create(core_device *device);
void core__event_stock_empty(core_device *device);
void core__event_stock_destroy(core_device *device);

#endif
