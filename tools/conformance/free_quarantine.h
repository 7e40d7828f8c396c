/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* free_quarantine.h: what the plugin frees is kept, so that what it does with it
 * afterwards is seen, whether that would crash or not. */

#ifndef CONFORMANCE_GRAVES_H
#define CONFORMANCE_GRAVES_H

#include <stdbool.h>
#include <stdint.h>

/* Stands for `free` in the plugin's object (alloc_failure.h). */
void graves_free(void *data);
/* From now on, for as long as there is room. */
void graves_begin(void);

typedef struct graves {
    uint32_t count;   /* blocks that were freed */
    uint32_t twice;   /* frees of such */
    uint32_t written; /* that were written to afterwards */
} graves;
/* Up to now; they stay where they are. */
graves graves_end(void);

#endif
