/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* runner.h: runs tests in child processes and watches them.  A test that
 * crashes, hangs or loses the device has that as its result, and the run goes
 * on with the next one in a new process. */

#ifndef CONFORMANCE_RUNNER_H
#define CONFORMANCE_RUNNER_H

#include "report.h"

typedef struct runner {
    const char *const *arguments; /* of the child, behind its name; NULL ends */
    double timeout;               /* seconds that a test may take */
    bool verbose;                 /* tells each result as it comes */
    report *report;
} runner;

/* Fills the report with the tests that there are.  False: text says why they
 * cannot be known at all.  A plugin that cannot be loaded is no such reason:
 * it is told in about "problem". */
bool runner_list(runner *self, char *text, size_t room);
/* Runs the records that are chosen and not done. */
bool runner_run(runner *self, char *text, size_t room);

#endif
