/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Heaps: which one a stream allocates from, and what happens to it when the
 * stream ends.
 *
 * Memory that a stream leaves behind may still be in use by its work.  An
 * event is recorded after all of that work, and the next stream that needs a
 * heap takes the old one over once the event is done; if there are many
 * unfinished heaps, it waits for one.  If no event can be recorded, the heap
 * remembers the stream's queue instead, and is taken over when the queue is
 * found to be idle. */

#include "base/memory.h"
#include "memory/heap.h"

/* Allocating threads read stream->pool without a lock. */
static core__heap *heap_get(const core_stream *stream)
{
    return __atomic_load_n(&stream->pool, __ATOMIC_ACQUIRE);
}

static void heap_set(core_stream *stream, core__heap *heap)
{
    __atomic_store_n(&stream->pool, heap, __ATOMIC_RELEASE);
}

static core__heap *find(core__allocator *allocator, core_memory_pool *pool,
                        const core_stream *stream)
{
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        if (heap->stream == stream && heap->pool == pool && !heap->abandoned)
            return heap;
    return NULL;
}

static core__heap *heap_new(core__allocator *allocator, core_memory_pool *pool)
{
    core__heap *heap = core__alloc_zero(sizeof *heap);

    if (!heap)
        return NULL;
    heap->allocator = allocator;
    heap->pool = pool;
    heap->awaiting_end = &heap->awaiting;
    heap->releasing_end = &heap->releasing;
    core__spin_lock(&allocator->counts.lock);
    heap->next = allocator->heaps;
    allocator->heaps = heap;
    core__spin_unlock(&allocator->counts.lock);
    return heap;
}

/* True if a stream has left the heap for others to take over. */
static bool is_available(const core__heap *heap, const core_memory_pool *pool)
{
    return !heap->stream && heap->pool == pool && !heap->abandoned;
}

static core__heap *take_over(core__heap *heap)
{
    core__event_return_later(heap->allocator, heap->ended);
    heap->ended = NULL;
    return heap;
}

/* Returns a heap left by an ended stream, preferably one whose work is done,
 * so that there is no wait.  Work in progress may still fail, and its error
 * does not concern another stream; so a new heap is preferred until many are
 * unfinished.  Then this stream waits for one of them. */
static core__heap *adopt(core__allocator *allocator, core_memory_pool *pool,
                         core_stream *stream)
{
    uint32_t busy = 0;

    if (stream->capture)
        return NULL; /* a capture cannot wait for anything outside */
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next) {
        if (!is_available(heap, pool))
            continue;
        if ((!heap->ended && !heap->unmarked) || core__heap_is_idle(heap))
            return take_over(heap);
        busy += heap->ended != NULL;
    }
    if (busy < CORE__HEAPS_BUSY)
        return NULL;
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        if (is_available(heap, pool) && heap->ended &&
            core__stream_wait_event_reuse(stream, heap->ended) == CORE_OK)
            return take_over(heap);
    return NULL;
}

core_status core__heap_of_pool(core__allocator *allocator,
                               core_memory_pool *pool, core_stream *stream,
                               core__heap **out_heap)
{
    core__heap *heap = find(allocator, pool, stream);

    *out_heap = heap;
    if (heap)
        return CORE_OK;
    /* Streams come and go: blocks that they shared are returned here. */
    allocator->dropped_uses =
        core__heaps_settle_uses(allocator, false, allocator->dropped_uses);
    heap = adopt(allocator, pool, stream);
    if (!heap)
        heap = heap_new(allocator, pool);
    if (!heap)
        return core__error_memory(sizeof *heap);
    core__spin_lock(&heap->lock);
    heap->stream = stream;
    heap->stream_id = stream->id;
    core__spin_unlock(&heap->lock);
    core__queue_release_later(allocator, heap->unmarked);
    heap->unmarked = NULL;
    *out_heap = heap;
    return CORE_OK;
}

