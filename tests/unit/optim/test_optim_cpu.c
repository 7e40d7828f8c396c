/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Steps of many parameters in one call on the CPU: bit-identical to the steps
 * by separate operators, which non-contiguous parameters take. */

#define SUITE_SECONDS 120

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/instruction_sets.h"

#include <libcore/autocast.h>
#include <libcore/device.h>
#include <libcore/optim.h>
#include <libcore/profiler.h>

#include <math.h>

static const int64_t sizes[] = {1,   15,  16,   17,    63,  64, 65,
                                255, 256, 4097, 40001, 100, 0};
enum { COUNT = sizeof sizes / sizeof *sizes, STEPS = 3, VARIANTS = 8 };

static const core_dtype dtypes[] = {CORE_F32, CORE_F64};
static const char *const instruction_sets[] = {"baseline", "avx2", "avx512",
                                               ""};

/* Includes zeros of both signs, tiny and large numbers. */
static double number(int64_t k, size_t seed)
{
    static const double odd[] = {0, -0.0, 1e-41, -3e-39, 1e30, -7e18};
    uint64_t bits = ((uint64_t)k * 2654435761u + seed * 40503u) % 1000003;

    if (bits % 29 == 0)
        return odd[bits / 29 % 6];
    return (double)bits / 500001 - 1;
}

/* A dense tensor, or every other element of a wider one. */
static core_tensor *numbers(core_dtype dtype, int64_t n, size_t seed,
                            bool apart)
{
    int64_t step = apart ? 2 : 1, buffer = n * step;
    double *values = malloc((size_t)(buffer + 1) * sizeof *values);
    core_tensor *tensor;

    ck_assert_ptr_nonnull(values);
    for (int64_t k = 0; k < buffer; k++)
        values[k] = number(k / step, seed);
    tensor = typed(dtype, 1, &buffer, values);
    free(values);
    return apart ? CALL(as_strided, tensor, &n, 1, &step, 1, NULL) : tensor;
}

static core_optimizer *make(core_tensor *const *tensors, size_t count,
                            int variant)
{
    static const core_sgd_options sgd[] = {
        {sizeof *sgd, 0, .1, 0, 0, 0},      {sizeof *sgd, 0, .1, 0, 0, .03},
        {sizeof *sgd, 0, .1, .9, .25, .01}, {sizeof *sgd, 1, .1, .9, 0, .01},
        {sizeof *sgd, 1, .1, .5, 0, 0},
    };
    static const core_adam_options adam[] = {
        {sizeof *adam, 0, .01, .9, .999, 1e-8, 0},
        {sizeof *adam, 0, .01, .9, .99, 1e-3, .1},
        {sizeof *adam, 1, .01, .9, .999, 1e-8, .1},
    };
    core_optimizer *optimizer;

    if (variant < 5)
        OK(core_sgd_create(tensors, count, &sgd[variant], &optimizer));
    else
        OK(core_adam_create(tensors, count, &adam[variant - 5], &optimizer));
    return optimizer;
}

static void *bits_of(core_tensor *tensor, size_t *out_bytes)
{
    core_tensor *dense = CALL(contiguous, tensor, 0);
    size_t bytes = (size_t)core_tensor_numel(tensor) *
                   core_dtype_size(core_tensor_dtype(tensor));
    void *bits = malloc(bytes + 1);

    ck_assert_ptr_nonnull(bits);
    OK(core_tensor_read(dense, bits, bytes));
    *out_bytes = bytes;
    return bits;
}

static void same(core_tensor *a, core_tensor *b, int variant, const char *what)
{
    size_t bytes[2];
    void *bits[2] = {bits_of(a, &bytes[0]), bits_of(b, &bytes[1])};

    ck_assert_uint_eq(bytes[0], bytes[1]);
    ck_assert_msg(memcmp(bits[0], bits[1], bytes[0]) == 0,
                  "variant %d, %lld elements of %s: %s has other bits", variant,
                  (long long)core_tensor_numel(a),
                  core_dtype_name(core_tensor_dtype(a)), what);
    free(bits[0]);
    free(bits[1]);
}

