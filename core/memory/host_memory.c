/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Pinned host memory, cached: allocating it costs the system as much as a
 * large copy.
 *
 * Blocks in use are sorted by address, because a copy looks up any address in
 * them; free blocks are listed by size, eight classes per power of two.  A
 * freed block waits for an event on each stream that copied with it.
 *
 * After a reset of the device the memory remains readable and writable until
 * it is freed, but is no longer pinned: it is not reused, and copies wait.
 *
 * Memory that a program registers is a block in use, too, but never cached. */

#include "memory/host_memory.h"

#include "base/memory.h"
#include "memory/heap.h"
#include "memory/imported.h"

#include <libcore/tensor.h>

#include <stdlib.h>

enum { LEAST_LOG2 = 12, STEPS = 8, CLASSES = (48 - LEAST_LOG2) * STEPS };

typedef struct host_block {
    struct host_block *next; /* in the list of free or of awaiting blocks */
    char *data;
    uint64_t size; /* as requested */
    uint64_t capacity;
    uint32_t class;
    uint32_t generation; /* the device's at allocation */
    bool tensor;         /* belongs to a tensor, which alone frees it */
    bool registered;     /* the program's memory */
    bool pending;        /* being registered, or unregistered: not pinned */
    core__stream_use *uses;
} host_block;

typedef struct host_pool {
    core_device *device;
    pthread_mutex_t lock;
    host_block **used; /* by address */
    uint64_t count;
    uint64_t capacity;
    host_block *awaiting; /* oldest first */
    host_block *free[CLASSES];
    uint64_t events;
} host_pool;

/* ---------------------------------------------------------- the plugin -- */

static core_status raw_alloc(core_device *device, uint64_t size, void **out)
{
    core_status status;
    uint32_t errors = core__error_sequence();

    *out = NULL;
    if (device->synchronous) {
        *out = aligned_alloc(64, core__round_up(size, 64));
        return *out ? CORE_OK : core__error_memory(size);
    }
    if (!device->interfaces.host_memory.alloc)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_host_memory_alloc: the plugin of \"%s\" does "
                           "not offer core.host_memory",
                           device->name);
    status = device->interfaces.host_memory.alloc(device->impl, size, out);
    return status == CORE_OK
               ? CORE_OK
               : core__device_check_status(device, status, errors);
}

static void raw_free(core_device *device, void *data, uint64_t size)
{
    if (device->synchronous)
        free(data);
    else
        device->interfaces.host_memory.free(device->impl, data, size);
}

static core_status raw_register(core_device *device, void *data, uint64_t size)
{
    core_status status;
    uint32_t errors = core__error_sequence();

    if (device->synchronous)
        return CORE_OK;
    status = device->interfaces.host_memory.register_memory(device->impl, data,
                                                            size);
    return status == CORE_OK
               ? CORE_OK
               : core__device_check_status(device, status, errors);
}

static void raw_unregister(core_device *device, void *data, uint64_t size)
{
    if (!device->synchronous)
        device->interfaces.host_memory.unregister_memory(device->impl, data,
                                                         size);
}

/* ------------------------------------------------------------ the pool -- */

/* NULL if nothing was allocated yet, or if the pool is another process's. */
static host_pool *pool_of(const core_device *device)
{
    if (device->forked)
        return NULL;
    return __atomic_load_n(&device->host_pool, __ATOMIC_ACQUIRE);
}

