/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* value_groups.h: numbers beyond those of samples, most of which are between -1
 * and 1, for element-wise operators whose reference is the CPU or that are not
 * called with special values otherwise. */

#ifndef CONFORMANCE_VALUE_GROUPS_H
#define CONFORMANCE_VALUE_GROUPS_H

#include <stdbool.h>
#include <stddef.h>

enum { VALUE_GROUP = 17, VALUE_GROUPS = 3 };

/* Of both signs up to 4, up to 80, and NaN, infinities and zeros.  They are
 * apart because a tolerance is a part of the largest number. */
extern const double value_groups[VALUE_GROUPS][VALUE_GROUP];

/* Tests whether the operator is called with them. */
bool value_groups_serve(const char *op);

#endif
