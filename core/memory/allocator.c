/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The caching allocator of a device: allocation, and the allocator's creation,
 * reset and destruction. */

#include "base/memory.h"
#include "memory/heap.h"
#include "memory/host_memory.h"

#include <string.h>

/* --------------------------------------------------------------- sizes -- */

/* Rounds up to the next of `divisions` equal steps between two powers of
 * two. */
static uint64_t round_division(uint64_t size, uint64_t divisions)
{
    uint64_t power = UINT64_C(1) << (63 - __builtin_clzll(size));
    uint64_t step = power / divisions;

    return step ? core__round_up(size, step) : size;
}

static inline uint64_t round_size(const core__allocator *allocator,
                                  uint64_t size)
{
    uint64_t unit = allocator->unit; /* a power of two */
    uint32_t divisions =
        atomic_load_explicit(&allocator->divisions, memory_order_relaxed);

    size += allocator->padding;
    if (core__unlikely(divisions && size > unit * divisions))
        size = round_division(size, divisions);
    return (size + unit - 1) & ~(unit - 1);
}

/* The size exceeds the device's largest allocation, perhaps only because of
 * the rounding. */
static __attribute__((cold)) core_status round_to_unit(
    const core__allocator *allocator, uint64_t requested, uint64_t *size)
{
    CORE_TRY(core__device_check_process(allocator->device));
    *size = core__round_up(requested + allocator->padding, allocator->unit);
    if (*size <= allocator->largest)
        return CORE_OK;
    return core__error(CORE_ERROR_OUT_OF_MEMORY,
                       "%s: %llu bytes (%llu with padding and rounding) exceed "
                       "the device's largest allocation of %llu",
                       allocator->device->name, (unsigned long long)requested,
                       (unsigned long long)*size,
                       (unsigned long long)allocator->largest);
}

/* ---------------------------------------------------------- allocating -- */

/* With the lock held: releases what nothing can use any more.  Does not
 * wait. */
static core__stream_use *release_unused(core__allocator *allocator,
                                        core__stream_use *done)
{
    bool abandoned = atomic_load(&allocator->abandoned);

    for (core__heap *heap = allocator->heaps; heap; heap = heap->next) {
        if (heap->abandoned)
            done = core__heap_settle_uses(heap, false, done);
        if (heap->abandoned || atomic_load(&allocator->direct))
            core__heap_begin_release(heap, !heap->abandoned);
    }
    if (abandoned)
        core__heaps_destroy_empty(allocator);
    return done;
}

void core__allocator_release_unused(core__allocator *allocator)
{
    core__stream_use *done = NULL;

    if (allocator->device->forked)
        return;
    if (pthread_mutex_trylock(&allocator->lock) != 0)
        return; /* the next allocation that needs the lock does it */
    done = release_unused(allocator, done);
    core__allocator_unlock(allocator);
    core__stream_uses_free(done);
}

void core__allocator_settle_uses(core__allocator *allocator)
{
    core__stream_use *done = NULL;

    if (allocator->device->forked)
        return;
    pthread_mutex_lock(&allocator->lock);
    done = core__heaps_settle_uses(allocator, false, done);
    done = release_unused(allocator, done);
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next) {
        core__spin_lock(&heap->lock);
        core__heap_join_deferred(heap);
        core__spin_unlock(&heap->lock);
    }
    core__allocator_unlock(allocator);
    core__stream_uses_free(done);
}

/* Releases cached segments above the threshold of the setting, the longest
 * free first. */
static void collect_garbage(core__allocator *allocator)
{
    double threshold = allocator->settings.gc_threshold;
    uint64_t limit =
        allocator->limit == UINT64_MAX ? allocator->total : allocator->limit;
    uint64_t most = (uint64_t)(threshold * (double)limit);
    uint64_t reserved = atomic_load(&allocator->reserved);

    if (threshold > 0 && limit && reserved > most)
        core__allocator_release(
            allocator, &(core__segment_release){.enough = reserved - most});
}

typedef struct request {
    core__heap *heap;
    uint32_t kind;
    uint64_t size; /* rounded */
    uint64_t requested;
} request;

