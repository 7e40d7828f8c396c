/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrappers of core.profiler, core.layout and core.ranges. */

#include "interpose/interposer.h"

#define REAL(device) (&(device)->backend->interfaces)

static core_status enter(interposer_call *call, const interposer_device *device,
                         const char *slot, interposer_kind kind)
{
    return interposer_enter(call, device->backend->interposers,
                            device->backend->type, slot, kind);
}

/* ------------------------------------------------------------- records -- */

static core_status start(void *handle, uint64_t limit)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "profiler.start", INTERPOSER_INTERFACE));
    if (atomic_load(&device->recording))
        interposer_violation(&call, "libcore starts recording twice");
    status = REAL(device)->profiler.start(device->impl, limit);
    if (status == CORE_OK)
        atomic_store(&device->recording, true);
    return interposer_leave(&call, status, "%p, %llu", device->impl,
                            (unsigned long long)limit);
}

static core_status stop(void *handle)
{
    interposer_device *device = handle;
    interposer_call call;

    /* Recording must end, so this never fails before the call. */
    enter(&call, device, "profiler.stop", INTERPOSER_NEVER);
    if (!atomic_exchange(&device->recording, false))
        interposer_violation(
            &call, "libcore stops recording without having started it");
    return interposer_leave(&call, REAL(device)->profiler.stop(device->impl),
                            "%p", device->impl);
}

static void correlate(void *handle, uint64_t correlation)
{
    interposer_device *device = handle;
    uint64_t newest = atomic_load(&device->correlation);
    interposer_call call;

    enter(&call, device, "profiler.correlate", INTERPOSER_NEVER);
    while (newest < correlation &&
           !atomic_compare_exchange_weak(&device->correlation, &newest,
                                         correlation))
        ;
    REAL(device)->profiler.correlate(device->impl, correlation);
    interposer_leave_void(&call, "%p, %llu", device->impl,
                          (unsigned long long)correlation);
}

static void check_record(interposer_call *call, const interposer_device *device,
                         const core_activity *record)
{
    if (record->end < record->begin)
        interposer_violation(call,
                             "has a record that ends %lld ns before it begins",
                             (long long)(record->begin - record->end));
    if (record->correlation > atomic_load(&device->correlation))
        interposer_violation(
            call, "has a record with the correlation %llu, which was never set",
            (unsigned long long)record->correlation);
    if (record->name.size > 65536 ||
        (record->name.size > 0 && !record->name.data))
        interposer_violation(call,
                             "has a record whose name has %llu bytes at %p",
                             (unsigned long long)record->name.size,
                             (const void *)record->name.data);
}

static void check_batch(interposer_call *call, const interposer_device *device,
                        const core_activity_batch *batch)
{
    const char *at = (const char *)batch->first;

    if (batch->count == 0)
        return;
    if (!at || batch->stride < INTERPOSER_ACTIVITY_0_5 ||
        batch->stride % 8 != 0) {
        interposer_violation(call, "has records of %u bytes at %p",
                             batch->stride, (const void *)at);
        return;
    }
    for (uint64_t i = 0; i < batch->count && !call->violated; i++)
        check_record(
            call, device,
            (const core_activity *)(const void *)(at + i * batch->stride));
}

static core_status take(void *handle, core_activity_batch *out)
{
    interposer_device *device = handle;
    uint32_t size = out->struct_size;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "profiler.take", INTERPOSER_INTERFACE));
    status = REAL(device)->profiler.take(device->impl, out);
    if (status == CORE_OK && interposer_validates(call.interposers)) {
        check_batch(&call, device, out);
        if (out->struct_size > size)
            interposer_violation(&call, "increases struct_size from %u to %u",
                                 size, out->struct_size);
    }
    return interposer_leave(&call, status, "%p -> %llu, and %llu dropped",
                            device->impl, (unsigned long long)out->count,
                            (unsigned long long)out->dropped);
}

static core_status read_clock(void *handle, int64_t *out_nanoseconds)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "profiler.clock", INTERPOSER_INTERFACE));
    status = REAL(device)->profiler.clock(device->impl, out_nanoseconds);
    return interposer_leave(&call, status, "%p -> %lld", device->impl,
                            (long long)*out_nanoseconds);
}

const core_profiler_interface interposer_profiler = {
    sizeof(core_profiler_interface),
    0,
    start,
    stop,
    correlate,
    take,
    read_clock};

/* -------------------------------------------------------------- layout -- */

static uint32_t preferred(void *handle, core_string operator_name,
                          core_dtype dtype, uint32_t ndim)
{
    interposer_device *device = handle;
    interposer_call call;
    uint32_t format;

    enter(&call, device, "layout.preferred", INTERPOSER_NEVER);
    format = REAL(device)->layout.preferred(device->impl, operator_name, dtype,
                                            ndim);
    if (interposer_validates(call.interposers) &&
        format != CORE_FORMAT_CONTIGUOUS &&
        !(format == CORE_FORMAT_CHANNELS_LAST && ndim == 4) &&
        !(format == CORE_FORMAT_CHANNELS_LAST_3D && ndim == 5)) {
        interposer_violation(
            &call,
            "prefers for %u dimensions the format %u, which does not apply",
            ndim, format);
        format = CORE_FORMAT_CONTIGUOUS;
    }
    interposer_leave_void(&call, "%p, %.*s, %u, %u -> %u", device->impl,
                          (int)operator_name.size, operator_name.data, dtype,
                          ndim, format);
    return format;
}

const core_layout_interface interposer_layout = {sizeof(core_layout_interface),
                                                 0, preferred};

/* -------------------------------------------------------------- ranges -- */

static _Thread_local uint32_t inside; /* number of ranges that this thread is
                                       * in */

static void range_begin(void *handle, core_string name)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "ranges.begin", INTERPOSER_NEVER);
    inside++;
    REAL(device)->ranges.begin(device->impl, name);
    interposer_leave_void(&call, "%p, %.*s", device->impl, (int)name.size,
                          name.data);
}

static void range_end(void *handle)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "ranges.end", INTERPOSER_NEVER);
    if (inside == 0)
        interposer_violation(&call,
                             "libcore ends a range that it did not begin");
    else
        inside--;
    REAL(device)->ranges.end(device->impl);
    interposer_leave_void(&call, "%p", device->impl);
}

const core_ranges_interface interposer_ranges = {sizeof(core_ranges_interface),
                                                 0, range_begin, range_end};
