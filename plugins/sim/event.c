/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "event.h"

#include "fault.h"
#include "race.h"

#include <stdlib.h>
#include <time.h>

void sim_marker_unref(sim_marker *marker)
{
    if (--marker->references > 0)
        return;
    sim_stream_unref(marker->stream);
    free(marker->clock);
    free(marker);
}

bool sim_marker_done(const sim_marker *marker)
{
    return marker->stream->done >= marker->number;
}

static core_status create(void *device, uint32_t flags, void **out_event)
{
    core_status status = sim_usable(device);
    sim_event *event;

    *out_event = NULL;
    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_EVENT);
    if (status != CORE_OK)
        return status;
    if (flags & ~(uint32_t)CORE_EVENT_TIMING)
        return core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                              "event create: flags are 0x%x; accepted: 0 or "
                              "CORE_EVENT_TIMING",
                              flags);
    event = calloc(1, sizeof *event);
    if (!event)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory for an event");
    event->device = device;
    event->flags = flags;
    pthread_mutex_lock(&sim_lock);
    event->next = event->device->events;
    event->device->events = event;
    event->device->count.events++;
    event->device->count.events_created++;
    pthread_mutex_unlock(&sim_lock);
    *out_event = event;
    return CORE_OK;
}

static void destroy(void *device, void *handle)
{
    sim_event *event = handle;
    sim_event **at;

    (void)device;
    pthread_mutex_lock(&sim_lock);
    at = &event->device->events;
    while (*at != event)
        at = &(*at)->next;
    *at = event->next;
    event->device->count.events--;
    if (event->marker)
        sim_marker_unref(event->marker);
    pthread_mutex_unlock(&sim_lock);
    free(event);
}

/* Runs when the stream reaches the marker. */
static core_status run_record(sim_work *work)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&sim_lock);
    work->marker->time_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

static void end_record(sim_work *work)
{
    pthread_mutex_lock(&sim_lock);
    work->marker->failure = work->stream->failure;
    sim_marker_unref(work->marker);
    pthread_mutex_unlock(&sim_lock);
}

static core_status record(void *device, void *handle, void *stream)
{
    sim_event *event = handle;
    sim_work work = {.run = run_record,
                     .end = end_record,
                     .what = "record of an event",
                     .records = true,
                     .undelayed = true};
    sim_marker *marker;
    core_status status = sim_usable(device);

    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_RECORD);
    if (status != CORE_OK)
        return status;
    marker = calloc(1, sizeof *marker);
    if (!marker)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory to record an event");
    pthread_mutex_lock(&sim_lock);
    work.marker = marker;
    marker->references = 2; /* the event's and the work's */
    marker->stream = stream;
    marker->stream->references++;
    status = sim_enqueue_locked(stream, &work);
    if (status != CORE_OK) {
        marker->references = 1;
        sim_marker_unref(marker);
    } else {
        marker->number = marker->stream->given;
        event->device->count.records++;
        marker->clock = sim_clock_copy(stream);
        if (event->marker)
            sim_marker_unref(event->marker);
        event->marker = marker;
    }
    pthread_mutex_unlock(&sim_lock);
    return status;
}

/* With the lock, which it releases. */
static core_status marker_status(const sim_marker *marker)
{
    sim_failure failure = marker->failure;

    pthread_mutex_unlock(&sim_lock);
    return sim_stream_report(&failure, CORE_SEVERITY_STREAM_POISONED);
}

static core_status query(void *device, void *handle)
{
    sim_event *event = handle;
    core_status status = sim_usable(device);

    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    if (event->marker && sim_marker_done(event->marker)) {
        sim_clock_join_host(event->marker->clock);
        return marker_status(event->marker);
    }
    pthread_mutex_unlock(&sim_lock);
    return CORE_ERROR_BUSY;
}

static core_status synchronize(void *device, void *handle)
{
    sim_event *event = handle;
    core_status status = sim_usable(device);
    sim_marker *marker;
    sim_failure failure;

    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    marker = event->marker;
    if (!marker) {
        pthread_mutex_unlock(&sim_lock);
        return core_sdk_error(sim_host, CORE_ERROR_INTERNAL, "sim",
                              "event wait: the event was never recorded");
    }
    marker->references++; /* it may be recorded again meanwhile */
    sim_stream_await(marker->stream, marker->number);
    sim_clock_join_host(marker->clock);
    failure = marker->failure;
    sim_marker_unref(marker);
    pthread_mutex_unlock(&sim_lock);
    return sim_stream_report(&failure, CORE_SEVERITY_STREAM_POISONED);
}

const core_event_table sim_event_table = {
    .struct_size = sizeof(core_event_table),
    .create = create,
    .destroy = destroy,
    .record = record,
    .query = query,
    .synchronize = synchronize,
};
