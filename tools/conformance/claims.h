/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* claims.h: the operators and dtypes that a plugin registers kernels for. */

#ifndef CONFORMANCE_CLAIMS_H
#define CONFORMANCE_CLAIMS_H

#include "oracle.h"

typedef enum claim {
    CLAIM_NONE,
    CLAIM_KERNEL,
    CLAIM_CONDITIONAL /* the kernel has a `supports` that may refuse calls */
} claim;

/* Tests whether a kernel accepts this call.  The dtypes of the results are read
 * from wanted. */
claim claim_of(const suite *self, const sample_call *call,
               const reference *wanted);
/* Tests whether a kernel computes this call in that dtype; where it may refuse,
 * by making the call with operands of its own. */
bool claim_holds(const suite *self, const sample_call *call,
                 const reference *wanted);
/* Tests whether `supports` of a kernel may refuse a call with UNSUPPORTED, which
 * is then the call's own error. */
bool claim_may_be_refused(const suite *self, const char *name);
/* Tests whether the error of a call says that no kernel computes it: NO_KERNEL,
 * or UNSUPPORTED where `supports` may refuse a call so. */
bool call_is_left(const suite *self, core_status status, const char *op);
/* Tests whether an outcome is such an error of a call whose operands may have
 * other layouts or values than one that a kernel computes.  A copy that the core
 * needs and that no kernel makes is a failure. */
bool call_was_refused(const suite *self, const char *op, const outcome *out);
/* Returns the name of the kernels that compute an operator: its own, if there
 * are any, or those of another operator that it uses (sum.dim_IntList those of
 * sum). */
const char *claimed_kernel(const suite *self, const char *op);
/* The operators that have kernels, from a walk of zeros on. */
typedef struct claimed_operators {
    uint32_t kernel;  /* the next one */
    core_string name; /* of the last one */
} claimed_operators;

/* Stores the name of the next operator; false: there is none. */
bool claimed_operators_next(const suite *self, claimed_operators *walk,
                            char *buffer, size_t size);

#endif
