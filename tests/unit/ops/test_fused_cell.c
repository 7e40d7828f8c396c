/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fused cells of LSTM and GRU: numbers of PyTorch 2.15, by the kernel, by
 * composition, and by the formula that can be differentiated again. */

#include "support/autograd.h"

#include <libcore/autocast.h>
#include <libcore/expressions.h>

#include <math.h>

enum { BATCH = 2, UNITS = 2 };

static const double lstm_h[] = {0.075402829163, -0.116887661686,
                                -0.021971728208, -0.010166697355};
static const double lstm_c[] = {0.144467846187, -0.256139822445,
                                -0.093867091416, -0.176827956189};
static const double lstm_gates[] = {
    0.020738741853, 0.076181162167,  0.017850057095,  -0.241214159886,
    0.254248034608, 0.544879125656,  -0.009995820340, -0.040986320513,
    0.075005734119, -0.025921093586, -0.111982236393, 0.021292630670,
    0.001253234163, -0.005396838485, -0.016634722531, -0.003946481576};
static const double lstm_state[] = {0.226175958383, 0.616091790026,
                                    0.153424547290, -0.428107113698};
static const double lstm_bias[] = {
    0.095744475973, 0.050260068582, -0.094132179298, -0.219921529216,
    0.255501268771, 0.539482287171, -0.026630542871, -0.044932802088};
static const double gru_h[] = {0.116801569763, -0.271201990147, -0.569040572565,
                               -0.236574528385};
static const double gru_input[] = {
    -0.005133133746, 0.009199918442,  -0.002994885956, -0.153984949633,
    -0.154772994533, 0.328644837149,  -0.013426657778, -0.005798946406,
    -0.216439603389, -0.009279072848, 0.432056052869,  0.188532025379};
static const double gru_hidden[] = {
    -0.005133133746, 0.009199918442,  -0.002994885956, -0.153984949633,
    -0.078742233495, 0.148927770308,  -0.013426657778, -0.005798946406,
    -0.216439603389, -0.009279072848, 0.208536811203,  0.101938140268};
static const double gru_state[] = {-0.123152889965, 0.317102119945,
                                   0.555138884299, 0.216593435880};
static const double gru_bias[] = {-0.018559791523, 0.003400972037,
                                  -0.219434489345, -0.163264022481,
                                  0.129794577708,  0.250865910576};

/* sin(k), sin(k + 1), … of the sizes; rows 0: without that dimension. */
static core_tensor *sines(core_dtype dtype, int k, int64_t rows,
                          int64_t columns)
{
    int64_t count = (rows ? rows : 1) * columns;
    core_tensor *x = core_x_arange(core_int(count), CORE_F64);

    x = core_x_sin(core_x_add_scalar(x, core_int(k)));
    x = core_x_to(x, dtype);
    return rows ? core_x_reshape(x, CORE_SIZES(rows, columns)) : x;
}

static void expect(core_tensor *x, const double *want)
{
    core_tensor *flat = core_x_reshape(x, CORE_SIZES(-1));

    for (int64_t i = 0; i < core_x_size(flat, 0); i++)
        ck_assert_double_eq_tol(core_x_item_float(core_x_select(flat, 0, i)),
                                want[i], 1e-6);
}

/* input and hidden gates, state, biases. */
static void arguments(core_dtype dtype, core_dtype state, int64_t gates,
                      core_tensor *out[5])
{
    out[0] = sines(dtype, 1, BATCH, gates * UNITS);
    out[1] = sines(dtype, 2, BATCH, gates * UNITS);
    out[2] = sines(state, 3, BATCH, UNITS);
    out[3] = sines(dtype, 4, 0, gates * UNITS);
    out[4] = sines(dtype, 5, 0, gates * UNITS);
    for (int i = 0; i < 5; i++)
        CORE_CHECK(core_tensor_set_requires_grad(out[i], true));
}

/* Gradients of sum(h sines(6)) + sum(c sines(7)). */
static void gradients_of(core_tensor *h, core_tensor *c,
                         core_tensor *const x[5], bool again,
                         core_tensor *out[5])
{
    core_tensor *loss =
        core_x_sum(core_x_mul(h, sines(CORE_F64, 6, BATCH, UNITS)));

    if (c)
        loss = core_x_add(
            loss, core_x_sum(core_x_mul(c, sines(CORE_F64, 7, BATCH, UNITS))));
    CORE_CHECK(
        core_grad(&loss, 1, NULL, x, 5, again ? CORE_CREATE_GRAPH : 0, out));
    for (int i = 0; i < 5; i++)
        out[i] = core_scope_own(core_scope_status(), &out[i]);
}

/* In f64 with the kernel; composed if the dtypes differ. */
static void check_lstm(core_dtype state, bool again)
{
    core_scope scope = core_scope_begin();
    core_tensor *x[5], *grad[5] = {NULL};
    core_x_thnn_fused_lstm_cell_result y;

    arguments(CORE_F64, state, 4, x);
    y = core_x_thnn_fused_lstm_cell(x[0], x[1], x[2], x[3], x[4]);
    expect(y.result0, lstm_h);
    expect(y.result1, lstm_c);
    ck_assert(!core_tensor_requires_grad(y.result2));
    gradients_of(y.result0, y.result1, x, again, grad);
    expect(grad[0], lstm_gates);
    expect(grad[1], lstm_gates);
    expect(grad[2], lstm_state);
    expect(grad[3], lstm_bias);
    expect(grad[4], lstm_bias);
    OK(core_scope_end(scope));
}

