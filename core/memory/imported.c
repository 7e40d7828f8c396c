/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Imported memory is closed like allocated memory is reused: after the work of
 * its stream, and of the streams that were recorded for it.  Until then it is in
 * the list below. */

#include "memory/imported.h"

#include "base/memory.h"
#include "memory/heap.h"

struct core__imported {
    core__imported *next;
    core_device *device;
    core_memory memory;
    uint64_t size;
    uint32_t generation;
    core__stream_use *uses;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core__imported *awaiting; /* of all devices */

void core__imported_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

core_status core__imported_open(core_device *device, const void *handle,
                                uint64_t size, core__imported **out_imported,
                                core_memory *out_memory)
{
    core__imported *imported = core__alloc_zero(sizeof *imported);
    uint32_t errors = core__error_sequence();
    core_status status = CORE_OK;

    *out_imported = NULL;
    if (!imported)
        return core__error_memory(sizeof *imported);
    imported->device = device;
    imported->size = size;
    imported->generation = atomic_load(&device->generation);
    if (!device->synchronous)
        status = core__stream_uses_add(&imported->uses,
                                       core__stream_current(device));
    if (status == CORE_OK)
        status = core__device_check_status(
            device,
            device->interfaces.ipc.open(device->impl, handle, size,
                                        &imported->memory),
            errors);
    if (status != CORE_OK) {
        core__stream_uses_free(imported->uses);
        core__free(imported);
        return status;
    }
    *out_memory = imported->memory;
    *out_imported = imported;
    return CORE_OK;
}

core_status core__imported_record_stream(core__imported *imported,
                                         core_stream *stream)
{
    core_status status;

    if (imported->device->synchronous)
        return CORE_OK;
    pthread_mutex_lock(&lock);
    status = core__stream_uses_add(&imported->uses, stream);
    pthread_mutex_unlock(&lock);
    return status;
}

static void close_one(core__imported *imported)
{
    core_device *device = imported->device;

    if (!device->forked &&
        core__device_has_generation(device, imported->generation))
        device->interfaces.ipc.close(device->impl, imported->memory,
                                     imported->size);
    core__free(imported);
    core_device_release(device);
}

/* Takes the device's from the list. */
static core__imported *take(const core_device *device)
{
    core__imported *list = NULL, **link = &awaiting;

    pthread_mutex_lock(&lock);
    while (*link) {
        core__imported *one = *link;

        if (one->device != device) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        one->next = list;
        list = one;
    }
    pthread_mutex_unlock(&lock);
    return list;
}

static void put_back(core__imported *imported)
{
    pthread_mutex_lock(&lock);
    imported->next = awaiting;
    awaiting = imported;
    pthread_mutex_unlock(&lock);
}

/* Without the lock: the plugin is called. */
static void settle(core_device *device, bool wait)
{
    bool mark = device->synchronous ||
                core__allocator_can_record_events(device->allocator);
    core__imported *list = take(device);
    core__stream_use *done = NULL;
    uint64_t events = 0;

    while (list) {
        core__imported *next = list->next;

        if (!core__device_has_generation(device, list->generation)) {
            core__stream_uses_free(list->uses);
            list->uses = NULL;
        }
        done = core__stream_uses_settle(device, &list->uses, mark, wait,
                                        &events, done);
        if (list->uses)
            put_back(list);
        else
            close_one(list);
        list = next;
    }
    core__stream_uses_free(done);
}

void core__imported_release(core__imported *imported)
{
    core_device *device = imported->device;

    /* close_one drops it. */
    core_device_retain(device);
    put_back(imported);
    if (!device->forked)
        settle(device, false);
}

void core__imported_empty(core_device *device)
{
    settle(device, true);
}

void core__imported_reset(core_device *device)
{
    settle(device, false);
}

core_status core__block_allocation(const core_device *device,
                                   const core__block *block,
                                   core_memory *out_memory, uint64_t *out_size)
{
    const core__segment *segment = block->segment;

    if (!segment || segment->expandable)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_memory_export_create: the memory on \"%s\" is "
                           "in a segment that grows in place; the setting "
                           "expandable_segments must be false",
                           device->name);
    *out_memory = segment->memory;
    *out_size = segment->size;
    return CORE_OK;
}
