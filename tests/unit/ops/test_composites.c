/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Results, refusals and costs of operators that are composed of others. */

#include "support/ops.h"

#include "device/stream.h"

#include <libcore/device.h>
#include <libcore/memory.h>
#include <libcore/random.h>

#include <math.h>

static core_tensor *indices(size_t n, const double *values)
{
    int64_t size = (int64_t)n;

    return typed(CORE_I64, 1, &size, values);
}

#define INDICES(n, ...) indices(n, (double[]){__VA_ARGS__})

/* ------------------------------------------------------------- variants -- */

START_TEST(out_tensor_of_a_result_not_requested_is_unchanged)
{
    const int64_t two[] = {2, 2}, one[] = {1, 1}, none[] = {0, 0};
    const int64_t image[] = {1, 1, 3, 3}, kernel[] = {1, 1, 2, 2}, three = 3;
    const uint8_t mask[] = {1, 0, 1};
    core_tensor *out0 = CALL(zeros, image, 4, CORE_F64, NULL);
    core_tensor *out1 = CALL(ones, &three, 1, CORE_F64, NULL);
    core_tensor *out2 = CALL(zeros, one, 1, CORE_F64, NULL);

    OK(core_slow_conv2d_backward_out(CALL(ones, kernel, 4, CORE_F64, NULL),
                                     CALL(ones, image, 4, CORE_F64, NULL),
                                     CALL(ones, kernel, 4, CORE_F64, NULL), two,
                                     2, one, 2, none, 2, mask, 3, out0, out1,
                                     out2));
    HOLDS(out0, 9, 1, 2, 1, 2, 4, 2, 1, 2, 1);
    HOLDS(out1, 3, 1, 1, 1);
    HOLDS(out2, 1, 4);
}
END_TEST

/* The check on "meta" fails, since the number of elements depends on data. */
START_TEST(out_variant_that_succeeds_keeps_the_error_record)
{
    const int64_t many = 1 << 22, one = 1, zero = 0;
    core_tensor *x = CALL(zeros, NULL, 0, CORE_BOOL, NULL);
    core_tensor *out0 = CALL(ones, &one, 1, CORE_BOOL, NULL);
    core_tensor *out1 = CALL(zeros, &zero, 1, CORE_I64, NULL);
    core_tensor *unused;
    char before[256];

    FAILS(core_select(out1, 5, 0, &unused), CORE_ERROR_INDEX);
    snprintf(before, sizeof before, "%s", core_error_message());
    x = CALL(expand, x, &many, 1, false);
    OK(core_unique_out(x, true, false, out0, out1));
    HOLDS(out0, 1, 0);
    ck_assert_str_eq(core_error_message(), before);
}
END_TEST

START_TEST(empty_out_has_the_given_sizes)
{
    const int64_t three = 3, two = 2, zero = 0;
    core_tensor *x = CALL(zeros, &zero, 1, CORE_F32, NULL);

    OK(core_empty_out(&three, 1, -1, x));
    ck_assert_int_eq(core_tensor_sizes(x)[0], 3);
    OK(core_fill_(x, core_int(7)));
    OK(core_empty_out(&three, 1, -1, x));
    HOLDS(x, 3, 7, 7, 7);
    FAILS(core_empty_out(&two, 1, -1, x), CORE_ERROR_SHAPE, "empty");
}
END_TEST

/* -------------------------------------------------------------- numbers -- */

/* Numbers of PyTorch 2.15. */
START_TEST(gradients_of_bags_are_divided_by_the_frequency_of_a_row)
{
    core_tensor *at = INDICES(4, 0, 0, 1, 0), *begin = INDICES(2, 0, 2);
    core_tensor *scales = VECTOR(4, 1, 2, 3, 4);

    for (int64_t way = 0; way < 4; way++) {
        core_tensor *w = leaf(MATRIX(3, 2, 1, 2, 3, 4, 5, 6));
        core_tensor *out[4];

        OK(core_embedding_bag_forward(w, at, begin, true, way % 3, false,
                                      way == 3 ? scales : NULL, false, -1,
                                      &out[0], &out[1], &out[2], &out[3]));
        for (int i = 0; i < 4; i++)
            keep(out[i]);
        backward(sum(out[0]));
        if (way == 1)
            HOLDS(core_tensor_grad(w), 6, .5, .5, .5, .5, 0, 0);
        else if (way == 3)
            HOLDS(core_tensor_grad(w), 6, 7. / 3, 7. / 3, 3, 3, 0, 0);
        else
            HOLDS(core_tensor_grad(w), 6, 1, 1, 1, 1, 0, 0);
    }
}
END_TEST

/* Numbers of PyTorch 2.15: the first maximum gets the gradient, whatever the
 * frequency, also where it is 0. */
