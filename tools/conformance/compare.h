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
    /* The columns or rows of matrices are vectors whose signs are undefined. */
    enum { VECTORS_NONE, VECTORS_COLUMNS, VECTORS_ROWS } vectors;
    uint32_t result; /* the number of the result with the vectors */
} ties;

/* What a comparison found besides equal elements. */
typedef struct comparison {
    bool tied; /* positions differ where they may */
    /* By result, for each vector of each matrix: points away from the recorded
     * one.  NULL: the result has no vectors. */
    bool *negated[3];
} comparison;

void comparison_free(comparison *found);

/* Tests whether result number `result` of the case contains positions, or
 * vectors of either sign. */
ties ties_of(const golden_case *the_case, size_t result);

/* Returns the element at an index as a number; integers are exact in u.i. */
core_scalar golden_element(const golden_tensor *tensor, const int64_t *index);

/* Computes the number of elements and row-major strides from the sizes. */
void make_dense(golden_tensor *tensor);

/* Negates the marked vectors of a tensor with this storage. */
void negate_vectors(const golden_tensor *tensor, unsigned char *storage,
                    ties tie, const bool *negated);

/* Tests whether each two singular vectors that belong together have both the
 * recorded signs or both the opposite ones. */
bool signs_agree(const golden_case *the_case, const comparison *found);

/* dtype: the dtype in which `want` is expected on this device.  False: text
 * describes the difference. */
bool compare_tensor(core_tensor *got, const golden_tensor *want,
                    core_dtype dtype, tolerance allowed, ties tie,
                    comparison *found, char *text, size_t capacity);

#endif
