/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* room.h: whether rounds of work leave less of the device's memory each time.
 * Other programs use that, too, and what they allocate meanwhile looks like a
 * leak.  So it is one only if every round of many loses as much, with pauses
 * between them that grow.  In the host's memory it is what this process uses
 * that counts. */

#ifndef CONFORMANCE_ROOM_H
#define CONFORMANCE_ROOM_H

#include "raw.h"

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
