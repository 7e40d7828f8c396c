/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* outcome_counts.h: counts outcomes by operator, and checks the operators that
 * must pass. */

#ifndef CONFORMANCE_OUTCOME_COUNTS_H
#define CONFORMANCE_OUTCOME_COUNTS_H

#include "replay.h"

typedef struct outcome_row {
    char name[GOLDEN_NAME];
    bool required;
    size_t counts[REPLAY_OUTCOMES];
} outcome_row;

typedef struct outcome_counts {
    outcome_row *rows;
    size_t count;
    size_t capacity;
    size_t total[REPLAY_OUTCOMES];
    size_t agreed; /* of those that passed: see REPLAY_AGREED */
    size_t shared; /* of those that passed: see REPLAY_SHARED */
} outcome_counts;

/* False: no memory. */
bool outcome_counts_add(outcome_counts *all, const char *name,
                        replay_outcome outcome);
/* Reads a list of operators, one per line, with # comments; those that match
 * filter (NULL: all) are required.  On failure returns false and sets text. */
bool outcome_counts_require(outcome_counts *all, const char *path,
                            const char *filter, char *text, size_t capacity);
/* Prints required operators that did not pass; returns true if there are
 * none. */
bool outcome_counts_check_required(const outcome_counts *all);
void outcome_counts_print(const outcome_counts *all);
void outcome_counts_free(outcome_counts *all);

#endif
