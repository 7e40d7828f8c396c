/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/fork.h"

#include "base/upcalls.h"

#include <stddef.h>

uint8_t core__fork_mark = 1;

static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;

void core__fork_renewing(core__fork at)
{
    core__fork_mutex(at, &renewing);
}

void core__fork_mutex(core__fork at, pthread_mutex_t *lock)
{
    if (at == CORE__FORK_PREPARE)
        pthread_mutex_lock(lock);
    else
        pthread_mutex_unlock(lock);
}

/* In a child; several threads may come at once by now. */
void core__fork_renew(pthread_mutex_t *lock, _Atomic uint8_t *mark)
{
    pthread_mutex_lock(&renewing);
    if (atomic_load(mark) != core__fork_mark) {
        pthread_mutex_init(lock, NULL);
        atomic_store_explicit(mark, core__fork_mark, memory_order_release);
    }
    pthread_mutex_unlock(&renewing);
}

static void prepare(void)
{
    for (size_t i = 0; core__base_upcalls.fork_locks[i]; i++)
        core__base_upcalls.fork_locks[i](CORE__FORK_PREPARE);
}

/* Releases the locks in reverse order. */
static void release(core__fork at)
{
    size_t count = 0;

    while (core__base_upcalls.fork_locks[count])
        count++;
    while (count-- > 0)
        core__base_upcalls.fork_locks[count](at);
}

static void parent(void)
{
    release(CORE__FORK_PARENT);
}

static void child(void)
{
    core__fork_mark =
        core__fork_mark == UINT8_MAX ? 1 : (uint8_t)(core__fork_mark + 1);
    release(CORE__FORK_CHILD);
    for (size_t i = 0; core__base_upcalls.fork_child[i]; i++)
        core__base_upcalls.fork_child[i]();
}

/* Before any plugin's and, mostly, the program's: what they take before a fork
 * is then taken before this. */
__attribute__((constructor)) static void watch(void)
{
    pthread_atfork(prepare, parent, child);
}
