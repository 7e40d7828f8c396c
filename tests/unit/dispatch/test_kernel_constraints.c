/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Requirements of kernels on their operands (docs/abi.md 10): the fixture's
 * kernels fail when a call does not meet them. */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/loader.h"

#include <libcore/device.h>

static core_device *device;

static void setup(void)
{
    folder_make_with("constrained");
    OK(core_device_find("constrained", &device));
}

static void teardown(void)
{
    drop_all();
    folder_remove();
}

/* 0, 1, 2, … */
static core_tensor *range(core_dtype dtype, int64_t rows, int64_t columns)
{
    float values[64];
    double wide[64];

    for (int i = 0; i < 64; i++)
        wide[i] = values[i] = (float)i;
    core_tensor *tensor;
    OK(core_tensor_from_data(
        dtype == CORE_F64 ? (const void *)wide : (const void *)values, dtype,
        (int64_t[]){rows, columns}, 2, device, &tensor));
    return keep(tensor);
}

static core_tensor *turned(core_tensor *tensor)
{
    return CALL(t, tensor);
}

static double at(core_tensor *tensor, int64_t index)
{
    double wide[64];
    float got[64];
    size_t count = (size_t)core_tensor_numel(tensor);

    if (core_tensor_dtype(tensor) == CORE_F64)
        OK(core_tensor_read(tensor, wide, count * sizeof *wide));
    else
        OK(core_tensor_read(tensor, got, count * sizeof *got));
    return core_tensor_dtype(tensor) == CORE_F64 ? wide[index]
                                                 : (double)got[index];
}

static void all_are(core_tensor *tensor, double value)
{
    for (int64_t i = 0; i < core_tensor_numel(tensor); i++)
        ck_assert_double_eq(at(tensor, i), value);
}

START_TEST(contiguity_is_required_of_operands_and_results)
{
    core_tensor *under = range(CORE_F32, 4, 6);
    core_tensor *out = CALL(as_strided, under, (int64_t[]){3, 2}, 2,
                            (int64_t[]){1, 6}, 2, (const int64_t[]){7});

    OK(core_mm_out(turned(range(CORE_F32, 2, 3)), turned(range(CORE_F32, 2, 2)),
                   out));
    all_are(out, 7);
    for (int64_t i = 0; i < 24; i++)
        ck_assert_double_eq(
            at(under, i),
            (i >= 7 && i < 10) || (i >= 13 && i < 16) ? 7 : (double)i);
}
END_TEST

START_TEST(loops_meet_the_requirements)
{
    core_tensor *flat =
        CALL(reshape, range(CORE_F32, 4, 4), (int64_t[]){16}, 1);
    core_tensor *late =
        CALL(slice, flat, 0, (const int64_t[]){1}, (const int64_t[]){5}, 1);
    core_tensor *under = range(CORE_F32, 4, 2);
    core_tensor *out = CALL(select, under, 1, 1);
    core_tensor *result = CALL(neg, late); /* starts four bytes late */

    ck_assert_double_eq(at(result, 3), -4);
    OK(core_neg_out(late, out)); /* and every other element */
    for (int64_t i = 0; i < 8; i++)
        ck_assert_double_eq(at(under, i),
                            i % 2 ? -(double)(i / 2 + 1) : (double)i);
    result = CALL(neg, turned(range(CORE_F32, 2, 3)));
    ck_assert_double_eq(at(result, 1), -3);
    /* In place, the offset makes no difference. */
    OK(core_neg_(late));
    ck_assert_double_eq(at(flat, 0), 0);
    ck_assert_double_eq(at(flat, 4), -4);
    ck_assert_double_eq(at(flat, 5), 5);
}
END_TEST

/* If copy_ had only the constrained kernel, nothing could be copied. */
START_TEST(copies_are_made_by_a_kernel_without_requirements)
{
    core_tensor *result =
        CALL(contiguous, turned(range(CORE_F32, 2, 3)), CORE_FORMAT_CONTIGUOUS);

    ck_assert_double_eq(at(result, 1), 3);
    ck_assert_double_eq(at(result, 5), 5);
}
END_TEST

START_TEST(reductions_meet_the_requirements)
{
    core_tensor *under = range(CORE_F32, 3, 2);
    core_tensor *out = CALL(select, under, 1, 0);

    OK(core_sum_dim_out(turned(range(CORE_F32, 4, 3)), (int64_t[]){1}, 1, false,
                        CORE_DTYPE_NONE, out));
    all_are(out, 4);
    ck_assert_double_eq(at(under, 3), 3);
}
END_TEST

