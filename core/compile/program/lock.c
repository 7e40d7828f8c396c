/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The lock of programs (lock.h). */

#include "compile/program/lock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void core__compiled_lock(void)
{
    pthread_mutex_lock(&lock);
}

void core__compiled_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void core__compiled_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}
