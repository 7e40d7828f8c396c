/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* OpenCL libraries start threads and, with their compilers, set signal
 * handlers.  Signals belong to the program: handlers are restored, and threads
 * start with all signals blocked. */

#include "opencl.h"

#include <signal.h>

enum { SIGNALS = 65 };

struct opencl_signal_guard {
    sigset_t mask;
    struct sigaction actions[SIGNALS];
};

/* Returns NULL without memory: then nothing is restored. */
opencl_signal_guard *opencl_signal_guard_begin(void)
{
    opencl_signal_guard *guard = calloc(1, sizeof *guard);
    sigset_t all;

    if (guard == NULL)
        return NULL;
    for (int s = 1; s < SIGNALS; s++)
        sigaction(s, NULL, &guard->actions[s]);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &guard->mask);
    return guard;
}

void opencl_signal_guard_end(opencl_signal_guard *guard)
{
    if (guard == NULL)
        return;
    for (int s = 1; s < SIGNALS; s++) {
        struct sigaction now;

        if (sigaction(s, NULL, &now) == 0 &&
            (now.sa_handler != guard->actions[s].sa_handler ||
             now.sa_flags != guard->actions[s].sa_flags))
            sigaction(s, &guard->actions[s], NULL);
    }
    pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
    free(guard);
}
