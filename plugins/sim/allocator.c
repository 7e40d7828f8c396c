/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory that the device manages itself, with LIBCORE_SIM_ALLOCATOR=1: a freed
 * block is released, and invalid from then on, when its stream reaches the
 * free. */

#include "sim.h"

static core_status pass(sim_work *work)
{
    (void)work;
    return CORE_OK;
}

/* Runs even if the stream has failed. */
static void free_block(sim_work *work)
{
    sim_memory_table.free(work->stream->device, work->to, work->size);
}

static core_status alloc(void *device, void *stream, uint64_t size,
                         core_memory *out_memory)
{
    core_status status = sim_memory_table.alloc(device, size, out_memory);

    if (status != CORE_ERROR_OUT_OF_MEMORY || !stream)
        return status;
    /* Memory that is freed after pending work becomes available when that work
     * has run. */
    sim_stream_table.synchronize(device, stream);
    return sim_memory_table.alloc(device, size, out_memory);
}

static void release(void *device, void *stream, core_memory memory,
                    uint64_t size)
{
    sim_work work = {.run = pass,
                     .end = free_block,
                     .what = "free",
                     .undelayed = true,
                     .to = memory,
                     .size = size};

    if (sim_forked())
        return;
    if (!stream || sim_enqueue(stream, &work) != CORE_OK)
        sim_memory_table.free(device, memory, size);
}

static core_status trim(void *device)
{
    (void)device;
    return CORE_OK;
}

const core_allocator_interface sim_allocator = {
    .struct_size = sizeof(core_allocator_interface),
    .alloc = alloc,
    .free = release,
    .trim = trim,
};
