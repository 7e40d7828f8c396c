/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The opcodes of loop programs. */

#include "codegen/loop_program.h"

#include "codegen/operator_programs.h"

#include <stddef.h>
#include <string.h>

#define FLOATS CORE__LOOP_FLOATS
#define INTEGERS CORE__LOOP_INTEGERS
#define NUMBERS CORE__LOOP_NUMBERS
#define BITS (CORE__LOOP_INTEGERS | CORE__LOOP_BOOL)
#define ANY CORE__LOOP_ANY
#define I64 CORE__LOOP_I64
#define ROW(opcode, name, form, values, types) \
    [CORE_LOOP_##opcode] = {name, CORE__LOOP_FORM_##form, values, types}

static const core__loop_opcode opcodes[] = {
    ROW(LOAD, "load", LOAD, 0, ANY),
    ROW(STORE, "store", STORE, 0, ANY),
    ROW(CONSTANT, "constant", CONSTANT, 0, ANY),
    ROW(INDEX, "index", DIMENSION, 0, I64),
    ROW(SIZE, "size", DIMENSION, 0, I64),
    ROW(POSITION, "position", PLAIN, 0, I64),
    ROW(ROW_SIZE, "row_size", PLAIN, 0, I64),
    ROW(ADD, "add", PLAIN, 2, NUMBERS),
    ROW(SUB, "sub", PLAIN, 2, NUMBERS),
    ROW(MUL, "mul", PLAIN, 2, NUMBERS),
    ROW(DIV, "div", PLAIN, 2, NUMBERS),
    ROW(FLOOR_DIVIDE, "floor_divide", PLAIN, 2, NUMBERS),
    ROW(FMOD, "fmod", PLAIN, 2, NUMBERS),
    ROW(REMAINDER, "remainder", PLAIN, 2, NUMBERS),
    ROW(FMA, "fma", PLAIN, 3, FLOATS),
    ROW(NEG, "neg", PLAIN, 1, NUMBERS),
    ROW(ABS, "abs", PLAIN, 1, NUMBERS),
    ROW(SQRT, "sqrt", PLAIN, 1, FLOATS),
    ROW(CEIL, "ceil", PLAIN, 1, FLOATS),
    ROW(FLOOR, "floor", PLAIN, 1, FLOATS),
    ROW(TRUNC, "trunc", PLAIN, 1, FLOATS),
    ROW(ROUND, "round", PLAIN, 1, FLOATS),
    ROW(MAXIMUM, "maximum", PLAIN, 2, NUMBERS),
    ROW(MINIMUM, "minimum", PLAIN, 2, NUMBERS),
    ROW(FMAX, "fmax", PLAIN, 2, NUMBERS),
    ROW(FMIN, "fmin", PLAIN, 2, NUMBERS),
    ROW(COPYSIGN, "copysign", PLAIN, 2, FLOATS),
    ROW(SIGNBIT, "signbit", TEST, 1, NUMBERS),
    ROW(AND, "and", PLAIN, 2, BITS),
    ROW(OR, "or", PLAIN, 2, BITS),
    ROW(XOR, "xor", PLAIN, 2, BITS),
    ROW(NOT, "not", PLAIN, 1, BITS),
    ROW(SHIFT_LEFT, "shift_left", PLAIN, 2, INTEGERS),
    ROW(SHIFT_RIGHT, "shift_right", PLAIN, 2, INTEGERS),
    ROW(EQ, "eq", TEST, 2, ANY),
    ROW(NE, "ne", TEST, 2, ANY),
    ROW(LT, "lt", TEST, 2, ANY),
    ROW(LE, "le", TEST, 2, ANY),
    ROW(GT, "gt", TEST, 2, ANY),
    ROW(GE, "ge", TEST, 2, ANY),
    ROW(SELECT, "select", SELECT, 3, ANY),
    ROW(CONVERT, "convert", CONVERT, 1, ANY),
    ROW(FUNCTION, "function", FUNCTION, 0, NUMBERS),
    ROW(PHILOX32, "philox32", PHILOX, 3, CORE_DTYPE_MASK(CORE_I32)),
    ROW(PHILOX64, "philox64", PHILOX, 3, I64),
    ROW(REDUCE_SUM, "reduce_sum", REDUCE, 1, CORE__LOOP_REDUCED),
    ROW(REDUCE_MAX, "reduce_max", REDUCE, 1, CORE__LOOP_REDUCED),
    ROW(REDUCE_MIN, "reduce_min", REDUCE, 1, CORE__LOOP_REDUCED),
};

const core__loop_opcode *core__loop_opcode_of(uint32_t opcode)
{
    return opcode < sizeof opcodes / sizeof *opcodes && opcodes[opcode].name
               ? &opcodes[opcode]
               : NULL;
}

const core__loop_function *core__loop_function_of(core_string name)
{
    for (uint32_t i = 0; i < core__loop_nfunctions; i++)
        if (strlen(core__loop_functions[i].name) == name.size &&
            memcmp(core__loop_functions[i].name, name.data, name.size) == 0)
            return &core__loop_functions[i];
    return NULL;
}

uint32_t core__loop_values(const core_loop_program *program,
                           const core_loop_instruction *at)
{
    const core__loop_opcode *opcode = core__loop_opcode_of(at->opcode);
    const core__loop_function *function;

    if (!opcode)
        return 0;
    if (opcode->form == CORE__LOOP_FORM_STORE)
        return 1u << 1;
    if (opcode->form != CORE__LOOP_FORM_FUNCTION)
        return (1u << opcode->values) - 1;
    function = at->c < program->nnames
                   ? core__loop_function_of(program->names[at->c])
                   : NULL;
    return function ? (1u << function->nargs) - 1 : 0;
}
