/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Recurrent layers: what a backward costs, and bad input.  Values are compared
 * with recorded calls (tests/golden/layers). */

#include "support/autograd.h"

#include <libcore/mode.h>
#include <libcore/random.h>

#include <stdio.h>

enum { INPUT = 3, HIDDEN = 4 };

static core_tensor *random_of(int64_t a, int64_t b, int64_t c)
{
    return CALL(randn, (const int64_t[]){a, b, c}, c ? 3 : 2, NULL, CORE_F64,
                NULL);
}

/* The weights of an LSTM of one layer without biases. */
static void weights_of(core_tensor *out[2])
{
    out[0] = random_of(4 * HIDDEN, INPUT, 0);
    out[1] = random_of(4 * HIDDEN, HIDDEN, 0);
}

static core_status lstm(core_tensor *x, core_tensor *const hx[2],
                        core_tensor *const params[2], core_tensor *out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = NULL;
    return core_lstm(x, hx, 2, params, 2, false, 1, 0, true, false, false,
                     &out[0], &out[1], &out[2]);
}

/* Bytes that the operators of a training step of so many time steps read and
 * write. */
static double bytes_of(int64_t steps)
{
    core_tensor *x = random_of(steps, 1, INPUT);
    core_tensor *hx[2] = {random_of(1, 1, HIDDEN), random_of(1, 1, HIDDEN)};
    core_tensor *params[2], *out[3], *sum;
    core_op_counts counts;
    core_op_counter *counter;
    core_mode *mode;

    weights_of(params);
    leaf(params[0]);
    leaf(params[1]);
    OK(core_op_counter_create(&counter));
    OK(core_mode_push_counting(counter, &mode));
    OK(lstm(x, hx, params, out));
    sum = CALL(sum, keep(out[0]), CORE_DTYPE_NONE);
    keep(out[1]);
    keep(out[2]);
    OK(core_backward(&sum, 1, NULL, 0));
    OK(core_mode_pop(mode));
    OK(core_op_counter_get(counter, NULL, &counts));
    core_op_counter_release(counter);
    ck_assert_ptr_nonnull(core_tensor_grad(params[1]));
    return (double)counts.bytes;
}

START_TEST(a_training_step_costs_in_proportion_to_the_sequence)
{
    double few = bytes_of(32), many = bytes_of(256);

    ck_assert_double_gt(few, 0);
    /* 8 times as many steps; slices of the whole sequence would cost 30. */
    ck_assert_double_lt(many / few, 12);
}
END_TEST

START_TEST(bad_input_is_refused_by_name)
{
    core_tensor *x = random_of(5, 2, INPUT), *out[3];
    core_tensor *good[2] = {random_of(1, 2, HIDDEN), random_of(1, 2, HIDDEN)};
    core_tensor *wrong[2] = {random_of(2, 2, HIDDEN), good[1]};
    core_tensor *none =
        CALL(zeros, (const int64_t[]){0, 2, INPUT}, 3, CORE_F64, NULL);
    core_tensor *sizes =
        CALL(full, (const int64_t[]){2}, 1, core_int(3), CORE_I64, NULL);
    core_tensor *params[2], *missing[2], *swapped[2];
    char text[80];

    snprintf(text, sizeof text, " for inputs of size %d and states of size %d",
             INPUT, HIDDEN);
    weights_of(params);
    missing[0] = params[0];
    missing[1] = NULL;
    swapped[0] = params[1];
    swapped[1] = params[0];
    OK(lstm(x, good, params, out));
    for (int i = 0; i < 3; i++)
        keep(out[i]);
    FAILS(lstm(x, wrong, params, out), CORE_ERROR_SHAPE, "the hidden state");
    FAILS(lstm(none, good, params, out), CORE_ERROR_SHAPE, "at least one step");
    FAILS(lstm(x, good, missing, out), CORE_ERROR_INVALID_ARGUMENT, "params");
    FAILS(lstm(x, good, swapped, out), CORE_ERROR_SHAPE, "w_ih", text);
    wrong[0] = random_of(2, HIDDEN, 0);
    FAILS(lstm(x, wrong, params, out), CORE_ERROR_SHAPE,
          "the hidden state has 2 dimensions; it must have 3");
    wrong[0] = good[0];
    wrong[1] = random_of(1, 2, HIDDEN + 1);
    FAILS(lstm(x, wrong, params, out), CORE_ERROR_INVALID_ARGUMENT,
          "with a projection, as the sizes of the states differ");
    FAILS(core_lstm(x, good, 1, params, 2, false, 1, 0, true, false, false,
                    &out[0], &out[1], &out[2]),
          CORE_ERROR_INVALID_ARGUMENT, "hx has 1 tensors");
    FAILS(core_lstm(x, good, 2, params, 2, false, 2, 0, true, false, false,
                    &out[0], &out[1], &out[2]),
          CORE_ERROR_SHAPE, "the hidden state");
    FAILS(core_lstm_data(CALL(flatten, x, 0, 1), sizes, good, 2, params, 2,
                         false, 1, 0, true, false, &out[0], &out[1], &out[2]),
          CORE_ERROR_SHAPE, "the sum of batch_sizes is not 10");
}
END_TEST

