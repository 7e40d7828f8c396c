/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Quantizers that never synchronize (CORE_QUANTIZER_NO_WAIT), compared with
 * those that do: the same numbers, available later; on several streams, with
 * non-finite data, and after a failed call. */

#include "support/devices.h"

#include <libcore/grad_scaler.h>
#include <libcore/linear.h>
#include <libcore/quantizer.h>

#include <math.h>

enum { LENGTH = 3, ROWS = 4, COLUMNS = 64, NUMEL = ROWS * COLUMNS };

/* A state is set or moves between devices, which synchronizes. */
static bool sync_allowed;

static core_quantizer *pair[2]; /* one that synchronizes, one that does not */

static core_quantizer *quantizer_of(uint32_t scaling, uint32_t flags,
                                    int32_t margin)
{
    const core_quantizer_options options = {
        .struct_size = sizeof options,
        .scaling = scaling,
        .dtype = CORE_F8E4M3,
        .flags = flags,
        .history_length = LENGTH,
        .margin = margin,
    };
    core_quantizer *quantizer;

    OK(core_quantizer_create(&options, &quantizer));
    return quantizer;
}

static void drop_pair(void)
{
    for (int i = 0; i < 2; i++) {
        core_quantizer_release(pair[i]);
        pair[i] = NULL;
    }
}

static void make_pair(uint32_t scaling, uint32_t flags, int32_t margin)
{
    drop_pair();
    for (int i = 0; i < 2; i++)
        pair[i] = quantizer_of(
            scaling, flags | (i ? CORE_QUANTIZER_NO_WAIT : 0), margin);
}

static void teardown(void)
{
    drop_pair();
    drop_all();
    sync_allowed = false;
}

static core_quantizer_state state_of(core_quantizer *quantizer)
{
    core_quantizer_state state = {.struct_size = sizeof state};

    OK(core_quantizer_get_state(quantizer, &state));
    return state;
}

static core_tensor *of_size(double size, const char *place)
{
    static double values[NUMEL];
    core_tensor *tensor;

    for (int i = 0; i < NUMEL; i++)
        values[i] = size * sin(i + 1) * (i / 32 % 3);
    OK(core_tensor_from_data(values, CORE_F64, (int64_t[]){ROWS, COLUMNS}, 2,
                             device_of(place), &tensor));
    return CALL(to_copy, keep(tensor), CORE_F32, NULL, false, -1);
}

static void read_bytes(core_tensor *tensor, uint8_t *bytes)
{
    OK(core_tensor_read(tensor, bytes,
                        (size_t)core_tensor_numel(tensor) *
                            core_dtype_size(core_tensor_dtype(tensor))));
}

/* Calls both: data, scales and the sizes of scales must be equal. */
static void check_call(core_tensor *x)
{
    static uint8_t bytes[2][NUMEL];
    core_tensor *data[2], *scales[2], *wide[2];

    for (int i = 0; i < 2; i++) {
        uint64_t waits = core_host_waits();

        OK(core_quantizer_quantize(pair[i], x, &data[i], &scales[i]));
        OK(core_dequantize(keep(data[i]), keep(scales[i]), CORE_F32, &wide[i]));
        keep(wide[i]);
        if (i && !sync_allowed)
            ck_assert_uint_eq(core_host_waits(), waits);
    }
    for (int i = 0; i < 2; i++)
        read_bytes(data[i], bytes[i]);
    ck_assert_mem_eq(bytes[0], bytes[1], NUMEL);
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < 2; i++)
        read_bytes(scales[i], bytes[i]);
    ck_assert_mem_eq(bytes[0], bytes[1], NUMEL);
}

static void check_states(void)
{
    core_quantizer_state states[2] = {state_of(pair[0]), state_of(pair[1])};

    states[1].saturated = states[0].saturated; /* not counted without waits */
    ck_assert_mem_eq(&states[0], &states[1], sizeof states[0]);
    ck_assert_mem_eq(core_quantizer_history(pair[0]),
                     core_quantizer_history(pair[1]),
                     states[0].history_count * sizeof(float));
}

static const double courses[] = {1, 0, 50, 3, 3e-39, 0.2, 0, 0, 0, 0, 700};