static void same_after(core_optimizer *const *optimizers, size_t count,
                       int variant)
{
    for (size_t i = 0; i < count; i++) {
        same(core_optimizer_parameter(optimizers[0], i),
             core_optimizer_parameter(optimizers[1], i), variant, "parameter");
        ck_assert_uint_eq(core_optimizer_steps(optimizers[0], i),
                          core_optimizer_steps(optimizers[1], i));
        for (size_t k = 0; core_optimizer_state_name(optimizers[0], k); k++)
            if (core_optimizer_state(optimizers[0], i, k))
                same(core_optimizer_state(optimizers[0], i, k),
                     core_optimizer_state(optimizers[1], i, k), variant,
                     core_optimizer_state_name(optimizers[0], k));
    }
}

static void run(int variant, core_dtype dtype)
{
    core_tensor *parameters[2][COUNT];
    core_optimizer *optimizers[2];

    for (int d = 0; d < 2; d++) {
        for (size_t i = 0; i < COUNT; i++)
            parameters[d][i] = leaf(numbers(dtype, sizes[i], i, d));
        optimizers[d] = make(parameters[d], COUNT, variant);
    }
    for (size_t step = 0; step < STEPS; step++)
        for (int d = 0; d < 2; d++) {
            for (size_t i = 0; i < COUNT; i++)
                OK(core_tensor_set_grad(
                    parameters[d][i],
                    (i + step) % 5 == 4
                        ? NULL
                        : numbers(dtype, sizes[i], 50 * step + i, d)));
            OK(core_optimizer_step(optimizers[d]));
        }
    same_after(optimizers, COUNT, variant);
    for (int d = 0; d < 2; d++)
        core_optimizer_release(optimizers[d]);
    drop_all();
}

/* A process has one instruction set; Check runs each test in its own process.
 * False, and the test is skipped, if the machine or the build does not have the
 * set.  "": the best one. */
static bool use(const char *set)
{
    core_device_information information = {.struct_size = sizeof information};
    int best = instruction_set_best();
    int number = *set ? instruction_set_number(set) : best;
    core_device *cpu;
    char features[40];

    if (number > best) {
        suite_skip("%s is not available", set);
        return false;
    }
    setenv("LIBCORE_CPU_ISA", set, 1);
    OK(core_device_find("cpu", &cpu));
    OK(core_device_get_information(cpu, &information));
    snprintf(features, sizeof features, "isa=%s ",
             instruction_set_names[number]);
    ck_assert_msg(
        strncmp(information.features.data, features, strlen(features)) == 0,
        "%s instead of %s", information.features.data, features);
    return true;
}

START_TEST(fused_steps_equal_separate_operators_bit_for_bit)
{
    if (!use(instruction_sets[_i]))
        return;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        OK(core_threads_set(threads));
        for (int variant = 0; variant < VARIANTS; variant++)
            for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
                run(variant, dtypes[t]);
    }
}
END_TEST

/* Weight decay is applied before the gradient is read. */
START_TEST(gradient_sharing_parameter_memory_is_read_in_order)
{
    for (int variant = 0; variant < VARIANTS; variant++) {
        core_tensor *parameters[2];
        core_optimizer *optimizers[2];

        for (int d = 0; d < 2; d++) {
            core_tensor *x = numbers(CORE_F32, 100, 3, d);

            parameters[d] = leaf(x);
            OK(core_tensor_set_grad(x, CALL(detach, x)));
            optimizers[d] = make(&parameters[d], 1, variant);
            OK(core_optimizer_step(optimizers[d]));
        }
        same_after(optimizers, 1, variant);
        for (int d = 0; d < 2; d++)
            core_optimizer_release(optimizers[d]);
        drop_all();
    }
}
END_TEST

/* Views of one tensor; the second overlaps the first and the third. */
START_TEST(parameters_sharing_memory_step_one_after_the_other)
{
    enum { N = 30000 };
    const int64_t n = 3 * N, size = 2 * N, one = 1;

    OK(core_threads_set(3));
    for (int variant = 0; variant < VARIANTS; variant++) {
        core_tensor *parameters[2][2], *whole[2];
        core_optimizer *optimizers[3];

        for (int d = 0; d < 2; d++) {
            whole[d] = numbers(CORE_F32, n, 1, false);
            for (int i = 0; i < 2; i++) {
                const int64_t offset = i * N;

                parameters[d][i] = leaf(
                    CALL(as_strided, whole[d], &size, 1, &one, 1, &offset));
                OK(core_tensor_set_grad(
                    parameters[d][i],
                    numbers(CORE_F32, size, 7 + (size_t)i, false)));
            }
        }
        optimizers[0] = make(parameters[0], 2, variant);
        optimizers[1] = make(&parameters[1][0], 1, variant);
        optimizers[2] = make(&parameters[1][1], 1, variant);
        for (int i = 0; i < 3; i++)
            OK(core_optimizer_step(optimizers[i]));
        same(whole[0], whole[1], variant, "shared memory");
        for (int i = 0; i < 3; i++)
            core_optimizer_release(optimizers[i]);
        drop_all();
    }
}
END_TEST

