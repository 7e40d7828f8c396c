/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* operators.h: one call on the device, compared with its reference. */

#ifndef CONFORMANCE_OPERATORS_H
#define CONFORMANCE_OPERATORS_H

#include "bounds.h"

/* The guard is odd, so that a window begins at no round address. */
enum { OPERATORS_POISON = 0xa5, OPERATORS_GUARD = 67 };

/* Makes the call on the device and compares every result, and the operands with
 * what they were.  Memory that the results may get is filled with a pattern
 * beforehand. */
bool operators_check(suite *self, const sample_call *call,
                     const reference *wanted, arrangement how, outcome *out);
/* The same through the operator's out variant, into a window of patterned
 * memory; everything around the window must stay unchanged.  The elements are
 * `gap` apart, with reversed dimensions; row-major if gap is 1.  Returns true
 * if there is no such variant. */
bool operators_check_out(suite *self, const sample_call *call,
                         const reference *wanted, int64_t gap, outcome *out);
/* Tests whether there is an out variant that the above can call. */
bool operators_has_out(const sample_call *call, const reference *wanted);
/* The same in place of the first operand, where the operator has such a variant
 * and the result is compatible. */
bool operators_check_in_place(suite *self, const sample_call *call,
                              const reference *wanted, arrangement how,
                              outcome *out);
/* Makes the call twice with the same tensors, whose values differ the first
 * time, and compares the second results. */
bool operators_check_again(suite *self, const sample_call *call,
                           const reference *wanted, outcome *out);
/* Checks that the memory behind each result, within its block, stays unchanged:
 * for operators without a window. */
bool operators_check_tails(suite *self, const sample_call *call,
                           const reference *wanted, outcome *out);
/* Compares one result with its reference. */
bool operators_check_result(suite *self, const sample_call *call,
                            const reference *wanted, uint32_t r,
                            core_tensor *got, outcome *out);
/* Fills memory in the allocator's cache with the pattern. */
void operators_poison(suite *self, size_t bytes);

#endif
