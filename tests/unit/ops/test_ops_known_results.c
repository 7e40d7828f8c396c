/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Known results at the edges of what operators accept: 0-dimensional tensors,
 * empty batches, infinity and NaN. */

#include "support/ops.h"

#include <libcore/device.h>

#include <math.h>

/* A call, the index of one of its results, and that result's sizes and sum. */
typedef struct known_result {
    const char *op, *words;
    int result;
    uint32_t ndim;
    int64_t sizes[2];
    double total;
} known_result;

static core_status call_words(const char *op, const char *words, arguments *a,
                              core_value *results)
{
    check c = {op, words, .5, .5};

    state = 0;
    parse(a, &c);
    return core_op_call(a->op, a->values, a->count, results, 4);
}

static void check_results(const known_result *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const known_result *r = &rows[i];
        core_value results[4] = {0};
        arguments a;
        core_status status = call_words(r->op, r->words, &a, results);
        core_tensor *x = results[r->result].u.tensor;
        double total = 0;

        ck_assert_msg(status == CORE_OK, "%s(%s): %s", r->op, r->words,
                      core_error_message());
        ck_assert_msg(core_tensor_ndim(x) == r->ndim, "%s(%s): %u dimensions",
                      r->op, r->words, core_tensor_ndim(x));
        for (uint32_t d = 0; d < r->ndim; d++)
            ck_assert_msg(core_tensor_sizes(x)[d] == r->sizes[d],
                          "%s(%s): dimension %u is %lld", r->op, r->words, d,
                          (long long)core_tensor_sizes(x)[d]);
        OK(core_tensor_read(CALL(sum, x, CORE_F64), &total, sizeof total));
        ck_assert_msg(total == r->total, "%s(%s): sum %g, not %g", r->op,
                      r->words, total, r->total);
        for (int k = 0; k < 4; k++)
            core_value_release(&results[k]);
    }
}

#define CHECK_RESULTS(rows) check_results(rows, sizeof rows / sizeof *(rows))

START_TEST(losses_of_scalars_have_known_values)
{
    static const known_result rows[] = {
        {"multi_margin_loss", "p: x:/1 i:1 f:1 n i:1", 0, 0, {0}, 0},
        {"multi_margin_loss", "p: x:/1 i:1 f:1 n i:0", 0, 0, {0}, 0},
        {"multi_margin_loss", "p:2 x:/1 i:1 f:1 n i:0", 0, 0, {0}, .5},
        {"multilabel_margin_loss_forward", "p: x:/1 i:0", 0, 0, {0}, 0},
        {"multilabel_margin_loss_forward", "p: x:/1 i:1", 1, 0, {0}, 1},
        {"nll_loss_forward", "p:3 x:/1 n i:0 i:-100", 0, 0, {0}, -.5},
        {"nll_loss_forward", "p:3 x:/1 n i:0 i:-100", 1, 0, {0}, 1},
        {"nll_loss_forward", "p:3 x:/1 p:3 i:0 i:-100", 1, 0, {0}, .5},
        {"nll_loss_forward", "p:2,3 x:2/1 p:3 i:0 i:-100", 1, 0, {0}, 0},
    };

    CHECK_RESULTS(rows);
}
END_TEST

START_TEST(aminmax_of_scalar_has_no_dimension)
{
    static const known_result rows[] = {
        {"aminmax", "p: i:0 b:1", 0, 0, {0}, .5},
        {"aminmax", "p: i:-1 b:1", 1, 0, {0}, .5},
        {"aminmax", "p: i:0 b:0", 0, 0, {0}, .5},
        {"aminmax", "p: n b:1", 1, 0, {0}, .5},
    };
    core_value results[4] = {0};
    arguments a;

    CHECK_RESULTS(rows);
    FAILS(call_words("aminmax", "p: i:1 b:1", &a, results), CORE_ERROR_INDEX,
          "aminmax", "1");
}
END_TEST

/* inverse and counts are always computed for slices. */
START_TEST(unique_consecutive_of_slices_returns_inverse_and_counts)
{
    static const known_result rows[] = {
        {"unique_consecutive", "p:4 b:0 b:0 n", 1, 1, {0}, 0},
        {"unique_consecutive", "p:4 b:0 b:0 i:0", 1, 1, {0}, 0},
        {"unique_consecutive", "p:4 b:0 b:0 i:0", 2, 1, {0}, 0},
        {"unique_consecutive", "p:4 b:0 b:0 i:-1", 2, 1, {1}, 4},
        {"unique_consecutive", "p:4 b:1 b:1 i:0", 1, 1, {4}, 0},
        {"unique_consecutive", "p:4 b:1 b:1 i:0", 2, 1, {1}, 4},
        {"unique_consecutive", "p:3,2 b:0 b:0 i:0", 0, 2, {1, 2}, 1},
        {"unique_consecutive", "p:3,2 b:0 b:0 i:0", 1, 1, {3}, 0},
        {"unique_consecutive", "p:3,2 b:0 b:0 i:0", 2, 1, {1}, 3},
    };

    CHECK_RESULTS(rows);
}
END_TEST

