/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Loop programs in memory and as bytes. */

#include "base/error.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "base/text.h"
#include "codegen/loop_program.h"

#include <stdatomic.h>
#include <string.h>

/* One block: the program, its arrays and its names. */
typedef struct owned {
    core_loop_program program; /* first: callers know its address */
    _Atomic uint32_t references;
} owned;

/* The bytes: this, then instructions, operands, and for each name its size and
 * its characters.  Little endian. */
typedef struct header {
    char magic[8];
    uint32_t version, flags, ninstructions, noperands, noutputs, ndim, nnames,
        reserved;
} header;

static const char magic[8] = {'l', 'o', 'o', 'p', 'p', 'r', 'o', 'g'};

enum { FORMAT = 1 };

core_loop_program *core__loop_program_retain(core_loop_program *program)
{
    owned *self = (owned *)(void *)program;

    atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
    return program;
}

void core__loop_program_release(core_loop_program *program)
{
    owned *self = (owned *)(void *)program;

    if (self && atomic_fetch_sub_explicit(&self->references, 1,
                                          memory_order_acq_rel) == 1)
        core__free(self);
}

/* --------------------------------------------------------------- bytes -- */

core_status core__loop_program_encode(const core_loop_program *program,
                                      void **out_data, size_t *out_size)
{
    header head = {.version = FORMAT,
                   .flags = program->flags,
                   .ninstructions = program->ninstructions,
                   .noperands = program->noperands,
                   .noutputs = program->noutputs,
                   .ndim = program->ndim,
                   .nnames = program->nnames};
    size_t instructions =
        program->ninstructions * sizeof *program->instructions;
    size_t operands = program->noperands * sizeof *program->operands;
    size_t size = sizeof head + instructions + operands;
    char *data, *at;

    *out_data = NULL;
    *out_size = 0;
    memcpy(head.magic, magic, sizeof magic);
    for (uint32_t i = 0; i < program->nnames; i++)
        size += sizeof(uint32_t) + program->names[i].size;
    at = data = core__alloc(size);
    if (!data)
        return core__error_memory(size);
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    memcpy(at, program->instructions, instructions);
    at += instructions;
    memcpy(at, program->operands, operands);
    at += operands;
    for (uint32_t i = 0; i < program->nnames; i++) {
        uint32_t length = (uint32_t)program->names[i].size;

        memcpy(at, &length, sizeof length);
        memcpy(at + sizeof length, program->names[i].data, length);
        at += sizeof length + length;
    }
    *out_data = data;
    *out_size = size;
    return CORE_OK;
}

