/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core.profiler.  Every command has an event, and queues keep their times: a
 * record is an event that is kept until its command is done. */

#include "opencl.h"

typedef struct record {
    core_activity activity;
    char name[64];
    cl_event event; /* NULL: the times are known */
} record;

struct opencl_profile {
    bool on;
    uint64_t limit, dropped;
    uint64_t count, capacity;
    record *records; /* in the order of launches */
    record *taken;
    cl_command_queue queue; /* for the clock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all profiles */
static _Thread_local uint64_t correlation;

static bool grow(opencl_profile *profile)
{
    uint64_t capacity = profile->capacity ? profile->capacity * 2 : 64;
    record *grown;

    if (profile->count < profile->capacity)
        return true;
    grown = realloc(profile->records, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    profile->records = grown;
    profile->capacity = capacity;
    return true;
}

/* Reads the times of completed commands; events are expensive, so they are
 * released early. */
static cl_int time_of(cl_event event, cl_profiling_info which, int64_t *out)
{
    cl_ulong time = 0;
    cl_int code =
        cl.GetEventProfilingInfo(event, which, sizeof time, &time, NULL);

    *out = (int64_t)time;
    return code;
}

static bool is_done(cl_event event)
{
    cl_int state = CL_QUEUED;

    return cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                           sizeof state, &state, NULL) != CL_SUCCESS ||
           state <= CL_COMPLETE;
}

/* False: it has no times, because it failed or its queue keeps none. */
static bool read_times(record *record)
{
    core_activity *activity = &record->activity;
    bool good = time_of(record->event, CL_PROFILING_COMMAND_START,
                        &activity->begin) == CL_SUCCESS &&
                time_of(record->event, CL_PROFILING_COMMAND_END,
                        &activity->end) == CL_SUCCESS;

    cl.ReleaseEvent(record->event);
    record->event = NULL;
    return good;
}

/* Moves completed records to the front; returns their number. */
static uint64_t read_all_times(opencl_profile *profile)
{
    uint64_t kept = 0, done = 0;

    for (uint64_t i = 0; i < profile->count; i++) {
        record one = profile->records[i];

        if (one.event != NULL && is_done(one.event) && !read_times(&one)) {
            profile->dropped++;
            continue;
        }
        profile->records[kept++] = one;
    }
    profile->count = kept;
    while (done < kept && profile->records[done].event == NULL)
        done++;
    return done;
}

void opencl_profile_submitted(opencl_stream *stream, cl_event event,
                              uint32_t kind, const char *name, uint64_t bytes)
{
    enum { MANY = 1024 };
    opencl_profile *profile;
    record *one;

    if (!atomic_load_explicit(&stream->device->profiled, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    profile = stream->device->profile;
    if (profile != NULL && profile->on) {
        if (profile->count % MANY == MANY - 1)
            read_all_times(profile);
        if (profile->count >= profile->limit || !grow(profile)) {
            profile->dropped++;
        } else {
            one = &profile->records[profile->count++];
            one->activity = (core_activity){.kind = kind,
                                            .correlation = correlation,
                                            .stream = stream->number,
                                            .bytes = bytes};
            snprintf(one->name, sizeof one->name, "%s", name);
            one->event = event;
            cl.RetainEvent(event);
        }
    }
    pthread_mutex_unlock(&lock);
}

static void clear_records(opencl_profile *profile)
{
    for (uint64_t i = 0; i < profile->count; i++)
        if (profile->records[i].event != NULL)
            cl.ReleaseEvent(profile->records[i].event);
    profile->count = profile->dropped = 0;
}

void opencl_profile_close(opencl_device *device)
{
    opencl_profile *profile = device->profile;

    if (profile == NULL)
        return;
    clear_records(profile);
    if (profile->queue != NULL)
        cl.ReleaseCommandQueue(profile->queue);
    free(profile->records);
    free(profile->taken);
    free(profile);
    device->profile = NULL;
}

/* ----------------------------------------------------------- interface -- */

/* With the lock. */
static core_status open_profile(opencl_device *device, cl_int *code)
{
    opencl_profile *profile = device->profile;

    if (profile == NULL)
        profile = device->profile = calloc(1, sizeof *profile);
    if (profile == NULL)
        return CORE_ERROR_OUT_OF_MEMORY;
    if (profile->on)
        return CORE_ERROR_BUSY;
    if (profile->queue == NULL)
        profile->queue = cl.CreateCommandQueue(device->context, device->id,
                                               CL_QUEUE_PROFILING_ENABLE, code);
    return CORE_OK;
}

static core_status start(void *handle, uint64_t limit)
{
    opencl_device *device = handle;
    cl_int code = CL_SUCCESS;
    core_status status;

    pthread_mutex_lock(&lock);
    status = open_profile(device, &code);
    if (status == CORE_OK && code == CL_SUCCESS) {
        clear_records(device->profile);
        device->profile->limit = limit;
        device->profile->on = true;
        device->profiled = true;
    }
    pthread_mutex_unlock(&lock);
    if (status == CORE_OK)
        return code == CL_SUCCESS
                   ? CORE_OK
                   : opencl_fail(device, code, "a queue for the clock");
    return opencl_refuse(status, status == CORE_ERROR_BUSY
                                     ? "the device is already being recorded"
                                     : "no host memory for records");
}

static core_status stop(void *handle)
{
    opencl_device *device = handle;
    bool on;

    pthread_mutex_lock(&lock);
    on = device->profile != NULL && device->profile->on;
    if (on)
        device->profile->on = false;
    device->profiled = false;
    pthread_mutex_unlock(&lock);
    return on ? CORE_OK
              : opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                              "the device is not being recorded");
}

static void correlate(void *device, uint64_t id)
{
    (void)device;
    correlation = id;
}

/* Completed records come first; the others stay, in a new list. */
static core_status take_done(opencl_profile *profile, core_activity_batch *out)
{
    uint64_t done = read_all_times(profile), rest = profile->count - done;
    record *waiting = malloc((rest ? rest : 1) * sizeof *waiting);

    if (waiting == NULL)
        return CORE_ERROR_OUT_OF_MEMORY;
    if (rest)
        memcpy(waiting, profile->records + done, rest * sizeof *waiting);
    free(profile->taken);
    profile->taken = profile->records;
    profile->records = waiting;
    profile->count = rest;
    profile->capacity = rest ? rest : 1;
    for (uint64_t i = 0; i < done; i++)
        profile->taken[i].activity.name =
            core_sdk_string(profile->taken[i].name);
    out->count = done;
    out->first = done ? &profile->taken->activity : NULL;
    out->stride = sizeof(record);
    out->dropped = profile->dropped;
    profile->dropped = 0;
    return CORE_OK;
}

static core_status take(void *handle, core_activity_batch *out)
{
    opencl_device *device = handle;
    core_status status = CORE_OK;

    out->count = out->dropped = 0;
    pthread_mutex_lock(&lock);
    if (device->profile != NULL)
        status = take_done(device->profile, out);
    pthread_mutex_unlock(&lock);
    return status == CORE_OK
               ? status
               : opencl_refuse(status, "no host memory for records");
}

/* In OpenCL 1.2 the device's clock is only visible in the times of commands. */
static core_status read_clock(void *handle, int64_t *out_nanoseconds)
{
    opencl_device *device = handle;
    cl_event mark = NULL;
    cl_int code;

    if (device->profile == NULL || device->profile->queue == NULL)
        return opencl_refuse(CORE_ERROR_INVALID_ARGUMENT,
                             "the device is not being recorded");
    code = cl.EnqueueMarkerWithWaitList(device->profile->queue, 0, NULL, &mark);
    if (code == CL_SUCCESS)
        code = cl.WaitForEvents(1, &mark);
    if (code == CL_SUCCESS)
        code = time_of(mark, CL_PROFILING_COMMAND_END, out_nanoseconds);
    if (mark != NULL)
        cl.ReleaseEvent(mark);
    return code == CL_SUCCESS ? CORE_OK
                              : opencl_fail(device, code, "the device's clock");
}

const core_profiler_interface opencl_profiler = {
    .struct_size = sizeof(core_profiler_interface),
    .start = start,
    .stop = stop,
    .correlate = correlate,
    .take = take,
    .clock = read_clock,
};
