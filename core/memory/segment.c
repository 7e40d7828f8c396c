/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Segments: memory allocated from the device, and its release. */

#include "base/memory.h"
#include "memory/heap.h"

/* ---------------------------------------------------------- allocating -- */

/* The size of the segment to allocate for a block of this size. */
static uint64_t segment_size(const core__allocator *allocator, uint32_t kind,
                             uint64_t size)
{
    const core_device_properties *properties = &allocator->device->properties;
    uint64_t wanted = kind == CORE_MEMORY_SMALL ? CORE__SMALL_SEGMENT
                      : size < CORE__MIDDLE_LIMIT
                          ? CORE__MIDDLE_SEGMENT
                          : core__round_up(size, CORE__LARGE_STEP);

    wanted = core__round_up(wanted, properties->granularity);
    if (properties->largest_allocation &&
        wanted > properties->largest_allocation)
        wanted = core__round_up(size, properties->granularity);
    return wanted;
}

static core__segment *segment_new(core__heap *heap, uint32_t kind,
                                  core_memory memory, uint64_t size)
{
    core__segment *segment = core__small_alloc(sizeof *segment);

    if (!segment)
        return NULL;
    *segment = (core__segment){.heap = heap,
                               .memory = memory,
                               .size = size,
                               .reserved = size,
                               .kind = (uint8_t)kind};
    segment->first = core__block_new(segment, memory.offset, size);
    if (segment->first)
        return segment;
    core__small_free(segment, sizeof *segment);
    return NULL;
}

void *core__heap_stream_handle(const core__heap *heap)
{
    const core_stream *stream = heap->stream;

    if (!stream || heap->capturing || heap->pool ||
        !core__device_has_generation(heap->allocator->device,
                                     stream->queue->generation))
        return NULL;
    return stream->queue->impl;
}

static core_status allocate(core__heap *heap, uint64_t size, core_memory *out)
{
    core_device *device = heap->allocator->device;

    if (heap->allocator->own)
        return device->interfaces.allocator.alloc(
            device->impl, core__heap_stream_handle(heap), size, out);
    return device->memory.alloc(device->impl, size, out);
}

void core__segment_free_memory(const core__allocator *allocator,
                               const core__segment *segment)
{
    core_device *device = allocator->device;

    if (allocator->own)
        device->interfaces.allocator.free(device->impl, segment->last,
                                          segment->memory, segment->size);
    else
        device->memory.free(device->impl, segment->memory, segment->size);
}

/* An error is set also if host memory ran out. */
static core_status allocate_segment(core__heap *heap, uint32_t kind,
                                    uint64_t size, core__segment **out_segment)
{
    core__allocator *allocator = heap->allocator;
    core_device *device = allocator->device;
    core_memory memory = {0};
    core_status status;
    uint32_t errors = core__error_sequence();

    if (size > allocator->limit ||
        atomic_load(&allocator->reserved) > allocator->limit - size)
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "the device's memory limit is exceeded");
    status = allocate(heap, size, &memory);
    if (status != CORE_OK)
        return core__device_check_status(device, status, errors);
    *out_segment = segment_new(heap, kind, memory, size);
    if (*out_segment)
        return CORE_OK;
    core__segment_free_memory(allocator,
                              &(core__segment){.memory = memory, .size = size});
    allocator->host_memory_failed = true;
    return core__error_memory(sizeof **out_segment);
}

void core__segment_attach(core__heap *heap, core__segment *segment)
{
    bool passed;

    segment->next = heap->segments;
    if (segment->next)
        segment->next->previous = segment;
    heap->segments = segment;
    passed =
        core__count_up(&heap->counts, CORE__COUNT_SEGMENTS, segment->kind, 1);
    passed |= core__count_up(&heap->counts, CORE__COUNT_RESERVED_BYTES,
                             segment->kind, segment->reserved);
    atomic_fetch_add(&heap->allocator->reserved, segment->reserved);
    if (passed)
        core__counts_settle(heap);
}

core_status core__segment_allocate(core__heap *heap, uint32_t kind,
                                   uint64_t size, uint64_t requested,
                                   core__block **out_block)
{
    core__allocator *allocator = heap->allocator;

    if (allocator->settings.expandable && allocator->vm_step &&
        allocator->settings.caching)
        return core__expandable_grow(heap, kind, size, requested, out_block);
    return core__segment_allocate_fixed(heap, kind, size, requested, out_block);
}

core_status core__segment_allocate_fixed(core__heap *heap, uint32_t kind,
                                         uint64_t size, uint64_t requested,
                                         core__block **out_block)
{
    core__allocator *allocator = heap->allocator;
    bool direct = !allocator->settings.caching;
    core__segment *segment;
    core_status status;

    *out_block = NULL;
    CORE_TRY(allocate_segment(
        heap, kind,
        direct ? core__round_up(size, allocator->device->properties.granularity)
               : segment_size(allocator, kind, size),
        &segment));
    segment->direct = direct;
    segment->first->direct = direct;
    if (direct)
        atomic_store(&allocator->direct, true);
    core__spin_lock(&heap->lock);
    core__segment_attach(heap, segment);
    core__history_add(heap, CORE__ACTION_SEGMENT_ALLOC, segment->memory,
                      segment->size);
    *out_block = segment->first;
    status = core__block_take(heap, segment->first,
                              direct ? segment->size : size, requested);
    core__spin_unlock(&heap->lock);
    allocator->host_memory_failed = status != CORE_OK;
    return status;
}

/* ----------------------------------------------------------- releasing -- */

