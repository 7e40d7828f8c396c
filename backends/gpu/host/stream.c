/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.c: streams and events. */

#include <gpu/host/interfaces.h>

#include <stdlib.h>

#define calls (gpu_this_vendor.driver)

/* ------------------------------------------------------------- errors -- */

/* A page of pinned memory is divided into slots.  A slot is free, or it is the
 * error record of a stream. */
union slot {
    gpu_error error;
    gpu_error_slot *next;
};
enum { PAGE = 4096, SLOTS = PAGE / sizeof(union slot) };
struct gpu_error_slot {
    union slot content;
};
struct gpu_error_page {
    gpu_error_page *next;
    void *pinned;
};
/* The record of a stream that ended; kernels may set it until the event. */
struct gpu_retired_error {
    gpu_retired_error *next;
    gpu_error *error;
    void *event;
};

/* Allocates a page that is not in use yet. */
static core_status new_page(gpu_device *device, gpu_error_page **out_page)
{
    gpu_error_page *page = calloc(1, sizeof *page);
    core_status status;

    *out_page = NULL;
    if (page == NULL)
        return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                          "no host memory for a stream");
    status = gpu_report(device,
                        calls->host_alloc(device->context, PAGE, &page->pinned),
                        "a stream's error record");
    if (status != CORE_OK) {
        free(page);
        return status;
    }
    *out_page = page;
    return CORE_OK;
}

/* This and the functions up to acquire_error are called under the lock. */
static void add_page(gpu_device *device, gpu_error_page *page)
{
    gpu_error_slot *slots = page->pinned;

    page->next = device->error_pages;
    device->error_pages = page;
    for (size_t i = 0; i < SLOTS; i++) {
        slots[i].content.next = device->free_errors;
        device->free_errors = &slots[i];
    }
}

static void add_free_slot(gpu_device *device, gpu_error *error)
{
    gpu_error_slot *slot = (gpu_error_slot *)(void *)error;

    slot->content.next = device->free_errors;
    device->free_errors = slot;
}

static void reclaim_retired(gpu_device *device)
{
    gpu_retired_error **at = &device->retired_errors;

    while (*at != NULL) {
        gpu_retired_error *retired = *at;

        if (calls->event_query(device->context, retired->event) != 0) {
            at = &retired->next;
            continue;
        }
        *at = retired->next;
        add_free_slot(device, retired->error);
        calls->event_destroy(device->context, retired->event);
        free(retired);
    }
}

/* Returns false if there is none. */
static bool take_free_slot(gpu_device *device, gpu_error **out_error)
{
    gpu_error_slot *slot;

    if (device->free_errors == NULL)
        reclaim_retired(device);
    slot = device->free_errors;
    if (slot == NULL)
        return false;
    device->free_errors = slot->content.next;
    memset(slot, 0, sizeof *slot);
    *out_error = &slot->content.error;
    return true;
}

