/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* skipped_calls.h: calls of a test that no kernel of the plugin computes.  A test
 * of several operators names them, because its verdict does not cover them. */

#ifndef CONFORMANCE_SKIPPED_CALLS_H
#define CONFORMANCE_SKIPPED_CALLS_H

#include "suite.h"

typedef struct skipped_calls {
    char list[TEST_DETAIL - 120]; /* "addmm of f32, max of f32" */
    size_t length;
    char last[TEST_NAME];
    uint32_t count;    /* of calls */
    uint32_t unlisted; /* for which there was no room */
} skipped_calls;

/* Adds a call; dtype may be CORE_DTYPE_NONE.  Equal calls in a row are listed
 * once. */
void skipped_calls_add(skipped_calls *self, const char *op, core_dtype dtype);
/* Sets the detail of a test that passed `ran` calls; if there are none, the
 * outcome is NOT_SUPPORTED. */
void skipped_calls_report(const skipped_calls *self, size_t ran, outcome *out);

#endif
