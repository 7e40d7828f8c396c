/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* free_quarantine.h: keeps the blocks that the plugin frees, so that freeing
 * them again or writing to them is detected even if it would not crash. */

#ifndef CONFORMANCE_FREE_QUARANTINE_H
#define CONFORMANCE_FREE_QUARANTINE_H

#include <stdbool.h>
#include <stdint.h>

/* Replaces `free` in the plugin's object (alloc_failure.h). */
void quarantine_free(void *data);
/* Starts keeping freed blocks, until the quarantine is full. */
void quarantine_begin(void);

typedef struct quarantine_counts {
    uint32_t count;   /* blocks that were freed */
    uint32_t twice;   /* of these, freed again */
    uint32_t written; /* of these, written to afterwards */
} quarantine_counts;
/* Stops, and returns the counts.  The kept blocks are never released. */
quarantine_counts quarantine_end(void);

#endif
