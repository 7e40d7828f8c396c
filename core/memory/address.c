/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Which addresses are those of a device's allocator. */

#include "memory/heap.h"

/* Expandable segments have address space without memory. */
static bool is_mapped(const core__segment *segment, uint64_t begin,
                      uint64_t end)
{
    if (!segment->expandable)
        return true;
    for (core__block *b = segment->first; b; b = b->after) {
        uint64_t at = b->offset - segment->memory.offset;

        if (b->state == CORE__BLOCK_UNMAPPED && at < end &&
            begin < at + b->size)
            return false;
    }
    return true;
}

static bool segment_contains(const core__segment *segment, uint64_t address,
                             uint64_t size)
{
    uint64_t first =
        (uint64_t)(uintptr_t)segment->memory.handle + segment->memory.offset;
    uint64_t begin = address - first;

    return address >= first && begin < segment->size &&
           size <= segment->size - begin &&
           is_mapped(segment, begin, begin + size);
}

static bool heap_contains(core__heap *heap, uint64_t address, uint64_t size)
{
    bool found = false;

    core__spin_lock(&heap->lock);
    for (core__segment *s = heap->segments; s && !found; s = s->next)
        found = segment_contains(s, address, size);
    core__spin_unlock(&heap->lock);
    return found;
}

bool core_memory_contains(core_device *device, const void *address, size_t size)
{
    core__allocator *allocator = device ? device->allocator : NULL;
    bool found = false;

    if (!allocator || device->forked || !address || size == 0 ||
        !(device->properties.flags & CORE_DEVICE_FLAT))
        return false;
    pthread_mutex_lock(&allocator->lock);
    for (core__heap *heap = allocator->heaps; heap && !found; heap = heap->next)
        found = heap_contains(heap, (uint64_t)(uintptr_t)address, size);
    core__allocator_unlock(allocator);
    return found;
}
