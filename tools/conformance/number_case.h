/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* number_case.h: calls whose tensors consist of one number each, and which have
 * one result. */

#ifndef CONFORMANCE_NUMBER_CASE_H
#define CONFORMANCE_NUMBER_CASE_H

#include "suite.h"

enum { NUMBER_ARGUMENTS = 6 };

/* An argument; every element of a tensor has the same value. */
typedef struct number {
    enum {
        NONE,
        TENSOR,   /* of 2 x 2 elements */
        GAPS,     /* with gaps between its elements */
        ZERO_DIM, /* of one element */
        MASK,     /* of bool, true */
        NUMBER,
        WHOLE_NUMBER,  /* an integer, whatever the dtype */
        LEFT_OUT,      /* NONE is passed */
        ROUNDED_DOWN,  /* rounding_mode "floor" */
        ROUNDED_TO_0,  /* rounding_mode "trunc" */
        FIRST_TENSOR,  /* argument 0 again */
        SECOND_TENSOR, /* argument 1 again */
    } kind;
    double f;
    int64_t i; /* where the dtype is an integer */
} number;

#define T(value)                                  \
    {                                             \
        TENSOR, (double)(value), (int64_t)(value) \
    }
#define N(value)                                  \
    {                                             \
        NUMBER, (double)(value), (int64_t)(value) \
    }

/* How far a result may be from its value (bounds.h). */
typedef enum rounding {
    IS_EXACT,
    IS_ROUNDED, /* as a function of its elements */
    IS_SUMMED   /* as a sum */
} rounding;

typedef struct number_case {
    const char *name;
    core_dtype dtype;
    number args[NUMBER_ARGUMENTS];
    double f;  /* every element of the result; NaN: any NaN */
    int64_t i; /* where the result consists of integers */
    rounding how;
} number_case;

/* Makes the calls on the device.  Those that no kernel computes are left out and
 * counted in a remark. */
void number_cases_check(suite *self, const number_case *cases, size_t count,
                        outcome *out);

#endif
