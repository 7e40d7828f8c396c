/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_expression.h: what instructions of loop programs compute, as expressions
 * of backends/expressions. */

#ifndef GPU_LOOP_EXPRESSION_H
#define GPU_LOOP_EXPRESSION_H

#include <gpu/host/host.h>

#include <libcore/codegen.h>

/* The forms of an expression by dtype: f64, f32, f16, bf16, integers, bool. */
enum { GPU_LOOP_FORMS = 6 };

/* A form is declarations and, after the last semicolon, an expression of a, b
 * and c; @ stands for a type's suffix.  NULL: not for these dtypes. */
typedef struct gpu_loop_expression {
    const char *name; /* the operator's */
    uint8_t inputs;
    uint8_t to_bool; /* the result is a bool, otherwise of the inputs' dtype */
    uint8_t may_fail;
    const char *forms[GPU_LOOP_FORMS];
} gpu_loop_expression;

/* Whether an instruction computes an operator. */
bool gpu_loop_is_operator(uint32_t opcode);
/* The name of its operator. */
core_string gpu_loop_operator(const core_loop_program *program,
                              const core_loop_instruction *at);
/* Finds its expression and the form for its operands.  Returns NULL if there is
 * none. */
const gpu_loop_expression *gpu_loop_expression_of(
    const core_loop_program *program, const core_loop_instruction *at,
    const char **out_form);

#endif
