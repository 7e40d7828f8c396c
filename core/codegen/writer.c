/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes loop programs. */

#include "base/error.h"
#include "base/memory.h"
#include "codegen/loop_program.h"
#include "tensor/dtype.h"

#include <string.h>

void core__loop_writer_begin(core__loop_writer *self, uint32_t ndim)
{
    memset(self, 0, sizeof *self);
    self->ndim = ndim;
}

void core__loop_writer_end(core__loop_writer *self)
{
    core__free(self->instructions);
    self->instructions = NULL;
}

static uint32_t too_many(core__loop_writer *self, const char *what, int most)
{
    self->status =
        core__error(CORE_ERROR_UNSUPPORTED,
                    "loop program: it has more than %d %s", most, what);
    return CORE__LOOP_NO_VALUE;
}

uint32_t core__loop_write_operand(core__loop_writer *self, core_dtype dtype,
                                  uint32_t flags)
{
    if (self->status != CORE_OK)
        return CORE__LOOP_NO_VALUE;
    if (self->noperands == CORE_LOOP_MAX_OPERANDS)
        return too_many(self, "operands", CORE_LOOP_MAX_OPERANDS);
    self->operands[self->noperands] = (core_loop_operand){dtype, flags};
    return self->noperands++;
}

uint32_t core__loop_write_name(core__loop_writer *self, const char *name)
{
    core_string text = {name, strlen(name)};
    const core__loop_function *function = core__loop_function_of(text);

    if (self->status != CORE_OK)
        return CORE__LOOP_NO_VALUE;
    if (!function) {
        self->status =
            core__error(CORE_ERROR_NOT_FOUND,
                        "loop program: unknown function \"%s\"", name);
        return CORE__LOOP_NO_VALUE;
    }
    for (uint32_t i = 0; i < self->nnames; i++)
        if (self->names[i].data == function->name)
            return i;
    if (self->nnames == CORE_LOOP_MAX_NAMES)
        return too_many(self, "names", CORE_LOOP_MAX_NAMES);
    self->names[self->nnames] = (core_string){function->name, text.size};
    return self->nnames++;
}

/* The same instruction, unless it stores: each computes the same from the
 * same. */
static uint32_t find(const core__loop_writer *self,
                     const core_loop_instruction *wanted)
{
    if (wanted->opcode == CORE_LOOP_STORE)
        return CORE__LOOP_NO_VALUE;
    for (uint32_t i = self->ninstructions; i-- > 0;)
        if (memcmp(&self->instructions[i], wanted, sizeof *wanted) == 0)
            return i;
    return CORE__LOOP_NO_VALUE;
}

static bool grow(core__loop_writer *self)
{
    uint32_t capacity = self->capacity ? 2 * self->capacity : 32;
    core_loop_instruction *grown;

    if (self->ninstructions < self->capacity)
        return true;
    if (self->ninstructions == CORE_LOOP_MAX_INSTRUCTIONS) {
        too_many(self, "instructions", CORE_LOOP_MAX_INSTRUCTIONS);
        return false;
    }
    grown = core__realloc(self->instructions, capacity * sizeof *grown);
    if (!grown) {
        self->status = core__error_memory(capacity * sizeof *grown);
        return false;
    }
    self->instructions = grown;
    self->capacity = capacity;
    return true;
}

uint32_t core__loop_write(core__loop_writer *self, uint32_t opcode,
                          core_dtype type, uint32_t a, uint32_t b, uint32_t c)
{
    core_loop_instruction now = {.opcode = (uint8_t)opcode,
                                 .type = (uint8_t)type,
                                 .a = a,
                                 .b = b,
                                 .c = c};
    uint32_t same;

    if (self->status != CORE_OK)
        return CORE__LOOP_NO_VALUE;
    same = find(self, &now);
    if (same != CORE__LOOP_NO_VALUE)
        return same;
    if (!grow(self))
        return CORE__LOOP_NO_VALUE;
    self->instructions[self->ninstructions] = now;
    return self->ninstructions++;
}