START_TEST(group_norm_of_empty_batch_has_zero_gradients)
{
    core_value results[4] = {0};
    core_tensor *y;
    arguments a;

    OK(call_words("native_group_norm", "t:0,2 t:2 t:2 i:0 i:2 i:1 i:1 f:.1", &a,
                  results));
    y = CALL(sum, results[0].u.tensor, CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    for (size_t i = 0; i < a.nleaves; i++)
        ck_assert_ptr_nonnull(core_tensor_grad(a.leaves[i]));
    HOLDS(core_tensor_grad(a.leaves[1]), 2, 0, 0);
    for (int k = 0; k < 4; k++)
        core_value_release(&results[k]);
}
END_TEST

/* Backward through an argument without a formula fails; it names that
 * argument. */
START_TEST(backward_without_formula_names_the_argument)
{
    static const struct {
        const char *op, *words, *argument;
    } rows[] = {
        {"fractional_max_pool2d", "p:1,1,4,4 l:2,2 l:2,2 t:1,1,2",
         "random_samples"},
        {"fractional_max_pool3d", "p:1,1,4,4,4 l:2,2,2 l:2,2,2 t:1,1,3",
         "random_samples"},
        {"nll_loss_forward", "p:4,3 x:4/3 t:3 i:1 i:-100", "weight"},
        {"nll_loss2d_forward", "p:1,3,2,2 x:1,2,2/3 t:3 i:1 i:-100", "weight"},
        {"nll_loss_backward", "p: p:4,3 x:4/3 t:3 i:1 i:-100 p:", "weight"},
        {"nll_loss_backward", "p: p:4,3 x:4/3 n i:1 i:-100 t:", "total_weight"},
        {"nll_loss2d_backward",
         "p: p:1,3,2,2 x:1,2,2/3 t:3 i:1 i:-100 p:", "weight"},
        {"linalg_pinv.atol_rtol_tensor", "p:2,2 t: n b:0", "atol"},
        {"linalg_pinv.atol_rtol_tensor", "p:2,2 n t: b:0", "rtol"},
        {"native_layer_norm_backward",
         "p:2,4 p:2,4 l:4 t:2,1 p:2,1 p:4 n k:1,1,1", "mean"},
        {"native_layer_norm_backward",
         "p:2,4 p:2,4 l:4 p:2,1 t:2,1 p:4 n k:1,1,1", "rstd"},
        {"native_batch_norm_backward",
         "p:3,2 p:3,2 p:2 n n t:2 p:2 b:1 f:.1 k:1,1,1", "save_mean"},
        {"native_batch_norm_backward",
         "p:3,2 p:3,2 p:2 n n p:2 t:2 b:1 f:.1 k:1,1,1", "save_invstd"},
        {"native_batch_norm_backward",
         "p:3,2 p:3,2 p:2 t:2 p:2 n n b:0 f:.1 k:1,1,1", "running_mean"},
        {"native_batch_norm_backward",
         "p:3,2 p:3,2 p:2 p:2 t:2 n n b:0 f:.1 k:1,1,1", "running_var"},
        {"native_group_norm_backward",
         "p:1,2,2 p:1,2,2 t:1,1 p:1,1 p:2 i:1 i:2 i:2 i:1 k:1,1,1", "mean"},
        {"native_group_norm_backward",
         "p:1,2,2 p:1,2,2 p:1,1 t:1,1 p:2 i:1 i:2 i:2 i:1 k:1,1,1", "rstd"},
        {"bincount", "x:4/3 t:4 i:0", "no gradient formula"},
        {"heaviside", "t:3 p:3", "no gradient formula"},
        {"heaviside", "p:3 t:3", "no gradient formula"},
        {"floor_divide", "t:3 p:3", "no gradient formula"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        core_value results[4] = {0};
        core_tensor *y;
        arguments a;

        OK(call_words(rows[i].op, rows[i].words, &a, results));
        y = CALL(sum, results[0].u.tensor, CORE_DTYPE_NONE);
        FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_UNSUPPORTED, rows[i].op,
              rows[i].argument);
        for (int k = 0; k < 4; k++)
            core_value_release(&results[k]);
    }
}
END_TEST

/* The weight of multi_margin_loss has a formula. */
START_TEST(weight_of_margin_loss_has_a_gradient)
{
    core_value results[4] = {0};
    core_tensor *y;
    arguments a;

    OK(call_words("multi_margin_loss", "p:2,2 q:2 i:1 f:1 t:2 i:2", &a,
                  results));
    y = results[0].u.tensor;
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(a.leaves[0]), 2, 0, 1);
    core_value_release(&results[0]);
}
END_TEST

/* A square between bounds, lines beyond them; of a bound that f32 does not have,
 * lines alone. */
START_TEST(smooth_losses_are_squares_between_lines)
{
    core_tensor *x = VECTOR(6, -8, -2, -.5, .25, 2, 8);
    core_tensor *zero = VECTOR(6, 0, 0, 0, 0, 0, 0);

    HOLDS(CALL(huber_loss, x, zero, 0, 2.), 6, 14, 2, .125, .03125, 2, 14);
    HOLDS(CALL(smooth_l1_loss, x, zero, 0, 2.), 6, 7, 1, .0625, .015625, 1, 7);
    HOLDS(CALL(smooth_l1_loss, x, zero, 0, .5), 6, 7.75, 1.75, .25, .0625, 1.75,
          7.75);
}
END_TEST

