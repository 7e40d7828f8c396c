/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* check.h: core-conformance --plugin FILE.so. */

#ifndef CONFORMANCE_CHECK_H
#define CONFORMANCE_CHECK_H

extern const char check_usage[];

/* The whole program; argv holds --plugin, --verify or a flag of a child's. */
int check_main(int argc, char **argv);

#endif
