/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Copies and fills on a stream, also between two devices. */

#include "block.h"
#include "fault.h"

static core_status run_from_host(sim_work *work)
{
    void *to;
    core_status status =
        sim_memory_resolve(work->stream->device, work->to, work->size, &to);

    if (status == CORE_OK)
        memcpy(to, work->host, work->size);
    return status;
}

static core_status run_to_host(sim_work *work)
{
    void *from;
    core_status status =
        sim_memory_resolve(work->stream->device, work->from, work->size, &from);

    if (status == CORE_OK)
        memcpy(work->host, from, work->size);
    return status;
}

static core_status run_copy(sim_work *work)
{
    void *to, *from;
    core_status status =
        sim_memory_resolve(work->stream->device, work->to, work->size, &to);

    if (status == CORE_OK)
        status = sim_memory_resolve(work->from_device, work->from, work->size,
                                    &from);
    if (status == CORE_OK)
        memmove(to, from, work->size);
    return status;
}

static core_status run_fill(sim_work *work)
{
    void *to;
    core_status status =
        sim_memory_resolve(work->stream->device, work->to, work->size, &to);

    for (uint64_t i = 0; status == CORE_OK && i < work->size;
         i += work->pattern_size)
        memcpy((char *)to + i, &work->pattern, work->pattern_size);
    return status;
}

static core_status enqueue(sim_device *device, sim_stream *stream,
                           const sim_work *work)
{
    core_status status;

    if (work->size == 0)
        return CORE_OK;
    if (stream->device != device)
        return core_sdk_error(sim_host, CORE_ERROR_INTERNAL, "sim",
                              "%s: the device is %s, and the stream is of %s",
                              work->what, device->name, stream->device->name);
    status = sim_usable(device);
    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_COPY);
    return status == CORE_OK ? sim_enqueue(stream, work) : status;
}

core_status sim_copy_from_host(void *device, void *stream, core_memory to,
                               const void *from, uint64_t size)
{
    sim_work work = {.run = run_from_host,
                     .what = "copy from the host",
                     .to = to,
                     .host = (void *)(uintptr_t)from,
                     .size = size};

    return enqueue(device, stream, &work);
}

core_status sim_copy_to_host(void *device, void *stream, void *to,
                             core_memory from, uint64_t size)
{
    sim_work work = {.run = run_to_host,
                     .what = "copy to the host",
                     .from = from,
                     .host = to,
                     .size = size};

    return enqueue(device, stream, &work);
}

core_status sim_copy(void *device, void *stream, core_memory to,
                     core_memory from, uint64_t size)
{
    sim_work work = {.run = run_copy,
                     .what = "copy",
                     .to = to,
                     .from = from,
                     .from_device = device,
                     .size = size};

    return enqueue(device, stream, &work);
}

core_status sim_fill(void *device, void *stream, core_memory to, uint64_t size,
                     uint64_t pattern, uint32_t pattern_size)
{
    sim_work work = {.run = run_fill,
                     .what = "fill",
                     .to = to,
                     .size = size,
                     .pattern = pattern,
                     .pattern_size = pattern_size};

    return enqueue(device, stream, &work);
}

/* ----------------------------------------------------------------- peers -- */

static core_status can_access(void *device, void *other, uint32_t *out_yes)
{
    (void)device;
    (void)other;
    *out_yes = 1;
    return CORE_OK;
}

static core_status peer_copy(void *device, void *stream, core_memory to,
                             void *from_device, core_memory from, uint64_t size)
{
    sim_work work = {.run = run_copy,
                     .what = "copy from a peer",
                     .to = to,
                     .from = from,
                     .from_device = from_device,
                     .size = size};
    core_status status = sim_usable(from_device);

    return status == CORE_OK ? enqueue(device, stream, &work) : status;
}

const core_peer_interface sim_peer = {
    .struct_size = sizeof(core_peer_interface),
    .can_access = can_access,
    .copy = peer_copy,
};
