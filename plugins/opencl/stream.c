/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Streams are in-order command queues.  The newest command's event shows
 * whether all work is done. */

#include "packed_weights.h"

/* The contents of a stream's error buffer; kernels/prelude.cl has the same. */
typedef struct fault {
    cl_int code, reason;
    cl_long call, index;
} fault;

/* By `reason`; 0: only the code. */
static const char *const reasons[] = {
    NULL,
    "a probability is below 0 or above 1",
    "weights that cannot be drawn from",
    "a count of repeats is below 0",
    "the mask is true more often than source has elements",
};

core_status opencl_stream_on_queue(opencl_device *device, uint32_t kind,
                                   cl_command_queue queue, void **out_stream)
{
    static _Atomic uint64_t stream_count;
    opencl_stream *stream = calloc(1, sizeof *stream);
    cl_int code = CL_SUCCESS;

    *out_stream = NULL;
    if (stream == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for a stream");
    stream->device = device;
    stream->kind = kind;
    stream->number = atomic_fetch_add(&stream_count, 1) + 1;
    stream->queue = queue;
    stream->adopted = queue != NULL;
    if (queue != NULL)
        code = cl.RetainCommandQueue(queue);
    else
        stream->queue = cl.CreateCommandQueue(device->context, device->id,
                                              CL_QUEUE_PROFILING_ENABLE, &code);
    if (code != CL_SUCCESS) {
        free(stream);
        return opencl_fail(device, code, "a command queue");
    }
    pthread_mutex_init(&stream->lock, NULL);
    *out_stream = stream;
    return CORE_OK;
}

static core_status create(void *device, uint32_t flags, void **out_stream)
{
    *out_stream = NULL;
    if (flags != CORE_STREAM_COMPUTE && flags != CORE_STREAM_COPY)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "stream flags 0x%x are not supported", flags);
    return opencl_stream_on_queue(device, flags, NULL, out_stream);
}

/* The queue is destroyed when its commands are done. */
static void destroy(void *device, void *handle)
{
    opencl_stream *stream = handle;

    opencl_packed_weights_drop_stream(device, stream->number);
    if (stream->last != NULL)
        cl.ReleaseEvent(stream->last);
    if (stream->errors != NULL)
        cl.ReleaseMemObject(stream->errors);
    cl.ReleaseCommandQueue(stream->queue);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

void opencl_stream_submitted(opencl_stream *stream, cl_event event)
{
    cl_event before;

    pthread_mutex_lock(&stream->lock);
    before = stream->last;
    stream->last = event;
    pthread_mutex_unlock(&stream->lock);
    if (before != NULL)
        cl.ReleaseEvent(before);
}

static core_status poisoned(const opencl_stream *stream)
{
    const char *name = opencl_code_name(stream->failed_code);

    if (stream->failed == CORE_OK)
        return CORE_OK;
    return core_sdk_error_severe(opencl_host, stream->failed,
                                 stream->failed == CORE_ERROR_DEVICE_LOST
                                     ? CORE_SEVERITY_DEVICE_LOST
                                     : CORE_SEVERITY_STREAM_POISONED,
                                 "opencl", "work on the stream failed: %s (%d)",
                                 name != NULL ? name : "OpenCL's error",
                                 stream->failed_code);
}

core_status opencl_stream_usable(opencl_stream *stream)
{
    if (stream->device->lost)
        return opencl_fail(stream->device, CL_DEVICE_NOT_AVAILABLE, "stream");
    return poisoned(stream);
}

core_status opencl_stream_takes_kernels(opencl_stream *stream)
{
    if (stream->kind == CORE_STREAM_COPY)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "a copy stream does not run kernels");
    return opencl_stream_usable(stream);
}

static void poison(opencl_stream *stream, cl_int code)
{
    if (code == CL_DEVICE_NOT_AVAILABLE)
        stream->device->lost = true;
    if (stream->failed != CORE_OK)
        return;
    stream->failed_code = code;
    stream->failed =
        stream->device->lost ? CORE_ERROR_DEVICE_LOST : CORE_ERROR_STREAM;
}

/* Returns CORE_OK: done; BUSY; or an error, which poisons the stream. */
static core_status query_event(opencl_stream *stream, cl_event event)
{
    cl_int state = CL_COMPLETE, code;

    if (event == NULL)
        return poisoned(stream);
    code = cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                           sizeof state, &state, NULL);
    if (code != CL_SUCCESS)
        state = code;
    if (state > 0)
        return CORE_ERROR_BUSY;
    if (state < 0)
        poison(stream, state);
    return poisoned(stream);
}

static cl_event newest(opencl_stream *stream)
{
    cl_event event;

    pthread_mutex_lock(&stream->lock);
    event = stream->last;
    if (event != NULL)
        cl.RetainEvent(event);
    pthread_mutex_unlock(&stream->lock);
    return event;
}

