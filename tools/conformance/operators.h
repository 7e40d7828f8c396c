/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* operators.h: one call on the device, held against its reference. */

#ifndef CONFORMANCE_OPERATORS_H
#define CONFORMANCE_OPERATORS_H

#include "bounds.h"

enum { OPERATORS_POISON = 0xa5, OPERATORS_GUARD = 64 };

/* Calls it on the device and compares every result.  Memory that results may
 * get was poisoned before. */
bool operators_check(suite *self, const words *call, const reference *wanted,
                     arrangement how, outcome *out);
/* The same with the result put into a window of poisoned memory, through the
 * operator's out variant; whatever lies around the window must stay.  Its
 * elements are `gap` apart and turned around; row-major where gap is 1.  True
 * where there is no such variant. */
bool operators_check_out(suite *self, const words *call,
                         const reference *wanted, int64_t gap, outcome *out);
/* Whether there is one that the above can call. */
bool operators_has_out(const words *call, const reference *wanted);
/* The same with the result in the place of the first operand, where the
 * operator has such a variant and the result is of that kind. */
bool operators_check_in_place(suite *self, const words *call,
                              const reference *wanted, outcome *out);
/* What lies behind each result, in the memory that it was given, is kept: where
 * there is no window to put a result into. */
bool operators_check_tails(suite *self, const words *call,
                           const reference *wanted, outcome *out);
/* One result, against its reference. */
bool operators_check_result(suite *self, const words *call,
                            const reference *wanted, uint32_t r,
                            core_tensor *got, outcome *out);
/* Fills memory that the allocator keeps with poison. */
void operators_poison(suite *self, size_t bytes);

#endif
