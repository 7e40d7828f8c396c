/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* launched_ranks.h: core-conformance --collectives as one of the processes that a
 * launcher such as mpirun has started, all on one machine.  A process makes the
 * tests one after another, and ends at the first failure. */

#ifndef CONFORMANCE_LAUNCHED_RANKS_H
#define CONFORMANCE_LAUNCHED_RANKS_H

#include "collective_rank.h"

/* Returns the exit status.  Rank 0 prints the outcomes. */
int launched_rank_run(const rank_setup *setup, const char *filter, double limit,
                      uint32_t number, uint32_t size);

#endif
