/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Clipping, learning-rate schedules and AdamW against their formulas, computed
 * here in f64. */

#include "support/stream.h"

#include <libcore/optim.h>

#include <math.h>

static core_tensor *grad_of(core_tensor *parameter, core_tensor *grad)
{
    OK(core_tensor_set_grad(leaf(parameter), grad));
    return parameter;
}

static double number(core_tensor *tensor)
{
    double value;

    OK(core_tensor_item_float(tensor, &value));
    return value;
}

/* Two parameters with grads (3, -4) and 12, whose joint norm is 13. */
static void make_two(core_tensor **out)
{
    out[0] = grad_of(VECTOR(2, 0, 0), VECTOR(2, 3, -4));
    out[1] = grad_of(MATRIX(1, 1, 0), MATRIX(1, 1, 12));
}

static double clip_two(core_tensor *const *two, double largest, double order)
{
    core_tensor *norm;

    OK(core_clip_grad_norm(two, 2, largest, order, false, &norm));
    return number(keep(norm));
}

/* ------------------------------------------------------------ clipping -- */

START_TEST(clip_grad_norm_scales_grads_as_one_vector)
{
    const double norms[] = {13, 19, 12};
    const double orders[] = {2, 1, INFINITY};

    for (int i = 0; i < 3; i++) {
        double factor = 6.5 / (norms[i] + 1e-6);
        core_tensor *two[2];
        double have[2];

        make_two(two);
        ck_assert_double_eq_tol(clip_two(two, 6.5, orders[i]), norms[i], 1e-12);
        OK(core_tensor_read(core_tensor_grad(two[0]), have, sizeof have));
        ck_assert_double_eq_tol(have[0], 3 * factor, 1e-14);
        ck_assert_double_eq_tol(have[1], -4 * factor, 1e-14);
        OK(core_tensor_read(core_tensor_grad(two[1]), have, sizeof *have));
        ck_assert_double_eq_tol(have[0], 12 * factor, 1e-14);
    }
}
END_TEST

/* An empty gradient has no largest element, and adds nothing. */
START_TEST(clip_grad_norm_ignores_empty_grads)
{
    const double orders[] = {2, .5, INFINITY};
    const int64_t none = 0;
    core_tensor *two[2] = {grad_of(CALL(zeros, &none, 1, CORE_F64, NULL),
                                   CALL(zeros, &none, 1, CORE_F64, NULL)),
                           grad_of(VECTOR(1, 0), VECTOR(1, 12))};
    core_tensor *norm;

    for (int i = 0; i < 3; i++) {
        ck_assert_double_eq_tol(clip_two(two, 100, orders[i]), 12, 1e-12);
        OK(core_clip_grad_norm(two, 1, 100, orders[i], true, &norm));
        ck_assert_double_eq(number(keep(norm)), 0);
    }
}
END_TEST

START_TEST(clip_grad_norm_keeps_small_grads_unchanged)
{
    core_tensor *two[2];
    double have[2];

    make_two(two);
    ck_assert_double_eq(clip_two(two, 13.1, 2), 13);
    OK(core_tensor_read(core_tensor_grad(two[0]), have, sizeof have));
    ck_assert_double_eq(have[0], 3);
    ck_assert_double_eq(have[1], -4);
}
END_TEST

START_TEST(clip_grad_norm_ignores_parameters_without_grad)
{
    core_tensor *three[3], *norm;

    make_two(three + 1);
    three[0] = leaf(VECTOR(1, 7));
    OK(core_clip_grad_norm(three, 3, 1, 2, false, &norm));
    ck_assert_double_eq(number(keep(norm)), 13);
    ck_assert_ptr_null(core_tensor_grad(three[0]));
    OK(core_clip_grad_norm(three, 1, 1, 2, true, &norm));
    ck_assert_double_eq(number(keep(norm)), 0);
    OK(core_clip_grad_norm(NULL, 0, 1, 2, false, NULL));
}
END_TEST

START_TEST(clip_grad_norm_of_f16_is_computed_in_f32)
{
    const int64_t n = 3;
    const double start[3] = {0, 0, 0}, large[3] = {300, 400, 0};
    core_tensor *p =
        grad_of(typed(CORE_F16, 1, &n, start), typed(CORE_F16, 1, &n, large));
    core_tensor *norm;

    /* 300 * 300 overflows f16. */
    OK(core_clip_grad_norm(&p, 1, 5, 2, true, &norm));
    ck_assert_uint_eq(core_tensor_dtype(keep(norm)), CORE_F32);
    ck_assert_double_eq(number(norm), 500);
    ck_assert_double_eq_tol(number(CALL(select, core_tensor_grad(p), 0, 1)), 4,
                            4e-3);
}
END_TEST

