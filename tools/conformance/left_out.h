/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* left_out.h: calls of a test that no kernel of the plugin computes.  A test of
 * several operators names them, because its verdict does not cover them. */

#ifndef CONFORMANCE_LEFT_OUT_H
#define CONFORMANCE_LEFT_OUT_H

#include "suite.h"

typedef struct left_out {
    char list[TEST_DETAIL - 120]; /* "addmm of f32, max of f32" */
    size_t length;
    char last[TEST_NAME];
    uint32_t count;    /* of calls */
    uint32_t unlisted; /* for which there was no room */
} left_out;

/* Adds a call; dtype may be CORE_DTYPE_NONE.  Equal calls in a row are listed
 * once. */
void left_out_add(left_out *self, const char *op, core_dtype dtype);
/* Sets the detail of a test that passed `ran` calls; if there are none, the
 * outcome is NOT_SUPPORTED. */
void left_out_report(const left_out *self, size_t ran, outcome *out);

#endif
