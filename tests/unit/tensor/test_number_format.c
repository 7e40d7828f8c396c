/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Numbers that the dtype or the operator cannot take are refused before
 * anything is created or changed, on every device. */

#include "support/stream.h"

#include <math.h>

static const char *const names[] = {"cpu", "sim"};
enum { DEVICES = sizeof names / sizeof *names };

static core_tensor *whole(core_dtype dtype, core_device *device)
{
    const int64_t n = 3;

    return CALL(full, &n, 1, core_int(2), dtype, device);
}

static void all_two(core_tensor *tensor)
{
    HOLDS(CALL(to_copy, tensor, CORE_F64, device_of("cpu"), false, -1), 3, 2, 2,
          2);
}

START_TEST(negative_power_of_integers_is_refused)
{
    core_device *device = device_of(names[_i]);
    core_tensor *out;

    for (core_dtype dtype = CORE_I64; dtype <= CORE_BOOL; dtype++) {
        core_tensor *x;

        if (core_dtype_is_floating(dtype))
            continue;
        x = whole(dtype, device);
        FAILS(core_pow_scalar(x, core_int(-1), &out),
              CORE_ERROR_INVALID_ARGUMENT, "pow", "exponent is -1", "0 or more",
              "-1.0");
        ck_assert_ptr_null(out);
    }
    FAILS(core_pow_scalar_(whole(CORE_I32, device), core_int(-3)),
          CORE_ERROR_INVALID_ARGUMENT, "pow_", "exponent is -3", "i32");
}
END_TEST

START_TEST(other_powers_are_accepted)
{
    core_device *device = device_of(names[_i]);
    core_tensor *two = whole(CORE_I32, device);
    core_tensor *floats = whole(CORE_F32, device);

    HOLDS(CALL(pow_scalar, two, core_int(3)), 3, 8, 8, 8);
    HOLDS(CALL(pow_scalar, two, core_int(0)), 3, 1, 1, 1);
    HOLDS(CALL(pow_scalar, two, core_float(-1)), 3, .5, .5, .5);
    HOLDS(CALL(pow_scalar, floats, core_int(-1)), 3, .5, .5, .5);
    /* With a tensor as exponent, an integer to a negative power is truncated to
     * 0. */
    HOLDS(CALL(pow, two, CALL(neg, two)), 3, 0, 0, 0);
}
END_TEST

static const struct {
    core_dtype dtype;
    core_scalar value;
    const char *text, *range;
} outside[] = {
    {CORE_U8, {CORE_VALUE_INT, 0, {.i = 256}}, "is 256", "0 to 255"},
    {CORE_U8, {CORE_VALUE_INT, 0, {.i = -256}}, "is -256", "0 to 255"},
    {CORE_U8, {CORE_VALUE_FLOAT, 0, {.f = -1}}, "is -1", "0 to 255"},
    {CORE_I8, {CORE_VALUE_INT, 0, {.i = 128}}, "is 128", "-128 to 127"},
    {CORE_I8, {CORE_VALUE_INT, 0, {.i = -129}}, "is -129", "-128 to 127"},
    {CORE_I16, {CORE_VALUE_INT, 0, {.i = 32768}}, "is 32768", "-32768 to"},
    {CORE_I32,
     {CORE_VALUE_INT, 0, {.i = INT64_C(1) << 31}},
     "is 2147483648",
     "to 2147483647"},
    {CORE_I32, {CORE_VALUE_FLOAT, 0, {.f = 1e10}}, "is 10000000000", "to"},
    {CORE_I32, {CORE_VALUE_FLOAT, 0, {.f = NAN}}, "is nan", "i32"},
    {CORE_I64,
     {CORE_VALUE_FLOAT, 0, {.f = 0x1p63}},
     "is 9.2233720368547758e+18",
     "i64"},
    {CORE_I64, {CORE_VALUE_FLOAT, 0, {.f = -INFINITY}}, "is -inf", "i64"},
};

