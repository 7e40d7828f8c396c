/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/thread.h"

#include "base/error.h"
#include "base/fork.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/upcalls.h"

#include <pthread.h>
#include <stdlib.h>

_Thread_local core__thread *core__self_pointer
    __attribute__((tls_model("initial-exec")));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core__thread *threads;
static pthread_key_t key;
static bool key_created; /* guarded by the lock */

/* Shared by threads for whose record there is no memory: its lists stay empty,
 * and only error texts can mix. */
static core__thread emergency = {.shared = true};
/* Totals of threads that have ended. */
static int64_t ended_storages[16];
static uint64_t ended_launches[CORE__LAUNCH_SLOTS];
static _Atomic uint32_t initial_included = CORE__THREAD_INCLUDED;
static _Atomic uint32_t initial_call_flags;

static void free_list(core__free_block *block)
{
    while (block) {
        core__free_block *next = block->next;

        core__free(block);
        block = next;
    }
}

/* Storages that a thread created and did not free.  Those in the tensor cache
 * are counted as created, so they are subtracted.  The thread may be
 * running. */
static int64_t storages_of(const core__thread *thread, uint32_t slot)
{
    bool cached = __atomic_load_n(&thread->blocks_of, __ATOMIC_ACQUIRE);
    int64_t sum = __atomic_load_n(&thread->storages[slot], __ATOMIC_RELAXED);

    if (!cached || thread->blocks_slot != slot)
        return sum;
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        sum -=
            __atomic_load_n(&thread->cached_tensors[i].count, __ATOMIC_RELAXED);
    return sum;
}

/* With the lock held: adds an ended thread's counters to the totals. */
static void add_to_totals(const core__thread *thread)
{
    for (uint32_t i = 0; i < 16; i++)
        ended_storages[i] += storages_of(thread, i);
    for (size_t i = 0; i < CORE__LAUNCH_SLOTS; i++)
        ended_launches[i] += thread->launches[i];
}

static void call_each(const core__thread_end_hook *ends, core__thread *self)
{
    for (; *ends; ends++)
        (*ends)(self);
}

static void thread_end(void *argument)
{
    core__thread *self = argument;

    call_each(core__base_upcalls.thread_finish, self);
    pthread_mutex_lock(&lock);
    if (self->previous)
        self->previous->next = self->next;
    else
        threads = self->next;
    if (self->next)
        self->next->previous = self->previous;
    add_to_totals(self);
    pthread_mutex_unlock(&lock);
    call_each(core__base_upcalls.thread_release, self);
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        free_list(self->small[i].head);
    core_error_release(self->replaced_error);
    core__self_pointer = NULL;
    free(self);
}

/* Only the forking thread exists in the child.  The counters of the others are
 * added to the totals; their records and the lists in them are leaked. */
void core__threads_fork(core__fork_phase at)
{
    core__thread *self = core__self_pointer;

    core__fork_mutex(at, &lock);
    if (at != CORE__FORK_CHILD)
        return;
    for (core__thread *thread = threads; thread; thread = thread->next)
        if (thread != self)
            add_to_totals(thread);
    threads = self;
    if (self)
        self->next = self->previous = NULL;
}

/* With the lock held: unlike pthread_once, it is safe across a fork. */
static void make_key(void)
{
    if (!key_created)
        key_created = pthread_key_create(&key, thread_end) == 0;
}

core__thread *core__thread_create(void)
{
    core__thread *self = calloc(1, sizeof *self);

    if (!self)
        return &emergency;
    for (size_t i = 0; i < CORE__SMALL_CLASSES; i++)
        self->small[i].free_slots = CORE__SMALL_CACHE_LIMIT;
    self->included = atomic_load(&initial_included);
    self->call_flags = atomic_load(&initial_call_flags);
    pthread_mutex_lock(&lock);
    make_key();
    pthread_setspecific(key, self);
    self->next = threads;
    if (threads)
        threads->previous = self;
    threads = self;
    pthread_mutex_unlock(&lock);
    core__self_pointer = self;
    return self;
}

void core__thread_each(void (*visit)(core__thread *, void *), void *context)
{
    pthread_mutex_lock(&lock);
    for (core__thread *thread = threads; thread; thread = thread->next)
        visit(thread, context);
    pthread_mutex_unlock(&lock);
}

int64_t core__thread_storages(uint32_t slot)
{
    int64_t sum;

    pthread_mutex_lock(&lock);
    sum = ended_storages[slot];
    for (core__thread *thread = threads; thread; thread = thread->next)
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
    for (core__thread *thread = threads; thread; thread = thread->next)
        sum += __atomic_load_n(&thread->launches[slot], __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    return sum;
}

core_status core__thread_cut(const char *name)
{
    core__thread *self = core__thread_self();

    return core__likely(!self->lazy) ? CORE_OK
                                     : core__base_upcalls.lazy_cut(self, name);
}

void core__thread_cut_later(const char *name)
{
    core__thread *self = core__thread_self();

    if (core__unlikely(self->lazy != NULL))
        core__base_upcalls.lazy_cut_later(self, name);
}

core_status core__thread_pause(const char *name, core__lazy_pause *out_pause)
{
    core__thread *self = core__thread_self();

    *out_pause = (core__lazy_pause){NULL, NULL};
    if (core__likely(!self->lazy))
        return CORE_OK;
    CORE_TRY(core__base_upcalls.lazy_cut(self, name));
    *out_pause = (core__lazy_pause){self->lazy, self->trace};
    self->lazy = NULL;
    self->trace = NULL;
    self->included &= (uint32_t)~CORE__KEYS_TRACED;
    return CORE_OK;
}

void core__thread_resume(const core__lazy_pause *pause)
{
    core__thread *self = core__thread_self();

    if (core__likely(!pause->lazy))
        return;
    self->lazy = pause->lazy;
    self->trace = pause->trace;
    self->included |= (uint32_t)CORE__KEYS_TRACED;
}

core_status core__thread_check_unrecorded(const char *name)
{
    if (!(core__thread_self()->included & CORE__KEY_RECORD))
        return CORE_OK;
    if (core__thread_self()->lazy)
        return core__thread_cut(name);
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: the host waits, or accesses the content of a "
                       "tensor, which a program that is being recorded cannot "
                       "contain",
                       name);
}

void core__thread_included_set(uint32_t included)
{
    atomic_store(&initial_included, included);
}

void core__thread_call_flag_set(uint32_t flag, bool on)
{
    core__thread *self = core__thread_self();

    if (on) {
        atomic_fetch_or(&initial_call_flags, flag);
        self->call_flags |= flag;
    } else {
        atomic_fetch_and(&initial_call_flags, ~flag);
        self->call_flags &= ~flag;
    }
}
