/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* signal_guard.c: OpenCL libraries start threads and, with their compilers, set
 * handlers of signals.  Signals are the program's: handlers are put back, and
 * threads start with all signals blocked. */

#include "opencl.h"

#include <signal.h>

enum { SIGNALS = 65 };

struct opencl_quiet {
    sigset_t mask;
    struct sigaction actions[SIGNALS];
};

/* NULL without memory: then nothing is put back. */
opencl_quiet *opencl_quiet_begin(void)
{
    opencl_quiet *quiet = calloc(1, sizeof *quiet);
    sigset_t all;

    if (quiet == NULL)
        return NULL;
    for (int s = 1; s < SIGNALS; s++)
        sigaction(s, NULL, &quiet->actions[s]);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &quiet->mask);
    return quiet;
}

void opencl_quiet_end(opencl_quiet *quiet)
{
    if (quiet == NULL)
        return;
    for (int s = 1; s < SIGNALS; s++) {
        struct sigaction now;

        if (sigaction(s, NULL, &now) == 0 &&
            (now.sa_handler != quiet->actions[s].sa_handler ||
             now.sa_flags != quiet->actions[s].sa_flags))
            sigaction(s, &quiet->actions[s], NULL);
    }
    pthread_sigmask(SIG_SETMASK, &quiet->mask, NULL);
    free(quiet);
}
