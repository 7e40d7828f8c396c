/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The quantizer: the scales of its three modes, its state, and that a refused
 * tensor leaves the state unchanged. */

#include "support/devices.h"

#include <libcore/quantizer.h>

#include <math.h>

static core_quantizer *quantizer;

static core_quantizer_options options(uint32_t scaling, core_dtype dtype,
                                      uint32_t flags)
{
    return (core_quantizer_options){.struct_size =
                                        sizeof(core_quantizer_options),
                                    .scaling = scaling,
                                    .dtype = dtype,
                                    .flags = flags,
                                    .history_length = 3};
}

static void make(uint32_t scaling, core_dtype dtype, uint32_t flags)
{
    core_quantizer_options given = options(scaling, dtype, flags);

    core_quantizer_release(quantizer);
    OK(core_quantizer_create(&given, &quantizer));
}

static void teardown(void)
{
    core_quantizer_release(quantizer);
    quantizer = NULL;
    drop_all();
}

static core_quantizer_state state_now(void)
{
    core_quantizer_state state = {.struct_size = sizeof state};

    OK(core_quantizer_get_state(quantizer, &state));
    return state;
}

typedef struct quantized {
    core_tensor *data, *scales;
} quantized;

static quantized quantize(core_tensor *tensor)
{
    quantized q;

    OK(core_quantizer_quantize(quantizer, tensor, &q.data, &q.scales));
    keep(q.data);
    keep(q.scales);
    return q;
}

static core_tensor *singles(int64_t count, const double *values)
{
    return typed(CORE_F32, 1, &count, values);
}

#define SINGLES(n, ...) singles(n, (double[]){__VA_ARGS__})

static core_tensor *dequantized(quantized q)
{
    return CALL(dequantize, q.data, q.scales, CORE_F32);
}

START_TEST(current_scaling_uses_the_whole_range)
{
    quantized q;
    double inverse;

    make(CORE_SCALING_CURRENT, CORE_F8E4M3, 0);
    q = quantize(SINGLES(4, 1, -7, 3.5, 0));
    ck_assert_uint_eq(core_tensor_dtype(q.data), CORE_F8E4M3);
    ck_assert_uint_eq(core_tensor_ndim(q.scales), 0);
    HOLDS(q.data, 4, 64, -448, 224, 0);
    OK(core_tensor_item_float(q.scales, &inverse));
    ck_assert_double_eq(inverse, (double)(1 / 64.0f));
    HOLDS(dequantized(q), 4, 1, -7, 3.5, 0);
    ck_assert_float_eq(state_now().scale, 64);
    ck_assert_float_eq(state_now().amax, 7);
    ck_assert_uint_eq(state_now().calls, 1);
    make(CORE_SCALING_CURRENT, CORE_F8E5M2, 0);
    HOLDS(quantize(SINGLES(2, 7, 0.5)).data, 2, 57344, 4096);
}
END_TEST

START_TEST(power_of_two_scale_is_rounded_down)
{
    make(CORE_SCALING_CURRENT, CORE_F8E4M3, CORE_QUANTIZER_POWER_OF_TWO);
    HOLDS(quantize(SINGLES(2, 5, -1)).data, 2, 320, -64);
    ck_assert_float_eq(state_now().scale, 64);
}
END_TEST

START_TEST(zeros_and_tiny_numbers_get_a_finite_scale)
{
    make(CORE_SCALING_CURRENT, CORE_F8E4M3, 0);
    HOLDS(quantize(SINGLES(2, 0, 0)).data, 2, 0, 0);
    ck_assert_float_eq(state_now().scale, 1);
    quantize(SINGLES(1, 0x1p-149));
    ck_assert(isfinite(state_now().scale));
    ck_assert_int_eq(
        core_tensor_numel(quantize(singles(0, (double[]){0})).data), 0);
}
END_TEST

START_TEST(delayed_scaling_uses_maxima_of_earlier_calls)
{
    quantized q;

    make(CORE_SCALING_DELAYED, CORE_F8E4M3, 0);
    ck_assert_float_eq(state_now().scale, 1);
    q = quantize(SINGLES(2, 7, -1)); /* quantized with scale 1 */
    HOLDS(q.data, 2, 7, -1);
    ck_assert_float_eq(state_now().scale, 64);
    /* Twice the known maximum saturates and is counted. */
    q = quantize(SINGLES(2, 14, -1));
    HOLDS(q.data, 2, 448, -64);
    ck_assert_uint_eq(state_now().saturated, 1);
    ck_assert_float_eq(state_now().scale, 32);
    quantize(SINGLES(1, 1));
    ck_assert_float_eq(state_now().scale, 32);
    ck_assert_uint_eq(state_now().history_count, 3);
    ck_assert_float_eq(core_quantizer_history(quantizer)[0], 1);
    ck_assert_float_eq(core_quantizer_history(quantizer)[1], 14);
    ck_assert_float_eq(core_quantizer_history(quantizer)[2], 7);
    quantize(SINGLES(1, 1));
    ck_assert_float_eq(state_now().scale, 32);
    quantize(SINGLES(1, 1)); /* 14 leaves the history */
    ck_assert_float_eq(state_now().scale, 448);
}
END_TEST

