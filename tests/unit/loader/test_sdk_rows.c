/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sdk_rows.h on a softmax, whose divisor and largest element are stored too. */

#include "support/suite.h"

#include <libcore/sdk_rows.h>

/* Operands. */
enum { OUT, SUM_OUT, MAX_OUT, IN, NUMBER, OPERANDS };
/* Instructions. */
enum { X, MAX, SHIFTED, EXP, SUM, RATIO, SCALE, SCALED, STORES, COUNT = 11 };

static const core_loop_operand operands[OPERANDS] = {
    [OUT] = {CORE_F32, CORE_LOOP_OPERAND_OUTPUT},
    [SUM_OUT] = {CORE_F32, CORE_LOOP_OPERAND_OUTPUT | CORE_LOOP_OPERAND_ROW},
    [MAX_OUT] = {CORE_F32, CORE_LOOP_OPERAND_OUTPUT | CORE_LOOP_OPERAND_ROW},
    [IN] = {CORE_F32, 0},
    [NUMBER] = {CORE_F32, CORE_LOOP_OPERAND_NUMBER},
};

static core_loop_instruction instruction(uint32_t opcode, uint32_t a,
                                         uint32_t b)
{
    core_loop_instruction made = {0};

    made.opcode = (uint16_t)opcode;
    made.type = opcode == CORE_LOOP_STORE ? CORE_DTYPE_NONE : CORE_F32;
    made.a = a;
    made.b = b;
    return made;
}

static uint32_t values(const core_loop_program *program,
                       const core_loop_instruction *at)
{
    (void)program;
    switch (at->opcode) {
    case CORE_LOOP_LOAD:
    case CORE_LOOP_STORE:
        return 0;
    case CORE_LOOP_SUB:
    case CORE_LOOP_DIV:
    case CORE_LOOP_MUL:
        return 2;
    default:
        return 1;
    }
}

static core_loop_instruction code[COUNT];
static const core_loop_program program = {
    .struct_size = sizeof program,
    .flags = CORE_LOOP_PROGRAM_REDUCES,
    .ninstructions = COUNT,
    .noperands = OPERANDS,
    .noutputs = 3,
    .instructions = code,
    .operands = operands,
};
static core_sdk_rows rows;

static void begin(void)
{
    code[X] = instruction(CORE_LOOP_LOAD, IN, 0);
    code[MAX] = instruction(CORE_LOOP_REDUCE_MAX, X, 0);
    code[SHIFTED] = instruction(CORE_LOOP_SUB, X, MAX);
    code[EXP] = instruction(CORE_LOOP_FUNCTION, SHIFTED, 0);
    code[SUM] = instruction(CORE_LOOP_REDUCE_SUM, EXP, 0);
    code[RATIO] = instruction(CORE_LOOP_DIV, EXP, SUM);
    code[SCALE] = instruction(CORE_LOOP_LOAD, NUMBER, 0);
    code[SCALED] = instruction(CORE_LOOP_MUL, RATIO, SCALE);
    code[STORES] = instruction(CORE_LOOP_STORE, OUT, SCALED);
    code[STORES + 1] = instruction(CORE_LOOP_STORE, SUM_OUT, SUM);
    code[STORES + 2] = instruction(CORE_LOOP_STORE, MAX_OUT, MAX);
    core_sdk_rows_find(&rows, &program, values);
}

START_TEST(stages_follow_the_reductions)
{
    static const uint16_t stages[] = {
        [X] = 0,   [MAX] = 1,   [SHIFTED] = 1, [EXP] = 1,
        [SUM] = 2, [RATIO] = 2, [SCALE] = 0,   [SCALED] = 2,
    };
    static const uint8_t uniform[] = {
        [X] = 0,   [MAX] = 1,   [SHIFTED] = 0, [EXP] = 0,
        [SUM] = 1, [RATIO] = 0, [SCALE] = 1,   [SCALED] = 0,
    };

    ck_assert_uint_eq(rows.nstages, 2);
    for (uint32_t i = 0; i < STORES; i++) {
        ck_assert_msg(rows.stage[i] == stages[i], "value %u: stage %u",
                      (unsigned)i, (unsigned)rows.stage[i]);
        ck_assert_msg(rows.uniform[i] == uniform[i], "value %u", (unsigned)i);
        ck_assert_int_eq(core_sdk_rows_reduces(&rows, i, stages[i]),
                         i == MAX || i == SUM);
    }
    ck_assert_int_eq(core_sdk_rows_reduces(&rows, MAX, 2), 0);
}
END_TEST

static void needs(uint32_t stage, uint32_t wanted)
{
    ck_assert_int_eq(core_sdk_rows_pass(&rows, stage), 1);
    for (uint32_t i = 0; i < STORES; i++)
        ck_assert_msg(rows.needed[i] == (wanted >> i & 1), "stage %u: value %u",
                      (unsigned)stage, (unsigned)i);
}

START_TEST(passes_compute_what_their_stage_needs)
{
    needs(1, 1u << X);
    needs(2, 1u << X | 1u << MAX | 1u << SHIFTED | 1u << EXP);
    needs(3, 1u << X | 1u << MAX | 1u << SHIFTED | 1u << EXP | 1u << SUM |
                 1u << RATIO | 1u << SCALE | 1u << SCALED);
}
END_TEST

START_TEST(only_outputs_with_elements_are_stored_by_the_last_pass)
{
    ck_assert_int_eq(core_sdk_rows_stores(&rows, STORES), 1);
    ck_assert_int_eq(core_sdk_rows_stores(&rows, STORES + 1), 0);
    ck_assert_int_eq(core_sdk_rows_stores(&rows, SCALED), 0);
}
END_TEST

START_TEST(a_pass_without_stores_has_nothing_to_do)
{
    code[STORES].a = SUM_OUT;
    core_sdk_rows_find(&rows, &program, values);
    ck_assert_int_eq(core_sdk_rows_pass(&rows, 3), 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        stages_follow_the_reductions,
        passes_compute_what_their_stage_needs,
        only_outputs_with_elements_are_stored_by_the_last_pass,
        a_pass_without_stores_has_nothing_to_do,
    };
    const test_suite suite = {
        .name = "loader/sdk_rows", .setup = begin, SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
