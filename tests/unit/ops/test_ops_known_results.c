/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Answers at the edges of what operators take: one number instead of a row,
 * no batch, nothing asked for. */

#include "support/ops.h"

#include <libcore/device.h>

#include <math.h>

/* A call, one of its results, the sizes and the sum that this has. */
typedef struct answer {
    const char *op, *words;
    int result;
    uint32_t ndim;
    int64_t sizes[2];
    double total;
} answer;

static core_status call_words(const char *op, const char *words, arguments *a,
                              core_value *results)
{
    check c = {op, words, .5, .5, 0};
    char copy[256];

    snprintf(copy, sizeof copy, "%s", words);
    state = 0;
    parse(a, &c, copy);
    return core_op_call(a->op, a->values, a->count, results, 4);
}

static void look(const answer *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const answer *r = &rows[i];
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

#define LOOK(rows) look(rows, sizeof rows / sizeof *(rows))

START_TEST(losses_of_one_number)
{
    static const answer rows[] = {
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

    LOOK(rows);
}
END_TEST

START_TEST(a_number_has_one_dimension_to_keep)
{
    static const answer rows[] = {
        {"aminmax", "p: i:0 b:1", 0, 1, {1}, .5},
        {"aminmax", "p: i:-1 b:1", 1, 1, {1}, .5},
        {"aminmax", "p: i:0 b:0", 0, 0, {0}, .5},
        {"aminmax", "p: n b:1", 1, 0, {0}, .5},
    };
    core_value results[4] = {0};
    arguments a;

    LOOK(rows);
    FAILS(call_words("aminmax", "p: i:1 b:1", &a, results), CORE_ERROR_INDEX,
          "aminmax", "1");
}
END_TEST

/* Of slices there is always everything. */
START_TEST(runs_of_slices_and_of_elements)
{
    static const answer rows[] = {
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

    LOOK(rows);
}
END_TEST

START_TEST(no_batch_has_gradients)
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

/* An argument without a formula raises when its gradient is asked for. */
START_TEST(no_gradient_is_silently_absent)
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
        {"nextafter", "t:3 p:3", "no gradient formula"},
        {"nextafter", "p:3 t:3", "no gradient formula"},
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

/* The weight of a margin has a formula. */
START_TEST(margins_have_gradients)
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

/* What saturates, and infinity where its value makes no difference, leave all
 * gradients finite. */
START_TEST(losses_have_finite_slopes_at_their_ends)
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

/* And NaN is not hidden by them. */
START_TEST(losses_of_nan_have_a_slope_of_nan)
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

START_TEST(the_extreme_of_a_dimension_with_nan_has_no_slope)
{
    core_tensor *x = leaf(MATRIX(2, 3, 1, NAN, NAN, 2, 2, 1)), *y;
    double slope[6];

    y = CALL(sum, CALL(amax, x, (int64_t[]){1}, 1, false), CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    OK(core_tensor_read(core_tensor_grad(x), slope, sizeof slope));
    for (int i = 0; i < 3; i++)
        ck_assert(isnan(slope[i]));
    ck_assert(slope[3] == .5 && slope[4] == .5 && slope[5] == 0);
    /* the only one, though, is as good as any number */
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

/* Where the formula as it is written has no digits or no range left. */
START_TEST(small_dtypes_have_the_slopes_of_large_ones)
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

START_TEST(mantissas_of_far_numbers_have_slopes)
{
    core_tensor *x = leaf(VECTOR(2, 0x1p500, -0x1p-500)), *m, *e;
    double slope[2];

    OK(core_frexp(x, &m, &e));
    keep(e);
    OK(core_tensor_read(slope_of(x, keep(m)), slope, sizeof slope));
    ck_assert(slope[0] == 0x1p-501 && slope[1] == 0x1p499);
}
END_TEST

START_TEST(cross_entropies_are_of_probabilities)
{
    core_tensor *half = VECTOR(2, .5, .5), *out;
    core_tensor *bad[] = {VECTOR(2, -.1, .5), VECTOR(2, .5, 1.1),
                          VECTOR(2, NAN, .5)};

    for (int i = 0; i < 3; i++)
        FAILS(core_binary_cross_entropy(bad[i], half, NULL, 1, &out),
              CORE_ERROR_INVALID_ARGUMENT, "self", "between 0 and 1");
}
END_TEST

static core_tensor *brought(core_tensor *x, core_device *device)
{
    return CALL(to_copy, x, CORE_DTYPE_NONE, device, false, -1);
}

/* A device that runs ahead of the host is not waited for: what is no
 * probability has no loss there. */
START_TEST(cross_entropies_of_none_are_nan_where_nobody_looks)
{
    core_tensor *half = VECTOR(2, .5, .5), *x;
    core_tensor *bad[] = {VECTOR(2, -.1, .5), VECTOR(2, 1.1, .5),
                          VECTOR(2, NAN, .5)};
    core_device *sim;
    double loss[2];

    OK(core_device_find("sim", &sim));
    for (int i = 0; i < 3; i++) {
        x = CALL(binary_cross_entropy, brought(bad[i], sim), brought(half, sim),
                 NULL, 0);
        OK(core_tensor_read(x, loss, sizeof loss));
        ck_assert(isnan(loss[0]) && fabs(loss[1] - M_LN2) < 1e-12);
    }
}
END_TEST

/* A target is a number like another: the formula goes on outside of 0 to 1, on
 * every device. */
START_TEST(targets_of_cross_entropies_may_be_any_numbers)
{
    core_tensor *self = VECTOR(3, .5, .2, .5), *target = VECTOR(3, 2, -1, NAN);
    core_device *devices[2];
    double loss[3];

    OK(core_device_find("cpu", &devices[0]));
    OK(core_device_find("sim", &devices[1]));
    for (int i = 0; i < 2; i++) {
        core_tensor *x = CALL(binary_cross_entropy, brought(self, devices[i]),
                              brought(target, devices[i]), NULL, 0);

        OK(core_tensor_read(x, loss, sizeof loss));
        ck_assert(fabs(loss[0] - M_LN2) < 1e-12 &&
                  fabs(loss[1] - (log(.2) - 2 * log(.8))) < 1e-12 &&
                  isnan(loss[2]));
    }
}
END_TEST

/* What lies before the first end goes on from there. */
START_TEST(far_weights_go_on_from_their_end)
{
    core_tensor *a = VECTOR(3, .25, .25, 1), *b = VECTOR(3, INFINITY, 1, 3);
    core_tensor *x = CALL(lerp, a, b, VECTOR(3, -.75, -INFINITY, -2));
    double got[3];

    OK(core_tensor_read(x, got, sizeof got));
    ck_assert(got[0] == -INFINITY && got[1] == -INFINITY && got[2] == -3);
}
END_TEST

/* Neither above nor below. */
START_TEST(what_is_no_number_has_no_sign)
{
    core_tensor *x = leaf(VECTOR(3, NAN, -2, INFINITY));

    HOLDS(CALL(sign, x), 3, 0, -1, 1);
    HOLDS(CALL(sgn, x), 3, 0, -1, 1);
    HOLDS(slope_of(x, CALL(abs, x)), 3, 0, -1, 1);
}
END_TEST

START_TEST(output_padding_is_less_than_stride_or_dilation)
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

START_TEST(hardswish_is_the_identity_from_3_on)
{
    core_tensor *x = leaf(VECTOR(5, -4, -3, 0, 3, 4));
    core_tensor *y = CALL(sum, CALL(hardswish, x), CORE_DTYPE_NONE);
    double slope;

    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 5, 0, -.5, .5, 1, 1);
    x = leaf(VECTOR(1, NAN));
    y = CALL(sum, CALL(hardswish, x), CORE_DTYPE_NONE);
    OK(core_backward(&y, 1, NULL, 0));
    OK(core_tensor_read(core_tensor_grad(x), &slope, sizeof slope));
    ck_assert(isnan(slope));
}
END_TEST

/* The largest number is that of the dtype. */
START_TEST(infinity_becomes_the_largest_number)
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

START_TEST(a_norm_that_is_no_number_shrinks_nothing)
{
    core_tensor *x = MATRIX(2, 2, NAN, 5, 3, 4);

    x = CALL(renorm, x, core_float(2), 0, core_float(1));
    x = CALL(select, CALL(select, x, 0, 0), 0, 1);
    HOLDS(x, 1, 5);
}
END_TEST

/* The last element at a place stays; the others have no part in it. */
START_TEST(a_part_that_overlaps_itself_is_written_in_order)
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

START_TEST(truth_is_multiplied_and_stepped)
{
    static const answer rows[] = {
        {"heaviside", "m:5 m:5", 0, 1, {5}, 2},
        {"addr", "m:4,4 m:4 m:4", 0, 2, {4, 4}, 7},
    };

    LOOK(rows);
}
END_TEST

/* Scales of rows and columns are not what makes a matrix singular. */
START_TEST(a_badly_scaled_determinant_has_a_second_derivative)
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
        /* of a11, the cofactor of a00 */
        HOLDS(CALL(select, CALL(select, keep(second), 0, 1), 0, 1), 1, 1);
    }
}
END_TEST

/* Sources of 0 at one place: their slope is 0, and no more is known. */
START_TEST(a_product_of_zeros_has_no_second_derivative)
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

START_TEST(the_bessel_function_of_a_sphere_is_curved_at_0)
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

/* An empty index may be of another dtype. */
START_TEST(nothing_gathered_has_a_gradient_of_0)
{
    core_tensor *x = leaf(VECTOR(3, 1, 2, 3)), *index, *y;
    int64_t none = 0;

    index = CALL(new_zeros, x, &none, 1, CORE_U8, NULL);
    y = sum(CALL(gather, x, 0, index, false));
    OK(core_backward(&y, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 3, 0, 0, 0);
}
END_TEST

/* Its dimension of size 1 is not there to be made empty. */
START_TEST(the_best_of_a_number_is_itself)
{
    for (int64_t k = 0; k <= 1; k++) {
        core_tensor *values, *indices;

        OK(core_topk(SCALAR(5), k, -1, true, true, &values, &indices));
        HOLDS(keep(values), 1, 5);
        HOLDS(keep(indices), 1, 0);
    }
}
END_TEST

SUITE("ops answers", the_best_of_a_number_is_itself, losses_of_one_number,
      a_number_has_one_dimension_to_keep, runs_of_slices_and_of_elements,
      no_batch_has_gradients, no_gradient_is_silently_absent,
      margins_have_gradients, losses_have_finite_slopes_at_their_ends,
      losses_of_nan_have_a_slope_of_nan,
      the_extreme_of_a_dimension_with_nan_has_no_slope,
      small_dtypes_have_the_slopes_of_large_ones,
      mantissas_of_far_numbers_have_slopes, far_weights_go_on_from_their_end,
      what_is_no_number_has_no_sign, cross_entropies_are_of_probabilities,
      cross_entropies_of_none_are_nan_where_nobody_looks,
      targets_of_cross_entropies_may_be_any_numbers,
      output_padding_is_less_than_stride_or_dilation,
      hardswish_is_the_identity_from_3_on, infinity_becomes_the_largest_number,
      a_norm_that_is_no_number_shrinks_nothing,
      a_part_that_overlaps_itself_is_written_in_order,
      truth_is_multiplied_and_stepped,
      a_badly_scaled_determinant_has_a_second_derivative,
      a_product_of_zeros_has_no_second_derivative,
      the_bessel_function_of_a_sphere_is_curved_at_0,
      nothing_gathered_has_a_gradient_of_0)
