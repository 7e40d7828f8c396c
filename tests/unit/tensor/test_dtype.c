/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include "tensor/dtype.h"

#include <libcore/tensor.h>

#include <check.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const core_dtype all[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                 CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                 CORE_U8,  CORE_BOOL};
enum { COUNT = sizeof all / sizeof *all };

static core_scalar number(double value)
{
    return (core_scalar){.tag = CORE_VALUE_FLOAT, .u.f = value};
}

static core_scalar integer(int64_t value)
{
    return (core_scalar){.tag = CORE_VALUE_INT, .u.i = value};
}

static core_scalar stored(core_dtype dtype, core_scalar value)
{
    unsigned char bytes[16];

    memset(bytes, 0xa5, sizeof bytes);
    core__element_store(dtype, bytes, value);
    for (size_t i = core__dtype_size(dtype); i < sizeof bytes; i++)
        ck_assert_uint_eq(bytes[i], 0xa5);
    return core__element_load(dtype, bytes);
}

START_TEST(each_name_has_its_size)
{
    static const char *const names[] = {"f64", "f32", "f16", "bf16", "i64",
                                        "i32", "i16", "i8",  "u8",   "bool"};
    static const uint32_t sizes[] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};

    for (int i = 0; i < COUNT; i++) {
        ck_assert_str_eq(core_dtype_name(all[i]), names[i]);
        ck_assert_uint_eq(core_dtype_from_name(names[i]), all[i]);
        ck_assert_uint_eq(core_dtype_size(all[i]), sizes[i]);
        ck_assert_int_eq(core__dtype_check(all[i]), CORE_OK);
    }
    ck_assert_uint_eq(core_dtype_from_name("f"), CORE_DTYPE_NONE);
    ck_assert_uint_eq(core_dtype_from_name("f328"), CORE_DTYPE_NONE);
    ck_assert_uint_eq(core_dtype_from_name(""), CORE_DTYPE_NONE);
    ck_assert_str_eq(core_dtype_name(1000), "none");
    ck_assert_uint_eq(core_dtype_size(1000), 0);
}
END_TEST

START_TEST(reserved_and_unknown_dtypes_are_distinguished)
{
    ck_assert_int_eq(core__dtype_check(CORE_F8E4M3), CORE_OK);
    ck_assert_int_eq(core__dtype_check(CORE_COMPLEX128),
                     CORE_ERROR_UNSUPPORTED);
    ck_assert_int_eq(core__dtype_check(CORE_COMPLEX64), CORE_ERROR_UNSUPPORTED);
    ck_assert_int_eq(core__dtype_check(CORE_DTYPE_NONE),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core__dtype_check(1000), CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_uint_eq(core_dtype_promote(CORE_F32, CORE_F8E4M3),
                      CORE_DTYPE_NONE);
    ck_assert(!core_dtype_is_floating(1000));
}
END_TEST

/* The table of torch.promote_types, row by row. */
START_TEST(promotion_follows_the_table_of_pytorch)
{
    enum {
        D = CORE_F64,
        F = CORE_F32,
        H = CORE_F16,
        B = CORE_BF16,
        L = CORE_I64,
        I = CORE_I32,
        S = CORE_I16,
        C = CORE_I8,
        U = CORE_U8,
        O = CORE_BOOL
    };
    static const core_dtype table[COUNT][COUNT] = {
        {D, D, D, D, D, D, D, D, D, D}, {D, F, F, F, F, F, F, F, F, F},
        {D, F, H, F, H, H, H, H, H, H}, {D, F, F, B, B, B, B, B, B, B},
        {D, F, H, B, L, L, L, L, L, L}, {D, F, H, B, L, I, I, I, I, I},
        {D, F, H, B, L, I, S, S, S, S}, {D, F, H, B, L, I, S, C, S, C},
        {D, F, H, B, L, I, S, S, U, U}, {D, F, H, B, L, I, S, C, U, O},
    };

    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < COUNT; k++)
            ck_assert_uint_eq(core_dtype_promote(all[i], all[k]), table[i][k]);
}
END_TEST

START_TEST(promotion_is_symmetric)
{
    for (int a = 0; a < COUNT; a++)
        for (int b = 0; b < COUNT; b++) {
            core_dtype ab = core_dtype_promote(all[a], all[b]);

            ck_assert_uint_eq(ab, core_dtype_promote(all[b], all[a]));
            ck_assert_uint_eq(ab, core_dtype_promote(ab, all[a]));
        }
}
END_TEST

/* Every f16 value, to f32 and back. */
START_TEST(f16_round_trips)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = core__f16_to_f32((uint16_t)bits);

        if (isnan(value)) {
            ck_assert_uint_gt(bits & 0x7fff, 0x7c00);
            ck_assert(isnan(core__f16_to_f32(core__f32_to_f16(value))));
            continue;
        }
        ck_assert_msg(core__f32_to_f16(value) == bits, "%#x gives %#x", bits,
                      core__f32_to_f16(value));
    }
}
END_TEST

/* A value between two neighbours is rounded to the nearer one, a tie to the
 * even one. */
