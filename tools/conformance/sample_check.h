/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sample_check.h: one call of a sample on a device. */

#ifndef CONFORMANCE_SAMPLE_CHECK_H
#define CONFORMANCE_SAMPLE_CHECK_H

#include "operators.h"

typedef struct sample_layout {
    arrangement how;   /* without strides of 0 */
    const char *where; /* for messages, behind the words of the sample */
    double margin;     /* that a result may be off, besides its bound */
} sample_layout;

/* Makes the call in a dtype, if a kernel claims it, and compares its results;
 * a message begins with the operator, the words and `where`.  Returns false if
 * no kernel claims it. */
bool sample_check(suite *self, const sample *one, core_dtype dtype,
                  arrangement how, const char *where, outcome *out);
/* The same with each of several layouts, and one reference.  Returns how many of
 * them a kernel claims: `supports` may refuse others than row-major ones. */
uint32_t sample_check_layouts(suite *self, const sample *one, core_dtype dtype,
                              const sample_layout *layouts, uint32_t count,
                              outcome *out);

/* The same with one operand that repeats a row or a column, or in batches a
 * matrix, with stride 0. */
bool sample_check_repeated(suite *self, const sample *one, core_dtype dtype,
                           uint32_t operand, layout how, const char *where,
                           outcome *out);

#endif
