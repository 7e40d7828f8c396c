/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/suite.h"

#include <libcore/autograd.h>
#include <libcore/device.h>
#include <libcore/ops.h>
#include <libcore/optim.h>

#include "base/memory.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 3, STEPS = 4 };

static const double start[SIZE] = {0.5, -1.25, 2.0};
static const double gradients[STEPS][SIZE] = {
    {0.1, -0.2, 0.3}, {-0.4, 0.05, 0.6}, {0.7, -0.8, -0.01}, {0.25, 0.0, -1.5}};
static core_device *cpu;
static core_tensor *parameter;
static core_optimizer *optimizer;

static core_tensor *vector(const double *values)
{
    const int64_t size = SIZE;
    core_tensor *tensor;

    ck_assert_msg(core_tensor_from_data(values, CORE_F64, &size, 1, cpu,
                                        &tensor) == CORE_OK,
                  "%s", core_error_message());
    return tensor;
}

static void set_up(void)
{
    ck_assert_msg(core_device_find("cpu", &cpu) == CORE_OK, "%s",
                  core_error_message());
    parameter = vector(start);
    ck_assert_int_eq(core_tensor_set_requires_grad(parameter, true), CORE_OK);
    optimizer = NULL;
}

static void tear_down(void)
{
    core_optimizer_release(optimizer);
    core_tensor_release(parameter);
}

static core_sgd_options sgd(double momentum, double dampening,
                            double weight_decay, uint32_t nesterov)
{
    return (core_sgd_options){.struct_size = sizeof(core_sgd_options),
                              .nesterov = nesterov,
                              .learning_rate = 0.1,
                              .momentum = momentum,
                              .dampening = dampening,
                              .weight_decay = weight_decay};
}

static core_adam_options adam(void)
{
    return (core_adam_options){.struct_size = sizeof(core_adam_options),
                               .learning_rate = 0.01,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8};
}

static void use_sgd(const core_sgd_options *options)
{
    ck_assert_msg(core_sgd_create(&parameter, 1, options, &optimizer) ==
                      CORE_OK,
                  "%s", core_error_message());
}

static void use_adam(const core_adam_options *options)
{
    ck_assert_msg(core_adam_create(&parameter, 1, options, &optimizer) ==
                      CORE_OK,
                  "%s", core_error_message());
}

static void set_gradient(int step)
{
    core_tensor *grad = vector(gradients[step]);

    ck_assert_int_eq(core_tensor_set_grad(parameter, grad), CORE_OK);
    core_tensor_release(grad);
}

static void take_steps(int first, int last)
{
    for (int i = first; i < last; i++) {
        set_gradient(i);
        ck_assert_msg(core_optimizer_step(optimizer) == CORE_OK, "%s",
                      core_error_message());
    }
}

static void expect(const double *wanted, double tolerance)
{
    double got[SIZE];

    ck_assert_int_eq(core_tensor_read(parameter, got, sizeof got), CORE_OK);
    for (int i = 0; i < SIZE; i++)
        ck_assert_msg(fabs(got[i] - wanted[i]) <= tolerance,
                      "element %d is %.17g, not %.17g", i, got[i], wanted[i]);
}

/* ----------------------------------------------------------------- steps -- */

/* Parameters after four steps of the optimizers of libtorch 1.13.1. */
static const struct {
    double momentum;
    double dampening;
    double weight_decay;
    uint32_t nesterov;
    double after[SIZE];
} sgd_cases[] = {
    {0, 0, 0, 0, {0.435, -1.1549999999999998, 2.0609999999999999}},
    {0,
     0,
     .01,
     0,
     {0.43302300801050003, -1.1501374400212501, 2.0532208420319997}},
    {.9, 0, 0, 0, {0.41601000000000005, -1.04277, 1.8861300000000001}},
    {.9,
     .5,
     0,
     0,
     {0.44080999999999998, -1.1119950000000001, 1.8914800000000001}},
    {.9,
     .5,
     .01,
     0,
     {0.43771549747631244, -1.1043026639401563, 1.8791955766539998}},
    {.9,
     0,
     0,
     1,
     {0.35940899999999998, -0.96849299999999994, 1.9585170000000001}},
    {.9,
     0,
     .01,
     1,
     {0.35339897604968701, -0.95400073370055705, 1.9355227155814272}},
};

