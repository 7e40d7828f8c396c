/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What a running call may still read is freed later.
 *
 * A thread inside a dispatched call has depth > 0 (base/thread.h).  Memory is
 * handed here after the tables no longer show it; once every thread has been
 * seen outside of all calls, nobody can hold it.  Readers pay two plain
 * stores; the writer pays a membarrier, so that a store of depth which is
 * still in some processor's buffer cannot be missed. */

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
static bool registered; /* under the lock */
static bool has_barrier;

void core__reclaim_fork(core__fork at)
{
    core__fork_mutex(at, &lock);
}

/* Under the lock, and not by pthread_once: in a child that was forked
 * meanwhile, that may wait for a thread that is not there. */
static void register_barrier(void)
{
    if (registered)
        return;
    registered = true;
    has_barrier = syscall(SYS_membarrier,
                          MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void look(core__thread *thread, void *context)
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
    core__thread_each(look, &inside);
    return !inside;
}

/* Where a kernel has no membarrier, nothing is ever freed: registrations are
 * few, and keeping them is right where freeing could be wrong. */
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