/* The gradient of the sum of y. */
static void slopes_of(core_tensor *x, core_tensor *y, double *out)
{
    y = CALL(sum, y, CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    OK(core_tensor_read(core_tensor_grad(x), out, 3 * sizeof *out));
}

START_TEST(smooth_losses_have_bounds_of_any_size)
{
    core_tensor *zero = VECTOR(3, 0, 0, 0), *x, *y;
    double loss[3], slope[3];

    x = leaf(VECTOR(3, 5e-41, NAN, 2e-40));
    y = CALL(smooth_l1_loss, x, zero, 0, 1e-40);
    OK(core_tensor_read(y, loss, sizeof loss));
    ck_assert_double_eq_tol(loss[0] * 1e41, 1.25, 1e-12);
    ck_assert_double_eq_tol(loss[2] * 1e40, 1.5, 1e-12);
    slopes_of(x, y, slope);
    ck_assert_double_eq_tol(slope[0], .5, 1e-12);
    ck_assert_double_nan(slope[1]);
    ck_assert_double_eq(slope[2], 1);

    x = leaf(VECTOR(3, -INFINITY, 2, 1e300));
    y = CALL(huber_loss, x, zero, 0, (double)INFINITY);
    OK(core_tensor_read(y, loss, sizeof loss));
    ck_assert(loss[0] == INFINITY && loss[1] == 2);
    slopes_of(x, y, slope);
    ck_assert(slope[0] == -INFINITY && slope[1] == 2 && slope[2] == 1e300);

    x = leaf(VECTOR(3, -INFINITY, 2, 1e300));
    y = CALL(smooth_l1_loss, x, zero, 0, (double)INFINITY);
    slopes_of(x, y, slope);
    ck_assert(slope[0] == -1 && slope[1] == 0 && slope[2] == 0);

    x = leaf(VECTOR(3, 1e60, -1e50, 1e30));
    slopes_of(x, CALL(huber_loss, x, zero, 0, 1e50), slope);
    ck_assert(slope[0] == 1e50 && slope[1] == -1e50 && slope[2] == 1e30);
}
END_TEST

/* mse_loss_backward: the slope is multiplied before the gradient, which times 2 would
 * overflow. */
START_TEST(gradients_of_losses_are_multiplied_last)
{
    core_tensor *x = typed(CORE_F32, 1, (int64_t[]){2}, (double[]){0, .25});
    core_tensor *zero = typed(CORE_F32, 1, (int64_t[]){2}, (double[]){0, 0});
    core_tensor *grad = typed(CORE_F32, 0, NULL, (double[]){2e38});
    float slope[2];

    OK(core_tensor_read(CALL(mse_loss_backward, grad, x, zero, 2), slope,
                        sizeof slope));
    ck_assert(slope[0] == 0 && slope[1] == 1e38f);
}
END_TEST

START_TEST(constant_pad_fills_what_surrounds_the_input)
{
    core_tensor *x = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);

    HOLDS(
        CALL(constant_pad_nd, x, ((int64_t[]){1, 2, 2, 1}), 4, core_float(.5)),
        30, .5, .5, .5, .5, .5, .5, .5, .5, .5, .5, .5, .5, .5, 1, 2, 3, .5, .5,
        .5, 4, 5, 6, .5, .5, .5, .5, .5, .5, .5, .5);
    HOLDS(CALL(constant_pad_nd, x, ((int64_t[]){-1, -1, 0, 1}), 4,
               core_float(.5)),
          3, 2, 5, .5);
    HOLDS(CALL(constant_pad_nd, x, ((int64_t[]){-3, 1, 1, -1}), 4,
               core_float(.5)),
          2, .5, .5);
}
END_TEST

/* Saturation, and infinity where it does not change the value, leave all
 * gradients finite. */
START_TEST(losses_have_finite_gradients_at_their_limits)
{
    core_tensor *x = leaf(VECTOR(4, 0, 1, 1, .5));
    core_tensor *zero = VECTOR(3, 0, 0, 0);
    core_tensor *w = leaf(VECTOR(1, .5)), *y;

    y = CALL(binary_cross_entropy, x, VECTOR(4, 0, 1, .5, 1), NULL, 2);
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 4, 0, 0, 5e11, -2);
    x = leaf(VECTOR(3, INFINITY, -INFINITY, .25));
    y = CALL(huber_loss, x, zero, 2, 2.);
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 3, 2, -2, .25);
    x = leaf(VECTOR(3, INFINITY, -INFINITY, .25));
    y = CALL(smooth_l1_loss, x, zero, 2, 1.);
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 3, 1, -1, .25);
    y = CALL(sum, CALL(prelu, VECTOR(2, INFINITY, -3), w), CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(w), 1, -3);
}
END_TEST

/* The cases above do not hide NaN. */
START_TEST(losses_of_nan_have_nan_gradients)
{
    core_tensor *zero = VECTOR(2, 0, 0), *x, *y;
    double slope[2];

    for (int i = 0; i < 3; i++) {
        x = leaf(VECTOR(2, NAN, .25));
        y = i == 0   ? CALL(huber_loss, x, zero, 2, 2.)
            : i == 1 ? CALL(smooth_l1_loss, x, zero, 2, 1.)
                     : CALL(mse_loss, x, zero, 2);
        OK(core_backward(&y, 1, NULL, 0));
        OK(core_tensor_read(core_tensor_grad(x), slope, sizeof slope));
        ck_assert_double_nan(slope[0]);
        ck_assert_double_eq(slope[1], i < 2 ? .25 : .5);
    }
}
END_TEST

START_TEST(amax_over_a_row_with_nan_has_nan_gradient)
{
    core_tensor *x = leaf(MATRIX(2, 3, 1, NAN, NAN, 2, 2, 1)), *y;
    double slope[6];

    y = CALL(sum, CALL(amax, x, (int64_t[]){1}, 1, false), CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    OK(core_tensor_read(core_tensor_grad(x), slope, sizeof slope));
    for (int i = 0; i < 3; i++)
        ck_assert(isnan(slope[i]));
    ck_assert(slope[3] == .5 && slope[4] == .5 && slope[5] == 0);
    /* max over all elements compares NaN as equal to the maximum */
    x = leaf(VECTOR(3, 1, NAN, NAN));
    y = CALL(max, x);
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 3, 0, .5, .5);
}
END_TEST

