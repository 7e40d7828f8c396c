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
    bool in_place;         /* it changes its first argument */
    const char *unchecked; /* why it was not checked, if a check says so */
} own_call;

/* Returns whether the call was checked. */
typedef bool (*own_check)(suite *self, outcome *out, own_call *call,
                          bool gradient);
/* Which operators are checked, and how their calls are prepared. */
enum {
    OWN_FINDS = 1,   /* with tensors that the device accepts, of f64 or f32 */
    OWN_IN_PLACE = 2 /* also those that change their first argument */
};
/* Checks each operator of the plugin that takes only tensors and numbers, until
 * one fails. */
void own_operators_check(suite *self, outcome *out, own_check check,
                         uint32_t flags);

/* Reads the arguments of the operator's schema; false: one is of a type that
 * the suite cannot create.  Those with defaults are left out, or else numbers
 * among them have their defaults, up to the first that is no number. */
bool own_call_parse(own_call *call, bool with_defaults);
/* The largest relative error of a result of f32 that the device declares, or
 * that the suite's tolerance allows. */
double own_relative_error(const suite *self);

/* The numbers that arguments are given. */
enum { OWN_NUMBERS = 5 };
bool own_is_number(const core_value *value);
/* Gives an argument its n-th number; false: there are fewer. */
bool own_set_number(core_value *value, int n);
/* Writes the numbers of a call: ", scale 1.25, by 2". */
const char *own_describe(const own_call *call, char *text, size_t size);

/* The tests of their kernels. */
void own_layouts_agree(suite *self, outcome *out, const test *one);
void own_results_agree_with_cpu(suite *self, outcome *out, const test *one);
void own_numbers_matter(suite *self, outcome *out, const test *one);

#endif
