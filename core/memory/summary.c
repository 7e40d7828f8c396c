/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory statistics as text: the summary, and the out-of-memory error. */

#include "base/memory.h"
#include "base/text.h"
#include "memory/heap.h"

#include <stdio.h>
#include <string.h>

const char *core__bytes_format(uint64_t bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    core__format(text, 24, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return text;
}

/* ------------------------------------------------------- out of memory -- */

typedef struct heap_state {
    uint64_t allocated; /* owned by storages */
    uint64_t awaiting;
    uint64_t free;
    uint64_t largest; /* largest free block */
} heap_state;

static void add_heap_state(core__heap *heap, heap_state *state)
{
    core__spin_lock(&heap->lock);
    core__heap_join_deferred(heap);
    for (core__segment *s = heap->segments; s; s = s->next)
        for (core__block *b = s->first; b; b = b->after) {
            if (b->state == CORE__BLOCK_ACTIVE)
                state->allocated += b->size;
            else if (b->state == CORE__BLOCK_AWAITING)
                state->awaiting += b->size;
            else if (b->state == CORE__BLOCK_FREE)
                state->free += b->size;
            if (b->state == CORE__BLOCK_FREE && b->size > state->largest)
                state->largest = b->size;
        }
    core__spin_unlock(&heap->lock);
}

core_status core__out_of_memory_error(core__heap *heap, uint64_t requested,
                                      uint64_t size)
{
    core__allocator *allocator = heap->allocator;
    core_device *device = allocator->device;
    uint64_t reserved = atomic_load(&allocator->reserved);
    uint64_t device_free = 0, device_total = allocator->total;
    heap_state state = {0};
    char limit[64] = "", text[256] = "";
    char t[8][24];

    /* What the plugin says of the last attempt. */
    if (allocator->limit == UINT64_MAX)
        snprintf(text, sizeof text, "%s", core_error_message());
    for (core__heap *h = allocator->heaps; h; h = h->next)
        add_heap_state(h, &state);
    if (device->memory.info)
        device->memory.info(device->impl, &device_free, &device_total);
    if (allocator->limit != UINT64_MAX)
        snprintf(limit, sizeof limit, " of at most %s",
                 core__bytes_format(allocator->limit, t[0]));
    core__error(
        CORE_ERROR_OUT_OF_MEMORY,
        "%s is out of memory: %s requested (%llu bytes with rounding). Tensors "
        "use %s, and %s more is waiting for other streams; %s is reserved%s, "
        "and %s of %s is free on the device. Lost to fragmentation: %s, %.1f "
        "%% of the reserved memory, in pieces of at most %s",
        device->name, core__bytes_format(requested, t[0]),
        (unsigned long long)size, core__bytes_format(state.allocated, t[1]),
        core__bytes_format(state.awaiting, t[2]),
        core__bytes_format(reserved, t[3]), limit,
        core__bytes_format(device_free, t[4]),
        core__bytes_format(device_total, t[5]),
        core__bytes_format(state.free, t[6]),
        reserved ? 100.0 * (double)state.free / (double)reserved : 0.0,
        core__bytes_format(state.largest, t[7]));
    if (*text)
        core__error_suffix(". %s", text);
    return CORE_ERROR_OUT_OF_MEMORY;
}

/* ------------------------------------------------------------- summary -- */

typedef struct page {
    char *data;
    size_t size;
    size_t at;
} page;

static void add_line(page *p, const char *name, const core_memory_stat *stat,
                     bool bytes)
{
    uint64_t values[4] = {stat->current, stat->peak, stat->allocated,
                          stat->freed};
    size_t left = p->size - p->at;

    p->at += (size_t)snprintf(p->data + p->at, left, "  %-26s", name);
    for (int i = 0; i < 4; i++) {
        char text[24];

        if (!bytes)
            snprintf(text, sizeof text, "%llu", (unsigned long long)values[i]);
        p->at += (size_t)snprintf(p->data + p->at, p->size - p->at, " %13s",
                                  bytes ? core__bytes_format(values[i], text)
                                        : text);
    }
    p->at += (size_t)snprintf(p->data + p->at, p->size - p->at, "\n");
}

static void add_all(page *p, const core_memory_stats *stats)
{
    static const char *const names[] = {
        "allocations",    "segments",        "active blocks",
        "inactive split", "requested bytes", "allocated bytes",
        "reserved bytes", "active bytes",    "inactive split bytes",
    };
    const core_memory_stat *stat = stats->allocations;

    for (uint32_t what = 0; what < CORE__COUNTS; what++)
        for (uint32_t kind = 0; kind < 3; kind++, stat++) {
            char name[40];

            snprintf(name, sizeof name, "%s%s",
                     kind == CORE_MEMORY_ALL ? names[what] : "",
                     kind == CORE_MEMORY_SMALL   ? "  of small segments"
                     : kind == CORE_MEMORY_LARGE ? "  of large segments"
                                                 : "");
            add_line(p, name, stat, what >= CORE__COUNT_REQUESTED_BYTES);
        }
}

core_status core_memory_summary(core_device *device, char **out_text)
{
    core_memory_stats stats = {.struct_size = sizeof stats};
    page p = {.size = 4096};

    CORE__NOT_NULL(out_text);
    *out_text = NULL;
    CORE__NOT_NULL(device);
    CORE_TRY(core_memory_get_stats(device, &stats));
    p.data = core__alloc(p.size);
    if (!p.data)
        return core__error_memory(p.size);
    p.at = (size_t)core__format(
        p.data, p.size, "memory of %s\n  %-26s %13s %13s %13s %13s\n",
        device->name, "", "current", "peak", "allocated", "freed");
    add_all(&p, &stats);
    snprintf(p.data + p.at, p.size - p.at,
             "  retries %llu, out of memory %llu, events %llu\n",
             (unsigned long long)stats.retries,
             (unsigned long long)stats.out_of_memories,
             (unsigned long long)stats.events);
    *out_text = p.data;
    return CORE_OK;
}
