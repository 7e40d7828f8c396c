/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* derived_calls.h: calls that follow from a sample and the operator's schema: tensors of
 * one to four dimensions and each of them as `dim`, also counted from the last;
 * lists of several dimensions; indices of more dimensions, and fewer of them;
 * each optional tensor absent; each mask of results, reduction and flag; a target
 * that is ignored. */

#ifndef CONFORMANCE_DERIVED_CALLS_H
#define CONFORMANCE_DERIVED_CALLS_H

#include "samples.h"

#include <stdbool.h>

/* Returns false to end the variation. */
typedef bool (*vary_with)(void *context, const sample *varied);
/* Calls `with` for each variation of a sample, which need not be a valid call.
 * Returns false if `with` did. */
bool sample_vary(const sample *from, vary_with with, void *context);

#endif
