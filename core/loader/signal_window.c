/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "loader/signal_window.h"

#include <errno.h>

/* A handler of the program interrupts the wait. */
static void *wait_for_end(void *argument)
{
    core__signal_window *window = argument;

    while (sem_wait(&window->end) != 0 && errno == EINTR)
        ;
    return NULL;
}

void core__signal_window_open(core__signal_window *window)
{
    window->open = false;
    if (sem_init(&window->end, 0, 0) != 0)
        return;
    window->open =
        pthread_create(&window->thread, NULL, wait_for_end, window) == 0;
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
