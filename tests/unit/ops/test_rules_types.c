/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Rules for result types and layouts that no other file tests.  The rest:
 *
 * promotion, in place, out=
 *     test_structured.c: promotion_ranks_category_before_dimensions,
 *     numbers_rank_below_tensors, out_resizes_only_an_empty_tensor,
 *     in_place_keeps_dtype_and_refuses_a_higher_category
 * devices
 *     test_structured.c: different_devices_are_both_named;
 *     test_autograd_graph.c: host_scalar_combines_with_device_tensor
 * layout
 *     test_layout.c: results_keep_the_order_of_strides */

#include "support/autograd.h"

#include <math.h>

static core_tensor *filled(core_dtype dtype, int64_t n, double value)
{
    double values[4096];

    for (int64_t i = 0; i < n; i++)
        values[i] = value;
    return typed(dtype, 1, &n, values);
}

START_TEST(true_division_of_integers_returns_the_default_float)
{
    core_tensor *x = CALL(div, filled(CORE_I64, 2, 7), filled(CORE_I32, 2, 2));

    ck_assert_uint_eq(core_tensor_dtype(x), CORE_F32);
    HOLDS(x, 2, 3.5, 3.5);
}
END_TEST

START_TEST(sum_of_integers_returns_i64)
{
    core_tensor *x = sum(filled(CORE_U8, 4, 255));

    ck_assert_uint_eq(core_tensor_dtype(x), CORE_I64);
    HOLDS(x, 1, 1020);
    ck_assert_uint_eq(core_tensor_dtype(sum(filled(CORE_BOOL, 2, 1))),
                      CORE_I64);
}
END_TEST

/* In bf16 a sum of ones would stop at 256, in f16 at 2048. */
START_TEST(sum_of_half_precision_accumulates_in_f32)
{
    HOLDS(sum(filled(CORE_BF16, 4096, 1)), 1, 4096);
    HOLDS(sum(filled(CORE_F16, 4096, 1)), 1, 4096);
    ck_assert_uint_eq(core_tensor_dtype(sum(filled(CORE_BF16, 2, 1))),
                      CORE_BF16);
}
END_TEST

START_TEST(min_and_max_propagate_nan)
{
    double nan = strtod("nan", NULL), got;
    core_tensor *x = VECTOR(3, 1, nan, 2), *y = VECTOR(3, 5, 5, nan);

    OK(core_tensor_read(CALL(max, x), &got, sizeof got));
    ck_assert(got != got);
    OK(core_tensor_read(CALL(min, x), &got, sizeof got));
    ck_assert(got != got);
    OK(core_tensor_read(CALL(select, CALL(minimum, x, y), 0, 1), &got,
                        sizeof got));
    ck_assert(got != got);
    OK(core_tensor_read(CALL(select, CALL(maximum, x, y), 0, 2), &got,
                        sizeof got));
    ck_assert(got != got);
    HOLDS(CALL(select, CALL(maximum, x, y), 0, 0), 1, 5);
}
END_TEST

START_TEST(trilinear_of_integers_keeps_their_dtype)
{
    static const core_dtype dtypes[] = {CORE_U8, CORE_I8, CORE_I16, CORE_I32};
    const int64_t dim = 0;

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        core_tensor *x = filled(dtypes[i], 2, 3);

        x = CALL(trilinear, x, x, x, NULL, 0, NULL, 0, NULL, 0, &dim, 1, 1);
        ck_assert_uint_eq(core_tensor_dtype(x), dtypes[i]);
        HOLDS(x, 1, 54);
    }
}
END_TEST

START_TEST(all_and_any_of_u8_return_u8_for_any_dimensions)
{
    core_tensor *vector = filled(CORE_U8, 1, 3);
    core_tensor *scalar = CALL(select, vector, 0, 0);
    const int64_t none = 0;

    ck_assert_uint_eq(core_tensor_dtype(CALL(all_dims, scalar, NULL, 0, false)),
                      CORE_U8);
    ck_assert_uint_eq(core_tensor_dtype(CALL(any_dims, scalar, NULL, 0, false)),
                      CORE_U8);
    ck_assert_uint_eq(
        core_tensor_dtype(CALL(any_dims, vector, &none, 0, false)), CORE_U8);
    HOLDS(CALL(any_dims, vector, &none, 0, false), 1, 1);
    ck_assert_uint_eq(core_tensor_dtype(CALL(any_dims, filled(CORE_I8, 1, 3),
                                             &none, 0, false)),
                      CORE_BOOL);
}
END_TEST

START_TEST(ldexp_by_integers_keeps_a_floating_dtype)
{
    static const core_dtype dtypes[] = {CORE_F16, CORE_BF16, CORE_F32,
                                        CORE_F64};

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        core_tensor *x =
            CALL(ldexp, filled(dtypes[i], 2, 3), filled(CORE_I32, 2, 2));

        ck_assert_uint_eq(core_tensor_dtype(x), dtypes[i]);
        HOLDS(x, 2, 12, 12);
    }
    ck_assert_uint_eq(core_tensor_dtype(CALL(ldexp, filled(CORE_I32, 2, 3),
                                             filled(CORE_I32, 2, 2))),
                      CORE_F32);
}
END_TEST

