/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory.h: for the tests of the caching allocator: blocks of the simulated
 * device without tensors around them, and the device's controls. */

#ifndef TESTS_SUPPORT_MEMORY_H
#define TESTS_SUPPORT_MEMORY_H

#include "sim_device.h"

#include "base/memory.h"
#include "memory/heap.h"
#include "memory/host_memory.h"
#include "memory/memory.h"

#include <libcore/memory.h>
#include <libcore/settings.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

typedef struct piece {
    core_memory memory;
    uint64_t capacity;
    core__block *block;
} piece;

/* Opens the device with settings of the allocator. */
static inline void open_sim(const char *settings)
{
    OK(core_memory_configure(NULL, settings));
    sim_find("sim");
}

static inline core_status try_take(uint64_t size, piece *out)
{
    return core__memory_alloc(sim, size, &out->memory, &out->capacity,
                              &out->block);
}

static inline piece take(uint64_t size)
{
    piece p;

    OK(try_take(size, &p));
    return p;
}

static inline piece take_on(core_stream *stream, uint64_t size)
{
    core_stream_guard guard;
    piece p;

    OK(core_stream_guard_enter(stream, &guard));
    p = take(size);
    core_stream_guard_leave(&guard);
    return p;
}

static inline void give(piece p)
{
    core__memory_free(sim, p.memory, p.capacity, p.block);
}

static inline bool same(piece a, piece b)
{
    return a.memory.handle == b.memory.handle &&
           a.memory.offset == b.memory.offset;
}

static inline core_stream *stream(void)
{
    core_stream *made;

    OK(core_stream_create(sim, &made));
    return made;
}

static inline core_memory_stats stats(void)
{
    core_memory_stats s = {.struct_size = sizeof s};

    OK(core_memory_get_stats(sim, &s));
    return s;
}

static inline sim_counters counters(void)
{
    sim_counters c = {.struct_size = sizeof c};

    OK(control->counters(0, &c));
    return c;
}

/* No memory is in use, awaits its streams, or is cached. */
static inline void all_is_back(void)
{
    core_memory_stats s;

    OK(core_memory_empty_cache(sim));
    s = stats();
    for (int kind = 0; kind < 3; kind++) {
        ck_assert_uint_eq(s.allocations[kind].current, 0);
        ck_assert_uint_eq(s.requested_bytes[kind].current, 0);
        ck_assert_uint_eq(s.allocated_bytes[kind].current, 0);
        ck_assert_uint_eq(s.active[kind].current, 0);
        ck_assert_uint_eq(s.active_bytes[kind].current, 0);
        ck_assert_uint_eq(s.segments[kind].current, 0);
        ck_assert_uint_eq(s.reserved_bytes[kind].current, 0);
        ck_assert_uint_eq(s.inactive_split[kind].current, 0);
        ck_assert_uint_eq(s.inactive_split_bytes[kind].current, 0);
    }
    ck_assert_uint_eq(counters().bytes, 0);
}

#endif
