/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Groups of the parameters of one optimizer step like optimizers of their own,
 * bit for bit. */

#include "support/stream.h"

#include <libcore/optim.h>

enum { COUNT = 5, STEPS = 4 };

/* How the groups are optimized. */
typedef struct method {
    bool is_adam;
    core_adam_options adam[2];
    core_sgd_options sgd[2];
} method;

#define ADAM(...)                                                              \
    {                                                                          \
        .struct_size = sizeof(core_adam_options), .epsilon = 1e-8, __VA_ARGS__ \
    }
#define SGD(...)                                             \
    {                                                        \
        .struct_size = sizeof(core_sgd_options), __VA_ARGS__ \
    }

static const method methods[] = {
    {.is_adam = true,
     .adam = {ADAM(.learning_rate = .01, .beta1 = .9, .beta2 = .999,
                   .weight_decay = .1, .decoupled = 1),
              ADAM(.learning_rate = .1, .beta1 = .5, .beta2 = .75)}},
    {.sgd = {SGD(.learning_rate = .1, .momentum = .9, .weight_decay = .1),
             SGD(.learning_rate = .2, .momentum = .5, .dampening = .25)}},
    {.sgd = {SGD(.learning_rate = .1),
             SGD(.learning_rate = .2, .weight_decay = .5)}},
};
enum { METHODS = sizeof methods / sizeof *methods };

static bool is_in_group(int i)
{
    return i == 1 || i == 4;
}

static core_tensor *numbers(int i, int step, core_device *device)
{
    core_tensor *x = VECTOR(3, .5 * i - step, .25 * step, 1.5 - i);

    return CALL(to_copy, x, CORE_F32, device, false, -1);
}

static core_optimizer *create(const method *m, int group,
                              core_tensor *const *parameters, size_t count)
{
    core_optimizer *optimizer;

    if (m->is_adam)
        OK(core_adam_create(parameters, count, &m->adam[group], &optimizer));
    else
        OK(core_sgd_create(parameters, count, &m->sgd[group], &optimizer));
    return optimizer;
}

static void same(core_tensor *a, core_tensor *b)
{
    float x[3], y[3];

    OK(core_tensor_read(a, x, sizeof x));
    OK(core_tensor_read(b, y, sizeof y));
    ck_assert_mem_eq(x, y, sizeof x);
}

static void compare(const method *m, core_device *device)
{
    core_tensor *joint[COUNT], *apart[COUNT], *parts[2][COUNT], *group[COUNT];
    core_optimizer *one, *two[2];
    size_t counts[2] = {0};

    for (int i = 0; i < COUNT; i++) {
        int at = is_in_group(i);

        joint[i] = leaf(numbers(i, 0, device));
        apart[i] = leaf(numbers(i, 0, device));
        if (at)
            group[counts[at]] = joint[i];
        parts[at][counts[at]++] = apart[i];
    }
    one = create(m, 0, joint, COUNT);
    if (m->is_adam)
        OK(core_adam_set_group(one, group, counts[1], &m->adam[1]));
    else
        OK(core_sgd_set_group(one, group, counts[1], &m->sgd[1]));
    for (int k = 0; k < 2; k++)
        two[k] = create(m, k, parts[k], counts[k]);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
            OK(core_tensor_set_grad(joint[i], numbers(i, step + 1, device)));
            OK(core_tensor_set_grad(apart[i], numbers(i, step + 1, device)));
        }
        if (step == 2) {
            OK(core_optimizer_set_group_learning_rate(one, 1, .5));
            OK(core_optimizer_set_learning_rate(two[1], .5));
        }
        OK(core_optimizer_step(one));
        OK(core_optimizer_step(two[0]));
        OK(core_optimizer_step(two[1]));
    }
    for (int i = 0; i < COUNT; i++)
        same(joint[i], apart[i]);
    core_optimizer_release(one);
    core_optimizer_release(two[0]);
    core_optimizer_release(two[1]);
}

START_TEST(groups_step_like_optimizers_of_their_own)
{
    for (int i = 0; i < METHODS; i++) {
        compare(&methods[i], device_of("cpu"));
        compare(&methods[i], device_of("sim"));
    }
}
END_TEST

START_TEST(groups_have_learning_rates)
{
    core_tensor *x[3] = {leaf(VECTOR(1, 1)), leaf(VECTOR(1, 2)),
                         leaf(VECTOR(1, 3))};
    core_optimizer *sgd = create(&methods[2], 0, x, 3);

    ck_assert_uint_eq(core_optimizer_group_count(sgd), 1);
    OK(core_sgd_set_group(sgd, x + 1, 1, &methods[2].sgd[1]));
    ck_assert_uint_eq(core_optimizer_group_count(sgd), 2);
    ck_assert_uint_eq(core_optimizer_group(sgd, 0), 0);
    ck_assert_uint_eq(core_optimizer_group(sgd, 1), 1);
    ck_assert_uint_eq(core_optimizer_group(sgd, 3), SIZE_MAX);
    ck_assert_double_eq(core_optimizer_group_learning_rate(sgd, 1), .2);
    ck_assert_double_eq(core_optimizer_group_learning_rate(sgd, 2), 0);
    ck_assert_double_eq(core_optimizer_learning_rate(sgd), .1);
    OK(core_optimizer_set_learning_rate(sgd, .75));
    ck_assert_double_eq(core_optimizer_group_learning_rate(sgd, 0), .75);
    ck_assert_double_eq(core_optimizer_group_learning_rate(sgd, 1), .75);
    FAILS(core_optimizer_set_group_learning_rate(sgd, 2, 1), CORE_ERROR_INDEX,
          "group is 2; the optimizer has 2");
    FAILS(core_optimizer_set_group_learning_rate(sgd, 1, -1),
          CORE_ERROR_INVALID_ARGUMENT, "learning rate is -1");
    core_optimizer_release(sgd);
}
END_TEST

START_TEST(wrong_groups_are_refused)
{
    core_tensor *x[2] = {leaf(VECTOR(1, 1)), leaf(VECTOR(1, 2))};
    core_tensor *other = leaf(VECTOR(1, 3));
    core_sgd_options bad = methods[2].sgd[1];
    core_optimizer *sgd = create(&methods[2], 0, x, 2);

    FAILS(core_sgd_set_group(sgd, &other, 1, &bad), CORE_ERROR_NOT_FOUND,
          "parameter 0 of the group is not one of the optimizer");
    FAILS(core_adam_set_group(sgd, x, 1, &methods[0].adam[0]),
          CORE_ERROR_INVALID_ARGUMENT, "another kind of optimizer");
    FAILS(core_sgd_set_group(sgd, x, 1, &methods[1].sgd[0]),
          CORE_ERROR_INVALID_ARGUMENT, "momentum is 0 in some groups");
    bad.weight_decay = -1;
    FAILS(core_sgd_set_group(sgd, x, 1, &bad), CORE_ERROR_INVALID_ARGUMENT,
          "weight decay is -1");
    bad = methods[2].sgd[1];
    bad.learning_rate = -1;
    FAILS(core_sgd_set_group(sgd, x, 1, &bad), CORE_ERROR_INVALID_ARGUMENT,
          "learning rate is -1");
    ck_assert_uint_eq(core_optimizer_group_count(sgd), 1);
    core_optimizer_release(sgd);
}
END_TEST

SUITE("optim/groups", groups_step_like_optimizers_of_their_own,
      groups_have_learning_rates, wrong_groups_are_refused)
