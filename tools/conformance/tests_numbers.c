/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: numbers that are arguments, which keep all bits of f64 and i64, and
 * cases that simplifications of a kernel get wrong: a beta of 0, a result that
 * is the second operand, results that are subnormal, infinities alone. */

#include "number_case.h"

#include <math.h>

#define WIDE INT64_C(9007199254740993) /* 2^53 + 1 */

static const number_case arguments[] = {
    {"add.Tensor", CORE_F64, {T(0), T(1), N(.1)}, .1, 0, IS_EXACT},
    {"sub.Tensor", CORE_F64, {T(0), T(1), N(.1)}, -.1, 0, IS_EXACT},
    {"add.Tensor", CORE_I64, {T(0), T(1), N(WIDE)}, 0, WIDE, IS_EXACT},
    {"sub.Tensor", CORE_I64, {T(0), T(1), N(WIDE)}, 0, -WIDE, IS_EXACT},
    {"add.Scalar", CORE_F64, {T(0), N(.1)}, .1, 0, IS_EXACT},
    {"add.Scalar", CORE_I64, {T(0), N(WIDE)}, 0, WIDE, IS_EXACT},
    {"mul.Scalar", CORE_F64, {T(1), N(.1)}, .1, 0, IS_EXACT},
    {"mul.Scalar", CORE_I64, {T(1), N(WIDE)}, 0, WIDE, IS_EXACT},
    {"eq.Scalar", CORE_I64, {T(WIDE), N(WIDE - 1)}, 0, 0, IS_EXACT},
    {"lt.Scalar", CORE_I64, {T(WIDE - 1), N(WIDE)}, 0, 1, IS_EXACT},
    {"addcmul", CORE_F64, {T(0), T(1), T(1), N(.1)}, .1, 0, IS_EXACT},
    {"lerp.Scalar", CORE_F64, {T(0), T(1), N(.1)}, .1, 0, IS_EXACT},
    {"leaky_relu", CORE_F64, {T(-1), N(.1)}, -.1, 0, IS_EXACT},
    {"clamp", CORE_F64, {T(0), N(.1)}, .1, 0, IS_EXACT},
    {"clamp", CORE_I64, {T(0), N(WIDE)}, 0, WIDE, IS_EXACT},
    {"addmm", CORE_F64, {T(1), T(0), T(1), N(.1), N(1)}, .1, 0, IS_EXACT},
    {"addmm", CORE_F64, {T(0), T(.5), T(1), N(1), N(.1)}, .1, 0, IS_EXACT},
    {"fill_.Scalar", CORE_F64, {T(0), N(.1)}, .1, 0, IS_EXACT},
    {"fill_.Scalar", CORE_I64, {T(0), N(WIDE)}, 0, WIDE, IS_EXACT},
    {"fill_.Scalar", CORE_F64, {{GAPS, 0, 0}, N(.1)}, .1, 0, IS_EXACT},
    {"fill_.Scalar", CORE_I64, {{GAPS, 0, 0}, N(WIDE)}, 0, WIDE, IS_EXACT},
    {"masked_fill.Scalar",
     CORE_F64,
     {T(0), {MASK, 0, 0}, N(.1)},
     .1,
     0,
     IS_EXACT},
    {"masked_fill.Scalar",
     CORE_I64,
     {T(0), {MASK, 0, 0}, N(WIDE)},
     0,
     WIDE,
     IS_EXACT},
};

static const number_case edges[] = {
    {"addmm",
     CORE_F32,
     {{ZERO_DIM, (double)NAN, 0}, T(.5), T(1), N(0), N(1)},
     1,
     0,
     IS_EXACT},
    {"addmm", CORE_F32, {T(7), T(.5), T(1), N(0), N(2)}, 2, 0, IS_EXACT},
    {"addmm", CORE_F64, {T(7), T(.5), T(1), N(0), N(2)}, 2, 0, IS_EXACT},
    {"mul.out", CORE_F32, {T(3), T(5), {SECOND_TENSOR, 0, 0}}, 15, 0, IS_EXACT},
    {"sub.out",
     CORE_F32,
     {T(3), T(5), N(1), {SECOND_TENSOR, 0, 0}},
     -2,
     0,
     IS_EXACT},
    {"mul.out", CORE_F32, {T(3), T(5), {FIRST_TENSOR, 0, 0}}, 15, 0, IS_EXACT},
    {"threshold_backward", CORE_F32, {T(2), T(1), N(1)}, 0, 0, IS_EXACT},
    {"threshold_backward", CORE_F64, {T(2), T(1), N(1)}, 0, 0, IS_EXACT},
    {"exp", CORE_F64, {T(-100)}, 3.720075976020836e-44, 0, IS_ROUNDED},
    {"exp", CORE_F64, {T(-700)}, 9.85967654375977e-305, 0, IS_ROUNDED},
    {"exp", CORE_F32, {T(-87.25)}, 1.2817592313147442e-38, 0, IS_ROUNDED},
    {"exp", CORE_F32, {T(-90)}, 8.194012623990515e-40, 0, IS_ROUNDED},
    {"amax", CORE_F32, {T(-INFINITY)}, -(double)INFINITY, 0, IS_EXACT},
    {"amax", CORE_F64, {T(-INFINITY)}, -(double)INFINITY, 0, IS_EXACT},
    {"amin", CORE_F32, {T(INFINITY)}, (double)INFINITY, 0, IS_EXACT},
    {"amin", CORE_F64, {T(INFINITY)}, (double)INFINITY, 0, IS_EXACT},
    {"max", CORE_F32, {T(-INFINITY)}, -(double)INFINITY, 0, IS_EXACT},
    {"min", CORE_F32, {T(INFINITY)}, (double)INFINITY, 0, IS_EXACT},
};

static void numbers_are_exact(suite *self, outcome *out, const test *one)
{
    (void)one;
    number_cases_check(self, arguments, sizeof arguments / sizeof *arguments,
                       out);
}

static void edge_cases(suite *self, outcome *out, const test *one)
{
    (void)one;
    number_cases_check(self, edges, sizeof edges / sizeof *edges, out);
}

bool suite_add_numbers(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/numbers-are-exact", numbers_are_exact, true},
        {"ops/rules/edge-cases", edge_cases, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
