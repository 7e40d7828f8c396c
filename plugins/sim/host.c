/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Pinned host memory: ordinary memory, allocated here or registered, that is
 * tracked, so that unordered uses by streams are detected in it, too. */

#include "block.h"
#include "fault.h"

#include <stdlib.h>

typedef struct sim_pinned {
    struct sim_pinned *next;
    const sim_device *device;
    char *data;
    uint64_t size;
    bool registered; /* the program's memory */
    sim_history history;
} sim_pinned;

static sim_pinned *all;
uint64_t sim_pinned_blocks;

sim_history *sim_pinned_history(const void *data, uint64_t size,
                                uint64_t *out_offset)
{
    for (sim_pinned *at = all; at; at = at->next) {
        if ((const char *)data < at->data ||
            (const char *)data + size > at->data + at->size)
            continue;
        *out_offset = (uint64_t)((const char *)data - at->data);
        return &at->history;
    }
    return NULL;
}

static void add(const sim_device *device, sim_pinned *block)
{
    block->device = device;
    pthread_mutex_lock(&sim_lock);
    block->next = all;
    all = block;
    sim_pinned_blocks++;
    pthread_mutex_unlock(&sim_lock);
}

static core_status alloc(void *device, uint64_t size, void **out_data)
{
    core_status status = sim_usable(device);
    sim_pinned *block;

    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_HOST);
    *out_data = NULL;
    if (status != CORE_OK)
        return status;
    block = calloc(1, sizeof *block);
    if (block)
        block->data = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!block || !block->data) {
        free(block);
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "%llu bytes of host memory",
                              (unsigned long long)size);
    }
    memset(block->data, SIM_POISON, size);
    block->size = size;
    add(device, block);
    *out_data = block->data;
    return CORE_OK;
}

static core_status register_memory(void *device, void *data, uint64_t size)
{
    core_status status = sim_usable(device);
    sim_pinned *block;

    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_HOST);
    if (status != CORE_OK)
        return status;
    block = calloc(1, sizeof *block);
    if (!block)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory to register a range");
    block->data = data;
    block->size = size;
    block->registered = true;
    add(device, block);
    return CORE_OK;
}

void sim_pinned_free(sim_pinned *pinned)
{
    sim_pinned *next;

    for (; pinned; pinned = next) {
        next = pinned->next;
        if (!pinned->registered) {
            memset(pinned->data, SIM_POISON_FREED, pinned->size);
            free(pinned->data);
        }
        free(pinned);
    }
}

static void release(void *handle, void *data, uint64_t size)
{
    sim_device *device = handle;
    char text[SIM_TEXT];
    uint64_t stream;
    sim_pinned **at = &all;
    sim_pinned *block;

    (void)size;
    if (sim_forked())
        return;
    pthread_mutex_lock(&sim_lock);
    while (*at && !((*at)->data == data && (*at)->device == device))
        at = &(*at)->next;
    block = *at;
    if (block)
        *at = block->next;
    else
        sim_bad_frees++;
    if (block && sim_set.check &&
        sim_history_end(&block->history, sim_clock_host(), 0, block->size,
                        "pinned host memory", text, sizeof text, &stream))
        sim_fail_user(device, stream, text);
    if (block) {
        sim_history_drop(&block->history);
        sim_pinned_blocks--;
        block->next = NULL;
    }
    if (block && !block->registered && device->open && device->lost) {
        block->next = device->memory->pinned;
        device->memory->pinned = block;
        block = NULL;
    }
    pthread_mutex_unlock(&sim_lock);
    sim_pinned_free(block);
}

const core_host_memory_interface sim_host_memory = {
    .struct_size = sizeof(core_host_memory_interface),
    .alloc = alloc,
    .free = release,
    .register_memory = register_memory,
    .unregister_memory = release,
};
