/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The expected texts are what print() of NumPy 2.2 prints for the same arrays,
 * plus dtype and device. */

#include "support/suite.h"

#include "base/memory.h"
#include "tensor/number_format.h"
#include "tensor/tensor.h"

#include <libcore/tensor.h>

#include <check.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of a tensor with these data; freed when the test's process ends. */
static char *kept[256];
static size_t nkept;

static const char *shown(core_dtype dtype, const void *data, size_t ndim,
                         const int64_t *sizes)
{
    core_tensor *tensor;
    char *text;

    ck_assert_msg(core_tensor_from_data(data, dtype, sizes, ndim, NULL,
                                        &tensor) == CORE_OK,
                  "%s", core_error_message());
    ck_assert_msg(core_tensor_format(tensor, &text) == CORE_OK, "%s",
                  core_error_message());
    core_tensor_release(tensor);
    ck_assert_uint_lt(nkept, sizeof kept / sizeof *kept);
    kept[nkept++] = text;
    return text;
}

#define ROW(dtype, type, ...)                    \
    shown(                                       \
        (dtype), (const type[]){__VA_ARGS__}, 1, \
        (const int64_t[]){sizeof((const type[]){__VA_ARGS__}) / sizeof(type)})

START_TEST(floats_have_the_fewest_digits_and_one_width)
{
    ck_assert_str_eq(ROW(CORE_F32, float, 1, 2, 3), "[1. 2. 3.]");
    ck_assert_str_eq(ROW(CORE_F32, float, 1.5f, 2.25f, -3),
                     "[ 1.5   2.25 -3.  ]");
    ck_assert_str_eq(ROW(CORE_F32, float, 0.1f, 1.0f / 3),
                     "[0.1        0.33333334]");
    ck_assert_str_eq(ROW(CORE_F64, double, 0.1, 1.0 / 3),
                     "[0.1        0.33333333] (f64)");
    ck_assert_str_eq(ROW(CORE_F32, float, 0, -0.0f), "[ 0. -0.]");
}
END_TEST

START_TEST(far_apart_numbers_get_exponents)
{
    ck_assert_str_eq(ROW(CORE_F32, float, 1e10f, 1), "[1.e+10 1.e+00]");
    ck_assert_str_eq(ROW(CORE_F64, double, 1e-5, 1.25),
                     "[1.00e-05 1.25e+00] (f64)");
    ck_assert_str_eq(ROW(CORE_F64, double, 1e-300, -1),
                     "[ 1.e-300 -1.e+000] (f64)");
    ck_assert_str_eq(ROW(CORE_F64, double, 1, 1000), "[   1. 1000.] (f64)");
    ck_assert_str_eq(ROW(CORE_F64, double, 1, 1001),
                     "[1.000e+00 1.001e+03] (f64)");
    ck_assert_str_eq(ROW(CORE_F64, double, 1e8, 1e8), "[1.e+08 1.e+08] (f64)");
    ck_assert_str_eq(ROW(CORE_F64, double, 12345678.9, 99999999.0),
                     "[12345678.9 99999999. ] (f64)");
    ck_assert_str_eq(ROW(CORE_F32, float, 2.4085562e-06f, 1),
                     "[2.4085562e-06 1.0000000e+00]");
}
END_TEST

START_TEST(nan_and_infinity_are_padded)
{
    ck_assert_str_eq(ROW(CORE_F32, float, NAN, 1, INFINITY), "[nan  1. inf]");
    ck_assert_str_eq(ROW(CORE_F32, float, NAN, -INFINITY), "[ nan -inf]");
    ck_assert_str_eq(ROW(CORE_F32, float, -INFINITY, 1.25f), "[-inf 1.25]");
    ck_assert_str_eq(ROW(CORE_F32, float, NAN, 1e-7f), "[   nan 1.e-07]");
}
END_TEST

START_TEST(integers_and_bools_are_aligned)
{
    ck_assert_str_eq(ROW(CORE_I64, int64_t, 1, -20, 300),
                     "[  1 -20 300] (i64)");
    ck_assert_str_eq(ROW(CORE_I64, int64_t, INT64_MIN, INT64_MAX),
                     "[-9223372036854775808  9223372036854775807] (i64)");
    ck_assert_str_eq(ROW(CORE_U8, uint8_t, 0, 255), "[  0 255] (u8)");
    ck_assert_str_eq(ROW(CORE_I8, int8_t, -128, 7), "[-128    7] (i8)");
    ck_assert_str_eq(ROW(CORE_BOOL, uint8_t, 1, 0), "[ True False] (bool)");
    ck_assert_str_eq(ROW(CORE_BOOL, uint8_t, 1, 1), "[ True  True] (bool)");
}
END_TEST

START_TEST(half_floats_show_their_own_precision)
{
    /* 0.1, 65504, and 1/3 as f16; 1/3 as bf16 */
    ck_assert_str_eq(ROW(CORE_F16, uint16_t, 0x2e66), "[0.1] (f16)");
    ck_assert_str_eq(ROW(CORE_F16, uint16_t, 0x7bff), "[65504.] (f16)");
    ck_assert_str_eq(ROW(CORE_F16, uint16_t, 0x3555), "[0.3333] (f16)");
    ck_assert_str_eq(ROW(CORE_BF16, uint16_t, 0x3eab), "[0.334] (bf16)");
    ck_assert_str_eq(ROW(CORE_BF16, uint16_t, 0x7f80), "[inf] (bf16)");
}
END_TEST

