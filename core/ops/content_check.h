/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* content_check.h: checks of what arguments contain.
 *
 * A check reads a tensor on the host.  While a program is recorded there is
 * nothing to read: the check becomes a node of it, the operator _check_content,
 * which fails in each run as the check would. */

#ifndef CORE_OPS_CONTENT_CHECK_H
#define CORE_OPS_CONTENT_CHECK_H

#include "dispatch/operator.h"

/* From 0 to 1. */
#define CORE__CHECK_PROBABILITIES "probabilities"
/* The same; the error does not tell the numbers. */
#define CORE__CHECK_FRACTIONS "fractions"
/* Of bags: they begin with 0, do not decrease, and do not lie beyond `limit`. */
#define CORE__CHECK_OFFSETS "offsets"

/* Checks an argument of an operator, which is named in the error: self, q or
 * offsets. */
core_status core__content_check(const core_operator *op, const char *check,
                                core_tensor *tensor, int64_t limit);

#endif
