/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* operator_programs.h: the element-wise operators of ops.yaml as instructions
 * of loop programs.  tools/gen_operator_programs.py writes the tables from the
 * expressions that the backends' kernels are generated from. */

#ifndef CORE_CODEGEN_OPERATOR_PROGRAMS_H
#define CORE_CODEGEN_OPERATOR_PROGRAMS_H

#include "codegen/loop_program.h"

/* The functions, in no particular order. */
extern const core__loop_function core__loop_functions[];
extern const uint32_t core__loop_nfunctions;

/* What a field of a step refers to. */
enum {
    CORE__STEP_INPUT = 0,     /* + k: input k */
    CORE__STEP_PARAMETER = 8, /* + k: parameter k, a number */
    CORE__STEP_CONSTANT = 16, /* + k: core__step_constants[k] */
    CORE__STEP_VALUE = 96     /* + k: the value of step k of this program */
};

/* The dtype of a step's value. */
enum {
    CORE__STEP_COMPUTE, /* that of the computation */
    CORE__STEP_BOOL,
    CORE__STEP_F16,
    CORE__STEP_BF16,
    CORE__STEP_RESULT /* CONVERT: to the dtype of the result */
};

typedef struct core__step {
    uint8_t opcode;
    uint8_t type;
    uint8_t a, b, c; /* of a FUNCTION, c is its index in core__loop_functions */
} core__step;

/* Which of the variants of an operator a call takes (backends/expressions). */
enum {
    CORE__CHOICE_NONE,
    CORE__CHOICE_ALPHA,
    CORE__CHOICE_ROUNDING,
    CORE__CHOICE_POWER,
    CORE__CHOICE_TANH,
    CORE__CHOICE_CLAMP,
    CORE__CHOICE_BITS,
    CORE__CHOICE_FINITE,
    CORE__CHOICE_BOUND,
    CORE__CHOICE_DTYPE
};

/* An operator for a class of dtypes. */
typedef struct core__operator_program {
    const char *name;
    uint32_t types; /* of the computation */
    uint8_t ninputs;
    uint8_t choice;
    uint8_t nvariants;
    uint8_t bool_input; /* mask of inputs that are bool whatever the dtype */
    uint8_t bool_result;
    uint8_t nparameters;
    uint8_t argument[4]; /* position of each parameter */
    double otherwise[4]; /* its value if absent */
    uint16_t first[7];   /* where each variant begins in core__steps */
    uint8_t count[7];    /* its steps; the last one's value is the result */
} core__operator_program;

extern const core__operator_program core__operator_programs[];
extern const uint32_t core__noperator_programs;
extern const core__step core__steps[];
extern const double core__step_constants[];

/* Writes the instructions of an element-wise operator, and returns its result.
 * name: of the operator whose kernels serve the call (core__operator_kernel).
 * compute: the dtype in which the operands are promoted to meet, or for
 * operators that keep dtypes that of the result.  args: all arguments; tensors
 * among them are ignored.  UNSUPPORTED, without a message, if the operator
 * cannot be written as instructions. */
core_status core__loop_write_operator(core__loop_writer *self, const char *name,
                                      core_dtype compute,
                                      const uint32_t *inputs, uint32_t ninputs,
                                      const core_value *args, uint32_t nargs,
                                      uint32_t *out_value);

#endif
