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

/* Tests whether results of a dtype were recorded with larger errors than their
 * tolerance: sums of f16 and bf16, and few operators of f32. */
bool recording_rounds(const char *name, core_dtype dtype);

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
    enum {
        VECTORS_NONE,
        VECTORS_COLUMNS,
        VECTORS_ROWS
    } vectors;      /* vectors
                        * whose signs are undefined, in matrices */
    int64_t paired; /* the vectors of a matrix whose signs are kept */
    uint32_t result;
} ties;

/* What a comparison found besides equal elements. */
typedef struct comparison {
    bool tied; /* positions, or signs of vectors, differ where they may */
    uint64_t signs[3]; /* by result: a hash of which vectors are negated */
} comparison;

/* Tests whether result number `result` of the case contains positions. */
ties ties_of(const golden_case *the_case, size_t result);

/* Returns the element at an index as a number; integers are exact in u.i. */
core_scalar golden_element(const golden_tensor *tensor, const int64_t *index);

/* dtype: the dtype in which `want` is expected on this device.  False: text
 * describes the difference. */
bool compare_tensor(core_tensor *got, const golden_tensor *want,
                    core_dtype dtype, tolerance allowed, ties tie,
                    comparison *found, char *text, size_t capacity);

#endif
