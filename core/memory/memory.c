/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory for storages.  Devices with streams have a caching allocator
 * (allocator.h).  For devices whose memory is the host's, small blocks are
 * cached per thread, so that the result of a small call needs no lock and no
 * system call, and larger blocks are cached for all threads (cache.h).
 * Everything else is allocated by the device. */

#include "memory/memory.h"

#include "base/memory.h"
#include "base/observe.h"
#include "device/stream.h"
#include "memory/allocator.h"
#include "memory/cache.h"
#include "memory/heap.h"
#include "memory/upcalls.h"

enum { UNIT = 64 };

static core__free_block *block_of(core_memory memory)
{
    return (core__free_block *)((char *)memory.handle + memory.offset);
}

/* Allocates memory of the device; an error has a message even if the plugin set
 * none. */
static core_status alloc_raw(core_device *device, uint64_t size,
                             core_memory *out_memory)
{
    uint32_t errors = core__error_sequence();
    core_status status = device->memory.alloc(device->impl, size, out_memory);

    if (core__unlikely(status != CORE_OK))
        core__device_error_record(device, status, errors);
    return status;
}

/* Larger blocks of a device that the host can access: cached ones, or new ones
 * of the device; if it has no more memory, the cache is emptied first. */
static core_status alloc_cached(core_device *device, uint64_t size,
                                core_memory *out_memory, uint64_t *out_capacity)
{
    core__error_record earlier;
    core_status status;

    if (core__block_cache_take(device, size, out_memory, out_capacity))
        return CORE_OK;
    core__error_save(&earlier);
    status = alloc_raw(device, *out_capacity, out_memory);
    if (core__unlikely(status == CORE_ERROR_OUT_OF_MEMORY)) {
        core__block_cache_empty(device);
        status = alloc_raw(device, *out_capacity, out_memory);
    }
    return core__error_restore_on_success(&earlier, status);
}

static core_status too_large(const core_device *device, uint64_t size)
{
    return core__error(
        CORE_ERROR_OUT_OF_MEMORY,
        "%s: %llu bytes exceed the device's largest allocation of %llu",
        device->name, (unsigned long long)size,
        (unsigned long long)device->properties.largest_allocation);
}

static inline bool is_too_large(const core_device *device, uint64_t size)
{
    return size > (UINT64_C(1) << 56) ||
           (device->properties.largest_allocation &&
            size > device->properties.largest_allocation);
}

/* Blocks that threads do not cache: of the caching allocator, or of the device
 * itself. */
static core_status alloc_large(core_device *device, uint64_t size,
                               core_memory *out_memory, uint64_t *out_capacity,
                               struct core__block **out_block)
{
    uint64_t granularity = device->properties.granularity;

    if (device->allocator) {
        if (core__unlikely(core__small_cache_limit() == 0) &&
            core__alloc_fault())
            return core__error_memory(size);
        if (core__unlikely(is_too_large(device, size)))
            return too_large(device, size);
        return core__allocator_alloc(device, core__stream_current(device), size,
                                     out_memory, out_capacity, out_block);
    }
    if (core__alloc_fault())
        return core__error_memory(size);
    if (is_too_large(device, size))
        return too_large(device, size);
    if (granularity > 1)
        size = (size + granularity - 1) / granularity * granularity;
    if (device->small_blocks)
        return alloc_cached(device, size, out_memory, out_capacity);
    *out_capacity = size;
    return alloc_raw(device, size, out_memory);
}

core_status core__memory_alloc(core_device *device, uint64_t size,
                               core_memory *out_memory, uint64_t *out_capacity,
                               struct core__block **out_block)
{
    core__thread *self = core__thread_self();
    uint64_t cls = (size + UNIT - 1) / UNIT;
    core_status status;

