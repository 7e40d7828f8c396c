/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks loop programs, which may come from anywhere, and loops against
 * them. */

#include "base/error.h"
#include "codegen/loop_program.h"
#include "tensor/dtype.h"

#include <stdarg.h>
#include <stdio.h>

enum { UNIFORM = 1, USED = 2, STORED = 4 };

typedef struct check {
    const core_loop_program *program;
    uint32_t at;
    uint32_t ndim; /* what the dimensions in instructions require */
    bool ordered;  /* an instruction depends on the order of dimensions */
    bool reduces;
    bool stores; /* a STORE was seen */
    uint8_t values[CORE_LOOP_MAX_INSTRUCTIONS];
    uint8_t operands[CORE_LOOP_MAX_OPERANDS];
    bool names[CORE_LOOP_MAX_NAMES];
} check;

static const char *name_of(core_dtype dtype)
{
    return dtype < CORE_DTYPE_LIMIT && CORE__LOOP_ANY >> dtype & 1
               ? core__dtype_name(dtype)
               : "an unsupported dtype";
}

static bool is_dtype(uint32_t dtype, uint32_t mask)
{
    return dtype < CORE_DTYPE_LIMIT && mask >> dtype & 1;
}

static core_status __attribute__((format(printf, 2, 3), cold))
wrong(const check *c, const char *format, ...)
{
    const core_loop_instruction *at = &c->program->instructions[c->at];
    const core__loop_opcode *opcode = core__loop_opcode_of(at->opcode);
    char text[200];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "loop program: instruction %u (%s): %s", c->at,
                       opcode ? opcode->name : "unknown opcode", text);
}

static core_status check_counts(const core_loop_program *p)
{
    const struct {
        const char *what;
        uint32_t count, least, most;
        const void *data;
    } arrays[] = {
        {"instructions", p->ninstructions, 1, CORE_LOOP_MAX_INSTRUCTIONS,
         p->instructions},
        {"operands", p->noperands, 1, CORE_LOOP_MAX_OPERANDS, p->operands},
        {"names", p->nnames, 0, CORE_LOOP_MAX_NAMES, p->names},
    };

    for (uint32_t i = 0; i < 3; i++)
        if (arrays[i].count < arrays[i].least ||
            arrays[i].count > arrays[i].most ||
            (arrays[i].count > 0 && !arrays[i].data))
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "loop program: it has %u %s%s; %u to %u are accepted",
                arrays[i].count, arrays[i].what,
                arrays[i].count > 0 && !arrays[i].data ? " at NULL" : "",
                arrays[i].least, arrays[i].most);
    if (p->noutputs < 1 || p->noutputs > p->noperands)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "loop program: it has %u outputs; 1 to %u, the "
                           "number of operands, are accepted",
                           p->noutputs, p->noperands);
    if (p->ndim > CORE_MAX_NDIM || p->reserved != 0 ||
        p->flags & ~(uint32_t)CORE_LOOP_PROGRAM_REDUCES)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "loop program: ndim is %u, flags 0x%x and reserved "
                           "%u; at most %d, 0x%x and 0 are accepted",
                           p->ndim, p->flags, p->reserved, CORE_MAX_NDIM,
                           CORE_LOOP_PROGRAM_REDUCES);
    return CORE_OK;
}

static core_status check_operands(const core_loop_program *p)
{
    const uint32_t all = CORE_LOOP_OPERAND_OUTPUT | CORE_LOOP_OPERAND_NUMBER |
                         CORE_LOOP_OPERAND_ROW;

    for (uint32_t k = 0; k < p->noperands; k++) {
        uint32_t flags = p->operands[k].flags;
        bool output = flags & CORE_LOOP_OPERAND_OUTPUT;
        bool number = flags & CORE_LOOP_OPERAND_NUMBER;
        bool row = flags & CORE_LOOP_OPERAND_ROW;

        if (!is_dtype(p->operands[k].dtype, CORE__LOOP_ANY))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "loop program: operand %u has dtype %u, which "
                               "cannot be used in loop programs",
                               k, p->operands[k].dtype);
        if (flags & ~all || output != (k < p->noutputs) ||
            (number && (output || row)) ||
            (row && !(p->flags & CORE_LOOP_PROGRAM_REDUCES)))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "loop program: operand %u of %u outputs and %u "
                               "operands cannot have the flags 0x%x",
                               k, p->noutputs, p->noperands, flags);
    }
    return CORE_OK;
}