/* Whether the parameters were stepped in one call. */
static bool steps_together(core_optimizer *optimizer)
{
    core_profile_row row = {.struct_size = sizeof row};
    core_profiler *profiler;
    bool found = false;
    size_t count;

    OK(core_profiler_start(NULL, &profiler));
    OK(core_optimizer_step(optimizer));
    OK(core_profiler_stop(profiler));
    OK(core_profiler_count_rows(profiler, &count));
    for (size_t i = 0; i < count; i++) {
        OK(core_profiler_get_row(profiler, CORE_PROFILE_BY_NAME, i, &row));
        found |= strcmp(row.name, "_fused_sgd_step") == 0;
    }
    core_profiler_release(profiler);
    return found;
}

/* The same tensor, not a view, is the momentum of both parameters; or the
 * gradient of the first is the second, which its own step writes. */
START_TEST(parameters_sharing_a_state_tensor_are_not_fused)
{
    core_tensor *parameters[2], *shared = numbers(CORE_F32, 100, 1, false);
    core_optimizer *optimizer;

    for (size_t i = 0; i < 2; i++) {
        parameters[i] = leaf(numbers(CORE_F32, 100, 2 + i, false));
        OK(core_tensor_set_grad(parameters[i],
                                numbers(CORE_F32, 100, 7 + i, false)));
    }
    optimizer = make(parameters, 2, 2);
    ck_assert(steps_together(optimizer));
    for (size_t i = 0; i < 2; i++)
        OK(core_optimizer_set_state(optimizer, i, 1, &shared, 1));
    ck_assert(!steps_together(optimizer));
    core_optimizer_release(optimizer);
    optimizer = make(parameters, 2, 1);
    ck_assert(steps_together(optimizer));
    OK(core_tensor_set_grad(parameters[0], parameters[1]));
    ck_assert(!steps_together(optimizer));
    OK(core_tensor_set_grad(parameters[0], NULL));
    core_optimizer_release(optimizer);
}
END_TEST

/* Two unrelated tensors on memory of the test. */
START_TEST(parameters_overlapping_in_external_memory_are_not_fused)
{
    static float buffer[150];

    for (int64_t apart = 50; apart <= 100; apart += 50) {
        const int64_t size = 50;
        core_tensor *parameters[2];
        core_optimizer *optimizer;

        for (int64_t i = 0; i < 2; i++) {
            OK(core_tensor_from_memory(buffer + i * (apart - 50), CORE_F32,
                                       &size, 1, NULL, NULL, &parameters[i]));
            leaf(keep(parameters[i]));
            OK(core_tensor_set_grad(parameters[i],
                                    numbers(CORE_F32, 50, 7, false)));
        }
        optimizer = make(parameters, 2, 2);
        ck_assert_int_eq(steps_together(optimizer), apart == 100);
        core_optimizer_release(optimizer);
    }
}
END_TEST

START_TEST(cpu_step_bumps_version_of_stepped_parameters_only)
{
    core_tensor *x = leaf(numbers(CORE_F32, 20, 1, false));
    core_tensor *idle = leaf(numbers(CORE_F32, 20, 1, false));
    core_tensor *both[2] = {x, idle};
    core_optimizer *optimizer = make(both, 2, 2);
    uint64_t before = core_tensor_version(x);

    OK(core_tensor_set_grad(x, numbers(CORE_F32, 20, 2, false)));
    OK(core_optimizer_step(optimizer));
    ck_assert_uint_gt(core_tensor_version(x), before);
    ck_assert_uint_eq(core_tensor_version(idle), 0);
    core_optimizer_release(optimizer);
}
END_TEST

/* Where a step is one operator, a fused call saves only launches: none on the
 * CPU. */
