/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host callbacks, device time, adopted streams, and stream priorities. */

#include "fault.h"
#include "worker.h"

/* ------------------------------------------------------------- callbacks -- */

static core_status run_callback(sim_work *work)
{
    void (*function)(void *context) = work->function;

    work->function = NULL;
    sim_stream_set_waiting(work->stream, true);
    function(work->context);
    sim_stream_set_waiting(work->stream, false);
    return CORE_OK;
}

static void end_callback(sim_work *work)
{
    if (work->function && work->drop)
        work->drop(work->context);
}

static core_status enqueue(void *device, void *stream,
                           void (*function)(void *context), void *context,
                           void (*drop)(void *context))
{
    sim_work work = {.run = run_callback,
                     .end = end_callback,
                     .what = "host callback",
                     .function = function,
                     .drop = drop,
                     .context = context};
    core_status status = sim_usable(device);

    if (status == CORE_OK)
        status = sim_enqueue(stream, &work);
    if (status != CORE_OK && drop)
        drop(context);
    return status;
}

const core_host_callback_interface sim_host_callback = {
    .struct_size = sizeof(core_host_callback_interface),
    .enqueue = enqueue,
};

/* ---------------------------------------------------------------- timing -- */

static core_status elapsed(void *device, void *start, void *end,
                           int64_t *out_nanoseconds)
{
    sim_event *events[2] = {start, end};
    core_status status = sim_usable(device);
    const char *reason = NULL;

    *out_nanoseconds = 0;
    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    for (int i = 0; i < 2 && !reason; i++) {
        if (!(events[i]->flags & CORE_EVENT_TIMING))
            reason = "an event was created without CORE_EVENT_TIMING";
        else if (!events[i]->marker)
            reason = "an event was never recorded";
        else if (!sim_marker_done(events[i]->marker))
            reason = "an event is not complete";
    }
    if (!reason)
        *out_nanoseconds =
            events[1]->marker->time_ns - events[0]->marker->time_ns;
    pthread_mutex_unlock(&sim_lock);
    if (reason)
        return core_sdk_error(sim_host, CORE_ERROR_INTERNAL, "sim",
                              "elapsed: %s", reason);
    return CORE_OK;
}

const core_timing_interface sim_timing = {
    .struct_size = sizeof(core_timing_interface),
    .elapsed = elapsed,
};

/* -------------------------------------------------------------- adoption -- */

static core_status adopt(void *handle, void *native, void **out_stream)
{
    sim_device *device = handle;
    core_status status = sim_usable(device);
    sim_stream *at;

    *out_stream = NULL;
    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    at = device->streams;
    while (at && (at != native || at->holders == 0))
        at = at->next;
    if (at) {
        at->holders++;
        *out_stream = at;
    }
    pthread_mutex_unlock(&sim_lock);
    if (!at)
        return core_sdk_error(sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                              "%p is not a stream of %s", native, device->name);
    return CORE_OK;
}

static core_status native(void *device, void *stream, void **out_native)
{
    (void)device;
    *out_native = stream;
    return CORE_OK;
}

const core_stream_adopt_interface sim_stream_adopt = {
    .struct_size = sizeof(core_stream_adopt_interface),
    .adopt = adopt,
    .native = native,
};

/* -------------------------------------------------------------- priority -- */

enum { LEAST = 1, GREATEST = -2 };

static core_status range(void *device, int32_t *out_least,
                         int32_t *out_greatest)
{
    (void)device;
    *out_least = LEAST;
    *out_greatest = GREATEST;
    return CORE_OK;
}

static core_status create(void *device, uint32_t flags, int32_t priority,
                          void **out_stream)
{
    *out_stream = NULL;
    if (flags != 0 || priority > LEAST || priority < GREATEST)
        return core_sdk_error(
            sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
            "a stream of priority %d, with the flags 0x%x: priorities are %d "
            "to %d, and no flags are accepted",
            priority, flags, GREATEST, LEAST);
    return sim_stream_create(device, CORE_STREAM_COMPUTE, priority, out_stream);
}

const core_stream_priority_interface sim_stream_priority = {
    .struct_size = sizeof(core_stream_priority_interface),
    .range = range,
    .create = create,
};