static core_status layer_with(int64_t rows, const int64_t *sizes, size_t count)
{
    core_tensor *input = random_of(rows, HIDDEN, 0);
    core_tensor *hx = random_of(3, HIDDEN, 0), *out[4] = {NULL};
    core_tensor *weight = random_of(HIDDEN, HIDDEN, 0);
    core_status status =
        core_recurrent_layer(input, hx, NULL, weight, NULL, sizes, count, 1,
                             false, &out[0], &out[1], &out[2], &out[3]);

    for (int i = 0; i < 4; i++)
        core_tensor_release(out[i]);
    return status;
}

START_TEST(batch_sizes_that_do_not_fit_are_named)
{
    OK(layer_with(6, (const int64_t[]){3, 2, 1}, 3));
    FAILS(layer_with(7, (const int64_t[]){3, 2, 1}, 3), CORE_ERROR_SHAPE,
          "input has 7 rows; 3 batch_sizes sum to 6");
    FAILS(layer_with(4, (const int64_t[]){3, 2, 1}, 3), CORE_ERROR_SHAPE,
          "input has 4 rows; 2 batch_sizes sum to 5");
    FAILS(layer_with(7, NULL, 0), CORE_ERROR_SHAPE,
          "input has 7 rows; without batch_sizes it must have a multiple of "
          "the 3 of hx");
    FAILS(layer_with(2, (const int64_t[]){2}, 1), CORE_ERROR_INVALID_ARGUMENT,
          "batch_sizes[0] is 2; sizes must be positive and not grow, and the "
          "first be 3 as in hx");
}
END_TEST

/* Expanded tensors have more elements than memory has bytes. */
START_TEST(lengths_that_cannot_be_counted_are_refused)
{
    const int64_t many = (int64_t)1 << 31, more = (int64_t)1 << 59;
    core_tensor *one = random_of(1, 1, INPUT), *out[3], *lengths, *byte;
    core_tensor *hx[2] = {random_of(1, 1, HIDDEN), random_of(1, 1, HIDDEN)};
    core_tensor *params[2], *data, *steps;

    weights_of(params);
    byte = CALL(zeros, (const int64_t[]){1, 1, 1}, 3, CORE_U8, NULL);
    steps = CALL(expand, byte, (const int64_t[]){more, 1, 1}, 3, false);
    FAILS(lstm(steps, hx, params, out), CORE_ERROR_OUT_OF_MEMORY, "lstm");
    data = CALL(expand, CALL(select, one, 0, 0), (const int64_t[]){many, INPUT},
                2, false);
    lengths =
        CALL(full, (const int64_t[]){1}, 1, core_int(many), CORE_I64, NULL);
    FAILS(core_pad_packed_sequence(data, lengths, false, core_float(0),
                                   (int64_t)1 << 30, &out[0], &out[1]),
          CORE_ERROR_OUT_OF_MEMORY, "_pad_packed_sequence");
    lengths =
        CALL(full, (const int64_t[]){1}, 1, core_int(more), CORE_I64, NULL);
    FAILS(core_pack_padded_sequence(steps, lengths, false, &out[0], &out[1]),
          CORE_ERROR_OUT_OF_MEMORY, "_pack_padded_sequence");
}
END_TEST