static core_status pool_make(core_device *device, host_pool **out_pool)
{
    host_pool *pool = pool_of(device);
    void *expected = NULL;

    *out_pool = pool;
    if (pool)
        return CORE_OK;
    CORE_TRY(core__device_check_process(device));
    pool = core__alloc_zero(sizeof *pool);
    if (!pool)
        return core__error_memory(sizeof *pool);
    pool->device = device;
    pthread_mutex_init(&pool->lock, NULL);
    if (!__atomic_compare_exchange_n(&device->host_pool, &expected, pool, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        pthread_mutex_destroy(&pool->lock);
        core__free(pool);
        pool = expected;
    }
    *out_pool = pool;
    return CORE_OK;
}

/* Another thread may have been changing the pool, so it is abandoned; a new
 * one is created when needed. */
void core__host_memory_after_fork(core_device *device)
{
    host_pool *pool = pool_of(device);

    if (pool && pthread_mutex_trylock(&pool->lock) == 0)
        pthread_mutex_unlock(&pool->lock);
    else
        device->host_pool = NULL;
}

static uint32_t class_of(uint64_t size, uint64_t *out_capacity)
{
    uint64_t log2, step, above;

    if (size <= UINT64_C(1) << LEAST_LOG2) {
        *out_capacity = UINT64_C(1) << LEAST_LOG2;
        return 0;
    }
    log2 = 63 - (uint64_t)__builtin_clzll(size - 1);
    step = (UINT64_C(1) << log2) / STEPS;
    above = (size - (UINT64_C(1) << log2) + step - 1) / step;
    *out_capacity = (UINT64_C(1) << log2) + above * step;
    return (uint32_t)((log2 - LEAST_LOG2) * STEPS + above);
}

/* The number of used blocks that begin at or below the address. */
static uint64_t position(const host_pool *pool, const void *data)
{
    uint64_t low = 0, high = pool->count;

    while (low < high) {
        uint64_t middle = (low + high) / 2;

        if (pool->used[middle]->data <= (const char *)data)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The used block that contains the range, or NULL. */
static host_block *find(const host_pool *pool, const void *data, uint64_t size)
{
    uint64_t at = position(pool, data);
    host_block *block = at ? pool->used[at - 1] : NULL;

    if (!block)
        return NULL;
    return (uint64_t)((const char *)data - block->data) + size <= block->size
               ? block
               : NULL;
}

static core_status grow_used(host_pool *pool)
{
    uint64_t capacity = pool->capacity ? 2 * pool->capacity : 16;
    host_block **used;

    if (pool->count < pool->capacity)
        return CORE_OK;
    used = core__realloc(pool->used, capacity * sizeof *used);
    if (!used)
        return core__error_memory(capacity * sizeof *used);
    pool->used = used;
    pool->capacity = capacity;
    return CORE_OK;
}

static void add_used(host_pool *pool, host_block *block)
{
    uint64_t at = position(pool, block->data);

    for (uint64_t i = pool->count++; i > at; i--)
        pool->used[i] = pool->used[i - 1];
    pool->used[at] = block;
}

static void remove_used(host_pool *pool, const host_block *block)
{
    uint64_t at = position(pool, block->data) - 1;

    pool->count--;
    for (uint64_t i = at; i < pool->count; i++)
        pool->used[i] = pool->used[i + 1];
}

static void add_free(host_pool *pool, host_block *block)
{
    block->next = pool->free[block->class];
    pool->free[block->class] = block;
}

/* Frees blocks whose streams are done.  The lock is held. */
static core__stream_use *collect_unused(host_pool *pool, core__stream_use *done)
{
    host_block **link = &pool->awaiting;
    bool mark = core__allocator_can_record_events(pool->device->allocator);

    while (*link) {
        host_block *block = *link;

        done = core__stream_uses_settle(pool->device, &block->uses, mark, false,
                                        &pool->events, done);
        if (block->uses) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        add_free(pool, block);
    }
    return done;
}

/* Waits for the streams without the lock, because they may be waiting for a
 * host callback that frees such memory. */
static core__stream_use *wait_for_all(host_pool *pool)
{
    bool mark = core__allocator_can_record_events(pool->device->allocator);
    core__stream_use *done = NULL;
    uint64_t events = 0;
    host_block *list;

    pthread_mutex_lock(&pool->lock);
    list = pool->awaiting;
    pool->awaiting = NULL;
    pthread_mutex_unlock(&pool->lock);
    for (host_block *block = list; block; block = block->next)
        done = core__stream_uses_settle(pool->device, &block->uses, mark, true,
                                        &events, done);
    pthread_mutex_lock(&pool->lock);
    pool->events += events;
    while (list) {
        host_block *block = list;

        list = block->next;
        if (block->uses) {
            block->next = pool->awaiting;
            pool->awaiting = block;
        } else {
            add_free(pool, block);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return done;
}

/* The lock is held; the list is destroyed without it. */
static host_block *take_free(host_pool *pool)
{
    host_block *list = NULL;

    for (uint32_t i = 0; i < CLASSES; i++)
        while (pool->free[i]) {
            host_block *block = pool->free[i];

            pool->free[i] = block->next;
            block->next = list;
            list = block;
        }
    return list;
}

static void destroy(core_device *device, host_block *list)
{
    while (list) {
        host_block *next = list->next;

        if (list->registered)
            raw_unregister(device, list->data, list->size);
        else
            raw_free(device, list->data, list->capacity);
        core__free(list);
        list = next;
    }
}

void core__host_memory_empty(core_device *device)
{
    host_pool *pool = pool_of(device);
    core__stream_use *done;
    host_block *list;

    if (!device->forked)
        core__imported_empty(device);
    if (!pool)
        return;
    done = wait_for_all(pool);
    pthread_mutex_lock(&pool->lock);
    list = take_free(pool);
    pthread_mutex_unlock(&pool->lock);
    core__stream_uses_free(done);
    destroy(device, list);
}

void core__host_memory_reset(core_device *device)
{
    host_pool *pool = pool_of(device);
    host_block *list, *awaiting;

    core__imported_settle(device);
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    list = take_free(pool);
    awaiting = pool->awaiting;
    pool->awaiting = NULL;
    pthread_mutex_unlock(&pool->lock);
    for (host_block *block = awaiting; block; block = block->next)
        core__stream_uses_free(block->uses);
    destroy(device, list);
    destroy(device, awaiting);
}

void core__host_memory_end(core_device *device)
{
    host_pool *pool = pool_of(device);

    core__host_memory_empty(device);
    if (!pool)
        return;
    while (pool->count) {
        host_block *block = pool->used[--pool->count];

        core__stream_uses_free(block->uses);
        block->next = NULL;
        destroy(device, block);
    }
    __atomic_store_n(&device->host_pool, NULL, __ATOMIC_RELEASE);
    pthread_mutex_destroy(&pool->lock);
    core__free(pool->used);
    core__free(pool);
}

/* ------------------------------------------------------------ the core -- */

bool core__host_memory_is_pinned(core_device *device, const void *data,
                                 uint64_t size)
{
    host_pool *pool = pool_of(device);
    host_block *block;
    bool pinned;

    if (!pool)
        return false;
    pthread_mutex_lock(&pool->lock);
    block = find(pool, data, size);
    pinned = block && !block->pending &&
             core__device_has_generation(device, block->generation);
    pthread_mutex_unlock(&pool->lock);
    return pinned;
}

bool core_host_memory_is_pinned(core_device *device, const void *data,
                                size_t size)
{
    return device && data && core__host_memory_is_pinned(device, data, size);
}

core_status core__host_memory_record_stream(core_device *device,
                                            const void *data,
                                            core_stream *stream)
{
    host_pool *pool = pool_of(device);
    core_status status = CORE_OK;
    host_block *block;

    if (!pool || device->synchronous)
        return CORE_OK;
    pthread_mutex_lock(&pool->lock);
    block = find(pool, data, 1);
    if (block && !block->pending)
        status = core__stream_uses_add(&block->uses, stream);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

/* -------------------------------------------------------------- public -- */

static core_status new_block(host_pool *pool, uint32_t class, uint64_t capacity,
                             host_block **out_block)
{
    host_block *block = core__alloc_zero(sizeof *block);
    uint32_t generation = atomic_load(&pool->device->generation);
    core__error_record earlier;
    void *data;
    core_status status;

    if (!block)
        return core__error_memory(sizeof *block);
    core__error_save(&earlier);
    status = raw_alloc(pool->device, capacity, &data);
    if (status == CORE_ERROR_OUT_OF_MEMORY) {
        core__host_memory_empty(pool->device);
        status = raw_alloc(pool->device, capacity, &data);
    }
    if (status != CORE_OK) {
        core__free(block);
        return status;
    }
    core__error_restore(&earlier);
    block->data = data;
    block->capacity = capacity;
    block->class = class;
    block->generation = generation;
    *out_block = block;
    return CORE_OK;
}

static core_status alloc(host_pool *pool, uint64_t size, bool tensor,
                         void **out_data)
{
    uint64_t capacity;
    uint32_t class = class_of(size, &capacity);
    core_status status = CORE_OK;
    core__stream_use *done = NULL;
    host_block *block;

    pthread_mutex_lock(&pool->lock);
    if (!pool->free[class])
        done = collect_unused(pool, NULL);
    block = pool->free[class];
    if (block)
        pool->free[class] = block->next;
    pthread_mutex_unlock(&pool->lock);
    core__stream_uses_free(done);
    if (!block)
        CORE_TRY(new_block(pool, class, capacity, &block));
    block->size = size;
    block->tensor = tensor;
    pthread_mutex_lock(&pool->lock);
    status = grow_used(pool);
    if (status == CORE_OK) {
        add_used(pool, block);
    } else {
        add_free(pool, block);
    }
    pthread_mutex_unlock(&pool->lock);
    if (status == CORE_OK)
        *out_data = block->data;
    return status;
}

core_status core__host_memory_alloc(core_device *device, size_t size,
                                    bool tensor, void **out_data)
{
    host_pool *pool;

    *out_data = NULL;
    if (size == 0 || size > UINT64_C(1) << 47)
        return core__error(
            size ? CORE_ERROR_OUT_OF_MEMORY : CORE_ERROR_INVALID_ARGUMENT,
            "core_host_memory_alloc: %zu bytes; 1 to 2^47 are accepted", size);
    CORE_TRY(pool_make(device, &pool));
    return alloc(pool, size, tensor, out_data);
}

core_status core_host_memory_alloc(core_device *device, size_t size,
                                   void **out_data)
{
    CORE__NOT_NULL(out_data);
    *out_data = NULL;
    CORE__NOT_NULL(device);
    return core__host_memory_alloc(device, size, false, out_data);
}

/* Why the memory cannot be freed by this caller; NULL: it can. */
static const char *reason_not_to_free(const host_block *block, const void *data,
                                      bool tensor)
{
    if (block && block->registered)
        return "it was registered, and core_host_memory_unregister ends that";
    if (!block || block->data != data)
        return "it is not allocated pinned memory";
    return block->tensor == tensor ? NULL
                                   : "it belongs to a tensor, which frees it";
}

core_status core__host_memory_free(core_device *device, void *data, bool tensor)
{
    core__stream_use *done = NULL;
    host_block **link;
    host_block *block;
    const char *reason;
    host_pool *pool;

    CORE_TRY(core__device_check_process(device));
    pool = pool_of(device);
    if (pool)
        pthread_mutex_lock(&pool->lock);
    block = pool ? find(pool, data, 1) : NULL;
    reason = reason_not_to_free(block, data, tensor);
    if (reason) {
        if (pool)
            pthread_mutex_unlock(&pool->lock);
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_host_memory_free: %p on \"%s\": %s", data,
                           device->name, reason);
    }
    remove_used(pool, block);
    block->next = NULL;
    if (!core__device_has_generation(device, block->generation)) {
        pthread_mutex_unlock(&pool->lock);
        core__stream_uses_free(block->uses);
        destroy(device, block);
        return CORE_OK;
    }
    for (link = &pool->awaiting; *link; link = &(*link)->next)
        ;
    *link = block;
    /* Records events now, because later ones would include more work. */
    done = collect_unused(pool, NULL);
    pthread_mutex_unlock(&pool->lock);
    core__stream_uses_free(done);
    return CORE_OK;
}

core_status core_host_memory_free(core_device *device, void *data)
{
    CORE__NOT_NULL(device);
    return data ? core__host_memory_free(device, data, false) : CORE_OK;
}

/* -------------------------------------------------------- registration -- */

/* A used block that has a byte in common with the range, or NULL.  With the
 * lock. */
static const host_block *find_overlap(const host_pool *pool, const char *data,
                                      uint64_t size)
{
    uint64_t at = position(pool, data);
    const host_block *block = at ? pool->used[at - 1] : NULL;

    if (block && (uint64_t)(data - block->data) < block->size)
        return block;
    block = at < pool->count ? pool->used[at] : NULL;
    return block && (uint64_t)(block->data - data) < size ? block : NULL;
}

/* Lists the block, so that no other that overlaps it can be. */
static core_status add_registered(host_pool *pool, host_block *block)
{
    core_status status;
    const host_block *other;

    pthread_mutex_lock(&pool->lock);
    other = find_overlap(pool, block->data, block->size);
    if (other)
        status = core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_host_memory_register: %llu bytes at %p overlap %llu bytes at "
            "%p, which are already pinned for \"%s\"",
            (unsigned long long)block->size, (void *)block->data,
            (unsigned long long)other->size, (void *)other->data,
            pool->device->name);
    else
        status = grow_used(pool);
    if (status == CORE_OK)
        add_used(pool, block);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

static core_status check_range(const core_device *device, const char *data,
                               size_t size)
{
    const core_host_memory_interface *table = &device->interfaces.host_memory;

    if (size == 0 || (uintptr_t)data + size < (uintptr_t)data)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_host_memory_register: %zu bytes at %p: the "
                           "size is 0 or the range overflows",
                           size, (const void *)data);
    if (!device->synchronous &&
        !(table->register_memory && table->unregister_memory))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_host_memory_register: the plugin of \"%s\" "
                           "does not register host memory of programs; "
                           "core_host_memory_alloc allocates pinned memory",
                           device->name);
    return CORE_OK;
}

core_status core_host_memory_register(core_device *device, void *data,
                                      size_t size)
{
    host_block *block;
    core_status status;
    host_pool *pool;

    CORE__NOT_NULL(device);
    CORE__NOT_NULL(data);
    CORE_TRY(check_range(device, data, size));
    if (atomic_load(&device->lost))
        return core__device_stale_error(device);
    CORE_TRY(pool_make(device, &pool));
    block = core__alloc_zero(sizeof *block);
    if (!block)
        return core__error_memory(sizeof *block);
    block->data = data;
    block->size = block->capacity = size;
    block->generation = atomic_load(&device->generation);
    block->registered = block->pending = true;
    status = add_registered(pool, block);
    if (status != CORE_OK) {
        core__free(block);
        return status;
    }
    status = raw_register(device, data, size);
    pthread_mutex_lock(&pool->lock);
    block->pending = false;
    if (status != CORE_OK)
        remove_used(pool, block);
    pthread_mutex_unlock(&pool->lock);
    if (status != CORE_OK)
        core__free(block);
    return status;
}

/* Waits for the work that uses the block; false while a capture prevents
 * that. */
static bool wait_for_block(host_pool *pool, host_block *block)
{
    core_device *device = pool->device;
    bool mark = device->synchronous ||
                core__allocator_can_record_events(device->allocator);
    core__stream_use *done = NULL;
    uint64_t events = 0;

    if (!core__device_has_generation(device, block->generation)) {
        core__stream_uses_free(block->uses);
        block->uses = NULL;
        return true;
    }
    done = core__stream_uses_settle(device, &block->uses, mark, true, &events,
                                    done);
    core__stream_uses_free(done);
    return !block->uses;
}

/* Finds a registered block, and marks it so that copies no longer use it; until
 * it is removed, nothing that overlaps it can be registered.  NULL: there is none
 * at `data`. */
static host_block *claim_registered(host_pool *pool, const void *data)
{
    host_block *block;

    pthread_mutex_lock(&pool->lock);
    block = find(pool, data, 1);
    if (block && (block->data != data || !block->registered || block->pending))
        block = NULL;
    if (block)
        block->pending = true;
    pthread_mutex_unlock(&pool->lock);
    return block;
}

core_status core_host_memory_unregister(core_device *device, void *data)
{
    host_block *block = NULL;
    host_pool *pool;
    bool done;

    CORE__NOT_NULL(device);
    CORE__NOT_NULL(data);
    CORE_TRY(core__device_check_process(device));
    pool = pool_of(device);
    if (pool)
        block = claim_registered(pool, data);
    if (!block)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_host_memory_unregister: %p is not the "
                           "beginning of memory that is registered for \"%s\"",
                           data, device->name);
    done = wait_for_block(pool, block);
    if (done)
        raw_unregister(device, data, block->size);
    pthread_mutex_lock(&pool->lock);
    block->pending = false;
    if (done)
        remove_used(pool, block);
    pthread_mutex_unlock(&pool->lock);
    if (done) {
        core__free(block);
        return CORE_OK;
    }
    return core__error(CORE_ERROR_BUSY,
                       "core_host_memory_unregister: copies use %p, and cannot "
                       "be waited for while work of \"%s\" is captured",
                       data, device->name);
}