core_status core__heap_of(core__allocator *allocator, core_stream *stream,
                          core__heap **out_heap)
{
    core_memory_pool *pool =
        core__pool_current(core__thread_self(), allocator->device);
    core_status status = CORE_OK;

    CORE_TRY(core__device_check_process(allocator->device));
    *out_heap = heap_get(stream);
    if (*out_heap && (!pool || (*out_heap)->capturing))
        return CORE_OK;
    pthread_mutex_lock(&allocator->lock);
    status = core__heap_of_pool(allocator, pool, stream, out_heap);
    if (status == CORE_OK && !pool && !heap_get(stream))
        heap_set(stream, *out_heap);
    core__allocator_unlock(allocator);
    return status;
}

/* ----------------------------------------------------------------- end -- */

void core__heap_destroy(core__heap *heap)
{
    core__allocator *allocator = heap->allocator;
    core__heap **link = &allocator->heaps;

    while (*link != heap)
        link = &(*link)->next;
    core__spin_lock(&allocator->counts.lock);
    *link = heap->next;
    core__counts_end(heap);
    core__spin_unlock(&allocator->counts.lock);
    core__event_return_later(allocator, heap->ended);
    core__queue_release_later(allocator, heap->unmarked);
    core__free(heap);
}

static bool is_over(core__heap *heap)
{
    bool over;

    if (heap->stream && !heap->abandoned)
        return false;
    core__spin_lock(&heap->lock);
    over = !heap->segments && !heap->awaiting &&
           core__counts_held(&heap->counts) == 0;
    core__spin_unlock(&heap->lock);
    return over;
}

void core__heaps_destroy_empty(core__allocator *allocator)
{
    core__heap *next;

    for (core__heap *heap = allocator->heaps; heap; heap = next) {
        next = heap->next;
        if (is_over(heap))
            core__heap_destroy(heap);
    }
}

/* Records an event after all work submitted to the stream, unless that is
 * already done.  The stream may end in one of its callbacks, so this does not
 * wait. */
static void mark_end(core__heap *heap, core_stream *stream)
{
    core_event *event = NULL;
    core_status status = CORE_OK;
    bool idle = core__heap_is_idle(heap);

    if (!idle)
        status = core__event_take(stream->device, &event);
    if (!idle && status == CORE_OK) {
        status = core_event_record(event, stream);
        if (status != CORE_OK) {
            core__event_return(event);
            event = NULL;
        }
    }
    /* A failed stream has dropped its work. */
    if (status != CORE_OK && core__stream_check(stream) == CORE_OK)
        heap->unmarked = core__queue_retain(stream->queue);
    core__event_return_later(heap->allocator, heap->ended);
    heap->ended = event;
}

static void end_stream(core__allocator *allocator, core_stream *stream)
{
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next) {
        if (heap->stream != stream)
            continue;
        mark_end(heap, stream);
        core__spin_lock(&heap->lock);
        heap->stream = NULL;
        core__spin_unlock(&heap->lock);
    }
    heap_set(stream, NULL);
}

void core__event_return_later(core__allocator *allocator, core_event *event)
{
    if (!event)
        return;
    event->next = allocator->returned_events;
    allocator->returned_events = event;
}

/* If there is no host memory to defer it, the queue is released at once. */
void core__queue_release_later(core__allocator *allocator, core__queue *queue)
{
    core__stream_use *use = queue ? core__small_alloc(sizeof *use) : NULL;

    if (use) {
        *use =
            (core__stream_use){.next = allocator->dropped_uses, .queue = queue};
        allocator->dropped_uses = use;
    } else {
        core__queue_release(queue);
    }
}

void core__events_return(core_event *events)
{
    while (events) {
        core_event *next = events->next;

        core__event_return(events);
        events = next;
    }
}

