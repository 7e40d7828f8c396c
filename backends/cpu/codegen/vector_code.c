/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "vector_code.h"

#include <stdlib.h>
#include <string.h>

uint32_t vector_inputs(uint32_t op)
{
    switch (op) {
    case VECTOR_CONSTANT:
    case VECTOR_UNIFORM:
    case VECTOR_LOAD:
        return 0;
    case VECTOR_SQRT:
    case VECTOR_ROUND:
    case VECTOR_INT_OF_FLOAT:
    case VECTOR_ROUND_F16:
    case VECTOR_BITS_OF_F16:
    case VECTOR_INT_ABS:
    case VECTOR_SHIFT_LEFT:
    case VECTOR_SHIFT_RIGHT:
    case VECTOR_SHIFT_SIGN:
    case VECTOR_FLOAT_OF_INT:
    case VECTOR_MASK_NOT:
    case VECTOR_MASK_OF_SIGNS:
        return 1;
    case VECTOR_FMA:
    case VECTOR_SELECT:
        return 3;
    default:
        return 2;
    }
}

bool vector_is_mask(const vector_code *code, vector_value value)
{
    const vector_instruction *i = &code->at[value];

    switch (i->op) {
    case VECTOR_COMPARE:
    case VECTOR_INT_EQUAL:
    case VECTOR_INT_GREATER:
    case VECTOR_MASK_AND:
    case VECTOR_MASK_OR:
    case VECTOR_MASK_XOR:
    case VECTOR_MASK_NOT:
    case VECTOR_MASK_OF_SIGNS:
        return true;
    default:
        return false;
    }
}

vector_value vector_add(vector_code *code, uint32_t op, uint32_t immediate,
                        vector_value a, vector_value b, vector_value c)
{
    if (code->count == code->capacity) {
        code->full = true;
        return 0;
    }
    code->at[code->count] =
        (vector_instruction){.op = (uint8_t)op,
                             .immediate = (uint8_t)immediate,
                             .a = a,
                             .b = b,
                             .c = c};
    return (vector_value)code->count++;
}

/* The constants are a list, linked through a. */
vector_value vector_bits(vector_code *code, uint32_t bits)
{
    vector_value known = code->last_constant, value;

    for (; known != VECTOR_NONE; known = code->at[known].a)
        if (code->at[known].bits == bits)
            return known;
    value = vector_add(code, VECTOR_CONSTANT, 0, code->last_constant, 0, 0);
    if (code->full)
        return 0;
    code->at[value].bits = bits;
    code->last_constant = value;
    return value;
}

vector_value vector_float(vector_code *code, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return vector_bits(code, bits);
}

/* 1 is true. */
static vector_value mask_of(vector_code *code, vector_value number)
{
    return vector_2(code, VECTOR_INT_GREATER, number, vector_bits(code, 0));
}

static vector_value read_element(vector_code *code, uint32_t op,
                                 uint32_t pointer, vector_element element,
                                 bool prefetch)
{
    vector_value value =
        vector_add(code, op, element == VECTOR_BOOL ? VECTOR_U8 : element,
                   (vector_value)pointer, prefetch, 0);

    return element == VECTOR_BOOL ? mask_of(code, value) : value;
}

vector_value vector_load(vector_code *code, uint32_t pointer,
                         vector_element element, bool prefetch)
{
    return read_element(code, VECTOR_LOAD, pointer, element, prefetch);
}

vector_value vector_uniform(vector_code *code, uint32_t pointer,
                            vector_element element)
{
    return read_element(code, VECTOR_UNIFORM, pointer, element, false);
}

void vector_store(vector_code *code, uint32_t pointer, vector_element element,
                  vector_value value)
{
    uint32_t size = vector_element_size(element);

    if (element == VECTOR_BOOL) {
        value = vector_3(code, VECTOR_SELECT, value, vector_bits(code, 1),
                         vector_bits(code, 0));
        element = VECTOR_U8;
    } else if (!code->mask_registers && size < 4 && element != VECTOR_BF16 &&
               element != VECTOR_F16) {
        /* Its vectors are narrowed with saturation. */
        value = vector_2(code, VECTOR_AND, value,
                         vector_bits(code, (1u << 8 * size) - 1));
    }
    vector_add(code, VECTOR_STORE, element, (vector_value)pointer, value, 0);
}

