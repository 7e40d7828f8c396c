/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "runtime/once.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <time.h>

int cpu_once_wait = 5000;

/* Held while anything is prepared, and during a fork. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pthread_t holder; /* of the lock, or 0 */
static bool for_fork;            /* why the holder has it */
static bool interrupted;         /* another thread was preparing at the fork */

void cpu_once_prepare(cpu_once_state *once, void (*prepare)(void))
{
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&once->done, memory_order_relaxed)) {
        atomic_store(&holder, pthread_self());
        prepare();
        atomic_store_explicit(&once->done, true, memory_order_release);
        atomic_store(&holder, 0);
    }
    pthread_mutex_unlock(&lock);
}

void *cpu_once_open(const char *name, const char **out_reason)
{
    void *library = NULL;

    *out_reason = "the process was forked while a library was being opened";
    if (interrupted)
        return NULL;
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        *out_reason = dlerror();
    return library;
}

/* ------------------------------------------------------------------ fork -- */

static struct timespec deadline(void)
{
    struct timespec at;
    long nanoseconds;

    clock_gettime(CLOCK_REALTIME, &at);
    nanoseconds = at.tv_nsec + cpu_once_wait % 1000 * 1000000L;
    at.tv_sec += cpu_once_wait / 1000 + nanoseconds / 1000000000;
    at.tv_nsec = nanoseconds % 1000000000;
    return at;
}

static bool is_holder(void)
{
    return atomic_load(&holder) == pthread_self();
}

/* A thread that forks while it prepares has the lock. */
static void before_fork(void)
{
    const struct timespec until = deadline();

    if (is_holder() || pthread_mutex_timedlock(&lock, &until) != 0)
        return;
    atomic_store(&holder, pthread_self());
    for_fork = true;
}

static void after_fork(void)
{
    if (!is_holder() || !for_fork)
        return;
    for_fork = false;
    atomic_store(&holder, 0);
    pthread_mutex_unlock(&lock);
}

/* Another thread than the one that was preparing does not exist here. */
static void after_fork_in_child(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;

    if (is_holder()) {
        after_fork();
        return;
    }
    interrupted = true;
    for_fork = false;
    atomic_store(&holder, 0);
    lock = unlocked;
}

/* Before any thread can hold the lock. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
