/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tests_custom.h: calls of the operators that the plugin registers. */

#ifndef CONFORMANCE_TESTS_CUSTOM_H
#define CONFORMANCE_TESTS_CUSTOM_H

#include "suite.h"

enum { OWN_ARGUMENTS = 16, OWN_RESULTS = 8, OWN_NAME = 32 };

typedef struct own_call {
    core_operator *op;
    core_value args[OWN_ARGUMENTS]; /* tensors: only the tag until found */
    char names[OWN_ARGUMENTS][OWN_NAME];
    uint32_t nargs;
    uint32_t nresults;
    core_dtype dtype; /* of the tensors that were found */
    core_tensor *tensors[OWN_ARGUMENTS];
    size_t ntensors;
    bool accepts_in_place; /* the check can call operators that change self */
    bool in_place;         /* this one does: it gets a copy of self */
    const char *unchecked; /* why it was not checked, if a check says so */
} own_call;

/* Returns whether the call was checked. */
typedef bool (*own_check)(suite *self, outcome *out, own_call *call,
                          bool gradient);

/* What a check needs: FINDS: the call has tensors that the device accepts, of
 * f64 or else of f32.  IN_PLACE: operators that change self are checked, too. */
enum { OWN_FINDS = 1 << 0, OWN_IN_PLACE = 1 << 1 };

/* Checks each operator of the plugin that takes only tensors and numbers, until
 * one fails. */
void own_operators_check(suite *self, outcome *out, own_check check,
                         uint32_t needs);

/* Reads the arguments of the operator's schema; false: one is of a type that
 * the suite cannot create.  Those with defaults are left out, or else numbers
 * among them have their defaults, up to the first that is no number. */
bool own_call_parse(own_call *call, bool with_defaults);
/* The largest relative error of a result of f32 that the device declares, or
 * that the suite's tolerance allows. */
double own_relative_error(const suite *self);

/* The tests of their kernels. */
void own_layouts_agree(suite *self, outcome *out, const test *one);
void own_results_agree_with_cpu(suite *self, outcome *out, const test *one);
void own_numbers_matter(suite *self, outcome *out, const test *one);

#endif