/* True if the request is settled: by a block or an error. */
static bool take(const request *r, core_status *status, core__block **out_block)
{
    *status = CORE_OK;
    if (!r->heap->allocator->settings.caching)
        return false;
    *status =
        core__heap_take(r->heap, r->kind, r->size, r->requested, out_block);
    r->heap->allocator->host_memory_failed = *status != CORE_OK;
    return *out_block || *status != CORE_OK;
}

/* Tries one source after the other until the device has enough memory. */
static core_status grow_again(const request *r, core__stream_use **done,
                              core__block **out_block)
{
    core__allocator *allocator = r->heap->allocator;
    uint64_t max_split = allocator->settings.max_split;
    core_status status;

    *done = core__heaps_settle_uses(allocator, false, *done);
    if (take(r, &status, out_block))
        return status;
    status = CORE_ERROR_OUT_OF_MEMORY;
    if (core__allocator_release(
            allocator, &(core__segment_release){.releasing_only = true}))
        status = core__segment_allocate(r->heap, r->kind, r->size, r->requested,
                                        out_block);
    if (status == CORE_ERROR_OUT_OF_MEMORY &&
        core__allocator_release(allocator,
                                &(core__segment_release){.ended_only = true}))
        status = core__segment_allocate(r->heap, r->kind, r->size, r->requested,
                                        out_block);
    if (status == CORE_ERROR_OUT_OF_MEMORY && max_split != UINT64_MAX &&
        core__allocator_release(
            allocator, &(core__segment_release){.heap = r->heap,
                                                .enough = r->size,
                                                .at_least = r->size,
                                                .larger = max_split + 1}))
        status = core__segment_allocate(r->heap, r->kind, r->size, r->requested,
                                        out_block);
    if (status != CORE_ERROR_OUT_OF_MEMORY)
        return status;
    atomic_fetch_add(&allocator->retries, 1);
    *done = core__heaps_settle_uses(allocator, true, *done);
    if (take(r, &status, out_block))
        return status;
    core__allocator_release(allocator, &(core__segment_release){0});
    return core__segment_allocate(r->heap, r->kind, r->size, r->requested,
                                  out_block);
}

static core_status grow(const request *r, core__block **out_block)
{
    core__heap *heap = r->heap;
    core__allocator *allocator = heap->allocator;
    core__stream_use *done = NULL;
    core__error_record earlier;
    core_status status;

    *out_block = NULL;
    core__error_save(&earlier);
    pthread_mutex_lock(&allocator->lock);
    allocator->host_memory_failed = false;
    atomic_fetch_add_explicit(&allocator->clock, 1, memory_order_relaxed);
    done = core__heap_settle_uses(heap, false, done);
    if (atomic_load(&allocator->abandoned) || atomic_load(&allocator->direct))
        done = release_unused(allocator, done);
    if (take(r, &status, out_block))
        goto done;
    collect_garbage(allocator);
    status =
        core__segment_allocate(heap, r->kind, r->size, r->requested, out_block);
    if (core__unlikely(status == CORE_ERROR_OUT_OF_MEMORY &&
                       !allocator->host_memory_failed)) {
        status = grow_again(r, &done, out_block);
        if (status == CORE_ERROR_OUT_OF_MEMORY &&
            !allocator->host_memory_failed) {
            atomic_fetch_add(&allocator->out_of_memories, 1);
            core__history_add(heap, CORE__ACTION_OOM, (core_memory){0},
                              r->size);
            status = core__out_of_memory_error(heap, r->requested, r->size);
        }
    }
done:
    core__allocator_unlock(allocator);
    core__stream_uses_free(done);
    return core__error_restore_on_success(&earlier, status);
}

