/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Epoch-based reclamation: frees memory that running calls may still read,
 * after these calls.
 *
 * A thread in a dispatched call has depth > 0 (base/thread.h).  Memory is
 * passed to core__reclaim after the tables no longer refer to it; once every
 * thread has been seen outside all calls, no call can be using it.  Readers pay
 * two plain stores; the writer pays a membarrier, so that a store of depth that
 * is still in a processor's store buffer cannot be missed. */

#include "base/fork.h"
#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/registry.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core__retired *waiting;
static bool registered; /* guarded by the lock */
static bool has_barrier;

void core__reclaim_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

/* With the lock held.  pthread_once could wait forever in a child that was
 * forked meanwhile, for a thread that does not exist there. */
static void register_barrier(void)
{
    if (registered)
        return;
    registered = true;
    has_barrier = syscall(SYS_membarrier,
                          MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void check_thread(core__thread *thread, void *context)
{
    uint32_t allowed = thread == core__thread_self() ? thread->depth : 0;

    if (atomic_load_explicit(&thread->depth, memory_order_acquire) > allowed)
        *(bool *)context = true;
}

static bool all_outside(void)
{
    core__thread *self = core__thread_self();
    bool inside = atomic_load(&self->depth) > 0;

    if (inside || !has_barrier ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
        return false;
    core__thread_each(check_thread, &inside);
    return !inside;
}

/* Without membarrier in the system's kernel, nothing is ever freed:
 * registrations are few, and keeping them is better than freeing them too
 * early. */
void core__reclaim(core__retired *link, void *memory)
{
    core__retired *freeable = NULL;

    pthread_mutex_lock(&lock);
    register_barrier();
    link->memory = memory;
    link->next = waiting;
    waiting = link;
    if (all_outside()) {
        freeable = waiting;
        waiting = NULL;
    }
    pthread_mutex_unlock(&lock);
    while (freeable) {
        core__retired *next = freeable->next;

        core__free(freeable->memory);
        freeable = next;
    }
}