/* ---------------------------------------------------------- fused layers -- */

enum { LSTM, GRU, TANH, RELU, KINDS };
enum { WEIGHTS = 4, STATES = 2 };

/* A network of one layer: x [steps, batch, INPUT], states, parameters. */
typedef struct layer {
    int kind;
    core_tensor *x, *hx[STATES], *params[WEIGHTS];
} layer;

static core_tensor *numbers_of(core_dtype dtype, int64_t a, int64_t b,
                               int64_t c)
{
    core_tensor *x =
        CALL(randn, (const int64_t[]){a, b, c}, c ? 3 : 2, NULL, dtype, NULL);

    return CALL(mul_scalar, x, core_float(dtype == CORE_F32 ? 0.1 : 1));
}

static core_tensor *leaf_of(core_dtype dtype, int64_t a, int64_t b, int64_t c)
{
    return leaf(numbers_of(dtype, a, b, c));
}

/* n: hidden units.  Numbers of f32 are small, which keeps rounding errors so. */
static layer layer_in(core_dtype dtype, int kind, int64_t steps, int64_t batch,
                      int64_t n)
{
    static const int64_t gates[] = {4, 3, 1, 1};
    int64_t rows = gates[kind] * n;
    layer l = {.kind = kind};

    /* [batch, steps, INPUT] in memory */
    l.x = CALL(transpose, leaf_of(dtype, batch, steps, INPUT), 0, 1);
    for (int i = 0; i < STATES; i++)
        l.hx[i] = leaf_of(dtype, 1, batch, n);
    l.params[0] = leaf_of(dtype, rows, INPUT, 0);
    l.params[1] = leaf_of(dtype, rows, n, 0);
    for (int i = 2; i < WEIGHTS; i++)
        l.params[i] = leaf(CALL(select, numbers_of(dtype, 1, rows, 0), 0, 0));
    return l;
}

static layer layer_of(int kind, int64_t steps, int64_t batch)
{
    return layer_in(CORE_F64, kind, steps, batch, HIDDEN);
}

/* out: y and the last states. */
static core_status run_status(const layer *l, core_tensor *out[3])
{
    core_tensor *const *w = l->params;

    out[0] = out[1] = out[2] = NULL;
    if (l->kind == LSTM)
        return core_lstm(l->x, l->hx, 2, w, WEIGHTS, true, 1, 0, true, false,
                         false, &out[0], &out[1], &out[2]);
    return (l->kind == GRU    ? core_gru
            : l->kind == TANH ? core_rnn_tanh
                              : core_rnn_relu)(l->x, l->hx[0], w, WEIGHTS, true,
                                               1, 0, true, false, false,
                                               &out[0], &out[1]);
}

static void run_layer(const layer *l, core_tensor *out[3])
{
    OK(run_status(l, out));
    for (int i = 0; i < 3 && out[i]; i++)
        keep(out[i]);
}

/* The same by cells. */
static void run_cells(const layer *l, core_tensor *out[3])
{
    int64_t steps = core_tensor_size(l->x, 0);
    core_tensor *h = CALL(select, l->hx[0], 0, 0), *y[16];
    core_tensor *c = CALL(select, l->hx[1], 0, 0);
    core_tensor *const *w = l->params;

    for (int64_t i = 0; i < steps; i++) {
        core_tensor *x = CALL(select, l->x, 0, i), *hx[] = {h, c};

        if (l->kind == LSTM) {
            OK(core_lstm_cell(x, hx, 2, w[0], w[1], w[2], w[3], &h, &c));
            keep(h);
            keep(c);
        } else {
            OK((l->kind == GRU ? core_gru_cell
                : l->kind == TANH
                    ? core_rnn_tanh_cell
                    : core_rnn_relu_cell)(x, h, w[0], w[1], w[2], w[3], &h));
            keep(h);
        }
        y[i] = h;
    }
    out[0] = CALL(stack, y, (size_t)steps, 0);
    out[1] = CALL(unsqueeze, h, 0);
    out[2] = l->kind == LSTM ? CALL(unsqueeze, c, 0) : NULL;
}