START_TEST(gradient_of_a_greatest_row_goes_to_the_first_one)
{
    core_tensor *at = INDICES(4, 0, 0, 1, 2), *begin = INDICES(2, 0, 2);
    core_tensor *w = leaf(MATRIX(3, 2, 0, 2, 3, 4, 3, 5));
    core_tensor *out[4];

    OK(core_embedding_bag_forward(w, at, begin, true, 2, false, NULL, false, -1,
                                  &out[0], &out[1], &out[2], &out[3]));
    for (int i = 0; i < 4; i++)
        keep(out[i]);
    HOLDS(out[0], 4, 0, 2, 3, 5);
    backward(sum(out[0]));
    HOLDS(core_tensor_grad(w), 6, 1, 1, 1, 0, 0, 1);
}
END_TEST

/* Numbers of PyTorch 2.15, whose mean divides by all that follows. */
START_TEST(bags_end_at_the_last_offset)
{
    core_tensor *w = MATRIX(3, 1, 1, 10, 100);
    core_tensor *at = INDICES(4, 0, 1, 2, 2), *begin = INDICES(3, 0, 1, 2);
    const double second[] = {10, 10. / 3, 100};

    for (int64_t mode = 0; mode < 3; mode++) {
        core_tensor *out[4];

        OK(core_embedding_bag_forward(w, at, begin, false, mode, false, NULL,
                                      true, -1, &out[0], &out[1], &out[2],
                                      &out[3]));
        for (int i = 0; i < 4; i++)
            keep(out[i]);
        HOLDS(out[0], 2, 1, second[mode]);
        /* no bag */
        OK(core_embedding_bag_forward(w, at, INDICES(1, 0), false, mode, false,
                                      NULL, true, -1, &out[0], &out[1], &out[2],
                                      &out[3]));
        for (int i = 0; i < 4; i++)
            keep(out[i]);
        ck_assert_int_eq(core_tensor_sizes(out[0])[0], 0);
    }
}
END_TEST

START_TEST(offsets_of_bags_are_checked)
{
    core_tensor *w = MATRIX(3, 1, 1, 10, 100), *at = INDICES(2, 0, 1);
    core_tensor *wrong[] = {INDICES(2, 0, 3), INDICES(2, 0, -1),
                            INDICES(2, 1, 2), INDICES(3, 0, 2, 1)};
    core_tensor *out[4];

    for (size_t i = 0; i < 4; i++)
        FAILS(core_embedding_bag_forward(w, at, wrong[i], false, 0, false, NULL,
                                         false, -1, &out[0], &out[1], &out[2],
                                         &out[3]),
              CORE_ERROR_INDEX, "_embedding_bag", "offsets[");
}
END_TEST

START_TEST(ctc_loss_of_nan_is_nan)
{
    core_tensor *probs, *targets = INDICES(2, 1, 2), *loss, *alpha;
    core_tensor *times = INDICES(1, 4), *lengths = INDICES(1, 2);

    probs = leaf(
        CALL(full, (int64_t[]){4, 1, 3}, 3, core_float(NAN), CORE_F64, NULL));
    OK(core_ctc_loss_forward_tensor(probs, targets, times, lengths, 0, true,
                                    &loss, &alpha));
    keep(loss);
    keep(alpha);
    HOLDS(CALL(isnan, loss), 1, 1);
    backward(sum(loss));
    HOLDS(CALL(all, CALL(isnan, core_tensor_grad(probs))), 1, 1);
}
END_TEST

START_TEST(ctc_loss_takes_one_sequence_without_a_batch)
{
    core_tensor *probs, *targets = INDICES(2, 1, 2), *want, *got;
    core_tensor *times, *lengths;
    const int64_t time = 4, length = 2;

    probs = CALL(reshape, CALL(arange, core_int(12), CORE_F64, NULL),
                 (int64_t[]){4, 1, 3}, 3);
    probs = CALL(log_softmax, CALL(sin, probs), -1, CORE_DTYPE_NONE);
    want = CALL(ctc_loss, probs, targets, &time, 1, &length, 1, 0,
                CORE_REDUCTION_NONE, false);
    probs = CALL(select, probs, 1, 0);
    got = CALL(ctc_loss, probs, targets, &time, 1, &length, 1, 0,
               CORE_REDUCTION_NONE, false);
    ck_assert_uint_eq(core_tensor_ndim(got), 0);
    HOLDS(CALL(sub, got, want, core_int(1)), 1, 0);
    times = CALL(full, NULL, 0, core_int(4), CORE_I64, NULL);
    lengths = CALL(full, NULL, 0, core_int(2), CORE_I64, NULL);
    got = CALL(ctc_loss_tensor, probs, targets, times, lengths, 0,
               CORE_REDUCTION_SUM, false);
    HOLDS(CALL(sub, got, want, core_int(1)), 1, 0);
}
END_TEST

