/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.h: order on devices.
 *
 * A device works by itself: a call gives it work and returns.  Work on one
 * stream happens in the order in which it was given; streams among each other
 * have no order but the one that events make, and may or may not run side by
 * side.  A synchronous device (cpu) has one stream, on which everything is done
 * when the call returns; all calls here work on it too.
 *
 * Each thread has a current stream per device, at first the device's default
 * one, and operators give their work to it.  The memory of a tensor belongs to
 * the stream that was current when it was made: once the tensor is released,
 * the memory is given anew to later work of that stream.  A tensor that other
 * streams use is told so with core_tensor_record_stream (memory.h).
 *
 * Errors of work that fails later.  They are raised by the next call that waits
 * for or asks about that work: synchronize, query, a copy to the host, item,
 * whichever thread makes it.  The message gives the range of operators since
 * the last success, or the very one under LIBCORE_BLOCKING=1, which waits after
 * each.  Bad data (an index out of range) is raised once and leaves the stream
 * usable.  A failure of the work itself (CORE_ERROR_STREAM) poisons the stream:
 * every use of it answers that error, until it is released; the default
 * stream's goes with core_device_reset.  CORE_ERROR_DEVICE_LOST: everything on
 * that device is gone until core_device_reset.  Other devices are not touched.
 *
 * Any thread may call everything here. */

#ifndef LIBCORE_STREAM_H
#define LIBCORE_STREAM_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct core_stream core_stream;
typedef struct core_event core_event;

/* ------------------------------------------------------------- streams -- */

/* Of the device's default priority.  A device that has fewer streams than are
 * wanted serves several by one, in the order of the calls. */
core_status core_stream_create(core_device *device, core_stream **out_stream);
/* Smaller goes first, 0 is the default; beyond the device's range: the nearest.
 * UNSUPPORTED where the device has no priorities and priority is not 0. */
core_status core_stream_create_priority(core_device *device, int32_t priority,
                                        core_stream **out_stream);
/* Both 0 where the device has none. */
core_status core_device_priorities(core_device *device, int32_t *out_least,
                                   int32_t *out_greatest);
/* A stream that the vendor's own library made (a cudaStream_t, say), to order
 * libcore's work with that library's.  The caller keeps it alive until the last
 * reference is released; events that were recorded on it may outlive it.
 * UNSUPPORTED where the plugin cannot. */
core_status core_stream_adopt(core_device *device, void *native,
                              core_stream **out_stream);
/* The vendor's handle, for that library; borrowed.  UNSUPPORTED likewise. */
core_status core_stream_native(core_stream *stream, void **out_native);

core_stream *core_stream_retain(core_stream *stream);
/* The last one waits for nothing: the stream's work goes on to its end. */
void core_stream_release(core_stream *stream);

/* Borrowed. */
core_device *core_stream_device(const core_stream *stream);
/* Unique in the process, for logs; a device's default stream has 0. */
uint64_t core_stream_id(const core_stream *stream);

/* Borrowed, valid while the device is. */
core_status core_stream_default(core_device *device, core_stream **out_stream);
/* This thread's; borrowed until it sets another. */
core_status core_stream_current(core_device *device, core_stream **out_stream);
/* Makes a stream this thread's current one for its device (the current device
 * stays what it is); the thread keeps a reference.  NULL is refused: set the
 * default stream. */
core_status core_stream_set_current(core_stream *stream);

/* CORE_OK: all work given so far is done; BUSY: not yet; else its error. */
core_status core_stream_query(core_stream *stream);
core_status core_stream_synchronize(core_stream *stream);
/* Later work of the stream runs after what the event stands for: work of any
 * device (where plugins differ, the calling thread waits for it).
 * INVALID_ARGUMENT for an event that was never recorded. */
core_status core_stream_wait_event(core_stream *stream, core_event *event);
/* The same, for all that was given to `other` until now. */
core_status core_stream_wait_stream(core_stream *stream, core_stream *other);
/* function(context) runs on some thread when the stream comes to it, and later
 * work waits for it.  drop(context), which may be NULL, is called instead if it
 * will never run (the stream failed, this call fails).  It may release what it
 * likes.  Other calls of libcore only where the device's documentation allows
 * them (GPUs' callbacks compute, on other streams), and never a wait for its own
 * stream, which would not end.  UNSUPPORTED where the plugin cannot. */