static void expect_close(core_tensor *got, core_tensor *want)
{
    bool wide = core_tensor_dtype(got) == CORE_F64, same;

    OK(core_allclose(got, want, wide ? 1e-10 : 1e-4, wide ? 1e-11 : 1e-5, false,
                     &same));
    ck_assert(same);
}

/* The sum of the sines of all results. */
static core_tensor *loss_of(core_tensor *out[3])
{
    core_tensor *loss = NULL;

    for (int i = 0; i < 3 && out[i]; i++) {
        core_tensor *x = CALL(sum, CALL(sin, out[i]), CORE_DTYPE_NONE);

        loss = loss ? CALL(add, loss, x, core_int(1)) : x;
    }
    return loss;
}

static void expect_cells(const layer *l)
{
    core_tensor *leaves[] = {l->x,         l->hx[0],     l->params[0],
                             l->params[1], l->params[2], l->params[3],
                             l->hx[1]};
    size_t count = l->kind == LSTM ? 7 : 6;
    core_tensor *out[3], *want[3], *grads[2][7], *loss;

    run_layer(l, out);
    run_cells(l, want);
    for (int i = 0; i < 3 && out[i]; i++)
        expect_close(out[i], want[i]);
    loss = loss_of(out);
    OK(core_grad(&loss, 1, NULL, leaves, count, 0, grads[0]));
    loss = loss_of(want);
    OK(core_grad(&loss, 1, NULL, leaves, count, 0, grads[1]));
    for (size_t i = 0; i < count; i++)
        expect_close(keep(grads[0][i]), keep(grads[1][i]));
}

START_TEST(a_layer_is_its_cells)
{
    for (int kind = 0; kind < KINDS; kind++) {
        layer narrow = layer_of(kind, 7, 3);
        layer wide = layer_in(CORE_F32, kind, 5, 13, 33);

        expect_cells(&narrow);
        expect_cells(&wide);
    }
}
END_TEST

/* Both directions of an LSTM; in the first layer's order, h and c of both. */
static void run_both(core_tensor *x, core_tensor *const hx[2],
                     core_tensor *const params[8], core_tensor *out[3])
{
    OK(core_lstm(x, hx, 2, params, 8, true, 1, 0, true, true, false, &out[0],
                 &out[1], &out[2]));
    for (int i = 0; i < 3; i++)
        keep(out[i]);
}

START_TEST(the_second_direction_reads_the_sequence_backward)
{
    layer one = layer_of(LSTM, 6, 2), other = layer_of(LSTM, 6, 2);
    core_tensor *params[8], *hx[2], *out[3], *want[3];

    memcpy(params, one.params, sizeof one.params);
    memcpy(params + 4, other.params, sizeof other.params);
    for (int i = 0; i < 2; i++)
        hx[i] = CALL(cat, ((core_tensor *[]){one.hx[i], other.hx[i]}), 2, 0);
    run_both(one.x, hx, params, out);
    other.x = CALL(flip, one.x, (const int64_t[]){0}, 1);
    run_cells(&other, want);
    want[0] = CALL(flip, want[0], (const int64_t[]){0}, 1);
    expect_close(CALL(narrow, out[0], 2, HIDDEN, HIDDEN), want[0]);
    for (int i = 1; i < 3; i++)
        expect_close(CALL(narrow, out[i], 0, 1, 1), want[i]);
}
END_TEST

