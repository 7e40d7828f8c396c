/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Recurrent layers: what a backward costs, and bad input.  Values are compared
 * with recorded calls (tests/golden/layers). */

#include "support/autograd.h"

#include <libcore/mode.h>
#include <libcore/random.h>

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
    FAILS(lstm(x, good, swapped, out), CORE_ERROR_SHAPE, "w_ih");
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

SUITE("ops/recurrent", lengths_that_cannot_be_counted_are_refused,
      a_training_step_costs_in_proportion_to_the_sequence,
      bad_input_is_refused_by_name)
