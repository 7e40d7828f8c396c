/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tests_features.h: tests of single interfaces that have a file each. */

#ifndef CONFORMANCE_TESTS_FEATURES_H
#define CONFORMANCE_TESTS_FEATURES_H

#include "plugin_tables.h"

void features_allocator(suite *self, outcome *out, const test *one);
void features_profiler(suite *self, outcome *out, const test *one);
void features_layout(suite *self, outcome *out, const test *one);
void features_time_passes(suite *self, outcome *out, const test *one);
void features_graph_outlives(suite *self, outcome *out, const test *one);
void features_graph_is_its_own(suite *self, outcome *out, const test *one);

#endif
