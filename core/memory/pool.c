/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Private pools: a heap per stream, abandoned with the pool's last reference
 * and released when all its blocks have been freed. */

#include "base/memory.h"
#include "memory/heap.h"

/* A pool that this thread has begun; innermost first. */
typedef struct active_pool {
    struct active_pool *next;
    core_memory_pool *pool; /* with a reference */
} active_pool;

core_memory_pool *core__pool_current(const core__thread *self,
                                     const core_device *device)
{
    for (const active_pool *at = self->pools; at; at = at->next)
        if (at->pool->device == device)
            return at->pool;
    return NULL;
}

void core__pools_thread_end(core__thread *thread)
{
    while (thread->pools) {
        active_pool *at = thread->pools;

        thread->pools = at->next;
        core_memory_pool_release(at->pool);
        core__free(at);
    }
}

core_status core_memory_pool_create(core_device *device,
                                    core_memory_pool **out_pool)
{
    core_memory_pool *pool;

    CORE__NOT_NULL(out_pool);
    *out_pool = NULL;
    CORE__NOT_NULL(device);
    CORE_TRY(core__allocator_require(device, "core_memory_pool_create"));
    pool = core__alloc(sizeof *pool);
    if (!pool)
        return core__error_memory(sizeof *pool);
    atomic_init(&pool->references, 1);
    pool->device = core_device_retain(device);
    *out_pool = pool;
    return CORE_OK;
}

core_memory_pool *core_memory_pool_retain(core_memory_pool *pool)
{
    if (pool)
        atomic_fetch_add_explicit(&pool->references, 1, memory_order_relaxed);
    return pool;
}

void core__pool_abandon(core__allocator *allocator,
                        const core_memory_pool *pool)
{
    for (core__heap *heap = allocator->heaps; heap; heap = heap->next) {
        if (heap->pool != pool)
            continue;
        core__spin_lock(&heap->lock);
        heap->abandoned = true;
        heap->pool = NULL;
        core__spin_unlock(&heap->lock);
        atomic_store(&allocator->abandoned, true);
    }
}

void core__pool_end(core_memory_pool *pool)
{
    core_device *device = pool->device;

    core__free(pool);
    core__allocator_release_unused(device->allocator);
    core_device_release(device);
}

void core_memory_pool_release(core_memory_pool *pool)
{
    core__allocator *allocator;
    core_memory_pool *first;
    core_device *device;

    if (!pool || atomic_fetch_sub_explicit(&pool->references, 1,
                                           memory_order_acq_rel) != 1)
        return;
    /* the pool's reference is released with it */
    device = core_device_retain(pool->device);
    allocator = device->allocator;
    first = atomic_load(&allocator->ended_pools);
    do
        pool->next_ended = first;
    while (
        !atomic_compare_exchange_weak(&allocator->ended_pools, &first, pool));
    core__allocator_end_pending(allocator);
    core_device_release(device);
}

core_status core_memory_pool_begin(core_memory_pool *pool)
{
    core__thread *self = core__thread_self();
    active_pool *at;

    CORE__NOT_NULL(pool);
    CORE_TRY(core__thread_cut(__func__));
    at = core__alloc(sizeof *at);
    if (!at || self->shared) {
        core__free(at);
        return core__error_memory(sizeof *at);
    }
    at->pool = core_memory_pool_retain(pool);
    at->next = self->pools;
    self->pools = at;
    return CORE_OK;
}

core_status core_memory_pool_end(core_memory_pool *pool)
{
    core__thread *self = core__thread_self();
    active_pool *at = self->pools;

    CORE__NOT_NULL(pool);
    CORE_TRY(core__thread_cut(__func__));
    if (!at || at->pool != pool)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            at ? "core_memory_pool_end: a pool begun after this one has not "
                 "been ended"
               : "core_memory_pool_end: this thread has begun no pool");
    self->pools = at->next;
    core_memory_pool_release(pool);
    core__free(at);
    return CORE_OK;
}
