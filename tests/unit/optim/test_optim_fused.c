/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Steps of many parameters in one call on the emulated GPU match the CPU: in
 * one call for f32 and f64 (test_optim_cpu.c checks their bits), one by one for
 * half precision. */

/* The emulated device is slow. */
#define SUITE_SECONDS 120

#include "support/autograd.h"
#include "support/gpu_device_name.h"

#include <libcore/device.h>
#include <libcore/optim.h>

#include <math.h>

enum { COUNT = 70, STEPS = 3 };

static core_device *device_named(const char *name)
{
    core_device *device;

    OK(core_device_find(name, &device));
    return device;
}

static core_tensor *copied_to(const char *device, core_tensor *tensor,
                              core_dtype dtype)
{
    return CALL(to_copy, tensor, dtype, device_named(device), false, -1);
}

static int64_t size_of(size_t i)
{
    return i == 3 ? 9000 : i == 7 ? 0 : i == 8 ? 4096 : 1 + (int64_t)(i % 5);
}

static core_tensor *numbers(size_t i, size_t seed)
{
    int64_t n = size_of(i);
    double *values = malloc((size_t)(n + 1) * sizeof *values);
    core_tensor *tensor;

    ck_assert_ptr_nonnull(values);
    for (int64_t k = 0; k < n; k++)
        values[k] =
            (double)((i * 31 + (size_t)k * 17 + seed * 7) % 64) / 32 - 1;
    tensor = typed(CORE_F64, 1, &n, values);
    free(values);
    return tensor;
}

static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_BF16, CORE_F16};
static const double tolerances[] = {1e-6, 1e-14, 4e-2, 4e-3};

static core_tensor *parameters[2][COUNT];
static const char *device_for(int which)
{
    return which == 0 ? "cpu" : gpu_name();
}

static void make_parameters(int t)
{
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < COUNT; i++)
            parameters[d][i] =
                leaf(copied_to(device_for(d), numbers(i, 1), dtypes[t]));
    /* A non-contiguous parameter takes the path of separate operators. */
    for (int d = 0; d < 2; d++) {
        core_tensor *wide =
            copied_to(device_for(d),
                      CALL(arange_start_step, core_int(0), core_int(4),
                           core_float(.25), CORE_F64, NULL),
                      dtypes[t]);

        parameters[d][5] = leaf(
            CALL(as_strided, wide, (int64_t[]){3}, 1, (int64_t[]){2}, 1, NULL));
    }
}

/* Some parameters lack a grad at some steps and are stepped less often. */
static void give_grads(int t, size_t step)
{
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < COUNT; i++) {
            core_tensor *grad =
                copied_to(device_for(d), numbers(i, 5 + step), dtypes[t]);

            if (i == 5)
                grad =
                    CALL(slice,
                         copied_to(device_for(d), numbers(8, step), dtypes[t]),
                         0, &(int64_t){0}, &(int64_t){3}, 1);
            OK(core_tensor_set_grad(parameters[d][i],
                                    (i + step) % 9 == 4 ? NULL : grad));
        }
}

static void same(core_tensor *a, core_tensor *b, double tolerance, size_t i)
{
    int64_t n = core_tensor_numel(a);
    double *values[2];

    for (int d = 0; d < 2; d++) {
        core_tensor *x = copied_to("cpu", d ? b : a, CORE_F64);

        values[d] = malloc((size_t)(n + 1) * sizeof(double));
        ck_assert_ptr_nonnull(values[d]);
        OK(core_tensor_read(CALL(contiguous, x, 0), values[d],
                            (size_t)n * sizeof(double)));
    }
    for (int64_t k = 0; k < n; k++)
        ck_assert_msg(fabs(values[0][k] - values[1][k]) <=
                          tolerance * (1 + fabs(values[0][k])),
                      "parameter %zu, element %lld: %.17g, together %.17g", i,
                      (long long)k, values[0][k], values[1][k]);
    free(values[0]);
    free(values[1]);
}

typedef core_optimizer *(*make)(core_tensor *const *tensors, int variant);

static core_optimizer *sgd(core_tensor *const *tensors, int variant)
{
    static const core_sgd_options options[] = {
        {.struct_size = sizeof *options, .learning_rate = .1},
        {.struct_size = sizeof *options,
         .learning_rate = .1,
         .momentum = .9,
         .dampening = .25,
         .weight_decay = .01},
        {.struct_size = sizeof *options,
         .learning_rate = .1,
         .momentum = .9,
         .weight_decay = .01,
         .nesterov = 1},
        {.struct_size = sizeof *options,
         .learning_rate = .1,
         .momentum = .5,
         .nesterov = 1},
    };
    core_optimizer *optimizer;

    OK(core_sgd_create(tensors, COUNT, &options[variant], &optimizer));
    return optimizer;
}

static core_optimizer *adam(core_tensor *const *tensors, int variant)
{
    const core_adam_options options = {.struct_size = sizeof options,
                                       .learning_rate = .01,
                                       .beta1 = .9,
                                       .beta2 = .999,
                                       .epsilon = 1e-3,
                                       .weight_decay = variant ? .1 : 0,
                                       .decoupled = variant == 2};
    core_optimizer *optimizer;

    OK(core_adam_create(tensors, COUNT, &options, &optimizer));
    return optimizer;
}