START_TEST(clip_grad_norm_spans_several_devices)
{
    core_device *sim = device_of("sim");
    core_tensor *two[2], *norm;

    make_two(two);
    two[1] = grad_of(filled(sim, 1, 0), filled(sim, 1, 12));
    OK(core_clip_grad_norm(two, 2, 6.5, 2, false, &norm));
    ck_assert_ptr_eq(core_tensor_device(keep(norm)),
                     core_tensor_device(two[0]));
    ck_assert_double_eq_tol(number(norm), 13, 1e-5);
    HOLDS(core_tensor_grad(two[0]), 2, 1.5, -2);
    ck_assert_double_eq_tol(number(core_tensor_grad(two[1])), 6, 1e-5);
}
END_TEST

START_TEST(non_finite_norm_is_reported_before_grads_change)
{
    core_tensor *p = grad_of(VECTOR(2, 0, 0), VECTOR(2, 3, INFINITY));
    core_tensor *norm = p;
    double have[2];

    FAILS(core_clip_grad_norm(&p, 1, 1, 2, true, &norm),
          CORE_ERROR_INVALID_ARGUMENT, "the norm is inf");
    ck_assert_ptr_null(norm);
    OK(core_tensor_read(core_tensor_grad(p), have, sizeof have));
    ck_assert_double_eq(have[0], 3);
    OK(core_clip_grad_norm(&p, 1, 1, 2, false, &norm));
    ck_assert(isinf(number(keep(norm))));
    OK(core_tensor_read(core_tensor_grad(p), have, sizeof have));
    ck_assert_double_eq(have[0], 0);
    ck_assert(isnan(have[1]));
}
END_TEST

START_TEST(clip_grad_value_clamps_each_element)
{
    core_tensor *two[2];

    make_two(two);
    OK(core_clip_grad_value(two, 2, 3.5));
    HOLDS(core_tensor_grad(two[0]), 2, 3, -3.5);
    HOLDS(core_tensor_grad(two[1]), 1, 3.5);
}
END_TEST

