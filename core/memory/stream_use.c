/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Blocks that are used by streams other than their own.
 *
 * core_tensor_record_stream stores the stream in the block.  When the block is
 * freed, an event is recorded on each of these streams, and the block waits,
 * in order of freeing, until all its events are done.  While anything on the
 * device is being captured, or if no event can be had, the recording is
 * deferred, which only makes the block wait for more work.
 *
 * A plugin names streams by its handles, also some that the core does not know
 * (core_host.call_record_stream).  How long such a handle is valid is unknown,
 * so an event is recorded at once and kept in the block. */

#include "base/memory.h"
#include "memory/heap.h"
#include "memory/host_memory.h"
#include "memory/memory.h"

/* ---------------------------------------------------------------- uses -- */

core_status core__stream_uses_add(core__stream_use **uses, core_stream *stream)
{
    core__stream_use *use;

    for (use = *uses; use; use = use->next)
        if (use->stream == stream)
            return CORE_OK;
    use = core__small_alloc(sizeof *use);
    if (!use)
        return core__error_memory(sizeof *use);
    use->stream = core_stream_retain(stream);
    use->event = NULL;
    use->word = NULL;
    use->queue = NULL;
    use->next = *uses;
    *uses = use;
    return CORE_OK;
}

void core__stream_uses_free(core__stream_use *uses)
{
    while (uses) {
        core__stream_use *next = uses->next;

        core__event_return(uses->event);
        core_stream_release(uses->stream);
        core__queue_release(uses->queue);
        core__small_free(uses, sizeof *uses);
        uses = next;
    }
}

/* A use needs its stream only until it has an event; then the stream may end:
 * otherwise two streams that use each other's memory would keep each other
 * alive.  It is not released here, where locks are held; if there is no host
 * memory to defer it, it is released with the use. */
static void release_stream(core__stream_use *use, core__stream_use **done)
{
    core__stream_use *husk = core__small_alloc(sizeof *husk);

    if (!husk)
        return;
    *husk = (core__stream_use){.next = *done, .stream = use->stream};
    *done = husk;
    use->stream = NULL;
}

/* True if the use has its event, or is over because its stream failed and
 * dropped all its work. */
static bool make_event(core_device *device, core__stream_use *use,
                       bool *out_over, core__stream_use **done)
{
    core_event *event;
    core_status status;

    status = core__event_take(device, &event);
    if (status == CORE_OK) {
        status = core_event_record(event, use->stream);
        /* If a capture has just begun, the event is not valid outside it. */
        if (status == CORE_OK && !event->capture_id) {
            use->event = event;
            release_stream(use, done);
            return true;
        }
        core__event_return(event);
    }
    /* After any other error the work may still be running. */
    *out_over = core__stream_check(use->stream) != CORE_OK;
    return *out_over;
}

/* Calls make_event if the use has no event yet.  If it returns false, the caller
 * tries again later: an error does not concern this call and is dropped. */
static bool mark(core_device *device, core__stream_use *use, bool *out_over,
                 core__stream_use **done)
{
    core__error_record earlier;
    bool marked;

    *out_over = false;
    if (use->event)
        return true;
    core__error_save(&earlier);
    marked = make_event(device, use, out_over, done);
    core__error_restore(&earlier);
    return marked;
}

void core__event_wait(core_device *device, core_event *event)
{
    core__error_record earlier;

    if (!core__device_has_generation(device, event->generation))
        return;
    core__error_save(&earlier);
    device->backend->events.synchronize(device->impl, event->impl);
    core__error_restore(&earlier);
}

/* A data error of the stream must be reported to the user, so this does not
 * use core_event_query.  Whatever the error, the work is over. */
static bool is_done(core_device *device, core_event *event, bool wait)
{
    core__error_record earlier;
    core_status status;

    if (!core__device_has_generation(device, event->generation))
        return true;
    if (wait) {
        core__event_wait(device, event);
        return true;
    }
    core__error_save(&earlier);
    pthread_mutex_lock(&event->lock);
    status = device->backend->events.query(device->impl, event->impl);
    pthread_mutex_unlock(&event->lock);
    core__error_restore(&earlier);
    return status != CORE_ERROR_BUSY;
}

