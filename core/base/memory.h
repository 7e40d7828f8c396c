/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory.h: host memory for the core's objects.
 *
 * All of it is allocated by core__alloc, so that a test can make any
 * allocation fail.  Objects created and freed in every call (tensors,
 * storages, nodes) use core__small_alloc: free lists per thread and size
 * class, without locks. */

#ifndef CORE_BASE_MEMORY_H
#define CORE_BASE_MEMORY_H

#include "base/thread.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL if there is no memory; the caller reports the error.  Aligned to 16
 * bytes. */
void *core__alloc(size_t size);
/* NULL also if the product is too large for a size. */
void *core__alloc_array(size_t count, size_t size);
void *core__alloc_zero(size_t size);
void *core__realloc(void *memory, size_t size);
char *core__strdup(const char *text);
char *core__strndup(const char *text, size_t size);
void core__free(void *memory);

/* The slow paths of the functions below. */
void *core__small_alloc_slow(size_t rounded);
void core__small_free_slow(core__thread *self, void *memory, size_t cls);

enum { CORE__SMALL_UNIT = 64, CORE__SMALL_CACHE_LIMIT = 256 };

static inline size_t core__small_class(size_t size)
{
    return (size + CORE__SMALL_UNIT - 1) / CORE__SMALL_UNIT;
}

/* Returns a block of the thread's free list, or NULL.  Does not call any
 * function, for callers that must not save registers. */
static inline void *core__small_take(core__thread *self, size_t size)
{
    size_t cls = core__small_class(size);
    core__free_block *block;

    if (cls >= CORE__SMALL_CLASSES || !self->small[cls].head)
        return NULL;
    block = self->small[cls].head;
    self->small[cls].head = block->next;
    self->small[cls].free_slots++;
    return block;
}

/* Any size; above the largest class it is plain core__alloc. */
static inline void *core__small_alloc_of(core__thread *self, size_t size)
{
    void *block = core__small_take(self, size);

    if (__builtin_expect(!block, 0))
        return core__small_alloc_slow(core__small_class(size) *
                                      CORE__SMALL_UNIT);
    return block;
}

static inline void *core__small_alloc(size_t size)
{
    return core__small_alloc_of(core__thread_self(), size);
}

/* Returns a block to the thread's free list; false if the list is full.  Does
 * not call any function, like core__small_take. */
static inline bool core__small_put(core__thread *self, void *memory,
                                   size_t size)
{
    size_t cls = core__small_class(size);
    core__free_block *block = memory;

    if (cls >= CORE__SMALL_CLASSES || self->small[cls].free_slots == 0)
        return false;
    block->next = self->small[cls].head;
    self->small[cls].head = block;
    self->small[cls].free_slots--;
    return true;
}

/* size: the size with which the block was allocated. */
static inline void core__small_free_of(core__thread *self, void *memory,
                                       size_t size)
{
    if (__builtin_expect(!core__small_put(self, memory, size), 0))
        core__small_free_slow(self, memory, core__small_class(size));
}

static inline void core__small_free(void *memory, size_t size)
{
    core__small_free_of(core__thread_self(), memory, size);
}

/* Fault injection for tests: the allocation after `allowed` more of them
 * fails, and with `sticky` all later ones.  While armed, every thread's free
 * lists are off, so that each use is an allocation.  Negative: off.
 * core__alloc_count returns the number of allocations requested since. */
void core__alloc_fault_set(int64_t allowed, bool sticky);
int64_t core__alloc_count(void);
/* Counts an allocation served by another allocator, such as device memory;
 * true if it must fail. */
bool core__alloc_fault(void);
/* Blocks allocated and not freed, without those in free lists. */
int64_t core__alloc_live(void);
/* How many blocks of a class a thread may keep; 0 during fault injection. */
uint32_t core__small_cache_limit(void);

#endif
