/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes element-wise operators as instructions, from the generated tables. */

#include "codegen/operator_programs.h"

#include "base/error.h"
#include "tensor/dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { STEPS = 160 };

typedef struct lowering {
    core__loop_writer *writer;
    const core__operator_program *op;
    const uint32_t *inputs;
    const core_value *args;
    uint32_t nargs;
    core_dtype compute; /* that the operands are promoted to */
    core_dtype type;    /* in which the steps compute */
    uint32_t values[STEPS];
} lowering;

static const core__operator_program *program_of(const char *name,
                                                core_dtype compute,
                                                uint32_t ninputs)
{
    for (uint32_t i = 0; i < core__noperator_programs; i++) {
        const core__operator_program *op = &core__operator_programs[i];

        /* The bounds of clamp.Tensor may be absent. */
        if (strcmp(op->name, name) == 0 && op->types >> compute & 1 &&
            (ninputs == op->ninputs ||
             (op->choice == CORE__CHOICE_CLAMP && ninputs + 1u == op->ninputs)))
            return op;
    }
    return NULL;
}

/* ------------------------------------------------------------ variants -- */

static bool text_is(const core_value *value, const char *text)
{
    return value->tag == CORE_VALUE_STRING && value->count == strlen(text) &&
           memcmp(value->u.string, text, value->count) == 0;
}

static double number_of(const core_value *value, double otherwise)
{
    return value->tag == CORE_VALUE_FLOAT  ? value->u.f
           : value->tag == CORE_VALUE_INT  ? (double)value->u.i
           : value->tag == CORE_VALUE_BOOL ? (double)value->u.i
                                           : otherwise;
}

static int choose_rounding(const lowering *l)
{
    const core_value *mode = l->nargs > 2 ? &l->args[2] : NULL;

    if (!mode || mode->tag == CORE_VALUE_NONE)
        return 0;
    if (text_is(mode, "trunc"))
        return l->compute == CORE_F16 ? 3 : l->compute == CORE_BF16 ? 4 : 1;
    return text_is(mode, "floor") ? 2 : -1;
}

static int choose_tanh(const lowering *l)
{
    for (uint32_t k = 0; k < l->nargs; k++) {
        if (text_is(&l->args[k], "tanh"))
            return 1;
        if (l->args[k].tag == CORE_VALUE_STRING &&
            !text_is(&l->args[k], "none"))
            return -1;
    }
    return 0;
}

/* Kernels look at an exponent that is a number.  One that is known only at the
 * launch has no program. */
static int choose_power(const lowering *l)
{
    static const double common[] = {2, 3, 0.5, -1, -2, -0.5};
    const core__loop_writer *w = l->writer;
    const core_loop_instruction *at;
    uint64_t bits;
    double value;

    if (core__loop_type_of(w, l->inputs[1]) == CORE_DTYPE_NONE)
        return -1;
    at = &w->instructions[l->inputs[1]];
    if (at->opcode == CORE_LOOP_CONVERT)
        at = &w->instructions[at->a];
    if (at->opcode == CORE_LOOP_LOAD &&
        w->operands[at->a].flags & CORE_LOOP_OPERAND_NUMBER)
        return -1;
    at = &w->instructions[l->inputs[1]];
    if (at->opcode != CORE_LOOP_CONSTANT ||
        (at->type != CORE_F64 && at->type != CORE_F32))
        return 0;
    bits = at->a | (uint64_t)at->b << 32;
    value = core__element_load(at->type, &bits).u.f;
    for (int k = 0; k < 6; k++)
        if (value == common[k])
            return k + 1;
    return 0;
}

static int choose(const lowering *l, uint32_t ninputs)
{
    switch (l->op->choice) {
    case CORE__CHOICE_ALPHA:
        return l->nargs > 2 && number_of(&l->args[2], 1) != 1;
    case CORE__CHOICE_ROUNDING:
        return choose_rounding(l);
    case CORE__CHOICE_POWER:
        return choose_power(l);
    case CORE__CHOICE_TANH:
        return choose_tanh(l);
    case CORE__CHOICE_CLAMP:
        if (ninputs == 3)
            return 0;
        return l->nargs > 1 && l->args[1].tag != CORE_VALUE_NONE ? 1 : 2;
    default:
        return 0;
    }
}