START_TEST(einsum_checks_sizes)
{
    core_tensor *none = CALL(ones, (int64_t[]){0}, 1, CORE_F32, NULL);
    core_tensor *three = CALL(ones, (int64_t[]){3}, 1, CORE_F32, NULL);
    core_tensor *row = CALL(ones, (int64_t[]){1, 3}, 2, CORE_F32, NULL);
    core_tensor *pair[2] = {none, three}, *out;

    FAILS(core_einsum("i,i->", pair, 2, NULL, 0, &out), CORE_ERROR_SHAPE,
          "dimension 0 of tensors[1] has size 3");
    FAILS(core_einsum("ii->i", &row, 1, NULL, 0, &out), CORE_ERROR_SHAPE,
          "dimension 1 of tensors[0] has size 3");
}
END_TEST

START_TEST(similarity_of_rows_with_an_infinite_norm_is_zero)
{
    const int64_t sizes[2] = {1, 4};
    core_tensor *x = CALL(full, sizes, 2, core_float(60000), CORE_F16, NULL);

    HOLDS(CALL(cosine_similarity, x, x, 1, 1e-8), 1, 0);
}
END_TEST

START_TEST(quantiles_of_long_rows_of_bf16)
{
    core_tensor *x = CALL(arange, core_int(303), CORE_F32, NULL);
    core_tensor *one = CALL(ones, NULL, 0, CORE_BF16, NULL);

    x = CALL(to, CALL(gt_scalar, x, core_int(301)), CORE_BF16, NULL, false,
             false, -1);
    HOLDS(CALL(nanquantile, x, one, NULL, false, "linear"), 1, 1);
}
END_TEST

START_TEST(combination_of_no_tensors_is_zero)
{
    core_tensor *x = CALL(compute_linear_combination,
                          CALL(zeros, (int64_t[]){0, 3}, 2, CORE_F64, NULL),
                          CALL(zeros, (int64_t[]){2, 0}, 2, CORE_F64, NULL));

    ck_assert_int_eq(core_tensor_sizes(x)[1], 3);
    HOLDS(x, 6, 0, 0, 0, 0, 0, 0);
}
END_TEST

/* Numbers of PyTorch 2.15: a scale that does not fit the sizes leads beyond the
 * image. */
START_TEST(pixels_beyond_an_image_are_zero_with_antialiasing)
{
    core_tensor *image =
        typed(CORE_F64, 4, (int64_t[]){1, 1, 1, 2}, (double[]){1, 2});
    const double one = 1, tenth = .1;

    HOLDS(CALL(upsample_bilinear2d_aa, image, (int64_t[]){1, 4}, 2, false, &one,
               &tenth),
          4, 1 + 13. / 24, 0, 0, 0);
}
END_TEST

START_TEST(ranges_of_integers_are_exact)
{
    const int64_t large = INT64_C(1) << 60;
    core_tensor *x = CALL(range_step, core_int(large), core_int(large + 4),
                          core_int(2), CORE_I64, NULL);
    int64_t values[3];
    core_tensor *unused;

    OK(core_tensor_read(x, values, sizeof values));
    ck_assert_int_eq(values[0], large);
    ck_assert_int_eq(values[1], large + 2);
    ck_assert_int_eq(values[2], large + 4);
    HOLDS(CALL(range_step, core_int(0), core_int(5), core_float(1.5), CORE_I64,
               NULL),
          6, 0, 1, 2, 3, 4, 5);
    HOLDS(CALL(range_step, core_int(0), core_int(5), core_float(1.5), CORE_I32,
               NULL),
          4, 0, 1, 2, 3);
    HOLDS(CALL(range_step, core_float(.5), core_int(2), core_float(.5),
               CORE_F64, NULL),
          4, .5, 1, 1.5, 2);
    FAILS(core_range_step(core_int(0), core_int(5), core_float(.5), CORE_I64,
                          NULL, &unused),
          CORE_ERROR_INVALID_ARGUMENT, "step 0.5");
    FAILS(core_range_step(core_int(0), core_int(5), core_float(.5), CORE_I32,
                          NULL, &unused),
          CORE_ERROR_INVALID_ARGUMENT, "step 0.5");
}
END_TEST

/* Memory that was in use before is zeroed in every dtype, also that of a dtype
 * in which nothing computes, and by calls in alternation. */
