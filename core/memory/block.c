/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Blocks: finding, splitting and joining.
 *
 * The minimal cost of a warm allocation and its release: taking a lock twice
 * (one locked instruction each, about 20 cycles), the head of a list, and six
 * counters in the first-level cache.  Nothing here is shared between streams.
 * Joining a small block with its neighbours is deferred (core__unjoined_blocks), because
 * the next request is often for the same size and would split it again. */

#include "base/memory.h"
#include "memory/heap.h"

/* ---------------------------------------------------------------- bins -- */

static inline uint32_t bin_of(uint64_t size)
{
    uint64_t units = size >> CORE__UNIT_LOG2;
    uint32_t log2;
    uint32_t bin;

    if (units < 1u << CORE__BIN_LOG2)
        return (uint32_t)units;
    log2 = 63 - (uint32_t)__builtin_clzll(units);
    bin = ((log2 - CORE__BIN_LOG2 + 1) << CORE__BIN_LOG2) +
          ((uint32_t)(units >> (log2 - CORE__BIN_LOG2)) &
           ((1u << CORE__BIN_LOG2) - 1));
    return bin < CORE__BINS ? bin : CORE__BINS - 1;
}

static inline void bin_insert(core__bins *bins, core__block *block)
{
    uint32_t bin = bin_of(block->size);
    core__block *previous = NULL;
    core__block *next = bins->heads[bin];

    while (core__unlikely(next && next->size < block->size)) {
        previous = next;
        next = next->newer;
    }
    block->previous = previous;
    block->newer = next;
    if (next)
        next->previous = block;
    if (previous) {
        previous->newer = block;
        return;
    }
    bins->heads[bin] = block;
    bins->words[bin / 64] |= UINT64_C(1) << bin % 64;
    bins->summary |= UINT64_C(1) << bin / 64;
}

static inline void bin_remove(core__bins *bins, core__block *block)
{
    if (block->newer)
        block->newer->previous = block->previous;
    if (block->previous) {
        block->previous->newer = block->newer;
    } else {
        uint32_t bin = bin_of(block->size);

        bins->heads[bin] = block->newer;
        if (!block->newer) {
            bins->words[bin / 64] &= ~(UINT64_C(1) << bin % 64);
            if (!bins->words[bin / 64])
                bins->summary &= ~(UINT64_C(1) << bin / 64);
        }
    }
}

/* The head of the first non-empty list after this one. */
static core__block *next_bin(const core__bins *bins, uint32_t bin)
{
    uint32_t word = bin / 64;
    uint64_t bits = bins->words[word] & ~UINT64_C(1) << bin % 64;

    if (!bits) {
        uint64_t words = bins->summary & ~UINT64_C(1) << word;

        if (!words)
            return NULL;
        word = (uint32_t)__builtin_ctzll(words);
        bits = bins->words[word];
    }
    return bins->heads[word * 64 + (uint32_t)__builtin_ctzll(bits)];
}

static inline core__block *bin_find(const core__bins *bins, uint64_t size)
{
    uint32_t bin = bin_of(size);
    core__block *block = bins->heads[bin];

    while (block && block->size < size)
        block = block->newer;
    return block ? block : next_bin(bins, bin);
}

/* -------------------------------------------------------------- blocks -- */

core__block *core__block_new(core__segment *segment, uint64_t offset,
                             uint64_t size)
{
    core__block *block = core__small_alloc(sizeof *block);

    if (!block)
        return NULL;
    block->handle = segment->memory.handle;
    block->offset = offset;
    block->size = size;
    block->heap = segment->heap;
    block->segment = segment;
    block->before = NULL;
    block->after = NULL;
    block->newer = NULL;
    block->previous = NULL;
    block->requested = 0;
    block->freed_at = 0;
    block->uses = NULL;
    block->state = CORE__BLOCK_FREE;
    block->kind = segment->kind;
    block->counted = false;
    block->direct = segment->direct;
    return block;
}

void core__block_free(core__block *block)
{
    core__small_free(block, sizeof *block);
}

core__block *core__block_split(core__block *block, uint64_t size)
{
    core__block *rest = core__block_new(block->segment, block->offset + size,
                                        block->size - size);

    if (!rest)
        return NULL;
    rest->freed_at = block->freed_at;
    rest->before = block;
    rest->after = block->after;
    if (rest->after)
        rest->after->before = rest;
    block->after = rest;
    block->size = size;
    return rest;
}

