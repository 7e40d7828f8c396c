/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compare.h: whether what a device computed is what was recorded. */

#ifndef CONFORMANCE_COMPARE_H
#define CONFORMANCE_COMPARE_H

#include "golden.h"

/* |got - want| <= absolute + relative * |want| */
typedef struct tolerance {
    double absolute;
    double relative;
} tolerance;

/* Products, convolutions, reductions: operators whose elements are sums of
 * many, by the beginning of their names. */
bool operator_sums(const char *name);

/* Of results of dtype, for an operator.  `derived`: a gradient, whose formula
 * may sum. */
tolerance tolerance_of(const char *name, core_dtype dtype, bool derived);

/* What to do with positions that differ: among equal values every choice is
 * right (argmax, topk, …). */
typedef struct ties {
    bool allowed;
    const golden_tensor *source; /* what the positions select from */
    uint32_t from_dim; /* positions count in dimensions from_dim … to_dim - 1,
                          row-major */
    uint32_t to_dim;
} ties;

/* Whether result number `result` of the case holds positions. */
ties ties_of(const golden_case *the_case, size_t result);

/* The element at an index as a number; integers are exact within u.i. */
core_scalar golden_element(const golden_tensor *tensor, const int64_t *index);

/* dtype: what `want` is expected in on this device.  False: text says what
 * differs.  *out_tied is set when positions differ among equal values. */
bool compare_tensor(core_tensor *got, const golden_tensor *want,
                    core_dtype dtype, tolerance allowed, ties tie,
                    bool *out_tied, char *text, size_t room);

#endif
