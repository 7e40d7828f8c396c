/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* submit.h: all reports of a run in one file, which can be checked anywhere.
 *
 * It is a tar (POSIX ustar) of results.jsonl, results.tap, results.xml,
 * results.html and SHA256SUMS, which names the hash of each.  Verifying checks
 * the hashes, and counts the results anew: what the summary says must be what
 * the tests' records say. */

#ifndef CONFORMANCE_SUBMIT_H
#define CONFORMANCE_SUBMIT_H

#include "report.h"

/* False: text says why not. */
bool submit_write(const report *self, const char *path, char *text,
                  size_t room);
/* The exit status: 0 if it is whole, of the plugin (NULL: any), and of a run
 * that passed. */
int submit_verify(const char *path, const char *plugin);

#endif
