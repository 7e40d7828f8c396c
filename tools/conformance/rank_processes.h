/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* rank_processes.h: the processes of the ranks of a test of core.collectives. */

#ifndef CONFORMANCE_RANK_PROCESSES_H
#define CONFORMANCE_RANK_PROCESSES_H

#include "collective_rank.h"

#include <sys/types.h>

typedef struct rank_processes {
    pid_t ids[RANKS_MOST];     /* 0: it has ended */
    char ends[RANKS_MOST][80]; /* how, if not as it should */
    bool hangs[RANKS_MOST];    /* it was ended after the limit */
} rank_processes;

/* From now on, SIGINT and SIGTERM end the ranks of a test, and no more. */
void rank_processes_catch(void);
/* The signal that came, or 0. */
int rank_processes_signal(void);

/* Runs a test and waits until all ranks have ended, for at most `limit` seconds;
 * then ends those that are left.  Returns 0, or the errno of a process that
 * could not be started; no process is left. */
int rank_processes_run(const rank_setup *setup, const collective_test *test,
                       rank_shared *shared, uint32_t ranks, double limit,
                       rank_processes *out);
/* The rank because of which the test failed, or `ranks`: others may have failed,
 * or hang, because it did. */
uint32_t rank_processes_cause(const rank_processes *all,
                              const rank_shared *shared, uint32_t ranks);

#endif