uint32_t core__loop_write_bits(core__loop_writer *self, core_dtype type,
                               uint64_t bits)
{
    return core__loop_write(self, CORE_LOOP_CONSTANT, type, (uint32_t)bits,
                            (uint32_t)(bits >> 32), 0);
}

uint32_t core__loop_write_constant(core__loop_writer *self, core_dtype type,
                                   core_scalar value)
{
    uint64_t bits = 0;

    core__element_store(type, &bits, value);
    return core__loop_write_bits(self, type, bits);
}

core_dtype core__loop_type_of(const core__loop_writer *self, uint32_t value)
{
    return self->status == CORE_OK && value < self->ninstructions
               ? self->instructions[value].type
               : CORE_DTYPE_NONE;
}

uint32_t core__loop_write_convert(core__loop_writer *self, core_dtype type,
                                  uint32_t value)
{
    if (self->status == CORE_OK && core__loop_type_of(self, value) == type)
        return value;
    return core__loop_write(self, CORE_LOOP_CONVERT, type, value, 0, 0);
}

/* -------------------------------------------------------------- finish -- */

typedef struct finish {
    core__loop_writer *writer;
    core_loop_program program;
    core_loop_instruction *instructions;
    uint32_t *numbers; /* of the values, or CORE__LOOP_NO_VALUE */
    uint32_t operands_at[CORE_LOOP_MAX_OPERANDS];
    uint32_t names_at[CORE_LOOP_MAX_NAMES];
    core_loop_operand operands[CORE_LOOP_MAX_OPERANDS];
    core_string names[CORE_LOOP_MAX_NAMES];
} finish;

/* The program as it was written, for core__loop_values. */
static core_loop_program written(const core__loop_writer *w)
{
    return (core_loop_program){.ninstructions = w->ninstructions,
                               .instructions = w->instructions,
                               .nnames = w->nnames,
                               .names = w->names};
}

static bool is_uniform(const core_loop_program *all,
                       const core__loop_writer *self, uint32_t i,
                       const bool *uniform)
{
    const core_loop_instruction *at = &all->instructions[i];
    const core__loop_opcode *opcode = core__loop_opcode_of(at->opcode);
    uint32_t values = core__loop_values(all, at);

    if (at->opcode == CORE_LOOP_LOAD)
        return self->operands[at->a].flags &
               (CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW);
    if (opcode->form == CORE__LOOP_FORM_REDUCE)
        return true;
    if (at->opcode == CORE_LOOP_INDEX || at->opcode == CORE_LOOP_POSITION)
        return false;
    for (uint32_t k = 0; k < 3; k++)
        if (values >> k & 1 && !uniform[core__loop_field(at, k)])
            return false;
    return true;
}

bool core__loop_is_uniform(const core__loop_writer *self, uint32_t value)
{
    bool uniform[CORE_LOOP_MAX_INSTRUCTIONS];
    const core_loop_program all = written(self);

    if (self->status != CORE_OK || value >= self->ninstructions)
        return false;
    for (uint32_t i = 0; i <= value; i++)
        uniform[i] = is_uniform(&all, self, i, uniform);
    return uniform[value];
}

/* Sets numbers to 0 where a STORE needs the value. */
static void mark(finish *f)
{
    const core__loop_writer *w = f->writer;
    const core_loop_program all = written(w);

    for (uint32_t i = 0; i < w->ninstructions; i++)
        f->numbers[i] = w->instructions[i].opcode == CORE_LOOP_STORE
                            ? 0
                            : CORE__LOOP_NO_VALUE;
    for (uint32_t i = w->ninstructions; i-- > 0;) {
        const core_loop_instruction *at = &w->instructions[i];
        uint32_t values = core__loop_values(&all, at);

        for (uint32_t k = 0; f->numbers[i] == 0 && k < 3; k++)
            if (values >> k & 1 && core__loop_field(at, k) < i)
                f->numbers[core__loop_field(at, k)] = 0;
    }
}