static core_status acquire_error(gpu_device *device, gpu_error **out_error)
{
    core_status status = CORE_OK;
    gpu_error_page *page;
    uint32_t generation;

    pthread_mutex_lock(&device->lock);
    while (status == CORE_OK && !take_free_slot(device, out_error)) {
        generation = device->generation;
        pthread_mutex_unlock(&device->lock);
        status = new_page(device, &page);
        pthread_mutex_lock(&device->lock);
        if (status != CORE_OK)
            break;
        if (generation == device->generation)
            add_page(device, page);
        else /* a reset has freed its memory */
            free(page);
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

static void return_error(gpu_device *device, gpu_error *error)
{
    pthread_mutex_lock(&device->lock);
    add_free_slot(device, error);
    pthread_mutex_unlock(&device->lock);
}

/* Frees the record when the stream's work is done.  If no event can be
 * recorded, the record is not used again until the device is closed. */
static void retire_error(gpu_stream *stream)
{
    gpu_device *device = stream->device;
    gpu_retired_error *retired = calloc(1, sizeof *retired);
    int code = GPU_ABSENT;

    if (retired != NULL)
        code = calls->event_create(device->context, GPU_EVENT_PLAIN,
                                   &retired->event);
    if (code == 0)
        code = calls->event_record(device->context, retired->event,
                                   stream->native);
    if (code != 0) {
        if (retired != NULL && retired->event != NULL)
            calls->event_destroy(device->context, retired->event);
        free(retired);
        return;
    }
    retired->error = stream->error;
    pthread_mutex_lock(&device->lock);
    retired->next = device->retired_errors;
    device->retired_errors = retired;
    pthread_mutex_unlock(&device->lock);
}

void gpu_errors_free(gpu_device *device, bool usable)
{
    for (gpu_error_page *page = device->error_pages, *next; page != NULL;
         page = next) {
        next = page->next;
        if (usable)
            calls->host_free(device->context, page->pinned);
        free(page);
    }
    for (gpu_retired_error *retired = device->retired_errors, *next;
         retired != NULL; retired = next) {
        next = retired->next;
        if (usable)
            calls->event_destroy(device->context, retired->event);
        free(retired);
    }
    device->retired_errors = NULL;
    device->error_pages = NULL;
    device->free_errors = NULL;
}

/* ------------------------------------------------------------- streams -- */

static core_status make(gpu_device *device, gpu_stream **out_stream)
{
    gpu_stream *stream = calloc(1, sizeof *stream);
    core_status status;

    *out_stream = NULL;
    if (stream == NULL)
        return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                          "no host memory for a stream");
    stream->device = device;
    stream->generation = device->generation;
    status = acquire_error(device, &stream->error);
    if (status != CORE_OK) {
        free(stream);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    stream->next = device->streams;
    stream->link = &device->streams;
    if (stream->next != NULL)
        stream->next->link = &stream->next;
    device->streams = stream;
    pthread_mutex_unlock(&device->lock);
    *out_stream = stream;
    return CORE_OK;
}

static void drop(gpu_stream *stream)
{
    *stream->link = stream->next;
    if (stream->next != NULL)
        stream->next->link = stream->link;
    free(stream);
}

static void drop_locked(gpu_device *device, gpu_stream *stream)
{
    pthread_mutex_lock(&device->lock);
    drop(stream);
    pthread_mutex_unlock(&device->lock);
}

void gpu_streams_free(gpu_device *device)
{
    while (device->streams != NULL)
        drop(device->streams);
}

static core_status create_with(void *opaque, uint32_t flags, int32_t priority,
                               void **out_stream)
{
    gpu_device *device = opaque;
    gpu_stream *stream = NULL;
    core_status status;

    *out_stream = NULL;
    if (flags != 0)
        return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                          "the stream flags are 0x%x; accepted: 0", flags);
    status = make(device, &stream);
    if (status != CORE_OK)
        return status;
    status = gpu_report(
        device,
        calls->stream_create(device->context, priority, &stream->native),
        "creating a stream");
    if (status != CORE_OK) {
        return_error(device, stream->error);
        drop_locked(device, stream);
        return status;
    }
    *out_stream = stream;
    return CORE_OK;
}

static core_status create(void *device, uint32_t flags, void **out_stream)
{
    return create_with(device, flags, 0, out_stream);
}

bool gpu_native_is_capturing(void *context, void *native)
{
    uint32_t yes = 0;

    return calls->stream_is_capturing != NULL &&
           (calls->stream_is_capturing(context, native, &yes) != 0 || yes);
}

/* Whether another library is capturing on the stream.  Querying its work would
 * invalidate the capture, and an event would become part of it. */
static bool is_captured_elsewhere(const gpu_stream *stream)
{
    return stream->adopted &&
           gpu_native_is_capturing(stream->device->context, stream->native);
}

static core_status refuse(const char *what)
{
    return gpu_refuse(CORE_ERROR_UNSUPPORTED,
                      "%s: another library is capturing on this stream", what);
}

/* Does not wait.  A graph that another library captured may set the record
 * whenever it is launched: so it is not used again until the device is
 * closed. */
static void destroy(void *opaque, void *on)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;
    bool known = stream->generation == device->generation;
    int code = GPU_ABSENT;

    if (known && !atomic_load(&device->lost) && !is_captured_elsewhere(stream))
        code = calls->stream_query(device->context, stream->native);
    if (code == 0)
        return_error(device, stream->error);
    else if (code == GPU_BUSY)
        retire_error(stream);
    gpu_callbacks_close(stream->callbacks);
    if (known && !stream->adopted)
        calls->stream_destroy(device->context, stream->native);
    else if (known && calls->stream_release != NULL)
        calls->stream_release(device->context, stream->native);
    drop_locked(device, stream);
}

static core_status query(void *opaque, void *on)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = is_captured_elsewhere(stream)
                   ? GPU_BUSY
                   : calls->stream_query(device->context, stream->native);
    return gpu_report(device, code, "work on the stream");
}

static core_status synchronize(void *opaque, void *on)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0 && is_captured_elsewhere(stream))
        return refuse("waiting for work");
    if (code == 0)
        code = gpu_wait_stream(device, stream->native);
    return gpu_report(device, code, "work on the stream");
}

static core_status wait_event(void *opaque, void *on, void *event)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = calls->stream_wait(device->context, stream->native, event);
    return gpu_report(device, code, "waiting for an event");
}