START_TEST(zeros_of_every_dtype_are_zero)
{
    static const core_dtype dtypes[] = {
        CORE_F32, CORE_I64,  CORE_F16,  CORE_U8,     CORE_F8E4M3, CORE_F32,
        CORE_F64, CORE_BF16, CORE_BOOL, CORE_F8E5M2, CORE_I32,    CORE_I8};
    const int64_t size = 3;
    const uint8_t nothing[24] = {0};
    uint8_t have[24];

    for (uint32_t i = 0; i < 3 * sizeof dtypes / sizeof *dtypes; i++) {
        core_dtype dtype = dtypes[i % (sizeof dtypes / sizeof *dtypes)];
        size_t bytes = 3 * core_dtype_size(dtype);
        core_tensor *x;

        memset(have, 1, sizeof have);
        OK(core_tensor_from_data(have, dtype, &size, 1, NULL, &x));
        core_tensor_release(x);
        OK(core_zeros(&size, 1, dtype, NULL, &x));
        OK(core_tensor_read(x, have, bytes));
        ck_assert_mem_eq(have, nothing, bytes);
        core_tensor_release(x);
    }
}
END_TEST

START_TEST(margin_losses_of_an_empty_batch_have_an_empty_gradient)
{
    const int64_t sizes[] = {0, 3};
    core_tensor *x = CALL(zeros, sizes, 2, CORE_F64, NULL);
    core_tensor *labels = CALL(zeros, sizes, 1, CORE_I64, NULL);
    core_tensor *lists = CALL(zeros, sizes, 2, CORE_I64, NULL);
    core_tensor *grad = SCALAR(1);

    x = CALL(multi_margin_loss_backward, grad, x, labels, core_int(1),
             core_int(1), NULL, CORE_REDUCTION_MEAN);
    ck_assert_int_eq(core_tensor_numel(x), 0);
    x = CALL(multilabel_margin_loss_backward, grad, x, lists,
             CORE_REDUCTION_SUM, x);
    ck_assert_int_eq(core_tensor_sizes(x)[1], 3);
}
END_TEST

START_TEST(equal_compares_sizes_and_elements)
{
    core_tensor *x = VECTOR(2, 1, 2), *nan = VECTOR(1, NAN);
    core_tensor *empty = CALL(zeros, (int64_t[]){0}, 1, CORE_F64, NULL);
    bool same = false;

    OK(core_equal(x, VECTOR(2, 1, 2), &same));
    ck_assert(same);
    OK(core_equal(x, VECTOR(2, 1, 3), &same));
    ck_assert(!same);
    OK(core_equal(x, MATRIX(2, 1, 1, 2), &same));
    ck_assert(!same);
    OK(core_equal(nan, nan, &same));
    ck_assert(!same);
    OK(core_equal(empty, empty, &same));
    ck_assert(same);
    OK(core_equal(x, INDICES(2, 1, 2), &same));
    ck_assert(same);
}
END_TEST

START_TEST(is_set_to_compares_storage_and_layout)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4);
    bool same = false;

    OK(core_is_set_to(x, CALL(alias, x), &same));
    ck_assert(same);
    OK(core_is_set_to(x, CALL(t, x), &same));
    ck_assert(!same);
    OK(core_is_set_to(x, CALL(clone, x, -1), &same));
    ck_assert(!same);
}
END_TEST

START_TEST(set_returns_the_content_of_source)
{
    core_tensor *x = VECTOR(2, 1, 2), *source = MATRIX(2, 2, 1, 2, 3, 4), *y;
    bool shared;

    y = CALL(set_source_tensor, x, source);
    HOLDS(y, 4, 1, 2, 3, 4);
    ck_assert_uint_eq(core_tensor_ndim(y), 2);
    OK(core_is_set_to(y, source, &shared));
    ck_assert(!shared);
    HOLDS(x, 2, 1, 2);
    y = CALL(set_empty, x);
    ck_assert_uint_eq(core_tensor_ndim(y), 1);
    ck_assert_int_eq(core_tensor_numel(y), 0);
    ck_assert_uint_eq(core_tensor_dtype(y), CORE_F64);
    FAILS(core_set_source_tensor(x, INDICES(1, 1), &y), CORE_ERROR_DTYPE,
          "source is i64 and self f64");
}
END_TEST

START_TEST(pooling_and_convolution_write_gradients_to_given_tensors)
{
    const int64_t two[] = {2, 2}, one[] = {1, 1}, none[] = {0, 0};
    const int64_t image[] = {1, 1, 3, 3}, kernel[] = {1, 1, 2, 2}, empty = 0;
    core_tensor *out[3];

    for (int i = 0; i < 3; i++)
        out[i] = CALL(zeros, &empty, 1, CORE_F64, NULL);
    OK(core_slow_conv2d_backward_all_out(CALL(ones, kernel, 4, CORE_F64, NULL),
                                         CALL(ones, image, 4, CORE_F64, NULL),
                                         CALL(ones, kernel, 4, CORE_F64, NULL),
                                         two, 2, one, 2, none, 2, out[0],
                                         out[1], out[2]));
    HOLDS(out[0], 9, 1, 2, 1, 2, 4, 2, 1, 2, 1);
    HOLDS(out[1], 4, 4, 4, 4, 4);
    HOLDS(out[2], 1, 4);
    out[0] = CALL(zeros, &empty, 1, CORE_F64, NULL);
    OK(core_adaptive_avg_pool3d_grad_input_out(
        CALL(ones, (int64_t[]){1, 1, 1, 2}, 4, CORE_F64, NULL),
        CALL(ones, (int64_t[]){1, 1, 2, 2}, 4, CORE_F64, NULL), out[0]));
    HOLDS(out[0], 4, .5, .5, .5, .5);
}
END_TEST

