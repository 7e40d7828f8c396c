/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient scaler: gradients are unscaled, steps with a non-finite gradient
 * are skipped, and the scale grows and backs off. */

#include "support/devices.h"

#include "base/memory.h"

#include <libcore/grad_scaler.h>
#include <libcore/optim.h>

#include <math.h>

static core_grad_scaler *scaler;
static core_optimizer *optimizer;
static core_tensor *w;

static core_grad_scaler_state numbers(double scale, uint64_t interval)
{
    return (core_grad_scaler_state){.struct_size =
                                        sizeof(core_grad_scaler_state),
                                    .scale = scale,
                                    .growth_factor = 2,
                                    .backoff_factor = 0.5,
                                    .growth_interval = interval};
}

static core_optimizer *sgd(core_tensor **parameters, size_t count)
{
    core_sgd_options options = {.struct_size = sizeof options,
                                .learning_rate = 1};
    core_optimizer *made;

    OK(core_sgd_create(parameters, count, &options, &made));
    return made;
}

static void setup(void)
{
    core_grad_scaler_state state = numbers(8, 2);

    w = leaf(typed(CORE_F32, 1, (int64_t[]){2}, (double[]){1, 2}));
    optimizer = sgd(&w, 1);
    OK(core_grad_scaler_create(&state, &scaler));
}

static void teardown(void)
{
    core_grad_scaler_release(scaler);
    core_optimizer_release(optimizer);
    drop_all();
}

/* Computes the gradients of sum(of * factor), scaled. */
static void gradients(core_tensor *of, double factor)
{
    core_tensor *scaled, *loss = sum(CALL(mul_scalar, of, core_float(factor)));

    OK(core_grad_scaler_scale(scaler, loss, &scaled));
    backward(keep(scaled));
}

static void clear(void)
{
    core_optimizer_zero_grad(optimizer);
}

#define SCALE_IS(x) ck_assert_double_eq(core_grad_scaler_get_scale(scaler), x)

START_TEST(step_uses_unscaled_gradients)
{
    bool stepped = false;

    gradients(w, 0.25);
    HOLDS(core_tensor_grad(w), 2, 2, 2);
    OK(core_grad_scaler_step(scaler, optimizer, &stepped));
    ck_assert(stepped);
    HOLDS(core_tensor_grad(w), 2, 0.25, 0.25);
    HOLDS(w, 2, 0.75, 1.75);
    OK(core_grad_scaler_update(scaler));
}
END_TEST

START_TEST(unscaled_gradients_can_be_clipped_before_the_step)
{
    gradients(w, 4);
    OK(core_grad_scaler_unscale(scaler, optimizer));
    HOLDS(core_tensor_grad(w), 2, 4, 4);
    OK(core_clip_grad_value(&w, 1, 1));
    OK(core_grad_scaler_step(scaler, optimizer, NULL));
    HOLDS(w, 2, 0, 1);
    OK(core_grad_scaler_update(scaler));
}
END_TEST

static void check_skips_step(double factor)
{
    bool stepped = true;

    gradients(w, factor);
    OK(core_grad_scaler_step(scaler, optimizer, &stepped));
    ck_assert(!stepped);
    HOLDS(w, 2, 1, 2);
    OK(core_grad_scaler_update(scaler));
    clear();
}

START_TEST(non_finite_gradient_skips_the_step)
{
    check_skips_step(INFINITY);
    SCALE_IS(4);
    check_skips_step(-INFINITY);
    SCALE_IS(2);
    check_skips_step(NAN);
    SCALE_IS(1);
    /* Finite before scaling, infinite after it. */
    OK(core_grad_scaler_set_scale(scaler, 8));
    check_skips_step(3e38);
    SCALE_IS(4);
}
END_TEST

/* Finite while scaled, but infinite in its dtype once unscaled. */
START_TEST(gradient_made_infinite_by_unscaling_skips_the_step)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_BF16};
    core_tensor *wide = leaf(typed(CORE_F64, 1, (int64_t[]){1}, (double[]){1}));

    for (int i = 0; i < 2; i++) {
        core_tensor *narrow =
            leaf(typed(dtypes[i], 1, (int64_t[]){1}, (double[]){1}));
        core_tensor *both[] = {narrow, wide};
        core_optimizer *other = sgd(both, 2);
        bool stepped = true;

        OK(core_grad_scaler_set_scale(scaler, 0x1p-4));
        gradients(wide, 1);
        gradients(narrow, 0x1p127);
        OK(core_grad_scaler_step(scaler, other, &stepped));
        ck_assert(stepped);
        OK(core_grad_scaler_update(scaler));
        core_optimizer_zero_grad(other);
        gradients(wide, 1);
        OK(core_tensor_set_grad(
            narrow, typed(dtypes[i], 1, (int64_t[]){1}, (double[]){0x1p125})));
        OK(core_grad_scaler_step(scaler, other, &stepped));
        ck_assert(!stepped);
        OK(core_grad_scaler_update(scaler));
        core_optimizer_release(other);
    }
}
END_TEST

