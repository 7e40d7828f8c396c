/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fork.h: locks across fork().
 *
 * Only the forking thread exists in the child, so a lock that another thread
 * held is never released there.  There are three kinds of locks:
 *
 * - Locks of the core alone: no plugin, no user function and nothing that waits
 *   is called while one is held.  fork.c takes them before the fork and
 *   releases them on both sides, so the data they guard is consistent in the
 *   child.
 * - Locks that are held while plugins or the program are called.  These may
 *   have their own locks, which they take before a fork, so fork.c does not
 *   take these locks, or waits only a while for them (device/registry.c).  The
 *   child reinitialises them; the data they guard is either valid at every
 *   moment, or is reinitialised as well.
 * - Locks of single objects, which no list records: either the holder stores
 *   core__fork_mark in the lock, or the first thread that takes the lock in the
 *   child reinitialises it (core__fork_lock).
 *
 * Objects of a device with streams need none of these: the child cannot use
 * such a device (device/registry.c). */

#ifndef CORE_BASE_FORK_H
#define CORE_BASE_FORK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* Never 0, and different in a child and its parent.  A lock with another mark
 * is held by a thread that does not exist in this process.  Written only in a
 * child, while it has one thread. */
extern uint8_t core__fork_mark;

void core__fork_lock_renew(pthread_mutex_t *lock, _Atomic uint8_t *mark);

/* mark: core__fork_mark at the time when the lock was initialised. */
static inline void core__fork_lock(pthread_mutex_t *lock, _Atomic uint8_t *mark)
{
    if (__builtin_expect(atomic_load_explicit(mark, memory_order_acquire) !=
                             core__fork_mark,
                         0))
        core__fork_lock_renew(lock, mark);
    pthread_mutex_lock(lock);
}

typedef enum core__fork_phase {
    CORE__FORK_PREPARE,
    CORE__FORK_PARENT,
    CORE__FORK_CHILD
} core__fork_phase;

/* For a fork handler: takes the lock, or releases it on both sides. */
void core__fork_mutex(core__fork_phase at, pthread_mutex_t *lock);

/* Fork handler of the lock of core__fork_lock_renew.  Must be the last in the
 * list. */
void core__fork_renew_lock_fork(core__fork_phase at);

#endif
