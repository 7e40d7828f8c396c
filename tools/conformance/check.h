/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* check.h: the program `core-conformance --plugin FILE.so`. */

#ifndef CONFORMANCE_CHECK_H
#define CONFORMANCE_CHECK_H

extern const char check_usage[];

/* Runs the whole program; argv contains --plugin, --verify or a flag of the
 * child process. */
int check_main(int argc, char **argv);

#endif