START_TEST(sgd_matches_libtorch)
{
    core_sgd_options options =
        sgd(sgd_cases[_i].momentum, sgd_cases[_i].dampening,
            sgd_cases[_i].weight_decay, sgd_cases[_i].nesterov);

    use_sgd(&options);
    take_steps(0, STEPS);
    expect(sgd_cases[_i].after, 1e-14);
    ck_assert_uint_eq(core_optimizer_steps(optimizer, 0), STEPS);
}
END_TEST

START_TEST(adam_matches_libtorch)
{
    static const double after[SIZE] = {0.48798198813091526, -1.2224054795310471,
                                       1.9758283843876332};
    core_adam_options options = adam();

    use_adam(&options);
    take_steps(0, STEPS);
    expect(after, 1e-14);
}
END_TEST

START_TEST(adam_with_weight_decay_matches_libtorch)
{
    static const double after[SIZE] = {0.4843831136665474, -1.2162770752877743,
                                       1.9731874843603967};
    core_adam_options options = adam();

    options.weight_decay = 0.1;
    options.beta1 = 0.8;
    options.beta2 = 0.99;
    options.epsilon = 1e-3;
    use_adam(&options);
    take_steps(0, STEPS);
    expect(after, 1e-14);
}
END_TEST

START_TEST(adamw_matches_libtorch)
{
    static const double after[SIZE] = {0.48600708254439978, -1.2174594203869329,
                                       1.9678970051666327};
    core_adam_options options = adam();

    options.weight_decay = 0.1;
    options.decoupled = 1;
    use_adam(&options);
    take_steps(0, STEPS);
    expect(after, 1e-14);
}
END_TEST

START_TEST(step_keeps_gradient_and_modes)
{
    core_sgd_options options = sgd(.9, 0, .01, 1);
    double got[SIZE];

    use_sgd(&options);
    take_steps(0, 1);
    ck_assert(core_grad_mode());
    ck_assert(core_tensor_is_leaf(parameter));
    ck_assert(core_tensor_requires_grad(parameter));
    ck_assert_int_eq(
        core_tensor_read(core_tensor_grad(parameter), got, sizeof got),
        CORE_OK);
    ck_assert_mem_eq(got, gradients[0], sizeof got);
    ck_assert(
        !core_tensor_requires_grad(core_optimizer_state(optimizer, 0, 0)));
    core_optimizer_zero_grad(optimizer);
    ck_assert_ptr_null(core_tensor_grad(parameter));
}
END_TEST

START_TEST(parameter_without_gradient_is_not_stepped)
{
    core_adam_options options = adam();

    use_adam(&options);
    ck_assert_int_eq(core_optimizer_step(optimizer), CORE_OK);
    expect(start, 0);
    ck_assert_uint_eq(core_optimizer_steps(optimizer, 0), 0);
    ck_assert_ptr_null(core_optimizer_state(optimizer, 0, 0));
}
END_TEST