/* Work that others submitted to an adopted queue has no event here, so a marker
 * stands for it. */
static void mark(opencl_stream *stream)
{
    cl_event event = NULL;

    if (stream->adopted && cl.EnqueueMarkerWithWaitList(stream->queue, 0, NULL,
                                                        &event) == CL_SUCCESS)
        opencl_stream_submitted(stream, event);
}

static core_status query(void *device, void *handle)
{
    opencl_stream *stream = handle;
    core_status status;
    cl_event event;

    (void)device;
    /* The marker of the previous query, if that was not done. */
    if (!atomic_exchange(&stream->asked, true))
        mark(stream);
    event = newest(stream);
    status = query_event(stream, event);
    if (status != CORE_ERROR_BUSY)
        stream->asked = false;
    if (status == CORE_ERROR_BUSY)
        cl.Flush(stream->queue);
    if (event != NULL)
        cl.ReleaseEvent(event);
    return status;
}

static core_status synchronize(void *device, void *handle)
{
    opencl_stream *stream = handle;
    core_status status;
    cl_event event;
    cl_int code;

    (void)device;
    mark(stream);
    event = newest(stream);
    code = event != NULL ? cl.WaitForEvents(1, &event) : CL_SUCCESS;
    status = query_event(stream, event);
    if (status == CORE_ERROR_BUSY)
        status = opencl_fail(stream->device, code, "clWaitForEvents");
    if (event != NULL)
        cl.ReleaseEvent(event);
    return status;
}

/* -------------------------------------------------------------- events -- */

typedef struct event_object {
    opencl_device *device;
    cl_event mark;      /* of the newest record */
    core_status failed; /* of the stream when it was recorded */
} event_object;

static core_status event_create(void *device, uint32_t flags, void **out_event)
{
    event_object *event;

    *out_event = NULL;
    if (flags & ~(uint32_t)CORE_EVENT_TIMING)
        return opencl_refuse(CORE_ERROR_UNSUPPORTED,
                             "event flags 0x%x are not supported", flags);
    event = calloc(1, sizeof *event);
    *out_event = event;
    if (event == NULL)
        return opencl_refuse(CORE_ERROR_OUT_OF_MEMORY,
                             "no host memory for an event");
    event->device = device;
    return CORE_OK;
}

static void event_destroy(void *device, void *handle)
{
    event_object *event = handle;

    (void)device;
    if (event->mark != NULL)
        cl.ReleaseEvent(event->mark);
    free(event);
}

static core_status event_record(void *device, void *handle, void *on)
{
    event_object *event = handle;
    opencl_stream *stream = on;
    cl_event mark = NULL;
    cl_int code;

    (void)device;
    code = cl.EnqueueMarkerWithWaitList(stream->queue, 0, NULL, &mark);
    if (code == CL_SUCCESS)
        code = cl.Flush(stream->queue);
    if (code != CL_SUCCESS) {
        if (mark != NULL)
            cl.ReleaseEvent(mark);
        return opencl_fail(stream->device, code, "clEnqueueMarker");
    }
    if (event->mark != NULL)
        cl.ReleaseEvent(event->mark);
    event->mark = mark;
    event->failed = stream->failed;
    cl.RetainEvent(mark);
    opencl_stream_submitted(stream, mark);
    return CORE_OK;
}

static core_status event_state(event_object *event)
{
    cl_int state = 0, code;

    code = cl.GetEventInfo(event->mark, CL_EVENT_COMMAND_EXECUTION_STATUS,
                           sizeof state, &state, NULL);
    if (code != CL_SUCCESS)
        state = code;
    if (state > 0)
        return CORE_ERROR_BUSY;
    if (state == 0 && event->failed == CORE_OK)
        return CORE_OK;
    if (state == CL_DEVICE_NOT_AVAILABLE)
        return opencl_fail(event->device, state, "event");
    return opencl_fail(event->device,
                       CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                       "work before the event failed");
}

static core_status event_query(void *device, void *handle)
{
    (void)device;
    return event_state(handle);
}

static core_status event_synchronize(void *device, void *handle)
{
    event_object *event = handle;

    (void)device;
    cl.WaitForEvents(1, &event->mark);
    return event_state(event);
}

static void CL_CALLBACK pass_on(cl_event event, cl_int state, void *context)
{
    cl_event gate = context;

    (void)event;
    cl.SetUserEventStatus(gate, state < 0 ? state : CL_COMPLETE);
    cl.ReleaseEvent(gate);
}

/* Contexts cannot share events: an event of this context follows the other
 * one. */
