/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* No dtype or layout takes a slow path unnoticed: the arguments of common
 * operators on the CPU reach a kernel unconverted, and conversions are
 * counted. */

#include "support/autograd.h"

#include <libcore/dispatch.h>

static uint64_t detours(const char *name)
{
    core_operator *op;
    uint64_t all = 0;

    OK(core_op_find(name, &op));
    for (int detour = 0; detour < CORE_CONVERSIONS; detour++)
        all += core_op_conversions(op, (core_conversion)detour);
    return all;
}

enum { FLOATS = 1, INTEGERS = 2, BOOLS = 4, NUMBERS = 3, ANY = 7 };

static const struct {
    core_dtype dtype;
    int kind;
} dtypes[] = {
    {CORE_F64, FLOATS},   {CORE_F32, FLOATS},   {CORE_F16, FLOATS},
    {CORE_BF16, FLOATS},  {CORE_I64, INTEGERS}, {CORE_I32, INTEGERS},
    {CORE_I16, INTEGERS}, {CORE_I8, INTEGERS},  {CORE_U8, INTEGERS},
    {CORE_BOOL, BOOLS},
};

/* operands: the number of leading arguments that are tensors of one dtype. */
static const struct {
    const char *name;
    int operands, kinds;
} operators[] = {
    {"add.Tensor", 2, ANY},
    {"sub.Tensor", 2, NUMBERS},
    {"mul.Tensor", 2, ANY},
    {"div.Tensor", 2, FLOATS},
    {"add_.Tensor", 2, ANY},
    {"mul_.Tensor", 2, ANY},
    {"maximum", 2, ANY},
    {"minimum", 2, ANY},
    {"eq.Tensor", 2, ANY},
    {"lt.Tensor", 2, ANY},
    {"logical_and", 2, ANY},
    {"logical_not", 1, ANY},
    {"bitwise_and.Tensor", 2, 6},
    {"bitwise_not", 1, 6},
    {"pow.Tensor_Tensor", 2, 3},
    {"neg", 1, NUMBERS},
    {"abs", 1, NUMBERS},
    {"relu", 1, NUMBERS},
    {"sqrt", 1, FLOATS},
    {"rsqrt", 1, FLOATS},
    {"exp", 1, FLOATS},
    {"log", 1, FLOATS},
    {"tanh", 1, FLOATS},
    {"erf", 1, FLOATS},
    {"sin", 1, FLOATS},
    {"sigmoid", 1, FLOATS},
    {"gelu", 1, FLOATS},
    {"silu", 1, FLOATS},
    {"clone", 1, ANY},
    {"sum", 1, ANY},
    {"mean", 1, FLOATS},
    {"amax", 1, ANY},
    {"argmax", 1, NUMBERS},
    {"any", 1, ANY},
    {"prod", 1, ANY},
    {"mm", 2, FLOATS},
    {"sigmoid_backward", 2, FLOATS},
    {"tanh_backward", 2, FLOATS},
};
enum { OPERATORS = sizeof operators / sizeof *operators };

typedef enum layout {
    PLAIN,
    STRIDED,    /* every other column */
    TRANSPOSED, /* rows and columns exchanged */
    REVERSED,   /* negative step, so that it starts in the middle */
    LAYOUTS
} layout;

static core_tensor *operand(core_dtype dtype, layout layout)
{
    const int64_t sizes[] = {64, 64}, wide[] = {64, 128}, tall[] = {80, 64};

    switch (layout) {
    case STRIDED:
        return CALL(slice, CALL(ones, wide, 2, dtype, NULL), 1, NULL, NULL, 2);
    case TRANSPOSED:
        return CALL(t, CALL(ones, sizes, 2, dtype, NULL));
    case REVERSED:
        return CALL(slice, CALL(ones, tall, 2, dtype, NULL), 0, &(int64_t){16},
                    NULL, 1);
    default:
        return CALL(ones, sizes, 2, dtype, NULL);
    }
}

