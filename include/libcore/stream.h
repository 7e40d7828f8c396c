/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.h: streams and events, which order the work of devices.
 *
 * A device executes asynchronously: a call enqueues work on a stream and
 * returns.  Work on one stream runs in the order in which it was enqueued.
 * Streams are not ordered among each other except by events, and may or may not
 * run concurrently.  A synchronous device (cpu) has one stream, and all work is
 * complete when the call returns; every function here accepts it.
 *
 * Each thread has a current stream per device, initially the device's default
 * stream, on which operators enqueue their work.  The memory of a tensor
 * belongs to the stream that was current when the tensor was created: after the
 * tensor is released, the memory is reused for later work of that stream.  If
 * other streams use the tensor, call core_tensor_record_stream (memory.h).
 *
 * Asynchronous errors.  An error of work that fails after its call has returned
 * is reported by the next call, in any thread, that waits for that work or
 * queries it: synchronize, query, a copy to the host, item.  The message names
 * the range of operators since the last success, or the failing operator itself
 * under LIBCORE_BLOCKING=1, which waits after each operator.  Bad data (an
 * index out of range) is reported once and leaves the stream usable.  A failure
 * of the work itself (CORE_ERROR_STREAM) poisons the stream: every use of it
 * returns that error until the stream is released, or, for the default stream,
 * until core_device_reset.  After CORE_ERROR_DEVICE_LOST everything on that
 * device is lost until core_device_reset.  Other devices are not affected.
 *
 * Every function here is thread-safe. */

#ifndef LIBCORE_STREAM_H
#define LIBCORE_STREAM_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A queue of work on a device.  Reference-counted. */
typedef struct core_stream core_stream;

/* A point in the work of a stream.  Reference-counted. */
typedef struct core_event core_event;

/* ------------------------------------------------------------- streams -- */

/* Creates a stream of the device's default priority.  The caller owns one
 * reference.  If the device supports fewer streams than are created, several
 * share one queue, in which work runs in the order of the calls. */
core_status core_stream_create(core_device *device, core_stream **out_stream);

/* Creates a stream with a priority.  A lower number is a higher priority; 0 is
 * the default.  A priority out of the device's range is clamped to it.  The
 * caller owns one reference.  UNSUPPORTED if the device has no priorities and
 * priority is not 0. */
core_status core_stream_create_priority(core_device *device, int32_t priority,
                                        core_stream **out_stream);

/* Gets the kinds of streams that a device has: a mask of 1 << CORE_STREAM_…
 * (backend.h).  Every device has CORE_STREAM_COMPUTE. */
core_status core_device_stream_kinds(core_device *device, uint32_t *out_kinds);

/* Creates a stream of a kind, CORE_STREAM_… (backend.h).  The caller owns one
 * reference.  A stream of the kind CORE_STREAM_COPY uses a part of the device
 * that only copies: it takes copies between devices and between device and
 * host, of contiguous tensors of the same dtype (core_tensor_copy), waits for
 * events, and host callbacks.  An operator that needs a kernel returns
 * UNSUPPORTED while it is the current stream; where the plugin has a kernel for
 * them, so do copies within the device, zero_ and fill_.  If more such streams
 * are created than the device has, several share one queue.  UNSUPPORTED if the
 * device has no streams of that kind: there is no substitute, and
 * core_stream_create works on every device. */
core_status core_stream_create_kind(core_device *device, uint32_t kind,
                                    core_stream **out_stream);

/* Returns the kind of a stream.  CORE_STREAM_COMPUTE for NULL. */
uint32_t core_stream_kind(const core_stream *stream);

/* Gets the numbers of the lowest and the highest priority of a device.  Both
 * are 0 if the device has no priorities. */
core_status core_device_priorities(core_device *device, int32_t *out_least,
                                   int32_t *out_greatest);

/* Wraps a stream that the vendor's own library created (a cudaStream_t, for
 * example), to order libcore's work with that library's.  The caller owns one
 * reference, and keeps `native` alive until the last reference is released;
 * events recorded on the stream may outlive it.  UNSUPPORTED if the plugin does
 * not provide core.stream_adopt. */
core_status core_stream_adopt(core_device *device, void *native,
                              core_stream **out_stream);

