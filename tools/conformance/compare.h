/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compare.h: compares a device's results with recorded ones. */

#ifndef CONFORMANCE_COMPARE_H
#define CONFORMANCE_COMPARE_H

#include "golden.h"

/* |got - want| <= absolute + relative * |want| */
typedef struct tolerance {
    double absolute;
    double relative;
} tolerance;

/* Tests, by the beginning of its name, whether an operator's elements are sums
 * of many: products, convolutions, reductions. */
bool operator_sums(const char *name);

/* Returns the tolerance of an operator's results of a dtype.  `derived`: a
 * gradient, whose formula may sum. */
tolerance tolerance_of(const char *name, core_dtype dtype, bool derived);

/* How to treat positions that differ: among equal values every choice is
 * correct (argmax, topk, …). */
typedef struct ties {
    bool allowed;
    const golden_tensor *source; /* the tensor that the positions index */
    uint32_t from_dim; /* positions count in dimensions from_dim … to_dim - 1,
                        * row-major */
    uint32_t to_dim;
} ties;

/* Tests whether result number `result` of the case contains positions. */
ties ties_of(const golden_case *the_case, size_t result);

/* Returns the element at an index as a number; integers are exact in u.i. */
core_scalar golden_element(const golden_tensor *tensor, const int64_t *index);

/* dtype: the dtype in which `want` is expected on this device.  False: text
 * describes the difference. *out_tied is set when positions differ among equal
 * values. */
bool compare_tensor(core_tensor *got, const golden_tensor *want,
                    core_dtype dtype, tolerance allowed, ties tie,
                    bool *out_tied, char *text, size_t capacity);

#endif