START_TEST(f16_rounds_to_nearest_even)
{
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = core__f16_to_f32((uint16_t)bits);
        float high = core__f16_to_f32((uint16_t)(bits + 1));
        float middle = (low + high) / 2; /* exact in f32 */
        uint32_t even = bits + (bits & 1);

        ck_assert_uint_eq(core__f32_to_f16(middle), even);
        ck_assert_uint_eq(core__f32_to_f16(-middle), even | 0x8000);
        ck_assert_uint_eq(core__f32_to_f16(nextafterf(middle, 0)), bits);
        ck_assert_uint_eq(core__f32_to_f16(nextafterf(middle, INFINITY)),
                          bits + 1);
    }
    ck_assert_uint_eq(core__f32_to_f16(65519.996f), 0x7bff);
    ck_assert_uint_eq(core__f32_to_f16(65520), 0x7c00);
    ck_assert_uint_eq(core__f32_to_f16(1e30f), 0x7c00);
    ck_assert_uint_eq(core__f32_to_f16(-INFINITY), 0xfc00);
    ck_assert_uint_eq(core__f32_to_f16(1e-45f), 0);
    ck_assert_uint_eq(core__f32_to_f16(-1e-45f), 0x8000);
}
END_TEST

START_TEST(bf16_round_trips_and_rounds_to_nearest_even)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = core__bf16_to_f32((uint16_t)bits);

        if (isnan(value))
            ck_assert(isnan(core__bf16_to_f32(core__f32_to_bf16(value))));
        else
            ck_assert_uint_eq(core__f32_to_bf16(value), bits);
    }
    for (uint32_t bits = 0; bits < 0x7f7f; bits++) {
        uint32_t wide = bits << 16 | 0x8000;
        float middle;

        memcpy(&middle, &wide, 4);
        ck_assert_uint_eq(core__f32_to_bf16(middle), bits + (bits & 1));
        ck_assert_uint_eq(core__f32_to_bf16(nextafterf(middle, 0)), bits);
        ck_assert_uint_eq(core__f32_to_bf16(nextafterf(middle, INFINITY)),
                          bits + 1);
    }
    ck_assert_uint_eq(core__f32_to_bf16(INFINITY), 0x7f80);
    ck_assert_uint_eq(core__f32_to_bf16(3.4e38f), 0x7f80);
}
END_TEST

START_TEST(elements_keep_values_that_fit)
{
    ck_assert_double_eq(stored(CORE_F64, number(0.1)).u.f, 0.1);
    ck_assert_double_eq(stored(CORE_F32, number(0.1)).u.f, (double)0.1f);
    ck_assert_int_eq(stored(CORE_I64, integer(INT64_MIN)).u.i, INT64_MIN);
    ck_assert_int_eq(stored(CORE_I32, integer(-5)).u.i, -5);
    ck_assert_int_eq(stored(CORE_I16, integer(-32768)).u.i, -32768);
    ck_assert_int_eq(stored(CORE_I8, integer(-128)).u.i, -128);
    ck_assert_int_eq(stored(CORE_U8, integer(255)).u.i, 255);
    ck_assert_int_eq(stored(CORE_BOOL, integer(-7)).u.i, 1);
    ck_assert_int_eq(stored(CORE_BOOL, number(0.5)).u.i, 1);
    ck_assert_int_eq(stored(CORE_BOOL, number(-0.0)).u.i, 0);
    ck_assert_int_eq(stored(CORE_BOOL, number(NAN)).u.i, 1);
    ck_assert_uint_eq(stored(CORE_BOOL, integer(1)).tag, CORE_VALUE_BOOL);
    ck_assert_uint_eq(stored(CORE_U8, integer(1)).tag, CORE_VALUE_INT);
    ck_assert_uint_eq(stored(CORE_F16, integer(1)).tag, CORE_VALUE_FLOAT);
}
END_TEST

START_TEST(integers_wrap_and_floats_are_truncated)
{
    ck_assert_int_eq(stored(CORE_U8, integer(-1)).u.i, 255);
    ck_assert_int_eq(stored(CORE_I8, integer(300)).u.i, 44);
    ck_assert_int_eq(stored(CORE_I32, number(-2.9)).u.i, -2);
    ck_assert_int_eq(stored(CORE_I64, number(NAN)).u.i, 0);
    ck_assert_int_eq(stored(CORE_I64, number(1e300)).u.i, INT64_MAX);
    ck_assert_int_eq(stored(CORE_I64, number(-1e300)).u.i, INT64_MIN);
}
END_TEST

START_TEST(bool_other_than_0_or_1_is_true)
{
    unsigned char byte = 0x80;

    ck_assert_int_eq(core__element_load(CORE_BOOL, &byte).u.i, 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        each_name_has_its_size,
        reserved_and_unknown_dtypes_are_distinguished,
        promotion_follows_the_table_of_pytorch,
        promotion_is_symmetric,
        f16_round_trips,
        f16_rounds_to_nearest_even,
        bf16_round_trips_and_rounds_to_nearest_even,
        elements_keep_values_that_fit,
        integers_wrap_and_floats_are_truncated,
        bool_other_than_0_or_1_is_true,
    };
    const test_suite suite = {
        .name = "tensor/dtype",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
