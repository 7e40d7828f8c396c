/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Streams: creation, adoption, references, queries and callbacks. */

#include "device/stream.h"
#include "device/upcalls.h"

#include "base/memory.h"

static _Atomic uint64_t newest_id;

/* ----------------------------------------------------- the default one -- */

/* The meta device computes nothing, but has a stream like every device. */
core_stream core__meta_stream = {
    .references = 1,
    .device = &core__meta_device,
    .queue = &core__queue_synchronous,
};

static core_stream *stream_new(core_device *device)
{
    core_stream *stream = core__alloc_zero(sizeof *stream);

    if (!stream) {
        core__error_memory(sizeof *stream);
        return NULL;
    }
    atomic_init(&stream->references, 1);
    stream->device = device;
    stream->generation = atomic_load(&device->generation);
    stream->queue = &core__queue_synchronous;
    return stream;
}

static void stream_free(core_stream *stream)
{
    core__queue_stream_end(stream->queue);
    core__free(stream);
}

core_status core__stream_default_create(core_device *device)
{
    core_stream *stream = stream_new(device);
    core_status status = CORE_OK;

    if (!stream)
        return CORE_ERROR_OUT_OF_MEMORY;
    if (!device->synchronous) {
        status = core__queues_create(device);
        if (status == CORE_OK)
            status = core__event_stock_create(device);
        if (status == CORE_OK)
            status = core__queue_take(device, CORE_STREAM_COMPUTE, 0,
                                      &stream->queue);
        if (status != CORE_OK) {
            stream->queue = NULL;
            stream_free(stream);
            return status;
        }
        stream->impl = stream->queue->impl;
    }
    device->stream = stream;
    return CORE_OK;
}

core_status core__stream_default_renew(core_device *device)
{
    core_stream *stream = device->stream;
    core__queue *queue = &core__queue_synchronous;

    if (!device->synchronous)
        CORE_TRY(core__queue_take(device, CORE_STREAM_COMPUTE, 0, &queue));
    core__queue_stream_end(stream->queue);
    stream->queue = queue;
    stream->impl = queue->impl;
    stream->generation = queue->generation;
    return CORE_OK;
}

void core__stream_default_destroy(core_device *device)
{
    core_stream *stream = device->stream;

    core__event_stock_destroy(device);
    device->stream = NULL;
    if (stream)
        stream_free(stream);
    core__queues_destroy(device);
}

/* ------------------------------------------------------------ creating -- */

/* Creates a stream on a queue, whose reference it takes over. */
static core_status wrap(core_device *device, core__queue *queue,
                        core_stream **out_stream)
{
    core_stream *stream = stream_new(device);

    if (!stream) {
        core__queue_stream_end(queue);
        return CORE_ERROR_OUT_OF_MEMORY;
    }
    stream->queue = queue;
    stream->impl = queue->impl;
    stream->id = atomic_fetch_add(&newest_id, 1) + 1;
    core_device_retain(device);
    *out_stream = stream;
    return CORE_OK;
}

static core_status check_alive(core_device *device)
{
    return atomic_load(&device->lost) ? core__device_stale_error(device)
                                      : CORE_OK;
}

static core_status create(core_device *device, uint32_t kind, int32_t priority,
                          core_stream **out_stream)
{
    core__queue *queue = &core__queue_synchronous;

    CORE_TRY(check_alive(device));
    if (!device->synchronous)
        CORE_TRY(core__queue_take(device, kind, priority, &queue));
    return wrap(device, queue, out_stream);
}

core_status core_stream_create(core_device *device, core_stream **out_stream)
{
    CORE__NOT_NULL(out_stream);
    *out_stream = NULL;
    CORE__NOT_NULL(device);
    return create(device, CORE_STREAM_COMPUTE, 0, out_stream);
}

core_status core_device_stream_kinds(core_device *device, uint32_t *out_kinds)
{
    CORE__NOT_NULL(out_kinds);
    *out_kinds = 0;
    CORE__NOT_NULL(device);
    *out_kinds = 1u << CORE_STREAM_COMPUTE;
    if (!device->synchronous && device->properties.copy_streams > 0)
        *out_kinds |= 1u << CORE_STREAM_COPY;
    return CORE_OK;
}

core_status core_stream_create_kind(core_device *device, uint32_t kind,
                                    core_stream **out_stream)
{
    uint32_t kinds;

    CORE__NOT_NULL(out_stream);
    *out_stream = NULL;
    CORE__NOT_NULL(device);
    if (kind > CORE_STREAM_COPY)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_stream_create_kind: the kind is %u; accepted: "
                           "CORE_STREAM_COMPUTE (0) and CORE_STREAM_COPY (1)",
                           kind);
    CORE_TRY(core_device_stream_kinds(device, &kinds));
    if (!(kinds >> kind & 1))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_stream_create_kind: \"%s\" has no streams "
            "that only copy; CORE_STREAM_COMPUTE (0) is accepted",
            device->name);
    return create(device, kind, 0, out_stream);
}

uint32_t core_stream_kind(const core_stream *stream)
{
    return stream ? stream->queue->kind : (uint32_t)CORE_STREAM_COMPUTE;
}

core_status core_device_priorities(core_device *device, int32_t *out_least,
                                   int32_t *out_greatest)
{
    core_status (*range)(void *, int32_t *, int32_t *);
    uint32_t errors = core__error_sequence();

    CORE__NOT_NULL(out_least);
    CORE__NOT_NULL(out_greatest);
    *out_least = *out_greatest = 0;
    CORE__NOT_NULL(device);
    CORE_TRY(core__device_check_process(device));
    range = device->interfaces.stream_priority.range;
    if (!range || !device->interfaces.stream_priority.create)
        return CORE_OK;
    return core__device_check_status(
        device, range(device->impl, out_least, out_greatest), errors);
}