void core__block_join(core__block *block)
{
    core__block *absorbed = block->after;

    block->size += absorbed->size;
    block->after = absorbed->after;
    if (block->after)
        block->after->before = block;
    if (absorbed->freed_at > block->freed_at)
        block->freed_at = absorbed->freed_at;
    core__block_free(absorbed);
}

void core__block_remove(core__heap *heap, core__block *block)
{
    bin_remove(core__heap_bins(heap, block->kind), block);
    if (!block->counted)
        return;
    block->counted = false;
    core__count_down(&heap->counts, CORE__COUNT_INACTIVE_SPLIT, block->kind, 1);
    core__count_down(&heap->counts, CORE__COUNT_INACTIVE_SPLIT_BYTES,
                     block->kind, block->size);
}

/* Puts the block into the bins as it is; true: a bound of the statistics was
 * passed. */
static bool insert_alone(core__heap *heap, core__block *block)
{
    bool passed = false;

    block->state = CORE__BLOCK_FREE;
    bin_insert(core__heap_bins(heap, block->kind), block);
    block->counted = core__block_is_split(block);
    if (block->counted) {
        passed = core__count_up(&heap->counts, CORE__COUNT_INACTIVE_SPLIT,
                                block->kind, 1);
        passed |=
            core__count_up(&heap->counts, CORE__COUNT_INACTIVE_SPLIT_BYTES,
                           block->kind, block->size);
    }
    return passed;
}

static inline bool is_free(const core__block *block)
{
    return block && block->state == CORE__BLOCK_FREE;
}

core__block *core__block_insert(core__heap *heap, core__block *block)
{
    if (is_free(block->after)) {
        core__block_remove(heap, block->after);
        core__block_join(block);
    }
    if (is_free(block->before)) {
        block = block->before;
        core__block_remove(heap, block);
        core__block_join(block);
    }
    if (core__unlikely(insert_alone(heap, block)))
        core__counts_settle(heap);
    return block;
}

/* ---------------------------------------------------- deferred joining -- */

static inline uint32_t deferred_list(uint64_t size)
{
    return (size >> CORE__UNIT_LOG2) % CORE__UNJOINED_LISTS;
}

/* False if the block must be joined now. */
static inline bool defer_join(core__heap *heap, core__block *block)
{
    core__unjoined_blocks *unjoined = &heap->unjoined;
    uint32_t list = deferred_list(block->size);
    core__block *head = unjoined->heads[list];

    if (core__unlikely(head && head->size != block->size) ||
        unjoined->count >= CORE__UNJOINED_MAX)
        return false;
    block->state = CORE__BLOCK_UNJOINED;
    block->newer = head;
    unjoined->heads[list] = block;
    unjoined->lists |= UINT64_C(1) << list;
    unjoined->count++;
    return true;
}

static inline core__block *take_deferred(core__heap *heap, uint64_t size)
{
    core__unjoined_blocks *unjoined = &heap->unjoined;
    uint32_t list = deferred_list(size);
    core__block *block = unjoined->heads[list];

    if (!block || block->size != size)
        return NULL;
    unjoined->heads[list] = block->newer;
    if (!block->newer)
        unjoined->lists &= ~(UINT64_C(1) << list);
    unjoined->count--;
    return block;
}

void core__heap_join_deferred(core__heap *heap)
{
    core__unjoined_blocks *unjoined = &heap->unjoined;

    while (unjoined->lists) {
        uint32_t list = (uint32_t)__builtin_ctzll(unjoined->lists);

        while (unjoined->heads[list]) {
            core__block *block = unjoined->heads[list];

            unjoined->heads[list] = block->newer;
            core__block_insert(heap, block);
        }
        unjoined->lists &= unjoined->lists - 1;
    }
    unjoined->count = 0;
}

/* ------------------------------------------------ taking and returning -- */

static inline bool is_cut(const core__allocator *allocator,
                          const core__block *block, uint64_t size)
{
    uint64_t rest = block->size - size;

    if (block->kind == CORE_MEMORY_SMALL)
        return rest >= CORE__UNIT;
    return rest > CORE__SMALL_LIMIT &&
           block->size <= atomic_load_explicit(&allocator->max_split,
                                               memory_order_relaxed);
}