static core_tensor *slope_of(core_tensor *x, core_tensor *y)
{
    y = CALL(sum, y, CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    return core_tensor_grad(x);
}

/* Where the formula as it is written would lose its digits or its range. */
START_TEST(gradients_agree_across_floating_dtypes)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16,
                                        CORE_BF16};
    int64_t four = 4;

    for (int i = 0; i < 4; i++) {
        double tol = (double[]){1e-14, 1e-6, 2e-3, 2e-2}[i], d[4];
        core_tensor *x = leaf(
            typed(dtypes[i], 1, &four, (double[]){0, 1. / 1024, 4096, .25}));
        core_tensor *wide;

        wide = CALL(to_copy, slope_of(x, CALL(sinc, x)), CORE_F64, NULL, false,
                    -1);
        OK(core_tensor_read(wide, d, sizeof d));
        ck_assert_double_eq(d[0], 0);
        ck_assert_double_eq_tol(d[1], -3.2127588253377764e-3,
                                3.3e-3 * tol + 1e-12);
        ck_assert_double_eq_tol(d[2], 1. / 4096, tol / 4096 + 1e-11);
        ck_assert_double_eq_tol(d[3], -.77283813988222339, tol + 1e-13);
        x = leaf(typed(dtypes[i], 1, &four, (double[]){0, 1, .5, .25}));
        HOLDS(slope_of(x,
                       CALL(binary_cross_entropy, x,
                            typed(dtypes[i], 1, &four, (double[]){0, 1, .5, 1}),
                            NULL, CORE_REDUCTION_SUM)),
              4, 0, 0, 0, -4);
        x = leaf(typed(dtypes[i], 1, &four, (double[]){8, -.75, .25, 0}));
        {
            core_tensor *mantissa, *exponent;

            OK(core_frexp(x, &mantissa, &exponent));
            keep(exponent);
            HOLDS(slope_of(x, keep(mantissa)), 4, 1. / 16, 1, 2, 1);
        }
    }
}
END_TEST

START_TEST(frexp_of_huge_and_tiny_numbers_has_gradients)
{
    core_tensor *x = leaf(VECTOR(2, 0x1p500, -0x1p-500)), *m, *e;
    double slope[2];

    OK(core_frexp(x, &m, &e));
    keep(e);
    OK(core_tensor_read(slope_of(x, keep(m)), slope, sizeof slope));
    ck_assert(slope[0] == 0x1p-501 && slope[1] == 0x1p499);
}
END_TEST

START_TEST(binary_cross_entropy_refuses_self_outside_0_to_1)
{
    core_tensor *half = VECTOR(2, .5, .5), *out;
    core_tensor *bad[] = {VECTOR(2, -.1, .5), VECTOR(2, .5, 1.1),
                          VECTOR(2, NAN, .5)};

    for (int i = 0; i < 3; i++)
        FAILS(core_binary_cross_entropy(bad[i], half, NULL, 1, &out),
              CORE_ERROR_INVALID_ARGUMENT, "self", "between 0 and 1");
}
END_TEST

static core_tensor *to_device(core_tensor *x, core_device *device)
{
    return CALL(to_copy, x, CORE_DTYPE_NONE, device, false, -1);
}

/* The core does not wait for an asynchronous device to check its data: a self
 * that is not a probability gives NaN there. */
START_TEST(binary_cross_entropy_outside_0_to_1_is_nan_on_async_device)
{
    core_tensor *half = VECTOR(2, .5, .5), *x;
    core_tensor *bad[] = {VECTOR(2, -.1, .5), VECTOR(2, 1.1, .5),
                          VECTOR(2, NAN, .5)};
    core_device *sim;
    double loss[2];

    OK(core_device_find("sim", &sim));
    for (int i = 0; i < 3; i++) {
        x = CALL(binary_cross_entropy, to_device(bad[i], sim),
                 to_device(half, sim), NULL, 0);
        OK(core_tensor_read(x, loss, sizeof loss));
        ck_assert(isnan(loss[0]) && fabs(loss[1] - M_LN2) < 1e-12);
    }
}
END_TEST

/* The formula also applies to targets outside of 0 to 1, on every device. */
START_TEST(binary_cross_entropy_accepts_any_target)
{
    core_tensor *self = VECTOR(3, .5, .2, .5), *target = VECTOR(3, 2, -1, NAN);
    core_device *devices[2];
    double loss[3];

    OK(core_device_find("cpu", &devices[0]));
    OK(core_device_find("sim", &devices[1]));
    for (int i = 0; i < 2; i++) {
        core_tensor *x = CALL(binary_cross_entropy, to_device(self, devices[i]),
                              to_device(target, devices[i]), NULL, 0);

        OK(core_tensor_read(x, loss, sizeof loss));
        ck_assert(fabs(loss[0] - M_LN2) < 1e-12 &&
                  fabs(loss[1] - (log(.2) - 2 * log(.8))) < 1e-12 &&
                  isnan(loss[2]));
    }
}
END_TEST

/* With a negative weight the result extrapolates from the first end. */
START_TEST(lerp_extrapolates_for_negative_weights)
{
    core_tensor *a = VECTOR(3, .25, .25, 1), *b = VECTOR(3, INFINITY, 1, 3);
    core_tensor *x = CALL(lerp, a, b, VECTOR(3, -.75, -INFINITY, -2));
    double got[3];

    OK(core_tensor_read(x, got, sizeof got));
    ck_assert(got[0] == -INFINITY && got[1] == -INFINITY && got[2] == -3);
}
END_TEST

/* NaN is neither positive nor negative. */
START_TEST(sign_of_nan_is_zero)
{
    core_tensor *x = leaf(VECTOR(3, NAN, -2, INFINITY));

    HOLDS(CALL(sign, x), 3, 0, -1, 1);
    HOLDS(CALL(sgn, x), 3, 0, -1, 1);
    HOLDS(slope_of(x, CALL(abs, x)), 3, 0, -1, 1);
}
END_TEST