static void call(const char *name, int operands, core_dtype dtype, int how)
{
    core_value args[2], results[2];
    core_operator *op;

    /* how: the layout of each operand. */
    for (int i = 0; i < operands; i++)
        args[i] = core_pack_tensor(
            operand(dtype, (layout)(i ? how / LAYOUTS : how % LAYOUTS)));
    OK(core_op_find(name, &op));
    OK(core_op_call(op, args, (uint32_t)operands, results, 2));
    core_value_release(&results[0]);
    core_value_release(&results[1]);
    drop_all();
}

START_TEST(common_operators_need_no_conversion_on_the_cpu)
{
    size_t calls = 0;

    for (size_t o = 0; o < OPERATORS; o++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            int ways = operators[o].operands > 1 ? LAYOUTS * LAYOUTS : LAYOUTS;

            for (int how = 0; how < ways; how++) {
                uint64_t before = detours(operators[o].name);

                if (!(operators[o].kinds & dtypes[d].kind))
                    continue;
                call(operators[o].name, operators[o].operands, dtypes[d].dtype,
                     how);
                ck_assert_msg(detours(operators[o].name) == before,
                              "%s of %s, layout %d, takes a detour",
                              operators[o].name,
                              core_dtype_name(dtypes[d].dtype), how);
                calls++;
            }
        }
    ck_assert_uint_gt(calls, 1000);
}
END_TEST

START_TEST(numbers_and_broadcast_operands_need_no_conversion)
{
    core_tensor *x = CALL(ones, ((int64_t[]){8, 8}), 2, CORE_F32, NULL);
    core_tensor *row = CALL(ones, ((int64_t[]){8}), 1, CORE_F32, NULL);
    core_tensor *one = CALL(ones, NULL, 0, CORE_F64, NULL);
    uint64_t before = detours("add.Tensor") + detours("mul.Scalar");

    CALL(add, x, row, core_int(1));
    CALL(add, x, one, core_int(1));
    CALL(mul_scalar, x, core_float(.5));
    ck_assert_uint_eq(detours("add.Tensor") + detours("mul.Scalar"), before);
}
END_TEST

START_TEST(conversion_of_a_second_dtype_is_counted)
{
    core_tensor *x = CALL(ones, ((int64_t[]){8}), 1, CORE_F32, NULL);
    core_tensor *i = CALL(ones, ((int64_t[]){8}), 1, CORE_I64, NULL);
    core_tensor *half = CALL(ones, ((int64_t[]){8}), 1, CORE_F16, NULL);
    core_operator *op, *out;

    OK(core_op_find("add.Tensor", &op));
    OK(core_op_find("add.out", &out));
    ck_assert_uint_eq(core_op_conversions(op, CORE_CONVERSION_CAST), 0);
    CALL(add, x, i, core_int(1));
    ck_assert_uint_eq(core_op_conversions(op, CORE_CONVERSION_CAST), 1);
    OK(core_add_out(x, x, core_int(1), half));
    ck_assert_uint_eq(core_op_conversions(out, CORE_CONVERSION_RESULT), 1);
    ck_assert_uint_eq(core_op_conversions(op, CORE_CONVERSION_RESULT), 0);
    ck_assert_uint_eq(core_op_conversions(op, CORE_CONVERSIONS), 0);
    ck_assert_uint_eq(core_op_conversions(NULL, CORE_CONVERSION_CAST), 0);
}
END_TEST

START_TEST(integers_are_summed_without_conversion)
{
    static const core_dtype small[] = {CORE_I32, CORE_I16, CORE_I8, CORE_U8,
                                       CORE_BOOL};

    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        core_tensor *x =
            typed(small[i], 1, (int64_t[]){3}, (double[]){1, 1, 1});
        core_tensor *all = CALL(sum, x, CORE_I64);
        int64_t total;

        ck_assert_int_eq(core_tensor_dtype(all), CORE_I64);
        OK(core_tensor_read(all, &total, sizeof total));
        ck_assert_int_eq(total, 3);
    }
    ck_assert_uint_eq(detours("sum"), 0);
}
END_TEST

SUITE("dispatch/conversion_count",
      common_operators_need_no_conversion_on_the_cpu,
      numbers_and_broadcast_operands_need_no_conversion,
      conversion_of_a_second_dtype_is_counted,
      integers_are_summed_without_conversion)
