/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "x86_encode.h"

#include <string.h>

typedef struct row {
    uint8_t prefix, map, opcode;
    int8_t extension;
} row;

static const row rows[] = {
#define ROW(name, prefix, map, opcode, extension) \
    [X86_##name] = {prefix, map, opcode, extension},
    X86_INSTRUCTIONS(ROW)
#undef ROW
};

void x86_bytes(x86_code *code, const void *bytes, uint32_t size)
{
    if (size > code->capacity - code->size) {
        code->full = true;
        return;
    }
    memcpy(code->bytes + code->size, bytes, size);
    code->size += size;
}

static void byte(x86_code *code, uint32_t value)
{
    uint8_t low = (uint8_t)value;

    x86_bytes(code, &low, 1);
}

static void word(x86_code *code, int32_t value)
{
    for (int k = 0; k < 4; k++)
        byte(code, (uint32_t)value >> 8 * k);
}

/* Bit k of a register number, inverted as prefixes have it; 1 for none. */
static uint32_t inverted(uint8_t reg, int k)
{
    return reg == X86_NONE ? 1 : ~((uint32_t)reg >> k) & 1;
}

/* The ModRM byte and what belongs to it.  after: how many bytes follow. */
static void operand_bytes(x86_code *code, uint32_t reg, x86_operand o,
                          int32_t after)
{
    static const uint8_t scales[] = {[1] = 0, [2] = 1, [4] = 2, [8] = 3};
    const uint32_t field = (reg & 7) << 3, base = o.base & 7u;

    if (o.kind == X86_REGISTER) {
        byte(code, 0xc0 | field | base);
        return;
    }
    if (o.kind == X86_PLACE) {
        byte(code, 5 | field);
        word(code, o.displacement - (int32_t)code->size - 4 - after);
        return;
    }
    /* With a displacement of 32 bits any base can be used. */
    if (o.index == X86_NONE && base != X86_RSP) {
        byte(code, 0x80 | field | base);
    } else {
        byte(code, 0x84 | field);
        byte(code, o.index == X86_NONE
                       ? 0x20 | base
                       : (uint32_t)scales[o.scale] << 6 |
                             (uint32_t)(o.index & 7) << 3 | base);
    }
    word(code, o.displacement);
}

/* The X and B bits extend index and base; with EVEX, X is bit 4 of a
 * register. */
static uint32_t extension_bits(const x86_operand *o, bool evex)
{
    uint32_t x, b;

    if (o->kind == X86_REGISTER) {
        x = evex ? inverted(o->base, 4) : 1;
        b = inverted(o->base, 3);
    } else {
        x = inverted(o->index, 3);
        b = o->kind == X86_PLACE ? 1 : inverted(o->base, 3);
    }
    return x << 6 | b << 5;
}

static uint32_t inverted_field(uint8_t reg)
{
    return reg == X86_NONE ? 15 : ~(uint32_t)reg & 15;
}

void x86_vector(x86_code *code, x86_instruction instruction, x86_form form,
                uint8_t to, uint8_t from, x86_operand operand)
{
    const row *r = &rows[instruction];
    const uint8_t reg = r->extension >= 0 ? (uint8_t)r->extension : to;
    const uint32_t first =
        inverted(reg, 3) << 7 | extension_bits(&operand, form.evex) | r->map;

    if (form.evex) {
        byte(code, 0x62);
        byte(code, first | inverted(reg, 4) << 4);
        byte(code, inverted_field(from) << 3 | 4 | r->prefix);
        byte(code, (uint32_t)form.length << 5 |
                       (uint32_t)operand.broadcast << 4 |
                       inverted(from, 4) << 3 | form.mask);
    } else {
        byte(code, 0xc4);
        byte(code, first);
        byte(code, inverted_field(from) << 3 | (uint32_t)form.length << 2 |
                       r->prefix);
    }
    byte(code, r->opcode);
    if (instruction == X86_ZEROUPPER)
        return;
    operand_bytes(code, reg, operand, form.immediate);
    if (form.immediate)
        byte(code, form.value);
}

void x86_general(x86_code *code, uint32_t opcode, bool wide, uint8_t reg,
                 x86_operand operand)
{
    /* REX has the bits that VEX has inverted. */
    uint32_t x = ~extension_bits(&operand, false) >> 6 & 1;
    uint32_t b = ~extension_bits(&operand, false) >> 5 & 1;
    uint32_t rex = 0x40u | (uint32_t)wide << 3 | (uint32_t)(reg >> 3 & 1) << 2 |
                   x << 1 | b;

    if (rex != 0x40)
        byte(code, rex);
    if (opcode >> 8)
        byte(code, opcode >> 8);
    byte(code, opcode);
    operand_bytes(code, reg, operand, 0);
}

void x86_push(x86_code *code, uint8_t reg)
{
    if (reg >= X86_R8)
        byte(code, 0x41);
    byte(code, 0x50u | (reg & 7));
}

void x86_pop(x86_code *code, uint8_t reg)
{
    if (reg >= X86_R8)
        byte(code, 0x41);
    byte(code, 0x58u | (reg & 7));
}

void x86_add_immediate(x86_code *code, uint8_t reg, int32_t value)
{
    x86_general(code, 0x81, true, 0, x86_register(reg));
    word(code, value);
}

void x86_and_immediate(x86_code *code, uint8_t reg, int8_t value)
{
    x86_general(code, 0x83, true, 4, x86_register(reg));
    byte(code, (uint8_t)value);
}

void x86_jump_below(x86_code *code, uint32_t target)
{
    byte(code, 0x0f);
    byte(code, 0x82);
    word(code, (int32_t)target - (int32_t)code->size - 4);
}
