/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* oracle.h: the suite's own definitions of operators: element by element in
 * long double, sums in the order of the elements.  For other operators the
 * reference is the CPU backend in f64. */

#ifndef CONFORMANCE_ORACLE_H
#define CONFORMANCE_ORACLE_H

#include "sample_call.h"

typedef struct reference {
    uint32_t nresults;
    core_dtype dtypes[SAMPLE_TENSORS]; /* of the results, on any device */
    uint32_t ndim[SAMPLE_TENSORS];
    int64_t sizes[SAMPLE_TENSORS][8];
    int64_t numel[SAMPLE_TENSORS];
    double *values[SAMPLE_TENSORS];
    double scale;  /* the largest of operands and results, for sums */
    double margin; /* that a result may be off besides */
    bool relative; /* each element is correct to a few of its units */
    bool own;      /* computed by the suite; else by the CPU in f64 */
    bool zeros;    /* the signs of zeros are defined */
    bool exact;    /* bit for bit: nothing is rounded */
} reference;

/* Compute the shapes and dtypes of the results on the meta device, then the
 * values.  Any status but CORE_OK: the call is not valid for these dtypes, or
 * failed. */
core_status reference_shapes(const sample_call *call, reference *out);
core_status reference_values(const sample_call *call, const suite *of,
                             reference *inout);
/* Takes what a device computes as the reference: for operators that only its
 * plugin knows. */
core_status reference_observe(const sample_call *call, core_device *device,
                              reference *out);
void reference_free(reference *self);

/* False: the oracle does not know the operator. */
bool oracle_values(const sample_call *call, reference *inout);
/* False: the result of the call is not defined. */
bool oracle_defines(const sample_call *call);
/* Operators that compute each element from those at its place in the operands. */
bool oracle_is_element_wise(const char *op);
/* Operators whose results for NaN, infinities and zeros are known, too. */
bool oracle_knows_special(const char *op);
/* Operators that multiply an operand by a number, which may overflow or not
 * before they add. */
bool oracle_scales(const char *op);
/* Operators that compare elements, so that NaN and infinities are ordered. */
bool oracle_orders(const char *op);
/* Operators of exponentials that must not overflow. */
bool oracle_normalizes(const char *op);
/* Operators that move elements without computing. */
bool oracle_moves(const char *op);
bool oracle_random(const char *op);
/* Operators that factor matrices, or solve with them: the error depends on the
 * condition of the matrix. */
bool oracle_factors(const char *op);

#endif