/* Gets the vendor's handle of a stream.  The handle is borrowed.  UNSUPPORTED
 * if the plugin does not provide core.stream_adopt. */
core_status core_stream_native(core_stream *stream, void **out_native);

/* Adds a reference and returns stream.  Accepts NULL. */
core_stream *core_stream_retain(core_stream *stream);

/* Drops a reference.  Accepts NULL.  Releasing the last reference does not
 * wait: work that was enqueued runs to completion. */
void core_stream_release(core_stream *stream);

/* Returns the device of a stream, borrowed.  NULL for NULL. */
core_device *core_stream_device(const core_stream *stream);

/* Returns a number for logs that is unique in the process.  0 for the default
 * stream of a device, and for NULL. */
uint64_t core_stream_id(const core_stream *stream);

/* Gets the default stream of a device, borrowed.  It lives as long as the
 * device. */
core_status core_stream_default(core_device *device, core_stream **out_stream);

/* Gets the calling thread's current stream of a device, borrowed.  It is valid
 * until the thread sets another. */
core_status core_stream_current(core_device *device, core_stream **out_stream);

/* Sets the calling thread's current stream of the stream's device.  The thread
 * keeps a reference.  The current device does not change.  To return to the
 * default stream, set that; NULL is an error. */
core_status core_stream_set_current(core_stream *stream);

/* Checks whether all work enqueued so far is complete.  Does not wait.  Returns
 * CORE_OK, BUSY if some work is not complete, or the error of that work.
 * UNSUPPORTED while the stream is being captured. */
core_status core_stream_query(core_stream *stream);

/* Waits until all work enqueued so far is complete.  Returns the error of that
 * work, if any.  UNSUPPORTED while the stream is being captured. */
core_status core_stream_synchronize(core_stream *stream);

/* Makes later work of a stream wait for the work that an event has recorded.
 * The host does not wait, except if the devices of the two belong to different
 * plugins.  INVALID_ARGUMENT if the event was never recorded. */
core_status core_stream_wait_event(core_stream *stream, core_event *event);

/* Makes later work of a stream wait for all work enqueued on `other` so far.
 * The host does not wait, except if the devices of the two belong to different
 * plugins. */
core_status core_stream_wait_stream(core_stream *stream, core_stream *other);

/* Enqueues a host function.  function(context) runs on an unspecified thread
 * when the stream reaches it, and later work waits for it; on a synchronous
 * device it runs during this call.  If it will never run (the stream fails, or
 * this call fails), drop(context) is called instead; drop may be NULL.
 *
 * The function may release any object.  It may make other calls of libcore only
 * where docs/devices.md allows it for the device (on GPUs it may compute on
 * other streams), and must never wait for its own stream, which would deadlock.
 * UNSUPPORTED if the plugin does not provide core.host_callback. */
core_status core_stream_callback(core_stream *stream,
                                 void (*function)(void *context), void *context,
                                 void (*drop)(void *context));

/* -------------------------------------------------------------- guards -- */

/* Guards change the current stream or device and restore it on every path:
 *
 *     core_stream_guard guard;
 *
 *     CORE_TRY(core_stream_guard_enter(stream, &guard));
 *     status = work();
 *     core_stream_guard_leave(&guard);
 *
 * Guards nest, and must be left in the thread that entered them. */

/* What core_stream_guard_leave restores.  Fields are private. */
typedef struct core_stream_guard {
    core_device *device;
    core_stream *stream;
    core_stream *entered;
} core_stream_guard;

/* Makes a stream and its device current for the calling thread.  On failure
 * nothing changes, and leaving the guard has no effect. */
core_status core_stream_guard_enter(core_stream *stream,
                                    core_stream_guard *guard);

/* Restores the stream and the device that were current before. */
void core_stream_guard_leave(core_stream_guard *guard);

/* What core_device_guard_leave restores.  Fields are private. */
typedef struct core_device_guard {
    core_device *device;
    int entered;
} core_device_guard;

/* Makes a device current for the calling thread.  On failure nothing changes,
 * and leaving the guard has no effect. */
core_status core_device_guard_enter(core_device *device,
                                    core_device_guard *guard);

/* Restores the device that was current before. */
void core_device_guard_leave(core_device_guard *guard);

