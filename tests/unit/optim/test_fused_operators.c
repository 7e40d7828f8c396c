/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* ATen's _fused_sgd, _fused_adam, _fused_adamw and _fused_adagrad return what
 * the optimizers' formulas give, computed here in plain C. */

#include "support/devices.h"

#include <libcore/device.h>

#include <math.h>

enum { COUNT = 2, SIZE = 5 };

/* The tensors of an optimizer, in the order of the arguments. */
enum { SELF, GRADS, FIRST, SECOND, MOST, LISTS };

typedef struct state {
    double values[LISTS][COUNT][SIZE];
    core_tensor *tensors[LISTS][COUNT];
    core_tensor *steps[COUNT];
    core_tensor *grad_scale, *found_inf;
} state;

typedef struct settings {
    double lr, decay, momentum, dampening, beta1, beta2, eps, lr_decay, scale;
    bool nesterov, maximize, first, amsgrad, decoupled, tensor_lr;
} settings;

static const double steps[COUNT] = {3, 1};

static core_tensor *placed(const char *place, core_dtype dtype, size_t ndim,
                           const int64_t *sizes, const double *values)
{
    return CALL(to_copy, typed(CORE_F64, ndim, sizes, values), dtype,
                device_of(place), false, -1);
}

static core_tensor *number_at(const char *place, double value)
{
    return placed(place, CORE_F32, 0, NULL, &value);
}

static void make_state(state *s, const char *place, core_dtype dtype)
{
    const int64_t size = SIZE;

    memset(s, 0, sizeof *s);
    for (int l = 0; l < LISTS; l++)
        for (int k = 0; k < COUNT; k++) {
            for (int i = 0; i < SIZE; i++) {
                double x = sin(l * 7 + k * 5 + i * 1.3);

                /* Multiples of 1/16 are exact in every dtype. */
                x = (l < FIRST ? round(x * 16) : 1 + fabs(round(x * 16))) / 16;
                s->values[l][k][i] = x;
            }
            s->tensors[l][k] = placed(place, dtype, 1, &size, s->values[l][k]);
        }
    for (int k = 0; k < COUNT; k++)
        s->steps[k] = number_at(place, steps[k]);
}

/* ------------------------------------------------------------ references -- */

/* What the operator returns in place of the gradient, and what it uses. */
static double used_gradient(const settings *o, double *grad, double self)
{
    double g;

    *grad /= o->scale;
    g = o->maximize ? -*grad : *grad;
    return o->decoupled ? g : g + o->decay * self;
}

static void expect_sgd(const settings *o, double *x[LISTS], double step)
{
    double g = used_gradient(o, x[GRADS], *x[SELF]);

    (void)step;
    if (o->momentum != 0) {
        *x[FIRST] =
            o->first ? g : o->momentum * *x[FIRST] + (1 - o->dampening) * g;
        g = o->nesterov ? g + o->momentum * *x[FIRST] : *x[FIRST];
    }
    *x[SELF] -= o->lr * g;
}

static void expect_adam(const settings *o, double *x[LISTS], double step)
{
    double g = used_gradient(o, x[GRADS], *x[SELF]), v;

    if (o->decoupled)
        *x[SELF] -= o->lr * o->decay * *x[SELF];
    *x[FIRST] = o->beta1 * *x[FIRST] + (1 - o->beta1) * g;
    *x[SECOND] = o->beta2 * *x[SECOND] + (1 - o->beta2) * g * g;
    if (o->amsgrad)
        *x[MOST] = fmax(*x[MOST], *x[SECOND]);
    v = o->amsgrad ? *x[MOST] : *x[SECOND];
    *x[SELF] -= o->lr / (1 - pow(o->beta1, step)) * *x[FIRST] /
                (sqrt(v) / sqrt(1 - pow(o->beta2, step)) + o->eps);
}

