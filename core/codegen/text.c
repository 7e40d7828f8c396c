/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Loop programs as text:
 *
 *     f32 output 0
 *     f32 input 1
 *     %0 = load f32 1
 *     %1 = function exp f32 %0
 *     store 0 %1 */

#include "base/error.h"
#include "base/growing_text.h"
#include "base/memory.h"
#include "base/text.h"
#include "codegen/loop_program.h"
#include "tensor/dtype.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* After a failure it ignores what follows. */
typedef struct text {
    core__growing_text text;
    core_status status;
} text;

static void __attribute__((format(printf, 2, 3)))
add(text *t, const char *format, ...)
{
    char piece[256];
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = core__format_list(piece, sizeof piece, format, arguments);
    va_end(arguments);
    if (t->status != CORE_OK || size < 0)
        return;
    if ((size_t)size >= sizeof piece)
        size = sizeof piece - 1;
    if (!core__growing_text_append(&t->text, piece, (size_t)size))
        t->status = core__error_memory(t->text.size + (size_t)size);
}

static const char *type_name(uint32_t dtype)
{
    return dtype < CORE_DTYPE_LIMIT && CORE__LOOP_ANY >> dtype & 1
               ? core__dtype_name(dtype)
               : "?";
}

static void add_operand(text *t, const core_loop_program *p, uint32_t k)
{
    uint32_t flags = p->operands[k].flags;

    add(t, "%s %s%s%s %u\n", type_name(p->operands[k].dtype),
        flags & CORE_LOOP_OPERAND_ROW ? "row " : "",
        flags & CORE_LOOP_OPERAND_NUMBER ? "number " : "",
        flags & CORE_LOOP_OPERAND_OUTPUT ? "output" : "input", k);
}

/* Shortest digits that are read as the same number, and the bits of NaN. */
static void add_constant(text *t, const core_loop_instruction *at)
{
    uint64_t bits = at->a | (uint64_t)at->b << 32;
    core_scalar value;

    if (!(at->type < CORE_DTYPE_LIMIT && CORE__LOOP_ANY >> at->type & 1)) {
        add(t, " 0x%llx", (unsigned long long)bits);
        return;
    }
    value = core__element_load(at->type, &bits);
    if (value.tag != CORE_VALUE_FLOAT)
        add(t, " %lld", (long long)value.u.i);
    else if (value.u.f != value.u.f)
        add(t, " nan:0x%llx", (unsigned long long)bits);
    else
        add(t, " %.17g", value.u.f);
}

static void add_instruction(text *t, const core_loop_program *p, uint32_t i)
{
    const core_loop_instruction *at = &p->instructions[i];
    const core__loop_opcode *opcode = core__loop_opcode_of(at->opcode);
    uint32_t values = core__loop_values(p, at);

    if (!opcode) {
        add(t, "%%%u = opcode %u %s %u %u %u\n", i, at->opcode,
            type_name(at->type), at->a, at->b, at->c);
        return;
    }
    if (opcode->form == CORE__LOOP_FORM_STORE) {
        add(t, "store %u %%%u\n", at->a, at->b);
        return;
    }
    add(t, "%%%u = %s", i, opcode->name);
    if (opcode->form == CORE__LOOP_FORM_FUNCTION && at->c < p->nnames)
        add(t, " %.*s",
            (int)(p->names[at->c].size < 64 ? p->names[at->c].size : 64),
            p->names[at->c].data);
    add(t, " %s", type_name(at->type));
    if (opcode->form == CORE__LOOP_FORM_CONSTANT)
        add_constant(t, at);
    else if (opcode->form == CORE__LOOP_FORM_LOAD ||
             opcode->form == CORE__LOOP_FORM_DIMENSION)
        add(t, " %u", at->a);
    for (uint32_t k = 0; k < 3; k++)
        if (values >> k & 1)
            add(t, " %%%u", core__loop_field(at, k));
    add(t, "\n");
}

core_status core__loop_program_text(const core_loop_program *program,
                                    char **out_text)
{
    text t = {.status = CORE_OK};

    *out_text = NULL;
    if (program->ndim)
        add(&t, "dimensions %u\n", program->ndim);
    for (uint32_t k = 0; k < program->noperands; k++)
        add_operand(&t, program, k);
    for (uint32_t i = 0; i < program->ninstructions; i++)
        add_instruction(&t, program, i);
    if (t.status != CORE_OK)
        core__free(t.text.data);
    else
        *out_text = t.text.data;
    return t.status;
}
