/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* bounds.h: how far a result may be from its reference.
 *
 * A bound is a number of units (the distance from 1 to the next number of
 * the dtype) of the element or, where an operator sums, of the largest
 * number in the call.  The suite has default bounds; a device that declares
 * less exact numerics (core.numerics; before ABI 0.3, "ulp=8" and
 * "matmul=tf32" among its features) gets larger ones, up to a limit. */

#ifndef CONFORMANCE_BOUNDS_H
#define CONFORMANCE_BOUNDS_H

#include "oracle.h"

typedef struct bounds {
    double units;       /* element-wise functions, f32 and f64 */
    double sum_units;   /* sums */
    double product_eps; /* matrix products in f32; 0: the dtype's epsilon */
    uint32_t flushes;   /* mask of dtypes without denormals */
    uint32_t narrow;    /* mask of dtypes that are not accumulated in f32 */
} bounds;

/* Returns the bounds of an operator on this device. */
bounds bounds_of(const suite *self, const core_operator *op);
/* Return how far one number may be from `want`, the result of a function, or
 * of a sum whose numbers are not larger. */
double bounds_of_element(const bounds *self, core_dtype dtype, double want);
double bounds_of_sum(const bounds *self, core_dtype dtype, double want);
/* Compares result r; fails the outcome and returns false if it is too far
 * off. */
bool bounds_hold(const bounds *allowed, const sample_call *call,
                 const reference *wanted, uint32_t r, const double *got,
                 outcome *out);

#endif
