/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* signal_window.h: signals of the program while code of a plugin runs with all
 * signals blocked. */

#ifndef CORE_LOADER_SIGNAL_WINDOW_H
#define CORE_LOADER_SIGNAL_WINDOW_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

typedef struct core__signal_window {
    pthread_t thread;
    sem_t end;
    bool open;
} core__signal_window;

/* Starts a thread with the mask of the caller, which may then block all signals:
 * those without a handler end the process, even if the caller never returns.
 * Handlers run later, when the caller restores its mask, or on other threads of
 * the program.  Without memory for a thread there is none, and all signals
 * wait. */
void core__signal_window_open(core__signal_window *window);
/* Ends the thread.  Does nothing if there is none. */
void core__signal_window_close(core__signal_window *window);

#endif