core__stream_use *core__stream_uses_settle(core_device *device,
                                           core__stream_use **uses,
                                           bool mark_now, bool wait,
                                           uint64_t *events,
                                           core__stream_use *done)
{
    core__stream_use **link = uses;

    while (*link) {
        core__stream_use *use = *link;
        bool had = use->event != NULL;
        bool over = false;

        if (!had && (!mark_now || !mark(device, use, &over, &done))) {
            link = &use->next;
            continue;
        }
        *events += !had && !over;
        if (!over && !is_done(device, use->event, wait)) {
            link = &use->next;
            continue;
        }
        *link = use->next;
        use->next = done;
        done = use;
    }
    return done;
}

/* -------------------------------------------------------------- blocks -- */

core_status core__allocator_record(core_device *device, core__block *block,
                                   core_stream *stream)
{
    core__heap *heap = block->heap;
    core_status status = CORE_OK;

    CORE_TRY(core__device_check_process(device));
    if (!heap)
        return CORE_OK;
    core__spin_lock(&heap->lock);
    if (heap->stream != stream)
        status = core__stream_uses_add(&block->uses, stream);
    core__spin_unlock(&heap->lock);
    return status;
}

core_status core__memory_record_handle(core_device *device, core__block *block,
                                       void *word)
{
    core__heap *heap = block ? block->heap : NULL;
    core_event *event = NULL;
    core__stream_use *use;
    core_status status;

    CORE_TRY(core__device_check_process(device));
    if (device->synchronous)
        return CORE_OK;
    if (!word)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "the plugin of \"%s\" names a stream that uses "
                           "memory by a NULL handle",
                           device->name);
    if (!heap || (heap->stream && heap->stream->impl == word))
        return CORE_OK;
    if (!core__allocator_can_record_events(heap->allocator))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "the plugin of \"%s\" cannot name another stream that uses memory "
            "while work on the device is being captured; the call's stream "
            "must wait for it instead",
            device->name);
    core__spin_lock(&heap->lock);
    for (use = block->uses; use && use->word != word;)
        use = use->next;
    event = use ? use->event : NULL;
    core__spin_unlock(&heap->lock);
    /* The block's owner is the caller, so the block stays allocated and its
     * uses only grow.  An event that is recorded again also covers the earlier
     * work. */
    if (event)
        return core__event_record_handle(event, word);
    use = core__small_alloc(sizeof *use);
    if (!use)
        return core__error_memory(sizeof *use);
    status = core__event_take(device, &event);
    if (status == CORE_OK)
        status = core__event_record_handle(event, word);
    if (status != CORE_OK) {
        core__event_return(event);
        core__small_free(use, sizeof *use);
        return status;
    }
    atomic_fetch_add(&heap->allocator->events, 1);
    core__spin_lock(&heap->lock);
    *use =
        (core__stream_use){.next = block->uses, .event = event, .word = word};
    block->uses = use;
    core__spin_unlock(&heap->lock);
    return CORE_OK;
}

/* Appends a freed block to the list, whose order is that of freeing; the
 * heap's lock is held. */
static void await(core__heap *heap, core__block *block)
{
    block->newer = NULL;
    *heap->awaiting_end = block;
    heap->awaiting_end = &block->newer;
}

static void count_awaiting(core__heap *heap, core__block *block)
{
    bool passed;

    block->state = CORE__BLOCK_AWAITING;
    passed =
        core__count_up(&heap->counts, CORE__COUNT_AWAITING, block->kind, 1);
    passed |= core__count_up(&heap->counts, CORE__COUNT_AWAITING_BYTES,
                             block->kind, block->size);
    if (passed)
        core__counts_settle(heap);
}

