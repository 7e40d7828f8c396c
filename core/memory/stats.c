/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Statistics of all heaps of a device together. */

#include "base/error.h"
#include "memory/heap.h"
#include "memory/host_stats.h"

#include <string.h>

static uint64_t current_of(const core__allocator *allocator, uint32_t what,
                           uint32_t kind)
{
    uint64_t sum = 0;

    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        sum += core__count_get(&heap->counts.of[what][kind].current);
    return sum;
}

/* All heaps may count up to the same distance from where they are now. */
static void share_out(core__allocator *allocator, uint32_t what, uint32_t kind)
{
    uint64_t *peak = &allocator->counts.of[what][kind].peak;
    uint64_t sum = current_of(allocator, what, kind);
    uint64_t heaps = 0;
    uint64_t bounds = 0;
    uint64_t room;

    if (sum > *peak)
        *peak = sum;
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        heaps++;
    room = (*peak - sum) / (heaps ? heaps : 1);
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next) {
        core__count *count = &heap->counts.of[what][kind];
        uint64_t bound = core__count_get(&count->current) + room;

        core__count_set(&count->bound, bound);
        bounds += bound;
    }
    allocator->counts.of[what][kind].bounds = bounds;
}

void core__counts_settle(core__heap *heap)
{
    core__allocator *allocator = heap->allocator;
    core__device_counts *device = &allocator->counts;

    core__spin_lock(&device->lock);
    for (uint32_t what = 0; what < CORE__COUNTS; what++)
        for (uint32_t kind = 0; kind < 3; kind++) {
            core__count *count = &heap->counts.of[what][kind];
            uint64_t now = core__count_get(&count->current);
            uint64_t bound = core__count_get(&count->bound);

            if (now <= bound)
                continue;
            if (device->of[what][kind].bounds + (now - bound) <=
                device->of[what][kind].peak) {
                core__count_set(&count->bound, now);
                device->of[what][kind].bounds += now - bound;
            } else {
                share_out(allocator, what, kind);
            }
        }
    core__spin_unlock(&device->lock);
}

void core__counts_end(core__heap *heap)
{
    core__device_counts *device = &heap->allocator->counts;

    for (uint32_t what = 0; what < CORE__COUNTS; what++)
        for (uint32_t kind = 0; kind < 3; kind++) {
            core__count *count = &heap->counts.of[what][kind];

            device->of[what][kind].bounds -= core__count_get(&count->bound);
            device->of[what][kind].allocated +=
                core__count_get(&count->allocated);
        }
}

/* ---------------------------------------------------------------- public -- */

static void collect(core__allocator *allocator, core_memory_stats *out)
{
    core_memory_stat *stat = out->allocations;

    core__spin_lock(&allocator->counts.lock);
    for (uint32_t what = 0; what < CORE__COUNTS; what++)
        for (uint32_t kind = 0; kind < 3; kind++, stat++) {
            stat->current = current_of(allocator, what, kind);
            stat->peak = allocator->counts.of[what][kind].peak;
            if (stat->peak < stat->current)
                stat->peak = stat->current;
            stat->allocated = allocator->counts.of[what][kind].allocated;
            for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
                stat->allocated +=
                    core__count_get(&heap->counts.of[what][kind].allocated);
            stat->freed = stat->allocated - stat->current;
        }
    core__spin_unlock(&allocator->counts.lock);
    out->retries = atomic_load(&allocator->retries);
    out->out_of_memories = atomic_load(&allocator->out_of_memories);
    out->events = atomic_load(&allocator->events);
}

_Static_assert(sizeof(core_memory_stats) ==
                   8 + CORE__COUNTS * 3 * sizeof(core_memory_stat) + 24,
               "the statistics are in the order of CORE__COUNT_…");

core_status core_memory_get_stats(core_device *device, core_memory_stats *out)
{
    core_memory_stats stats = {0};
    uint32_t size;

    CORE__NOT_NULL(device);
    CORE__NOT_NULL(out);
    size = out->struct_size < sizeof stats ? out->struct_size : sizeof stats;
    if (size < sizeof stats.struct_size)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "struct_size of the statistics is %u",
                           out->struct_size);
    if (device->allocator) {
        core__allocator_settle(device->allocator);
        collect(device->allocator, &stats);
    } else {
        core__host_stats_get(device, &stats);
    }
    stats.struct_size = size;
    memcpy(out, &stats, size);
    return CORE_OK;
}

core_status core_memory_reset_peaks(core_device *device)
{
    core__allocator *allocator;

    CORE__NOT_NULL(device);
    allocator = device->allocator;
    if (!allocator) {
        core__host_stats_reset_peaks(device);
        return CORE_OK;
    }
    core__spin_lock(&allocator->counts.lock);
    for (uint32_t what = 0; what < CORE__COUNTS; what++)
        for (uint32_t kind = 0; kind < 3; kind++) {
            allocator->counts.of[what][kind].peak = 0;
            share_out(allocator, what, kind);
        }
    core__spin_unlock(&allocator->counts.lock);
    return CORE_OK;
}
