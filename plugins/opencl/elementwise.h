/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elementwise.h: element-wise operators as expressions in OpenCL C. */

#ifndef OPENCL_ELEMENTWISE_H
#define OPENCL_ELEMENTWISE_H

#include "opencl.h"

/* How a parameter is read from an argument. */
enum {
    READ_NUMBER,
    READ_IS_TANH,    /* 1 if the text is "tanh" */
    READ_ROUNDING,   /* none 0, "trunc" 1, "floor" 2 */
    READ_IS_PRESENT, /* 1 if it is not None */
    READ_IS_BELOW_0,
    READ_POWER_OF_10 /* an unsigned integer of its size */
};

typedef struct parameter {
    int argument; /* counted from 1; 0: no such parameter */
    double default_value;
    int how;
} parameter;

enum {
    TO_BOOL = 1,    /* the output is bool */
    SELECTS = 2,    /* where: bool, then two operands of the type; by size */
    MASKS = 4,      /* masked_fill: the type, then bool; by size */
    MAY_FAIL = 8,   /* sets `bad` */
    NO_HALVES = 16, /* f64 and f32 only */
    OR_NEXT = 32,   /* with one operand less the next row is used */
    SPECIAL = 64    /* uses special.cl, in f64 */
};

/* Expressions of a, b, c and p0 … p3, all of type T.  floats: for f64 and f32;
 * integers; boolean.  NULL: not supported for these. */
typedef struct operation {
    const char *name;
    uint32_t inputs;
    const char *floats, *integers, *boolean;
    uint32_t flags;
    parameter parameters[4];
} operation;

/* Returns NULL for an unknown operator. */
const operation *opencl_operation_find(core_string name);
/* The expression that computes on elements of a dtype, or NULL. */
const char *opencl_expression_for(const operation *op, core_dtype dtype);
/* #define lines after which the functions of elementwise.cl have names that
 * depend on T (loop.cl). */
extern const char opencl_own_names[];

#endif