static void place_operands(finish *f)
{
    const core__loop_writer *w = f->writer;
    bool used[CORE_LOOP_MAX_OPERANDS] = {false};
    uint32_t count = 0;

    for (uint32_t i = 0; i < w->ninstructions; i++) {
        const core_loop_instruction *at = &w->instructions[i];

        if (f->numbers[i] == 0 && at->a < w->noperands &&
            (at->opcode == CORE_LOOP_LOAD || at->opcode == CORE_LOOP_STORE))
            used[at->a] = true;
    }
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t k = 0; k < w->noperands; k++) {
            bool output = w->operands[k].flags & CORE_LOOP_OPERAND_OUTPUT;

            if (output != (round == 0))
                continue;
            f->operands_at[k] = used[k] ? count : CORE__LOOP_NO_VALUE;
            if (used[k])
                f->operands[count++] = w->operands[k];
        }
        if (round == 0)
            f->program.noutputs = count;
    }
    f->program.noperands = count;
    f->program.operands = f->operands;
}

static uint32_t place_name(finish *f, uint32_t name)
{
    if (name >= f->writer->nnames)
        return name;
    if (f->names_at[name] == CORE__LOOP_NO_VALUE) {
        f->names_at[name] = f->program.nnames;
        f->names[f->program.nnames++] = f->writer->names[name];
    }
    return f->names_at[name];
}

static void place(finish *f, uint32_t i, const core_loop_program *all)
{
    core_loop_instruction now = f->writer->instructions[i];
    const core__loop_opcode *opcode = core__loop_opcode_of(now.opcode);
    uint32_t values = core__loop_values(all, &now);
    uint32_t *fields[] = {&now.a, &now.b, &now.c};

    for (uint32_t k = 0; k < 3; k++)
        if (values >> k & 1 && *fields[k] < i)
            *fields[k] = f->numbers[*fields[k]];
    if ((now.opcode == CORE_LOOP_LOAD || now.opcode == CORE_LOOP_STORE) &&
        now.a < f->writer->noperands)
        now.a = f->operands_at[now.a];
    if (now.opcode == CORE_LOOP_FUNCTION)
        now.c = place_name(f, now.c);
    if (opcode && opcode->form == CORE__LOOP_FORM_REDUCE)
        f->program.flags |= CORE_LOOP_PROGRAM_REDUCES;
    if (now.opcode == CORE_LOOP_POSITION ||
        (opcode && opcode->form == CORE__LOOP_FORM_DIMENSION))
        f->program.ndim = f->writer->ndim;
    f->numbers[i] = f->program.ninstructions;
    f->instructions[f->program.ninstructions++] = now;
}

static void place_instructions(finish *f)
{
    const core__loop_writer *w = f->writer;
    const core_loop_program all = written(w);

    memset(f->names_at, 0xff, sizeof f->names_at);
    for (uint32_t i = 0; i < w->ninstructions; i++)
        if (f->numbers[i] == 0 && w->instructions[i].opcode != CORE_LOOP_STORE)
            place(f, i, &all);
    for (uint32_t i = 0; i < w->ninstructions; i++)
        if (w->instructions[i].opcode == CORE_LOOP_STORE)
            place(f, i, &all);
    f->program.instructions = f->instructions;
    f->program.names = f->names;
}

core_status core__loop_writer_finish(core__loop_writer *self,
                                     core_loop_program **out_program,
                                     uint32_t *out_operands)
{
    finish f = {.writer = self};
    size_t size = self->ninstructions * sizeof *f.instructions;
    core_status status = self->status;

    *out_program = NULL;
    if (status != CORE_OK)
        return status;
    f.instructions = core__alloc(size + 1);
    f.numbers = core__alloc(self->ninstructions * sizeof *f.numbers + 1);
    if (!f.instructions || !f.numbers) {
        status = core__error_memory(size);
        goto done;
    }
    mark(&f);
    place_operands(&f);
    place_instructions(&f);
    status = core__loop_program_copy(&f.program, out_program);
    if (out_operands)
        memcpy(out_operands, f.operands_at,
               self->noperands * sizeof *out_operands);
done:
    core__free(f.instructions);
    core__free(f.numbers);
    return status;
}