START_TEST(output_padding_must_be_less_than_stride_or_dilation)
{
    core_tensor *x =
        typed(CORE_F32, 3, (int64_t[]){1, 1, 3}, (double[]){1, 2, 3});
    core_tensor *w = typed(CORE_F32, 3, (int64_t[]){1, 1, 2}, (double[]){1, 1});
    int64_t zero = 0, one = 1, two = 2, three = 3;
    core_tensor *out;

#define TRANSPOSED(stride, dilation, padding)                                  \
    core_convolution(x, w, NULL, &(stride), 1, &zero, 1, &(dilation), 1, true, \
                     &(padding), 1, 1, &out)
    FAILS(TRANSPOSED(one, one, one), CORE_ERROR_INVALID_ARGUMENT,
          "output_padding", "is 1, stride 1 and dilation 1");
    FAILS(TRANSPOSED(two, one, two), CORE_ERROR_INVALID_ARGUMENT,
          "output_padding");
    OK(TRANSPOSED(two, one, one));
    ck_assert_int_eq(core_tensor_numel(keep(out)), 7);
    OK(TRANSPOSED(two, three, two));
    ck_assert_int_eq(core_tensor_numel(keep(out)), 10);
#undef TRANSPOSED
}
END_TEST

START_TEST(hardswish_is_the_identity_from_3_up)
{
    core_tensor *x = leaf(VECTOR(5, -4, -3, 0, 3, 4));
    core_tensor *y = CALL(sum, CALL(hardswish, x), CORE_DTYPE_NONE);
    double slope;

    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 5, 0, 0, .5, 1, 1);
    x = leaf(VECTOR(1, NAN));
    y = CALL(sum, CALL(hardswish, x), CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    OK(core_tensor_read(core_tensor_grad(x), &slope, sizeof slope));
    ck_assert(isnan(slope));
}
END_TEST

