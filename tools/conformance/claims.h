/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* claims.h: which operators a plugin says that it has kernels for, and for
 * which dtypes. */

#ifndef CONFORMANCE_CLAIMS_H
#define CONFORMANCE_CLAIMS_H

#include "oracle.h"

typedef enum claim {
    CLAIM_NONE,
    CLAIM_KERNEL,
    CLAIM_CONDITIONAL /* the kernel may refuse calls that it does not like */
} claim;

/* Whether a kernel takes this call: its results' dtypes are in wanted. */
claim claim_of(const suite *self, const words *call, const reference *wanted);
/* The index-th of the operators that have kernels; NULL behind the last. */
const char *claimed_operator(const suite *self, size_t index, char *room,
                             size_t size);

#endif
