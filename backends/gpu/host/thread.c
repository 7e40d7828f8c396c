/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread.c: threads and signals. */

#include <gpu/host/thread.h>

#include <pthread.h>

void gpu_signals_block(sigset_t *out_before)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, out_before);
}

void gpu_signals_restore(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

int gpu_thread_start(void *(*function)(void *), void *argument)
{
    pthread_attr_t detached;
    sigset_t before;
    pthread_t thread;
    int failed;

    gpu_signals_block(&before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&thread, &detached, function, argument);
    pthread_attr_destroy(&detached);
    gpu_signals_restore(&before);
    return failed;
}