void core__segment_detach(core__heap *heap, core__segment *segment)
{
    if (segment->next)
        segment->next->previous = segment->previous;
    if (segment->previous)
        segment->previous->next = segment->next;
    else
        heap->segments = segment->next;
    segment->next = segment->previous = NULL;
    core__count_down(&heap->counts, CORE__COUNT_SEGMENTS, segment->kind, 1);
    core__count_down(&heap->counts, CORE__COUNT_RESERVED_BYTES, segment->kind,
                     segment->reserved);
    core__history_add(heap, CORE__ACTION_SEGMENT_FREE, segment->memory,
                      segment->size);
}

void core__segment_destroy(core__allocator *allocator, core__segment *segment)
{
    core_device *device = allocator->device;
    core__block *next;

    atomic_fetch_sub(&allocator->reserved, segment->reserved);
    for (core__block *b = segment->first; b; b = next) {
        next = b->after;
        if (segment->expandable && b->state != CORE__BLOCK_UNMAPPED)
            device->interfaces.virtual_memory.unmap(
                device->impl, segment->memory,
                b->offset - segment->memory.offset, b->size);
        core__block_free(b);
    }
    if (segment->expandable)
        device->interfaces.virtual_memory.release(device->impl, segment->memory,
                                                  segment->size);
    else
        core__segment_free_memory(allocator, segment);
    core__small_free(segment, sizeof *segment);
}

/* The wait is not the user's: a data error stays to be reported, and failed
 * work is over as well. */
static void wait_queue(core_device *device, core__queue *queue)
{
    if (core__device_has_generation(device, queue->generation))
        device->backend->streams.synchronize(device->impl, queue->impl);
}

void core__heap_wait(core__heap *heap)
{
    core_device *device = heap->allocator->device;

    if (heap->stream) {
        wait_queue(device, heap->stream->queue);
    } else if (heap->ended) {
        core_event *event = heap->ended;

        heap->ended = NULL;
        core__event_wait(device, event);
        core__event_return_later(heap->allocator, event);
    } else if (heap->unmarked && !heap->unmarked->adopted) {
        wait_queue(device, heap->unmarked);
    }
}

bool core__heap_is_pinned(const core__heap *heap)
{
    /* An adopted stream may already have been destroyed by its owner. */
    bool unknown = !heap->stream && heap->unmarked && heap->unmarked->adopted;

    return heap->capturing || (heap->pool && !heap->abandoned) || unknown;
}

static bool is_whole(const core__segment *segment)
{
    return !segment->expandable && segment->first->state == CORE__BLOCK_FREE &&
           !segment->first->after;
}

static bool matches(const core__heap *heap, const core__segment_release *what)
{
    if (what->heap && heap != what->heap)
        return false;
    if (what->ended_only && heap->stream && !heap->abandoned)
        return false;
    return !core__heap_is_pinned(heap);
}

static uint64_t destroy_list(core__allocator *allocator, core__segment *list)
{
    uint64_t bytes = 0;

    while (list) {
        core__segment *next = list->next;

        bytes += list->size;
        core__segment_destroy(allocator, list);
        list = next;
    }
    return bytes;
}

static uint64_t release_heap(core__heap *heap)
{
    uint64_t bytes = core__heap_finish_release(heap, true);
    core__segment *list = NULL;
    core__segment *next;

    core__spin_lock(&heap->lock);
    core__heap_join_deferred(heap);
    for (core__segment *segment = heap->segments; segment; segment = next) {
        next = segment->next;
        if (!is_whole(segment))
            continue;
        core__block_remove(heap, segment->first);
        core__segment_detach(heap, segment);
        segment->next = list;
        list = segment;
    }
    core__spin_unlock(&heap->lock);
    if (list)
        core__heap_wait(heap);
    bytes += destroy_list(heap->allocator, list);
    return bytes + core__expandable_shrink(heap);
}

/* True if `one` is to be released before `than`: it is free for longer, or
 * with at_least it fits better, else is larger. */
static bool is_better(const core__segment *one, const core__segment *than,
                      uint64_t at_least)
{
    if (!than)
        return true;
    if (!at_least)
        return one->first->freed_at < than->first->freed_at;
    if (one->size >= at_least && than->size >= at_least)
        return one->size < than->size;
    return one->size > than->size;
}

/* The next segment to release, removed from its heap. */
static core__segment *pick(core__allocator *allocator,
                           const core__segment_release *what)
{
    core__segment *best = NULL;

    for (core__heap *heap = allocator->heaps; heap; heap = heap->next) {
        if (!matches(heap, what))
            continue;
        core__spin_lock(&heap->lock);
        core__heap_join_deferred(heap);
        for (core__segment *s = heap->segments; s; s = s->next)
            if (is_whole(s) && s->size >= what->larger &&
                is_better(s, best, what->at_least))
                best = s;
        core__spin_unlock(&heap->lock);
    }
    if (!best)
        return NULL;
    core__spin_lock(&best->heap->lock);
    /* it may have been used meanwhile */
    if (is_whole(best)) {
        core__block_remove(best->heap, best->first);
        core__segment_detach(best->heap, best);
        core__spin_unlock(&best->heap->lock);
        return best;
    }
    core__spin_unlock(&best->heap->lock);
    return NULL;
}

uint64_t core__allocator_release(core__allocator *allocator,
                                 const core__segment_release *what)
{
    uint64_t bytes = 0;

    if (!what->enough) {
        for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
            if (matches(heap, what))
                bytes += what->releasing_only
                             ? core__heap_finish_release(heap, true)
                             : release_heap(heap);
        return bytes;
    }
    while (bytes < what->enough) {
        core__segment *segment = pick(allocator, what);

        if (!segment)
            break;
        core__heap_wait(segment->heap);
        bytes += segment->size;
        core__segment_destroy(allocator, segment);
    }
    return bytes;
}