static void expect_adagrad(const settings *o, double *x[LISTS], double step)
{
    double g = used_gradient(o, x[GRADS], *x[SELF]);

    *x[FIRST] += g * g;
    *x[SELF] -=
        o->lr / (1 + (step - 1) * o->lr_decay) * g / (sqrt(*x[FIRST]) + o->eps);
}

typedef void expect_fn(const settings *, double *[LISTS], double);

static void expect(state *s, const settings *o, expect_fn *formula)
{
    for (int k = 0; k < COUNT; k++)
        for (int i = 0; i < SIZE; i++) {
            double *x[LISTS];

            for (int l = 0; l < LISTS; l++)
                x[l] = &s->values[l][k][i];
            formula(o, x, steps[k]);
        }
}

/* ------------------------------------------------------------- the calls -- */

typedef struct outputs {
    core_tensor **lists[LISTS];
    size_t counts[LISTS];
} outputs;

static void call_sgd(state *s, const settings *o, outputs *out)
{
    core_tensor *lr = number_at("cpu", o->lr);
    size_t buffers = o->momentum != 0 ? COUNT : 0;

    if (o->tensor_lr)
        OK(core_fused_sgd_tensor_lr(
            s->tensors[SELF], COUNT, s->tensors[GRADS], COUNT,
            s->tensors[FIRST], buffers, o->decay, o->momentum, lr, o->dampening,
            o->nesterov, o->maximize, o->first, s->grad_scale, s->found_inf,
            &out->lists[0], &out->counts[0], &out->lists[1], &out->counts[1],
            &out->lists[2], &out->counts[2]));
    else
        OK(core_fused_sgd(s->tensors[SELF], COUNT, s->tensors[GRADS], COUNT,
                          s->tensors[FIRST], buffers, o->decay, o->momentum,
                          o->lr, o->dampening, o->nesterov, o->maximize,
                          o->first, s->grad_scale, s->found_inf, &out->lists[0],
                          &out->counts[0], &out->lists[1], &out->counts[1],
                          &out->lists[2], &out->counts[2]));
}

#define ADAM(name, lr)                                                        \
    OK(core_##name(s->tensors[SELF], COUNT, s->tensors[GRADS], COUNT,         \
                   s->tensors[FIRST], COUNT, s->tensors[SECOND], COUNT,       \
                   s->tensors[MOST], o->amsgrad ? COUNT : 0, s->steps, COUNT, \
                   lr, o->beta1, o->beta2, o->decay, o->eps, o->amsgrad,      \
                   o->maximize, s->grad_scale, s->found_inf, &out->lists[0],  \
                   &out->counts[0], &out->lists[1], &out->counts[1],          \
                   &out->lists[2], &out->counts[2], &out->lists[3],           \
                   &out->counts[3], &out->lists[4], &out->counts[4]))

static void call_adam(state *s, const settings *o, outputs *out)
{
    core_tensor *lr = number_at("cpu", o->lr);

    if (o->decoupled && o->tensor_lr)
        ADAM(fused_adamw_tensor_lr, lr);
    else if (o->decoupled)
        ADAM(fused_adamw, o->lr);
    else if (o->tensor_lr)
        ADAM(fused_adam_tensor_lr, lr);
    else
        ADAM(fused_adam, o->lr);
}

static void call_adagrad(state *s, const settings *o, outputs *out)
{
    core_tensor **counters;
    size_t count;

    if (o->tensor_lr) {
        OK(core_fused_adagrad_tensor_lr(
            s->tensors[SELF], COUNT, s->tensors[GRADS], COUNT,
            s->tensors[FIRST], COUNT, s->steps, COUNT, number_at("cpu", o->lr),
            o->lr_decay, o->decay, o->eps, o->maximize, s->grad_scale,
            s->found_inf, &out->lists[0], &out->counts[0], &out->lists[1],
            &out->counts[1], &out->lists[2], &out->counts[2]));
        return;
    }
    OK(core_fused_adagrad(s->tensors[SELF], COUNT, s->tensors[GRADS], COUNT,
                          s->tensors[FIRST], COUNT, s->steps, COUNT, o->lr,
                          o->lr_decay, o->decay, o->eps, o->maximize,
                          s->grad_scale, s->found_inf, &out->lists[0],
                          &out->counts[0], &out->lists[1], &out->counts[1],
                          &out->lists[2], &out->counts[2], &counters, &count));
    ck_assert_uint_eq(count, COUNT);
    for (int k = 0; k < COUNT; k++)
        HOLDS(counters[k], 1, steps[k]);
    core_tensors_release(counters, count);
}

