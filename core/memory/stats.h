/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stats.h: counting without a shared counter.
 *
 * Each heap counts separately, small and large blocks apart; derived values
 * are not counted.  The current value of a device is the sum over its heaps.
 * For the peak, every heap has a bound up to which it may count without a
 * check, and the sum of the bounds never exceeds the known peak.  A heap that
 * passes its bound takes the lock and sums up all heaps: either this is a new
 * peak, or the remainder below the peak is redistributed. */

#ifndef CORE_MEMORY_STATS_H
#define CORE_MEMORY_STATS_H

#include "memory/spin.h"

#include <libcore/memory.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef struct core__heap core__heap;
typedef struct core__allocator core__allocator;
typedef struct core__segment core__segment;

/* The order of core_memory_stats, except that the two AWAITING counts are
 * there the active ones: those of storages plus these. */
enum {
    CORE__COUNT_ALLOCATIONS,
    CORE__COUNT_SEGMENTS,
    CORE__COUNT_AWAITING,
    CORE__COUNT_INACTIVE_SPLIT,
    CORE__COUNT_REQUESTED_BYTES,
    CORE__COUNT_ALLOCATED_BYTES,
    CORE__COUNT_RESERVED_BYTES,
    CORE__COUNT_AWAITING_BYTES,
    CORE__COUNT_INACTIVE_SPLIT_BYTES,
    CORE__COUNTS
};

/* Written with the heap's lock held, the bound also with that of the
 * statistics; read at any time. */
typedef struct core__count {
    _Atomic uint64_t allocated; /* in total */
    _Atomic uint64_t freed;
    _Atomic uint64_t bound;
} core__count;

/* Indexed by kind minus CORE_MEMORY_SMALL. */
typedef struct core__counts {
    core__count of[2][CORE__COUNTS];
} core__counts;

typedef struct core__device_counts {
    core__spin lock;
    uint64_t peaks[CORE__COUNTS][3];
    uint64_t allocated[CORE__COUNTS][3]; /* by heaps that have ended */
} core__device_counts;

static inline uint64_t core__count_get(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static inline void core__count_set(_Atomic uint64_t *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

static inline uint64_t core__count_current(const core__count *count)
{
    return core__count_get(&count->allocated) - core__count_get(&count->freed);
}

/* True: the bound was passed, and core__counts_settle must be called. */
static inline bool core__count_up(core__counts *counts, uint32_t what,
                                  uint32_t kind, uint64_t by)
{
    core__count *count = &counts->of[kind - CORE_MEMORY_SMALL][what];
    uint64_t now = core__count_get(&count->allocated) + by;

    core__count_set(&count->allocated, now);
    return now - core__count_get(&count->freed) >
           core__count_get(&count->bound);
}

static inline void core__count_down(core__counts *counts, uint32_t what,
                                    uint32_t kind, uint64_t by)
{
    core__count *count = &counts->of[kind - CORE_MEMORY_SMALL][what];

    core__count_set(&count->freed, core__count_get(&count->freed) + by);
}

/* Blocks owned by storages. */
static inline uint64_t core__counts_held(const core__counts *counts)
{
    return core__count_current(&counts->of[0][CORE__COUNT_ALLOCATIONS]) +
           core__count_current(&counts->of[1][CORE__COUNT_ALLOCATIONS]);
}

/* The heap's lock is held. */
void core__counts_settle(core__heap *heap);
/* For an empty heap that is destroyed. */
void core__counts_end(core__heap *heap);

#endif
