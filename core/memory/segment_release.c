/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Deferred release of segments: memory freed without caching, or in a pool
 * without references, is returned to the device without waiting.
 *
 * The freeing thread may run a host callback for which the stream that used
 * the memory waits.  So an event is recorded after the work submitted to that
 * stream, and the segment stays in its heap, unavailable, until a later check
 * finds the event done.  If no event can be recorded, the segment becomes free
 * again and the next check tries once more.
 *
 * The allocator's lock is held here: only its holder releases segments. */

#include "base/memory.h"
#include "memory/heap.h"

/* Work is over only if the plugin reports that it is done or has failed: a
 * poisoned stream drops its work.  In a callback the plugin may refuse the
 * query. */
static bool is_past(core_status status)
{
    return status == CORE_OK || status == CORE_ERROR_STREAM;
}

static bool queue_is_idle(core__queue *queue)
{
    core_device *device = queue->device;
    core_status status;

    if (!core__device_has_generation(device, queue->generation) ||
        atomic_load(&queue->failed) != CORE_OK)
        return true;
    pthread_mutex_lock(&queue->lock);
    status = device->backend->streams.query(device->impl, queue->impl);
    pthread_mutex_unlock(&queue->lock);
    return is_past(status);
}

static bool event_is_passed(core_device *device, core_event *event)
{
    core_status status;

    if (!core__device_has_generation(device, event->generation))
        return true;
    pthread_mutex_lock(&event->lock);
    status = device->backend->events.query(device->impl, event->impl);
    pthread_mutex_unlock(&event->lock);
    return is_past(status);
}

bool core__heap_is_idle(core__heap *heap)
{
    if (!core__allocator_can_record_events(heap->allocator))
        return false;
    if (heap->stream)
        return queue_is_idle(heap->stream->queue);
    if (heap->unmarked)
        return !heap->unmarked->adopted && queue_is_idle(heap->unmarked);
    return !heap->ended ||
           event_is_passed(heap->allocator->device, heap->ended);
}

/* ------------------------------------------------------------ choosing -- */

static bool is_releasing(const core__segment *segment, bool direct_only)
{
    const core__block *block = segment->first;

    if (direct_only && !segment->direct)
        return false;
    while (block && (block->state == CORE__BLOCK_FREE ||
                     block->state == CORE__BLOCK_UNMAPPED))
        block = block->after;
    return !block && (segment->expandable || !segment->first->after);
}

/* Removes the segment's block from the bins, so that it is not allocated. */
static void hold(core__heap *heap, core__segment *segment)
{
    for (core__block *b = segment->first; b; b = b->after)
        if (b->state == CORE__BLOCK_FREE) {
            core__block_remove(heap, b);
            b->state = CORE__BLOCK_AWAITING;
        }
}

/* Undoes hold().  Two free blocks are never adjacent. */
static void put_back(core__heap *heap, core__segment *list)
{
    core__spin_lock(&heap->lock);
    for (; list; list = list->next_releasing)
        for (core__block *b = list->first; b; b = b->after)
            if (b->state == CORE__BLOCK_AWAITING)
                core__block_insert(heap, b);
    core__spin_unlock(&heap->lock);
}

static core__segment *choose(core__heap *heap, bool direct_only,
                             core__segment **out_last)
{
    core__segment *list = NULL;

    core__spin_lock(&heap->lock);
    core__heap_join_deferred(heap);
    for (core__segment *s = heap->segments; s; s = s->next) {
        if (!is_releasing(s, direct_only) || s->held)
            continue;
        hold(heap, s);
        if (!list)
            *out_last = s;
        s->next_releasing = list;
        list = s;
    }
    core__spin_unlock(&heap->lock);
    return list;
}

/* ----------------------------------------------------------- releasing -- */

static void note_unmapped(core__heap *heap, const core__segment *segment)
{
    for (core__block *b = segment->first; b; b = b->after)
        if (b->state != CORE__BLOCK_UNMAPPED)
            core__history_add(heap, CORE__ACTION_SEGMENT_UNMAP,
                              (core_memory){b->handle, b->offset}, b->size);
}

/* Returns the segments up to `end` to the device; returns their size in
 * bytes. */
static uint64_t release_list(core__heap *heap, core__segment *list,
                             const core__segment *end)
{
    uint64_t bytes = 0;

    while (list != end) {
        core__segment *next = list->next_releasing;

        core__spin_lock(&heap->lock);
        if (list->expandable)
            note_unmapped(heap, list);
        core__segment_detach(heap, list);
        core__spin_unlock(&heap->lock);
        bytes += list->reserved;
        core__event_return_later(heap->allocator, list->last_use);
        core__segment_destroy(heap->allocator, list);
        list = next;
    }
    return bytes;
}

uint64_t core__heap_finish_release(core__heap *heap, bool wait)
{
    core_device *device = heap->allocator->device;
    uint64_t bytes = 0;

    while (heap->releasing) {
        core__segment *first = heap->releasing;
        core__segment *marked = first;

        while (!marked->last_use)
            marked = marked->next_releasing;
        if (wait)
            core__event_wait(device, marked->last_use);
        else if (!event_is_passed(device, marked->last_use))
            break;
        heap->releasing = marked->next_releasing;
        if (!heap->releasing)
            heap->releasing_end = &heap->releasing;
        bytes += release_list(heap, first, heap->releasing);
    }
    return bytes;
}

/* An event after all work submitted to the stream; NULL: none can be
 * recorded. */
static core_event *mark(core__heap *heap)
{
    core_event *event;

    if (!heap->stream ||
        core__event_take(heap->allocator->device, &event) != CORE_OK)
        return NULL;
    if (core_event_record(event, heap->stream) == CORE_OK && !event->capture_id)
        return event;
    core__event_return_later(heap->allocator, event);
    return NULL;
}

void core__heap_begin_release(core__heap *heap, bool direct_only)
{
    core__segment *last = NULL;
    core__segment *list;
    void *handle;

    /* During a capture the plugin's streams and events are not called. */
    if (!core__allocator_can_record_events(heap->allocator))
        return;
    core__heap_finish_release(heap, false);
    if (core__heap_is_pinned(heap))
        return;
    list = choose(heap, direct_only, &last);
    if (!list)
        return;
    /* A device with core.allocator orders memory by streams, as the core
     * does. */
    handle = heap->allocator->own ? core__heap_stream_handle(heap) : NULL;
    for (core__segment *s = list; handle && s; s = s->next_releasing)
        s->last = handle;
    if (handle || core__heap_is_idle(heap)) {
        release_list(heap, list, NULL);
        return;
    }
    last->last_use = mark(heap);
    if (!last->last_use) {
        put_back(heap, list);
        return;
    }
    for (core__segment *s = list; s; s = s->next_releasing)
        s->held = true;
    *heap->releasing_end = list;
    heap->releasing_end = &last->next_releasing;
}