const core_stream_table gpu_stream_table = {
    .struct_size = sizeof(core_stream_table),
    .create = create,
    .destroy = destroy,
    .query = query,
    .synchronize = synchronize,
    .wait_event = wait_event,
};

/* -------------------------------------------------------------- events -- */

static core_status event_create(void *opaque, uint32_t flags, void **out_event)
{
    gpu_device *device = opaque;

    *out_event = NULL;
    if (flags & ~(uint32_t)CORE_EVENT_TIMING)
        return gpu_refuse(
            CORE_ERROR_UNSUPPORTED,
            "the event flags are 0x%x; accepted: 0 or CORE_EVENT_TIMING",
            flags);
    return gpu_report(
        device,
        calls->event_create(device->context,
                            flags != 0 ? GPU_EVENT_TIMING : GPU_EVENT_PLAIN,
                            out_event),
        "creating an event");
}

static void event_destroy(void *opaque, void *event)
{
    gpu_device *device = opaque;

    calls->event_destroy(device->context, event);
}

static core_status event_record(void *opaque, void *event, void *on)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0 && is_captured_elsewhere(stream))
        return refuse("recording an event");
    if (code == 0)
        code = calls->event_record(device->context, event, stream->native);
    return gpu_report(device, code, "recording an event");
}

static core_status event_query(void *opaque, void *event)
{
    gpu_device *device = opaque;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = calls->event_query(device->context, event);
    return gpu_report(device, code, "work before the event");
}

static core_status event_synchronize(void *opaque, void *event)
{
    gpu_device *device = opaque;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = gpu_wait_event(device, event);
    return gpu_report(device, code, "work before the event");
}

const core_event_table gpu_event_table = {
    .struct_size = sizeof(core_event_table),
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .synchronize = event_synchronize,
};

/* ---------------------------------------------------------- interfaces -- */

static core_status elapsed(void *opaque, void *start, void *end,
                           int64_t *out_nanoseconds)
{
    gpu_device *device = opaque;

    *out_nanoseconds = 0;
    return gpu_report(
        device,
        calls->event_elapsed(device->context, start, end, out_nanoseconds),
        "the time between events");
}

const core_timing_interface gpu_timing = {
    .struct_size = sizeof(core_timing_interface),
    .elapsed = elapsed,
};

static core_status range(void *opaque, int32_t *out_least,
                         int32_t *out_greatest)
{
    gpu_device *device = opaque;

    return gpu_report(
        device, calls->priority_range(device->context, out_least, out_greatest),
        "querying stream priorities");
}

const core_stream_priority_interface gpu_stream_priority = {
    .struct_size = sizeof(core_stream_priority_interface),
    .range = range,
    .create = create_with,
};

static core_status adopt(void *opaque, void *native, void **out_stream)
{
    gpu_stream *stream = NULL;
    core_status status = make(opaque, &stream);

    *out_stream = stream;
    if (status != CORE_OK)
        return status;
    stream->native = native;
    stream->adopted = 1;
    return CORE_OK;
}

static core_status native(void *device, void *on, void **out_native)
{
    gpu_stream *stream = on;

    (void)device;
    *out_native = stream->native;
    return CORE_OK;
}

const core_stream_adopt_interface gpu_stream_adopt = {
    .struct_size = sizeof(core_stream_adopt_interface),
    .adopt = adopt,
    .native = native,
};

/* The record is in pinned memory: reading it needs no wait. */
static const char *error_text(int32_t code)
{
    switch (code) {
    case GPU_BAD_INDEX:
        return "an index is out of range";
    case GPU_BAD_PROBABILITY:
        return "a probability is not in [0, 1]";
    case GPU_BAD_REPEATS:
        return "a repeat count is negative";
    case GPU_SHORT_SOURCE:
        return "the source has fewer elements than the mask selects";
    case GPU_BAD_WEIGHTS:
        return "the weights of a row are negative, not finite, or too few";
    case GPU_NOT_POSITIVE:
        return "a matrix is not positive definite";
    default:
        return "division of an integer by zero";
    }
}

static core_status take(void *device, void *on, core_stream_error *out)
{
    gpu_stream *stream = on;
    volatile gpu_error *error = stream->error;

    (void)device;
    out->code = CORE_OK;
    if (error->code == 0)
        return CORE_OK;
    out->code = error->code & 0xffff;
    out->call_id = (uint64_t)error->call;
    out->index = error->index;
    out->text = core_sdk_string(error_text(error->code));
    error->code = 0;
    return CORE_OK;
}

const core_stream_error_interface gpu_stream_error = {
    .struct_size = sizeof(core_stream_error_interface),
    .take = take,
};
