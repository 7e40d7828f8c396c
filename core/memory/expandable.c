/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Expandable segments: an address range as large as the device's memory, of
 * which only the beginning is mapped at first, and more when needed.  Free
 * memory at the end and newly mapped memory are adjacent, so requests that
 * grow from step to step cause no fragmentation.  Unmapped address space is a
 * separate block in the chain, UNMAPPED.
 *
 * The allocator's lock is held here: only its holder maps and unmaps. */

#include "base/memory.h"
#include "memory/heap.h"

static core_status map(core__allocator *allocator, core__segment *segment,
                       uint64_t offset, uint64_t size)
{
    core_device *device = allocator->device;
    uint32_t errors = core__error_sequence();

    if (size > allocator->limit ||
        atomic_load(&allocator->reserved) > allocator->limit - size)
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "the device's memory limit is exceeded");
    return core__device_check_status(device,
                                     device->interfaces.virtual_memory.map(
                                         device->impl, segment->memory,
                                         offset - segment->memory.offset, size),
                                     errors);
}

static core_status reserve(core__heap *heap, uint32_t kind, uint64_t size,
                           core__segment **out_segment)
{
    core__allocator *allocator = heap->allocator;
    core_device *device = allocator->device;
    uint64_t range = allocator->total + allocator->total / 8;
    uint32_t errors = core__error_sequence();
    core__segment *segment;
    core_memory memory;

    range =
        core__round_up(range > 2 * size ? range : 2 * size, allocator->vm_step);
    CORE_TRY(core__device_check_status(
        device,
        device->interfaces.virtual_memory.reserve(device->impl, range, &memory),
        errors));
    segment = core__small_alloc(sizeof *segment);
    if (segment) {
        *segment = (core__segment){.heap = heap,
                                   .memory = memory,
                                   .size = range,
                                   .kind = (uint8_t)kind,
                                   .expandable = true};
        segment->first = core__block_new(segment, memory.offset, range);
    }
    if (!segment || !segment->first) {
        if (segment)
            core__small_free(segment, sizeof *segment);
        device->interfaces.virtual_memory.release(device->impl, memory, range);
        allocator->host_memory_failed = true;
        return core__error_memory(sizeof *segment);
    }
    segment->first->state = CORE__BLOCK_UNMAPPED;
    core__spin_lock(&heap->lock);
    core__segment_attach(heap, segment);
    core__spin_unlock(&heap->lock);
    *out_segment = segment;
    return CORE_OK;
}

/* The first place where adjacent free and unmapped blocks are large enough:
 * returns the unmapped block.  The free one before it, if any, is removed from
 * the bins and marked AWAITING, so that it is not allocated.  (Other blocks
 * may be AWAITING because streams use them.) */
static core__block *find_place(core__heap *heap, uint32_t kind, uint64_t size,
                               core__block **out_before)
{
    for (core__segment *segment = heap->segments; segment;
         segment = segment->next) {
        if (!segment->expandable || segment->kind != kind)
            continue;
        for (core__block *b = segment->first; b; b = b->after) {
            core__block *free_one = b->before;

            if (b->state != CORE__BLOCK_UNMAPPED)
                continue;
            if (free_one && free_one->state != CORE__BLOCK_FREE)
                free_one = NULL;
            if (b->size + (free_one ? free_one->size : 0) < size)
                continue;
            if (free_one) {
                core__block_remove(heap, free_one);
                free_one->state = CORE__BLOCK_AWAITING;
            }
            *out_before = free_one;
            return b;
        }
    }
    return NULL;
}

/* The front of `place` is mapped now: joins it with the free block before it,
 * and takes the result. */