START_TEST(clipping_refuses_invalid_arguments)
{
    const int64_t n = 2;
    core_tensor *two[2], *wrong[2];

    make_two(two);
    FAILS(core_clip_grad_norm(two, 2, -1, 2, false, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "-1");
    FAILS(core_clip_grad_norm(two, 2, NAN, 2, false, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "nan");
    FAILS(core_clip_grad_norm(two, 2, 1, 0, false, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "norm_type 0");
    FAILS(core_clip_grad_value(two, 2, -1), CORE_ERROR_INVALID_ARGUMENT, "-1");
    wrong[0] = two[0];
    wrong[1] = NULL;
    FAILS(core_clip_grad_norm(wrong, 2, 1, 2, false, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "parameter 1 is NULL");
    wrong[1] = typed(CORE_I64, 1, &n, (double[]){1, 2});
    FAILS(core_clip_grad_value(wrong, 2, 1), CORE_ERROR_DTYPE,
          "parameter 1 is i64");
    HOLDS(core_tensor_grad(two[0]), 2, 3, -4);
}
END_TEST

/* ------------------------------------------------------ learning rates -- */

START_TEST(warmup_schedule_rises_linearly)
{
    for (uint64_t step = 0; step < 9; step++)
        ck_assert_double_eq_tol(core_schedule_warmup(0.3, 9, step),
                                0.03 * (double)(step + 1), 1e-16);
    ck_assert_double_eq(core_schedule_warmup(0.3, 9, 9), 0.3);
    ck_assert_double_eq(core_schedule_warmup(0.3, 9, UINT64_MAX), 0.3);
    ck_assert_double_eq(core_schedule_warmup(0.3, 0, 0), 0.3);
}
END_TEST

START_TEST(cosine_schedule_falls_to_the_minimum)
{
    /* At thirds: the cosine of 0, 60, 120 and 180 degrees. */
    const double wanted[4] = {1, 0.1 + 0.9 * 0.75, 0.1 + 0.9 * 0.25, 0.1};

    for (uint64_t i = 0; i < 4; i++)
        ck_assert_double_eq_tol(core_schedule_cosine(1, 0.1, 5, 35, 5 + 10 * i),
                                wanted[i], 1e-15);
    ck_assert_double_eq_tol(core_schedule_cosine(1, 0.1, 5, 35, 2), 0.5, 1e-16);
    ck_assert_double_eq(core_schedule_cosine(1, 0.1, 5, 35, 36), 0.1);
    ck_assert_double_eq(core_schedule_cosine(1, 0.1, 5, 35, UINT64_MAX), 0.1);
    /* No steps after the warm-up. */
    ck_assert_double_eq(core_schedule_cosine(1, 0.1, 5, 5, 5), 0.1);
    ck_assert_double_eq(core_schedule_cosine(1, 0.1, 0, 0, 0), 0.1);
}
END_TEST

START_TEST(linear_schedule_falls_to_the_minimum)
{
    for (uint64_t i = 0; i <= 10; i++)
        ck_assert_double_eq_tol(core_schedule_linear(2, 1, 3, 13, 3 + i),
                                2 - 0.1 * (double)i, 1e-15);
    ck_assert_double_eq_tol(core_schedule_linear(2, 1, 3, 13, 0), 0.5, 1e-16);
    ck_assert_double_eq(core_schedule_linear(2, 1, 3, 13, 14), 1);
    ck_assert_double_eq(core_schedule_linear(2, 1, 3, 3, 3), 1);
}
END_TEST

START_TEST(decay_schedule_falls_in_steps)
{
    for (uint64_t step = 0; step < 30; step++)
        ck_assert_double_eq_tol(core_schedule_decay(1, 0.5, 10, step),
                                step < 10   ? 1
                                : step < 20 ? 0.5
                                            : 0.25,
                                1e-16);
    ck_assert_double_eq(core_schedule_decay(1, 0.5, 0, 100), 1);
}
END_TEST

/* --------------------------------------------------------------- AdamW -- */

enum { SIZE = 7, STEPS = 200 };

/* An arbitrary sequence that changes sign, grows and vanishes. */
static double gradient_at(int step, int i)
{
    if ((step + i) % 11 == 0)
        return 0;
    return sin(0.37 * step + i) * pow(10, i % 4 - 2);
}

typedef struct reference {
    double p[SIZE], m[SIZE], v[SIZE];
} reference;

/* Loshchilov and Hutter 2019, algorithm 2, with the schedule in the rate. */
static void reference_step(reference *r, const core_adam_options *o, double lr,
                           int step)
{
    double k = step + 1;

    for (int i = 0; i < SIZE; i++) {
        double g = gradient_at(step, i), m, v;

        r->m[i] = o->beta1 * r->m[i] + (1 - o->beta1) * g;
        r->v[i] = o->beta2 * r->v[i] + (1 - o->beta2) * g * g;
        m = r->m[i] / (1 - pow(o->beta1, k));
        v = r->v[i] / (1 - pow(o->beta2, k));
        r->p[i] -=
            lr * (m / (sqrt(v) + o->epsilon) + o->weight_decay * r->p[i]);
    }
}

/* Returns the largest difference over all steps. */
static double follow_adamw(core_dtype dtype, core_device *device)
{
    core_adam_options options = {.struct_size = sizeof options,
                                 .decoupled = 1,
                                 .learning_rate = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .epsilon = 1e-8,
                                 .weight_decay = 0.1};
    const int64_t n = SIZE;
    reference r = {.p = {1, -1, 0.5, 2, 0, -3, 0.25}};
    core_optimizer *optimizer;
    core_tensor *p, *wide;
    double worst = 0, have[SIZE];

    OK(core_to_copy(typed(dtype, 1, &n, r.p), CORE_DTYPE_NONE, device, false,
                    -1, &p));
    leaf(keep(p));
    OK(core_adam_create(&p, 1, &options, &optimizer));
    for (int step = 0; step < STEPS; step++) {
        double lr =
            core_schedule_cosine(0.01, 0.001, 20, STEPS, (uint64_t)step);
        double g[SIZE];

        for (int i = 0; i < SIZE; i++)
            g[i] = gradient_at(step, i);
        OK(core_to_copy(typed(dtype, 1, &n, g), CORE_DTYPE_NONE, device, false,
                        -1, &wide));
        OK(core_tensor_set_grad(p, keep(wide)));
        OK(core_optimizer_set_learning_rate(optimizer, lr));
        OK(core_optimizer_step(optimizer));
        reference_step(&r, &options, lr, step);
        OK(core_to_copy(p, CORE_F64, NULL, false, -1, &wide));
        OK(core_tensor_read(keep(wide), have, sizeof have));
        for (int i = 0; i < SIZE; i++)
            worst = fmax(worst, fabs(have[i] - r.p[i]));
    }
    core_optimizer_release(optimizer);
    return worst;
}

START_TEST(adamw_matches_its_formula)
{
    core_device *cpu = device_of("cpu"), *sim = device_of("sim");

    ck_assert_double_le(follow_adamw(CORE_F64, cpu), 1e-13);
    ck_assert_double_le(follow_adamw(CORE_F32, cpu), 1e-5);
    ck_assert_double_le(follow_adamw(CORE_F32, sim), 1e-5);
}
END_TEST

SUITE("optim/optim_formulas", clip_grad_norm_scales_grads_as_one_vector,
      clip_grad_norm_ignores_empty_grads,
      clip_grad_norm_keeps_small_grads_unchanged,
      clip_grad_norm_ignores_parameters_without_grad,
      clip_grad_norm_of_f16_is_computed_in_f32,
      clip_grad_norm_spans_several_devices,
      non_finite_norm_is_reported_before_grads_change,
      clip_grad_value_clamps_each_element, clipping_refuses_invalid_arguments,
      warmup_schedule_rises_linearly, cosine_schedule_falls_to_the_minimum,
      linear_schedule_falls_to_the_minimum, decay_schedule_falls_in_steps,
      adamw_matches_its_formula)