START_TEST(sequences_of_integers_truncate_their_ends)
{
    static const known_result rows[] = {
        /* 0 … 7: the size is that of 0, 1.3, 2.6 … */
        {"arange.start_step", "f:0 f:9.86 f:1.3 d:i64 n n n", 0, 1, {8}, 28},
        {"arange.start_step", "f:0 f:9.86 f:1.3 d:i32 n n n", 0, 1, {8}, 28},
        {"arange.start_step", "f:.9 f:3.1 f:.7 d:i64 n n n", 0, 1, {4}, 0},
        {"arange", "f:.5 d:u8 n n n", 0, 1, {1}, 0},
        /* -2, 24 times -1, 25 times 0 */
        {"linspace", "f:-2.5 i:0 i:50 d:i64 n n n", 0, 1, {50}, -26},
        /* 36 of 108 steps from the end, -49 + 36 * 141 / 108, is -2 */
        {"linspace", "f:92.7 f:-49.9 i:109 d:i32 n n n", 0, 1, {109}, 2328},
        /* 81, 6, 0, 0 */
        {"logspace", "f:4.3 i:-3 i:4 f:3 d:i32 n n n", 0, 1, {4}, 87},
        /* a single one is not: 3^4.3 */
        {"logspace", "f:4.3 i:1 i:1 f:3 d:i32 n n n", 0, 1, {1}, 112},
    };
    core_tensor *out;

    CHECK_RESULTS(rows);
    FAILS(core_arange_start(core_float(1e30), core_float(2e30), CORE_I64, NULL,
                            &out),
          CORE_ERROR_INVALID_ARGUMENT, "1e+30 elements");
    FAILS(core_arange_start_step(core_float(1e30), core_float(2e30),
                                 core_float(5e29), CORE_I64, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "do not fit i64");
}
END_TEST

START_TEST(unique_returns_positions_only_on_request)
{
    static const known_result rows[] = {
        {"_unique2", "p:3 b:1 b:0 b:1", 1, 1, {0}, 0},
        {"_unique2", "p: b:0 b:0 b:1", 1, 1, {0}, 0},
        {"_unique2", "p: b:0 b:0 b:1", 2, 1, {1}, 1},
        {"_unique2", "p: b:0 b:1 b:0", 1, 0, {0}, 0},
    };

    CHECK_RESULTS(rows);
}
END_TEST

START_TEST(logit_applies_the_lower_bound_first)
{
    double eps = .6, logit = log(1.5);

    HOLDS(CALL(logit, VECTOR(4, .1, .5, .6, .9), &eps), 4, logit, logit, -logit,
          -logit);
}
END_TEST

/* 8.6875 / -1.2421875 is -6.99, in bf16 -7. */
START_TEST(truncated_quotients_of_bf16_are_rounded_first)
{
    core_tensor *a = typed(CORE_BF16, 1, (int64_t[]){1}, (double[]){8.6875});
    core_tensor *b =
        typed(CORE_BF16, 1, (int64_t[]){1}, (double[]){-1.2421875});
    core_tensor *number = typed(CORE_BF16, 0, NULL, (double[]){-1.2421875});

    HOLDS(
        CALL(to_copy, CALL(div_mode, a, b, "trunc"), CORE_F64, NULL, false, -1),
        1, -7);
    HOLDS(CALL(to_copy, CALL(div_mode, a, number, "trunc"), CORE_F64, NULL,
               false, -1),
          1, -6);
}
END_TEST

static core_tensor *slope(core_tensor *y, core_tensor *x)
{
    core_tensor *sum = CALL(sum, y, CORE_DTYPE_NONE), *gradient;

    OK(core_grad(&sum, 1, NULL, &x, 1, 0, &gradient));
    return keep(gradient);
}

/* clamp has slope 0 at its bounds; two equal operands share the gradient. */
START_TEST(slopes_at_bounds_and_ties)
{
    core_tensor *x = leaf(VECTOR(5, -2, -1, 0, 1, NAN));
    core_tensor *y = leaf(VECTOR(5, -3, -1, 1, 2, NAN));
    core_tensor *far = leaf(VECTOR(5, 4, 4, 4, 1, 4));
    core_scalar low = core_float(-1), high = core_float(1);

    HOLDS(slope(CALL(clamp, x, &low, &high), x), 5, 0, 0, 1, 0, 0);
    HOLDS(slope(CALL(clamp, x, &low, NULL), x), 5, 0, 0, 1, 1, 0);
    HOLDS(slope(CALL(fmax, x, y), x), 5, 1, .5, 0, 0, 1);
    HOLDS(slope(CALL(fmax, x, y), y), 5, 0, .5, 1, 1, 0);
    HOLDS(slope(CALL(fmin, x, y), x), 5, 0, .5, 1, 1, 1);
    HOLDS(slope(CALL(clamp_min_tensor, x, y), x), 5, 1, .5, 0, 0, 1);
    HOLDS(slope(CALL(clamp_tensor, x, y, far), x), 5, 1, .5, 0, 0, 1);
    HOLDS(slope(CALL(clamp_tensor, x, y, far), y), 5, 0, .5, 1, 0, 0);
    HOLDS(slope(CALL(clamp_tensor, x, y, far), far), 5, 0, 0, 0, 1, 0);
    HOLDS(slope(CALL(nextafter, x, y), x), 5, 1, 0, 1, 1, 1);
    HOLDS(slope(CALL(nextafter, x, y), y), 5, 0, 0, 0, 0, 0);
    x = leaf(VECTOR(2, 0, -0.0));
    y = leaf(VECTOR(2, 0, 0));
    HOLDS(slope(CALL(atan2, x, y), x), 2, 0, 0);
}
END_TEST

/* The largest number is that of the dtype. */
START_TEST(nan_to_num_replaces_infinity_by_largest_finite_number)
{
    static const core_dtype dtypes[] = {CORE_F16, CORE_BF16};
    static const double largest[] = {65504, 0x1.fep127};

    for (int i = 0; i < 2; i++) {
        core_tensor *x = typed(dtypes[i], 1, (int64_t[]){3},
                               (double[]){INFINITY, -INFINITY, 1});
        double values[3];

        x = CALL(nan_to_num, x, NULL, NULL, NULL);
        x = CALL(to_copy, x, CORE_F64, NULL, false, -1);
        OK(core_tensor_read(x, values, sizeof values));
        ck_assert(values[0] == largest[i] && values[1] == -largest[i] &&
                  values[2] == 1);
    }
}
END_TEST

START_TEST(renorm_leaves_rows_with_nan_norm_unchanged)
{
    core_tensor *x = MATRIX(2, 2, NAN, 5, 3, 4);

    x = CALL(renorm, x, core_float(2), 0, core_float(1));
    x = CALL(select, CALL(select, x, 0, 0), 0, 1);
    HOLDS(x, 1, 5);
}
END_TEST

/* The last element written at a position stays; only it gets a gradient. */
START_TEST(as_strided_scatter_writes_overlapping_elements_in_order)
{
    core_tensor *x = leaf(VECTOR(4, 5, 6, 7, 8));
    core_tensor *src = leaf(MATRIX(2, 2, 1, 2, 3, 4)), *y;

    y = CALL(as_strided_scatter, x, src, (const int64_t[]){2, 2}, 2,
             (const int64_t[]){1, 1}, 2, NULL);
    HOLDS(y, 4, 1, 3, 4, 8);
    y = CALL(mul, y, VECTOR(4, 10, 20, 30, 40));
    y = CALL(sum, y, CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 4, 0, 0, 0, 40);
    HOLDS(core_tensor_grad(src), 4, 10, 0, 20, 30);
}
END_TEST

START_TEST(heaviside_and_addr_accept_bool)
{
    static const known_result rows[] = {
        {"heaviside", "m:5 m:5", 0, 1, {5}, 2},
        {"addr", "m:4,4 m:4 m:4", 0, 2, {4, 4}, 7},
    };

    CHECK_RESULTS(rows);
}
END_TEST

/* Scaling of rows and columns does not make a matrix singular. */
START_TEST(badly_scaled_determinant_has_a_second_derivative)
{
    core_tensor *of[] = {MATRIX(2, 2, 1, 0, 0, 1e-20),
                         MATRIX(2, 2, 1e20, 2e-20, 3e20, 4e-20),
                         MATRIX(2, 2, 1e-20, 0, 0, 1e-30)};

    for (int i = 0; i < 3; i++) {
        core_tensor *a = leaf(of[i]), *x, *lu, *pivots, *first, *second;

        OK(core_linalg_det_parts(a, &x, &lu, &pivots));
        keep(lu);
        keep(pivots);
        keep(x);
        OK(core_grad(&x, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &first));
        first = CALL(select, CALL(select, keep(first), 0, 0), 0, 0);
        OK(core_grad(&first, 1, NULL, &a, 1, 0, &second));
        /* the element for a11 of the cofactor of a00 */
        HOLDS(CALL(select, CALL(select, keep(second), 0, 1), 0, 1), 1, 1);
    }
}
END_TEST

/* With two zeros at one position the gradient is 0; the second derivative is
 * not implemented there. */
START_TEST(scatter_reduce_prod_of_two_zeros_has_no_second_derivative)
{
    core_tensor *x = VECTOR(2, 1, 2), *src = leaf(VECTOR(3, 0, 0, 3));
    core_tensor *index, *y, *grad = NULL;

    index = CALL(to_copy, VECTOR(3, 0, 0, 1), CORE_I64, NULL, false, -1);
    y = sum(CALL(scatter_reduce, x, 0, index, src, "prod", true));
    FAILS(core_grad(&y, 1, NULL, &src, 1, CORE_CREATE_GRAPH, &grad),
          CORE_ERROR_UNSUPPORTED, "second derivative");
    ck_assert_ptr_null(grad);
    y = sum(CALL(scatter_reduce, x, 0, index, src, "prod", true));
    OK(core_grad(&y, 1, NULL, &src, 1, 0, &grad));
    keep(grad);
    HOLDS(grad, 3, 0, 0, 2);
}
END_TEST

START_TEST(spherical_bessel_j0_has_second_derivative_at_zero)
{
    core_tensor *x = leaf(VECTOR(1, 0)), *y, *grad = NULL, *second = NULL;
    double value;

    y = sum(CALL(special_spherical_bessel_j0, x));
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &grad));
    keep(grad);
    HOLDS(grad, 1, 0);
    y = sum(grad);
    OK(core_grad(&y, 1, NULL, &x, 1, 0, &second));
    keep(second);
    OK(core_tensor_item_float(sum(second), &value));
    ck_assert_double_eq_tol(value, -1. / 3, 1e-15);
}
END_TEST