static void end_wait(core__heap *heap, core__block *block)
{
    core__count_down(&heap->counts, CORE__COUNT_AWAITING, block->kind, 1);
    core__count_down(&heap->counts, CORE__COUNT_AWAITING_BYTES, block->kind,
                     block->size);
    core__block_return(heap, block);
}

bool core__allocator_can_record_events(const core__allocator *allocator)
{
    return !allocator || atomic_load(&allocator->captures) == 0;
}

void core__block_free_used(core__heap *heap, core__block *block)
{
    core__allocator *allocator = heap->allocator;
    core_device *device = allocator->device;
    core__stream_use *over_ones = NULL;
    core__stream_use **link = &block->uses;

    count_awaiting(heap, block);
    core__spin_unlock(&heap->lock);
    /* It is in no list yet, so no other thread accesses it. */
    while (*link && core__allocator_can_record_events(allocator)) {
        core__stream_use *use = *link;
        bool over;

        if (mark(device, use, &over, &over_ones) && !over)
            atomic_fetch_add(&allocator->events, 1);
        if (over) {
            *link = use->next;
            use->next = over_ones;
            over_ones = use;
        } else {
            link = &use->next;
        }
    }
    core__spin_lock(&heap->lock);
    if (block->uses)
        await(heap, block);
    else
        end_wait(heap, block);
    core__spin_unlock(&heap->lock);
    core__stream_uses_free(over_ones);
}

/* Queues found busy: work recorded on them later is not done either. */
typedef struct busy_queues {
    const core__queue *queues[8];
    uint32_t count;
} busy_queues;

/* NULL: the stream was named by a handle of the plugin. */
static const core__queue *queue_of(const core__stream_use *use)
{
    if (use->event)
        return use->event->queue;
    return use->stream ? use->stream->queue : NULL;
}

static bool is_busy(const busy_queues *busy, const core__stream_use *uses)
{
    for (; uses; uses = uses->next)
        for (uint32_t i = 0; i < busy->count; i++)
            if (queue_of(uses) == busy->queues[i])
                return true;
    return false;
}

static void note_busy(busy_queues *busy, const core__stream_use *uses)
{
    for (; uses; uses = uses->next)
        if (uses->event && uses->event->queue && busy->count < 8)
            busy->queues[busy->count++] = uses->event->queue;
}

core__stream_use *core__heap_settle_uses(core__heap *heap, bool wait,
                                         core__stream_use *done)
{
    core__allocator *allocator = heap->allocator;
    core__block *left = NULL;
    core__block **left_end = &left;
    busy_queues busy = {.count = 0};
    uint64_t events = 0;
    core__block *list;

    core__spin_lock(&heap->lock);
    list = heap->awaiting;
    heap->awaiting = NULL;
    heap->awaiting_end = &heap->awaiting;
    core__spin_unlock(&heap->lock);
    while (list) {
        core__block *block = list;

        list = list->newer;
        if (!is_busy(&busy, block->uses))
            done = core__stream_uses_settle(
                allocator->device, &block->uses,
                core__allocator_can_record_events(allocator), wait, &events,
                done);
        if (block->uses) {
            note_busy(&busy, block->uses);
            block->newer = NULL;
            *left_end = block;
            left_end = &block->newer;
            continue;
        }
        core__spin_lock(&heap->lock);
        end_wait(heap, block);
        core__spin_unlock(&heap->lock);
    }
    atomic_fetch_add(&allocator->events, events);
    if (!left)
        return done;
    core__spin_lock(&heap->lock);
    *left_end = heap->awaiting;
    if (!heap->awaiting)
        heap->awaiting_end = left_end;
    heap->awaiting = left;
    core__spin_unlock(&heap->lock);
    return done;
}

core__stream_use *core__heaps_settle_uses(core__allocator *allocator, bool wait,
                                          core__stream_use *done)
{
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        done = core__heap_settle_uses(heap, wait, done);
    return done;
}
