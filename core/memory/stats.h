/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stats.h: counting without a shared counter.
 *
 * Each heap counts for itself, small and large blocks apart, and what follows
 * from other counts not at all.  What is current on the device is the sum; its
 * peak is kept so: every heap has a bound up to which it may count without
 * telling, and the bounds together are never above the peak that is known.  A
 * heap that passes its bound takes the lock and has all heaps counted; that is
 * a new peak, or the room below the peak is shared out anew. */

#ifndef CORE_MEMORY_STATS_H
#define CORE_MEMORY_STATS_H

#include "memory/spin.h"

#include <libcore/memory.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef struct core__heap core__heap;
typedef struct core__allocator core__allocator;
typedef struct core__segment core__segment;

/* The order of core_memory_stats, but that the two AWAITING are there what is
 * active: that is what storages have, and these. */
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

/* Written with the heap's lock held, and the bound with that of the
 * statistics; read at any time. */
typedef struct core__count {
    _Atomic uint64_t allocated; /* ever */
    _Atomic uint64_t freed;
    _Atomic uint64_t bound;
} core__count;

/* By kind less CORE_MEMORY_SMALL. */
typedef struct core__counts {
    core__count of[2][CORE__COUNTS];
} core__counts;

typedef struct core__device_counts {
    core__spin lock;
    uint64_t peaks[CORE__COUNTS][3];
    uint64_t allocated[CORE__COUNTS][3]; /* by heaps that are no more */
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

/* True: the bound was passed, core__counts_settle is due. */
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

/* Blocks that storages have. */
static inline uint64_t core__counts_held(const core__counts *counts)
{
    return core__count_current(&counts->of[0][CORE__COUNT_ALLOCATIONS]) +
           core__count_current(&counts->of[1][CORE__COUNT_ALLOCATIONS]);
}

/* The heap's lock is held. */
void core__counts_settle(core__heap *heap);
/* The heap goes, with nothing in it. */
void core__counts_end(core__heap *heap);

#endif