static core_status set_hash(core_loop_program *program)
{
    char text[65];
    core__sha256 sha;
    size_t size;
    void *data;

    CORE_TRY(core__loop_program_encode(program, &data, &size));
    core__sha256_begin(&sha);
    core__sha256_add(&sha, data, size);
    core__sha256_end(&sha, text);
    core__free(data);
    for (uint32_t i = 0; i < sizeof program->hash; i++) {
        uint32_t byte = 0;

        for (uint32_t k = 0; k < 2; k++) {
            char digit = text[2 * i + k];

            byte = byte << 4 |
                   (uint32_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
        }
        program->hash[i] = (uint8_t)byte;
    }
    return CORE_OK;
}

/* from has been checked, so its counts and sizes are small. */
static core_status duplicate(const core_loop_program *from,
                             core_loop_program **out_program)
{
    size_t instructions = from->ninstructions * sizeof *from->instructions;
    size_t operands = from->noperands * sizeof *from->operands;
    size_t names = from->nnames * sizeof *from->names;
    size_t size = sizeof(owned) + instructions + operands + names;
    core_string *name;
    owned *self;
    char *at;

    *out_program = NULL;
    for (uint32_t i = 0; i < from->nnames; i++)
        size += from->names[i].size;
    self = core__alloc_zero(size);
    if (!self)
        return core__error_memory(size);
    at = (char *)(self + 1);
    self->program = *from;
    self->program.struct_size = sizeof self->program;
    atomic_init(&self->references, 1);
    self->program.instructions = memcpy(at, from->instructions, instructions);
    at += instructions;
    self->program.operands = memcpy(at, from->operands, operands);
    at += operands;
    name = (core_string *)(void *)at;
    self->program.names = name;
    at += names;
    for (uint32_t i = 0; i < from->nnames; i++) {
        name[i].size = from->names[i].size;
        name[i].data = memcpy(at, from->names[i].data, name[i].size);
        at += name[i].size;
    }
    *out_program = &self->program;
    return CORE_OK;
}

core_status core__loop_program_copy(const core_loop_program *from,
                                    core_loop_program **out_program)
{
    core_status status;

    *out_program = NULL;
    CORE_TRY(core__loop_program_verify(from));
    CORE_TRY(duplicate(from, out_program));
    status = set_hash(*out_program);
    if (status != CORE_OK) {
        core__loop_program_release(*out_program);
        *out_program = NULL;
    }
    return status;
}

static core_status corrupt(const char *what)
{
    return core__error(CORE_ERROR_CORRUPT, "loop program: %s", what);
}

/* Copies the next bytes to aligned memory; false if fewer are left. */
static bool take(const char **at, size_t *left, void *to, size_t size)
{
    if (size > *left)
        return false;
    if (size)
        memcpy(to, *at, size);
    *at += size;
    *left -= size;
    return true;
}

typedef struct decoded {
    core_loop_program program;
    core_loop_instruction instructions[CORE_LOOP_MAX_INSTRUCTIONS];
    core_loop_operand operands[CORE_LOOP_MAX_OPERANDS];
    core_string names[CORE_LOOP_MAX_NAMES];
} decoded;

static core_status decode(decoded *d, const char *at, size_t left)
{
    core_loop_program *p = &d->program;
    header head;

    if (!take(&at, &left, &head, sizeof head) ||
        memcmp(head.magic, magic, sizeof magic) != 0)
        return corrupt("the bytes do not begin as a program does");
    if (head.version != FORMAT || head.reserved != 0)
        return core__error(CORE_ERROR_CORRUPT,
                           "loop program: its version is %u; %d is accepted",
                           head.version, FORMAT);
    *p = (core_loop_program){.struct_size = sizeof *p,
                             .flags = head.flags,
                             .ninstructions = head.ninstructions,
                             .noperands = head.noperands,
                             .noutputs = head.noutputs,
                             .ndim = head.ndim,
                             .nnames = head.nnames,
                             .instructions = d->instructions,
                             .operands = d->operands,
                             .names = d->names};
    if (p->ninstructions > CORE_LOOP_MAX_INSTRUCTIONS ||
        p->noperands > CORE_LOOP_MAX_OPERANDS ||
        p->nnames > CORE_LOOP_MAX_NAMES)
        return corrupt("it exceeds the limits");
    if (!take(&at, &left, d->instructions,
              p->ninstructions * sizeof *d->instructions) ||
        !take(&at, &left, d->operands, p->noperands * sizeof *d->operands))
        return corrupt("it is truncated");
    for (uint32_t i = 0; i < p->nnames; i++) {
        uint32_t length;

        if (!take(&at, &left, &length, sizeof length) || length > left)
            return corrupt("it is truncated");
        d->names[i] = (core_string){at, length};
        at += length;
        left -= length;
    }
    return left == 0 ? CORE_OK : corrupt("bytes follow its end");
}

core_status core__loop_program_decode(const void *data, size_t size,
                                      core_loop_program **out_program)
{
    decoded *d = core__alloc(sizeof *d);
    core_status status;

    *out_program = NULL;
    if (!d)
        return core__error_memory(sizeof *d);
    status = decode(d, data, size);
    if (status == CORE_OK) {
        status = core__loop_program_copy(&d->program, out_program);
        if (status == CORE_ERROR_INVALID_ARGUMENT) {
            char text[512];

            core__format(text, sizeof text, "%s", core_error_message());
            status = core__error(CORE_ERROR_CORRUPT, "%s", text);
        }
    }
    core__free(d);
    return status;
}
