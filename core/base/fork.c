/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/fork.h"

#include <stddef.h>

uint8_t core__fork_mark = 1;

static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;

static void renewing_fork(core__fork at)
{
    core__fork_mutex(at, &renewing);
}

/* One that may be taken while another is held comes after that one. */
static void (*const owned[])(core__fork at) = {
    core__workers_fork,         core__plans_fork,
    core__reclaim_fork,         core__generators_fork,
    core__settings_fork,        core__alloc_options_fork,
    core__threads_fork,         core__captures_fork,
    core__profile_fork,         core__profile_clocks_fork,
    core__profile_session_fork, renewing_fork,
};

enum { OWNED = sizeof owned / sizeof *owned };

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
    for (size_t i = 0; i < OWNED; i++)
        owned[i](CORE__FORK_PREPARE);
}

static void parent(void)
{
    for (size_t i = OWNED; i-- > 0;)
        owned[i](CORE__FORK_PARENT);
}

static void child(void)
{
    core__fork_mark =
        core__fork_mark == UINT8_MAX ? 1 : (uint8_t)(core__fork_mark + 1);
    for (size_t i = OWNED; i-- > 0;)
        owned[i](CORE__FORK_CHILD);
    core__log_forked();
    core__registry_forked();
    core__devices_forked();
    core__state_forked();
    core__cache_forked();
    core__accumulate_forked();
}

/* Before any plugin's and, mostly, the program's: what they take before a fork
 * is then taken before this. */
__attribute__((constructor)) static void watch(void)
{
    pthread_atfork(prepare, parent, child);
}
