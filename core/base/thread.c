/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/thread.h"

#include "base/fork.h"
#include "base/memory.h"
#include "base/upcalls.h"

#include <pthread.h>
#include <stdlib.h>

_Thread_local core__thread *core__self_pointer
    __attribute__((tls_model("initial-exec")));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core__thread *all;
static pthread_key_t key;
static bool has_key; /* under the lock */

/* Where there is no memory for a record, threads share this one: its lists
 * stay empty, and only the text of an error can come out mixed. */
static core__thread emergency = {.shared = true};
/* What ended threads counted. */
static int64_t ended_storages[16];
static uint64_t ended_launches[CORE__LAUNCH_SLOTS];
static _Atomic uint32_t first_included = CORE__THREAD_INCLUDED;
static _Atomic uint32_t first_call_flags;

static void free_list(core__free_block *block)
{
    while (block) {
        core__free_block *next = block->next;

        core__free(block);
        block = next;
    }
}

/* Storages that a thread made and did not free.  Those of kept tensors count as
 * made: they are taken off here.  The thread may be computing. */
static int64_t storages_of(const core__thread *thread, uint32_t slot)
{
    bool cached = __atomic_load_n(&thread->blocks_of, __ATOMIC_ACQUIRE);
    int64_t sum = __atomic_load_n(&thread->storages[slot], __ATOMIC_RELAXED);

    if (!cached || thread->blocks_slot != slot)
        return sum;
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        sum -= __atomic_load_n(&thread->whole[i].count, __ATOMIC_RELAXED);
    return sum;
}

/* Under the lock: what a thread that is no more had counted. */
static void keep_counts(const core__thread *thread)
{
    for (uint32_t i = 0; i < 16; i++)
        ended_storages[i] += storages_of(thread, i);
    for (size_t i = 0; i < CORE__LAUNCH_SLOTS; i++)
        ended_launches[i] += thread->launches[i];
}

static void call(const core__thread_end *ends, core__thread *self)
{
    for (; *ends; ends++)
        (*ends)(self);
}

static void thread_end(void *argument)
{
    core__thread *self = argument;

    call(core__base_upcalls.thread_finish, self);
    pthread_mutex_lock(&lock);
    if (self->previous)
        self->previous->next = self->next;
    else
        all = self->next;
    if (self->next)
        self->next->previous = self->previous;
    keep_counts(self);
    pthread_mutex_unlock(&lock);
    call(core__base_upcalls.thread_release, self);
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        free_list(self->small[i].head);
    core__self_pointer = NULL;
    free(self);
}

/* Only the forking thread lives on in the child.  What the others counted is
 * kept; their records stay, and so do the lists in them. */
void core__threads_fork(core__fork at)
{
    core__thread *self = core__self_pointer;

    core__fork_mutex(at, &lock);
    if (at != CORE__FORK_CHILD)
        return;
    for (core__thread *thread = all; thread; thread = thread->next)
        if (thread != self)
            keep_counts(thread);
    all = self;
    if (self)
        self->next = self->previous = NULL;
}

/* Under the lock, which a fork knows of as it does not of pthread_once. */
static void make_key(void)
{
    if (!has_key)
        has_key = pthread_key_create(&key, thread_end) == 0;
}

core__thread *core__thread_create(void)
{
    core__thread *self = calloc(1, sizeof *self);

    if (!self)
        return &emergency;
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        self->small[i].room = CORE__SMALL_KEPT;
    self->included = atomic_load(&first_included);
    self->call_flags = atomic_load(&first_call_flags);
    pthread_mutex_lock(&lock);
    make_key();
    pthread_setspecific(key, self);
    self->next = all;
    if (all)
        all->previous = self;
    all = self;
    pthread_mutex_unlock(&lock);
    core__self_pointer = self;
    return self;
}

void core__thread_each(void (*visit)(core__thread *, void *), void *context)
{
    pthread_mutex_lock(&lock);
    for (core__thread *thread = all; thread; thread = thread->next)
        visit(thread, context);
    pthread_mutex_unlock(&lock);
}

int64_t core__thread_storages(uint32_t slot)
{
    int64_t sum;

    pthread_mutex_lock(&lock);
    sum = ended_storages[slot];
    for (core__thread *thread = all; thread; thread = thread->next)
        sum += storages_of(thread, slot);
    pthread_mutex_unlock(&lock);
    return sum + __atomic_load_n(&emergency.storages[slot], __ATOMIC_RELAXED);
}

uint64_t core__thread_launches(uint32_t slot)
{
    uint64_t sum;

    pthread_mutex_lock(&lock);
    sum = ended_launches[slot] +
          __atomic_load_n(&emergency.launches[slot], __ATOMIC_RELAXED);
    for (core__thread *thread = all; thread; thread = thread->next)
        sum += __atomic_load_n(&thread->launches[slot], __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    return sum;
}

void core__thread_included_set(uint32_t included)
{
    atomic_store(&first_included, included);
}

void core__thread_call_flag_set(uint32_t flag, bool on)
{
    core__thread *self = core__thread_self();

    if (on) {
        atomic_fetch_or(&first_call_flags, flag);
        self->call_flags |= flag;
    } else {
        atomic_fetch_and(&first_call_flags, ~flag);
        self->call_flags &= ~flag;
    }
}