static core_status check_names(const core_loop_program *p)
{
    for (uint32_t i = 0; i < p->nnames; i++) {
        const core_string *name = &p->names[i];

        if (!name->data || name->size < 1 ||
            name->size > CORE_LOOP_MAX_NAME_SIZE ||
            !core__loop_function_of(*name))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "loop program: name %u is not the name of a "
                               "known function",
                               i);
        for (uint32_t k = 0; k < i; k++)
            if (core__loop_function_of(*name) ==
                core__loop_function_of(p->names[k]))
                return core__error(CORE_ERROR_INVALID_ARGUMENT,
                                   "loop program: names %u and %u are both "
                                   "\"%.*s\"",
                                   k, i, (int)name->size, name->data);
    }
    return CORE_OK;
}

/* ------------------------------------------------------- instructions -- */

/* A value that is defined before its use. */
static core_status check_value(const check *c, uint32_t value)
{
    if (value >= c->at)
        return wrong(c, "it uses value %u, which is not defined before it",
                     value);
    if (c->program->instructions[value].opcode == CORE_LOOP_STORE)
        return wrong(c, "it uses value %u, which is a store", value);
    return CORE_OK;
}

static core_status check_type(const check *c, uint32_t value, core_dtype type)
{
    core_dtype given = c->program->instructions[value].type;

    return given == type ? CORE_OK
                         : wrong(c, "value %u is %s; %s is needed", value,
                                 name_of(given), name_of(type));
}

static core_status check_fields(const check *c, uint32_t used)
{
    const core_loop_instruction *at = &c->program->instructions[c->at];

    for (uint32_t k = 0; k < 3; k++)
        if (!(used >> k & 1) && core__loop_field(at, k) != 0)
            return wrong(c, "field %c is %u; it must be 0", "abc"[k],
                         core__loop_field(at, k));
    return CORE_OK;
}

static core_status check_result(const check *c, uint32_t types)
{
    uint32_t type = c->program->instructions[c->at].type;

    return is_dtype(type, types) ? CORE_OK
                                 : wrong(c, "it cannot have the type %u (%s)",
                                         type, name_of(type));
}

static core_status check_load(check *c, const core_loop_instruction *at)
{
    const core_loop_program *p = c->program;

    CORE_TRY(check_fields(c, 1));
    if (at->a >= p->noperands || at->a < p->noutputs)
        return wrong(c, "operand %u is not an input; these are %u to %u", at->a,
                     p->noutputs, p->noperands - 1);
    if (at->type != p->operands[at->a].dtype)
        return wrong(c, "operand %u is %s, and the value %s", at->a,
                     name_of(p->operands[at->a].dtype), name_of(at->type));
    c->operands[at->a] |= USED;
    if (p->operands[at->a].flags &
        (CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW))
        c->values[c->at] |= UNIFORM;
    return CORE_OK;
}

static core_status check_store(check *c, const core_loop_instruction *at)
{
    const core_loop_program *p = c->program;

    CORE_TRY(check_fields(c, 3));
    if (at->type != CORE_DTYPE_NONE)
        return wrong(c, "its type is %u; it must be 0", at->type);
    if (at->a >= p->noutputs)
        return wrong(c, "operand %u is not one of the %u outputs", at->a,
                     p->noutputs);
    if (c->operands[at->a] & STORED)
        return wrong(c, "output %u is stored twice", at->a);
    CORE_TRY(check_value(c, at->b));
    CORE_TRY(check_type(c, at->b, p->operands[at->a].dtype));
    if (p->operands[at->a].flags & CORE_LOOP_OPERAND_ROW &&
        !(c->values[at->b] & UNIFORM))
        return wrong(c,
                     "output %u has one element for each row, and value %u "
                     "differs within a row",
                     at->a, at->b);
    c->operands[at->a] |= STORED | USED;
    c->stores = true;
    c->values[c->at] |= USED;
    return CORE_OK;
}

static core_status check_constant(check *c, const core_loop_instruction *at)
{
    uint64_t bits = at->a | (uint64_t)at->b << 32;
    uint32_t size;

    CORE_TRY(check_fields(c, 3));
    CORE_TRY(check_result(c, CORE__LOOP_ANY));
    size = (uint32_t)core__dtype_size(at->type) * 8;
    if ((size < 64 && bits >> size != 0) || (at->type == CORE_BOOL && bits > 1))
        return wrong(c, "0x%llx is not an element of %s",
                     (unsigned long long)bits, name_of(at->type));
    c->values[c->at] |= UNIFORM;
    return CORE_OK;
}

