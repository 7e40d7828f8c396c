/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tests_custom.h: calls of the operators that the plugin registers. */

#ifndef CONFORMANCE_TESTS_CUSTOM_H
#define CONFORMANCE_TESTS_CUSTOM_H

#include "suite.h"

enum { OWN_ARGUMENTS = 16 };

typedef struct own_call {
    core_operator *op;
    core_value args[OWN_ARGUMENTS]; /* tensors: only the tag until found */
    uint32_t nargs;
    uint32_t nresults;
    core_dtype dtype; /* of the tensors that were found */
    core_tensor *tensors[OWN_ARGUMENTS];
    size_t ntensors;
    const char *unchecked; /* why it was not checked, if a check says so */
} own_call;

/* Returns whether the call was checked. */
typedef bool (*own_check)(suite *self, outcome *out, own_call *call,
                          bool gradient);
/* Checks each operator of the plugin that takes only tensors and numbers, until
 * one fails.  `finds`: the call has tensors that the device accepts, of f64 or
 * else of f32. */
void own_operators_check(suite *self, outcome *out, own_check check,
                         bool finds);

/* The test of their kernels. */
void own_layouts_agree(suite *self, outcome *out, const test *one);

#endif
