/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrappers of core.profiler, core.layout and core.ranges. */

#include "interpose/interposer.h"

#define REAL(device) (&(device)->backend->interfaces)

static core_status enter(layer_call *call, const layer_device *device,
                         const char *slot, layer_kind kind)
{
    return layer_enter(call, device->backend->layers, device->backend->type,
                       slot, kind);
}

/* ---------------------------------------------------------------- records -- */

static core_status start(void *word, uint64_t limit)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "profiler.start", LAYER_INTERFACE));
    if (atomic_load(&device->recording))
        layer_breach(&call, "libcore starts it a second time");
    status = REAL(device)->profiler.start(device->impl, limit);
    if (status == CORE_OK)
        atomic_store(&device->recording, true);
    return layer_leave(&call, status, "%p, %llu", device->impl,
                       (unsigned long long)limit);
}

static core_status stop(void *word)
{
    layer_device *device = word;
    layer_call call;

    /* It must end, so it is never failed before it is made. */
    enter(&call, device, "profiler.stop", LAYER_NEVER);
    if (!atomic_exchange(&device->recording, false))
        layer_breach(&call, "libcore stops what it did not start");
    return layer_leave(&call, REAL(device)->profiler.stop(device->impl), "%p",
                       device->impl);
}

static void correlate(void *word, uint64_t correlation)
{
    layer_device *device = word;
    uint64_t newest = atomic_load(&device->correlation);
    layer_call call;

    enter(&call, device, "profiler.correlate", LAYER_NEVER);
    while (newest < correlation &&
           !atomic_compare_exchange_weak(&device->correlation, &newest,
                                         correlation))
        ;
    REAL(device)->profiler.correlate(device->impl, correlation);
    layer_leave_void(&call, "%p, %llu", device->impl,
                     (unsigned long long)correlation);
}

static void check_record(layer_call *call, const layer_device *device,
                         const core_activity *record)
{
    if (record->end < record->begin)
        layer_breach(call, "has a record that ends %lld ns before it begins",
                     (long long)(record->begin - record->end));
    if (record->correlation > atomic_load(&device->correlation))
        layer_breach(call,
                     "has a record with the correlation %llu, which was "
                     "never given",
                     (unsigned long long)record->correlation);
    if (record->name.size > 65536 ||
        (record->name.size > 0 && !record->name.data))
        layer_breach(call, "has a record whose name has %llu bytes at %p",
                     (unsigned long long)record->name.size,
                     (const void *)record->name.data);
}

static void check_batch(layer_call *call, const layer_device *device,
                        const core_activity_batch *batch)
{
    const char *at = (const char *)batch->first;

    if (batch->count == 0)
        return;
    if (!at || batch->stride < LAYER_ACTIVITY_0_5 || batch->stride % 8 != 0) {
        layer_breach(call, "has records of %u bytes at %p", batch->stride,
                     (const void *)at);
        return;
    }
    for (uint64_t i = 0; i < batch->count && !call->broken; i++)
        check_record(
            call, device,
            (const core_activity *)(const void *)(at + i * batch->stride));
}

static core_status take(void *word, core_activity_batch *out)
{
    layer_device *device = word;
    uint32_t size = out->struct_size;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "profiler.take", LAYER_INTERFACE));
    status = REAL(device)->profiler.take(device->impl, out);
    if (status == CORE_OK && layer_validates(call.layers)) {
        check_batch(&call, device, out);
        if (out->struct_size > size)
            layer_breach(&call, "grows struct_size from %u to %u", size,
                         out->struct_size);
    }
    return layer_leave(&call, status, "%p -> %llu, and %llu dropped",
                       device->impl, (unsigned long long)out->count,
                       (unsigned long long)out->dropped);
}

static core_status read_clock(void *word, int64_t *out_nanoseconds)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "profiler.clock", LAYER_INTERFACE));
    status = REAL(device)->profiler.clock(device->impl, out_nanoseconds);
    return layer_leave(&call, status, "%p -> %lld", device->impl,
                       (long long)*out_nanoseconds);
}

const core_profiler_interface layer_profiler = {sizeof(core_profiler_interface),
                                                0,
                                                start,
                                                stop,
                                                correlate,
                                                take,
                                                read_clock};

/* ----------------------------------------------------------------- layout -- */

static uint32_t preferred(void *word, core_string operator_name,
                          core_dtype dtype, uint32_t ndim)
{
    layer_device *device = word;
    layer_call call;
    uint32_t format;

    enter(&call, device, "layout.preferred", LAYER_NEVER);
    format = REAL(device)->layout.preferred(device->impl, operator_name, dtype,
                                            ndim);
    if (layer_validates(call.layers) && format != CORE_FORMAT_CONTIGUOUS &&
        !(format == CORE_FORMAT_CHANNELS_LAST && ndim == 4) &&
        !(format == CORE_FORMAT_CHANNELS_LAST_3D && ndim == 5)) {
        layer_breach(&call, "would have %u dimensions in the format %u", ndim,
                     format);
        format = CORE_FORMAT_CONTIGUOUS;
    }
    layer_leave_void(&call, "%p, %.*s, %u, %u -> %u", device->impl,
                     (int)operator_name.size, operator_name.data, dtype, ndim,
                     format);
    return format;
}

const core_layout_interface layer_layout = {sizeof(core_layout_interface), 0,
                                            preferred};

/* ----------------------------------------------------------------- ranges -- */

static _Thread_local uint32_t inside; /* stretches that this thread is in */

static void range_begin(void *word, core_string name)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "ranges.begin", LAYER_NEVER);
    inside++;
    REAL(device)->ranges.begin(device->impl, name);
    layer_leave_void(&call, "%p, %.*s", device->impl, (int)name.size,
                     name.data);
}

static void range_end(void *word)
{
    layer_device *device = word;
    layer_call call;

    enter(&call, device, "ranges.end", LAYER_NEVER);
    if (inside == 0)
        layer_breach(&call, "libcore ends a range that it did not begin");
    else
        inside--;
    REAL(device)->ranges.end(device->impl);
    layer_leave_void(&call, "%p", device->impl);
}

const core_ranges_interface layer_ranges = {sizeof(core_ranges_interface), 0,
                                            range_begin, range_end};
