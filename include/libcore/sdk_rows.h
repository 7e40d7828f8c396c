/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* sdk_rows.h: for plugins that write kernels of loop programs with reductions
 * (codegen.h).  Header only, C11 and C++; like sdk.h not part of the contract.
 * Every function is thread-safe.
 *
 * Such a kernel reads a row once for each stage.  A stage computes the
 * reductions of values that depend on those of the stages before it only; the
 * last pass, of number nstages + 1, stores the outputs.  What a pass needs of
 * the elements it computes again: a load and some arithmetic take less time
 * than writing and reading a value.
 *
 *     core_sdk_rows_find(&rows, program, values);
 *     (write what is uniform and of stage 0)
 *     for (stage = 1; stage <= rows.nstages + 1; stage++)
 *         if (core_sdk_rows_pass(&rows, stage)) {
 *             (write a loop over the elements: the values that are needed and
 *             not uniform, core_sdk_rows_reduces, core_sdk_rows_stores)
 *             (write what is uniform and of this stage)
 *         }
 *     (write the stores of values of whole rows)
 *
 * Outputs may have the memory of inputs.  An element's inputs are therefore
 * read before it is written, and values of whole rows are read at the beginning
 * and written at the end of a row. */

#ifndef LIBCORE_SDK_ROWS_H
#define LIBCORE_SDK_ROWS_H

#include <string.h>

#include "codegen.h"

#ifdef __cplusplus
extern "C" {
#endif

/* By instruction, which is also the number of its value.  About 5 KB. */
typedef struct core_sdk_rows {
    const core_loop_program *program; /* borrowed */
    /* How many of the fields a, b and c are values, from a on. */
    uint8_t nvalues[CORE_LOOP_MAX_INSTRUCTIONS];
    /* Whether all elements of a row have the same value. */
    uint8_t uniform[CORE_LOOP_MAX_INSTRUCTIONS];
    /* Whether the pass of core_sdk_rows_pass computes it. */
    uint8_t needed[CORE_LOOP_MAX_INSTRUCTIONS];
    /* The stage after which it is known. */
    uint16_t stage[CORE_LOOP_MAX_INSTRUCTIONS];
    uint16_t nstages;
} core_sdk_rows;

static inline int core_sdk_loop_is_reduction(uint32_t opcode)
{
    return opcode >= CORE_LOOP_REDUCE_SUM && opcode <= CORE_LOOP_REDUCE_MIN;
}

/* Whether an operand has an element for each element of a row: it is neither a
 * number nor a value of the whole row. */
static inline int core_sdk_rows_has_elements(const core_loop_program *program,
                                             uint32_t operand)
{
    return (program->operands[operand].flags &
            (CORE_LOOP_OPERAND_NUMBER | CORE_LOOP_OPERAND_ROW)) == 0;
}

/* Field 0, 1 or 2 of an instruction: a, b or c. */
static inline uint32_t core_sdk_rows_field(const core_loop_instruction *at,
                                           uint32_t field)
{
    return field == 0 ? at->a : field == 1 ? at->b : at->c;
}

static inline int core_sdk_rows_is_uniform(const core_sdk_rows *self,
                                           uint32_t value)
{
    const core_loop_instruction *at = &self->program->instructions[value];

    if (at->opcode == CORE_LOOP_LOAD)
        return !core_sdk_rows_has_elements(self->program, at->a);
    if (at->opcode == CORE_LOOP_INDEX || at->opcode == CORE_LOOP_POSITION)
        return 0;
    if (core_sdk_loop_is_reduction(at->opcode))
        return 1;
    for (uint32_t k = 0; k < self->nvalues[value]; k++)
        if (!self->uniform[core_sdk_rows_field(at, k)])
            return 0;
    return 1;
}

/* Fills out_rows but for `needed`.  values: how many fields of an instruction
 * are values; of operators and functions the plugin knows it.  program: one
 * that the core passed to `build`, which is verified. */
static inline void core_sdk_rows_find(
    core_sdk_rows *out_rows, const core_loop_program *program,
    uint32_t (*values)(const core_loop_program *program,
                       const core_loop_instruction *at))
{
    memset(out_rows, 0, sizeof *out_rows);
    out_rows->program = program;
    for (uint32_t i = 0; i < program->ninstructions; i++) {
        const core_loop_instruction *at = &program->instructions[i];
        uint16_t stage = 0;

        out_rows->nvalues[i] = (uint8_t)values(program, at);
        for (uint32_t k = 0; k < out_rows->nvalues[i]; k++) {
            uint16_t of_input = out_rows->stage[core_sdk_rows_field(at, k)];

            if (of_input > stage)
                stage = of_input;
        }
        if (core_sdk_loop_is_reduction(at->opcode))
            stage++;
        if (stage > out_rows->nstages)
            out_rows->nstages = stage;
        out_rows->stage[i] = stage;
        out_rows->uniform[i] = (uint8_t)core_sdk_rows_is_uniform(out_rows, i);
    }
}

/* Whether the value is a reduction that the pass of this stage computes. */
static inline int core_sdk_rows_reduces(const core_sdk_rows *self,
                                        uint32_t value, uint32_t stage)
{
    return self->stage[value] == stage &&
           core_sdk_loop_is_reduction(
               self->program->instructions[value].opcode);
}

/* Whether the instruction stores an element for each element of a row, which is
 * what the last pass does. */
static inline int core_sdk_rows_stores(const core_sdk_rows *self,
                                       uint32_t value)
{
    const core_loop_instruction *at = &self->program->instructions[value];

    return at->opcode == CORE_LOOP_STORE &&
           core_sdk_rows_has_elements(self->program, at->a);
}

/* Finds what a pass needs, from stage 1 to nstages + 1.  Returns 0 if the pass
 * has nothing to do. */
static inline int core_sdk_rows_pass(core_sdk_rows *self, uint32_t stage)
{
    int any = 0;

    memset(self->needed, 0, sizeof self->needed);
    for (uint32_t i = self->program->ninstructions; i-- > 0;) {
        const core_loop_instruction *at = &self->program->instructions[i];
        int stores = stage > self->nstages && core_sdk_rows_stores(self, i);
        int reduces = core_sdk_rows_reduces(self, i, stage);
        int wants = reduces || (self->needed[i] && !self->uniform[i]);

        any = any || stores || reduces;
        if (stores)
            self->needed[at->b] = 1;
        for (uint32_t k = 0; k < self->nvalues[i] && wants; k++)
            self->needed[core_sdk_rows_field(at, k)] = 1;
    }
    return any;
}

#ifdef __cplusplus
}
#endif

#endif
