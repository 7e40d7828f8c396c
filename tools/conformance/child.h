/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* child.h: the process that a group of tests runs in.
 *
 * It is this very program, started with --child; its standard input holds the
 * names of the tests to run, one a line ("" at the end lists all tests there
 * are instead).  What it answers goes to descriptor 3, one line each, fields
 * between tabs:
 *
 *     test    NAME LEVEL OPTIONAL
 *     about   KEY VALUE
 *     begin   NAME
 *     end     NAME VERDICT ERROR MEASURED UNIT DETAIL
 *     done
 *
 * so that a `begin` without an `end` is the test that ended the process. */

#ifndef CONFORMANCE_CHILD_H
#define CONFORMANCE_CHILD_H

#include "suite.h"

enum { CHILD_RESULTS = 3 };

/* The exit status. */
int child_list(suite *self);
int child_run(suite *self);

#endif
