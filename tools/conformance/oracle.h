/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* oracle.h: what operators are, in the suite's own words: element by element in
 * long double, sums in the order of the elements.  For operators that it does
 * not know the reference is the CPU backend in f64. */

#ifndef CONFORMANCE_ORACLE_H
#define CONFORMANCE_ORACLE_H

#include "sample_call.h"

typedef struct reference {
    uint32_t nresults;
    core_dtype dtypes[WORDS_TENSORS]; /* of the results, on any device */
    uint32_t ndim[WORDS_TENSORS];
    int64_t sizes[WORDS_TENSORS][8];
    int64_t numel[WORDS_TENSORS];
    double *values[WORDS_TENSORS];
    double scale;  /* the largest of operands and results: of sums */
    bool relative; /* each element is right to a few units of its own */
    bool own;      /* the suite's own answer; else the CPU's in f64 */
    bool exact;    /* bit for bit: nothing is rounded */
} reference;

/* The shapes and dtypes of the results from the meta device, then the values.
 * Anything but CORE_OK: the call is none for these dtypes, or failed. */
core_status reference_shapes(const words *call, reference *out);
core_status reference_values(const words *call, const suite *of,
                             reference *inout);
void reference_free(reference *self);

/* False: the oracle does not know the operator. */
bool oracle_values(const words *call, reference *inout);
/* False: what the call should give is nowhere said. */
bool oracle_defines(const words *call);
/* Operators whose answers for NaN, infinities and zeros are known, too. */
bool oracle_knows_special(const char *op);
/* Operators that move elements and compute nothing. */
bool oracle_moves(const char *op);
bool oracle_random(const char *op);

#endif
