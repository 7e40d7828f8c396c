/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* number_calls.h: calls of operators on tensors of numbers that a test chooses.
 * Calls that no kernel computes are left out and named. */

#ifndef CONFORMANCE_NUMBER_CALLS_H
#define CONFORMANCE_NUMBER_CALLS_H

#include "skipped_calls.h"

typedef struct number_calls {
    suite *self;
    outcome *out;
    core_dtype dtype; /* of the tensors, set by the test */
    uint32_t ran;
    skipped_calls left;
} number_calls;

/* Opens the device, without the fallback; false: the outcome says why not. */
bool number_calls_begin(number_calls *c, suite *self, outcome *out);
/* Makes a row-major tensor of numbers, rounded to the dtype; NULL: the outcome
 * says what failed. */
core_tensor *number_calls_make(number_calls *c, const int64_t *sizes,
                               uint32_t ndim, const double *values);
/* Calls an operator and reads the result of that number.  The caller frees it.
 * NULL: no kernel computes it, or the outcome says what failed. */
double *number_calls_read(number_calls *c, const char *name,
                          const core_value *args, uint32_t nargs,
                          uint32_t which, int64_t *out_count);
/* Reports what was left out of a test that passed. */
void number_calls_end(number_calls *c);

#endif