vector_value vector_compare(vector_code *code, vector_relation relation,
                            vector_value a, vector_value b)
{
    return vector_add(code, VECTOR_COMPARE, relation, a, b, 0);
}

vector_value vector_not(vector_code *code, vector_value mask)
{
    return code->mask_registers
               ? vector_1(code, VECTOR_MASK_NOT, mask)
               : vector_2(code, VECTOR_XOR, mask, vector_bits(code, ~0u));
}

vector_value vector_masks(vector_code *code, uint32_t op, vector_value a,
                          vector_value b)
{
    return vector_2(
        code, code->mask_registers ? op : op - VECTOR_MASK_AND + VECTOR_AND, a,
        b);
}

static uint32_t latency_of(uint32_t op)
{
    switch (op) {
    case VECTOR_CONSTANT:
    case VECTOR_UNIFORM:
        return 0;
    case VECTOR_DIV:
        return 12;
    case VECTOR_SQRT:
        return 18;
    case VECTOR_ADD:
    case VECTOR_SUB:
    case VECTOR_MUL:
    case VECTOR_FMA:
    case VECTOR_ROUND:
    case VECTOR_COMPARE:
    case VECTOR_INT_OF_FLOAT:
    case VECTOR_FLOAT_OF_INT:
    case VECTOR_INT_MUL:
        return 4;
    case VECTOR_ROUND_F16:
    case VECTOR_BITS_OF_F16:
        return 10;
    default:
        return 1;
    }
}

uint32_t vector_latency(const vector_code *code)
{
    uint16_t *known = calloc(code->count + 1u, sizeof *known);
    uint32_t most = 0;

    for (uint32_t i = 0; known && i < code->count; i++) {
        const vector_instruction *now = &code->at[i];
        const vector_value inputs[] = {now->a, now->b, now->c};
        uint32_t first = 0;

        for (uint32_t k = 0; k < vector_inputs(now->op); k++)
            if (known[inputs[k]] > first)
                first = known[inputs[k]];
        known[i] = (uint16_t)(first + latency_of(now->op));
        if (known[i] > most)
            most = known[i];
    }
    free(known);
    return most;
}

bool vector_unroll(const vector_code *code, uint32_t times, vector_code *out)
{
    vector_value(*copies)[VECTOR_UNROLLED] =
        malloc(code->count * sizeof *copies);

    for (uint32_t i = 0; copies && i < code->count; i++) {
        const vector_instruction *from = &code->at[i];
        const uint32_t inputs = vector_inputs(from->op);

        for (uint32_t k = 0; k < times; k++) {
            vector_instruction now = *from;

            if (k > 0 &&
                (from->op == VECTOR_CONSTANT || from->op == VECTOR_UNIFORM)) {
                copies[i][k] = copies[i][0];
                continue;
            }
            if (from->op == VECTOR_LOAD)
                now.c = (vector_value)k;
            if (from->op == VECTOR_STORE) {
                now.b = copies[from->b][k];
                now.c = (vector_value)k;
            } else {
                now.a = inputs > 0 ? copies[from->a][k] : now.a;
                now.b = inputs > 1 ? copies[from->b][k] : now.b;
                now.c = inputs > 2 ? copies[from->c][k] : now.c;
            }
            copies[i][k] = (vector_value)out->count;
            if (out->count == out->capacity)
                out->full = true;
            else
                out->at[out->count++] = now;
        }
    }
    free(copies);
    return copies != NULL && !out->full;
}

vector_value vector_int_compare(vector_code *code, vector_relation relation,
                                vector_value a, vector_value b)
{
    switch (relation) {
    case VECTOR_EQ:
        return vector_2(code, VECTOR_INT_EQUAL, a, b);
    case VECTOR_NE:
        return vector_not(code, vector_2(code, VECTOR_INT_EQUAL, a, b));
    case VECTOR_LT:
        return vector_2(code, VECTOR_INT_GREATER, b, a);
    case VECTOR_LE:
        return vector_not(code, vector_2(code, VECTOR_INT_GREATER, a, b));
    case VECTOR_GT:
        return vector_2(code, VECTOR_INT_GREATER, a, b);
    default:
        return vector_not(code, vector_2(code, VECTOR_INT_GREATER, b, a));
    }
}