START_TEST(most_recent_flag_and_margin_determine_the_scale)
{
    core_quantizer_options given =
        options(CORE_SCALING_DELAYED, CORE_F8E4M3, CORE_QUANTIZER_MOST_RECENT);

    given.margin = 2;
    core_quantizer_release(quantizer);
    OK(core_quantizer_create(&given, &quantizer));
    quantize(SINGLES(1, 14));
    ck_assert_float_eq(state_now().scale, 8);
    quantize(SINGLES(1, 7));
    ck_assert_float_eq(state_now().scale, 16);
    quantize(SINGLES(1, 0));
    ck_assert_float_eq(state_now().scale, 16);
}
END_TEST

/* 64 numbers in two blocks, whose maxima are 1.75 * 2^3 and 2^-6. */
START_TEST(block_scales_are_powers_of_two)
{
    double values[64];
    float got[64];
    uint8_t scales[2];
    quantized q;

    for (int i = 0; i < 64; i++)
        values[i] = i < 32 ? (i == 5 ? 14 : 1) : (i == 60 ? -0x1p-6 : 0x1p-8);
    make(CORE_SCALING_BLOCK, CORE_F8E4M3, 0);
    for (int place = 0; place < 2; place++) {
        core_tensor *x = typed(CORE_F32, 2, (int64_t[]){1, 64}, values);

        x = CALL(to_copy, x, CORE_F32, device_of(place ? "sim" : "cpu"), false,
                 -1);
        q = quantize(x);
        ck_assert_uint_eq(core_tensor_dtype(q.scales), CORE_U8);
        ck_assert_int_eq(core_tensor_size(q.scales, 0), 1);
        ck_assert_int_eq(core_tensor_size(q.scales, 1), 2);
        OK(core_tensor_read(q.scales, scales, 2));
        ck_assert_uint_eq(scales[0], 127 + 3 - 8);
        ck_assert_uint_eq(scales[1], 127 - 6 - 8);
        OK(core_tensor_read(dequantized(q), got, sizeof got));
        for (int i = 0; i < 64; i++)
            ck_assert_float_eq(got[i], (float)values[i]);
    }
    make(CORE_SCALING_BLOCK, CORE_F8E5M2, 0);
    OK(core_tensor_read(
        quantize(typed(CORE_F32, 1, (int64_t[]){64}, values)).scales, scales,
        2));
    ck_assert_uint_eq(scales[0], 127 + 3 - 15);
    memset(values, 0, sizeof values);
    OK(core_tensor_read(
        quantize(typed(CORE_F32, 1, (int64_t[]){64}, values)).scales, scales,
        2));
    ck_assert_uint_eq(scales[0], 0);
}
END_TEST

START_TEST(stochastic_rounding_draws_for_every_element)
{
    double values[64];

    for (int i = 0; i < 64; i++)
        values[i] = i == 0 ? 448 : 17; /* between 16 and 18 */
    make(CORE_SCALING_CURRENT, CORE_F8E4M3, CORE_QUANTIZER_STOCHASTIC);
    core_seed(3);
    {
        core_tensor *x = dequantized(quantize(singles(64, values)));
        float got[64];
        int up = 0;

        OK(core_tensor_read(x, got, sizeof got));
        for (int i = 1; i < 64; i++) {
            ck_assert(got[i] == 16 || got[i] == 18);
            up += got[i] == 18;
        }
        ck_assert_int_gt(up, 10);
        ck_assert_int_lt(up, 53);
    }
}
END_TEST

START_TEST(saved_quantizer_state_can_be_loaded)
{
    core_quantizer_state saved;
    float history[3];
    quantized a, b;

    make(CORE_SCALING_DELAYED, CORE_F8E4M3, 0);
    quantize(SINGLES(1, 3));
    quantize(SINGLES(1, 5));
    saved = state_now();
    memcpy(history, core_quantizer_history(quantizer), sizeof history);
    a = quantize(SINGLES(3, 0.1, 0.7, 4));
    make(CORE_SCALING_DELAYED, CORE_F8E4M3, 0);
    OK(core_quantizer_set_state(quantizer, &saved, history));
    b = quantize(SINGLES(3, 0.1, 0.7, 4));
    ck_assert_uint_eq(state_now().calls, 3);
    {
        uint8_t codes[2][3];

        OK(core_tensor_read(a.data, codes[0], 3));
        OK(core_tensor_read(b.data, codes[1], 3));
        ck_assert_mem_eq(codes[0], codes[1], 3);
    }
}
END_TEST