static core_status take_place(core__heap *heap, core__block *place,
                              core__block *before, uint64_t size,
                              uint64_t requested, core__block **out_block)
{
    core__block *block = place;

    place->state = CORE__BLOCK_FREE;
    if (before) {
        core__block_join(before);
        block = before;
    }
    if (block->after && block->after->state == CORE__BLOCK_FREE) {
        core__block_remove(heap, block->after);
        core__block_join(block);
    }
    *out_block = block;
    return core__block_take(heap, block, size, requested);
}

static void count_mapped(core__heap *heap, core__block *block, uint64_t size)
{
    block->segment->reserved += size;
    atomic_fetch_add(&heap->allocator->reserved, size);
    if (core__count_up(&heap->counts, CORE__COUNT_RESERVED_BYTES, block->kind,
                       size))
        core__counts_settle(heap);
    core__history_add(heap, CORE__ACTION_SEGMENT_MAP,
                      (core_memory){block->handle, block->offset}, size);
}

/* Maps memory for `size` more bytes of a place: whole steps, or, where there
 * is no memory for those, whole granules.  *out_mapped: how much. */
static core_status map_steps(core__allocator *allocator,
                             const core__block *place, uint64_t step,
                             uint64_t size, uint64_t *out_mapped)
{
    uint64_t need = core__round_up(size, step);
    core_status status;

    if (need > place->size)
        need = place->size;
    status = map(allocator, place->segment, place->offset, need);
    if (status == CORE_ERROR_OUT_OF_MEMORY) {
        need = core__round_up(size, allocator->vm_step);
        status = map(allocator, place->segment, place->offset, need);
    }
    *out_mapped = need;
    return status;
}

/* Cuts what is not mapped off a place. */
static core_status cut_unmapped(core__allocator *allocator, core__block *place,
                                uint64_t mapped)
{
    core__block *rest;

    if (mapped >= place->size)
        return CORE_OK;
    rest = core__block_split(place, mapped);
    allocator->host_memory_failed = !rest;
    if (!rest)
        return core__error_memory(sizeof *rest);
    rest->state = CORE__BLOCK_UNMAPPED;
    return CORE_OK;
}

core_status core__expandable_grow(core__heap *heap, uint32_t kind,
                                  uint64_t size, uint64_t requested,
                                  core__block **out_block)
{
    core__allocator *allocator = heap->allocator;
    uint64_t step = core__round_up(
        kind == CORE_MEMORY_SMALL ? CORE__SMALL_SEGMENT : CORE__MIDDLE_SEGMENT,
        allocator->vm_step);
    core__block *before = NULL;
    core__block *place;
    core__segment *segment = NULL;
    core_status status;
    uint64_t need = 0;
    bool mapped;

    *out_block = NULL;
    core__spin_lock(&heap->lock);
    place = find_place(heap, kind, size, &before);
    core__spin_unlock(&heap->lock);
    if (!place) {
        status = reserve(heap, kind, size, &segment);
        /* Address space has run out, which says nothing about memory. */
        if (status == CORE_ERROR_OUT_OF_MEMORY &&
            !allocator->host_memory_failed)
            return core__segment_allocate_fixed(heap, kind, size, requested,
                                                out_block);
        if (status != CORE_OK)
            return status;
        place = segment->first;
    }
    status = map_steps(allocator, place, step,
                       size - (before ? before->size : 0), &need);
    mapped = status == CORE_OK;
    core__spin_lock(&heap->lock);
    if (status == CORE_OK)
        status = cut_unmapped(allocator, place, need);
    if (status == CORE_OK) {
        count_mapped(heap, place, need);
        mapped = false;
        status = take_place(heap, place, before, size, requested, out_block);
        allocator->host_memory_failed = status != CORE_OK;
    } else if (before) {
        core__block_insert(heap, before);
    }
    core__spin_unlock(&heap->lock);
    if (mapped) /* mapped but not used */
        allocator->device->interfaces.virtual_memory.unmap(
            allocator->device->impl, place->segment->memory,
            place->offset - place->segment->memory.offset, need);
    return status;
}

/* ----------------------------------------------------------- releasing -- */

