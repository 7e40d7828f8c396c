/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Imported memory is closed like allocated memory is reused: after the work of
 * its stream, and of the streams that were recorded for it.  Until then it is in
 * the list below. */

#include "memory/imported.h"

#include "base/memory.h"
#include "memory/heap.h"

struct core__imported {
    core__imported *next;    /* in the list */
    core__imported *claimed; /* by the thread that settles it */
    bool settling;           /* a thread does */
    core_device *device;
    core_memory memory;
    uint64_t size;
    uint32_t generation;
    core__stream_use *uses;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t settled = PTHREAD_COND_INITIALIZER;
static core__imported *_Atomic awaiting; /* of all devices */

void core__imported_fork(core__fork_phase at)
{
    if (at == CORE__FORK_CHILD) { /* the threads that settled are not here */
        for (core__imported *i = atomic_load(&awaiting); i; i = i->next)
            i->settling = false;
        pthread_cond_init(&settled, NULL);
    }
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

/* Returns the device's, except for those that another thread settles. */
static core__imported *claim(const core_device *device, bool *out_others)
{
    core__imported *list = NULL;

    *out_others = false;
    pthread_mutex_lock(&lock);
    for (core__imported *i = atomic_load(&awaiting); i; i = i->next) {
        if (i->device != device)
            continue;
        if (i->settling) {
            *out_others = true;
            continue;
        }
        i->settling = true;
        i->claimed = list;
        list = i;
    }
    pthread_mutex_unlock(&lock);
    return list;
}

static void unlink_one(const core__imported *imported)
{
    core__imported *at = atomic_load(&awaiting);

    if (at == imported) {
        atomic_store(&awaiting, imported->next);
        return;
    }
    while (at->next != imported)
        at = at->next;
    at->next = imported->next;
}

/* Closes it if no work uses it any more.  Without the lock: the plugin is
 * called. */
static core__stream_use *settle_one(core__imported *imported, bool wait,
                                    core__stream_use *done)
{
    core_device *device = imported->device;
    bool current = core__device_has_generation(device, imported->generation);
    bool mark = device->synchronous ||
                core__allocator_can_record_events(device->allocator);
    uint64_t events = 0;

    if (!current) {
        core__stream_uses_free(imported->uses);
        imported->uses = NULL;
    }
    done = core__stream_uses_settle(device, &imported->uses, mark, wait,
                                    &events, done);
    if (!imported->uses && current && !device->forked)
        device->interfaces.ipc.close(device->impl, imported->memory,
                                     imported->size);
    return done;
}

/* Ends the claim, and returns how many were closed and are freed now. */
static uint32_t end_claim(core__imported *list)
{
    core__imported *closed = NULL;
    uint32_t count = 0;

    pthread_mutex_lock(&lock);
    while (list) {
        core__imported *one = list;

        list = list->claimed;
        one->settling = false;
        if (one->uses)
            continue;
        unlink_one(one);
        one->claimed = closed;
        closed = one;
        count++;
    }
    pthread_cond_broadcast(&settled);
    pthread_mutex_unlock(&lock);
    while (closed) {
        core__imported *next = closed->claimed;

        core__free(closed);
        closed = next;
    }
    return count;
}

static bool is_settled_elsewhere(const core_device *device)
{
    for (core__imported *i = atomic_load(&awaiting); i; i = i->next)
        if (i->device == device && i->settling)
            return true;
    return false;
}

/* wait: for the work, and for other threads that settle. */
static void settle(core_device *device, bool wait)
{
    core__stream_use *done = NULL;
    uint32_t references = 0;
    bool others = true;

    while (others) {
        core__imported *list = claim(device, &others);

        for (core__imported *i = list; i; i = i->claimed)
            done = settle_one(i, wait, done);
        if (list)
            references += end_claim(list);
        others = others && wait;
        if (!others)
            break;
        pthread_mutex_lock(&lock);
        while (is_settled_elsewhere(device))
            pthread_cond_wait(&settled, &lock);
        pthread_mutex_unlock(&lock);
    }
    core__stream_uses_free(done);
    while (references-- > 0)
        core_device_release(device);
}

void core__imported_release(core__imported *imported)
{
    core_device *device = imported->device;

    core_device_retain(device); /* settle releases it */
    pthread_mutex_lock(&lock);
    imported->next = atomic_load(&awaiting);
    atomic_store(&awaiting, imported);
    pthread_mutex_unlock(&lock);
    if (!device->forked)
        settle(device, false);
}

void core__imported_empty(core_device *device)
{
    if (atomic_load(&awaiting))
        settle(device, true);
}

void core__imported_settle(core_device *device)
{
    if (atomic_load(&awaiting) && !device->forked)
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