START_TEST(a_0_dim_tensor_is_a_number)
{
    ck_assert_str_eq(shown(CORE_F32, &(float){3}, 0, NULL), "3.0");
    ck_assert_str_eq(shown(CORE_F32, &(float){0.1f}, 0, NULL), "0.1");
    ck_assert_str_eq(shown(CORE_F64, &(double){1e16}, 0, NULL), "1e+16 (f64)");
    ck_assert_str_eq(shown(CORE_F64, &(double){1e15}, 0, NULL),
                     "1000000000000000.0 (f64)");
    ck_assert_str_eq(shown(CORE_F64, &(double){-1.5e-5}, 0, NULL),
                     "-1.5e-05 (f64)");
    ck_assert_str_eq(shown(CORE_F64, &(double){1.0 / 3}, 0, NULL),
                     "0.3333333333333333 (f64)");
    ck_assert_str_eq(shown(CORE_F64, &(double){0}, 0, NULL), "0.0 (f64)");
    ck_assert_str_eq(shown(CORE_F64, &(double){5e-324}, 0, NULL),
                     "5e-324 (f64)");
    ck_assert_str_eq(
        shown(CORE_F64, &(double){1.7976931348623157e308}, 0, NULL),
        "1.7976931348623157e+308 (f64)");
    ck_assert_str_eq(shown(CORE_F32, &(float){-INFINITY}, 0, NULL), "-inf");
    ck_assert_str_eq(shown(CORE_I32, &(int32_t){-7}, 0, NULL), "-7 (i32)");
    ck_assert_str_eq(shown(CORE_BOOL, &(uint8_t){1}, 0, NULL), "True (bool)");
}
END_TEST

