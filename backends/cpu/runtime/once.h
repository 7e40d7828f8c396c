/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* once.h: what is prepared at first use, tables and libraries, across fork().
 *
 * A fork waits until no other thread is preparing anything: a child that was
 * forked while a library was being opened would have one, and a dynamic loader,
 * in an unfinished state.  The wait is limited, because a C library may run the
 * fork handlers with a lock that the opened library needs to register its own
 * (glibc before 2.36).  It only waits: a fork handler that runs later may need a
 * lock that another thread holds while it prepares something.  A child that was
 * forked while another thread was preparing nevertheless prepares its tables
 * again, and opens no library. */

#ifndef CPU_ONCE_H
#define CPU_ONCE_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct cpu_once_state {
    _Atomic bool done; /* initially false */
} cpu_once_state;

/* The part of cpu_once that may wait. */
void cpu_once_prepare(cpu_once_state *once, void (*prepare)(void));

/* Calls prepare unless it was called.  When this returns, it has returned.
 * prepare must not call this, with any state, because there is one lock; it may
 * be called again in a child, where it finds its data half-written.
 * Thread-safe. */
static inline void cpu_once(cpu_once_state *once, void (*prepare)(void))
{
    if (__builtin_expect(
            !atomic_load_explicit(&once->done, memory_order_acquire), 0))
        cpu_once_prepare(once, prepare);
}

/* For prepare: opens a library.  If it cannot be, returns NULL and the reason,
 * which is valid until the thread's next call of the dynamic loader. */
void *cpu_once_open(const char *name, const char **out_reason);

/* For prepare: sets *out_function, which is a pointer to a function, to the
 * address of a name in an opened library.  Returns whether it has one. */
bool cpu_once_find(void *library, const char *name, void *out_function);

/* How long a fork waits, in milliseconds.  Changed by tests alone. */
extern int cpu_once_wait;

#endif
