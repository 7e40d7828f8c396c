/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory.h: host memory for the core's own objects.
 *
 * All of it comes from core__alloc, so that a test can make any allocation
 * fail.  Objects that live and die with every call (tensors, storages, nodes)
 * use core__small_alloc: free lists per thread, by size class, no lock. */

#ifndef CORE_BASE_MEMORY_H
#define CORE_BASE_MEMORY_H

#include "base/thread.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL when there is no memory; the caller reports.  Aligned to 16. */
void *core__alloc(size_t size);
void *core__alloc_zero(size_t size);
void *core__realloc(void *memory, size_t size);
char *core__strdup(const char *text);
char *core__strndup(const char *text, size_t size);
void core__free(void *memory);

/* The slow halves of the two below. */
void *core__small_refill(size_t rounded);
void core__small_spill(core__thread *self, void *memory, size_t cls);

enum { CORE__SMALL_UNIT = 64, CORE__SMALL_KEPT = 256 };

static inline size_t core__small_class(size_t size)
{
    return (size + CORE__SMALL_UNIT - 1) / CORE__SMALL_UNIT;
}

/* A block that the thread keeps, or NULL: without a call, for who saves no
 * registers while there is one. */
static inline void *core__small_take(core__thread *self, size_t size)
{
    size_t cls = core__small_class(size);
    core__free_block *block;

    if (cls >= CORE__SMALL_CLASSES || !self->small[cls].head)
        return NULL;
    block = self->small[cls].head;
    self->small[cls].head = block->next;
    self->small[cls].room++;
    return block;
}

/* size may be anything; above the largest class it is plain core__alloc. */
static inline void *core__small_alloc_of(core__thread *self, size_t size)
{
    void *block = core__small_take(self, size);

    if (__builtin_expect(!block, 0))
        return core__small_refill(core__small_class(size) * CORE__SMALL_UNIT);
    return block;
}

static inline void *core__small_alloc(size_t size)
{
    return core__small_alloc_of(core__thread_self(), size);
}

/* Gives a block back to those that the thread keeps; false if that has enough
 * of them: without a call, as core__small_take. */
static inline bool core__small_give(core__thread *self, void *memory,
                                    size_t size)
{
    size_t cls = core__small_class(size);
    core__free_block *block = memory;

    if (cls >= CORE__SMALL_CLASSES || self->small[cls].room == 0)
        return false;
    block->next = self->small[cls].head;
    self->small[cls].head = block;
    self->small[cls].room--;
    return true;
}

/* size: as it was allocated with. */
static inline void core__small_free_of(core__thread *self, void *memory,
                                       size_t size)
{
    if (__builtin_expect(!core__small_give(self, memory, size), 0))
        core__small_spill(self, memory, core__small_class(size));
}

static inline void core__small_free(void *memory, size_t size)
{
    core__small_free_of(core__thread_self(), memory, size);
}

/* Fault injection, for tests: the allocation after `allowed` more of them
 * fails, and with `sticky` all later ones.  Turns the free lists of every
 * thread off while armed, so that each use is an allocation.  Negative: off.
 * core__alloc_count tells how many allocations were asked for since. */
void core__alloc_fault_set(int64_t allowed, bool sticky);
int64_t core__alloc_count(void);
/* Counts an allocation that another allocator serves, device memory say; true
 * if it is the one to fail. */
bool core__alloc_fault(void);
/* Blocks allocated and not freed, free lists not counted. */
int64_t core__alloc_live(void);
/* How many blocks of a class a thread may keep: 0 under fault injection. */
uint32_t core__small_kept(void);

#endif
