/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reservations: address ranges whose memory is mapped and unmapped granule by
 * granule.  Work that uses an unmapped granule fails. */

#include "block.h"
#include "fault.h"

#include <stdlib.h>
#include <sys/mman.h>

/* A granule is also a multiple of the host's page size. */
uint64_t sim_granule(void)
{
    return sim_set.granularity > SIM_PAGE
               ? (sim_set.granularity + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE
               : SIM_PAGE;
}

static core_status granularity(void *device, uint64_t *out_bytes)
{
    (void)device;
    *out_bytes = sim_granule();
    return CORE_OK;
}

static core_status reserve(void *handle, uint64_t size, core_memory *out_memory)
{
    sim_device *device = handle;
    core_status status = sim_usable(device);
    sim_block *block = NULL;
    uint8_t *mapped;
    void *data;

    out_memory->handle = NULL;
    out_memory->offset = 0;
    if (status != CORE_OK)
        return status;
    if (size == 0 || size % sim_granule() != 0)
        return core_sdk_error(
            sim_host, CORE_ERROR_INTERNAL, "sim",
            "reserve: %llu bytes; accepted: positive multiples of %llu",
            (unsigned long long)size, (unsigned long long)sim_granule());
    mapped = calloc(size / sim_granule(), 1);
    data = mmap(NULL, size, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pthread_mutex_lock(&sim_lock);
    if (mapped && data != MAP_FAILED)
        block = sim_block_create(device, size, data, out_memory);
    if (block) {
        block->mapped = mapped;
        device->memory->reservations++;
    }
    pthread_mutex_unlock(&sim_lock);
    if (block)
        return CORE_OK;
    free(mapped);
    if (data != MAP_FAILED)
        munmap(data, size);
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                          "no addresses for %llu bytes",
                          (unsigned long long)size);
}

/* Returns the reservation; NULL, with an error, if it is not one or the range
 * does not consist of whole granules of it. */
static sim_block *reservation(sim_device *device, core_memory memory,
                              uint64_t offset, uint64_t size)
{
    uint64_t at;
    sim_block *block = sim_block_find(device, memory, &at);

    if (block && block->data && block->mapped && at == 0 &&
        offset % sim_granule() == 0 && size % sim_granule() == 0 &&
        offset <= block->size && size <= block->size - offset)
        return block;
    sim_bad_frees++;
    return NULL;
}

static bool all_are(const sim_block *block, uint64_t offset, uint64_t size,
                    uint8_t state)
{
    for (uint64_t i = offset / sim_granule();
         i < (offset + size) / sim_granule(); i++)
        if (block->mapped[i] != state)
            return false;
    return true;
}

static core_status map(void *handle, core_memory memory, uint64_t offset,
                       uint64_t size)
{
    sim_device *device = handle;
    core_status status = sim_usable(device);
    sim_block *block;

    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_MAP);
    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    block = reservation(device, memory, offset, size);
    if (!block || !all_are(block, offset, size, 0)) {
        status = core_sdk_error(
            sim_host, CORE_ERROR_INTERNAL, "sim",
            "bytes [%llu, %llu) are not a free part of a reservation",
            (unsigned long long)offset, (unsigned long long)(offset + size));
    } else if (device->memory->taken + size > sim_set.bytes) {
        status = sim_memory_refused(device, size);
    } else if (mprotect(block->data + offset, size, PROT_READ | PROT_WRITE)) {
        status = core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                                "no host memory for %llu bytes",
                                (unsigned long long)size);
    } else {
        memset(block->data + offset, SIM_POISON, size);
        memset(block->mapped + offset / sim_granule(), 1, size / sim_granule());
        device->memory->taken += size;
    }
    pthread_mutex_unlock(&sim_lock);
    return status;
}

static void unmap(void *handle, core_memory memory, uint64_t offset,
                  uint64_t size)
{
    sim_device *device = handle;
    sim_block *block;

    if (sim_forked())
        return;
    pthread_mutex_lock(&sim_lock);
    block = reservation(device, memory, offset, size);
    if (block && all_are(block, offset, size, 1)) {
        sim_history_check(device, block, offset, offset + size);
        /* Replaces the pages, so that the host's memory is returned; work of a
         * lost device may still access them. */
        if (!device->lost)
            mmap(block->data + offset, size, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                 0);
        memset(block->mapped + offset / sim_granule(), 0, size / sim_granule());
        device->memory->taken -= size;
    } else if (block) {
        sim_bad_frees++;
    }
    pthread_mutex_unlock(&sim_lock);
}

static void release(void *handle, core_memory memory, uint64_t size)
{
    sim_device *device = handle;
    sim_block *block;

    if (sim_forked())
        return;
    pthread_mutex_lock(&sim_lock);
    block = reservation(device, memory, 0, size);
    if (block && block->size == size) {
        for (uint64_t i = 0; i < size / sim_granule(); i++)
            device->memory->taken -= block->mapped[i] ? sim_granule() : 0;
        sim_history_check(device, block, 0, size);
        sim_block_release(device, block);
        sim_block_destroy(device, block);
        device->memory->reservations--;
    }
    pthread_mutex_unlock(&sim_lock);
}

const core_virtual_memory_interface sim_virtual_memory = {
    .struct_size = sizeof(core_virtual_memory_interface),
    .granularity = granularity,
    .reserve = reserve,
    .release = release,
    .map = map,
    .unmap = unmap,
};
