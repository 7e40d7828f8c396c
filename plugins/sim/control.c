/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "block.h"
#include "fault.h"
#include "worker.h"

#include <stdlib.h>

/* Returns the open device of an index. */
static core_status device_at(uint32_t index, sim_device **out_device)
{
    *out_device = index < SIM_DEVICES && sim_devices[index].open
                      ? &sim_devices[index]
                      : NULL;
    if (*out_device)
        return CORE_OK;
    return core_sdk_error(sim_host, CORE_ERROR_NOT_FOUND, "sim",
                          "sim:%u is not open", index);
}

static core_status fault(uint32_t index, uint32_t kind, uint64_t nth)
{
    sim_device *device;
    core_status status = device_at(index, &device);

    if (status == CORE_OK && kind >= SIM_FAULTS)
        status = core_sdk_error(sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                                "there is no fault %u", kind);
    if (status == CORE_OK)
        atomic_store(&device->faults[kind], nth);
    return status;
}

static uint64_t count_streams(const sim_device *device)
{
    uint64_t count = 0;

    for (const sim_stream *at = device->streams; at; at = at->next)
        count++;
    return count;
}

static core_status counters(uint32_t index, sim_counters *out)
{
    sim_device *device;
    core_status status = device_at(index, &device);
    sim_counters c = {.struct_size = out->struct_size};

    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    c.blocks = device->memory->live;
    c.bytes = device->memory->taken;
    c.blocks_created = device->memory->created;
    c.reservations = device->memory->reservations;
    c.streams = count_streams(device);
    c.streams_created = device->count.streams_created;
    c.events = device->count.events;
    c.events_created = device->count.events_created;
    c.records = device->count.records;
    c.waits = device->count.waits;
    c.launches = device->count.launches;
    c.copies = device->count.copies;
    c.callbacks = device->count.callbacks;
    c.graphs = device->count.graphs;
    c.graph_launches = device->count.graph_launches;
    c.stream_errors = device->count.stream_errors;
    c.faults = device->count.faults;
    c.imports = device->memory->imports;
    c.compiles = sim_compiles;
    c.plans = sim_plans;
    c.pinned = sim_pinned_blocks;
    c.conflicts = sim_conflicts;
    c.overruns = sim_overruns;
    c.bad_frees = sim_bad_frees;
    pthread_mutex_unlock(&sim_lock);
    memcpy(out, &c, out->struct_size < sizeof c ? out->struct_size : sizeof c);
    return CORE_OK;
}

static core_status delay(uint64_t seed, uint64_t max_us)
{
    pthread_mutex_lock(&sim_lock);
    sim_set.seed = seed;
    sim_set.delay_us = max_us;
    for (uint32_t i = 0; i < SIM_DEVICES; i++)
        for (sim_stream *at = sim_devices[i].streams; at; at = at->next)
            sim_stream_seed(at);
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

static core_status set_held(uint32_t index, bool held)
{
    sim_device *device;
    core_status status = device_at(index, &device);

    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    device->held = held;
    pthread_cond_broadcast(&device->released);
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

static core_status hold(uint32_t index)
{
    return set_held(index, true);
}

static core_status release_hold(uint32_t index)
{
    return set_held(index, false);
}

static core_status lose(uint32_t index)
{
    sim_device *device;
    core_status status = device_at(index, &device);

    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    sim_device_set_lost(device,
                        "the device was lost by request of the program");
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

static core_status limit(uint64_t bytes)
{
    pthread_mutex_lock(&sim_lock);
    sim_set.bytes = bytes;
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

/* ------------------------------------------------------- native streams -- */

static core_status native_create(uint32_t index, void **out_native)
{
    sim_device *device;
    core_status status = device_at(index, &device);

    *out_native = NULL;
    if (status == CORE_OK)
        status = sim_stream_create(device, CORE_STREAM_COMPUTE, 0, out_native);
    return status;
}

static void native_destroy(void *native)
{
    sim_stream *stream = native;

    if (stream)
        sim_stream_table.destroy(stream->device, stream);
}

static core_status native_fill(void *native, core_memory memory, uint64_t size,
                               uint8_t value)
{
    sim_stream *stream = native;

    return sim_fill(stream->device, stream, memory, size, value, 1);
}

static core_status native_synchronize(void *native)
{
    sim_stream *stream = native;

    return sim_stream_table.synchronize(stream->device, stream);
}

static core_status conflict(char *text, uint64_t size)
{
    pthread_mutex_lock(&sim_lock);
    snprintf(text, size, "%s", sim_conflict_text);
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

const sim_control sim_control_table = {
    .struct_size = sizeof(sim_control),
    .fault = fault,
    .counters = counters,
    .delay = delay,
    .hold = hold,
    .release = release_hold,
    .lose = lose,
    .limit = limit,
    .native_create = native_create,
    .native_destroy = native_destroy,
    .native_fill = native_fill,
    .native_synchronize = native_synchronize,
    .conflict = conflict,
    .remove = sim_hotplug_remove,
    .add = sim_hotplug_add,
    .reverse = sim_hotplug_reverse,
    .watch = sim_hotplug_watch,
};
