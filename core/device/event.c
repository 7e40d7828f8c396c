/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Events, and the order between streams that they create.
 *
 * Lock order: an event's lock before a queue's.  Neither is held while the
 * host waits. */

#include "base/fork.h"
#include "base/memory.h"
#include "base/observe.h"
#include "device/stream.h"

#include <time.h>

typedef struct event_stock {
    pthread_mutex_t lock;
    core_event *first;
} event_stock;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* -------------------------------------------------------------- making -- */

static core_status event_new(core_device *device, uint32_t flags,
                             core_event **out_event)
{
    core_event *event = core__alloc_zero(sizeof *event);
    core_status status;
    uint32_t errors = core__error_sequence();

    if (!event)
        return core__error_memory(sizeof *event);
    atomic_init(&event->references, 1);
    event->device = device;
    event->generation = atomic_load(&device->generation);
    event->flags = flags;
    if (!device->synchronous) {
        status =
            device->backend->events.create(device->impl, flags, &event->impl);
        if (status != CORE_OK) {
            core__free(event);
            return core__device_check_status(device, status, errors);
        }
        atomic_fetch_add_explicit(&device->events_created, 1,
                                  memory_order_relaxed);
    }
    pthread_mutex_init(&event->lock, NULL);
    atomic_init(&event->lock_mark, core__fork_mark);
    *out_event = event;
    return CORE_OK;
}

static void event_free(core_event *event)
{
    core_device *device = event->device;

    if (!device->synchronous &&
        core__device_has_generation(device, event->generation))
        device->backend->events.destroy(device->impl, event->impl);
    core__queue_release(event->queue);
    pthread_mutex_destroy(&event->lock);
    core__free(event);
}

core_status core_event_create(core_device *device, uint32_t flags,
                              core_event **out_event)
{
    CORE__NOT_NULL(out_event);
    *out_event = NULL;
    CORE__NOT_NULL(device);
    if (flags & ~(uint32_t)CORE_EVENT_TIMING)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_event_create: the flags are 0x%x; accepted: 0 "
                           "or CORE_EVENT_TIMING",
                           flags);
    if (atomic_load(&device->lost))
        return core__device_stale_error(device);
    CORE_TRY(event_new(device, flags, out_event));
    core_device_retain(device);
    return CORE_OK;
}

core_event *core_event_retain(core_event *event)
{
    if (event)
        atomic_fetch_add_explicit(&event->references, 1, memory_order_relaxed);
    return event;
}

void core_event_release(core_event *event)
{
    core_device *device;

    if (!event || atomic_fetch_sub_explicit(&event->references, 1,
                                            memory_order_acq_rel) != 1)
        return;
    device = event->device;
    event_free(event);
    core_device_release(device);
}

core_device *core_event_device(const core_event *event)
{
    return event ? event->device : NULL;
}

uint64_t core_device_events_created(const core_device *device)
{
    return device ? atomic_load(&device->events_created) : 0;
}

/* --------------------------------------------------------------- stock -- */

core_status core__event_stock_create(core_device *device)
{
    event_stock *stock = core__alloc_zero(sizeof *stock);

    if (!stock)
        return core__error_memory(sizeof *stock);
    pthread_mutex_init(&stock->lock, NULL);
    device->event_stock = stock;
    return CORE_OK;
}

void core__event_stock_empty(core_device *device)
{
    event_stock *stock = device->event_stock;
    core_event *event;

    if (!stock || device->forked)
        return;
    pthread_mutex_lock(&stock->lock);
    event = stock->first;
    stock->first = NULL;
    pthread_mutex_unlock(&stock->lock);
    while (event) {
        core_event *next = event->next;

        event_free(event);
        event = next;
    }
}

void core__event_stock_destroy(core_device *device)
{
    event_stock *stock = device->event_stock;

    if (device->forked)
        return;
    core__event_stock_empty(device);
    if (stock)
        pthread_mutex_destroy(&stock->lock);
    core__free(stock);
    device->event_stock = NULL;
}

