/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/memory.h"

#include "base/upcalls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t fault_allowed = -1;
static _Atomic bool fault_armed;
static _Atomic bool fault_sticky;
static _Atomic int64_t count;
static _Atomic int64_t live;

bool core__alloc_fault(void)
{
    int64_t left;

    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    if (!atomic_load_explicit(&fault_armed, memory_order_relaxed))
        return false;
    left = atomic_fetch_sub(&fault_allowed, 1);
    return left == 0 || (left < 0 && atomic_load(&fault_sticky));
}

void *core__alloc(size_t size)
{
    void *memory = core__alloc_fault() ? NULL : malloc(size ? size : 1);

    if (memory)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return memory;
}

void *core__alloc_array(size_t count, size_t size)
{
    size_t bytes;

    return __builtin_mul_overflow(count, size, &bytes) ? NULL
                                                       : core__alloc(bytes);
}

void *core__alloc_zero(size_t size)
{
    /* Memory fresh from the system is zero, and calloc does not clear it
     * again. */
    void *memory = core__alloc_fault() ? NULL : calloc(1, size ? size : 1);

    if (memory)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return memory;
}

void *core__realloc(void *memory, size_t size)
{
    if (!memory)
        return core__alloc(size);
    return core__alloc_fault() ? NULL : realloc(memory, size ? size : 1);
}

char *core__strndup(const char *text, size_t size)
{
    char *copy = core__alloc(size + 1);

    if (copy) {
        memcpy(copy, text, size);
        copy[size] = '\0';
    }
    return copy;
}

char *core__strdup(const char *text)
{
    return core__strndup(text, strlen(text));
}

void core__free(void *memory)
{
    if (!memory)
        return;
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(memory);
}

void *core__small_alloc_slow(size_t rounded)
{
    return core__alloc(rounded);
}

void core__small_free_slow(core__thread *self, void *memory, size_t cls)
{
    (void)self;
    (void)cls;
    core__free(memory);
}

int64_t core__alloc_count(void)
{
    return atomic_load(&count);
}

static void count_cached(core__thread *thread, void *context)
{
    int64_t *cached = context;

    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        *cached +=
            2 * thread->cached_tensors[i].count; /* a tensor and its storage */
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        for (core__free_block *b = thread->small[i].head; b; b = b->next)
            ++*cached;
}

int64_t core__alloc_live(void)
{
    int64_t cached = 0;

    core__thread_each(count_cached, &cached);
    return atomic_load(&live) - cached;
}

/* Empties a thread's free lists and sets how many blocks they may keep.  Only
 * for tests, while no other thread computes. */
static void set_free_list_limit(core__thread *thread, void *context)
{
    uint32_t limit = *(uint32_t *)context;

    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++) {
        core__free_block *block = thread->small[i].head;

        while (block) {
            core__free_block *next = block->next;

            core__free(block);
            block = next;
        }
        thread->small[i].head = NULL;
        thread->small[i].free_slots = thread->shared ? 0 : limit;
    }
}

uint32_t core__small_cache_limit(void)
{
    return atomic_load(&fault_armed) ? 0 : CORE__SMALL_CACHE_LIMIT;
}

void core__alloc_fault_set(int64_t allowed, bool sticky)
{
    uint32_t limit = allowed < 0 ? CORE__SMALL_CACHE_LIMIT : 0;

    atomic_store(&fault_armed, false);
    core__thread_self();
    core__base_upcalls.free_cached_blocks();
    core__thread_each(set_free_list_limit, &limit);
    atomic_store(&fault_allowed, allowed);
    atomic_store(&fault_sticky, sticky);
    atomic_store(&count, 0);
    atomic_store(&fault_armed, allowed >= 0);
}