START_TEST(plain_sgd_is_fused_only_on_devices_with_streams)
{
    for (int variant = 0; variant < 2; variant++)
        for (int d = 0; d < 2; d++) {
            core_device *device;
            core_tensor *parameters[2];
            core_optimizer *optimizer;

            OK(core_device_find(d ? "sim:0" : "cpu", &device));
            for (size_t i = 0; i < 2; i++) {
                parameters[i] =
                    leaf(CALL(to_copy, numbers(CORE_F32, 100, i, false),
                              CORE_DTYPE_NONE, device, false, -1));
                OK(core_tensor_set_grad(
                    parameters[i],
                    CALL(to_copy, numbers(CORE_F32, 100, 7 + i, false),
                         CORE_DTYPE_NONE, device, false, -1)));
            }
            optimizer = make(parameters, 2, variant);
            ck_assert_int_eq(steps_together(optimizer), d == 1 || variant == 1);
            for (size_t i = 0; i < 2; i++)
                ck_assert_uint_eq(core_optimizer_steps(optimizer, i), 1);
            core_optimizer_release(optimizer);
        }
}
END_TEST

/* Without momentum and decay, a case that no optimizer uses on the CPU. */
START_TEST(plain_fused_sgd_equals_add_bit_for_bit)
{
    for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
        for (size_t i = 0; i < COUNT; i++) {
            core_tensor *x = numbers(dtypes[t], sizes[i], i, false);
            core_tensor *y = numbers(dtypes[t], sizes[i], i, false);
            core_tensor *g = numbers(dtypes[t], sizes[i], 50 + i, false);

            OK(core_fused_sgd_step(&x, 1, &g, 1, NULL, 0, .1, 0, 0, 0, false,
                                   false, NULL, NULL));
            OK(core_add_(y, g, core_float(-.1)));
            same(x, y, 0, "sum");
            drop_all();
        }
}
END_TEST

static void read_all(core_tensor *tensor, float *out, size_t n)
{
    OK(core_tensor_read(tensor, out, n * sizeof *out));
}

START_TEST(fused_cpu_step_unscales_gradients_and_skips_on_found_inf)
{
    enum { N = 300 };
    core_tensor *x = numbers(CORE_F32, N, 1, false);
    core_tensor *g = numbers(CORE_F32, N, 2, false);
    core_tensor *m = numbers(CORE_F32, N, 3, false);
    core_tensor *v = numbers(CORE_F32, N, 4, false);
    core_tensor *two = typed(CORE_F32, 0, NULL, (double[]){2});
    core_tensor *none = typed(CORE_F32, 0, NULL, (double[]){0});
    float before[N], slope[N], after[N];

    read_all(x, before, N);
    read_all(g, slope, N);
    OK(core_fused_sgd_step(&x, 1, &g, 1, NULL, 0, .5, 0, 0, 0, false, false,
                           two, none));
    read_all(x, after, N);
    for (int k = 0; k < N; k++)
        ck_assert_float_le(fabsf(after[k] - (before[k] - .5f * (slope[k] / 2))),
                           1e-44f);
    OK(core_fused_sgd_step(&x, 1, &g, 1, NULL, 0, .5, 0, 0, 0, false, false,
                           NULL, two));
    OK(core_fused_adam_step(&x, 1, &g, 1, &m, 1, &v, 1, 1, .5, .9, .99, 1e-8, 0,
                            false, NULL, two));
    read_all(x, before, N);
    ck_assert_mem_eq(before, after, sizeof after);
    read_all(g, before, N);
    ck_assert_mem_eq(before, slope, sizeof slope);
}
END_TEST

START_TEST(fused_step_accepts_empty_tensors)
{
    core_tensor *x = numbers(CORE_F64, 0, 1, false);
    core_tensor *y[2] = {x, x};

    OK(core_fused_sgd_step(y, 2, y, 2, NULL, 0, .5, 0, 0, 0, false, false, NULL,
                           NULL));
    OK(core_fused_adam_step(&x, 1, &x, 1, &x, 1, &x, 1, 1, .5, .9, .99, 1e-8, 0,
                            false, NULL, NULL));
}
END_TEST

/* What was computed from a parameter must not outlive a step that a program
 * calls directly. */