/* An even kernel leaves one more zero at the end. */
START_TEST(convolution_pads_to_the_size_of_its_input)
{
    const int64_t one = 1, row[] = {1, 1, 4}, taps[] = {1, 1, 2}, two = 2;
    const double x[] = {1, 2, 3, 4}, w[] = {10, 1};
    core_tensor *input = typed(CORE_F64, 3, row, x);
    core_tensor *weight = typed(CORE_F64, 3, taps, w), *y;

    y = CALL(conv1d_padding, input, weight, NULL, &one, 1, "same", &one, 1, 1);
    HOLDS(y, 4, 12, 23, 34, 40);
    y = CALL(conv1d_padding, input, weight, NULL, &one, 1, "same", &two, 1, 1);
    HOLDS(y, 4, 2, 13, 24, 30);
    y = CALL(conv1d_padding, input, weight, NULL, &two, 1, "valid", &one, 1, 1);
    HOLDS(y, 2, 12, 34);
    FAILS(core_conv1d_padding(input, weight, NULL, &two, 1, "same", &one, 1, 1,
                              &y),
          CORE_ERROR_INVALID_ARGUMENT, "stride 2");
    FAILS(core_conv1d_padding(input, weight, NULL, &one, 1, "full", &one, 1, 1,
                              &y),
          CORE_ERROR_INVALID_ARGUMENT, "\"full\"");
}
END_TEST

START_TEST(elements_are_repeated_in_a_dimension_or_in_all)
{
    core_tensor *x = MATRIX(2, 2, 1, 2, 3, 4), *y;
    const int64_t first = 0, last = 1, wrong = 3;

    HOLDS(CALL(repeat_interleave_self_int, x, 2, NULL, NULL), 8, 1, 1, 2, 2, 3,
          3, 4, 4);
    HOLDS(CALL(repeat_interleave_self_int, x, 2, &first, NULL), 8, 1, 2, 1, 2,
          3, 4, 3, 4);
    ck_assert_int_eq(
        core_tensor_numel(CALL(repeat_interleave_self_int, x, 0, &last, NULL)),
        0);
    HOLDS(CALL(repeat_interleave_self_tensor, x, INDICES(2, 1, 2), &last, NULL),
          6, 1, 2, 2, 3, 4, 4);
    HOLDS(CALL(repeat_interleave_self_tensor, x, INDICES(1, 2), &first, NULL),
          8, 1, 2, 1, 2, 3, 4, 3, 4);
    FAILS(core_repeat_interleave_self_int(x, -1, NULL, NULL, &y),
          CORE_ERROR_INVALID_ARGUMENT, "repeats is -1");
    FAILS(core_repeat_interleave_self_int(x, 1, &first, &wrong, &y),
          CORE_ERROR_SHAPE, "output_size is 3; it must be 2");
    FAILS(core_repeat_interleave_self_tensor(x, INDICES(3, 1, 2, 3), &last,
                                             NULL, &y),
          CORE_ERROR_SHAPE, "1 or 2");
}
END_TEST

START_TEST(overloads_with_numbers_equal_those_with_tensors)
{
    core_tensor *x = VECTOR(3, -2, 0, 3), *many[3];
    core_tensor *i = INDICES(2, 7, -7);
    bool stable = true;

    HOLDS(CALL(div_scalar_mode, x, core_int(2), "floor"), 3, -1, 0, 1);
    HOLDS(CALL(div_scalar_mode, i, core_int(2), "floor"), 2, 3, -4);
    ck_assert_uint_eq(
        core_tensor_dtype(CALL(div_scalar_mode, i, core_int(2), "trunc")),
        CORE_I64);
    HOLDS(CALL(div_scalar_mode, i, core_float(2.5), "trunc"), 2, 2, -2);
    HOLDS(CALL(div_scalar_mode, i, core_int(2), NULL), 2, 3.5, -3.5);
    HOLDS(CALL(xlogy_scalar_other, x, core_float(2)), 3, -2 * M_LN2, 0,
          3 * M_LN2);
    HOLDS(CALL(xlogy_scalar_self, core_float(0), VECTOR(2, 0, 1)), 2, 0, 0);
    HOLDS(CALL(special_xlog1py_other_scalar, x, core_int(1)), 3, -2 * M_LN2, 0,
          3 * M_LN2);
    HOLDS(CALL(special_chebyshev_polynomial_t_n_scalar, VECTOR(2, .5, 2),
               core_int(2)),
          2, -.5, 7);
    HOLDS(CALL(special_hermite_polynomial_h_x_scalar, core_float(2),
               INDICES(3, 0, 1, 2)),
          3, 1, 4, 14);
    HOLDS(CALL(var_unbiased, VECTOR(2, 1, 3), true), 1, 2);
    HOLDS(CALL(std_unbiased, VECTOR(2, 1, 3), false), 1, 1);
    HOLDS(
        CALL(var_dim, MATRIX(2, 2, 1, 3, 0, 4), (int64_t[]){1}, 1, false, true),
        2, 1, 4);
    OK(core_std_mean_dim(VECTOR(2, 1, 3), NULL, 0, false, false, &many[0],
                         &many[1]));
    HOLDS(keep(many[0]), 1, 1);
    HOLDS(keep(many[1]), 1, 2);
    HOLDS(CALL(argsort_stable, VECTOR(4, 1, 0, 1, 0), stable, 0, true), 4, 0, 2,
          1, 3);
}
END_TEST

