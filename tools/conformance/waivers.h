/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* waivers.h: known failures.  A file of lines
 *
 *     waive  DEVICE-TYPE  TEST-GLOB  YYYY-MM-DD  reason in words
 *     xfail  DEVICE-TYPE  TEST-GLOB  YYYY-MM-DD  reason in words
 *
 * with comments after #. Up to that date a waived failure is WAIVED and an
 * expected one XFAIL; a test that was expected to fail but passes is XPASS,
 * which is a failure: the line must be removed.  After the date the line is
 * ignored.  Lines that have expired or match no test are remarks in the
 * report. */

#ifndef CONFORMANCE_WAIVERS_H
#define CONFORMANCE_WAIVERS_H

#include "report.h"

/* Checks the file before a long run depends on it.  On failure returns false
 * and sets text. */
bool waivers_check(const char *path, char *text, size_t capacity);
/* Applies the file to the results. today: "YYYY-MM-DD".  On failure returns
 * false and sets text. */
bool waivers_apply(report *self, const char *path, const char *today,
                   char *text, size_t capacity);
/* Applies the file to one result, without remarks. */
bool waivers_apply_to(record *one, report *of, const char *path, char *text,
                      size_t capacity);

#endif