/* -------------------------------------------------------------- events -- */

/* Creates an event.  The caller owns one reference.  flags: 0, or
 * CORE_EVENT_TIMING (backend.h) for core_event_elapsed.  INVALID_ARGUMENT for
 * other flags. */
core_status core_event_create(core_device *device, uint32_t flags,
                              core_event **out_event);

/* Adds a reference and returns event.  Accepts NULL. */
core_event *core_event_retain(core_event *event);

/* Drops a reference.  Accepts NULL.  Streams that wait for the event keep
 * waiting. */
void core_event_release(core_event *event);

/* Returns the device of an event, borrowed.  NULL for NULL. */
core_device *core_event_device(const core_event *event);

/* Records all work enqueued on a stream so far.  Recording an event again does
 * not affect waits that were enqueued before.  DEVICE if the stream belongs to
 * another device. */
core_status core_event_record(core_event *event, core_stream *stream);

/* Checks whether the recorded work is complete.  Does not wait.  Returns
 * CORE_OK, BUSY if it is not complete, or the error of that work.
 * INVALID_ARGUMENT if the event was never recorded. */
core_status core_event_query(core_event *event);

/* Waits until the recorded work is complete.  Returns the error of that work,
 * if any.  INVALID_ARGUMENT if the event was never recorded. */
core_status core_event_synchronize(core_event *event);

/* Gets the time in milliseconds between two completed events of one device, as
 * the device measured it.  INVALID_ARGUMENT if an event was created without
 * CORE_EVENT_TIMING or never recorded; BUSY if one is not complete; DEVICE if
 * they belong to different devices; UNSUPPORTED if the device cannot measure
 * time. */
core_status core_event_elapsed(core_event *start, core_event *end,
                               double *out_milliseconds);

/* --------------------------------------------------------------- copies -- */

/* Flags of core_tensor_copy. */
enum {
    /* The call may return before the copy is complete; the caller leaves the
     * host memory unchanged until then.  Only copies from and to pinned memory
     * (core_host_memory_alloc and core_host_memory_register in memory.h, and
     * core_tensor_pinned) are asynchronous; other copies wait. */
    CORE_COPY_NON_BLOCKING = 1u << 0
};

/* Copies the elements of `from` to `to`, which must have the same sizes.
 * Converts dtypes, layouts and devices, and is recorded by autograd, like
 * copy_.  flags: 0 or CORE_COPY_NON_BLOCKING.
 *
 * If the two devices belong to one plugin that copies directly between them,
 * the copy runs on the current stream of the target device, after the work
 * enqueued so far on the current stream of the source device, whose later work
 * waits for the copy. */
core_status core_tensor_copy(core_tensor *to, core_tensor *from,
                             uint32_t flags);

/* ---------------------------------------------------------------- device -- */

/* core_device_synchronize (device.h) waits for all streams of a device. */

/* Checks whether a device is usable.  Returns CORE_OK, or DEVICE_LOST with the
 * reason in the message. */
core_status core_device_status(core_device *device);

/* Resets a device, usually a lost one.  Tensors, streams and events from before
 * the reset return DEVICE_LOST and are released as usual; new ones work.
 * Pinned host memory from before keeps its content, but is no longer pinned.
 * No other thread may use the device during the call.  UNSUPPORTED if the
 * plugin does not provide core.device_reset.  DEVICE_LOST if the driver cannot:
 * after an error in a kernel, such as an illegal address, some drivers work
 * again only in a new process. */
core_status core_device_reset(core_device *device);

/* Gets a table that a plugin provides beyond libcore's own interfaces, for
 * programs written for that plugin.  name and version: as the plugin defines
 * them.  The table is borrowed and lives as long as the plugin is loaded.
 * NOT_FOUND if the plugin has no such table. */
core_status core_device_interface(core_device *device, const char *name,
                                  uint32_t version, const void **out_table);

/* Returns how many events of the backend libcore has created for this device
 * since it was opened.  Work on a single stream needs none. */
uint64_t core_device_events_created(const core_device *device);

/* Returns how often the host has waited for a device since the process
 * started. */
uint64_t core_host_waits(void);

#ifdef __cplusplus
}
#endif
#endif