static core_status check_dimension(check *c, const core_loop_instruction *at)
{
    CORE_TRY(check_fields(c, 1));
    CORE_TRY(check_result(c, CORE__LOOP_I64));
    c->ordered = true;
    if (at->a >= c->program->ndim)
        return wrong(c, "dimension %u is not below ndim, %u", at->a,
                     c->program->ndim);
    if (at->opcode == CORE_LOOP_SIZE)
        c->values[c->at] |= UNIFORM;
    return CORE_OK;
}

/* All values of an instruction have one dtype of a set, which is returned. */
static core_status check_equal(const check *c, const core_loop_instruction *at,
                               uint32_t first, uint32_t end, uint32_t types,
                               core_dtype *out_type)
{
    uint32_t a = core__loop_field(at, first);

    *out_type = c->program->instructions[a].type;
    if (!is_dtype(*out_type, types))
        return wrong(c, "value %u is %s, which it does not accept", a,
                     name_of(*out_type));
    for (uint32_t k = first + 1; k < end; k++)
        CORE_TRY(check_type(c, core__loop_field(at, k), *out_type));
    return CORE_OK;
}

static core_status check_function(check *c, const core_loop_instruction *at,
                                  uint32_t *out_values)
{
    const core__loop_function *function;
    core_dtype type;

    *out_values = 0;
    if (at->c >= c->program->nnames)
        return wrong(c, "name %u is not one of the %u names", at->c,
                     c->program->nnames);
    function = core__loop_function_of(c->program->names[at->c]);
    c->names[at->c] = true;
    *out_values = (1u << function->nargs) - 1;
    for (uint32_t k = 0; k < function->nargs; k++)
        CORE_TRY(check_value(c, core__loop_field(at, k)));
    CORE_TRY(check_fields(c, *out_values | 4));
    CORE_TRY(check_equal(c, at, 0, function->nargs, function->types, &type));
    return at->type == type ? CORE_OK
                            : wrong(c, "%s of %s cannot be %s", function->name,
                                    name_of(type), name_of(at->type));
}

static core_status check_values(check *c, const core_loop_instruction *at,
                                const core__loop_opcode *opcode)
{
    core_dtype type = CORE_DTYPE_NONE;
    uint32_t n = opcode->values;

    switch (opcode->form) {
    case CORE__LOOP_FORM_PLAIN:
        CORE_TRY(check_result(c, opcode->types));
        for (uint32_t k = 0; k < n; k++)
            CORE_TRY(check_type(c, core__loop_field(at, k), at->type));
        return CORE_OK;
    case CORE__LOOP_FORM_TEST:
        CORE_TRY(check_result(c, CORE__LOOP_BOOL));
        return check_equal(c, at, 0, n, opcode->types, &type);
    case CORE__LOOP_FORM_SELECT:
        CORE_TRY(check_result(c, opcode->types));
        CORE_TRY(check_type(c, at->a, CORE_BOOL));
        CORE_TRY(check_type(c, at->b, at->type));
        return check_type(c, at->c, at->type);
    case CORE__LOOP_FORM_CONVERT:
        CORE_TRY(check_result(c, opcode->types));
        return at->type != c->program->instructions[at->a].type
                   ? CORE_OK
                   : wrong(c, "value %u is %s already", at->a,
                           name_of(at->type));
    case CORE__LOOP_FORM_PHILOX:
        CORE_TRY(check_result(c, opcode->types));
        return check_equal(c, at, 0, n, CORE__LOOP_I64, &type);
    default: /* REDUCE */
        CORE_TRY(check_result(c, opcode->types));
        c->reduces = true;
        if (c->values[at->a] & UNIFORM)
            return wrong(c, "value %u is the same for all elements of a row",
                         at->a);
        return check_type(c, at->a, at->type);
    }
}

