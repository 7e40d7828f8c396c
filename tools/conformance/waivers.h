/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* waivers.h: failures that are known.  A file of lines
 *
 *     waive  DEVICE-TYPE  TEST-GLOB  YYYY-MM-DD  reason in words
 *     xfail  DEVICE-TYPE  TEST-GLOB  YYYY-MM-DD  reason in words
 *
 * with comments after #.  Until that date a failure that is waived is WAIVED,
 * and one that is expected is XFAIL; a test that was expected to fail and
 * passes is XPASS, which is a failure: the line is to go.  After the date the
 * line says nothing any more.  That it has ended, or matches no test, is a
 * remark in the report. */

#ifndef CONFORMANCE_WAIVERS_H
#define CONFORMANCE_WAIVERS_H

#include "report.h"

/* Whether a file is as it should be, before hours are spent on what it is for.
 * False: text says what is wrong with it. */
bool waivers_check(const char *path, char *text, size_t room);
/* Applies a file to what was found.  today: "YYYY-MM-DD".  False: as
 * above. */
bool waivers_apply(report *self, const char *path, const char *today,
                   char *text, size_t room);

#endif
