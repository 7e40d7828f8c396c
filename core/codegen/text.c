/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Loop programs as text:
 *
 *     f32 output 0
 *     f32 input 1
 *     %0 = load f32 1
 *     %1 = function exp f32 %0
 *     store 0 %1 */

#include "base/growing_text.h"
#include "codegen/loop_program.h"
#include "tensor/dtype.h"

static const char *type_name(uint32_t dtype)
{
    return dtype < CORE_DTYPE_LIMIT && CORE__LOOP_ANY >> dtype & 1
               ? core__dtype_name(dtype)
               : "?";
}

static void add_operand(core__text_writer *t, const core_loop_program *p,
                        uint32_t k)
{
    uint32_t flags = p->operands[k].flags;

    core__text_write(t, "%s %s%s%s %u\n", type_name(p->operands[k].dtype),
                     flags & CORE_LOOP_OPERAND_ROW ? "row " : "",
                     flags & CORE_LOOP_OPERAND_NUMBER ? "number " : "",
                     flags & CORE_LOOP_OPERAND_OUTPUT ? "output" : "input", k);
}

/* Shortest digits that are read as the same number, and the bits of NaN. */
static void add_constant(core__text_writer *t, const core_loop_instruction *at)
{
    uint64_t bits = at->a | (uint64_t)at->b << 32;
    core_scalar value;

    if (!(at->type < CORE_DTYPE_LIMIT && CORE__LOOP_ANY >> at->type & 1)) {
        core__text_write(t, " 0x%llx", (unsigned long long)bits);
        return;
    }
    value = core__element_load(at->type, &bits);
    if (value.tag != CORE_VALUE_FLOAT)
        core__text_write(t, " %lld", (long long)value.u.i);
    else if (value.u.f != value.u.f)
        core__text_write(t, " nan:0x%llx", (unsigned long long)bits);
    else
        core__text_write(t, " %.17g", value.u.f);
}

static void add_instruction(core__text_writer *t, const core_loop_program *p,
                            uint32_t i)
{
    const core_loop_instruction *at = &p->instructions[i];
    const core__loop_opcode *opcode = core__loop_opcode_of(at->opcode);
    uint32_t values = core__loop_values(p, at);

    if (!opcode) {
        core__text_write(t, "%%%u = opcode %u %s %u %u %u\n", i, at->opcode,
                         type_name(at->type), at->a, at->b, at->c);
        return;
    }
    if (opcode->form == CORE__LOOP_FORM_STORE) {
        core__text_write(t, "store %u %%%u\n", at->a, at->b);
        return;
    }
    core__text_write(t, "%%%u = %s", i, opcode->name);
    if (opcode->form == CORE__LOOP_FORM_FUNCTION && at->c < p->nnames)
        core__text_write(
            t, " %.*s",
            (int)(p->names[at->c].size < 64 ? p->names[at->c].size : 64),
            p->names[at->c].data);
    core__text_write(t, " %s", type_name(at->type));
    if (opcode->form == CORE__LOOP_FORM_CONSTANT)
        add_constant(t, at);
    else if (opcode->form == CORE__LOOP_FORM_LOAD ||
             opcode->form == CORE__LOOP_FORM_DIMENSION)
        core__text_write(t, " %u", at->a);
    for (uint32_t k = 0; k < 3; k++)
        if (values >> k & 1)
            core__text_write(t, " %%%u", core__loop_field(at, k));
    core__text_write(t, "\n");
}

core_status core__loop_program_text(const core_loop_program *program,
                                    char **out_text)
{
    core__text_writer t = {.status = CORE_OK};

    *out_text = NULL;
    if (program->ndim)
        core__text_write(&t, "dimensions %u\n", program->ndim);
    for (uint32_t k = 0; k < program->noperands; k++)
        add_operand(&t, program, k);
    for (uint32_t i = 0; i < program->ninstructions; i++)
        add_instruction(&t, program, i);
    return core__text_writer_finish(&t, out_text);
}