core_status core__event_take(core_device *device, core_event **out_event)
{
    event_stock *stock = device->event_stock;

    *out_event = NULL;
    CORE_TRY(core__device_check_process(device));
    if (stock) {
        pthread_mutex_lock(&stock->lock);
        *out_event = stock->first;
        if (*out_event)
            stock->first = (*out_event)->next;
        pthread_mutex_unlock(&stock->lock);
    }
    if (*out_event)
        return CORE_OK;
    CORE_TRY(event_new(device, 0, out_event));
    (*out_event)->own = true;
    return CORE_OK;
}

void core__event_return(core_event *event)
{
    event_stock *stock;

    if (!event)
        return;
    stock = event->device->event_stock;
    core__queue_release(event->queue);
    event->queue = NULL;
    event->recorded = false;
    if (!stock ||
        event->generation != atomic_load(&event->device->generation)) {
        event_free(event);
        return;
    }
    pthread_mutex_lock(&stock->lock);
    event->next = stock->first;
    stock->first = event;
    pthread_mutex_unlock(&stock->lock);
}

/* ----------------------------------------------------------- recording -- */

static core_status check_event(const core_event *event)
{
    if (core__unlikely(event->generation !=
                       atomic_load(&event->device->generation)))
        return core__device_stale_error(event->device);
    return CORE_OK;
}

static core_status record_impl(core_event *event, core_stream *stream,
                               uint64_t capture_id)
{
    core_device *device = event->device;
    core__queue *queue = stream->queue;
    core_status status;
    uint32_t errors = core__error_sequence();

    if (device->synchronous) {
        event->recorded_ns = now_ns();
        return CORE_OK;
    }
    if (capture_id)
        return CORE_OK; /* nothing may wait for it */
    pthread_mutex_lock(&queue->lock);
    status =
        device->backend->events.record(device->impl, event->impl, queue->impl);
    pthread_mutex_unlock(&queue->lock);
    return core__stream_check_submitted(stream, status, errors);
}

core_status core_event_record(core_event *event, core_stream *stream)
{
    core__queue *before = NULL;
    core__queue_mark mark;
    uint64_t capture_id;
    core_status status;

    CORE__NOT_NULL(event);
    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_cut(__func__));
    if (event->device != stream->device)
        return core__error(CORE_ERROR_DEVICE,
                           "core_event_record: the event is of \"%s\", the "
                           "stream of \"%s\"; both must be of one device",
                           event->device->name, stream->device->name);
    CORE_TRY(core__stream_check(stream));
    CORE_TRY(check_event(event));
    core__fork_lock(&event->lock, &event->lock_mark);
    mark = core__queue_position(stream->queue);
    capture_id = atomic_load(&stream->capture_id);
    status = record_impl(event, stream, capture_id);
    if (status == CORE_OK) {
        event->recorded = true;
        event->mark = mark;
        event->capture_id = capture_id;
        if (event->queue != stream->queue) {
            before = event->queue;
            event->queue = core__queue_retain(stream->queue);
        }
    }
    pthread_mutex_unlock(&event->lock);
    core__queue_release(before);
    return status;
}

core_status core__event_record_handle(core_event *event, void *handle)
{
    core_device *device = event->device;
    core__queue *queue = core__queue_by_handle(device, handle);
    core_status status = check_event(event);
    uint32_t errors = core__error_sequence();

    if (status == CORE_OK) {
        core__fork_lock(&event->lock, &event->lock_mark);
        if (queue)
            pthread_mutex_lock(&queue->lock);
        status =
            device->backend->events.record(device->impl, event->impl, handle);
        if (queue)
            pthread_mutex_unlock(&queue->lock);
        event->recorded = event->recorded || status == CORE_OK;
        event->capture_id = 0;
        pthread_mutex_unlock(&event->lock);
        status = core__device_check_status(device, status, errors);
    }
    core__queue_release(queue);
    return status;
}

/* ------------------------------------------------------------- waiting -- */

/* CORE_OK if the event's lock can be taken in this process. */
static core_status check_process(const core_event *event)
{
    return core__device_check_process(event->device);
}

/* With the event's lock held.  stream: the stream that will wait; NULL: the
 * host. */
