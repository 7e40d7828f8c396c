/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profile.c: activity records and ranges for the core's profiler.  The driver
 * reports records one by one, in any thread; they are kept here until the core
 * takes them. */

#include <gpu/host/interfaces.h>

#include <stdlib.h>

#define calls (gpu_this_vendor.driver)

typedef struct record {
    core_activity activity;
    char name[96];
} record;

struct gpu_profile {
    pthread_mutex_t lock;
    bool on;
    uint64_t limit, count, capacity, dropped;
    record *records;
    record *taken; /* returned to the core */
};

static bool grow(gpu_profile *profile)
{
    uint64_t capacity = profile->capacity > 0 ? profile->capacity * 2 : 256;
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

/* A gpu_activity_callback. */
static void keep(void *opaque, const gpu_activity *a)
{
    static const uint32_t kinds[] = {
        [GPU_ACTIVITY_KERNEL] = CORE_ACTIVITY_KERNEL,
        [GPU_ACTIVITY_COPY] = CORE_ACTIVITY_COPY,
        [GPU_ACTIVITY_FILL] = CORE_ACTIVITY_FILL,
    };
    gpu_profile *profile = opaque;
    record *r;
    size_t size;

    pthread_mutex_lock(&profile->lock);
    if (profile->count >= profile->limit || !grow(profile)) {
        profile->dropped++;
        goto done;
    }
    r = &profile->records[profile->count++];
    r->activity = (core_activity){.kind = kinds[a->kind],
                                  .correlation = a->correlation,
                                  .stream = a->stream,
                                  .begin = a->begin,
                                  .end = a->end,
                                  .bytes = a->bytes};
    size = strlen(a->name);
    size = size < sizeof r->name ? size : sizeof r->name - 1;
    memcpy(r->name, a->name, size);
    r->name[size] = 0;
done:
    pthread_mutex_unlock(&profile->lock);
}

void gpu_profile_close(gpu_profile *profile)
{
    if (profile == NULL)
        return;
    free(profile->records);
    free(profile->taken);
    pthread_mutex_destroy(&profile->lock);
    free(profile);
}

/* ----------------------------------------------------------- interface -- */

static core_status start(void *opaque, uint64_t limit)
{
    gpu_device *device = opaque;
    gpu_profile *profile = device->profile;
    int code = atomic_load(&device->lost);

    if (profile == NULL) {
        profile = calloc(1, sizeof *profile);
        if (profile == NULL)
            return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                              "no host memory for records");
        pthread_mutex_init(&profile->lock, NULL);
        device->profile = profile;
    }
    if (profile->on)
        return gpu_refuse(CORE_ERROR_BUSY,
                          "the device is already being traced");
    profile->limit = limit;
    profile->count = profile->dropped = 0;
    if (code == 0)
        code = calls->trace_start(device->context, keep, profile);
    if (code == GPU_ABSENT)
        return gpu_refuse(CORE_ERROR_REFUSED,
                          "the vendor's tracing library was not found");
    if (code == GPU_BUSY)
        return gpu_refuse(CORE_ERROR_BUSY,
                          "another tool is tracing the device");
    profile->on = code == 0;
    return gpu_report(device, code, "starting a trace");
}

static core_status stop(void *opaque)
{
    gpu_device *device = opaque;

    if (device->profile == NULL || !device->profile->on)
        return gpu_refuse(CORE_ERROR_INVALID_ARGUMENT,
                          "the device is not being traced");
    device->profile->on = false;
    return gpu_report(device, calls->trace_stop(device->context),
                      "stopping a trace");
}

static void correlate(void *opaque, uint64_t correlation)
{
    gpu_device *device = opaque;

    calls->trace_correlate(device->context, correlation);
}

static core_status take(void *opaque, core_activity_batch *out)
{
    gpu_profile *profile = ((gpu_device *)opaque)->profile;

    out->count = out->dropped = 0;
    out->first = NULL;
    out->stride = sizeof(record);
    if (profile == NULL)
        return CORE_OK;
    pthread_mutex_lock(&profile->lock);
    free(profile->taken);
    profile->taken = profile->records;
    for (uint64_t i = 0; i < profile->count; i++)
        profile->taken[i].activity.name =
            core_sdk_string(profile->taken[i].name);
    if (profile->count > 0)
        out->first = &profile->taken->activity;
    out->count = profile->count;
    out->dropped = profile->dropped;
    profile->records = NULL;
    profile->count = profile->capacity = profile->dropped = 0;
    pthread_mutex_unlock(&profile->lock);
    return CORE_OK;
}

static core_status read_clock(void *opaque, int64_t *out_nanoseconds)
{
    gpu_device *device = opaque;

    return gpu_report(device,
                      calls->trace_clock(device->context, out_nanoseconds),
                      "reading the trace clock");
}

const core_profiler_interface gpu_profiler = {
    .struct_size = sizeof(core_profiler_interface),
    .start = start,
    .stop = stop,
    .correlate = correlate,
    .take = take,
    .clock = read_clock,
};

/* -------------------------------------------------------------- ranges -- */

static void range_begin(void *opaque, core_string name)
{
    char text[128];
    size_t size = name.size < sizeof text ? name.size : sizeof text - 1;

    (void)opaque;
    memcpy(text, name.data, size);
    text[size] = 0;
    calls->range_begin(text);
}

static void range_end(void *opaque)
{
    (void)opaque;
    calls->range_end();
}

const core_ranges_interface gpu_ranges = {
    .struct_size = sizeof(core_ranges_interface),
    .begin = range_begin,
    .end = range_end,
};
