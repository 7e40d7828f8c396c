/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* progress.h: writes TAP and JSON lines while tests run, so that a pipe shows
 * them as they end and an interrupted run can be resumed. */

#ifndef CONFORMANCE_PROGRESS_H
#define CONFORMANCE_PROGRESS_H

#include "report.h"

typedef struct progress {
    report *report;
    const char *waivers; /* the file; NULL: none */
    const char *tap;     /* the files; "-": standard output; NULL: none */
    const char *jsonl;
    /* Private. */
    FILE *tap_file, *jsonl_file;
    size_t next;   /* record that TAP waits for */
    size_t number; /* of its lines */
} progress;

/* Opens the files, and writes what is known before the first test runs. */
void progress_begin(progress *self);
/* Writes a test that has ended: to TAP in the order of the records. */
void progress_test(void *context, record *one);
/* Writes the rest.  Returns false if a file could not be written, which it
 * reports. */
bool progress_end(progress *self);

#endif