START_TEST(where_of_a_condition_returns_indices)
{
    core_tensor **out;
    size_t count;

    OK(core_where_nonzero(MATRIX(2, 2, 1, 0, 0, 3), &out, &count));
    ck_assert_uint_eq(count, 2);
    HOLDS(out[0], 2, 0, 1);
    HOLDS(out[1], 2, 0, 1);
    core_tensors_release(out, count);
    OK(core_where_nonzero(SCALAR(5), &out, &count));
    ck_assert_uint_eq(count, 1);
    HOLDS(out[0], 1, 0);
    core_tensors_release(out, count);
}
END_TEST

START_TEST(normal_of_two_numbers_has_the_given_sizes)
{
    const int64_t sizes[] = {50, 40};
    core_tensor *x, *y;

    core_seed(3);
    x = CALL(normal_float_float, 5, .5, sizes, 2, NULL, CORE_F64, NULL);
    ck_assert_int_eq(core_tensor_numel(x), 2000);
    core_seed(3);
    y = CALL(empty, sizes, 2, CORE_F64, NULL, -1);
    OK(core_normal_(y, 5, .5, NULL));
    y = CALL(max, CALL(abs, CALL(sub, x, y, core_int(1))));
    HOLDS(y, 1, 0);
    FAILS(core_normal_float_float(0, -1, sizes, 2, NULL, CORE_F64, NULL, &y),
          CORE_ERROR_INVALID_ARGUMENT, "std");
}
END_TEST

START_TEST(attention_tells_which_kernel_it_uses)
{
    core_tensor *x = CALL(ones, (int64_t[]){1, 2, 4, 8}, 4, CORE_F32, NULL);
    core_tensor *wide = CALL(ones, (int64_t[]){2, 4, 8}, 3, CORE_F32, NULL);
    int64_t kernel = -1;

    OK(core_fused_sdp_choice(x, x, x, NULL, 0, false, NULL, false, &kernel));
    ck_assert_int_eq(kernel, 2);
    OK(core_fused_sdp_choice(x, wide, wide, NULL, 0, false, NULL, false,
                             &kernel));
    ck_assert_int_eq(kernel, 0);
    FAILS(core_fused_sdp_choice(x, x, x, x, 0, true, NULL, false, &kernel),
          CORE_ERROR_INVALID_ARGUMENT, "is_causal");
}
END_TEST

/* Halves, whose product with the scale is computed in f32. */
START_TEST(gradients_are_unscaled_and_infinity_is_found)
{
    core_tensor *x = typed(CORE_F16, 1, (int64_t[]){1}, (double[]){32768});
    core_tensor *list[] = {x, typed(CORE_F32, 0, NULL, (double[]){0x3p20})};
    core_tensor *none = typed(CORE_F32, 0, NULL, (double[]){0});
    core_tensor *scale = typed(CORE_F32, 0, NULL, (double[]){0x1p-26});
    core_tensor **out, *found;
    size_t count;

    OK(core_amp_foreach_non_finite_check_and_unscale(list, 2, none, scale, &out,
                                                     &count, &found));
    ck_assert_uint_eq(count, 2);
    HOLDS(out[0], 1, 0x1p-11);
    ck_assert_uint_eq(core_tensor_dtype(out[0]), CORE_F16);
    HOLDS(out[1], 1, 0x3p-6);
    HOLDS(keep(found), 1, 0);
    core_tensors_release(out, count);
    list[1] = typed(CORE_F32, 0, NULL, (double[]){-INFINITY});
    OK(core_amp_foreach_non_finite_check_and_unscale(list, 2, none, scale, &out,
                                                     &count, &found));
    HOLDS(keep(found), 1, 1);
    HOLDS(none, 1, 0);
    core_tensors_release(out, count);
    FAILS(core_amp_foreach_non_finite_check_and_unscale(
              list, 2, SCALAR(0), scale, &out, &count, &found),
          CORE_ERROR_SHAPE, "found_inf", "f64");
}
END_TEST

