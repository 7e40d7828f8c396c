/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_expression.c: finds the expression of an instruction. */

#include <gpu/host/loop_expression.h>
#include <gpu/host/loop_writer.h>

#include <stdlib.h>

#include <loop_expressions.h>

enum { EXPRESSIONS = sizeof expressions / sizeof *expressions };

static const char *const names[CORE_LOOP_GE + 1] = {
    [CORE_LOOP_ADD] = "add.Tensor",
    [CORE_LOOP_SUB] = "sub.Tensor",
    [CORE_LOOP_MUL] = "mul.Tensor",
    [CORE_LOOP_DIV] = "div.Tensor",
    [CORE_LOOP_FLOOR_DIVIDE] = "floor_divide",
    [CORE_LOOP_FMOD] = "fmod.Tensor",
    [CORE_LOOP_REMAINDER] = "remainder.Tensor",
    [CORE_LOOP_FMA] = "addcmul",
    [CORE_LOOP_NEG] = "neg",
    [CORE_LOOP_ABS] = "abs",
    [CORE_LOOP_SQRT] = "sqrt",
    [CORE_LOOP_CEIL] = "ceil",
    [CORE_LOOP_FLOOR] = "floor",
    [CORE_LOOP_TRUNC] = "trunc",
    [CORE_LOOP_ROUND] = "round",
    [CORE_LOOP_MAXIMUM] = "maximum",
    [CORE_LOOP_MINIMUM] = "minimum",
    [CORE_LOOP_FMAX] = "fmax",
    [CORE_LOOP_FMIN] = "fmin",
    [CORE_LOOP_COPYSIGN] = "copysign.Tensor",
    [CORE_LOOP_SIGNBIT] = "signbit",
    [CORE_LOOP_AND] = "bitwise_and.Tensor",
    [CORE_LOOP_OR] = "bitwise_or.Tensor",
    [CORE_LOOP_XOR] = "bitwise_xor.Tensor",
    [CORE_LOOP_NOT] = "bitwise_not",
    [CORE_LOOP_SHIFT_LEFT] = "bitwise_left_shift.Tensor",
    [CORE_LOOP_SHIFT_RIGHT] = "bitwise_right_shift.Tensor",
    [CORE_LOOP_EQ] = "eq.Tensor",
    [CORE_LOOP_NE] = "ne.Tensor",
    [CORE_LOOP_LT] = "lt.Tensor",
    [CORE_LOOP_LE] = "le.Tensor",
    [CORE_LOOP_GT] = "gt.Tensor",
    [CORE_LOOP_GE] = "ge.Tensor",
};

bool gpu_loop_is_operator(uint32_t opcode)
{
    return opcode == CORE_LOOP_FUNCTION ||
           (opcode <= CORE_LOOP_GE && names[opcode] != NULL);
}

core_string gpu_loop_operator(const core_loop_program *program,
                              const core_loop_instruction *at)
{
    if (at->opcode == CORE_LOOP_FUNCTION)
        return program->names[at->c];
    if (at->opcode == CORE_LOOP_DIV && at->type >= CORE_I64)
        return core_sdk_string("div.Tensor_mode");
    return core_sdk_string(names[at->opcode]);
}

static int compare(const void *key, const void *element)
{
    const core_string *name = key;
    const gpu_loop_expression *e = element;
    size_t size = strlen(e->name);
    int order =
        memcmp(name->data, e->name, name->size < size ? name->size : size);

    return order != 0 ? order : (name->size > size) - (name->size < size);
}

static const char *form_of(const gpu_loop_expression *e, core_dtype dtype)
{
    uint32_t form = dtype == CORE_BOOL  ? 5
                    : dtype >= CORE_I64 ? 4
                                        : dtype - CORE_F64;

    return e->forms[form];
}

const gpu_loop_expression *gpu_loop_expression_of(
    const core_loop_program *program, const core_loop_instruction *at,
    const char **out_form)
{
    core_string name = gpu_loop_operator(program, at);
    const gpu_loop_expression *e =
        bsearch(&name, expressions, EXPRESSIONS, sizeof *expressions, compare);

    *out_form =
        e != NULL ? form_of(e, program->instructions[at->a].type) : NULL;
    return *out_form != NULL ? e : NULL;
}

uint32_t gpu_loop_values(const core_loop_program *program,
                         const core_loop_instruction *at)
{
    const gpu_loop_expression *e;
    const char *form;

    if (at->opcode == CORE_LOOP_CONVERT ||
        core_sdk_loop_is_reduction(at->opcode))
        return 1;
    if (at->opcode == CORE_LOOP_SELECT || at->opcode == CORE_LOOP_PHILOX32 ||
        at->opcode == CORE_LOOP_PHILOX64)
        return 3;
    if (!gpu_loop_is_operator(at->opcode))
        return 0;
    e = gpu_loop_expression_of(program, at, &form);
    return e != NULL ? e->inputs : 0;
}
