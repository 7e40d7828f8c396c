/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/thread_start.h"

#include <signal.h>

int core__thread_start(pthread_t *out, void *(*run)(void *argument),
                       void *argument)
{
    sigset_t all, before;
    int failure;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(out, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}
