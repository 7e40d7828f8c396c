/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "runtime/once.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

int cpu_once_wait = 5000;

/* Held while anything is prepared. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pthread_t preparing; /* the thread that prepares, or 0 */
static bool interrupted;            /* another thread was, at the fork */

void cpu_once_prepare(cpu_once_state *once, void (*prepare)(void))
{
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&once->done, memory_order_relaxed)) {
        atomic_store(&preparing, pthread_self());
        prepare();
        atomic_store_explicit(&once->done, true, memory_order_release);
        atomic_store(&preparing, 0);
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

/* A function pointer from a data pointer, as POSIX allows. */
bool cpu_once_find(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);

    memcpy(out_function, &symbol, sizeof symbol);
    return symbol != NULL;
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

static bool is_preparing(void)
{
    return atomic_load(&preparing) == pthread_self();
}

/* A thread that forks while it prepares has the lock. */
static void before_fork(void)
{
    const struct timespec until = deadline();

    if (!is_preparing() && pthread_mutex_timedlock(&lock, &until) == 0)
        pthread_mutex_unlock(&lock);
}

/* Another thread than the one that forked does not exist here. */
static void after_fork_in_child(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;

    if (is_preparing())
        return;
    if (atomic_load(&preparing) != 0)
        interrupted = true;
    atomic_store(&preparing, 0);
    lock = unlocked;
}

/* Before any thread can hold the lock. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, NULL, after_fork_in_child);
}