START_TEST(no_wait_quantizer_equals_waiting_quantizer)
{
    const uint32_t flags[] = {0, CORE_QUANTIZER_POWER_OF_TWO,
                              CORE_QUANTIZER_MOST_RECENT};

    for (int p = 0; p < 2; p++)
        for (uint32_t scaling = 1; scaling <= 3; scaling++)
            for (int f = 0; f < (int)(sizeof flags / sizeof *flags); f++) {
                make_pair(scaling, flags[f], f * 3 - 2);
                for (size_t i = 0; i < sizeof courses / sizeof *courses; i++) {
                    /* For zeros only, the one that waits keeps its scale. */
                    if (scaling == CORE_SCALING_CURRENT && courses[i] == 0)
                        continue;
                    check_call(of_size(courses[i], p ? "sim" : "cpu"));
                    if (i % 3 == 1)
                        check_states();
                }
                check_states();
            }
}
END_TEST

START_TEST(no_wait_state_moves_between_devices)
{
    core_quantizer_state state;

    sync_allowed = true;
    make_pair(CORE_SCALING_DELAYED, 0, 0);
    check_call(of_size(5, "sim"));
    check_call(of_size(2, "sim"));
    state = state_of(pair[1]);
    ck_assert_uint_eq(state.history_count, 2);
    OK(core_quantizer_set_state(pair[0], &state,
                                core_quantizer_history(pair[1])));
    check_call(of_size(1, "cpu"));
    check_call(of_size(1, "sim"));
    check_states();
    /* A loaded state replaces whatever the device has. */
    check_call(of_size(9, "sim"));
    for (int i = 0; i < 2; i++)
        OK(core_quantizer_set_state(pair[i], &state, (float[]){1, 4}));
    check_call(of_size(3, "sim"));
    check_states();
}
END_TEST

START_TEST(non_finite_data_passes_through_and_is_forgotten)
{
    const double bad[] = {NAN, INFINITY, -INFINITY};
    core_tensor *x, *data, *scales, *wide, *first;

    for (uint32_t scaling = 1; scaling <= 3; scaling++)
        for (int i = 0; i < 3; i++) {
            core_quantizer_state state;
            double number;

            make_pair(scaling, 0, 0);
            check_call(of_size(4, "cpu"));
            x = of_size(4, "cpu");
            first = CALL(narrow, CALL(narrow, x, 0, 0, 1), 1, 0, 1);
            OK(core_fill_(first, core_float(bad[i])));
            OK(core_quantizer_quantize(pair[1], x, &data, &scales));
            OK(core_dequantize(keep(data), keep(scales), CORE_F32, &wide));
            first = CALL(narrow, CALL(narrow, keep(wide), 0, 0, 1), 1, 0, 1);
            OK(core_tensor_item_float(first, &number));
            ck_assert(!isfinite(number));
            state = state_of(pair[1]);
            ck_assert(i ? isinf(state.amax) : isnan(state.amax));
            ck_assert(isfinite(state.scale) && state.scale > 0);
            /* Such a state can still be saved and loaded. */
            OK(core_quantizer_set_state(pair[1], &state,
                                        core_quantizer_history(pair[1])));
            OK(core_quantizer_quantize(pair[1], of_size(4, "cpu"), &data,
                                       &scales));
            OK(core_dequantize(keep(data), keep(scales), CORE_F32, &wide));
            keep(wide);
            HOLDS(CALL(sum, CALL(isfinite, wide), CORE_DTYPE_NONE), 1, NUMEL);
        }
}
END_TEST

START_TEST(no_wait_quantizer_is_ordered_across_streams)
{
    core_device *sim = (setenv("LIBCORE_SIM_CHECK", "1", 1), device_of("sim"));
    core_stream *streams[2] = {new_stream("sim"), new_stream("sim")};
    core_tensor *x = of_size(6, "sim");

    OK(core_device_synchronize(sim));
    for (uint32_t scaling = 1; scaling <= 3; scaling++) {
        make_pair(scaling, 0, 0);
        for (int i = 0; i < 6; i++) {
            core_stream_guard guard;

            OK(core_stream_guard_enter(streams[i % 2], &guard));
            check_call(x);
            core_stream_guard_leave(&guard);
            if (i == 3)
                ck_assert_float_gt(state_of(pair[1]).amax, 5);
        }
        check_states();
        OK(core_device_synchronize(sim));
    }
    for (int i = 0; i < 2; i++)
        core_stream_release(streams[i]);
}
END_TEST

