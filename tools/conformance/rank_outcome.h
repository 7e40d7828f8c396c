/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* rank_outcome.h: what a test of core.collectives has found, as text. */

#ifndef CONFORMANCE_RANK_OUTCOME_H
#define CONFORMANCE_RANK_OUTCOME_H

#include "rank_processes.h"

/* The first rank with a verdict (RANK_…), or `ranks`. */
uint32_t rank_outcome_find(const rank_shared *shared, uint32_t ranks,
                           int verdict);

/* Prints it in the form of the Test Anything Protocol.  Returns false if the test
 * failed. */
bool rank_outcome_report(const collective_test *test, size_t number,
                         const rank_shared *shared, const rank_processes *all,
                         uint32_t ranks);

#endif