/* Cuts the part of a free block that spans whole steps out of it and the bins;
 * NULL: there is none. */
static core__block *cut_steps(core__heap *heap, core__block *block,
                              uint64_t step)
{
    uint64_t base = block->segment->memory.offset;
    uint64_t begin = core__round_up(block->offset - base, step) + base;
    uint64_t end = (block->offset + block->size - base) / step * step + base;
    core__block *middle = block;
    core__block *rest = NULL;

    if (begin >= end)
        return NULL;
    core__block_remove(heap, block);
    if (begin > block->offset) {
        middle = core__block_split(block, begin - block->offset);
        if (!middle) {
            core__block_insert(heap, block);
            return NULL;
        }
    }
    middle->state = CORE__BLOCK_AWAITING;
    if (end < middle->offset + middle->size) {
        rest = core__block_split(middle, end - middle->offset);
        if (!rest) {
            if (middle != block) {
                core__block_join(block);
                middle = block;
            }
            core__block_insert(heap, middle);
            return NULL;
        }
        core__block_insert(heap, rest);
    }
    if (middle != block)
        core__block_insert(heap, block);
    return middle;
}

static bool is_unmapped(const core__block *block)
{
    return block && block->state == CORE__BLOCK_UNMAPPED;
}

/* Joins the block with the unmapped blocks around it. */
static void join_unmapped(core__heap *heap, core__block *block)
{
    core__segment *segment = block->segment;

    segment->reserved -= block->size;
    atomic_fetch_sub(&heap->allocator->reserved, block->size);
    core__count_down(&heap->counts, CORE__COUNT_RESERVED_BYTES, block->kind,
                     block->size);
    core__history_add(heap, CORE__ACTION_SEGMENT_UNMAP,
                      (core_memory){block->handle, block->offset}, block->size);
    block->state = CORE__BLOCK_UNMAPPED;
    if (is_unmapped(block->after))
        core__block_join(block);
    if (is_unmapped(block->before))
        core__block_join(block->before);
}

/* Releases address ranges without any mapped memory. */
static void release_ranges(core__heap *heap)
{
    core__segment *list = NULL;
    core__segment *next;

    core__spin_lock(&heap->lock);
    for (core__segment *segment = heap->segments; segment; segment = next) {
        next = segment->next;
        if (!segment->expandable || !is_unmapped(segment->first) ||
            segment->first->after)
            continue;
        core__segment_detach(heap, segment);
        segment->next = list;
        list = segment;
    }
    core__spin_unlock(&heap->lock);
    while (list) {
        next = list->next;
        core__segment_destroy(heap->allocator, list);
        list = next;
    }
}

uint64_t core__expandable_shrink(core__heap *heap)
{
    core__allocator *allocator = heap->allocator;
    core_device *device = allocator->device;
    core__block *list = NULL;
    uint64_t bytes = 0;

    core__spin_lock(&heap->lock);
    core__heap_join_deferred(heap);
    for (core__segment *s = heap->segments; s; s = s->next)
        for (core__block *b = s->expandable ? s->first : NULL; b;
             b = b->after) {
            core__block *middle = NULL;

            if (b->state == CORE__BLOCK_FREE)
                middle = cut_steps(heap, b, allocator->vm_step);
            if (middle) {
                middle->newer = list;
                list = middle;
                b = middle;
            }
        }
    core__spin_unlock(&heap->lock);
    if (list)
        core__heap_wait(heap);
    while (list) {
        core__block *next = list->newer;
        core__segment *segment = list->segment;

        device->interfaces.virtual_memory.unmap(
            device->impl, segment->memory,
            list->offset - segment->memory.offset, list->size);
        bytes += list->size;
        core__spin_lock(&heap->lock);
        join_unmapped(heap, list);
        core__spin_unlock(&heap->lock);
        list = next;
    }
    release_ranges(heap);
    return bytes;
}
