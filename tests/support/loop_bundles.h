/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_bundles.h: loop programs that together contain each opcode and each
 * function on each dtype that it accepts.  A bundle has three inputs of a dtype
 * and as many outputs, one for each instruction, as a program can have. */

#ifndef TESTS_SUPPORT_LOOP_BUNDLES_H
#define TESTS_SUPPORT_LOOP_BUNDLES_H

#include "autograd.h"

#include "codegen/loop_program.h"
#include "codegen/operator_programs.h"

enum {
    BUNDLE_INPUTS = 3,
    BUNDLE_OUTPUTS = CORE_LOOP_MAX_OPERANDS - BUNDLE_INPUTS,
    BUNDLE_ITEMS = 512
};

/* What is tested: an opcode, with the dtype of a conversion, or a function. */
typedef struct bundle_item {
    uint32_t opcode;
    core_dtype to;
    const core__loop_function *function; /* NULL: an opcode */
} bundle_item;

typedef struct bundle {
    core_loop_program *program;
    core_dtype dtype; /* of the inputs */
    uint32_t noutputs;
    bundle_item items[BUNDLE_OUTPUTS]; /* by output */
} bundle;

static const core_dtype bundle_dtypes[] = {
    CORE_F64, CORE_F32, CORE_F16, CORE_BF16, CORE_I64,
    CORE_I32, CORE_I16, CORE_I8,  CORE_U8,   CORE_BOOL};
enum { BUNDLE_DTYPES = sizeof bundle_dtypes / sizeof *bundle_dtypes };

static inline uint32_t bundle_opcodes(core_dtype dtype, bundle_item *items)
{
    uint32_t count = 0;

    for (uint32_t i = CORE_LOOP_ADD; i <= CORE_LOOP_CONVERT; i++) {
        const core__loop_opcode *opcode = core__loop_opcode_of(i);

        if (!opcode || !(opcode->types >> dtype & 1))
            continue;
        if (i != CORE_LOOP_CONVERT)
            items[count++] = (bundle_item){i, dtype, NULL};
        for (uint32_t t = 0; i == CORE_LOOP_CONVERT && t < BUNDLE_DTYPES; t++)
            if (bundle_dtypes[t] != dtype)
                items[count++] = (bundle_item){i, bundle_dtypes[t], NULL};
    }
    return count;
}

static inline uint32_t bundle_functions(core_dtype dtype, bundle_item *items)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < core__loop_nfunctions; i++)
        if (core__loop_functions[i].types >> dtype & 1)
            items[count++] = (bundle_item){CORE_LOOP_FUNCTION, dtype,
                                           &core__loop_functions[i]};
    return count;
}

/* The value of an item of three values; *out_type is its dtype. */
static inline uint32_t bundle_value(core__loop_writer *w, const bundle_item *i,
                                    core_dtype dtype, const uint32_t in[3])
{
    const core__loop_opcode *opcode = core__loop_opcode_of(i->opcode);
    bool divides = i->opcode >= CORE_LOOP_DIV &&
                   i->opcode <= CORE_LOOP_REMAINDER && dtype >= CORE_I64;
    uint32_t b = in[1];

    if (i->function)
        return core__loop_write(w, CORE_LOOP_FUNCTION, dtype, in[0],
                                i->function->nargs > 1 ? b : 0,
                                core__loop_write_name(w, i->function->name));
    if (i->opcode == CORE_LOOP_SELECT)
        return core__loop_write(
            w, CORE_LOOP_SELECT, dtype,
            core__loop_write(w, CORE_LOOP_LT, CORE_BOOL, in[0], b, 0), b,
            in[2]);
    if (i->opcode == CORE_LOOP_CONVERT)
        return core__loop_write(w, CORE_LOOP_CONVERT, i->to, in[0], 0, 0);
    if (divides) /* not by 0 */
        b = core__loop_write(w, CORE_LOOP_OR, dtype, b,
                             core__loop_write_bits(w, dtype, 1), 0);
    return core__loop_write(
        w, i->opcode, opcode->form == CORE__LOOP_FORM_TEST ? CORE_BOOL : dtype,
        in[0], opcode->values > 1 ? b : 0, opcode->values > 2 ? in[2] : 0);
}

/* Makes the program of some items. */
static inline void bundle_make(bundle *self, core_dtype dtype,
                               const bundle_item *items, uint32_t count)
{
    uint32_t in[BUNDLE_INPUTS], used[CORE_LOOP_MAX_OPERANDS];
    core__loop_writer w;

    *self = (bundle){.dtype = dtype, .noutputs = count};
    core__loop_writer_begin(&w, 0);
    for (uint32_t k = 0; k < BUNDLE_INPUTS; k++)
        in[k] = core__loop_write(&w, CORE_LOOP_LOAD, dtype,
                                 core__loop_write_operand(&w, dtype, 0), 0, 0);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = bundle_value(&w, &items[i], dtype, in);
        uint32_t to = core__loop_write_operand(
            &w, core__loop_type_of(&w, value), CORE_LOOP_OPERAND_OUTPUT);

        self->items[i] = items[i];
        core__loop_write(&w, CORE_LOOP_STORE, 0, to, value, 0);
    }
    OK(core__loop_writer_finish(&w, &self->program, used));
    core__loop_writer_end(&w);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_uint_eq(used[BUNDLE_INPUTS + i], i);
}

/* Whether a device has a function or opcode. */
typedef bool bundle_accepts(const core_loop_program *program);

/* Leaves out what is not accepted; returns the number of the others. */
static inline uint32_t bundle_filter(core_dtype dtype, bundle_item *items,
                                     uint32_t count, bundle_accepts *accepts)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < count; i++) {
        bundle one;

        bundle_make(&one, dtype, &items[i], 1);
        if (accepts(one.program))
            items[left++] = items[i];
        core__loop_program_release(one.program);
    }
    return left;
}

/* Makes bundle `number` of a dtype; false if there are no more.  accepts:
 * bundles contain only these functions; NULL: bundles of opcodes. */
static inline bool bundle_of(bundle *self, core_dtype dtype, uint32_t number,
                             bundle_accepts *accepts)
{
    static bundle_item items[BUNDLE_ITEMS];
    uint32_t count =
        accepts ? bundle_functions(dtype, items) : bundle_opcodes(dtype, items);
    uint32_t first = number * BUNDLE_OUTPUTS;

    if (accepts)
        count = bundle_filter(dtype, items, count, accepts);

    ck_assert_uint_le(count, BUNDLE_ITEMS);
    if (first >= count)
        return false;
    count -= first;
    bundle_make(self, dtype, items + first,
                count < BUNDLE_OUTPUTS ? count : BUNDLE_OUTPUTS);
    return true;
}

static inline const char *bundle_text(const bundle *self, uint32_t output)
{
    const bundle_item *item = &self->items[output];

    return item->function ? item->function->name
                          : core__loop_opcode_of(item->opcode)->name;
}

#endif