START_TEST(views_are_aligned_as_required)
{
    core_tensor *flat =
        CALL(reshape, range(CORE_F32, 4, 4), (int64_t[]){16}, 1);
    core_tensor *late = CALL(
        reshape,
        CALL(slice, flat, 0, (const int64_t[]){1}, (const int64_t[]){5}, 1),
        (int64_t[]){2, 2}, 2);
    core_tensor *out;

    all_are(CALL(mm, late, late), 7);
    OK(core_mm_out(late, late, late));
    all_are(late, 7);
    ck_assert_double_eq(at(flat, 0), 0);
    ck_assert_double_eq(at(flat, 5), 5);
    /* Larger than any memory of the device. */
    late = CALL(unsqueeze, late, 0);
    FAILS(core_bmm(late, late, &out), CORE_ERROR_NO_KERNEL, "bmm", "alignment");
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(floating_operands_are_converted_to_one_dtype)
{
    core_tensor *input = range(CORE_F32, 2, 3);
    core_tensor *statistics = range(CORE_F32, 3, 4);
    core_tensor *mean = CALL(select, statistics, 1, 1);
    core_tensor *variance = CALL(select, statistics, 1, 2);
    core_tensor *weight = CALL(select, range(CORE_F64, 3, 1), 1, 0);
    core_tensor *out, *saved, *inverse;

    OK(core_native_batch_norm(input, weight, NULL, mean, variance, true, 0.1,
                              1e-5, &out, &saved, &inverse));
    keep(out), keep(saved), keep(inverse);
    ck_assert_int_eq(core_tensor_dtype(out), CORE_F32);
    all_are(out, 7);
    ck_assert_int_eq(core_tensor_dtype(saved), CORE_F64);
    all_are(saved, 8);
    /* Values that the kernel writes to other arguments are not lost. */
    for (int64_t i = 0; i < 12; i++)
        ck_assert_double_eq(at(statistics, i),
                            i % 4 == 1 || i % 4 == 2 ? 5 : (double)i);
}
END_TEST

START_TEST(fallback_writes_running_statistics)
{
    core_tensor *mean = CALL(select, range(CORE_F32, 3, 4), 1, 1);
    core_tensor *variance = CALL(select, range(CORE_F32, 3, 4), 1, 1);
    core_tensor *input = range(CORE_F32, 2, 3);
    core_tensor *out, *saved, *inverse;

    OK(core_setting_set("LIBCORE_FALLBACK", "count"));
    OK(core_native_batch_norm(input, NULL, NULL, mean, variance, true, 1.0,
                              1e-5, &out, &saved, &inverse));
    keep(out), keep(saved), keep(inverse);
    ck_assert_double_eq(at(mean, 0), 1.5);
    ck_assert_double_eq(at(variance, 2), 4.5);
}
END_TEST

START_TEST(large_loops_are_split)
{
    core_tensor *one;
    core_tensor *many;

    OK(core_tensor_from_data("", CORE_I8, (int64_t[]){1}, 1, device, &one));
    many = CALL(expand, keep(one), (int64_t[]){2200000000}, 1, false);
    many = CALL(abs, many);
    ck_assert_str_eq(getenv("FIXTURE_constrained"),
                     "2 parts, 2200000000 elements, last at 1100000000");
    drop(many);
}
END_TEST

START_TEST(large_reductions_are_split)
{
    core_tensor *one = range(CORE_F32, 1, 1);
    core_tensor *many =
        CALL(expand, one, (int64_t[]){1 << 16, 1 << 16}, 2, false);
    core_tensor *result = CALL(amax, many, (int64_t[]){1}, 1, false);
    core_tensor *out;

    ck_assert_int_eq(core_tensor_numel(result), 1 << 16);
    for (int64_t start = 0; start < 1 << 16; start += 1 << 14)
        all_are(
            CALL(slice, result, 0, &start, (const int64_t[]){start + 16}, 1),
            1 << 16);
    /* A reduced dimension cannot be split. */
    FAILS(core_amax(many, (int64_t[]){0, 1}, 2, false, &out),
          CORE_ERROR_NO_KERNEL, "amax", "sizes");
}
END_TEST

START_TEST(loop_that_cannot_be_split_is_passed_to_the_next_kernel)
{
    core_tensor *one = CALL(reshape, range(CORE_F32, 1, 1), (int64_t[]){1}, 1);
    core_tensor *many =
        CALL(expand, one, (int64_t[]){INT64_C(1) << 32}, 1, false);

    all_are(CALL(dot, many, many), 7);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        contiguity_is_required_of_operands_and_results,
        loops_meet_the_requirements,
        copies_are_made_by_a_kernel_without_requirements,
        reductions_meet_the_requirements,
        views_are_aligned_as_required,
        floating_operands_are_converted_to_one_dtype,
        fallback_writes_running_statistics,
        large_loops_are_split,
        large_reductions_are_split,
        loop_that_cannot_be_split_is_passed_to_the_next_kernel,
    };
    const test_suite suite = {
        .name = "dispatch/kernel_constraints",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
