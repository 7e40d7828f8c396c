/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stats.h: counting without a shared counter.
 *
 * Each heap counts for itself.  What is current on the device is the sum; its
 * peak is kept so: every heap has a bound up to which it may count without
 * telling, and the bounds together are never above the peak that is known.  A
 * heap that passes its bound takes the lock, has all heaps counted, and either
 * that is a new peak, or the room below the peak is shared out anew. */

#ifndef CORE_MEMORY_STATS_H
#define CORE_MEMORY_STATS_H

#include "memory/spin.h"

#include <libcore/memory.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef struct core__heap core__heap;
typedef struct core__allocator core__allocator;
typedef struct core__segment core__segment;

/* The order of core_memory_stats. */
enum {
    CORE__COUNT_ALLOCATIONS,
    CORE__COUNT_SEGMENTS,
    CORE__COUNT_ACTIVE,
    CORE__COUNT_INACTIVE_SPLIT,
    CORE__COUNT_REQUESTED_BYTES,
    CORE__COUNT_ALLOCATED_BYTES,
    CORE__COUNT_RESERVED_BYTES,
    CORE__COUNT_ACTIVE_BYTES,
    CORE__COUNT_INACTIVE_SPLIT_BYTES,
    CORE__COUNTS
};

/* Written with the heap's lock held, and the bound with that of the
 * statistics; read at any time. */
typedef struct core__count {
    _Atomic uint64_t current;
    _Atomic uint64_t bound;
    _Atomic uint64_t allocated;
} core__count;

typedef struct core__counts {
    core__count of[CORE__COUNTS][3];
} core__counts;

typedef struct core__device_counts {
    core__spin lock;
    struct {
        uint64_t peak;
        uint64_t bounds;    /* of all heaps together */
        uint64_t allocated; /* by heaps that are no more */
    } of[CORE__COUNTS][3];
} core__device_counts;

static inline uint64_t core__count_get(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static inline void core__count_set(_Atomic uint64_t *value, uint64_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

/* True: a bound was passed, core__counts_settle is due. */
static inline bool core__count_up_one(core__count *count, uint64_t by)
{
    uint64_t now = core__count_get(&count->current) + by;

    core__count_set(&count->current, now);
    core__count_set(&count->allocated, core__count_get(&count->allocated) + by);
    return now > core__count_get(&count->bound);
}

static inline bool core__count_up(core__counts *counts, uint32_t what,
                                  uint32_t kind, uint64_t by)
{
    bool passed = core__count_up_one(&counts->of[what][CORE_MEMORY_ALL], by);

    return passed | core__count_up_one(&counts->of[what][kind], by);
}

static inline void core__count_down(core__counts *counts, uint32_t what,
                                    uint32_t kind, uint64_t by)
{
    core__count *all = &counts->of[what][CORE_MEMORY_ALL];
    core__count *one = &counts->of[what][kind];

    core__count_set(&all->current, core__count_get(&all->current) - by);
    core__count_set(&one->current, core__count_get(&one->current) - by);
}

/* The heap's lock is held. */
void core__counts_settle(core__heap *heap);
/* The heap goes, with nothing in it. */
void core__counts_end(core__heap *heap);

#endif
