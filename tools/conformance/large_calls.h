/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* large_calls.h: the calls of many elements that level ops makes of an
 * operator: samples of ops.yaml that are enlarged, and those that are large. */

#ifndef CONFORMANCE_LARGE_CALLS_H
#define CONFORMANCE_LARGE_CALLS_H

#include "oracle.h"
#include "resize.h"

/* A sample with other sizes. */
typedef struct large_call {
    resized call;
    bool columns;   /* many columns, which are made row-major only */
    bool otherwise; /* made only if those before it cannot run */
} large_call;

enum { LARGE_CALLS = 4 };

/* Stores the calls that follow from a sample, and returns their number. */
uint32_t large_calls(const sample *from, large_call out[LARGE_CALLS]);
/* Returns NULL after the last sample that is large itself. */
const sample *large_sample_at(size_t index);

/* Tests whether a call has a result of more than 65,536 elements, or an operand
 * where the results have one element each. */
bool large_call_has_many(const sample_call *call, const reference *shapes);

/* Writes the names of the claimed operators of which no sample and no test of
 * ops/rules makes such a call, separated by ", "; "…" at the end if there are more. */
void large_calls_list_missing(const suite *self, char *text, size_t capacity);

#endif