/* An instruction that computes from values, or from nothing. */
static core_status check_computed(check *c, const core_loop_instruction *at,
                                  const core__loop_opcode *opcode)
{
    uint32_t values = (1u << opcode->values) - 1;
    bool uniform = true;

    if (opcode->form == CORE__LOOP_FORM_FUNCTION) {
        CORE_TRY(check_function(c, at, &values));
    } else {
        CORE_TRY(check_fields(c, values));
        for (uint32_t k = 0; k < opcode->values; k++)
            CORE_TRY(check_value(c, core__loop_field(at, k)));
        CORE_TRY(check_values(c, at, opcode));
    }
    for (uint32_t k = 0; k < 3; k++)
        if (values >> k & 1)
            uniform = uniform && c->values[core__loop_field(at, k)] & UNIFORM;
    if (at->opcode == CORE_LOOP_POSITION) {
        c->ordered = true;
        uniform = false;
    }
    if (uniform || opcode->form == CORE__LOOP_FORM_REDUCE)
        c->values[c->at] |= UNIFORM;
    return CORE_OK;
}

static core_status check_instruction(check *c)
{
    const core_loop_instruction *at = &c->program->instructions[c->at];
    const core__loop_opcode *opcode = core__loop_opcode_of(at->opcode);

    if (!opcode)
        return wrong(c, "%u is not an opcode", at->opcode);
    if (at->reserved != 0)
        return wrong(c, "the reserved field is %u; it must be 0", at->reserved);
    if (c->stores && at->opcode != CORE_LOOP_STORE)
        return wrong(c, "it follows a store; all stores are at the end");
    switch (opcode->form) {
    case CORE__LOOP_FORM_LOAD:
        return check_load(c, at);
    case CORE__LOOP_FORM_STORE:
        return check_store(c, at);
    case CORE__LOOP_FORM_CONSTANT:
        return check_constant(c, at);
    case CORE__LOOP_FORM_DIMENSION:
        return check_dimension(c, at);
    default:
        return check_computed(c, at, opcode);
    }
}

/* Everything contributes to a store. */
static core_status check_used(check *c)
{
    const core_loop_program *p = c->program;

    for (uint32_t i = p->ninstructions; i-- > 0;) {
        uint32_t values = core__loop_values(p, &p->instructions[i]);

        c->at = i;
        if (!(c->values[i] & USED))
            return wrong(c, "no store uses its value");
        for (uint32_t k = 0; k < 3; k++)
            if (values >> k & 1)
                c->values[core__loop_field(&p->instructions[i], k)] |= USED;
    }
    for (uint32_t k = 0; k < p->noperands; k++)
        if (!(c->operands[k] & USED))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "loop program: nothing %s operand %u",
                               k < p->noutputs ? "stores to" : "loads", k);
    for (uint32_t i = 0; i < p->nnames; i++)
        if (!c->names[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "loop program: nothing uses name %u", i);
    return CORE_OK;
}

core_status core__loop_program_verify(const core_loop_program *program)
{
    check c = {.program = program};

    CORE_TRY(check_counts(program));
    CORE_TRY(check_operands(program));
    CORE_TRY(check_names(program));
    for (; c.at < program->ninstructions; c.at++) {
        CORE_TRY(check_instruction(&c));
        if (program->instructions[c.at].opcode == CORE_LOOP_ROW_SIZE &&
            !(program->flags & CORE_LOOP_PROGRAM_REDUCES))
            return wrong(&c, "there are no rows without a reduction");
    }
    CORE_TRY(check_used(&c));
    if (c.reduces != ((program->flags & CORE_LOOP_PROGRAM_REDUCES) != 0))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "loop program: the flags are 0x%x, and it has %s "
                           "reduction",
                           program->flags, c.reduces ? "a" : "no");
    if (c.ordered != (program->ndim != 0))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "loop program: ndim is %u, and %s instruction uses "
                           "dimensions",
                           program->ndim, c.ordered ? "an" : "no");
    return CORE_OK;
}

/* --------------------------------------------------------------- loops -- */