static core_status check_recorded(const core_event *event, core_stream *stream,
                                  const char *what)
{
    core_stream *current = core__stream_current(event->device);

    CORE_TRY(check_event(event));
    if (!event->recorded)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the event of \"%s\" was never recorded", what,
                           event->device->name);
    /* After the end of that capture, no stream is capturing. */
    if (event->capture_id && !(stream && stream->capture) && !current->capture)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the event of \"%s\" was recorded in a capture, "
                           "and is valid only inside it",
                           what, event->device->name);
    if (event->capture_id)
        return core__capture_refuse(
            stream && atomic_load(&current->capture_id) != event->capture_id
                ? stream
                : current,
            what);
    return CORE_OK;
}

static core_status query(core_event *event, const char *what)
{
    core__queue *queue = NULL;
    core_device *device = event->device;
    core__queue_mark mark;
    core_status status;
    uint32_t errors = core__error_sequence();

    CORE_TRY(check_process(event));
    core__fork_lock(&event->lock, &event->lock_mark);
    status = check_recorded(event, NULL, what);
    if (status != CORE_OK || device->synchronous) {
        pthread_mutex_unlock(&event->lock);
        return status;
    }
    mark = event->mark;
    queue = core__queue_retain(event->queue);
    status = device->backend->events.query(device->impl, event->impl);
    pthread_mutex_unlock(&event->lock);
    if (status != CORE_OK)
        status = core__queue_check_status(queue, status, errors, what);
    else
        status = core__queue_mark_succeeded(queue, mark, what);
    core__queue_release(queue);
    return status;
}

core_status core_event_query(core_event *event)
{
    CORE__NOT_NULL(event);
    CORE_TRY(core__thread_cut(__func__));
    return query(event, "core_event_query");
}

static core_status synchronize(core_event *event, const char *reason)
{
    core_device *device = event->device;
    core__queue *queue;
    core__queue_mark mark;
    uint64_t token;
    core_status status;
    uint32_t errors = core__error_sequence();

    CORE_TRY(check_process(event));
    core__fork_lock(&event->lock, &event->lock_mark);
    status = check_recorded(event, NULL, reason);
    if (status != CORE_OK || device->synchronous) {
        pthread_mutex_unlock(&event->lock);
        return status;
    }
    mark = event->mark;
    queue = core__queue_retain(event->queue);
    pthread_mutex_unlock(&event->lock);
    core__host_wait_count();
    token = core__observe_begin(CORE__OBSERVED_WAIT, reason, 0, device);
    status = device->backend->events.synchronize(device->impl, event->impl);
    core__observe_end(token);
    if (status != CORE_OK)
        status = core__queue_check_status(queue, status, errors, reason);
    else
        status = core__queue_mark_succeeded(queue, mark, reason);
    core__queue_release(queue);
    return status;
}

core_status core_event_synchronize(core_event *event)
{
    CORE__NOT_NULL(event);
    CORE_TRY(core__thread_check_unrecorded(__func__));
    return synchronize(event, "core_event_synchronize");
}

static core_status wait_impl(core_stream *stream, core_event *event)
{
    core__queue *queue = stream->queue;
    core_status status;
    uint32_t errors = core__error_sequence();

    pthread_mutex_lock(&queue->lock);
    status = stream->device->backend->streams.wait_event(
        stream->device->impl, queue->impl, event->impl);
    pthread_mutex_unlock(&queue->lock);
    return core__stream_check_submitted(stream, status, errors);
}

/* data: the work after the wait uses results of the work before the event. */
static core_status wait_event(core_stream *stream, core_event *event, bool data)
{
    core_status status;

    CORE_TRY(core__stream_check(stream));
    if (stream->device->backend != event->device->backend && stream->capture &&
        !event->device->synchronous)
        return core__capture_refuse(stream,
                                    "a wait for work of another stream");
    if (stream->device->backend != event->device->backend)
        return synchronize(event, "core_stream_wait_event");
    CORE_TRY(check_process(event));
    core__fork_lock(&event->lock, &event->lock_mark);
    status = check_event(event);
    /* The stream already runs its work in order: nothing to do. */
    if (status == CORE_OK && event->recorded && event->queue == stream->queue) {
        pthread_mutex_unlock(&event->lock);
        return CORE_OK;
    }
    if (status == CORE_OK)
        status = check_recorded(event, stream, "core_stream_wait_event");
    if (status == CORE_OK && stream->capture)
        status =
            core__capture_refuse(stream, "a wait for work of another stream");
    if (status == CORE_OK && !stream->device->synchronous)
        status = wait_impl(stream, event);
    if (status == CORE_OK && data)
        status = core__queue_add_awaited(stream->queue, event->queue);
    pthread_mutex_unlock(&event->lock);
    return status;
}