    *out_memory = (core_memory){0};
    *out_capacity = 0;
    *out_block = NULL;
    if (size == 0)
        return CORE_OK;
    if (core__likely(device->small_blocks && cls < CORE__SMALL_CLASSES)) {
        core__free_block *block = self->blocks[cls].head;

        *out_capacity = cls * UNIT;
        if (core__likely(block && self->blocks_of == device)) {
            self->blocks[cls].head = block->next;
            self->blocks[cls].free_slots++;
            out_memory->handle = block;
            return CORE_OK;
        }
        if (core__alloc_fault())
            return core__error_memory(size);
        return alloc_raw(device, cls * UNIT, out_memory);
    }
    status = alloc_large(device, size, out_memory, out_capacity, out_block);
    if (core__likely(status == CORE_OK))
        core__observe_memory(device, (int64_t)*out_capacity);
    return status;
}

void core__memory_free(core_device *device, core_memory memory,
                       uint64_t capacity, struct core__block *block)
{
    core__thread *self = core__thread_self();
    uint64_t cls = capacity / UNIT;

    if (block) {
        core__observe_memory(device, -(int64_t)capacity);
        core__allocator_free(device, block);
        return;
    }
    if (capacity == 0)
        return;
    if (!device->small_blocks || cls >= CORE__SMALL_CLASSES)
        core__observe_memory(device, -(int64_t)capacity);
    if (device->small_blocks && cls < CORE__SMALL_CLASSES &&
        capacity % UNIT == 0 && !self->shared) {
        if (!self->blocks_of) {
            self->blocks_slot = core__keys_slot(device->keys);
            __atomic_store_n(&self->blocks_of, device, __ATOMIC_RELEASE);
            self->cached_tensors_limit =
                core__small_cache_limit() ? CORE__TENSOR_CACHE_LIMIT : 0;
            for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
                self->blocks[i].free_slots = core__small_cache_limit();
        }
        if (core__likely(self->blocks_of == device &&
                         self->blocks[cls].free_slots != 0)) {
            core__free_block *freed = block_of(memory);

            freed->next = self->blocks[cls].head;
            self->blocks[cls].head = freed;
            self->blocks[cls].free_slots--;
            return;
        }
    }
    if (device->small_blocks && core__block_cache_put(device, memory, capacity))
        return;
    device->memory.free(device->impl, memory, capacity);
}

/* Memory of one device cached by a thread. */
typedef struct thread_cache {
    const core_device *wanted; /* NULL: any */
    core_device *device;       /* NULL: nothing yet */
    core_tensor *tensors;
    core__free_block *blocks[CORE__SMALL_CLASSES];
} thread_cache;

static void collect(core__thread *thread, void *context)
{
    thread_cache *cache = context;

    if (cache->device || !thread->blocks_of ||
        (cache->wanted && thread->blocks_of != cache->wanted))
        return;
    cache->device = thread->blocks_of;
    core__memory_upcalls.tensor_cache_collect(thread, &cache->tensors);
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++) {
        cache->blocks[i] = thread->blocks[i].head;
        thread->blocks[i].head = NULL;
    }
    __atomic_store_n(&thread->blocks_of, NULL, __ATOMIC_RELAXED);
}

static void free_cached(const thread_cache *cache)
{
    const core_device *device = cache->device;

    core__memory_upcalls.tensor_cache_drop(cache->tensors);
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        for (core__free_block *b = cache->blocks[i], *next; b; b = next) {
            next = b->next;
            device->memory.free(device->impl, (core_memory){b, 0}, i * UNIT);
        }
}

void core__memory_thread_end(core__thread *thread)
{
    thread_cache cache = {0};

    collect(thread, &cache);
    free_cached(&cache);
}

/* One thread at a time: the plugin must not meet the lock of the list of
 * threads. */
void core__memory_free_cached(const core_device *device)
{
    thread_cache cache;

    do {
        cache = (thread_cache){.wanted = device};
        core__thread_each(collect, &cache);
        free_cached(&cache);
    } while (cache.device);
}

void core__memory_pools_end(core__thread *thread)
{
    core__pools_thread_end(thread);
}
