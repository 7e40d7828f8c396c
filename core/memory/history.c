/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The history of an allocator: its latest actions, in a ring. */

#include "base/memory.h"
#include "memory/heap.h"

#include <string.h>
#include <time.h>

static const char *const names[] = {
    [CORE__ACTION_ALLOC] = "alloc",
    [CORE__ACTION_FREE_REQUESTED] = "free_requested",
    [CORE__ACTION_FREE_COMPLETED] = "free_completed",
    [CORE__ACTION_SEGMENT_ALLOC] = "segment_alloc",
    [CORE__ACTION_SEGMENT_FREE] = "segment_free",
    [CORE__ACTION_SEGMENT_MAP] = "segment_map",
    [CORE__ACTION_SEGMENT_UNMAP] = "segment_unmap",
    [CORE__ACTION_OOM] = "oom",
};

const char *core__action_name(uint32_t action)
{
    return names[action];
}

void core__history_add_slow(core__allocator *allocator, uint32_t action,
                            uint64_t address, uint64_t size, uint64_t stream)
{
    struct timespec now;
    core__history *history;

    clock_gettime(CLOCK_MONOTONIC, &now);
    core__spin_lock(&allocator->history_lock);
    history = atomic_load(&allocator->history);
    if (history)
        history->actions[history->count++ % history->capacity] = (core__action){
            .time_ns =
                (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
            .address = address,
            .size = size,
            .stream = stream,
            .action = action,
        };
    core__spin_unlock(&allocator->history_lock);
}

core_status core__history_copy(core__allocator *allocator,
                               core__history **out_history)
{
    core__history *history;
    core__history *copy;
    uint64_t count;

    *out_history = NULL;
    /* The ring is replaced only with the allocator's lock held, as it is
     * here. */
    history = atomic_load(&allocator->history);
    if (!history)
        return CORE_OK;
    copy = core__alloc(sizeof *copy +
                       history->capacity * sizeof *history->actions);
    if (!copy)
        return core__error_memory(history->capacity * sizeof *history->actions);
    core__spin_lock(&allocator->history_lock);
    count =
        history->count < history->capacity ? history->count : history->capacity;
    for (uint64_t i = 0; i < count; i++)
        copy->actions[i] =
            history->actions[(history->count - count + i) % history->capacity];
    core__spin_unlock(&allocator->history_lock);
    copy->capacity = count;
    copy->count = count;
    *out_history = copy;
    return CORE_OK;
}

core_status core_memory_record_history(core_device *device, uint64_t entries)
{
    core__history *history = NULL;
    core__history *before;
    core__allocator *allocator;

    CORE__NOT_NULL(device);
    CORE_TRY(core__allocator_require(device, "core_memory_record_history"));
    allocator = device->allocator;
    if (entries > UINT64_C(1) << 32)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_memory_record_history: %llu entries; at most "
                           "2^32 are accepted",
                           (unsigned long long)entries);
    if (entries) {
        size_t size =
            sizeof *history + (size_t)entries * sizeof *history->actions;

        history = core__alloc(size);
        if (!history)
            return core__error_memory(size);
        history->capacity = entries;
        history->count = 0;
    }
    pthread_mutex_lock(&allocator->lock);
    core__spin_lock(&allocator->history_lock);
    before = atomic_exchange(&allocator->history, history);
    core__spin_unlock(&allocator->history_lock);
    core__allocator_unlock(allocator);
    core__free(before);
    return CORE_OK;
}
