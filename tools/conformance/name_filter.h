/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* name_filter.h: which names a --filter selects. */

#ifndef CONFORMANCE_NAME_FILTER_H
#define CONFORMANCE_NAME_FILTER_H

#include <stdbool.h>

/* Tests whether a filter, patterns of the shell separated by commas, selects a
 * name.  NULL selects all. */
bool name_filter_selects(const char *filter, const char *name);

#endif