/* An empty index may have another dtype. */
START_TEST(gather_with_empty_index_has_zero_gradient)
{
    core_tensor *x = leaf(VECTOR(3, 1, 2, 3)), *index, *y;
    int64_t none = 0;

    index = CALL(new_zeros, x, &none, 1, CORE_U8, NULL);
    y = sum(CALL(gather, x, 0, index, false));
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 3, 0, 0, 0);
}
END_TEST

START_TEST(empty_index_of_another_dtype_changes_nothing)
{
    core_tensor *x = VECTOR(3, 1, 2, 3), *index, *src;
    int64_t none = 0;

    index = CALL(new_zeros, x, &none, 1, CORE_U8, NULL);
    src = CALL(new_zeros, x, &none, 1, CORE_DTYPE_NONE, NULL);
    HOLDS(CALL(scatter, x, 0, index, src), 3, 1, 2, 3);
    HOLDS(CALL(scatter_value, x, 0, index, core_int(5)), 3, 1, 2, 3);
    HOLDS(CALL(scatter_add, x, 0, index, src), 3, 1, 2, 3);
    HOLDS(CALL(scatter_reduce, x, 0, index, src, "amax", true), 3, 1, 2, 3);
    HOLDS(CALL(index_add, x, 0, index, src, core_int(1)), 3, 1, 2, 3);
    HOLDS(CALL(index_copy, x, 0, index, src), 3, 1, 2, 3);
    HOLDS(CALL(index_fill, x, 0, index, core_int(5)), 3, 1, 2, 3);
    OK(core_scatter_value_(x, 0, index, core_int(5)));
    HOLDS(x, 3, 1, 2, 3);
    ck_assert_int_eq(core_tensor_numel(CALL(index_select, x, 0, index)), 0);
}
END_TEST

/* k = 0 of a 0-dimensional tensor still returns its element. */
START_TEST(topk_of_scalar_returns_the_scalar)
{
    for (int64_t k = 0; k <= 1; k++) {
        core_tensor *values, *indices;

        OK(core_topk(SCALAR(5), k, -1, true, true, &values, &indices));
        HOLDS(keep(values), 1, 5);
        HOLDS(keep(indices), 1, 0);
    }
}
END_TEST

/* A row of -inf is 0, whatever it is. */
START_TEST(safe_softmax_of_masked_row_has_zero_gradient)
{
    core_tensor *x = leaf(VECTOR(3, -INFINITY, -INFINITY, -INFINITY)), *y;

    y = sum(CALL(safe_softmax, x, 0, CORE_DTYPE_NONE));
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 3, 0, 0, 0);
}
END_TEST

/* Sums do not count the elements of bags; forward only, they return a zero for
 * the last offset too. */
START_TEST(embedding_bag_forward_only_returns_a_size_per_offset)
{
    static const known_result rows[] = {
        {"_embedding_bag", "p:4,3 x:5/4 x:2/1 b:0 i:0 b:0 n b:1", 2, 1, {1}, 0},
        {"_embedding_bag_forward_only",
         "p:4,3 x:5/4 x:2/1 b:0 i:0 b:0 n b:1",
         2,
         1,
         {2},
         0},
        {"_embedding_bag_forward_only",
         "p:4,3 x:5/4 x:2/1 b:0 i:1 b:0 n b:1",
         2,
         1,
         {1},
         5},
    };

    CHECK_RESULTS(rows);
}
END_TEST

/* Weights are rounded to 15 bits, and rows before columns; the results are
 * those of PyTorch 2.15. */
START_TEST(images_of_bytes_are_resampled_with_whole_weights)
{
    core_tensor *image = typed(CORE_U8, 4, (int64_t[]){1, 1, 2, 3},
                               (double[]){0, 255, 10, 90, 200, 7});
    const int64_t large[] = {3, 5}, small[] = {1, 2}, same[] = {2, 3};
    const double scale = 1.1;

    HOLDS(CALL(upsample_bilinear2d, image, large, 2, false, NULL, NULL), 15, 0,
          102, 255, 108, 10, 45, 118, 228, 96, 9, 90, 134, 200, 84, 7);
    HOLDS(CALL(upsample_bicubic2d, image, large, 2, false, NULL, NULL), 15, 0,
          114, 255, 126, 0, 40, 132, 228, 107, 0, 86, 150, 195, 87, 0);
    HOLDS(CALL(upsample_bilinear2d_aa, image, small, 2, false, NULL, NULL), 2,
          114, 91);
    HOLDS(CALL(upsample_bicubic2d_aa, image, small, 2, false, NULL, NULL), 2,
          118, 93);
    HOLDS(CALL(upsample_lanczos2d_aa, image, small, 2, false, NULL, NULL), 2,
          124, 98);
    HOLDS(CALL(upsample_bilinear2d, image, same, 2, false, &scale, &scale), 6,
          0, 255, 10, 90, 200, 7);
    HOLDS(CALL(upsample_bicubic2d_aa, image, same, 2, false, &scale, &scale), 6,
          0, 255, 10, 90, 200, 7);
}
END_TEST

