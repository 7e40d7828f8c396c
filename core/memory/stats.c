/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Statistics over all heaps of a device. */

#include "base/error.h"
#include "memory/heap.h"
#include "memory/host_stats.h"

#include <string.h>

/* Counts that are part of another: active blocks are those of storages and
 * those that are waiting. */
static const int8_t parts[CORE__COUNTS] = {
    [CORE__COUNT_AWAITING] = CORE__COUNT_ALLOCATIONS + 1,
    [CORE__COUNT_AWAITING_BYTES] = CORE__COUNT_ALLOCATED_BYTES + 1,
};

static uint64_t current_in(const core__heap *heap, uint32_t what, uint32_t kind)
{
    uint64_t sum = 0;

    for (uint32_t k = 0; k < 2; k++) {
        const core__count *counts = heap->counts.of[k];

        if (kind != CORE_MEMORY_ALL && kind != k + CORE_MEMORY_SMALL)
            continue;
        sum += core__count_current(&counts[what]);
        if (parts[what])
            sum += core__count_current(&counts[parts[what] - 1]);
    }
    return sum;
}

static uint64_t current_of(const core__allocator *allocator, uint32_t what,
                           uint32_t kind)
{
    uint64_t sum = 0;

    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        sum += current_in(heap, what, kind);
    return sum;
}

/* How much this count may grow in each heap without the sum exceeding the
 * peak, which is first raised to the current value. */
static uint64_t growth_for(core__allocator *allocator, uint32_t what,
                           uint32_t kind, uint64_t heaps)
{
    uint64_t *peak = &allocator->counts.peaks[what][kind];
    uint64_t sum = current_of(allocator, what, kind);
    uint64_t shares =
        heaps * (kind == CORE_MEMORY_ALL ? 2 : 1) * (parts[what] ? 2 : 1);

    if (sum > *peak)
        *peak = sum;
    return (*peak - sum) / shares;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void distribute_bounds(core__allocator *allocator)
{
    uint64_t headrooms[CORE__COUNTS][2];
    uint64_t heaps = 0;

    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        heaps++;
    for (uint32_t what = 0; heaps && what < CORE__COUNTS; what++) {
        uint64_t all = growth_for(allocator, what, CORE_MEMORY_ALL, heaps);

        for (uint32_t k = 0; k < 2; k++) {
            uint64_t *headroom = &headrooms[what][k];

            *headroom = least(
                all, growth_for(allocator, what, k + CORE_MEMORY_SMALL, heaps));
        }
    }
    /* Parts precede the counts that they are part of, and grow no more than
     * these. */
    for (uint32_t what = 0; heaps && what < CORE__COUNTS; what++)
        for (uint32_t k = 0; parts[what] && k < 2; k++)
            headrooms[parts[what] - 1][k] =
                least(headrooms[parts[what] - 1][k], headrooms[what][k]);
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        for (uint32_t what = 0; what < CORE__COUNTS; what++)
            for (uint32_t k = 0; k < 2; k++) {
                core__count *count = &heap->counts.of[k][what];

                core__count_set(&count->bound, core__count_current(count) +
                                                   headrooms[what][k]);
            }
}

/* The sum of the bounds up to which heaps may count without a check. */
static uint64_t sum_of_bounds(const core__allocator *allocator, uint32_t what,
                              uint32_t kind)
{
    uint64_t sum = 0;

    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        for (uint32_t k = 0; k < 2; k++) {
            const core__count *counts = heap->counts.of[k];

            if (kind != CORE_MEMORY_ALL && kind != k + CORE_MEMORY_SMALL)
                continue;
            sum += core__count_get(&counts[what].bound);
            if (parts[what])
                sum += core__count_get(&counts[parts[what] - 1].bound);
        }
    return sum;
}

static bool is_below_peak(const core__allocator *allocator, uint32_t what,
                          uint32_t k, uint64_t by)
{
    static const uint32_t kinds[] = {CORE_MEMORY_SMALL, CORE_MEMORY_LARGE};

    return sum_of_bounds(allocator, what, kinds[k]) + by <=
               allocator->counts.peaks[what][kinds[k]] &&
           sum_of_bounds(allocator, what, CORE_MEMORY_ALL) + by <=
               allocator->counts.peaks[what][CORE_MEMORY_ALL];
}

/* Raises the bound to the current value, if the other heaps' bounds allow
 * it. */
static bool raise_bound(core__heap *heap, uint32_t what, uint32_t k)
{
    core__count *count = &heap->counts.of[k][what];
    uint64_t now = core__count_current(count);
    uint64_t bound = core__count_get(&count->bound);

    if (now <= bound)
        return true;
    if (!is_below_peak(heap->allocator, what, k, now - bound))
        return false;
    for (uint32_t total = 0; total < CORE__COUNTS; total++)
        if (parts[total] == (int8_t)what + 1 &&
            !is_below_peak(heap->allocator, total, k, now - bound))
            return false;
    core__count_set(&count->bound, now);
    return true;
}

void core__counts_settle(core__heap *heap)
{
    core__allocator *allocator = heap->allocator;
    bool fits = true;

    core__spin_lock(&allocator->counts.lock);
    for (uint32_t what = 0; fits && what < CORE__COUNTS; what++)
        for (uint32_t k = 0; fits && k < 2; k++)
            fits = raise_bound(heap, what, k);
    if (!fits)
        distribute_bounds(allocator);
    core__spin_unlock(&allocator->counts.lock);
}

static uint64_t allocated_in(const core__heap *heap, uint32_t what,
                             uint32_t kind)
{
    uint64_t sum = 0;

    if (parts[what]) /* waiting blocks were allocated before */
        what = (uint32_t)parts[what] - 1;
    for (uint32_t k = 0; k < 2; k++)
        if (kind == CORE_MEMORY_ALL || kind == k + CORE_MEMORY_SMALL)
            sum += core__count_get(&heap->counts.of[k][what].allocated);
    return sum;
}

void core__counts_end(core__heap *heap)
{
    core__device_counts *device = &heap->allocator->counts;

    for (uint32_t what = 0; what < CORE__COUNTS; what++)
        for (uint32_t kind = 0; kind < 3; kind++)
            device->allocated[what][kind] += allocated_in(heap, what, kind);
}

/* -------------------------------------------------------------- public -- */

static void collect(core__allocator *allocator, core_memory_stats *out)
{
    core_memory_stat *stat = out->allocations;

    core__spin_lock(&allocator->counts.lock);
    distribute_bounds(allocator);
    for (uint32_t what = 0; what < CORE__COUNTS; what++)
        for (uint32_t kind = 0; kind < 3; kind++, stat++) {
            stat->current = current_of(allocator, what, kind);
            stat->peak = allocator->counts.peaks[what][kind];
            stat->allocated = allocator->counts.allocated[what][kind];
            for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
                stat->allocated += allocated_in(heap, what, kind);
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
    CORE__CHECK_STRUCT_SIZE(out, core_memory_stats);
    size = out->struct_size < sizeof stats ? out->struct_size : sizeof stats;
    CORE_TRY(core__device_check_process(device));
    if (device->allocator) {
        core__allocator_settle_uses(device->allocator);
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
    CORE_TRY(core__device_check_process(device));
    allocator = device->allocator;
    if (!allocator) {
        core__host_stats_reset_peaks(device);
        return CORE_OK;
    }
    core__spin_lock(&allocator->counts.lock);
    memset(allocator->counts.peaks, 0, sizeof allocator->counts.peaks);
    distribute_bounds(allocator);
    core__spin_unlock(&allocator->counts.lock);
    return CORE_OK;
}