START_TEST(single_non_finite_element_is_found)
{
    int64_t n = 100003;
    core_tensor *many, *ones, *grad;
    core_optimizer *other;
    bool stepped = true;

    OK(core_ones(&n, 1, CORE_F32, NULL, &many));
    leaf(keep(many));
    for (int64_t at = 0; at < n; at += 33334) {
        OK(core_ones(&n, 1, CORE_F32, NULL, &ones));
        OK(core_narrow(keep(ones), 0, at, 1, &grad));
        OK(core_fill_(keep(grad), core_float(at & 1 ? NAN : INFINITY)));
        OK(core_tensor_set_grad(many, ones));
        other = sgd(&many, 1);
        OK(core_grad_scaler_step(scaler, other, &stepped));
        ck_assert(!stepped);
        OK(core_grad_scaler_update(scaler));
        core_optimizer_release(other);
    }
}
END_TEST

START_TEST(scale_grows_after_growth_interval_good_steps)
{
    for (int i = 0; i < 5; i++) {
        gradients(w, 0.25);
        OK(core_grad_scaler_step(scaler, optimizer, NULL));
        OK(core_grad_scaler_update(scaler));
        clear();
        SCALE_IS(i < 1 ? 8 : i < 3 ? 16 : 32);
    }
    /* A skipped step restarts the count. */
    gradients(w, NAN);
    OK(core_grad_scaler_step(scaler, optimizer, NULL));
    OK(core_grad_scaler_update(scaler));
    clear();
    SCALE_IS(16);
    gradients(w, 0.25);
    OK(core_grad_scaler_step(scaler, optimizer, NULL));
    OK(core_grad_scaler_update(scaler));
    SCALE_IS(16);
}
END_TEST

START_TEST(scale_stays_finite_and_positive)
{
    core_grad_scaler_state state = numbers(8e37, 1);

    OK(core_grad_scaler_set_state(scaler, &state));
    gradients(w, 1e-30);
    OK(core_grad_scaler_step(scaler, optimizer, NULL));
    OK(core_grad_scaler_update(scaler));
    clear();
    SCALE_IS(8e37);
    for (int i = 0; i < 400; i++) {
        gradients(w, NAN);
        OK(core_grad_scaler_step(scaler, optimizer, NULL));
        OK(core_grad_scaler_update(scaler));
        clear();
    }
    ck_assert_double_gt(core_grad_scaler_get_scale(scaler), 0);
}
END_TEST

START_TEST(several_optimizers_may_share_a_scaler)
{
    core_tensor *v = leaf(typed(CORE_F64, 1, (int64_t[]){1}, (double[]){1}));
    core_optimizer *other = sgd(&v, 1);
    bool stepped = true;

    gradients(w, 0.25);
    gradients(v, INFINITY);
    OK(core_grad_scaler_step(scaler, other, &stepped));
    ck_assert(!stepped);
    OK(core_grad_scaler_step(scaler, optimizer, &stepped));
    ck_assert(stepped);
    HOLDS(w, 2, 0.75, 1.75);
    HOLDS(v, 1, 1);
    OK(core_grad_scaler_update(scaler));
    SCALE_IS(4);
    core_optimizer_release(other);
}
END_TEST

START_TEST(unscale_without_step_counts_non_finite_gradients)
{
    gradients(w, INFINITY);
    OK(core_grad_scaler_unscale(scaler, optimizer));
    OK(core_grad_scaler_update(scaler));
    SCALE_IS(4);
}
END_TEST