static core_status check_sizes(const core_loop_program *p,
                               const core_loop *loop)
{
    uint32_t rows = 0;
    int64_t numel = 1;

    if (loop->noperands != p->noperands || loop->noutputs != p->noutputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "loop program: the loop has %u operands, %u of them "
                           "outputs; the program has %u and %u",
                           loop->noperands, loop->noutputs, p->noperands,
                           p->noutputs);
    if (loop->ndim > CORE_MAX_NDIM || (p->ndim && loop->ndim != p->ndim))
        return core__error(CORE_ERROR_SHAPE,
                           "loop program: the loop has %u dimensions; the "
                           "program needs %u",
                           loop->ndim, p->ndim);
    for (uint32_t d = 0; d < loop->ndim; d++)
        if (loop->sizes[d] < 1 ||
            __builtin_mul_overflow(numel, loop->sizes[d], &numel))
            return core__error(CORE_ERROR_SHAPE,
                               "loop program: dimension %u of the loop has "
                               "size %lld",
                               d, (long long)loop->sizes[d]);
    if (numel != loop->numel)
        return core__error(CORE_ERROR_SHAPE,
                           "loop program: numel of the loop is %lld, and its "
                           "sizes are those of %lld elements",
                           (long long)loop->numel, (long long)numel);
    while (rows < loop->ndim && loop->reduced >> rows & 1)
        rows++;
    if ((rows > 0) != ((p->flags & CORE_LOOP_PROGRAM_REDUCES) != 0) ||
        loop->reduced != (uint32_t)((UINT64_C(1) << rows) - 1))
        return core__error(CORE_ERROR_SHAPE,
                           "loop program: the mask of reduced dimensions is "
                           "0x%x; it must be %s",
                           loop->reduced,
                           p->flags & CORE_LOOP_PROGRAM_REDUCES
                               ? "that of the innermost ones"
                               : "0");
    return CORE_OK;
}

/* Different indices have different memory, in dimensions that are not left
 * out: strides in increasing order step over what the smaller ones reach. */
static bool is_injective(const core_loop *loop, const core_operand *operand,
                         uint32_t left_out)
{
    uint32_t done = left_out;
    int64_t reach = core__dtype_size(operand->dtype);

    for (;;) {
        uint32_t next = CORE_MAX_NDIM;
        int64_t span;

        for (uint32_t d = 0; d < loop->ndim; d++)
            if (!(done >> d & 1) && loop->sizes[d] > 1 &&
                (next == CORE_MAX_NDIM ||
                 operand->strides[d] < operand->strides[next]))
                next = d;
        if (next == CORE_MAX_NDIM)
            return true;
        if (operand->strides[next] < reach ||
            __builtin_mul_overflow(operand->strides[next],
                                   loop->sizes[next] - 1, &span) ||
            __builtin_add_overflow(reach, span, &reach))
            return false;
        done |= 1u << next;
    }
}

static core_status check_loop_operand(const core_loop_program *p,
                                      const core_loop *loop, uint32_t k)
{
    const core_operand *operand = &loop->operands[k];
    uint32_t flags = p->operands[k].flags;
    uint32_t needed =
        (flags & CORE_LOOP_OPERAND_OUTPUT ? CORE_OPERAND_OUTPUT : 0) |
        (flags & CORE_LOOP_OPERAND_NUMBER ? CORE_OPERAND_IMMEDIATE : 0);

    if (operand->dtype != p->operands[k].dtype || operand->flags != needed)
        return core__error(CORE_ERROR_DTYPE,
                           "loop program: operand %u of the loop has dtype %u "
                           "and flags 0x%x; the program needs %u and 0x%x",
                           k, operand->dtype, operand->flags,
                           p->operands[k].dtype, needed);
    if (flags & CORE_LOOP_OPERAND_NUMBER)
        return CORE_OK;
    for (uint32_t d = 0; d < loop->ndim; d++)
        if (operand->strides[d] < 0 ||
            (flags & CORE_LOOP_OPERAND_ROW && loop->reduced >> d & 1 &&
             operand->strides[d] != 0))
            return core__error(CORE_ERROR_SHAPE,
                               "loop program: operand %u of the loop cannot "
                               "have stride %lld in dimension %u",
                               k, (long long)operand->strides[d], d);
    if (flags & CORE_LOOP_OPERAND_OUTPUT &&
        !is_injective(loop, operand,
                      flags & CORE_LOOP_OPERAND_ROW ? loop->reduced : 0))
        return core__error(CORE_ERROR_SHAPE,
                           "loop program: elements of output %u of the loop "
                           "share memory",
                           k);
    return CORE_OK;
}

core_status core__loop_program_verify_loop(const core_loop_program *program,
                                           const core_loop *loop)
{
    CORE_TRY(check_sizes(program, loop));
    for (uint32_t k = 0; k < loop->noperands; k++)
        CORE_TRY(check_loop_operand(program, loop, k));
    return CORE_OK;
}
