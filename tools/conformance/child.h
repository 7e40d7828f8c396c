/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* child.h: the process that a group of tests runs in.
 *
 * It is this very program, started with --child-run; its standard input holds
 * the names of the tests to run, one a line.  With --child-list it tells which
 * there are.  What it answers goes to descriptor 3, one line each, fields
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

/* The exit status.  load: the plugin, for the tests that depend on it. */
int child_list(suite *self, bool load);
int child_run(suite *self);

#endif