core_status core_stream_callback(core_stream *stream,
                                 void (*function)(void *context), void *context,
                                 void (*drop)(void *context));

/* -------------------------------------------------------------- guards -- */

/* Restore what was current, on every path:
 *
 *     core_stream_guard guard;
 *
 *     CORE_TRY(core_stream_guard_enter(stream, &guard));
 *     status = work();
 *     core_stream_guard_leave(&guard);
 *
 * Enter makes the stream and its device current; on failure nothing changed and
 * leave does nothing.  Guards nest, and are left in the thread that entered. */
typedef struct core_stream_guard {
    core_device *device; /* what was current before; the core's own */
    core_stream *stream;
    core_stream *entered;
} core_stream_guard;

core_status core_stream_guard_enter(core_stream *stream,
                                    core_stream_guard *guard);
void core_stream_guard_leave(core_stream_guard *guard);

/* The same for the current device alone. */
typedef struct core_device_guard {
    core_device *device;
    int entered;
} core_device_guard;

core_status core_device_guard_enter(core_device *device,
                                    core_device_guard *guard);
void core_device_guard_leave(core_device_guard *guard);

/* -------------------------------------------------------------- events -- */

/* CORE_EVENT_TIMING (backend.h) for core_event_elapsed; other flags are
 * refused. */
core_status core_event_create(core_device *device, uint32_t flags,
                              core_event **out_event);
core_event *core_event_retain(core_event *event);
void core_event_release(core_event *event);
core_device *core_event_device(const core_event *event);
/* Stands from now on for all work given to the stream until now; those who
 * wait already wait for what it stood for.  DEVICE error if the stream is
 * another device's. */
core_status core_event_record(core_event *event, core_stream *stream);
/* CORE_OK: done; BUSY: not yet; else the error of that work.
 * INVALID_ARGUMENT if it was never recorded. */
core_status core_event_query(core_event *event);
core_status core_event_synchronize(core_event *event);
/* Milliseconds on the device between two completed events with
 * CORE_EVENT_TIMING; BUSY if one is not done, UNSUPPORTED where the device has
 * no clock. */
core_status core_event_elapsed(core_event *start, core_event *end,
                               double *out_milliseconds);

/* --------------------------------------------------------------- copies -- */

enum {
    /* The call may return before the copy is done: the caller keeps host
     * memory as it is until the stream comes past it.  Only memory from
     * core_host_memory_alloc (memory.h) is copied so; else the call waits. */
    CORE_COPY_NON_BLOCKING = 1u << 0
};

/* to[...] = from[...]: same sizes; any dtypes, layouts and devices, recorded by
 * autograd like copy_.  Between devices of one plugin that copies directly, the
 * copy runs on the current stream of the target, after what the current stream
 * of the source was given before; that one's later work waits for it. */
core_status core_tensor_copy(core_tensor *to, core_tensor *from,
                             uint32_t flags);

/* ---------------------------------------------------------------- device -- */

/* Waits for all streams of the device: core_device_synchronize (device.h). */

/* CORE_OK, or DEVICE_LOST with the reason. */
core_status core_device_status(core_device *device);
/* A lost device starts anew: its tensors, streams and events of before answer
 * DEVICE_LOST and are released as usual; new ones work.  Pinned memory of before
 * is the host's as it was, and pinned no more.  UNSUPPORTED where the plugin
 * cannot.  Any thread, but no other may be using the device. */
core_status core_device_reset(core_device *device);
/* A table that the plugin offers beyond libcore's own, for programs that know
 * that plugin: NOT_FOUND where it has none of that name and version. */
core_status core_device_interface(core_device *device, const char *name,
                                  uint32_t version, const void **out_table);

/* How many backend events libcore has made for this device since it was
 * opened: where streams are equal it needs none. */
uint64_t core_device_events_made(const core_device *device);
/* How often the host waited for any device since the process began. */
uint64_t core_host_waits(void);

#ifdef __cplusplus
}
#endif
#endif
