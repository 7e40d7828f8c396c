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
/* Fills memory that the allocator keeps with poison. */
void operators_poison(suite *self, size_t bytes);

#endif