typedef void call_fn(state *, const settings *, outputs *);

/* Compares with values, and shares no memory with what was given. */
static void check_list(const state *s, const outputs *out, int l,
                       double tolerance)
{
    for (size_t k = 0; k < out->counts[l]; k++) {
        core_tensor *have = out->lists[l][k];
        bool shared;
        double values[SIZE];

        ck_assert_ptr_nonnull(have);
        ck_assert_ptr_ne(have, s->tensors[l][k]);
        OK(core_is_set_to(have, s->tensors[l][k], &shared));
        ck_assert(!shared);
        ck_assert_uint_eq(core_tensor_dtype(have),
                          core_tensor_dtype(s->tensors[l][k]));
        ck_assert(!core_tensor_requires_grad(have));
        OK(core_tensor_read(
            CALL(to_copy, have, CORE_F64, device_of("cpu"), false, -1), values,
            sizeof values));
        for (int i = 0; i < SIZE; i++)
            ck_assert_msg(values[i] == s->values[l][k][i] ||
                              fabs(values[i] - s->values[l][k][i]) <= tolerance,
                          "list %d, tensor %zu, element %d: %g, not %g", l, k,
                          i, values[i], s->values[l][k][i]);
    }
}

static void check_state(state *s, const settings *o, call_fn *call,
                        expect_fn *formula, double tolerance)
{
    outputs out = {{NULL}, {0}};

    call(s, o, &out);
    expect(s, o, formula);
    ck_assert_uint_eq(out.counts[SELF], COUNT);
    ck_assert_uint_eq(out.counts[GRADS], COUNT);
    for (int l = 0; l < LISTS; l++) {
        check_list(s, &out, l, tolerance);
        core_tensors_release(out.lists[l], out.counts[l]);
    }
}

static void check(const settings *o, call_fn *call, expect_fn *formula)
{
    static const struct {
        const char *place;
        core_dtype dtype;
        double tolerance;
    } cases[] = {{"cpu", CORE_F64, 1e-7},
                 {"cpu", CORE_F32, 2e-6},
                 {"cpu", CORE_BF16, 2e-2},
                 {"sim", CORE_F32, 2e-6}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        state s;

        make_state(&s, cases[i].place, cases[i].dtype);
        OK(core_tensor_set_requires_grad(s.tensors[SELF][0], true));
        if (o->scale != 1)
            s.grad_scale = number_at(cases[i].place, o->scale);
        s.found_inf = i % 2 ? number_at(cases[i].place, 0) : NULL;
        check_state(&s, o, call, formula, cases[i].tolerance);
        drop_all();
    }
}

START_TEST(sgd_gives_the_values_of_its_formula)
{
    for (int i = 0; i < 128; i++) {
        settings o = {.lr = .25,
                      .decay = i & 1 ? .125 : 0,
                      .momentum = i & 2 ? .5 : 0,
                      .dampening = i & 4 ? .25 : 0,
                      .nesterov = i & 8,
                      .maximize = i & 16,
                      .first = i & 32,
                      .tensor_lr = i & 64,
                      .scale = i & 1 ? 2 : 1};

        check(&o, call_sgd, expect_sgd);
    }
}
END_TEST