core_status core_stream_create_priority(core_device *device, int32_t priority,
                                        core_stream **out_stream)
{
    int32_t least, greatest;

    CORE__NOT_NULL(out_stream);
    *out_stream = NULL;
    CORE__NOT_NULL(device);
    CORE_TRY(core_device_priorities(device, &least, &greatest));
    if (priority != 0 && !device->interfaces.stream_priority.create)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_stream_create_priority: the priority is %d; "
                           "streams of \"%s\" accept 0 only",
                           (int)priority, device->name);
    if (priority > least)
        priority = least;
    if (priority < greatest)
        priority = greatest;
    return create(device, CORE_STREAM_COMPUTE, priority, out_stream);
}

core_status core_stream_adopt(core_device *device, void *native,
                              core_stream **out_stream)
{
    core__queue *queue;

    CORE__NOT_NULL(out_stream);
    *out_stream = NULL;
    CORE__NOT_NULL(device);
    if (!device->interfaces.stream_adopt.adopt)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_stream_adopt: \"%s\" cannot adopt streams of other libraries",
            device->name);
    CORE__NOT_NULL(native);
    CORE_TRY(check_alive(device));
    CORE_TRY(core__queue_adopt(device, native, &queue));
    return wrap(device, queue, out_stream);
}

core_status core_stream_native(core_stream *stream, void **out_native)
{
    core_device *device;
    core_status status;
    uint32_t errors = core__error_sequence();

    CORE__NOT_NULL(out_native);
    *out_native = NULL;
    CORE__NOT_NULL(stream);
    device = stream->device;
    if (!device->interfaces.stream_adopt.native)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_stream_native: streams of \"%s\" have no native handle",
            device->name);
    CORE_TRY(core__stream_check(stream));
    pthread_mutex_lock(&stream->queue->lock);
    status = device->interfaces.stream_adopt.native(device->impl, stream->impl,
                                                    out_native);
    pthread_mutex_unlock(&stream->queue->lock);
    return core__device_check_status(device, status, errors);
}

/* ---------------------------------------------------------- references -- */

core_stream *core_stream_retain(core_stream *stream)
{
    if (!stream)
        return NULL;
    if (stream == stream->device->stream)
        core_device_retain(stream->device);
    else
        atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
    return stream;
}

void core__stream_destroy(core_stream *stream)
{
    core_device *device = stream->device;

    stream_free(stream);
    core_device_release(device);
}

void core_stream_release(core_stream *stream)
{
    if (!stream)
        return;
    if (stream == stream->device->stream)
        core_device_release(stream->device);
    else if (atomic_fetch_sub_explicit(&stream->references, 1,
                                       memory_order_acq_rel) == 1)
        core__device_upcalls.allocator_stream_end(stream);
}

core_device *core_stream_device(const core_stream *stream)
{
    return stream ? stream->device : NULL;
}

uint64_t core_stream_id(const core_stream *stream)
{
    return stream ? stream->id : 0;
}

/* ------------------------------------------------------------- waiting -- */

core_status core_stream_query(core_stream *stream)
{
    core_device *device;
    core__queue_mark mark;
    core__queue *queue;
    core_status status;
    uint32_t errors = core__error_sequence();

    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_cut(__func__));
    device = stream->device;
    queue = stream->queue;
    if (device->synchronous)
        return CORE_OK;
    CORE_TRY(core__stream_check(stream));
    if (stream->capture)
        return core__capture_refuse(stream, "core_stream_query");
    mark = core__queue_position(queue);
    pthread_mutex_lock(&queue->lock);
    status = device->backend->streams.query(device->impl, queue->impl);
    pthread_mutex_unlock(&queue->lock);
    if (status != CORE_OK)
        return core__queue_check_status(queue, status, errors,
                                        "core_stream_query");
    return core__queue_mark_succeeded(queue, mark, "core_stream_query");
}

core_status core__stream_wait(core_stream *stream, const char *reason)
{
    if (stream->device->synchronous)
        return CORE_OK;
    if (core__unlikely(stream->capture))
        return core__capture_refuse(stream, reason);
    return core__queue_wait(stream->queue, reason);
}

core_status core_stream_synchronize(core_stream *stream)
{
    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_check_unrecorded(__func__));
    return core__stream_wait(stream, "core_stream_synchronize");
}

/* ----------------------------------------------------------- callbacks -- */

static void drop_nothing(void *context)
{
    (void)context;
}

core_status core_stream_callback(core_stream *stream,
                                 void (*function)(void *context), void *context,
                                 void (*drop)(void *context))
{
    core_device *device = stream ? stream->device : NULL;
    core_status status;
    uint32_t errors = core__error_sequence();

    if (!drop)
        drop = drop_nothing;
    if (!stream) {
        status = core__error_null(__func__, "stream");
    } else if (!function) {
        status = core__error_null(__func__, "function");
    } else if ((status = core__thread_check_unrecorded(__func__)) != CORE_OK) {
        ; /* function is not called */
    } else if (device->synchronous) {
        function(context);
        return CORE_OK;
    } else if (!device->interfaces.host_callback.enqueue) {
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "core_stream_callback: streams of \"%s\" cannot "
                             "call host functions",
                             device->name);
    } else if (stream->capture) {
        status = core__capture_refuse(stream, "a host callback");
    } else if ((status = core__stream_check(stream)) == CORE_OK) {
        /* From here on the plugin drops it. */
        return core__stream_check_submitted(
            stream,
            device->interfaces.host_callback.enqueue(device->impl, stream->impl,
                                                     function, context, drop),
            errors);
    }
    drop(context);
    return status;
}