START_TEST(learning_rate_can_change_between_steps)
{
    core_sgd_options options = sgd(0, 0, 0, 0);
    const double after[SIZE] = {0.5 - 0.1 * 0.1 + 0.5 * 0.4,
                                -1.25 + 0.1 * 0.2 - 0.5 * 0.05,
                                2.0 - 0.1 * 0.3 - 0.5 * 0.6};

    use_sgd(&options);
    take_steps(0, 1);
    ck_assert_int_eq(core_optimizer_set_learning_rate(optimizer, 0.5), CORE_OK);
    ck_assert(core_optimizer_learning_rate(optimizer) == 0.5);
    take_steps(1, 2);
    expect(after, 1e-15);
    ck_assert_int_eq(core_optimizer_set_learning_rate(optimizer, -1),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_optimizer_set_learning_rate(optimizer, NAN),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert(core_optimizer_learning_rate(optimizer) == 0.5);
}
END_TEST

START_TEST(step_follows_gradient_of_backward)
{
    core_sgd_options options = sgd(0, 0, 0, 0);
    const double after[SIZE] = {0.5 * 0.8, -1.25 * 0.8, 2.0 * 0.8};
    core_tensor *square, *sum;

    use_sgd(&options);
    ck_assert_int_eq(core_mul(parameter, parameter, &square), CORE_OK);
    ck_assert_int_eq(core_sum(square, CORE_DTYPE_NONE, &sum), CORE_OK);
    ck_assert_int_eq(core_backward(&sum, 1, NULL, 0), CORE_OK);
    core_tensor_release(square);
    core_tensor_release(sum);
    ck_assert_int_eq(core_optimizer_step(optimizer), CORE_OK);
    expect(after, 1e-15);
}
END_TEST

/* ----------------------------------------------------------------- state -- */

/* Copies the state of one optimizer to another through host memory. */
static void move_state(const core_optimizer *from, core_optimizer *to)
{
    core_tensor *state[4];
    size_t count = 0;

    while (core_optimizer_state_name(from, count)) {
        double values[SIZE];

        ck_assert_int_eq(core_tensor_read(core_optimizer_state(from, 0, count),
                                          values, sizeof values),
                         CORE_OK);
        state[count++] = vector(values);
    }
    ck_assert_int_eq(core_optimizer_set_state(
                         to, 0, core_optimizer_steps(from, 0), state, count),
                     CORE_OK);
    for (size_t i = 0; i < count; i++)
        core_tensor_release(state[i]);
}

static void read_parameter(double *values)
{
    ck_assert_int_eq(core_tensor_read(parameter, values, SIZE * sizeof *values),
                     CORE_OK);
}

START_TEST(restored_optimizer_continues_bit_for_bit)
{
    core_sgd_options momentum = sgd(.9, 0, .01, 1);
    core_adam_options options = adam();
    core_optimizer *first = NULL;
    double straight[SIZE], resumed[SIZE];

    if (_i)
        use_adam(&options);
    else
        use_sgd(&momentum);
    take_steps(0, STEPS);
    read_parameter(straight);
    core_optimizer_release(optimizer);

    ck_assert_int_eq(core_tensor_write(parameter, start, sizeof start),
                     CORE_OK);
    if (_i)
        use_adam(&options);
    else
        use_sgd(&momentum);
    take_steps(0, 2);
    first = optimizer;
    if (_i)
        use_adam(&options);
    else
        use_sgd(&momentum);
    move_state(first, optimizer);
    core_optimizer_release(first);
    take_steps(2, STEPS);
    read_parameter(resumed);
    ck_assert_mem_eq(straight, resumed, sizeof straight);
}
END_TEST

START_TEST(optimizer_state_has_names_and_is_validated)
{
    const int64_t two = 2, size = SIZE;
    const float narrow[SIZE] = {0};
    core_adam_options options = adam();
    core_tensor *state[2], *other;

    use_adam(&options);
    ck_assert_str_eq(core_optimizer_state_name(optimizer, 0), "exp_avg");
    ck_assert_str_eq(core_optimizer_state_name(optimizer, 1), "exp_avg_sq");
    ck_assert_ptr_null(core_optimizer_state_name(optimizer, 2));
    ck_assert_ptr_null(core_optimizer_state_name(optimizer, 99));
    ck_assert_ptr_eq(core_optimizer_parameter(optimizer, 0), parameter);
    ck_assert_ptr_null(core_optimizer_parameter(optimizer, 1));
    ck_assert_uint_eq(core_optimizer_parameter_count(optimizer), 1);

    state[0] = vector(start);
    ck_assert_int_eq(core_optimizer_set_state(optimizer, 0, 1, state, 1),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_optimizer_set_state(optimizer, 1, 1, state, 2),
                     CORE_ERROR_INDEX);
    state[1] = NULL;
    ck_assert_int_eq(core_optimizer_set_state(optimizer, 0, 1, state, 2),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(
        core_tensor_from_data(start, CORE_F64, &two, 1, cpu, &other), CORE_OK);
    state[1] = other;
    ck_assert_int_eq(core_optimizer_set_state(optimizer, 0, 1, state, 2),
                     CORE_ERROR_SHAPE);
    core_tensor_release(other);
    ck_assert_int_eq(
        core_tensor_from_data(narrow, CORE_F32, &size, 1, cpu, &other),
        CORE_OK);
    state[1] = other;
    ck_assert_int_eq(core_optimizer_set_state(optimizer, 0, 1, state, 2),
                     CORE_ERROR_DTYPE);
    core_tensor_release(other);
    core_tensor_release(state[0]);
    ck_assert_uint_eq(core_optimizer_steps(optimizer, 0), 0);
    ck_assert_ptr_null(core_optimizer_state(optimizer, 0, 0));
    ck_assert_int_eq(core_optimizer_set_state(optimizer, 0, 0, NULL, 0),
                     CORE_OK);
}
END_TEST

START_TEST(state_that_shares_memory_is_refused)
{
    core_adam_options options = adam();
    core_tensor *a, *b, *one, *alias;
    int64_t size = SIZE;

    use_adam(&options);
    a = vector(start);
    b = vector(start);
    ck_assert_int_eq(core_full(NULL, 0, core_float(1), CORE_F64, cpu, &one),
                     CORE_OK);
    ck_assert_int_eq(core_detach(parameter, &alias), CORE_OK);
    {
        core_tensor *wide;

        ck_assert_int_eq(core_expand(one, &size, 1, false, &wide), CORE_OK);
        core_tensor *const wrong[][2] = {
            {parameter, a}, {a, parameter}, {alias, a}, {a, a}, {a, wide}};

        for (int i = 0; i < 5; i++)
            ck_assert_msg(
                core_optimizer_set_state(optimizer, 0, 1, wrong[i], 2) ==
                    CORE_ERROR_INVALID_ARGUMENT,
                "%d", i);
        core_tensor_release(wide);
    }
    ck_assert_ptr_null(core_optimizer_state(optimizer, 0, 0));
    ck_assert_int_eq(core_optimizer_set_state(optimizer, 0, UINT64_MAX,
                                              (core_tensor *[]){a, b}, 2),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(
        core_optimizer_set_state(optimizer, 0, 0, (core_tensor *[]){a, b}, 2),
        CORE_OK);
    ck_assert_ptr_eq(core_optimizer_state(optimizer, 0, 1), b);
    ck_assert_uint_eq(core_optimizer_steps(optimizer, 0), 0);
    core_tensor_release(a);
    core_tensor_release(b);
    core_tensor_release(one);
    core_tensor_release(alias);
}
END_TEST

/* ---------------------------------------------------------------- errors -- */

START_TEST(options_out_of_range_are_refused)
{
    static const core_sgd_options bad_sgd[] = {
        {.struct_size = 0, .learning_rate = 1},
        {.struct_size = sizeof(core_sgd_options), .learning_rate = -1},
        {.struct_size = sizeof(core_sgd_options), .learning_rate = NAN},
        {.struct_size = sizeof(core_sgd_options), .learning_rate = INFINITY},
        {.struct_size = sizeof(core_sgd_options), .momentum = -1},
        {.struct_size = sizeof(core_sgd_options), .weight_decay = -1},
        {.struct_size = sizeof(core_sgd_options), .nesterov = 1},
        {.struct_size = sizeof(core_sgd_options),
         .nesterov = 1,
         .momentum = .9,
         .dampening = .1},
    };
    core_adam_options options;

    for (size_t i = 0; i < sizeof bad_sgd / sizeof *bad_sgd; i++) {
        ck_assert_int_eq(
            core_sgd_create(&parameter, 1, &bad_sgd[i], &optimizer),
            CORE_ERROR_INVALID_ARGUMENT);
        ck_assert_ptr_null(optimizer);
    }
    for (int i = 0; i < 4; i++) {
        options = adam();
        *(i == 0   ? &options.beta1
          : i == 1 ? &options.beta2
          : i == 2 ? &options.epsilon
                   : &options.weight_decay) = i < 2 ? 1 : -1;
        ck_assert_int_eq(core_adam_create(&parameter, 1, &options, &optimizer),
                         CORE_ERROR_INVALID_ARGUMENT);
        ck_assert_ptr_null(optimizer);
    }
    options = adam();
    options.decoupled = 7;
    ck_assert_int_eq(core_adam_create(&parameter, 1, &options, &optimizer),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "decoupled is 7"));
}
END_TEST

START_TEST(invalid_parameters_are_refused)
{
    core_sgd_options options = sgd(0, 0, 0, 0);
    core_tensor *plain = vector(start), *result;
    core_tensor *twice[2] = {parameter, parameter};

    ck_assert_int_eq(core_mul(parameter, plain, &result), CORE_OK);
    ck_assert_int_eq(core_sgd_create(&plain, 1, &options, &optimizer),
                     CORE_ERROR_AUTOGRAD);
    ck_assert_int_eq(core_sgd_create(&result, 1, &options, &optimizer),
                     CORE_ERROR_AUTOGRAD);
    ck_assert_int_eq(core_sgd_create(twice, 2, &options, &optimizer),
                     CORE_ERROR_AUTOGRAD);
    ck_assert_int_eq(core_sgd_create(twice, 0, &options, &optimizer),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_ptr_null(optimizer);
    core_tensor_release(plain);
    core_tensor_release(result);
}
END_TEST

START_TEST(optimizer_keeps_its_parameters_alive)
{
    core_sgd_options options = sgd(0, 0, 0, 0);
    uint32_t before = core_tensor_references(parameter);

    use_sgd(&options);
    ck_assert_uint_eq(core_tensor_references(parameter), before + 1);
    core_optimizer_release(optimizer);
    optimizer = NULL;
    ck_assert_uint_eq(core_tensor_references(parameter), before);
    core_optimizer_release(NULL);
}
END_TEST

/* Takes a first step, which allocates all state. */
static core_status first_step(int kind)
{
    core_sgd_options momentum = sgd(.9, 0, .01, 1);
    core_adam_options options = adam();
    core_status status;

    options.weight_decay = 0.1;
    status = kind ? core_adam_create(&parameter, 1, &options, &optimizer)
                  : core_sgd_create(&parameter, 1, &momentum, &optimizer);
    if (status == CORE_OK)
        status = core_optimizer_step(optimizer);
    core_optimizer_release(optimizer);
    optimizer = NULL;
    return status;
}

START_TEST(failed_allocation_in_first_step_leaks_nothing)
{
    int64_t allowed = 0, live;
    core_status status;

    set_gradient(0);
    ck_assert_int_eq(first_step(_i), CORE_OK);
    do {
        core__alloc_fault_set(INT64_MAX, false);
        live = core__alloc_live();
        core__alloc_fault_set(allowed, false);
        status = first_step(_i);
        core__alloc_fault_set(INT64_MAX, false);
        ck_assert(status == CORE_OK || status == CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_int_eq(core__alloc_live(), live);
        core__alloc_fault_set(-1, false);
        allowed++;
        ck_assert_int_lt(allowed, 1000);
    } while (status != CORE_OK);
    ck_assert_int_gt(allowed, 4);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        adam_matches_libtorch,
        adam_with_weight_decay_matches_libtorch,
        adamw_matches_libtorch,
        step_keeps_gradient_and_modes,
        parameter_without_gradient_is_not_stepped,
        learning_rate_can_change_between_steps,
        step_follows_gradient_of_backward,
        optimizer_state_has_names_and_is_validated,
        state_that_shares_memory_is_refused,
        options_out_of_range_are_refused,
        invalid_parameters_are_refused,
        optimizer_keeps_its_parameters_alive,
    };
    const suite_loop loops[] = {
        {sgd_matches_libtorch, 0, sizeof sgd_cases / sizeof *sgd_cases},
        {restored_optimizer_continues_bit_for_bit, 0, 2},
        {failed_allocation_in_first_step_leaks_nothing, 0, 2},
    };
    const test_suite suite = {
        .name = "optim/optim",
        .setup = set_up,
        .teardown = tear_down,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