START_TEST(gradients_of_any_dtype_but_f16_are_unscaled_on_any_device)
{
    core_tensor *p[4] = {w, leaf(typed(CORE_F64, 0, NULL, (double[]){1})),
                         leaf(typed(CORE_BF16, 0, NULL, (double[]){1})), NULL};
    core_tensor *low = leaf(typed(CORE_F16, 0, NULL, (double[]){1}));
    core_optimizer *all, *half = sgd(&low, 1);
    bool stepped = false;

    p[3] = leaf(fresh_on(SCALAR(1), "sim"));
    all = sgd(p, 4);
    gradients(p[0], 0.5);
    gradients(p[1], 1e300); /* finite in f64 */
    gradients(p[2], 0.5);
    gradients(p[3], 0.5);
    OK(core_grad_scaler_step(scaler, all, &stepped));
    ck_assert(stepped);
    HOLDS(p[2], 1, 0.5);
    HOLDS(p[3], 1, 0.5);
    OK(core_grad_scaler_update(scaler));
    core_optimizer_zero_grad(all);
    gradients(p[0], 0.5);
    gradients(p[3], NAN);
    OK(core_grad_scaler_step(scaler, all, &stepped));
    ck_assert(!stepped);
    OK(core_grad_scaler_update(scaler));
    gradients(low, 0.5);
    FAILS(core_grad_scaler_step(scaler, half, &stepped), CORE_ERROR_DTYPE,
          "f16");
    HOLDS(core_tensor_grad(low), 1, 2);
    core_optimizer_release(all);
    core_optimizer_release(half);
}
END_TEST

START_TEST(step_synchronizes_once_per_device)
{
    core_tensor *p[12];
    core_optimizer *all;
    uint64_t before;

    for (int i = 0; i < 12; i++)
        p[i] = leaf(fresh_on(SCALAR(1), "sim"));
    all = sgd(p, 12);
    for (int i = 0; i < 12; i++)
        gradients(p[i], 0.5);
    before = core_host_waits();
    OK(core_grad_scaler_step(scaler, all, NULL));
    ck_assert_uint_eq(core_host_waits() - before, 1);
    OK(core_grad_scaler_update(scaler));
    ck_assert_uint_eq(core_host_waits() - before, 1);
    core_optimizer_release(all);
}
END_TEST

START_TEST(calls_out_of_order_are_refused)
{
    bool stepped = true;

    FAILS(core_grad_scaler_update(scaler), CORE_ERROR_AUTOGRAD, "no optimizer");
    FAILS(core_grad_scaler_step(scaler, optimizer, &stepped),
          CORE_ERROR_AUTOGRAD, "has a grad");
    ck_assert(!stepped);
    gradients(w, 0.25);
    OK(core_grad_scaler_unscale(scaler, optimizer));
    FAILS(core_grad_scaler_unscale(scaler, optimizer), CORE_ERROR_AUTOGRAD,
          "unscaled");
    HOLDS(core_tensor_grad(w), 2, 0.25, 0.25);
    FAILS(core_grad_scaler_set_scale(scaler, 4), CORE_ERROR_AUTOGRAD, "update");
    OK(core_grad_scaler_step(scaler, optimizer, NULL));
    FAILS(core_grad_scaler_step(scaler, optimizer, NULL), CORE_ERROR_AUTOGRAD,
          "stepped");
    FAILS(core_grad_scaler_unscale(scaler, optimizer), CORE_ERROR_AUTOGRAD,
          "stepped");
    HOLDS(w, 2, 0.75, 1.75);
    SCALE_IS(8);
    OK(core_grad_scaler_update(scaler));
}
END_TEST