core_status core_stream_wait_event(core_stream *stream, core_event *event)
{
    CORE__NOT_NULL(stream);
    CORE__NOT_NULL(event);
    CORE_TRY(core__thread_cut(__func__));
    return wait_event(stream, event, true);
}

core_status core__stream_wait_event_reuse(core_stream *stream,
                                          core_event *event)
{
    return wait_event(stream, event, false);
}

static core_status order(core_stream *later, core_stream *earlier, bool data)
{
    core_event *event;
    core_status status;

    if (later->queue == earlier->queue || earlier->device->synchronous)
        return CORE_OK;
    if (later->device->backend != earlier->device->backend && later->capture)
        return core__capture_refuse(later, "a wait for work of another stream");
    if (later->device->backend != earlier->device->backend)
        return core__stream_wait(earlier,
                                 "a wait for a device of another plugin");
    CORE_TRY(core__stream_check(later));
    CORE_TRY(core__stream_check(earlier));
    CORE_TRY(core__event_take(earlier->device, &event));
    status = core_event_record(event, earlier);
    if (status == CORE_OK)
        status = wait_event(later, event, data);
    core__event_return(event);
    return status;
}

core_status core__stream_order(core_stream *later, core_stream *earlier)
{
    return order(later, earlier, true);
}

core_status core__stream_order_reuse(core_stream *later, core_stream *earlier)
{
    return order(later, earlier, false);
}

core_status core_stream_wait_stream(core_stream *stream, core_stream *other)
{
    CORE__NOT_NULL(stream);
    CORE__NOT_NULL(other);
    CORE_TRY(core__thread_cut(__func__));
    CORE_TRY(core__stream_check(stream));
    CORE_TRY(core__stream_check(other));
    return core__stream_order(stream, other);
}

/* ---------------------------------------------------------------- time -- */

static core_status check_timed(core_event *event, const char *which)
{
    core_status status;

    if (!(event->flags & CORE_EVENT_TIMING))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_event_elapsed: the event `%s` was created "
                           "without CORE_EVENT_TIMING",
                           which);
    status = query(event, "core_event_elapsed");
    if (status == CORE_ERROR_BUSY)
        return core__error(CORE_ERROR_BUSY,
                           "core_event_elapsed: the event `%s` has not "
                           "completed; wait for it first",
                           which);
    return status;
}

core_status core_event_elapsed(core_event *start, core_event *end,
                               double *out_milliseconds)
{
    core_device *device;
    int64_t nanoseconds = 0;
    core_status status;
    uint32_t errors = core__error_sequence();

    CORE__NOT_NULL(out_milliseconds);
    *out_milliseconds = 0;
    CORE__NOT_NULL(start);
    CORE__NOT_NULL(end);
    device = start->device;
    if (device != end->device)
        return core__error(CORE_ERROR_DEVICE,
                           "core_event_elapsed: the events are of \"%s\" and "
                           "\"%s\"; both must be of one device",
                           device->name, end->device->name);
    if (!device->synchronous && !device->interfaces.timing.elapsed)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_event_elapsed: the plugin of \"%s\" does not "
                           "offer core.timing",
                           device->name);
    CORE_TRY(check_timed(start, "start"));
    CORE_TRY(check_timed(end, "end"));
    if (device->synchronous) {
        nanoseconds = (int64_t)(end->recorded_ns - start->recorded_ns);
    } else {
        status = device->interfaces.timing.elapsed(device->impl, start->impl,
                                                   end->impl, &nanoseconds);
        if (status != CORE_OK)
            return core__device_check_status(device, status, errors);
    }
    *out_milliseconds = (double)nanoseconds / 1e6;
    return CORE_OK;
}