START_TEST(refused_tensor_leaves_the_state_unchanged)
{
    core_tensor *data = NULL, *scales = NULL;
    const double bad[] = {NAN, INFINITY, -INFINITY};
    double values[40] = {0};

    make(CORE_SCALING_DELAYED, CORE_F8E4M3, 0);
    quantize(SINGLES(1, 7));
    for (int i = 0; i < 3; i++) {
        core_quantizer_state before = state_now(), after;

        FAILS(core_quantizer_quantize(quantizer, SINGLES(2, 1, bad[i]), &data,
                                      &scales),
              CORE_ERROR_INVALID_ARGUMENT, i ? "infinite" : "NaN");
        after = state_now();
        ck_assert_mem_eq(&before, &after, sizeof before);
    }
    make(CORE_SCALING_BLOCK, CORE_F8E4M3, 0);
    FAILS(
        core_quantizer_quantize(quantizer, singles(40, values), &data, &scales),
        CORE_ERROR_SHAPE, "32", "40");
    FAILS(core_quantizer_quantize(quantizer, typed(CORE_F32, 0, NULL, values),
                                  &data, &scales),
          CORE_ERROR_SHAPE, "32");
    values[33] = NAN;
    FAILS(core_quantizer_quantize(
              quantizer, typed(CORE_F32, 2, (int64_t[]){1, 32}, values + 8),
              &data, &scales),
          CORE_ERROR_INVALID_ARGUMENT, "block 0", "NaN");
    FAILS(core_quantizer_quantize(quantizer, VECTOR(1, 1), &data, &scales),
          CORE_ERROR_DTYPE, "f64");
    FAILS(core_dequantize(SINGLES(1, 1), SINGLES(1, 1), CORE_F32, &data),
          CORE_ERROR_DTYPE, "f32");
    ck_assert_ptr_null(data);
    ck_assert_ptr_null(scales);
    ck_assert_uint_eq(state_now().calls, 0);
}
END_TEST