/* Zeros are PyTorch's result, with a mask and without. */
START_TEST(attention_of_scores_that_overflow_is_zero)
{
    const int64_t sizes[] = {1, 1, 1, 4};
    core_tensor *q = CALL(full, sizes, 4, core_float(1e30), CORE_F32, NULL);
    core_tensor *k = CALL(full, sizes, 4, core_float(-1e30), CORE_F32, NULL);
    core_tensor *v = CALL(ones, sizes, 4, CORE_F32, NULL);

    HOLDS(CALL(scaled_dot_product_attention, q, k, v, NULL, 0, false, NULL,
               false),
          4, 0, 0, 0, 0);
    /* Broadcast, so not fused. */
    k = CALL(select, k, 0, 0);
    HOLDS(CALL(scaled_dot_product_attention, q, k, CALL(select, v, 0, 0), NULL,
               0, false, NULL, false),
          4, 0, 0, 0, 0);
}
END_TEST

/* ------------------------------------------------------------- refusals -- */

START_TEST(fractional_pool_takes_samples_of_more_images)
{
    const int64_t two[] = {2, 2};
    core_tensor *x = CALL(zeros, (int64_t[]){1, 4, 4}, 3, CORE_F64, NULL);
    core_tensor *samples = CALL(zeros, (int64_t[]){3, 1, 2}, 3, CORE_F64, NULL);
    core_tensor *few = CALL(zeros, (int64_t[]){0, 1, 2}, 3, CORE_F64, NULL);
    core_tensor *out, *at;

    OK(core_fractional_max_pool2d(x, two, 2, two, 2, samples, &out, &at));
    ck_assert_uint_eq(core_tensor_ndim(keep(out)), 3);
    keep(at);
    FAILS(core_fractional_max_pool2d(x, two, 2, two, 2, few, &out, &at),
          CORE_ERROR_SHAPE, "random_samples");
}
END_TEST

START_TEST(fractional_pool_backward_checks_output_size)
{
    core_tensor *x = CALL(zeros, (int64_t[]){1, 4, 4}, 3, CORE_F64, NULL);
    core_tensor *grad = CALL(ones, (int64_t[]){1, 2, 2}, 3, CORE_F64, NULL);
    core_tensor *at = CALL(zeros, (int64_t[]){1, 2, 2}, 3, CORE_I64, NULL);
    const int64_t two[] = {2, 2}, three[] = {3, 3, 3};
    core_tensor *out;

    OK(core_fractional_max_pool2d_backward(grad, x, two, 2, two, 2, at, &out));
    keep(out);
    FAILS(core_fractional_max_pool2d_backward(grad, x, two, 2, three, 2, at,
                                              &out),
          CORE_ERROR_SHAPE, "grad_output");
    FAILS(core_fractional_max_pool2d_backward(grad, x, three, 3, two, 2, at,
                                              &out),
          CORE_ERROR_SHAPE, "kernel_size");
}
END_TEST

START_TEST(sum_of_target_lengths_beyond_i64_is_refused)
{
    core_device *meta;
    int64_t lengths[32], zeros[32] = {0}, large = INT64_C(1) << 59;
    core_tensor *probs, *targets, *a, *b;

    OK(core_device_find("meta", &meta));
    for (int i = 0; i < 32; i++)
        lengths[i] = large;
    probs = CALL(zeros, (int64_t[]){0, 32, 2}, 3, CORE_F64, meta);
    targets = CALL(zeros, NULL, 0, CORE_I64, meta);
    targets = CALL(expand, targets, &large, 1, false);
    FAILS(core_ctc_loss_forward(probs, targets, zeros, 32, lengths, 32, 0,
                                false, &a, &b),
          CORE_ERROR_SHAPE, "do not fit");
}
END_TEST

START_TEST(messages_name_the_argument_of_a_wrong_size)
{
    core_tensor *x = CALL(ones, (int64_t[]){1, 1, 3, 3}, 4, CORE_F64, NULL);
    const int64_t two[] = {2, 2}, one[] = {1, 1}, none[] = {0, 0};
    core_tensor *out;

    FAILS(core_slow_conv2d_forward(x, x, two, 2, NULL, one, 2, none, 2, &out),
          CORE_ERROR_SHAPE, "weight", "[1, 1, 3, 3]", "[1, 1, 2, 2]");
    FAILS(core_glu_backward(x, x, -1, &out), CORE_ERROR_SHAPE,
          "self has size 3 in dimension 3");
    FAILS(core_glu_jvp(x, CALL(ones, two, 2, CORE_F64, NULL), x, -1, &out),
          CORE_ERROR_SHAPE, "dx has size 3 in dimension 3");
}
END_TEST

