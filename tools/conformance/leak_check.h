/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* leak_check.h: whether repeated rounds of work leak the device's memory.
 * Other programs use that memory too (a CPU's is the machine's), and their
 * allocations look like a leak.  So a leak is reported only if every one of
 * many rounds loses as much, with growing pauses between them. */

#ifndef CONFORMANCE_LEAK_CHECK_H
#define CONFORMANCE_LEAK_CHECK_H

#include "plugin_tables.h"

typedef struct leak_check {
    uint64_t before;
    uint32_t rounds;
    bool recovered; /* a round lost less than the limit */
} leak_check;

/* Called before and after a round.  `part`: a loss of fewer bytes is not a leak;
 * it should be a large part of what the round allocates. */
void leak_check_begin(leak_check *self, plugin_tables *plugin);
void leak_check_end(leak_check *self, plugin_tables *plugin, uint64_t part);
/* Returns whether another round is needed. */
bool leak_check_undecided(const leak_check *self);

#endif
