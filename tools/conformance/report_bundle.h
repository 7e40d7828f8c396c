/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* report_bundle.h: all reports of a run in one file that can be verified.
 *
 * It is a tar archive (POSIX ustar) of results.jsonl, results.tap,
 * results.xml, results.html and SHA256SUMS, which has the hash of each.
 * Verifying checks the hashes and counts the results again: the summary must
 * match the records of the tests. */

#ifndef CONFORMANCE_REPORT_BUNDLE_H
#define CONFORMANCE_REPORT_BUNDLE_H

#include "report.h"

/* On failure returns false and sets text. */
bool submit_write(const report *self, const char *path, char *text,
                  size_t capacity);
/* Returns the exit status: 0 if the file is intact, belongs to the plugin
 * (NULL: any), and the run passed. */
int submit_verify(const char *path, const char *plugin);

#endif