/* ---------------------------------------------------------- parameters -- */

static double largest_of(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F16:
        return 65504;
    case CORE_BF16:
        return 0x1.fep127;
    case CORE_F32:
        return FLT_MAX;
    default:
        return DBL_MAX;
    }
}

static double limited(double x, double most)
{
    return x > most ? most : x < -most ? -most : x;
}

static core_scalar float_value(double x)
{
    return (core_scalar){.tag = CORE_VALUE_FLOAT, .u.f = x};
}

static int64_t nearest(double x)
{
    if (x >= -0x1p63 && x < 0x1p63)
        return (int64_t)x;
    return x > 0 ? INT64_MAX : x < 0 ? INT64_MIN : 0;
}

/* A number for an integer computation: truncated.  Kernels take the default for
 * a number that an i64 cannot represent, as core_sdk_int does. */
static int64_t integer_of(const core_scalar *value, double otherwise)
{
    if (value->tag != CORE_VALUE_FLOAT)
        return value->u.i;
    return nearest(value->u.f >= -0x1p63 && value->u.f < 0x1p63 ? value->u.f
                                                                : otherwise);
}

static int64_t saturated(int64_t x, core_dtype dtype)
{
    int64_t most = dtype == CORE_I64   ? INT64_MAX
                   : dtype == CORE_I32 ? INT32_MAX
                   : dtype == CORE_I16 ? INT16_MAX
                   : dtype == CORE_I8  ? INT8_MAX
                                       : UINT8_MAX;
    int64_t least = dtype == CORE_U8 ? 0 : -most - 1;

    return x < least ? least : x > most ? most : x;
}

/* Bounds of integers saturate; other numbers wrap. */
static bool saturates(const char *name)
{
    return strncmp(name, "clamp", 5) == 0 || strncmp(name, "hardtanh", 8) == 0;
}

static uint32_t parameter(lowering *l, uint32_t k)
{
    const core__operator_program *op = l->op;
    core_scalar value = float_value(op->otherwise[k]);
    uint32_t position = op->argument[k];

    if (position < l->nargs && (l->args[position].tag == CORE_VALUE_INT ||
                                l->args[position].tag == CORE_VALUE_FLOAT ||
                                l->args[position].tag == CORE_VALUE_BOOL))
        value = l->args[position];
    if (op->choice == CORE__CHOICE_BITS || l->type == CORE_BOOL)
        return core__loop_write_constant(l->writer, l->type, value);
    if (CORE__LOOP_INTEGERS >> l->type & 1) {
        value.u.i = integer_of(&value, op->otherwise[k]);
        value.tag = CORE_VALUE_INT;
        if (saturates(op->name))
            value.u.i = saturated(value.u.i, l->type);
        return core__loop_write_constant(l->writer, l->type, value);
    }
    value = float_value(number_of(&value, 0));
    if (op->choice == CORE__CHOICE_FINITE && k > 0)
        value.u.f = limited(value.u.f, largest_of(l->compute));
    if (op->choice == CORE__CHOICE_BOUND && l->compute != l->type) {
        uint64_t bits = 0;

        core__element_store(l->compute, &bits, value);
        value = core__element_load(l->compute, &bits);
    }
    return core__loop_write_constant(l->writer, l->type, value);
}

/* --------------------------------------------------------------- steps -- */

static core_dtype step_type(const lowering *l, uint32_t type)
{
    return type == CORE__STEP_BOOL   ? CORE_BOOL
           : type == CORE__STEP_F16  ? CORE_F16
           : type == CORE__STEP_BF16 ? CORE_BF16
                                     : l->type;
}

/* The value that a field refers to; constants have the given dtype. */
static uint32_t refer(lowering *l, uint32_t field, core_dtype type)
{
    if (field >= CORE__STEP_VALUE)
        return l->values[field - CORE__STEP_VALUE];
    if (field >= CORE__STEP_CONSTANT)
        return core__loop_write_constant(
            l->writer, type,
            float_value(core__step_constants[field - CORE__STEP_CONSTANT]));
    if (field >= CORE__STEP_PARAMETER)
        return parameter(l, field - CORE__STEP_PARAMETER);
    return core__loop_write_convert(
        l->writer, l->op->bool_input >> field & 1 ? CORE_BOOL : l->type,
        l->inputs[field]);
}

