/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fork.h: what becomes of locks when the process is forked.
 *
 * In the child only the forking thread is left, and what another one held is
 * held for good.  There are three kinds of locks:
 *
 * - Of the core alone: while it is held no plugin, no function of the program
 *   and nothing that waits is called.  fork.c takes it before the fork and releases
 *   it on both sides, so that what it guards is whole in the child.
 * - Plugins or the program are called while it is held.  They may have locks of
 *   their own that they take before a fork, so it is not taken then: in the
 *   child it begins anew where somebody had it, and what it guards is either
 *   written so that any moment of it is good, or begins anew, too.
 * - Of one object, and there is no list of them: held with core__fork_mark, or
 *   renewed by who takes it first in the child (core__fork_lock).
 *
 * What belongs to a device with streams is none of these: the child has no such
 * device (device/registry.c). */

#ifndef CORE_BASE_FORK_H
#define CORE_BASE_FORK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* Never 0, and another one in a child than in its parent: what is marked with
 * another one is held by a thread that is not here.  Written in children only,
 * while there is one thread. */
extern uint8_t core__fork_mark;

void core__fork_renew(pthread_mutex_t *lock, _Atomic uint8_t *mark);

/* mark: core__fork_mark when the lock was made. */
static inline void core__fork_lock(pthread_mutex_t *lock, _Atomic uint8_t *mark)
{
    if (__builtin_expect(atomic_load_explicit(mark, memory_order_acquire) !=
                             core__fork_mark,
                         0))
        core__fork_renew(lock, mark);
    pthread_mutex_lock(lock);
}

typedef enum core__fork {
    CORE__FORK_PREPARE,
    CORE__FORK_PARENT,
    CORE__FORK_CHILD
} core__fork;

/* For a fork handler: takes the lock, or releases it on both sides. */
void core__fork_mutex(core__fork at, pthread_mutex_t *lock);

/* The lock of core__fork_renew; last of all. */
void core__fork_renewing(core__fork at);

#endif