/* ---------------------------------------------------------------- costs -- */

static uint64_t allocations_of(core_device *device)
{
    core_memory_stats stats = {.struct_size = sizeof stats};

    OK(core_memory_get_stats(device, &stats));
    return stats.allocations[CORE_MEMORY_ALL].allocated;
}

START_TEST(random_integers_and_empty_out_need_no_other_tensor)
{
    const int64_t many = 1000;
    core_device *sim;
    core_tensor *x;
    uint64_t before;

    OK(core_device_find("sim", &sim));
    x = CALL(zeros, &many, 1, CORE_F32, sim);
    before = allocations_of(sim);
    OK(core_empty_out(&many, 1, -1, x));
    OK(core_random_(x, NULL));
    OK(core_random_to_(x, 5, NULL));
    ck_assert_uint_eq(allocations_of(sim), before);
}
END_TEST

START_TEST(lengths_of_sequences_are_read_at_once)
{
    core_device *sim;
    core_tensor *lengths, *targets, *probs, *losses, *alpha;
    uint64_t before;

    OK(core_device_find("sim", &sim));
    lengths = CALL(ones, (int64_t[]){16}, 1, CORE_I64, sim);
    targets = CALL(ones, (int64_t[]){16, 1}, 2, CORE_I64, sim);
    probs = CALL(zeros, (int64_t[]){4, 16, 3}, 3, CORE_F32, sim);
    before = core_host_waits();
    OK(core_ctc_loss_forward_tensor(probs, targets, lengths, lengths, 0, false,
                                    &losses, &alpha));
    keep(losses);
    keep(alpha);
    ck_assert_uint_le(core_host_waits(), before + 2);
}
END_TEST

START_TEST(quantiles_have_fractions_from_0_to_1)
{
    core_tensor *x = VECTOR(3, 1, 2, 3), *y;

    FAILS(core_quantile(x, VECTOR(2, .5, NAN), NULL, false, "linear", &y),
          CORE_ERROR_INVALID_ARGUMENT, "outside of 0 to 1");
    FAILS(core_quantile(x, VECTOR(1, -.1), NULL, false, "linear", &y),
          CORE_ERROR_INVALID_ARGUMENT, "outside of 0 to 1");
    FAILS(core_quantile_scalar(x, NAN, NULL, false, "linear", &y),
          CORE_ERROR_INVALID_ARGUMENT, "outside of 0 to 1");
    OK(core_quantile(x, VECTOR(2, 0, 1), NULL, false, "linear", &y));
    HOLDS(keep(y), 2, 1, 3);
}
END_TEST

SUITE("ops/composites", quantiles_have_fractions_from_0_to_1,
      attention_of_scores_that_overflow_is_zero,
      gradients_are_unscaled_and_infinity_is_found,
      equal_compares_sizes_and_elements, is_set_to_compares_storage_and_layout,
      set_returns_the_content_of_source,
      pooling_and_convolution_write_gradients_to_given_tensors,
      convolution_pads_to_the_size_of_its_input,
      elements_are_repeated_in_a_dimension_or_in_all,
      overloads_with_numbers_equal_those_with_tensors,
      where_of_a_condition_returns_indices,
      normal_of_two_numbers_has_the_given_sizes,
      attention_tells_which_kernel_it_uses,
      out_tensor_of_a_result_not_requested_is_unchanged,
      out_variant_that_succeeds_keeps_the_error_record,
      empty_out_has_the_given_sizes,
      gradients_of_bags_are_divided_by_the_frequency_of_a_row,
      gradient_of_a_greatest_row_goes_to_the_first_one,
      bags_end_at_the_last_offset, offsets_of_bags_are_checked,
      ctc_loss_of_nan_is_nan, ctc_loss_takes_one_sequence_without_a_batch,
      einsum_checks_sizes, similarity_of_rows_with_an_infinite_norm_is_zero,
      quantiles_of_long_rows_of_bf16, combination_of_no_tensors_is_zero,
      pixels_beyond_an_image_are_zero_with_antialiasing,
      ranges_of_integers_are_exact, zeros_of_every_dtype_are_zero,
      margin_losses_of_an_empty_batch_have_an_empty_gradient,
      fractional_pool_takes_samples_of_more_images,
      fractional_pool_backward_checks_output_size,
      sum_of_target_lengths_beyond_i64_is_refused,
      messages_name_the_argument_of_a_wrong_size,
      random_integers_and_empty_out_need_no_other_tensor,
      lengths_of_sequences_are_read_at_once)