core_status core__allocator_alloc(core_device *device, core_stream *stream,
                                  uint64_t size, core_memory *out_memory,
                                  uint64_t *out_capacity,
                                  core__block **out_block)
{
    core__allocator *allocator = device->allocator;
    core__heap *heap = __atomic_load_n(&stream->pool, __ATOMIC_ACQUIRE);
    core__block *block = NULL;
    request r;

    *out_block = NULL;
    /* A cached block would seem to be of the time after the reset. */
    if (core__unlikely(
            atomic_load_explicit(&device->lost, memory_order_relaxed)))
        return core__device_stale_error(device);
    if (core__unlikely(!heap || core__thread_self()->pools))
        CORE_TRY(core__heap_of(allocator, stream, &heap));
    r.heap = heap;
    r.size = round_size(allocator, size);
    if (core__unlikely(r.size > allocator->largest))
        CORE_TRY(round_to_unit(allocator, size, &r.size));
    r.kind = r.size > CORE__SMALL_LIMIT ? CORE_MEMORY_LARGE : CORE_MEMORY_SMALL;
    r.requested = size;
    if (core__likely(
            atomic_load_explicit(&allocator->caching, memory_order_relaxed)))
        CORE_TRY(core__heap_take(heap, r.kind, r.size, size, &block));
    if (core__unlikely(!block))
        CORE_TRY(grow(&r, &block));
    *out_memory = (core_memory){block->handle, block->offset};
    *out_capacity = block->size;
    *out_block = block;
    return CORE_OK;
}

/* ----------------------------------------------- creation, destruction -- */

static void find_unit(core__allocator *allocator)
{
    core_device *device = allocator->device;
    const core_device_properties *properties = &device->properties;
    uint64_t nothing;

    allocator->unit = CORE__UNIT;
    while (allocator->unit < properties->base_alignment)
        allocator->unit *= 2;
    /* The memory behind a block is another block, so each needs its padding. */
    allocator->padding = properties->tail_padding;
    allocator->largest = properties->largest_allocation
                             ? properties->largest_allocation
                             : UINT64_MAX;
    allocator->total = properties->total_memory;
    if (!allocator->total && device->memory.info)
        device->memory.info(device->impl, &nothing, &allocator->total);
    if (device->interfaces.virtual_memory.granularity &&
        device->interfaces.virtual_memory.granularity(
            device->impl, &allocator->vm_step) != CORE_OK)
        allocator->vm_step = 0;
    allocator->own =
        device->interfaces.allocator.alloc && device->interfaces.allocator.free;
    if (allocator->own)
        allocator->vm_step = 0;
}

/* Makes every allocation reach round_to_unit, without another check on the
 * fast path. */
void core__allocator_after_fork(core_device *device)
{
    core__allocator *allocator = device->allocator;

    if (allocator)
        allocator->largest = 0;
}

core_status core__allocator_create(core_device *device)
{
    core__allocator *allocator = core__alloc_zero(sizeof *allocator);
    core__alloc_settings settings;
    pthread_mutexattr_t recursive;
    core_status status;

    if (!allocator)
        return core__error_memory(sizeof *allocator);
    allocator->device = device;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&allocator->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    find_unit(allocator);
    status = core__alloc_settings_initial(&settings);
    if (settings.expandable && !allocator->vm_step)
        settings.expandable = false; /* meant for other devices */
    if (allocator->own)
        settings.caching = false;
    if (status == CORE_OK)
        status = core__alloc_settings_apply(allocator, &settings);
    if (status == CORE_OK) {
        device->allocator = allocator;
    } else {
        pthread_mutex_destroy(&allocator->lock);
        core__free(allocator);
    }
    return status;
}

/* Detaches every block: free ones are freed, those in use belong to no heap. */
static core__stream_use *detach_blocks(core__segment *segment,
                                       core__stream_use *done)
{
    core__block *next;

    for (core__block *block = segment->first; block; block = next) {
        next = block->after;
        if (block->state == CORE__BLOCK_ACTIVE) {
            block->heap = NULL;
            block->segment = NULL;
            continue;
        }
        while (block->uses) {
            core__stream_use *use = block->uses;

            block->uses = use->next;
            use->next = done;
            done = use;
        }
        core__block_free(block);
    }
    segment->first = NULL;
    return done;
}

static void reset_counts(core__heap *heap)
{
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t what = 0; what < CORE__COUNTS; what++) {
            core__count *count = &heap->counts.of[k][what];

            core__count_set(&count->freed, core__count_get(&count->allocated));
        }
}

