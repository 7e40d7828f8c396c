/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* For mremap. */
#define _GNU_SOURCE

#include "code_memory.h"

#if defined(CPU_X86_ISA) && defined(__linux__)

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ALIGNMENT = 64,
    MOST_SLABS = 1024,
    AHEAD = 32 /* Valgrind reads some bytes beyond the end of code */
};

/* Pages that several pieces of code share, filled from the beginning. */
typedef struct slab {
    struct slab *next;
    uint8_t *base;
    uint32_t used; /* bytes, of CPU_CODE_MOST */
    uint32_t live; /* pieces of code */
} slab;

static slab *slabs; /* the newest first */
static uint32_t nslabs;
static bool refused; /* atomic */
static pid_t owner;  /* atomic: who is using the slabs; 0: nobody */

/* A child may have been forked while a thread of its parent used the slabs.
 * Then they may be inconsistent: the child keeps the code, and forgets them. */
static void lock(void)
{
    const pid_t self = getpid();

    for (;;) {
        pid_t other = 0;

        if (__atomic_compare_exchange_n(&owner, &other, self, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
        if (other != self &&
            __atomic_compare_exchange_n(&owner, &other, self, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            slabs = NULL;
            nslabs = 0;
            return;
        }
        sched_yield();
    }
}

static void unlock(void)
{
    __atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
}

static void refuse(void)
{
    if (errno != ENOMEM)
        __atomic_store_n(&refused, true, __ATOMIC_RELAXED);
}

static slab *new_slab(void)
{
    slab *s = nslabs < MOST_SLABS ? calloc(1, sizeof *s) : NULL;
    void *base;

    if (!s)
        return NULL;
    base = mmap(NULL, CPU_CODE_MOST, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0);
    if (base == MAP_FAILED) {
        refuse();
        free(s);
        return NULL;
    }
    s->base = base;
    s->next = slabs;
    slabs = s;
    nslabs++;
    return s;
}

/* Writes to copies of the pages, which then take their places.  Other threads
 * may be running code there: each page is replaced atomically, and code that
 * was written before does not change. */
static bool append(slab *s, const void *bytes, uint32_t size, uint32_t whole)
{
    const uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
    const uint32_t begin = s->used / page * page;
    const size_t length = (s->used + whole - begin + page - 1) / page * page;
    uint8_t *copy = mmap(NULL, length, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED) {
        refuse();
        return false;
    }
    if (s->used > begin)
        memcpy(copy, s->base + begin, s->used - begin);
    memcpy(copy + (s->used - begin), bytes, size);
    if (mprotect(copy, length, PROT_READ | PROT_EXEC) != 0 ||
        mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
               s->base + begin) == MAP_FAILED) {
        refuse();
        munmap(copy, length);
        return false;
    }
    return true;
}

static void drop(slab **at)
{
    slab *s = *at;

    *at = s->next;
    munmap(s->base, CPU_CODE_MOST);
    free(s);
    nslabs--;
}

void *cpu_code_add(const void *bytes, uint32_t size)
{
    const uint32_t whole =
        (size + AHEAD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *code = NULL;
    slab *s;

    if (size == 0 || size > CPU_CODE_MOST - AHEAD || cpu_code_refused())
        return NULL;
    lock();
    s = slabs;
    if (!s || whole > CPU_CODE_MOST - s->used)
        s = new_slab();
    if (s && append(s, bytes, size, whole)) {
        code = s->base + s->used;
        s->used += whole;
        s->live++;
    } else if (s && s->live == 0) {
        drop(&slabs);
    }
    unlock();
    return code;
}

void cpu_code_remove(void *code)
{
    slab **at = &slabs;

    if (!code)
        return;
    lock();
    while (*at && ((uint8_t *)code < (*at)->base ||
                   (uint8_t *)code >= (*at)->base + CPU_CODE_MOST))
        at = &(*at)->next;
    if (*at && --(*at)->live == 0)
        drop(at);
    unlock();
}

bool cpu_code_refused(void)
{
    return __atomic_load_n(&refused, __ATOMIC_RELAXED);
}

void cpu_code_shutdown(void)
{
    while (slabs)
        drop(&slabs);
    refused = false;
}

#else

#include <stddef.h>

void *cpu_code_add(const void *bytes, uint32_t size)
{
    (void)bytes;
    (void)size;
    return NULL;
}

void cpu_code_remove(void *code)
{
    (void)code;
}

bool cpu_code_refused(void)
{
    return true;
}

void cpu_code_shutdown(void) {}

#endif
