/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* spin.h: a spin lock for short critical sections that rarely meet.  Taking it
 * is one locked instruction and releasing it none: half the cost of a mutex. */

#ifndef CORE_MEMORY_SPIN_H
#define CORE_MEMORY_SPIN_H

#include "base/fork.h"

#include <sched.h>
#include <stdatomic.h>

typedef struct core__spin {
    _Atomic unsigned held;
} core__spin;

/* A lock with another mark is taken over: its holder does not exist in this
 * process. */
static inline __attribute__((cold)) void core__spin_wait(core__spin *spin,
                                                         unsigned before)
{
    unsigned looks = 0;

    while (before == core__fork_mark) {
        while (atomic_load_explicit(&spin->held, memory_order_relaxed)) {
            /* The holder may not be running. */
            if (++looks > 64)
                sched_yield();
#if defined(__x86_64__)
            else
                __builtin_ia32_pause();
#endif
        }
        before = atomic_exchange_explicit(&spin->held, core__fork_mark,
                                          memory_order_acquire);
    }
}

static inline void core__spin_lock(core__spin *spin)
{
    unsigned before = atomic_exchange_explicit(&spin->held, core__fork_mark,
                                               memory_order_acquire);

    if (__builtin_expect(before != 0, 0))
        core__spin_wait(spin, before);
}

static inline void core__spin_unlock(core__spin *spin)
{
    atomic_store_explicit(&spin->held, 0u, memory_order_release);
}

#endif