static void unlock(core__allocator *allocator)
{
    core_event *events = allocator->returned_events;
    core__stream_use *uses = allocator->dropped_uses;

    allocator->returned_events = NULL;
    allocator->dropped_uses = NULL;
    pthread_mutex_unlock(&allocator->lock);
    core__events_return(events);
    core__stream_uses_free(uses);
}

static void end_all(core__allocator *allocator)
{
    core_stream *streams = atomic_exchange(&allocator->ended_streams, NULL);
    core_memory_pool *pools = atomic_exchange(&allocator->ended_pools, NULL);

    for (core_stream *s = streams; s; s = s->next_ended)
        end_stream(allocator, s);
    for (core_memory_pool *p = pools; p; p = p->next_ended)
        core__pool_abandon(allocator, p);
    unlock(allocator);
    while (streams) {
        core_stream *next = streams->next_ended;

        core__stream_destroy(streams);
        streams = next;
    }
    while (pools) {
        core_memory_pool *next = pools->next_ended;

        core__pool_end(pools);
        pools = next;
    }
}

/* A thread that cannot take the mutex leaves the work to its holder, which
 * checks again after unlocking. */
void core__allocator_end_pending(core__allocator *allocator)
{
    if (allocator->device->forked)
        return; /* a thread of the parent process may hold it */
    while (atomic_load(&allocator->ended_streams) ||
           atomic_load(&allocator->ended_pools)) {
        if (pthread_mutex_trylock(&allocator->lock) != 0)
            return;
        end_all(allocator);
    }
}

void core__allocator_unlock(core__allocator *allocator)
{
    unlock(allocator);
    core__allocator_end_pending(allocator);
}

void core__allocator_stream_end(core_stream *stream)
{
    core_device *device = stream->device;
    core__allocator *allocator = device->allocator;
    core_stream *first;

    if (!allocator) {
        core__stream_destroy(stream);
        return;
    }
    core_device_retain(device); /* the stream's reference is released with it */
    first = atomic_load(&allocator->ended_streams);
    do
        stream->next_ended = first;
    while (!atomic_compare_exchange_weak(&allocator->ended_streams, &first,
                                         stream));
    core__allocator_end_pending(allocator);
    core_device_release(device);
}

/* ------------------------------------------------------------ captures -- */

static void set_capturing(core__allocator *allocator, core_stream *stream,
                          bool capturing)
{
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        if (heap->stream == stream)
            heap->capturing = capturing;
}

core_status core__allocator_capture_check(const core_stream *stream,
                                          const core_memory_pool *pool)
{
    if (!pool || pool->device == stream->device)
        return CORE_OK;
    return core__error(CORE_ERROR_DEVICE,
                       "core_capture_begin: the pool is of \"%s\", the stream "
                       "of \"%s\"; both must be of one device",
                       pool->device->name, stream->device->name);
}

core_status core__allocator_capture_begin(core_stream *stream,
                                          core_memory_pool *pool)
{
    core__allocator *allocator = stream->device->allocator;
    core__heap *heap;
    core_status status;

    if (!allocator)
        return CORE_OK;
    CORE_TRY(core__device_check_process(allocator->device));
    pthread_mutex_lock(&allocator->lock);
    status = core__heap_of_pool(allocator, pool, stream, &heap);
    if (status == CORE_OK) {
        set_capturing(allocator, stream, true);
        heap_set(stream, heap);
        atomic_fetch_add(&allocator->captures, 1);
    }
    core__allocator_unlock(allocator);
    return status;
}

void core__allocator_capture_end(core_stream *stream)
{
    core__allocator *allocator = stream->device->allocator;

    if (!allocator || allocator->device->forked)
        return;
    pthread_mutex_lock(&allocator->lock);
    set_capturing(allocator, stream, false);
    heap_set(stream, find(allocator, NULL, stream));
    atomic_fetch_sub(&allocator->captures, 1);
    core__allocator_unlock(allocator);
    core__allocator_settle_uses(allocator);
}