START_TEST(invalid_options_and_states_are_refused)
{
    core_quantizer_options given = options(7, CORE_F8E4M3, 0);
    core_quantizer_state state;
    core_quantizer *made = NULL;

    FAILS(core_quantizer_create(&given, &made), CORE_ERROR_INVALID_ARGUMENT,
          "scaling is 7");
    given = options(CORE_SCALING_CURRENT, CORE_BF16, 0);
    FAILS(core_quantizer_create(&given, &made), CORE_ERROR_DTYPE, "bf16");
    given = options(CORE_SCALING_CURRENT, CORE_F8E4M3, 64);
    FAILS(core_quantizer_create(&given, &made), CORE_ERROR_INVALID_ARGUMENT,
          "0x40");
    given = options(CORE_SCALING_DELAYED, CORE_F8E4M3, 0);
    given.history_length = 0;
    FAILS(core_quantizer_create(&given, &made), CORE_ERROR_INVALID_ARGUMENT,
          "history_length is 0");
    given.history_length = 1;
    given.margin = 65;
    FAILS(core_quantizer_create(&given, &made), CORE_ERROR_INVALID_ARGUMENT,
          "margin is 65");
    ck_assert_ptr_null(made);
    make(CORE_SCALING_DELAYED, CORE_F8E4M3, 0);
    state = state_now();
    state.scale = 0;
    FAILS(core_quantizer_set_state(quantizer, &state, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "scale");
    state.scale = 2;
    state.amax = NAN;
    FAILS(core_quantizer_set_state(quantizer, &state, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "amax");
    state.amax = 0;
    state.history_count = 4;
    FAILS(core_quantizer_set_state(quantizer, &state, (float[4]){0}),
          CORE_ERROR_INVALID_ARGUMENT, "history_length 3");
    state.history_count = 2;
    FAILS(core_quantizer_set_state(quantizer, &state, (float[]){1, NAN}),
          CORE_ERROR_INVALID_ARGUMENT, "amax 1");
    ck_assert_float_eq(state_now().scale, 1);
}
END_TEST

/* The same scales and data as with synchronization; the host waits only when
 * the state is queried. */
START_TEST(no_wait_quantizer_computes_scale_on_device)
{
    core_tensor *x = CALL(to_copy, SINGLES(5, 1, -7, 3.3, 0, 0.001), CORE_F32,
                          device_of("sim"), false, -1);
    quantized with, without, empty;
    uint8_t bytes[2][5];
    uint64_t waits;
    double a, b;

    make(CORE_SCALING_CURRENT, CORE_F8E4M3, 0);
    with = quantize(x);
    make(CORE_SCALING_CURRENT, CORE_F8E4M3, CORE_QUANTIZER_NO_WAIT);
    waits = core_host_waits();
    without = quantize(x);
    ck_assert_uint_eq(core_host_waits(), waits);
    OK(core_tensor_item_float(with.scales, &a));
    OK(core_tensor_item_float(without.scales, &b));
    ck_assert_double_eq(a, b);
    OK(core_tensor_read(with.data, bytes[0], 5));
    OK(core_tensor_read(without.data, bytes[1], 5));
    ck_assert_mem_eq(bytes[0], bytes[1], 5);
    ck_assert_float_eq(state_now().scale, 64);
    ck_assert_float_eq(state_now().amax, 7);
    ck_assert_uint_eq(state_now().calls, 1);
    empty = quantize(SINGLES(2, 0, 0));
    HOLDS(empty.scales, 1, 1);
    ck_assert_float_eq(state_now().scale, 1);
    without = quantize(SINGLES(2, 1, NAN));
    OK(core_tensor_item_float(without.scales, &b));
    ck_assert(isnan(b));
    HOLDS(CALL(isnan, dequantized(without)), 2, 1, 1);
    without = quantize(SINGLES(3, 1, -INFINITY, -7));
    HOLDS(CALL(isinf, dequantized(without)), 3, 0, 1, 0);
    HOLDS(CALL(eq_scalar, dequantized(without), core_float(0)), 3, 1, 0, 1);
    ck_assert_float_eq(state_now().amax, INFINITY);
}
END_TEST

/* "meta" has no data: with NO_WAIT the call succeeds; a call that needs a
 * number fails and names the quantizer. */
START_TEST(quantizer_on_meta_refuses_data_dependent_calls)
{
    core_tensor *x =
        CALL(empty, (int64_t[]){2, 64}, 2, CORE_F32, device_of("meta"), -1);
    core_tensor *data = NULL, *scales = NULL;

    for (uint32_t scaling = 1; scaling <= 3; scaling++) {
        core_quantizer_state before;
        quantized q;

        make(scaling, CORE_F8E4M3, 0);
        before = state_now();
        FAILS(core_quantizer_quantize(quantizer, x, &data, &scales),
              CORE_ERROR_DATA_DEPENDENT, "quantizer: ", "\"meta\"",
              "CORE_QUANTIZER_NO_WAIT");
        ck_assert_ptr_null(data);
        ck_assert_mem_eq(&before, (core_quantizer_state[]){state_now()},
                         sizeof before);
        make(scaling, CORE_F8E4M3, CORE_QUANTIZER_NO_WAIT);
        before = state_now();
        q = quantize(x);
        ck_assert_ptr_eq(core_tensor_device(q.data), device_of("meta"));
        ck_assert_int_eq(core_tensor_size(q.data, 1), 64);
        FAILS(core_quantizer_get_state(quantizer, &before),
              CORE_ERROR_DATA_DEPENDENT, "quantizer: ", "\"meta\"",
              "core_quantizer_set_state");
        ck_assert_ptr_null(core_quantizer_history(quantizer));
        if (scaling == CORE_SCALING_DELAYED)
            FAILS(core_quantizer_quantize(quantizer, SINGLES(1, 7), &data,
                                          &scales),
                  CORE_ERROR_DATA_DEPENDENT, "quantizer: ", "\"meta\"",
                  "core_quantizer_set_state");
        else
            quantize(typed(CORE_F32, 2, (int64_t[]){1, 32}, (double[32]){7}));
        OK(core_quantizer_set_state(quantizer, &before, NULL));
        quantize(typed(CORE_F32, 2, (int64_t[]){1, 32}, (double[32]){7}));
        ck_assert_float_eq(state_now().amax, 7);
    }
    /* A tensor without elements needs no data. */
    make(CORE_SCALING_CURRENT, CORE_F8E4M3, 0);
    quantize(
        CALL(empty, (int64_t[]){0, 32}, 2, CORE_F32, device_of("meta"), -1));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        current_scaling_uses_the_whole_range,
        power_of_two_scale_is_rounded_down,
        zeros_and_tiny_numbers_get_a_finite_scale,
        delayed_scaling_uses_maxima_of_earlier_calls,
        most_recent_flag_and_margin_determine_the_scale,
        block_scales_are_powers_of_two,
        stochastic_rounding_draws_for_every_element,
        saved_quantizer_state_can_be_loaded,
        refused_tensor_leaves_the_state_unchanged,
        invalid_options_and_states_are_refused,
        no_wait_quantizer_computes_scale_on_device,
        quantizer_on_meta_refuses_data_dependent_calls,
    };
    const test_suite suite = {
        .name = "quant/quantizer",
        .teardown = teardown,
        .seconds = 60,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