START_TEST(fused_step_bumps_version_of_every_tensor_that_it_changes)
{
    core_tensor *x[2] = {numbers(CORE_F32, 3, 1, false),
                         numbers(CORE_F32, 3, 2, false)};
    core_tensor *g[2] = {numbers(CORE_F32, 3, 3, false),
                         numbers(CORE_F32, 3, 4, false)};
    core_tensor *m[2] = {numbers(CORE_F32, 3, 5, false),
                         numbers(CORE_F32, 3, 6, false)};
    core_tensor *v[2] = {numbers(CORE_F32, 3, 7, false),
                         numbers(CORE_F32, 3, 8, false)};

    OK(core_fused_sgd_step(x, 2, g, 2, m, 2, .5, .9, 0, 0, false, false, NULL,
                           NULL));
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(core_tensor_version(x[i]), 1);
        ck_assert_uint_eq(core_tensor_version(g[i]), 0);
        ck_assert_uint_eq(core_tensor_version(m[i]), 1);
    }
    OK(core_fused_adam_step(x, 2, g, 2, m, 2, v, 2, 1, .5, .9, .99, 1e-8, 0,
                            false, NULL, NULL));
    for (int i = 0; i < 2; i++) {
        ck_assert_uint_eq(core_tensor_version(x[i]), 2);
        ck_assert_uint_eq(core_tensor_version(g[i]), 0);
        ck_assert_uint_eq(core_tensor_version(m[i]), 2);
        ck_assert_uint_eq(core_tensor_version(v[i]), 1);
    }
}
END_TEST

START_TEST(gradient_after_a_fused_step_of_a_saved_tensor_fails)
{
    core_tensor *x = leaf(numbers(CORE_F32, 3, 1, false)), *values, *gradient;
    core_tensor *g = numbers(CORE_F32, 3, 3, false);
    core_tensor *loss = sum(mul(x, x));

    OK(core_detach(x, &values));
    keep(values);
    OK(core_fused_sgd_step(&values, 1, &g, 1, NULL, 0, .5, 0, 0, 0, false,
                           false, NULL, NULL));
    FAILS(core_grad(&loss, 1, NULL, &x, 1, 0, &gradient), CORE_ERROR_VERSION,
          "version 0", "version 1");
}
END_TEST

START_TEST(fused_step_within_a_region_is_seen_by_casts)
{
    const int64_t sizes[2] = {2, 2};
    const double ones[4] = {1, 1, 1, 1};
    core_tensor *w = leaf(typed(CORE_F32, 2, sizes, ones)), *values;
    core_tensor *a = typed(CORE_F32, 2, sizes, ones), *y;
    core_device *cpu;
    uint64_t region;

    OK(core_device_find("cpu", &cpu));
    OK(core_autocast_begin(cpu, CORE_BF16, 0, &region));
    y = CALL(mm, a, w);
    OK(core_detach(w, &values));
    keep(values);
    OK(core_fused_sgd_step(&values, 1, &a, 1, NULL, 0, 2, 0, 0, 0, false, false,
                           NULL, NULL));
    HOLDS(CALL(to_copy, y, CORE_F32, NULL, false, -1), 4, 2, 2, 2, 2);
    y = CALL(mm, a, w);
    OK(core_autocast_end(region));
    HOLDS(CALL(to_copy, y, CORE_F32, NULL, false, -1), 4, -2, -2, -2, -2);
}
END_TEST

START_TEST(fused_step_refuses_tensors_of_inference_mode)
{
    core_tensor *x, *g = numbers(CORE_F32, 3, 3, false);
    uint64_t before = core_inference_begin();

    x = numbers(CORE_F32, 3, 1, false);
    core_inference_end(before);
    FAILS(core_fused_sgd_step(&x, 1, &g, 1, NULL, 0, .5, 0, 0, 0, false, false,
                              NULL, NULL),
          CORE_ERROR_AUTOGRAD, "_fused_sgd_step", "inference mode");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        gradient_sharing_parameter_memory_is_read_in_order,
        parameters_sharing_memory_step_one_after_the_other,
        parameters_sharing_a_state_tensor_are_not_fused,
        parameters_overlapping_in_external_memory_are_not_fused,
        cpu_step_bumps_version_of_stepped_parameters_only,
        plain_sgd_is_fused_only_on_devices_with_streams,
        plain_fused_sgd_equals_add_bit_for_bit,
        fused_cpu_step_unscales_gradients_and_skips_on_found_inf,
        fused_step_accepts_empty_tensors,
        fused_step_bumps_version_of_every_tensor_that_it_changes,
        gradient_after_a_fused_step_of_a_saved_tensor_fails,
        fused_step_within_a_region_is_seen_by_casts,
        fused_step_refuses_tensors_of_inference_mode,
    };
    const suite_loop loops[] = {
        {fused_steps_equal_separate_operators_bit_for_bit, 0,
         sizeof instruction_sets / sizeof *instruction_sets},
    };
    const test_suite suite = {
        .name = "optim/optim_cpu",
        .teardown = drop_all,
        .seconds = SUITE_SECONDS,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
