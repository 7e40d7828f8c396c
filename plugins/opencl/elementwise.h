/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elementwise.h: an element-wise operator, as expressions in OpenCL C. */

#ifndef OPENCL_ELEMENTWISE_H
#define OPENCL_ELEMENTWISE_H

#include "opencl.h"

/* How a parameter is read from an argument. */
enum {
    READ_NUMBER,
    READ_IS_TANH,    /* 1 where the text is "tanh" */
    READ_ROUNDING,   /* none 0, "trunc" 1, "floor" 2 */
    READ_IS_PRESENT, /* 1 where it is not None */
    READ_IS_BELOW_0,
    READ_POWER_OF_10 /* of its size without sign */
};

typedef struct parameter {
    int argument; /* counted from 1; 0: there is no such parameter */
    double otherwise;
    int how;
} parameter;

enum {
    TO_BOOL = 1,    /* the output is bool */
    SELECTS = 2,    /* where: bool, then two of the type; typed by size */
    MASKS = 4,      /* masked_fill: the type, then bool; typed by size */
    MAY_FAIL = 8,   /* sets `bad` */
    NO_HALVES = 16, /* f64 and f32 alone */
    OR_NEXT = 32,   /* with an operand less it is the next row's */
    SPECIAL = 64    /* calls special.cl, which is f64 */
};

/* Expressions are of a, b, c, of type T, and of p0 … p3, of type T too.
 * floats: for f64 and f32; integers; boolean.  NULL: not for these. */
typedef struct operation {
    const char *name;
    uint32_t inputs;
    const char *floats, *integers, *boolean;
    uint32_t flags;
    parameter parameters[4];
} operation;

#endif
