/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* outcome_counts.h: outcomes, counted by operator, and the operators that must pass. */

#ifndef CONFORMANCE_TALLY_H
#define CONFORMANCE_TALLY_H

#include "replay.h"

typedef struct tally_row {
    char name[GOLDEN_NAME];
    bool required;
    size_t counts[3]; /* by replay_outcome */
} tally_row;

typedef struct tally {
    tally_row *rows;
    size_t count;
    size_t room;
    size_t total[3];
    size_t agreed; /* of those passed: see REPLAY_AGREED */
} tally;

/* False: no memory. */
bool tally_add(tally *all, const char *name, replay_outcome outcome);
/* Reads a list of operators, one a line, # comments; those that match filter
 * (NULL: all) are required.  False: text says what is wrong. */
bool tally_require(tally *all, const char *path, const char *filter, char *text,
                   size_t room);
/* Prints required operators that did not pass; true if there are none. */
bool tally_check_required(const tally *all);
void tally_print(const tally *all);
void tally_free(tally *all);

#endif
