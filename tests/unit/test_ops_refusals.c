/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Arguments that an operator has no meaning for: it says its name, theirs, and
 * what they are; and the same ones where they do have a meaning. */

#include "ops.h"

/* Operator, words; what the message says, or NULL where the call is good. */
typedef struct row {
    const char *op, *words, *text;
} row;

static core_status call_words(const row *r, core_value *results)
{
    check c = {r->op, r->words, 0, 1, 0};
    char copy[256];
    arguments a;

    snprintf(copy, sizeof copy, "%s", r->words);
    parse(&a, &c, copy);
    return core_op_call(a.op, a.values, a.count, results, 4);
}

static void look(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        core_value results[4] = {0};
        core_status status = call_words(r, results);
        const char *said = status ? core_error_message() : "";

        ck_assert_msg(r->text ? status && strstr(said, r->text) &&
                                    strstr(said, r->op + (*r->op == '_'))
                              : !status,
                      "%s(%s): %d, \"%s\"", r->op, r->words, status, said);
        for (int k = 0; k < 4; k++) {
            if (status)
                ck_assert_uint_eq(results[k].tag, CORE_VALUE_NONE);
            core_value_release(&results[k]);
        }
    }
}

#define LOOK(rows) look(rows, sizeof rows / sizeof *(rows))

/* The numbers of an operator are looked at on its every way. */
START_TEST(a_width_below_0_is_refused)
{
    static const row rows[] = {
        {"softshrink", "p:3 f:-0.5", "lambd is -0.5"},
        {"softshrink", "p:3 i:-1", "lambd is -1"},
        {"softshrink", "p:3 f:nan", "lambd is nan"},
        {"softshrink", "p:0 f:-0.5", "lambd is -0.5"},
        {"softshrink", "p:3 f:0", NULL},
        {"softshrink", "p:3 f:0.5", NULL},
    };

    LOOK(rows);
}
END_TEST

START_TEST(integers_are_multiplied_by_whole_numbers)
{
    static const row rows[] = {
        {"add.Tensor", "x:3/2 x:3/2 f:0.5", "alpha is 0.5"},
        {"add.Tensor", "x:3/2 x:1/2 f:0.5", "but the result is i64"},
        {"add.Tensor", "m:3 m:3 f:1", "but the result is bool"},
        {"add.Scalar", "x:3/2 i:1 f:inf", "alpha is inf"},
        {"add_.Tensor", "x:3/2 x:3/2 f:nan", "alpha is nan"},
        {"add_.Tensor", "y:3 y:3 f:1e30", "i32 cannot hold"},
        {"sub.Tensor", "x:3/2 x:3/2 f:1.5", "alpha is 1.5"},
        {"sub.Scalar", "x:3/2 i:0 f:-0.5", "alpha is -0.5"},
        {"sub_.Scalar", "x:3/2 i:0 f:-0.5", "a whole number"},
        {"rsub.Tensor", "x:3/2 x:3/2 f:0.25", "alpha is 0.25"},
        {"rsub.Scalar", "x:3/2 i:3 f:0.25", "alpha is 0.25"},
        {"addmm", "x:2,2/2 x:2,2/2 x:2,2/2 f:0.5 i:1", "beta is 0.5"},
        {"addmm", "x:2,2/2 x:2,2/2 x:2,2/2 i:1 f:0.5", "alpha is 0.5"},
        {"addmv", "x:2/2 x:2,2/2 x:2/2 i:1 f:0.5", "alpha is 0.5"},
        {"addr", "x:2,2/2 x:2/2 x:2/2 f:0.5 i:1", "beta is 0.5"},
        {"baddbmm", "x:1,2,2/2 x:1,2,2/2 x:1,2,2/2 f:0.5 i:1", "beta is 0.5"},
        {"addbmm", "x:2,2/2 x:1,2,2/2 x:1,2,2/2 i:1 f:0.5", "alpha is 0.5"},
        {"index_add", "x:3/2 i:0 x:2/2 x:2/2 f:0.5", "alpha is 0.5"},
        {"index_add_", "x:3/2 i:0 x:2/2 x:2/2 f:0.5", "but the result is i64"},
        {"add.Tensor", "x:3/2 x:3/2 f:2", NULL},
        {"add.Tensor", "m:3 m:3 b:1", NULL},
        {"add.Tensor", "p:3 p:3 f:0.5", NULL},
        {"add.Tensor", "x:3/2 p:3 f:0.5", NULL},
        {"sub.Scalar", "x:3/2 f:0.5 f:0.5", NULL},
        {"addmm", "p:2,2 p:2,2 p:2,2 f:0.5 f:0.5", NULL},
        {"index_add", "x:3/2 i:0 x:2/2 x:2/2 f:2", NULL},
        {"index_add", "p:3 i:0 x:2/2 p:2 f:0.5", NULL},
        {"index_copy", "x:3/2 i:0 x:2/2 x:2/2", NULL},
    };

    LOOK(rows);
}
END_TEST

SUITE("ops refusals", a_width_below_0_is_refused,
      integers_are_multiplied_by_whole_numbers)