START_TEST(rows_are_aligned)
{
    static const float data[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const int64_t square[] = {2, 2};
    static const int64_t cube[] = {2, 2, 3};
    static const int64_t deep[] = {1, 1, 1, 2};

    ck_assert_str_eq(shown(CORE_F32, data, 2, square), "[[1. 2.]\n"
                                                       " [3. 4.]]");
    ck_assert_str_eq(shown(CORE_F32, data, 3, cube), "[[[ 1.  2.  3.]\n"
                                                     "  [ 4.  5.  6.]]\n"
                                                     "\n"
                                                     " [[ 7.  8.  9.]\n"
                                                     "  [10. 11. 12.]]]");
    ck_assert_str_eq(shown(CORE_F32, data, 4, deep), "[[[[1. 2.]]]]");
}
END_TEST

START_TEST(long_rows_are_wrapped)
{
    int64_t data[40];
    static const int64_t sizes[] = {40};

    for (int i = 0; i < 40; i++)
        data[i] = i;
    ck_assert_str_eq(
        shown(CORE_I64, data, 1, sizes),
        "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 "
        "22 23\n 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39] (i64)");
}
END_TEST

START_TEST(large_tensors_are_summarised)
{
    int64_t sizes[] = {1001};
    int64_t wide[] = {2, 600};
    int64_t tall[] = {8, 150};
    int64_t *data = malloc(1200 * sizeof *data);

    for (int i = 0; i < 1200; i++)
        data[i] = i;
    ck_assert_str_eq(shown(CORE_I64, data, 1, sizes),
                     "[   0    1    2 ...  998  999 1000] (i64)");
    ck_assert_str_eq(shown(CORE_I64, data, 2, wide),
                     "[[   0    1    2 ...  597  598  599]\n"
                     " [ 600  601  602 ... 1197 1198 1199]] (i64)");
    ck_assert_str_eq(shown(CORE_I64, data, 2, tall),
                     "[[   0    1    2 ...  147  148  149]\n"
                     " [ 150  151  152 ...  297  298  299]\n"
                     " [ 300  301  302 ...  447  448  449]\n"
                     " ...\n"
                     " [ 750  751  752 ...  897  898  899]\n"
                     " [ 900  901  902 ... 1047 1048 1049]\n"
                     " [1050 1051 1052 ... 1197 1198 1199]] (i64)");
    sizes[0] = 1000;
    ck_assert_ptr_null(strstr(shown(CORE_I64, data, 1, sizes), "..."));
    free(data);
}
END_TEST

/* Only elements that are printed determine the width. */
START_TEST(hidden_elements_do_not_affect_the_width)
{
    static const int64_t sizes[] = {1200};
    float *data = calloc(1200, sizeof *data);

    data[600] = 1e20f;
    ck_assert_str_eq(shown(CORE_F32, data, 1, sizes),
                     "[0. 0. 0. ... 0. 0. 0.]");
    free(data);
}
END_TEST

START_TEST(view_is_printed_by_its_strides)
{
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    static const int64_t sizes[] = {2, 3};
    core_tensor *tensor;
    core_tensor *turned;
    char *text;

    ck_assert_int_eq(
        core_tensor_from_data(data, CORE_F32, sizes, 2, NULL, &tensor),
        CORE_OK);
    ck_assert_int_eq(core__tensor_view(tensor, 2, (int64_t[]){3, 2},
                                       (int64_t[]){1, 3}, 0, &turned),
                     CORE_OK);
    ck_assert_int_eq(core_tensor_format(turned, &text), CORE_OK);
    ck_assert_str_eq(text, "[[1. 4.]\n [2. 5.]\n [3. 6.]]");
    core_text_free(text);
    core_tensor_release(turned);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(large_view_is_summarised_by_its_strides)
{
    static const int64_t sizes[] = {1200};
    int64_t *data = malloc(1200 * sizeof *data);
    core_tensor *tensor;
    core_tensor *grid;
    char *text;

    for (int i = 0; i < 1200; i++)
        data[i] = i;
    ck_assert_int_eq(
        core_tensor_from_data(data, CORE_I64, sizes, 1, NULL, &tensor),
        CORE_OK);
    /* 40 × 30 with the first dimension innermost, from element 0 */
    ck_assert_int_eq(core__tensor_view(tensor, 2, (int64_t[]){40, 30},
                                       (int64_t[]){1, 40}, 0, &grid),
                     CORE_OK);
    ck_assert_int_eq(core_tensor_format(grid, &text), CORE_OK);
    ck_assert_str_eq(text, "[[   0   40   80 ... 1080 1120 1160]\n"
                           " [   1   41   81 ... 1081 1121 1161]\n"
                           " [   2   42   82 ... 1082 1122 1162]\n"
                           " ...\n"
                           " [  37   77  117 ... 1117 1157 1197]\n"
                           " [  38   78  118 ... 1118 1158 1198]\n"
                           " [  39   79  119 ... 1119 1159 1199]] (i64)");
    core_text_free(text);
    core_tensor_release(grid);
    core_tensor_release(tensor);
    free(data);
}
END_TEST

START_TEST(empty_tensors_print_their_sizes)
{
    static const int64_t none[] = {0};
    static const int64_t flat[] = {2, 0};

    ck_assert_str_eq(shown(CORE_F32, "", 1, none), "[]");
    ck_assert_str_eq(shown(CORE_I64, "", 2, flat), "[] (i64, sizes [2, 0])");
}
END_TEST

START_TEST(meta_tensor_prints_its_sizes)
{
    static const int64_t sizes[] = {2, 3};
    core_device *meta;
    core_tensor *tensor;
    char *text;

    ck_assert_int_eq(core_device_find("meta", &meta), CORE_OK);
    ck_assert_int_eq(
        core_tensor_from_data(NULL, CORE_BF16, sizes, 2, meta, &tensor),
        CORE_OK);
    ck_assert_int_eq(core_tensor_format(tensor, &text), CORE_OK);
    ck_assert_str_eq(text, "[...] (bf16, meta, sizes [2, 3])");
    core_text_free(text);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(output_does_not_depend_on_the_locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        setlocale(LC_ALL, names[i]);
    ck_assert_str_eq(ROW(CORE_F32, float, 1.5f, 0.1f), "[1.5 0.1]");
}
END_TEST

START_TEST(out_of_memory_sets_the_result_to_null)
{
    static const float data[3] = {1, 2, 3};
    static const int64_t sizes[] = {3};
    core_tensor *tensor;
    char *text = NULL;
    int64_t live;
    int tries = 0;

    ck_assert_int_eq(
        core_tensor_from_data(data, CORE_F32, sizes, 1, NULL, &tensor),
        CORE_OK);
    ck_assert_int_eq(core_tensor_format(tensor, &text), CORE_OK);
    core_text_free(text);
    live = core__alloc_live();
    for (; tries < 100; tries++) {
        core_status status;

        text = (char *)&live;
        core__alloc_fault_set(tries, true);
        status = core_tensor_format(tensor, &text);
        core__alloc_fault_set(-1, false);
        if (status == CORE_OK)
            break;
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_ptr_null(text);
        ck_assert_int_eq(core__alloc_live(), live);
    }
    ck_assert_int_gt(tries, 1);
    ck_assert_int_lt(tries, 100);
    ck_assert_str_eq(text, "[1. 2. 3.]");
    core_text_free(text);
    core_tensor_release(tensor);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        floats_have_the_fewest_digits_and_one_width,
        far_apart_numbers_get_exponents,
        nan_and_infinity_are_padded,
        integers_and_bools_are_aligned,
        half_floats_show_their_own_precision,
        a_0_dim_tensor_is_a_number,
        rows_are_aligned,
        long_rows_are_wrapped,
        large_tensors_are_summarised,
        hidden_elements_do_not_affect_the_width,
        view_is_printed_by_its_strides,
        large_view_is_summarised_by_its_strides,
        empty_tensors_print_their_sizes,
        meta_tensor_prints_its_sizes,
        output_does_not_depend_on_the_locale,
        out_of_memory_sets_the_result_to_null,
    };
    const test_suite suite = {
        .name = "transfer/print",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