/* 2 to the power 140 is infinite in f32, and to the power -200 it is 0. */
START_TEST(ldexp_overflows_only_if_the_result_does)
{
    core_tensor *small;

    HOLDS(CALL(ldexp, filled(CORE_F32, 1, 0x1p-140), filled(CORE_I32, 1, 140)),
          1, 1);
    HOLDS(
        CALL(ldexp, filled(CORE_F64, 1, 0x1p-1070), filled(CORE_I64, 1, 1070)),
        1, 1);
    small =
        CALL(ldexp, filled(CORE_F32, 1, 0x1p120), filled(CORE_I64, 1, -200));
    HOLDS(CALL(ldexp, small, filled(CORE_U8, 1, 80)), 1, 1);
    small =
        CALL(ldexp, filled(CORE_F32, 1, INFINITY), filled(CORE_I32, 1, -5000));
    HOLDS(CALL(reciprocal, small), 1, 0);
}
END_TEST

static core_tensor *zeros4(int64_t n, int64_t c, int64_t h, int64_t w)
{
    core_tensor *x;

    OK(core_zeros((int64_t[]){n, c, h, w}, 4, CORE_F32, NULL, &x));
    return keep(x);
}

static core_tensor *channels_last(core_tensor *x)
{
    return CALL(contiguous, x, CORE_FORMAT_CHANNELS_LAST);
}

START_TEST(result_takes_layout_of_first_operand)
{
    core_tensor *rows = zeros4(2, 3, 4, 5), *last = channels_last(rows);

    ck_assert(
        core_tensor_is_contiguous(add(last, rows), CORE_FORMAT_CHANNELS_LAST));
    ck_assert(
        core_tensor_is_contiguous(add(rows, last), CORE_FORMAT_CONTIGUOUS));
}
END_TEST

START_TEST(convolution_pooling_and_norm_propagate_channels_last)
{
    const int64_t one[] = {1, 1}, none[] = {0, 0}, two[] = {2, 2};
    core_tensor *x = channels_last(zeros4(2, 3, 4, 4)), *y, *mean, *deviation;

    y = CALL(conv2d, x, zeros4(6, 3, 1, 1), NULL, one, 2, none, 2, one, 2, 1);
    ck_assert(core_tensor_is_contiguous(y, CORE_FORMAT_CHANNELS_LAST));
    y = CALL(max_pool2d, x, two, 2, two, 2, none, 2, one, 2, false);
    ck_assert(core_tensor_is_contiguous(y, CORE_FORMAT_CHANNELS_LAST));
    OK(core_native_batch_norm(x, NULL, NULL, NULL, NULL, true, 0.1, 1e-5, &y,
                              &mean, &deviation));
    keep(mean);
    keep(deviation);
    ck_assert(core_tensor_is_contiguous(keep(y), CORE_FORMAT_CHANNELS_LAST));
}
END_TEST

/* -------------------------------------------------------------- refusals -- */

START_TEST(integer_division_by_zero_names_operator_and_argument)
{
    core_tensor *x = filled(CORE_I64, 2, 7), *zero = filled(CORE_I64, 2, 0),
                *out;

    FAILS(core_remainder(x, zero, &out), CORE_ERROR_INVALID_ARGUMENT,
          "remainder.Tensor", "divided by zero", "argument 2");
    FAILS(core_floor_divide(x, zero, &out), CORE_ERROR_INVALID_ARGUMENT,
          "floor_divide", "divided by zero", "argument 2");
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(unsupported_dtype_error_names_operator_and_dtype)
{
    core_tensor *b = filled(CORE_BOOL, 2, 1), *out;
    core_tensor *m = CALL(view_sizes, b, (int64_t[]){1, 2}, 2);

    FAILS(core_clamp_tensor(b, b, b, &out), CORE_ERROR_NO_KERNEL,
          "clamp.Tensor", "bool");
    FAILS(core_mm(m, CALL(transpose, m, 0, 1), &out), CORE_ERROR_NO_KERNEL,
          "mm", "bool");
    FAILS(core_cumsum_(b, 0, CORE_DTYPE_NONE), CORE_ERROR_DTYPE, "cumsum_",
          "i64", "bool");
    FAILS(core_cumprod_(b, 0, CORE_DTYPE_NONE), CORE_ERROR_DTYPE, "cumprod_",
          "i64", "bool");
    FAILS(core_softmax(filled(CORE_I64, 2, 1), 0, CORE_DTYPE_NONE, &out),
          CORE_ERROR_DTYPE, "softmax.int", "floating", "i64");
}
END_TEST

/* bf16 and f16 cannot represent 0.1: the bound is rounded to the dtype, so the
 * nearest number is exactly on it. */
START_TEST(shrink_bounds_are_rounded_to_the_operand_dtype)
{
    const core_dtype halves[] = {CORE_BF16, CORE_F16};

    for (size_t i = 0; i < 2; i++) {
        core_tensor *x = filled(halves[i], 2, 0.1),
                    *one = filled(halves[i], 2, 1);

        HOLDS(CALL(hardshrink_backward, one, x, core_float(0.1)), 2, 0, 0);
        HOLDS(CALL(softshrink_backward, one, x, core_float(0.1)), 2, 0, 0);
        HOLDS(CALL(hardshrink, x, core_float(0.1)), 2, 0, 0);
        HOLDS(CALL(softshrink, x, core_float(0.1)), 2, 0, 0);
    }
}
END_TEST

SUITE("ops/rules_types", trilinear_of_integers_keeps_their_dtype,
      all_and_any_of_u8_return_u8_for_any_dimensions,
      ldexp_by_integers_keeps_a_floating_dtype,
      ldexp_overflows_only_if_the_result_does,
      true_division_of_integers_returns_the_default_float,
      sum_of_integers_returns_i64, sum_of_half_precision_accumulates_in_f32,
      min_and_max_propagate_nan, result_takes_layout_of_first_operand,
      convolution_pooling_and_norm_propagate_channels_last,
      integer_division_by_zero_names_operator_and_argument,
      unsupported_dtype_error_names_operator_and_dtype,
      shrink_bounds_are_rounded_to_the_operand_dtype)
