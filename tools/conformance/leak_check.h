/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* leak_check.h: whether rounds of work leave less of the device's memory each time.
 * Other programs take of it too (a CPU's is the machine's), and what they take
 * meanwhile looks like a leak.  So it is one only if every round of many loses
 * as much, with pauses between them that grow. */

#ifndef CONFORMANCE_ROOM_H
#define CONFORMANCE_ROOM_H

#include "plugin_tables.h"

typedef struct room {
    uint64_t before;
    uint32_t rounds;
    bool rests; /* a round lost less than it was allowed to */
} room;

/* Around a round; `part` is how many bytes less are too few, and should be a
 * good part of all that the round has allocated. */
void room_begin(room *self, raw *plugin);
void room_end(room *self, raw *plugin, uint64_t part);
/* Whether another round may tell more. */
bool room_unsure(const room *self);

#endif
