/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/fork.h"

#include "base/upcalls.h"

#include <stddef.h>

uint8_t core__fork_mark = 1;

static pthread_mutex_t renew_lock = PTHREAD_MUTEX_INITIALIZER;

void core__fork_renewing(core__fork at)
{
    core__fork_mutex(at, &renew_lock);
}

void core__fork_mutex(core__fork at, pthread_mutex_t *lock)
{
    if (at == CORE__FORK_PREPARE)
        pthread_mutex_lock(lock);
    else
        pthread_mutex_unlock(lock);
}

/* In a child, where several threads may already be running. */
void core__fork_renew(pthread_mutex_t *lock, _Atomic uint8_t *mark)
{
    pthread_mutex_lock(&renew_lock);
    if (atomic_load(mark) != core__fork_mark) {
        pthread_mutex_init(lock, NULL);
        atomic_store_explicit(mark, core__fork_mark, memory_order_release);
    }
    pthread_mutex_unlock(&renew_lock);
}

static void before_fork(void)
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

static void after_fork_in_parent(void)
{
    release(CORE__FORK_PARENT);
}

static void after_fork_in_child(void)
{
    core__fork_mark =
        core__fork_mark == UINT8_MAX ? 1 : (uint8_t)(core__fork_mark + 1);
    release(CORE__FORK_CHILD);
    for (size_t i = 0; core__base_upcalls.fork_child[i]; i++)
        core__base_upcalls.fork_child[i]();
}

/* Registered before any plugin's handlers and usually before the program's:
 * handlers run in reverse order before a fork, so their locks are taken before
 * these. */
__attribute__((constructor)) static void register_handlers(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
