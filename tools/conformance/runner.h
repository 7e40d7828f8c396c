/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* runner.h: runs tests in child processes and watches them.  A crash, a hang or
 * a lost device is the result of that test, and the run continues with the next
 * one in a new process. */

#ifndef CONFORMANCE_RUNNER_H
#define CONFORMANCE_RUNNER_H

#include "report.h"

typedef struct runner {
    const char *const *arguments; /* of the child, after its name;
                                   * NULL-terminated */
    double timeout;               /* time limit of a test, in seconds */
    bool verbose;                 /* prints each result as it arrives */
    report *report;
    /* Called for each test that has ended; NULL: not called. */
    void (*ended)(void *context, record *one);
    void *context;
} runner;

/* Fills the report with the available tests.  On failure returns false and sets
 * text.  A plugin that cannot be loaded is not a failure: it is reported in
 * about "problem". */
bool runner_list(runner *self, char *text, size_t capacity);
/* Runs the records that are selected and not done. */
bool runner_run(runner *self, char *text, size_t capacity);

#endif
