/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collectives.h: core-conformance --collectives: tests an engine of
 * core.collectives in several processes, the ranks, which it starts. */

#ifndef CONFORMANCE_COLLECTIVES_H
#define CONFORMANCE_COLLECTIVES_H

extern const char collectives_usage[];

/* Returns the exit status. */
int collectives_main(int argc, char **argv);

#endif