static void run(make f, int variant, int t)
{
    core_optimizer *optimizers[2];

    make_parameters(t);
    for (int d = 0; d < 2; d++)
        optimizers[d] = f(parameters[d], variant);
    for (size_t step = 0; step < STEPS; step++) {
        give_grads(t, step);
        for (int d = 0; d < 2; d++)
            OK(core_optimizer_step(optimizers[d]));
    }
    for (size_t i = 0; i < COUNT; i++) {
        same(parameters[0][i], parameters[1][i], tolerances[t], i);
        ck_assert_uint_eq(core_optimizer_steps(optimizers[0], i),
                          core_optimizer_steps(optimizers[1], i));
        for (size_t k = 0; core_optimizer_state_name(optimizers[0], k); k++)
            if (core_optimizer_state(optimizers[0], i, k))
                same(core_optimizer_state(optimizers[0], i, k),
                     core_optimizer_state(optimizers[1], i, k), tolerances[t],
                     i);
    }
    for (int d = 0; d < 2; d++)
        core_optimizer_release(optimizers[d]);
    drop_all();
}

START_TEST(fused_sgd_on_gpu_matches_cpu)
{
    for (int variant = 0; variant < 4; variant++)
        for (int t = 0; t < 4; t++)
            run(sgd, variant, t);
}
END_TEST

START_TEST(fused_adam_on_gpu_matches_cpu)
{
    for (int variant = 0; variant < 3; variant++)
        for (int t = 0; t < 4; t++)
            run(adam, variant, t);
}
END_TEST

static int64_t version_of(core_tensor *tensor)
{
    return (int64_t)core_tensor_version(tensor);
}

START_TEST(gpu_step_bumps_version_of_parameters)
{
    core_optimizer *optimizer;
    int64_t before;

    make_parameters(0);
    optimizer = sgd(parameters[1], 1);
    give_grads(0, 0);
    before = version_of(parameters[1][0]);
    OK(core_optimizer_step(optimizer));
    ck_assert_int_gt(version_of(parameters[1][0]), before);
    core_optimizer_release(optimizer);
}
END_TEST

static float first_of(core_tensor *tensor)
{
    float x[4096];

    OK(core_tensor_read(tensor, x, sizeof x));
    return x[1];
}

START_TEST(fused_gpu_step_unscales_gradients_and_skips_on_found_inf)
{
    core_tensor *x = copied_to(gpu_name(), numbers(8, 1), CORE_F32);
    core_tensor *g = copied_to(gpu_name(), numbers(8, 2), CORE_F32);
    core_tensor *two = copied_to(
        gpu_name(), typed(CORE_F64, 0, NULL, (double[]){2}), CORE_F32);
    core_tensor *none = copied_to(
        gpu_name(), typed(CORE_F64, 0, NULL, (double[]){0}), CORE_F32);
    float before = first_of(x), slope = first_of(g);

    OK(core_fused_sgd_step(&x, 1, &g, 1, NULL, 0, .5, 0, 0, 0, false, false,
                           two, none));
    ck_assert_float_eq(first_of(x), before - .5f * (slope / 2));
    before = first_of(x);
    OK(core_fused_sgd_step(&x, 1, &g, 1, NULL, 0, .5, 0, 0, 0, false, false,
                           NULL, two));
    ck_assert_float_eq(first_of(x), before);
    OK(core_fused_adam_step(&x, 1, &g, 1, &g, 1, &g, 1, 1, .5, .9, .99, 1e-8, 0,
                            false, NULL, two));
    ck_assert_float_eq(first_of(x), before);
}
END_TEST

START_TEST(fused_step_refuses_mismatched_arguments)
{
    core_tensor *x = copied_to(gpu_name(), numbers(8, 1), CORE_F32);
    core_tensor *g = copied_to(gpu_name(), numbers(8, 2), CORE_F64);
    core_tensor *h = numbers(8, 2), *both[2] = {x, x};

    FAILS(core_fused_sgd_step(&x, 1, &g, 1, NULL, 0, .5, 0, 0, 0, false, false,
                              NULL, NULL),
          CORE_ERROR_DTYPE, "grads[0]");
    FAILS(core_fused_sgd_step(&x, 1, &x, 1, NULL, 0, .5, .9, 0, 0, false, false,
                              NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "momentum_buffers has 0 tensors");
    FAILS(core_fused_sgd_step(both, 2, &x, 1, NULL, 0, .5, 0, 0, 0, false,
                              false, NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "grads has 1 tensors");
    FAILS(core_fused_sgd_step(&g, 1, &h, 1, NULL, 0, .5, 0, 0, 0, false, false,
                              NULL, NULL),
          CORE_ERROR_DEVICE, "cpu");
    FAILS(core_fused_sgd_step(&x, 1, &x, 1, NULL, 0, .5, 0, 0, 0, false, false,
                              g, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "grad_scale");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        fused_sgd_on_gpu_matches_cpu,
        fused_adam_on_gpu_matches_cpu,
        gpu_step_bumps_version_of_parameters,
        fused_gpu_step_unscales_gradients_and_skips_on_found_inf,
        fused_step_refuses_mismatched_arguments,
    };

    if (!gpu_plugin_found())
        return suite_skip_all("the plugin of %s is not built", gpu_name());
    return run_suite("optim/optim_fused", tests, sizeof tests / sizeof *tests);
}