static uint32_t write_step(lowering *l, const core__step *step)
{
    const core__loop_opcode *opcode = core__loop_opcode_of(step->opcode);
    core_dtype type = step_type(l, step->type);
    core_dtype operands = opcode->form == CORE__LOOP_FORM_TEST ||
                                  step->opcode == CORE_LOOP_CONVERT
                              ? l->type
                              : type;
    uint32_t fields[3] = {step->a, step->b, step->c}, name;

    switch (step->opcode) {
    case CORE_LOOP_CONSTANT:
        return refer(l, step->a, type);
    case CORE_LOOP_CONVERT:
        return core__loop_write_convert(l->writer, type,
                                        refer(l, step->a, operands));
    case CORE_LOOP_FUNCTION:
        for (uint32_t k = 0; k < core__loop_functions[step->c].nargs; k++)
            fields[k] = refer(l, fields[k], type);
        name = core__loop_write_name(l->writer,
                                     core__loop_functions[step->c].name);
        return core__loop_write(l->writer, step->opcode, type, fields[0],
                                fields[1], name);
    default:
        for (uint32_t k = 0; k < opcode->values; k++)
            fields[k] =
                refer(l, fields[k],
                      step->opcode == CORE_LOOP_SELECT && k == 0 ? CORE_BOOL
                                                                 : operands);
        return core__loop_write(l->writer, step->opcode, type, fields[0],
                                fields[1], fields[2]);
    }
}

/* f16 and bf16 compute in f32, and round the result.  A single instruction on
 * inputs does that itself. */
static core_dtype type_of_steps(const lowering *l, const core__step *steps,
                                uint32_t count)
{
    bool half = l->compute == CORE_F16 || l->compute == CORE_BF16;
    uint32_t n = core__loop_opcode_of(steps->opcode)->values;

    if (!half || l->op->types == (uint32_t)CORE__LOOP_ANY)
        return l->compute;
    if (steps->opcode == CORE_LOOP_FUNCTION)
        n = core__loop_functions[steps->c].nargs;
    if (count != 1 || steps->opcode == CORE_LOOP_CONVERT)
        return CORE_F32;
    for (uint32_t k = 0; k < n; k++)
        if ((k == 0   ? steps->a
             : k == 1 ? steps->b
                      : steps->c) >= CORE__STEP_PARAMETER)
            return CORE_F32;
    return l->compute;
}

core_status core__loop_write_operator(core__loop_writer *self, const char *name,
                                      core_dtype compute,
                                      const uint32_t *inputs, uint32_t ninputs,
                                      const core_value *args, uint32_t nargs,
                                      uint32_t *out_value)
{
    lowering l = {.writer = self,
                  .inputs = inputs,
                  .args = args,
                  .nargs = nargs,
                  .compute = compute};
    const core__step *steps;
    uint32_t count, value;
    int variant;

    *out_value = CORE__LOOP_NO_VALUE;
    if (compute >= CORE_DTYPE_LIMIT)
        return CORE_ERROR_UNSUPPORTED;
    l.op = program_of(name, compute, ninputs);
    if (!l.op || self->status != CORE_OK)
        return l.op ? self->status : CORE_ERROR_UNSUPPORTED;
    variant = choose(&l, ninputs);
    if (variant < 0 || variant >= l.op->nvariants)
        return CORE_ERROR_UNSUPPORTED;
    steps = &core__steps[l.op->first[variant]];
    count = l.op->count[variant];
    l.type = type_of_steps(&l, steps, count);
    for (uint32_t k = 0; k < count; k++)
        l.values[k] = write_step(&l, &steps[k]);
    value = l.values[count - 1];
    if (!l.op->bool_result)
        value = core__loop_write_convert(self, compute, value);
    *out_value = value;
    return self->status;
}