START_TEST(index_fill_counts_negative_indices_from_the_end)
{
    core_tensor *x,
        *index = typed(CORE_I64, 1, (int64_t[]){2}, (double[]){-1, -3});
    core_tensor *beyond = typed(CORE_I64, 1, (int64_t[]){1}, (double[]){-4});
    core_tensor *out, *value = SCALAR(7);

    x = VECTOR(3, 1, 2, 3);
    HOLDS(CALL(index_fill, x, 0, index, core_int(9)), 3, 9, 2, 9);
    HOLDS(CALL(index_fill_tensor, x, 0, index, value), 3, 7, 2, 7);
    OK(core_index_fill_(x, 0, index, core_int(8)));
    HOLDS(x, 3, 8, 2, 8);
    FAILS(core_index_fill(x, 0, beyond, core_int(9), &out), CORE_ERROR_INDEX,
          "index_fill", "-4");
    FAILS(core_index_fill_(x, 0, beyond, core_int(9)), CORE_ERROR_INDEX,
          "index_fill", "-4");
    HOLDS(x, 3, 8, 2, 8);
    FAILS(core_index_fill_(x, 0,
                           typed(CORE_I64, 1, (int64_t[]){1}, (double[]){3}),
                           core_int(9)),
          CORE_ERROR_INDEX, "index_fill", "3");
    HOLDS(x, 3, 8, 2, 8);
}
END_TEST

START_TEST(huber_and_soft_margin_loss_have_the_dtype_of_self)
{
    static const core_dtype dtypes[] = {CORE_BF16, CORE_F32, CORE_F64};

    for (int i = 0; i < 9; i++)
        for (int64_t reduction = 0; reduction < 3; reduction++) {
            core_tensor *x =
                typed(dtypes[i % 3], 1, (int64_t[]){2}, (double[]){1, 2});
            core_tensor *y =
                typed(dtypes[i / 3], 1, (int64_t[]){2}, (double[]){-1, 1});

            ck_assert_int_eq(
                core_tensor_dtype(CALL(huber_loss, x, y, reduction, 1)),
                dtypes[i % 3]);
            ck_assert_int_eq(
                core_tensor_dtype(CALL(soft_margin_loss, x, y, reduction)),
                dtypes[i % 3]);
        }
}
END_TEST

START_TEST(nextafter_of_f16_steps_in_f16)
{
    core_tensor *one = typed(CORE_F16, 0, NULL, (double[]){1});
    core_tensor *zero = typed(CORE_F16, 0, NULL, (double[]){0});

    HOLDS(CALL(to_copy, CALL(nextafter, one, zero), CORE_F64, NULL, false, -1),
          1, 1 - 0x1p-11);
}
END_TEST

START_TEST(shifts_by_invalid_counts_leave_the_sign)
{
    core_tensor *x = typed(CORE_I8, 1, (int64_t[]){3}, (double[]){1, 2, -3});
    static const int64_t counts[] = {-1, 8, 9, 100};

    for (int i = 0; i < 4; i++) {
        HOLDS(CALL(bitwise_left_shift_scalar, x, core_int(counts[i])), 3, 0, 0,
              0);
        HOLDS(CALL(bitwise_right_shift_scalar, x, core_int(counts[i])), 3, 0, 0,
              -1);
    }
}
END_TEST

SUITE("ops/ops_known_results",
      huber_and_soft_margin_loss_have_the_dtype_of_self,
      nextafter_of_f16_steps_in_f16, shifts_by_invalid_counts_leave_the_sign,
      index_fill_counts_negative_indices_from_the_end,
      embedding_bag_forward_only_returns_a_size_per_offset,
      images_of_bytes_are_resampled_with_whole_weights,
      safe_softmax_of_masked_row_has_zero_gradient,
      topk_of_scalar_returns_the_scalar, losses_of_scalars_have_known_values,
      aminmax_of_scalar_has_no_dimension,
      unique_consecutive_of_slices_returns_inverse_and_counts,
      group_norm_of_empty_batch_has_zero_gradients,
      backward_without_formula_names_the_argument,
      weight_of_margin_loss_has_a_gradient,
      smooth_losses_are_squares_between_lines,
      smooth_losses_have_bounds_of_any_size,
      gradients_of_losses_are_multiplied_last,
      constant_pad_fills_what_surrounds_the_input,
      losses_have_finite_gradients_at_their_limits,
      losses_of_nan_have_nan_gradients,
      amax_over_a_row_with_nan_has_nan_gradient,
      gradients_agree_across_floating_dtypes,
      frexp_of_huge_and_tiny_numbers_has_gradients,
      lerp_extrapolates_for_negative_weights, sign_of_nan_is_zero,
      binary_cross_entropy_refuses_self_outside_0_to_1,
      binary_cross_entropy_outside_0_to_1_is_nan_on_async_device,
      binary_cross_entropy_accepts_any_target,
      output_padding_must_be_less_than_stride_or_dilation,
      hardswish_is_the_identity_from_3_up,
      sequences_of_integers_truncate_their_ends,
      unique_returns_positions_only_on_request,
      logit_applies_the_lower_bound_first,
      truncated_quotients_of_bf16_are_rounded_first, slopes_at_bounds_and_ties,
      nan_to_num_replaces_infinity_by_largest_finite_number,
      renorm_leaves_rows_with_nan_norm_unchanged,
      as_strided_scatter_writes_overlapping_elements_in_order,
      heaviside_and_addr_accept_bool,
      badly_scaled_determinant_has_a_second_derivative,
      scatter_reduce_prod_of_two_zeros_has_no_second_derivative,
      spherical_bessel_j0_has_second_derivative_at_zero,
      gather_with_empty_index_has_zero_gradient,
      empty_index_of_another_dtype_changes_nothing)
