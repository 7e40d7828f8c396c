/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sample_check.h: one call of a sample on a device. */

#ifndef CONFORMANCE_SAMPLE_CHECK_H
#define CONFORMANCE_SAMPLE_CHECK_H

#include "operators.h"

/* Makes the call in a dtype, if a kernel claims it, and compares its results;
 * a message begins with the operator, the words and `where`.  Returns false if
 * no kernel claims it. */
bool sample_check(suite *self, const sample *one, core_dtype dtype,
                  arrangement how, const char *where, outcome *out);

#endif