START_TEST(adam_and_adamw_give_the_values_of_their_formulas)
{
    for (int i = 0; i < 64; i++) {
        settings o = {.lr = .125,
                      .decay = i & 1 ? .125 : 0,
                      .beta1 = .9,
                      .beta2 = .999,
                      .eps = 1e-3,
                      .amsgrad = i & 2,
                      .maximize = i & 4,
                      .decoupled = i & 8,
                      .tensor_lr = i & 16,
                      .scale = i & 32 ? 4 : 1};

        check(&o, call_adam, expect_adam);
    }
}
END_TEST

START_TEST(adagrad_gives_the_values_of_its_formula)
{
    for (int i = 0; i < 16; i++) {
        settings o = {.lr = .125,
                      .lr_decay = .25,
                      .decay = i & 1 ? .125 : 0,
                      .eps = 1e-3,
                      .maximize = i & 2,
                      .tensor_lr = i & 4,
                      .scale = i & 8 ? 4 : 1};

        check(&o, call_adagrad, expect_adagrad);
    }
}
END_TEST

static void expect_nothing(const settings *o, double *x[LISTS], double step)
{
    (void)o;
    (void)x;
    (void)step;
}

/* Even the gradients keep their scale. */
START_TEST(infinity_that_was_found_skips_the_step)
{
    settings o = {.lr = .5,
                  .decay = .1,
                  .momentum = .9,
                  .beta1 = .9,
                  .beta2 = .99,
                  .eps = 1e-3,
                  .amsgrad = true,
                  .scale = 2};
    call_fn *const calls[] = {call_sgd, call_adam, call_adagrad};

    for (int i = 0; i < 3; i++) {
        state s;

        make_state(&s, "cpu", CORE_F32);
        s.tensors[GRADS][0] =
            CALL(full_like, s.tensors[GRADS][0], core_float(INFINITY),
                 CORE_DTYPE_NONE, NULL, -1);
        for (int k = 0; k < SIZE; k++)
            s.values[GRADS][0][k] = INFINITY;
        s.grad_scale = number_at("cpu", 2);
        s.found_inf = number_at("cpu", 1);
        check_state(&s, &o, calls[i], expect_nothing, 0);
    }
}
END_TEST

START_TEST(lists_that_do_not_match_are_refused)
{
    core_tensor **out[3];
    size_t n[3];
    core_tensor *x[2] = {VECTOR(2, 1, 2), VECTOR(2, 3, 4)};
    core_tensor *other[2] = {VECTOR(2, 1, 2), VECTOR(3, 3, 4, 5)};
    core_tensor *whole[2] = {x[0],
                             CALL(to, x[1], CORE_I64, NULL, false, false, -1)};

#define STEP(grads, count, scale)                                         \
    core_fused_sgd(x, 2, grads, count, NULL, 0, 0, 0, 1, 0, false, false, \
                   false, scale, NULL, &out[0], &n[0], &out[1], &n[1],    \
                   &out[2], &n[2])
    FAILS(STEP(x, 1, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "grads has 1 tensors and self 2");
    FAILS(STEP(other, 2, NULL), CORE_ERROR_SHAPE, "grads");
    FAILS(STEP(whole, 2, NULL), CORE_ERROR_DTYPE, "grads[1]", "i64");
    FAILS(STEP(x, 2, x[0]), CORE_ERROR_SHAPE, "grad_scale has 2 elements");
#undef STEP
    FAILS(core_fused_sgd(x, 2, x, 2, NULL, 0, 0, 0.9, 1, 0, false, false, false,
                         NULL, NULL, &out[0], &n[0], &out[1], &n[1], &out[2],
                         &n[2]),
          CORE_ERROR_INVALID_ARGUMENT,
          "momentum_buffer_list has 0 tensors and self 2");
}
END_TEST

SUITE("optim/fused_operators", sgd_gives_the_values_of_its_formula,
      adam_and_adamw_give_the_values_of_their_formulas,
      adagrad_gives_the_values_of_its_formula,
      infinity_that_was_found_skips_the_step,
      lists_that_do_not_match_are_refused)