static core__stream_use *reset_heap(core__heap *heap, core__stream_use *done)
{
    core__segment *list;

    core__spin_lock(&heap->lock);
    list = heap->segments;
    heap->segments = NULL;
    heap->releasing = NULL;
    heap->releasing_end = &heap->releasing;
    heap->awaiting = NULL;
    heap->awaiting_end = &heap->awaiting;
    memset(heap->bins, 0, sizeof heap->bins);
    memset(&heap->unjoined, 0, sizeof heap->unjoined);
    reset_counts(heap);
    core__spin_unlock(&heap->lock);
    while (list) {
        core__segment *next = list->next;

        core__event_return_later(heap->allocator, list->last_use);
        done = detach_blocks(list, done);
        core__small_free(list, sizeof *list);
        list = next;
    }
    core__event_return_later(heap->allocator, heap->ended);
    heap->ended = NULL;
    core__queue_release_later(heap->allocator, heap->unmarked);
    heap->unmarked = NULL;
    return done;
}

void core__allocator_reset(core_device *device)
{
    core__allocator *allocator = device->allocator;
    core__stream_use *done = NULL;

    if (!allocator)
        return;
    pthread_mutex_lock(&allocator->lock);
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        done = reset_heap(heap, done);
    atomic_store(&allocator->reserved, 0);
    core__heaps_destroy_empty(allocator);
    core__allocator_unlock(allocator);
    core__stream_uses_free(done);
}

/* Blocks in use no longer belong to the plugin, whose device closes. */
static core__stream_use *end_heap(core__heap *heap, core__stream_use *done)
{
    core_device *device = heap->allocator->device;

    core__heap_wait(heap);
    for (core__segment *s = heap->segments; s; s = s->next) {
        for (core__block *b = s->expandable ? s->first : NULL; b; b = b->after)
            if (b->state != CORE__BLOCK_UNMAPPED)
                device->interfaces.virtual_memory.unmap(
                    device->impl, s->memory, b->offset - s->memory.offset,
                    b->size);
        if (s->expandable)
            device->interfaces.virtual_memory.release(device->impl, s->memory,
                                                      s->size);
        else
            core__segment_free_memory(heap->allocator, s);
    }
    return reset_heap(heap, done);
}

void core__allocator_destroy(core_device *device)
{
    core__allocator *allocator = device->allocator;
    core__stream_use *done = NULL;

    if (!allocator || device->forked)
        return;
    done = core__heaps_settle_uses(allocator, true, done);
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next)
        done = end_heap(heap, done);
    core__stream_uses_free(done);
    while (allocator->heaps) {
        core__heap *heap = allocator->heaps;

        if (heap->stream)
            __atomic_store_n(&heap->stream->pool, NULL, __ATOMIC_RELEASE);
        core__heap_destroy(heap);
    }
    core__events_return(allocator->returned_events);
    core__stream_uses_free(allocator->dropped_uses);
    device->allocator = NULL;
    core__free(atomic_load(&allocator->history));
    pthread_mutex_destroy(&allocator->lock);
    core__free(allocator);
}

/* -------------------------------------------------------------- public -- */

core_status core__allocator_require(core_device *device, const char *what)
{
    if (device->allocator)
        return core__device_check_process(device);
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: \"%s\" has no streams, so it has no caching "
                       "allocator with settings, pools or snapshots",
                       what, device->name);
}

/* Ends all waits of freed blocks, and releases what ended streams left
 * behind. */
static void empty(core__allocator *allocator, bool wait)
{
    core__stream_use *done = NULL;

    pthread_mutex_lock(&allocator->lock);
    done = core__heaps_settle_uses(allocator, wait, done);
    core__allocator_release(allocator, &(core__segment_release){0});
    core__heaps_destroy_empty(allocator);
    core__allocator_unlock(allocator);
    core__stream_uses_free(done);
}

core_status core_memory_empty_cache(core_device *device)
{
    core__allocator *allocator;

    CORE__NOT_NULL(device);
    CORE_TRY(core__allocator_require(device, "core_memory_empty_cache"));
    allocator = device->allocator;
    empty(allocator, true);
    empty(allocator, false); /* streams ended with blocks that were waiting for
                              * them */
    if (allocator->own && device->interfaces.allocator.trim)
        CORE_TRY(device->interfaces.allocator.trim(device->impl));
    core__host_memory_empty(device);
    if (core__allocator_can_record_events(allocator))
        core__event_stock_empty(device);
    core__queues_reap(device);
    return CORE_OK;
}