START_TEST(number_out_of_range_is_refused_and_nothing_changes)
{
    const core_scalar value = outside[_i].value;
    const core_dtype dtype = outside[_i].dtype;
    const char *text = outside[_i].text, *range = outside[_i].range;
    const int64_t n = 3;

    for (size_t k = 0; k < DEVICES; k++) {
        core_device *device = device_of(names[k]);
        core_tensor *x = whole(dtype, device), *out;
        core_tensor *mask = CALL(ge_scalar, x, core_int(0));
        core_tensor *index = CALL(zeros, &n, 1, CORE_I64, device);

#define REFUSED(call, name)                                     \
    FAILS(call, CORE_ERROR_INVALID_ARGUMENT, name, text, range, \
          core_dtype_name(dtype))
        REFUSED(core_fill_(x, value), "fill_");
        REFUSED(core_full(&n, 1, value, dtype, device, &out), "full");
        ck_assert_ptr_null(out);
        REFUSED(core_full_like(x, value, CORE_DTYPE_NONE, NULL, -1, &out),
                "full_like");
        REFUSED(core_new_full(x, &n, 1, value, dtype, device, &out),
                "new_full");
        REFUSED(core_scalar_tensor(value, dtype, device, &out),
                "scalar_tensor");
        REFUSED(core_masked_fill(x, mask, value, &out), "masked_fill");
        REFUSED(core_index_fill(x, 0, index, value, &out), "index_fill");
        all_two(x);
    }
}
END_TEST

START_TEST(number_in_range_is_stored)
{
    core_device *device = device_of(names[_i]);
    const int64_t n = 1;

#define GIVES(value, dtype, want) \
    HOLDS(CALL(full, &n, 1, value, dtype, device), 1, want)
    GIVES(core_int(255), CORE_U8, 255);
    GIVES(core_int(-1), CORE_U8, 255);
    GIVES(core_int(-255), CORE_U8, 1);
    GIVES(core_float(255.9), CORE_U8, 255);
    GIVES(core_float(-0.9), CORE_U8, 0);
    GIVES(core_int(-128), CORE_I8, -128);
    GIVES(core_float(-128.5), CORE_I8, -128);
    GIVES(core_int(INT32_MIN), CORE_I32, INT32_MIN);
    GIVES(core_int(7), CORE_BOOL, 1);
    GIVES(core_float(-0x1p63), CORE_I64, -0x1p63);
    GIVES(core_int(1 << 20), CORE_F32, 1 << 20);
}
END_TEST

START_TEST(unusable_scales_are_refused)
{
    static const double wrong[] = {1e-300, 1e300, 0, -1, NAN, INFINITY};
    const int64_t sizes[] = {1, 1, 2, 2}, to[] = {4, 4};
    core_tensor *x, *out;

    x = CALL(zeros, sizes, 4, CORE_F32, device_of(names[_i]));
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        FAILS(core_upsample_nearest2d(x, to, 2, &wrong[k], NULL, &out),
              CORE_ERROR_INVALID_ARGUMENT, "upsample_nearest2d",
              "a scale factor is");
    }
}
END_TEST

START_TEST(out_of_memory_names_operator_and_device)
{
    const int64_t huge = INT64_C(1) << 40;
    core_tensor *out;

    FAILS(core_zeros(&huge, 1, CORE_F32, device_of(names[_i]), &out),
          CORE_ERROR_OUT_OF_MEMORY, "zeros", names[_i]);
    ck_assert_ptr_null(out);
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {negative_power_of_integers_is_refused, 0, DEVICES},
        {other_powers_are_accepted, 0, DEVICES},
        {number_out_of_range_is_refused_and_nothing_changes, 0,
         sizeof outside / sizeof *outside},
        {number_in_range_is_stored, 0, DEVICES},
        {unusable_scales_are_refused, 0, DEVICES},
        {out_of_memory_names_operator_and_device, 0, DEVICES},
    };
    const test_suite suite = {
        .name = "tensor/number_format",
        .teardown = drop_all,
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