/* --------------------------------------------- in the fused linear layer -- */

START_TEST(failed_call_restores_device_state)
{
    core_quantizer *other = quantizer_of(CORE_SCALING_BLOCK, 0, 0);
    core_tensor *x = of_size(3, "cpu"), *y;
    core_linear_forward_args args = {.struct_size = sizeof args,
                                     .input = x,
                                     .weight = CALL(narrow, x, 0, 0, 2)};

    make_pair(CORE_SCALING_DELAYED, 0, 0);
    for (int i = 0; i < LENGTH + 2; i++) {
        check_call(of_size(LENGTH + 2 - i, "cpu"));
        for (int k = 0; k < 2; k++) {
            args.input_quantizer = pair[k];
            args.weight_quantizer = other;
            /* The weight has an element that is NaN. */
            args.weight = CALL(full, (int64_t[]){2, COLUMNS}, 2,
                               core_float(NAN), CORE_F32, NULL);
            FAILS(core_linear_apply(&args, &y), CORE_ERROR_INVALID_ARGUMENT,
                  "block 0");
        }
        if (i % 2)
            check_states();
    }
    check_states();
    core_quantizer_release(other);
}
END_TEST

/* The loss scale is far too large: steps are skipped and the scale decreases
 * until it fits. */
START_TEST(grad_scaler_backs_off_when_float8_overflows)
{
    const core_grad_scaler_state from = {.struct_size = sizeof from,
                                         .scale = 0x1p120,
                                         .growth_factor = 2,
                                         .backoff_factor = 0x1p-20,
                                         .growth_interval = 1000};
    const core_sgd_options sgd = {.struct_size = sizeof sgd,
                                  .learning_rate = 1e-3};
    core_tensor *w = leaf(CALL(mul_scalar, of_size(1, "cpu"), core_float(1)));
    core_quantizer *grads =
        quantizer_of(CORE_SCALING_DELAYED, CORE_QUANTIZER_NO_WAIT, 0);
    core_linear_forward_args args = {
        .struct_size = sizeof args, .input = of_size(1e4, "cpu"), .weight = w};
    core_grad_scaler *scaler;
    core_optimizer *optimizer;
    int steps = 0;

    make_pair(CORE_SCALING_CURRENT, 0, 0);
    args.input_quantizer = pair[0];
    args.weight_quantizer = pair[1];
    args.grad_quantizer = grads;
    OK(core_grad_scaler_create(&from, &scaler));
    OK(core_sgd_create(&w, 1, &sgd, &optimizer));
    for (int i = 0; i < 8; i++) {
        core_tensor *y, *loss, *scaled;
        bool stepped;

        core_optimizer_zero_grad(optimizer);
        OK(core_linear_apply(&args, &y));
        loss = CALL(sum, CALL(mul, keep(y), y), CORE_DTYPE_NONE);
        OK(core_grad_scaler_scale(scaler, loss, &scaled));
        backward(keep(scaled));
        OK(core_grad_scaler_step(scaler, optimizer, &stepped));
        OK(core_grad_scaler_update(scaler));
        ck_assert(i > 0 || !stepped);
        steps += stepped;
    }
    ck_assert_int_gt(steps, 3);
    core_optimizer_release(optimizer);
    core_grad_scaler_release(scaler);
    core_quantizer_release(grads);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        no_wait_quantizer_equals_waiting_quantizer,
        no_wait_state_moves_between_devices,
        non_finite_data_passes_through_and_is_forgotten,
        no_wait_quantizer_is_ordered_across_streams,
        failed_call_restores_device_state,
        grad_scaler_backs_off_when_float8_overflows,
    };
    const test_suite suite = {
        .name = "quant/async_scaling",
        .teardown = teardown,
        .seconds = 60,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
