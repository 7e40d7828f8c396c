/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records of the workers' activity, for the core's profiler. */

#include "profile.h"

#include <stdlib.h>
#include <time.h>

/* Larger than the core's type, which must use the stride. */
typedef struct sim_record {
    core_activity activity;
    char name[64];
} sim_record;

struct sim_profile {
    uint64_t session; /* 0: not recording */
    uint64_t limit;
    uint64_t count, capacity, dropped;
    sim_record *records;
    sim_record *taken;
};

static _Thread_local uint64_t correlation;
static uint64_t sessions; /* guarded by the lock, like everything else */

int64_t sim_profile_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void sim_profile_note(sim_device *device, sim_work *work)
{
    work->correlation = correlation;
    work->session = device->profile ? device->profile->session : 0;
}

static bool grow(sim_profile *profile)
{
    uint64_t capacity = profile->capacity ? profile->capacity * 2 : 64;
    sim_record *grown;

    if (profile->count < profile->capacity)
        return true;
    grown = realloc(profile->records, capacity * sizeof *grown);
    if (!grown)
        return false;
    profile->records = grown;
    profile->capacity = capacity;
    return true;
}

void sim_profile_ran(const sim_work *work, const char *name, int64_t begin,
                     int64_t end)
{
    sim_profile *profile = work->stream->device->profile;
    sim_record *record;

    if (!profile || work->session == 0 || work->session != profile->session)
        return;
    if (profile->count >= profile->limit || !grow(profile)) {
        profile->dropped++;
        return;
    }
    record = &profile->records[profile->count++];
    record->activity =
        (core_activity){.kind = sim_is_kernel(work)  ? CORE_ACTIVITY_KERNEL
                                : work->pattern_size ? CORE_ACTIVITY_FILL
                                                     : CORE_ACTIVITY_COPY,
                        .correlation = work->correlation,
                        .stream = work->stream->id,
                        .begin = begin - SIM_PROFILE_EPOCH,
                        .end = end - SIM_PROFILE_EPOCH,
                        .bytes = work->op ? 0 : work->size};
    snprintf(record->name, sizeof record->name, "%s", name);
}

void sim_profile_close(sim_device *device)
{
    sim_profile *profile = device->profile;

    device->profile = NULL;
    if (!profile)
        return;
    free(profile->records);
    free(profile->taken);
    free(profile);
}

/* ----------------------------------------------------------- interface -- */

static core_status start(void *handle, uint64_t limit)
{
    sim_device *device = handle;
    core_status status = sim_usable(device);

    if (status != CORE_OK)
        return status;
    if (sim_set.profiler == 2)
        return core_sdk_error(sim_host, CORE_ERROR_REFUSED, "sim",
                              "LIBCORE_SIM_PROFILER is 2");
    pthread_mutex_lock(&sim_lock);
    if (!device->profile)
        device->profile = calloc(1, sizeof *device->profile);
    if (!device->profile)
        status = CORE_ERROR_OUT_OF_MEMORY;
    else if (device->profile->session)
        status = CORE_ERROR_BUSY;
    if (status == CORE_OK) {
        device->profile->session = ++sessions;
        device->profile->limit = limit;
        device->profile->count = device->profile->dropped = 0;
    }
    pthread_mutex_unlock(&sim_lock);
    if (status == CORE_OK)
        return CORE_OK;
    return core_sdk_error(sim_host, status, "sim",
                          status == CORE_ERROR_BUSY
                              ? "the device is already being recorded"
                              : "no host memory for records");
}

static core_status stop(void *handle)
{
    sim_device *device = handle;
    bool on;

    pthread_mutex_lock(&sim_lock);
    on = device->profile && device->profile->session;
    if (on)
        device->profile->session = 0;
    pthread_mutex_unlock(&sim_lock);
    return on ? CORE_OK
              : core_sdk_error(sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                               "the device is not being recorded");
}

static void correlate(void *device, uint64_t id)
{
    (void)device;
    correlation = id;
}

static core_status take(void *handle, core_activity_batch *out)
{
    sim_device *device = handle;
    sim_profile *profile;

    out->count = out->dropped = 0;
    pthread_mutex_lock(&sim_lock);
    profile = device->profile;
    if (profile) {
        sim_record *records = profile->records;

        free(profile->taken);
        profile->taken = records;
        for (uint64_t i = 0; i < profile->count; i++)
            records[i].activity.name = core_sdk_string(records[i].name);
        out->first = records ? &records->activity : NULL;
        out->stride = sizeof *records;
        out->count = profile->count;
        out->dropped = profile->dropped;
        profile->records = NULL;
        profile->count = profile->capacity = profile->dropped = 0;
    }
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

static core_status read_clock(void *device, int64_t *out_nanoseconds)
{
    (void)device;
    /* An epoch that differs from the host's. */
    *out_nanoseconds = sim_profile_now() - SIM_PROFILE_EPOCH;
    return CORE_OK;
}

const core_profiler_interface sim_profiler = {
    .struct_size = sizeof(core_profiler_interface),
    .start = start,
    .stop = stop,
    .correlate = correlate,
    .take = take,
    .clock = read_clock,
};

/* -------------------------------------------------------------- layout -- */

/* LIBCORE_SIM_LAYOUT: like devices that convolve all channels at once. */
static uint32_t preferred(void *device, core_string operator_name,
                          core_dtype dtype, uint32_t ndim)
{
    (void)device;
    (void)dtype;
    if (!core_sdk_string_equal(operator_name, "convolution"))
        return CORE_FORMAT_CONTIGUOUS;
    return ndim == 4   ? CORE_FORMAT_CHANNELS_LAST
           : ndim == 5 ? CORE_FORMAT_CHANNELS_LAST_3D
                       : CORE_FORMAT_CONTIGUOUS;
}

const core_layout_interface sim_layout = {
    .struct_size = sizeof(core_layout_interface),
    .preferred = preferred,
};