START_TEST(a_packed_sequence_is_its_samples)
{
    const int64_t lengths[] = {6, 5, 5};
    layer l = layer_of(LSTM, 6, 3), other = layer_of(LSTM, 6, 3);
    core_tensor *params[8], *hx[2], *out[3], *want[3], *data, *sizes, *loss;
    core_tensor *total = NULL, *grads[2][8], *whole;

    memcpy(params, l.params, sizeof l.params);
    memcpy(params + 4, other.params, sizeof other.params);
    for (int i = 0; i < 2; i++)
        hx[i] = CALL(cat, ((core_tensor *[]){l.hx[i], other.hx[i]}), 2, 0);
    OK(core_tensor_from_data(lengths, CORE_I64, (const int64_t[]){3}, 1, NULL,
                             &sizes));
    OK(core_pack_padded_sequence(l.x, keep(sizes), false, &data, &sizes));
    OK(core_lstm_data(keep(data), keep(sizes), hx, 2, params, 8, true, 1, 0,
                      true, true, &out[0], &out[1], &out[2]));
    for (int i = 0; i < 3; i++)
        keep(out[i]);
    loss = loss_of(out);
    OK(core_pad_packed_sequence(out[0], sizes, false, core_float(0), 0, &whole,
                                &data));
    keep(whole);
    keep(data);
    for (int64_t k = 0; k < 3; k++) {
        core_tensor *x = CALL(narrow, l.x, 1, k, 1), *own[2], *part;

        x = CALL(narrow, x, 0, 0, lengths[k]);
        for (int i = 0; i < 2; i++)
            own[i] = CALL(narrow, hx[i], 1, k, 1);
        run_both(x, own, params, want);
        part = CALL(narrow, whole, 1, k, 1);
        expect_close(CALL(narrow, part, 0, 0, lengths[k]), want[0]);
        for (int i = 1; i < 3; i++)
            expect_close(CALL(narrow, out[i], 1, k, 1), want[i]);
        part = loss_of(want);
        total = total ? CALL(add, total, part, core_int(1)) : part;
    }
    OK(core_grad(&loss, 1, NULL, params, 8, 0, grads[0]));
    OK(core_grad(&total, 1, NULL, params, 8, 0, grads[1]));
    for (size_t i = 0; i < 8; i++)
        expect_close(keep(grads[0][i]), keep(grads[1][i]));
}
END_TEST

/* Results with a batch of one sample, without that dimension. */
START_TEST(input_may_lack_a_batch)
{
    for (int kind = 0; kind < KINDS; kind++) {
        layer l = layer_of(kind, 5, 1), own = l;
        core_tensor *out[3], *want[3];

        own.x = CALL(select, l.x, 1, 0);
        for (int i = 0; i < STATES; i++)
            own.hx[i] = CALL(select, l.hx[i], 1, 0);
        run_layer(&own, out);
        run_layer(&l, want);
        for (int i = 0; i < 3 && out[i]; i++)
            expect_close(out[i], CALL(squeeze_dim, want[i], 1));
        own.hx[0] = l.hx[0];
        FAILS(run_status(&own, out), CORE_ERROR_SHAPE,
              "hx has 3 dimensions; without a batch it has 2");
    }
}
END_TEST

START_TEST(batch_first_does_not_matter_without_a_batch)
{
    layer l = layer_of(GRU, 5, 1);
    core_tensor *x = CALL(select, l.x, 1, 0), *h = CALL(select, l.hx[0], 1, 0);
    core_tensor *y[2], *last[2];

    for (int i = 0; i < 2; i++) {
        OK(core_gru(x, h, l.params, WEIGHTS, true, 1, 0, true, false, i, &y[i],
                    &last[i]));
        keep(y[i]);
        keep(last[i]);
    }
    expect_close(y[0], y[1]);
    expect_close(last[0], last[1]);
}
END_TEST

START_TEST(a_batch_without_samples_has_gradients_of_zero)
{
    layer l = layer_of(GRU, 6, 0);
    core_tensor *out[3], *loss, *grad[1];

    run_layer(&l, out);
    ck_assert_int_eq(core_tensor_size(out[0], 0), 6);
    ck_assert_int_eq(core_tensor_size(out[0], 1), 0);
    loss = loss_of(out);
    OK(core_grad(&loss, 1, NULL, &l.params[1], 1, 0, grad));
    expect_close(keep(grad[0]),
                 CALL(zeros_like, grad[0], CORE_DTYPE_NONE, NULL, -1));
}
END_TEST

SUITE("ops/recurrent", a_layer_is_its_cells,
      batch_sizes_that_do_not_fit_are_named,
      the_second_direction_reads_the_sequence_backward,
      a_packed_sequence_is_its_samples, input_may_lack_a_batch,
      batch_first_does_not_matter_without_a_batch,
      a_batch_without_samples_has_gradients_of_zero,
      lengths_that_cannot_be_counted_are_refused,
      a_training_step_costs_in_proportion_to_the_sequence,
      bad_input_is_refused_by_name)
