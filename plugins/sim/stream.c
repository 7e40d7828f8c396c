/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The stream interface of the core: submission and waiting. */

#include "worker.h"

#include "fault.h"
#include "race.h"

#include <stdlib.h>

core_status sim_stream_report(const sim_failure *failure, uint32_t severity)
{
    core_error_info info = {.struct_size = sizeof info,
                            .code = failure->code,
                            .severity = severity,
                            .component = core_sdk_string("sim"),
                            .text = core_sdk_string(failure->text)};

    if (failure->code == CORE_OK)
        return CORE_OK;
    if (failure->code == CORE_ERROR_DEVICE_LOST)
        info.severity = CORE_SEVERITY_DEVICE_LOST;
    return sim_host->error(&info);
}

/* The status of a stream: its failure, or, unless the core reads stream errors
 * itself, its data error. */
static core_status stream_status(sim_stream *stream)
{
    sim_failure failure = stream->failure;
    uint32_t severity = CORE_SEVERITY_STREAM_POISONED;

    if (failure.code == CORE_OK && !sim_errors_taken) {
        failure = stream->data_error;
        severity = CORE_SEVERITY_RECOVERABLE;
        stream->data_error.code = CORE_OK;
    }
    pthread_mutex_unlock(&sim_lock);
    return sim_stream_report(&failure, severity);
}

static core_status query(void *device, void *handle)
{
    sim_stream *stream = handle;
    core_status status = sim_usable(device);

    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    if (stream->done < stream->given && stream->failure.code == CORE_OK) {
        pthread_mutex_unlock(&sim_lock);
        return CORE_ERROR_BUSY;
    }
    sim_clock_join_host(stream->clock);
    return stream_status(stream);
}

/* Work that was running when the device was lost may still access host memory,
 * so it must end before the wait returns. */
static core_status wait_for_running(const sim_device *device,
                                    sim_stream *stream)
{
    pthread_mutex_lock(&sim_lock);
    sim_stream_await_running(stream);
    pthread_mutex_unlock(&sim_lock);
    return sim_usable(device);
}

static core_status synchronize(void *device, void *handle)
{
    sim_stream *stream = handle;
    core_status status = sim_usable(device);
    sim_clock *clock;

    if (status == CORE_ERROR_DEVICE_LOST)
        return wait_for_running(device, stream);
    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    if (stream->graph) {
        pthread_mutex_unlock(&sim_lock);
        return core_sdk_error(
            sim_host, CORE_ERROR_INTERNAL, "sim",
            "the host waits for a stream that is being captured");
    }
    clock = sim_clock_copy(stream); /* more work may be submitted while it
                                     * waits */
    sim_stream_await(stream, stream->given);
    sim_clock_join_host(clock);
    free(clock);
    return stream_status(stream);
}

static core_status run_nothing(sim_work *work)
{
    (void)work;
    return CORE_OK;
}

static void end_wait(sim_work *work)
{
    pthread_mutex_lock(&sim_lock);
    sim_marker_unref(work->marker);
    pthread_mutex_unlock(&sim_lock);
}

static core_status wait_event(void *device, void *handle, void *of)
{
    sim_event *event = of;
    sim_work work = {.run = run_nothing,
                     .end = end_wait,
                     .what = "wait for an event",
                     .undelayed = true};
    core_status status = sim_usable(device);

    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_WAIT);
    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    work.marker = event->marker;
    if (!work.marker) {
        status = core_sdk_error(sim_host, CORE_ERROR_INTERNAL, "sim",
                                "event wait: the event was never recorded");
    } else {
        work.marker->references++;
        status = sim_enqueue_locked(handle, &work);
        if (status == CORE_OK)
            sim_clock_join(handle, work.marker->clock);
        event->device->count.waits++;
        if (status != CORE_OK)
            sim_marker_unref(work.marker);
    }
    pthread_mutex_unlock(&sim_lock);
    return status;
}

static core_status create(void *device, uint32_t flags, void **out_stream)
{
    if (flags != CORE_STREAM_COMPUTE &&
        (flags != CORE_STREAM_COPY || sim_set.copy_queues == 0))
        return core_sdk_error(
            sim_host, CORE_ERROR_UNSUPPORTED, "sim",
            "stream create: flags are 0x%x; accepted: "
            "CORE_STREAM_COMPUTE%s",
            flags, sim_set.copy_queues ? " or CORE_STREAM_COPY" : "");
    return sim_stream_create(device, flags, 0, out_stream);
}

static void destroy(void *device, void *handle)
{
    sim_stream *stream = handle;

    (void)device;
    pthread_mutex_lock(&sim_lock);
    if (--stream->holders == 0) {
        stream->closing = true;
        pthread_cond_signal(&stream->wake);
        if (!stream->started)
            sim_stream_leave(stream);
    }
    pthread_mutex_unlock(&sim_lock);
}

const core_stream_table sim_stream_table = {
    .struct_size = sizeof(core_stream_table),
    .create = create,
    .destroy = destroy,
    .query = query,
    .synchronize = synchronize,
    .wait_event = wait_event,
};

/* --------------------------------------------------------- data errors -- */

_Atomic bool sim_errors_taken;

void sim_stream_error_set(sim_stream *stream, core_status code,
                          uint64_t call_id, const char *text)
{
    if (stream->data_error.code != CORE_OK)
        return;
    stream->device->count.stream_errors++;
    stream->data_error.code = code;
    stream->data_error.call_id = call_id;
    snprintf(stream->data_error.text, sizeof stream->data_error.text, "%s",
             text);
}

static core_status take(void *device, void *handle, core_stream_error *out)
{
    static _Thread_local char text[SIM_TEXT];
    sim_stream *stream = handle;

    (void)device;
    pthread_mutex_lock(&sim_lock);
    memcpy(text, stream->data_error.text, sizeof text);
    out->code = stream->data_error.code;
    out->call_id = stream->data_error.call_id;
    out->index = INT64_MIN; /* only the text contains it */
    stream->data_error.code = CORE_OK;
    pthread_mutex_unlock(&sim_lock);
    out->text = core_sdk_string(out->code != CORE_OK ? text : "");
    return CORE_OK;
}

const core_stream_error_interface sim_stream_error = {
    .struct_size = sizeof(core_stream_error_interface),
    .take = take,
};