START_TEST(invalid_scaler_options_are_refused)
{
    core_grad_scaler_state state;
    core_grad_scaler *made;

#define REFUSED(field, value, text)                                            \
    state = numbers(8, 2);                                                     \
    state.field = value;                                                       \
    FAILS(core_grad_scaler_create(&state, &made), CORE_ERROR_INVALID_ARGUMENT, \
          text);                                                               \
    ck_assert_ptr_null(made);                                                  \
    FAILS(core_grad_scaler_set_state(scaler, &state),                          \
          CORE_ERROR_INVALID_ARGUMENT, text)
    REFUSED(scale, 0, "scale");
    REFUSED(scale, NAN, "scale");
    REFUSED(scale, INFINITY, "scale");
    REFUSED(scale, 1e-320, "scale");
    REFUSED(scale, 1e-38, "scale");
    REFUSED(scale, 8.6e37, "scale");
    REFUSED(scale, 1e300, "scale");
    REFUSED(growth_factor, 1, "growth_factor");
    REFUSED(backoff_factor, 1, "backoff_factor");
    REFUSED(growth_interval, 0, "growth_interval");
    REFUSED(flags, 8, "0x8");
    REFUSED(struct_size, 4, "struct_size");
    SCALE_IS(8);
    FAILS(core_grad_scaler_set_scale(scaler, -1), CORE_ERROR_INVALID_ARGUMENT,
          "scale");
    FAILS(core_grad_scaler_set_scale(scaler, 1e-320),
          CORE_ERROR_INVALID_ARGUMENT, "scale");
    FAILS(core_grad_scaler_create(NULL, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "NULL");
    FAILS(core_grad_scaler_step(NULL, optimizer, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    FAILS(core_grad_scaler_step(scaler, NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "NULL");
    core_grad_scaler_release(NULL);
}
END_TEST

START_TEST(saved_scaler_state_can_be_loaded)
{
    core_grad_scaler_state state = {.struct_size = sizeof state};
    core_grad_scaler *other;

    gradients(w, 0.25);
    OK(core_grad_scaler_step(scaler, optimizer, NULL));
    OK(core_grad_scaler_update(scaler));
    clear();
    OK(core_grad_scaler_get_state(scaler, &state));
    ck_assert_uint_eq(state.growth_tracker, 1);
    OK(core_grad_scaler_create(NULL, &other));
    ck_assert_double_eq(core_grad_scaler_get_scale(other), 65536);
    OK(core_grad_scaler_set_state(other, &state));
    core_grad_scaler_release(scaler);
    scaler = other;
    SCALE_IS(8);
    gradients(w, 0.25);
    OK(core_grad_scaler_step(scaler, optimizer, NULL));
    OK(core_grad_scaler_update(scaler));
    SCALE_IS(16);
}
END_TEST

/* 3 * 32768 overflows f16; its gradient, 32768, does not. */
START_TEST(scalar_f16_loss_is_scaled_in_f32)
{
    core_tensor *low = leaf(typed(CORE_F16, 0, NULL, (double[]){3})), *scaled;
    core_tensor *many = leaf(typed(CORE_F16, 1, (int64_t[]){1}, (double[]){3}));

    OK(core_grad_scaler_set_scale(scaler, 32768));
    OK(core_grad_scaler_scale(scaler, low, &scaled));
    ck_assert_uint_eq(core_tensor_dtype(keep(scaled)), CORE_F32);
    HOLDS(scaled, 1, 98304);
    backward(scaled);
    ck_assert_uint_eq(core_tensor_dtype(core_tensor_grad(low)), CORE_F16);
    HOLDS(core_tensor_grad(low), 1, 32768);
    OK(core_grad_scaler_scale(scaler, many, &scaled));
    ck_assert_uint_eq(core_tensor_dtype(keep(scaled)), CORE_F16);
}
END_TEST

START_TEST(disabled_scaler_passes_everything_through)
{
    core_grad_scaler_state state = numbers(8, 2);
    bool stepped = false;

    state.flags = CORE_GRAD_SCALER_OFF;
    OK(core_grad_scaler_set_state(scaler, &state));
    gradients(w, 0.25);
    HOLDS(core_tensor_grad(w), 2, 0.25, 0.25);
    OK(core_grad_scaler_step(scaler, optimizer, &stepped));
    ck_assert(stepped);
    OK(core_grad_scaler_update(scaler));
    SCALE_IS(1);
}
END_TEST

START_TEST(failed_unscale_changes_no_gradient)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    int64_t live, failed = 0;

    gradients(w, 0.25);
    OK(core_grad_scaler_unscale(scaler, optimizer));
    OK(core_grad_scaler_update(scaler));
    OK(core_mul_scalar_(core_tensor_grad(w), core_float(8)));
    live = core__alloc_live();
    for (int64_t n = 0; status != CORE_OK; n++) {
        core__alloc_fault_set(n, false);
        status = core_grad_scaler_unscale(scaler, optimizer);
        core__alloc_fault_set(-1, false);
        if (status == CORE_OK)
            break;
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        HOLDS(core_tensor_grad(w), 2, 2, 2);
        ck_assert_int_le(core__alloc_live(), live);
        failed++;
    }
    ck_assert_int_gt(failed, 5);
    HOLDS(core_tensor_grad(w), 2, 0.25, 0.25);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        step_uses_unscaled_gradients,
        unscaled_gradients_can_be_clipped_before_the_step,
        non_finite_gradient_skips_the_step,
        gradient_made_infinite_by_unscaling_skips_the_step,
        single_non_finite_element_is_found,
        scale_grows_after_growth_interval_good_steps,
        scale_stays_finite_and_positive,
        several_optimizers_may_share_a_scaler,
        unscale_without_step_counts_non_finite_gradients,
        gradients_of_any_dtype_but_f16_are_unscaled_on_any_device,
        step_synchronizes_once_per_device,
        calls_out_of_order_are_refused,
        invalid_scaler_options_are_refused,
        saved_scaler_state_can_be_loaded,
        scalar_f16_loss_is_scaled_in_f32,
        disabled_scaler_passes_everything_through,
        failed_unscale_changes_no_gradient,
    };
    const test_suite suite = {
        .name = "optim/grad_scaler",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