static void check_gru(core_dtype state, bool again)
{
    core_scope scope = core_scope_begin();
    core_tensor *x[5], *grad[5] = {NULL};
    core_x_thnn_fused_gru_cell_result y;

    arguments(CORE_F64, state, 3, x);
    y = core_x_thnn_fused_gru_cell(x[0], x[1], x[2], x[3], x[4]);
    expect(y.result0, gru_h);
    gradients_of(y.result0, NULL, x, again, grad);
    expect(grad[0], gru_input);
    expect(grad[1], gru_hidden);
    expect(grad[2], gru_state);
    expect(core_x_narrow(grad[3], 0, 0, 4), gru_bias);
    expect(grad[4], gru_bias);
    OK(core_scope_end(scope));
}

START_TEST(numbers_are_those_of_pytorch)
{
    for (int again = 0; again < 2; again++) {
        check_lstm(CORE_F64, again);
        check_gru(CORE_F64, again);
    }
}
END_TEST

START_TEST(composed_numbers_are_the_same)
{
    check_lstm(CORE_F32, false);
    check_gru(CORE_F32, false);
}
END_TEST

START_TEST(a_gradient_of_one_result_is_enough)
{
    core_scope scope = core_scope_begin();
    core_tensor *x[5], *grad, *loss[2], *sum;

    arguments(CORE_F64, CORE_F64, 4, x);
    for (int i = 0; i < 2; i++) {
        core_x_thnn_fused_lstm_cell_result y =
            core_x_thnn_fused_lstm_cell(x[0], x[1], x[2]);

        loss[i] = core_x_sum(i ? y.result1 : y.result0);
        CORE_CHECK(core_grad(&loss[i], 1, NULL, x, 1, 0, &grad));
        grad = core_scope_own(core_scope_status(), &grad);
        sum = core_x_sum(core_x_abs(grad));
        ck_assert_double_gt(core_x_item_float(sum), 0.1);
    }
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(a_region_of_lower_precision_casts_all_arguments)
{
    core_scope scope = core_scope_begin();
    core_x_thnn_fused_gru_cell_result y;
    core_tensor *x[5];
    uint64_t region;

    arguments(CORE_F32, CORE_F32, 3, x);
    CORE_CHECK(
        core_autocast_begin(core_tensor_device(x[0]), CORE_BF16, 0, &region));
    y = core_x_thnn_fused_gru_cell(x[0], x[1], x[2], x[3], x[4]);
    CORE_CHECK(core_autocast_end(region));
    ck_assert_int_eq(core_tensor_dtype(y.result0), CORE_BF16);
    ck_assert_int_eq(core_tensor_dtype(y.result1), CORE_BF16);
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(bad_arguments_are_named)
{
    core_scope scope = core_scope_begin();
    core_tensor *x[5], *out[5];
    core_tensor *work = sines(CORE_F64, 0, BATCH, 4 * UNITS);

    arguments(CORE_F64, CORE_F64, 4, x);
    FAILS(core_thnn_fused_lstm_cell(x[0], x[1], x[2], x[3], NULL, &out[0],
                                    &out[1], &out[2]),
          CORE_ERROR_INVALID_ARGUMENT, "hidden_bias");
    FAILS(core_thnn_fused_lstm_cell(x[0], x[2], x[2], NULL, NULL, &out[0],
                                    &out[1], &out[2]),
          CORE_ERROR_SHAPE, "hidden_gates");
    FAILS(core_thnn_fused_gru_cell(x[0], x[1], x[2], NULL, NULL, &out[0],
                                   &out[1]),
          CORE_ERROR_SHAPE, "input_gates");
    FAILS(core_thnn_fused_lstm_cell_backward_impl(
              NULL, NULL, x[2], x[2], work, false, &out[0], &out[1], &out[2]),
          CORE_ERROR_INVALID_ARGUMENT, "grad_hy and grad_cy");
    FAILS(core_thnn_fused_gru_cell_backward(x[2], work, false, &out[0], &out[1],
                                            &out[2], &out[3], &out[4]),
          CORE_ERROR_SHAPE, "workspace");
    FAILS(core_fused_cell(x[0], x[1], x[2], NULL, NULL, 1, &out[0], &out[1],
                          &out[2]),
          CORE_ERROR_INVALID_ARGUMENT, "mode is 1");
    FAILS(core_fused_cell_backward(x[2], NULL, NULL, x[2], work, 2, &out[0],
                                   &out[1], &out[2]),
          CORE_ERROR_INVALID_ARGUMENT, "cx is absent");
    FAILS(core_fused_cell_backward(NULL, NULL, NULL, NULL, work, 3, &out[0],
                                   &out[1], &out[2]),
          CORE_ERROR_INVALID_ARGUMENT, "grad_hy is absent");
    OK(core_scope_end(scope));
}
END_TEST

SUITE("ops/fused_cell", numbers_are_those_of_pytorch,
      composed_numbers_are_the_same, a_gradient_of_one_result_is_enough,
      a_region_of_lower_precision_casts_all_arguments, bad_arguments_are_named)
