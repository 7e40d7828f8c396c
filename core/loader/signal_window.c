/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "loader/signal_window.h"

#include <errno.h>
#include <signal.h>

/* Signals with a handler: it runs on the program's threads alone, since it may
 * call libcore, whose lock the opening thread holds, or jump. */
static void add_handled(sigset_t *signals)
{
    sigemptyset(signals);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;

        if (sigaction(number, NULL, &action) == 0 &&
            action.sa_handler != SIG_DFL)
            sigaddset(signals, number);
    }
}

static void *wait_for_end(void *argument)
{
    core__signal_window *window = argument;

    while (sem_wait(&window->end) != 0 && errno == EINTR)
        ;
    return NULL;
}

void core__signal_window_open(core__signal_window *window)
{
    sigset_t handled, before;

    window->open = false;
    if (sem_init(&window->end, 0, 0) != 0)
        return;
    add_handled(&handled);
    pthread_sigmask(SIG_BLOCK, &handled, &before);
    window->open =
        pthread_create(&window->thread, NULL, wait_for_end, window) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!window->open)
        sem_destroy(&window->end);
}

void core__signal_window_close(core__signal_window *window)
{
    if (!window->open)
        return;
    sem_post(&window->end);
    pthread_join(window->thread, NULL);
    sem_destroy(&window->end);
    window->open = false;
}