static cl_int gate_of(opencl_stream *stream, cl_event foreign,
                      cl_event *out_gate)
{
    cl_int code;
    cl_event gate = cl.CreateUserEvent(stream->device->context, &code);

    *out_gate = NULL;
    if (code != CL_SUCCESS)
        return code;
    cl.RetainEvent(gate);
    code = cl.SetEventCallback(foreign, CL_COMPLETE, pass_on, gate);
    if (code != CL_SUCCESS) {
        cl.ReleaseEvent(gate);
        cl.ReleaseEvent(gate);
        return code;
    }
    *out_gate = gate;
    return CL_SUCCESS;
}

static core_status wait_event(void *device, void *handle, void *awaited)
{
    opencl_stream *stream = handle;
    event_object *event = awaited;
    cl_event gate = event->mark, barrier = NULL;
    cl_int code = CL_SUCCESS;

    (void)device;
    if (event->device != stream->device)
        code = gate_of(stream, event->mark, &gate);
    if (code == CL_SUCCESS)
        code = cl.EnqueueBarrierWithWaitList(stream->queue, 1, &gate, &barrier);
    if (gate != event->mark && gate != NULL)
        cl.ReleaseEvent(gate);
    if (code != CL_SUCCESS)
        return opencl_fail(stream->device, code, "clEnqueueBarrier");
    opencl_stream_submitted(stream, barrier);
    return CORE_OK;
}

/* ---------------------------------------------------------- interfaces -- */

static core_status elapsed(void *device, void *start, void *end,
                           int64_t *out_nanoseconds)
{
    event_object *events[2] = {start, end};
    cl_ulong times[2] = {0, 0};
    cl_int code = CL_SUCCESS;

    for (int i = 0; i < 2 && code == CL_SUCCESS; i++)
        code =
            cl.GetEventProfilingInfo(events[i]->mark, CL_PROFILING_COMMAND_END,
                                     sizeof *times, &times[i], NULL);
    if (code != CL_SUCCESS)
        return opencl_fail(device, code, "clGetEventProfilingInfo");
    *out_nanoseconds = (int64_t)(times[1] - times[0]);
    return CORE_OK;
}

core_status opencl_stream_error_buffer(opencl_stream *stream,
                                       cl_mem *out_buffer)
{
    static const fault clear = {0, 0, 0, 0};
    cl_int code = CL_SUCCESS;
    core_status status = CORE_OK;

    pthread_mutex_lock(&stream->lock);
    if (stream->errors == NULL) {
        cl_mem buffer = cl.CreateBuffer(
            stream->device->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
            sizeof clear, (void *)&clear, &code);

        if (code == CL_SUCCESS)
            stream->errors = buffer;
    }
    *out_buffer = stream->errors;
    stream->checked = true;
    pthread_mutex_unlock(&stream->lock);
    if (code != CL_SUCCESS)
        status = opencl_fail(stream->device, code, "clCreateBuffer");
    return status;
}

static core_status take(void *device, void *handle, core_stream_error *out)
{
    static const fault clear = {0, 0, 0, 0};
    opencl_stream *stream = handle;
    fault found;
    cl_int code;

    (void)device;
    out->code = CORE_OK;
    if (!atomic_exchange(&stream->checked, false) || stream->errors == NULL)
        return CORE_OK;
    code = cl.EnqueueReadBuffer(stream->queue, stream->errors, CL_TRUE, 0,
                                sizeof found, &found, 0, NULL, NULL);
    if (code == CL_SUCCESS && found.code != 0)
        code = cl.EnqueueWriteBuffer(stream->queue, stream->errors, CL_TRUE, 0,
                                     sizeof clear, &clear, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        return opencl_fail(stream->device, code, "the stream's error buffer");
    out->code = found.code;
    out->call_id = (uint64_t)found.call;
    out->index = found.index;
    if (found.reason > 0 &&
        (size_t)found.reason < sizeof reasons / sizeof *reasons)
        out->text = core_sdk_string(reasons[found.reason]);
    else if (found.code == CORE_ERROR_INDEX)
        out->text = core_sdk_string("an index is out of range");
    else if (found.code != 0)
        out->text = core_sdk_string("division of an integer by zero");
    return CORE_OK;
}

const core_timing_interface opencl_timing = {
    .struct_size = sizeof(core_timing_interface),
    .elapsed = elapsed,
};

const core_stream_error_interface opencl_stream_error = {
    .struct_size = sizeof(core_stream_error_interface),
    .take = take,
};

const core_stream_table opencl_stream_table = {
    .struct_size = sizeof(core_stream_table),
    .create = create,
    .destroy = destroy,
    .query = query,
    .synchronize = synchronize,
    .wait_event = wait_event,
};

const core_event_table opencl_event_table = {
    .struct_size = sizeof(core_event_table),
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .synchronize = event_synchronize,
};
