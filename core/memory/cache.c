/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "memory/cache.h"

#include "base/fork.h"
#include "base/memory.h"

#include <pthread.h>
#include <string.h>

enum {
    LEAST_LOG2 = 10,
    MOST_LOG2 = 34,
    STEPS_LOG2 = 3,
    STEPS = 1 << STEPS_LOG2, /* classes per power of two */
    CLASSES = (MOST_LOG2 - LEAST_LOG2) * STEPS,
    DEVICES = 4
};

typedef struct cached_block {
    struct cached_block *next;
} cached_block;

/* Host devices are few; usually there is one. */
typedef struct cache {
    core_device *device;
    uint64_t cached; /* bytes */
    cached_block *classes[CLASSES];
} cache;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cache caches[DEVICES];

/* Another thread may have been changing a list, so all of them are emptied;
 * the blocks that they had are leaked in this process. */
void core__block_cache_after_fork(void)
{
    if (pthread_mutex_trylock(&lock) == 0) {
        pthread_mutex_unlock(&lock);
        return;
    }
    pthread_mutex_init(&lock, NULL);
    memset(caches, 0, sizeof caches);
}

/* The class and its size, 2^(10 + n/8); CLASSES: such blocks are not cached. */
static inline uint32_t class_of(uint64_t size, uint64_t *out_capacity)
{
    uint32_t power = 63 - (uint32_t)__builtin_clzll((size - 1) | 1);
    uint32_t step = power - STEPS_LOG2;
    uint64_t above;

    *out_capacity = size;
    if (size <= UINT64_C(1) << LEAST_LOG2 || size > UINT64_C(1) << MOST_LOG2)
        return CLASSES;
    above = (size - (UINT64_C(1) << power) + (UINT64_C(1) << step) - 1) >> step;
    *out_capacity = (UINT64_C(1) << power) + (above << step);
    return (power - LEAST_LOG2) * STEPS + (uint32_t)above - 1;
}

static cache *find(core_device *device)
{
    cache *unused = NULL;

    for (uint32_t i = 0; i < DEVICES; i++) {
        if (caches[i].device == device)
            return &caches[i];
        if (!caches[i].device && !unused)
            unused = &caches[i];
    }
    if (unused)
        unused->device = device;
    return unused;
}

bool core__block_cache_take(core_device *device, uint64_t size,
                            core_memory *out_memory, uint64_t *out_capacity)
{
    uint32_t class = class_of(size, out_capacity);
    cached_block *block = NULL;
    cache *from;

    if (class == CLASSES)
        return false;
    pthread_mutex_lock(&lock);
    from = find(device);
    if (from)
        block = from->classes[class];
    if (block) {
        from->classes[class] = block->next;
        from->cached -= *out_capacity;
    }
    pthread_mutex_unlock(&lock);
    *out_memory = (core_memory){block, 0};
    return block != NULL;
}

/* The cache uses at most an eighth of the device's memory. */
static bool has_space(const cache *to, uint64_t capacity)
{
    uint64_t total = to->device->properties.total_memory;

    return to->cached + capacity <= total / 8;
}

bool core__block_cache_put(core_device *device, core_memory memory,
                           uint64_t capacity)
{
    cached_block *block =
        (cached_block *)((char *)memory.handle + memory.offset);
    uint64_t same;
    uint32_t class = class_of(capacity, &same);
    bool keep;
    cache *to;

    if (class == CLASSES || same != capacity || core__small_cache_limit() == 0)
        return false; /* during fault injection every use is an allocation */
    pthread_mutex_lock(&lock);
    to = find(device);
    keep = to && has_space(to, capacity);
    if (keep) {
        block->next = to->classes[class];
        to->classes[class] = block;
        to->cached += capacity;
    }
    pthread_mutex_unlock(&lock);
    return keep;
}

void core__block_cache_empty(core_device *device)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < DEVICES; i++) {
        if (caches[i].device != device)
            continue;
        for (uint32_t class = 0; class < CLASSES; class ++) {
            uint64_t capacity = (UINT64_C(1) << (LEAST_LOG2 + class / STEPS)) /
                                STEPS * (STEPS + 1 + class % STEPS);

            while (caches[i].classes[class]) {
                cached_block *block = caches[i].classes[class];

                caches[i].classes[class] = block->next;
                device->memory.free(device->impl, (core_memory){block, 0},
                                    capacity);
            }
        }
        caches[i].cached = 0;
        caches[i].device = NULL;
    }
    pthread_mutex_unlock(&lock);
}
