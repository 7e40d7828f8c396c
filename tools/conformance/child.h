/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* child.h: the process that runs a group of tests.
 *
 * It is the same program, started with --child-run; standard input has the
 * names of the tests, one per line.  With --child-list it lists the tests.
 * It writes its results to descriptor 3, one line each, with tabs between
 * the fields:
 *
 *     test    NAME LEVEL OPTIONAL
 *     about   KEY VALUE
 *     needs   OPERATORS of level training, with --list
 *     few     OPERATORS without a call of many elements, with --list
 *     begin   NAME
 *     end     NAME VERDICT ERROR MEASURED UNIT DETAIL
 *     done
 *
 * A `begin` without an `end` names the test that ended the process. */

#ifndef CONFORMANCE_CHILD_H
#define CONFORMANCE_CHILD_H

#include "suite.h"

enum { CHILD_RESULTS = 3 };

/* Both return the exit status. load: load the plugin, for the tests that depend
 * on it. */
int child_list(suite *self, bool load);
int child_run(suite *self);

#endif