/* A storage owns the block from now on. */
static inline void set_active(core__heap *heap, core__block *block,
                              uint64_t requested, bool passed)
{
    core__counts *counts = &heap->counts;
    uint32_t kind = block->kind;

    block->state = CORE__BLOCK_ACTIVE;
    block->requested = requested;
    passed |= core__count_up(counts, CORE__COUNT_ALLOCATIONS, kind, 1);
    passed |=
        core__count_up(counts, CORE__COUNT_REQUESTED_BYTES, kind, requested);
    passed |=
        core__count_up(counts, CORE__COUNT_ALLOCATED_BYTES, kind, block->size);
    if (core__unlikely(passed))
        core__counts_settle(heap);
    core__history_add(heap, CORE__ACTION_ALLOC,
                      (core_memory){block->handle, block->offset}, block->size);
}

core_status core__block_take(core__heap *heap, core__block *block,
                             uint64_t size, uint64_t requested)
{
    bool passed = false;

    if (block->size > size && is_cut(heap->allocator, block, size)) {
        core__block *rest = core__block_split(block, size);

        if (core__unlikely(!rest)) {
            core__block_insert(heap, block);
            return core__error_memory(sizeof *rest);
        }
        passed = insert_alone(heap, rest);
    }
    set_active(heap, block, requested, passed);
    return CORE_OK;
}

static core_status take(core__heap *heap, uint32_t kind, uint64_t size,
                        uint64_t requested, core__block **out_block)
{
    uint64_t max_split =
        atomic_load_explicit(&heap->allocator->max_split, memory_order_relaxed);
    core__block *block;

    if (kind == CORE_MEMORY_SMALL)
        core__heap_join_deferred(heap);
    block = bin_find(core__heap_bins(heap, kind), size);
    if (!block)
        return CORE_OK;
    /* A block that is never split serves requests of its size only. */
    if (core__unlikely(
            block->size > max_split &&
            (size <= max_split || block->size >= size + CORE__MIDDLE_SEGMENT)))
        return CORE_OK;
    core__block_remove(heap, block);
    CORE_TRY(core__block_take(heap, block, size, requested));
    *out_block = block;
    return CORE_OK;
}

core_status core__heap_take(core__heap *heap, uint32_t kind, uint64_t size,
                            uint64_t requested, core__block **out_block)
{
    core_status status = CORE_OK;
    core__block *block = NULL;

    core__spin_lock(&heap->lock);
    if (kind == CORE_MEMORY_SMALL)
        block = take_deferred(heap, size);
    if (core__likely(block != NULL))
        set_active(heap, block, requested, false);
    else
        status = take(heap, kind, size, requested, &block);
    core__spin_unlock(&heap->lock);
    *out_block = block;
    return status;
}

/* No storage owns the block any more. */
static inline void set_inactive(core__heap *heap, core__block *block)
{
    core__counts *counts = &heap->counts;

    core__count_down(counts, CORE__COUNT_ALLOCATIONS, block->kind, 1);
    core__count_down(counts, CORE__COUNT_REQUESTED_BYTES, block->kind,
                     block->requested);
    core__count_down(counts, CORE__COUNT_ALLOCATED_BYTES, block->kind,
                     block->size);
    core__history_add(heap, CORE__ACTION_FREE_REQUESTED,
                      (core_memory){block->handle, block->offset}, block->size);
}

/* False during fault injection: the same calls must make the same
 * allocations. */
static inline bool may_defer(const core__heap *heap, const core__block *block)
{
    return block->kind == CORE_MEMORY_SMALL && !heap->abandoned &&
           !block->direct && core__small_cache_limit() != 0;
}

void core__block_return(core__heap *heap, core__block *block)
{
    core__history_add(heap, CORE__ACTION_FREE_COMPLETED,
                      (core_memory){block->handle, block->offset}, block->size);
    block->freed_at =
        atomic_load_explicit(&heap->allocator->clock, memory_order_relaxed);
    if (!core__likely(may_defer(heap, block)) || !defer_join(heap, block))
        core__block_insert(heap, block);
}

void core__allocator_free(core_device *device, core__block *block)
{
    core__heap *heap = block->heap;
    bool give_back;

    if (core__unlikely(device->forked))
        return; /* the block and its neighbours are the parent's */
    if (core__unlikely(!heap)) {
        core__stream_uses_free(block->uses); /* from before a reset */
        core__block_free(block);
        return;
    }
    core__spin_lock(&heap->lock);
    set_inactive(heap, block);
    give_back = heap->abandoned || block->direct;
    if (core__unlikely(block->uses != NULL)) {
        core__block_free_used(heap, block);
    } else {
        core__block_return(heap, block);
        core__spin_unlock(&heap->lock);
    }
    if (core__unlikely(give_back))
        core__allocator_release_unused(device->allocator);
}
