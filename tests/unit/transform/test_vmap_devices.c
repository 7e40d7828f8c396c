/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_vmap on the simulated device, whose work is asynchronous and whose nodes
 * a thread of the engine runs. */

#include "support/devices.h"

#include <libcore/functional.h>
#include <libcore/transform.h>

/* sum(w x^2): the product on the device `context`, the sum on the host. */
static core_status loss(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    core_tensor *x = NULL, *y = NULL, *moved = NULL, *cpu = NULL;
    core_status status = core_mul(inputs[1], inputs[1], &x);

    (void)ninputs;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_to_copy(x, CORE_F64, context, false, -1, &moved);
    if (status == CORE_OK)
        status = core_mul(moved, inputs[0], &y);
    if (status == CORE_OK)
        status = core_to_copy(y, CORE_F64, device_of("cpu"), false, -1, &cpu);
    if (status == CORE_OK)
        status = core_sum(cpu, CORE_DTYPE_NONE, &outputs[0]);
    core_tensor_release(x);
    core_tensor_release(y);
    core_tensor_release(moved);
    core_tensor_release(cpu);
    return status;
}

static core_status gradients(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    core_derivative d = {.struct_size = sizeof d,
                         .function = loss,
                         .context = context,
                         .inputs = inputs,
                         .ninputs = ninputs};

    *noutputs = 2;
    return core_vjp(&d, NULL, NULL, NULL, outputs);
}

static const int64_t in_dims[] = {CORE_VMAP_NOT_MAPPED, 0};
static const core_vmap_options second_mapped = {
    .struct_size = sizeof second_mapped, .in_dims = in_dims};

static void check_devices(const char *first, const char *second)
{
    core_tensor *inputs[] = {fresh_on(VECTOR(2, 3, 5), second),
                             fresh_on(MATRIX(2, 2, 1, 2, 3, 4), first)};
    core_tensor *outs[2];

    OK(core_vmap(gradients, device_of(second), &second_mapped, inputs, 2, outs,
                 2));
    ck_assert_ptr_eq(core_tensor_device(keep(outs[0])), device_of(second));
    ck_assert_ptr_eq(core_tensor_device(keep(outs[1])), device_of(first));
    HOLDS(fresh_on(outs[0], "cpu"), 4, 1, 4, 9, 16);
    HOLDS(fresh_on(outs[1], "cpu"), 4, 6, 20, 18, 40);
}

START_TEST(threads_of_the_engine_give_the_gradients_of_each_sample)
{
    check_devices("sim:0", "sim:0");
    check_devices("sim:0", "sim:1");
    check_devices("cpu", "sim:1");
}
END_TEST

START_TEST(gradients_pass_through_the_call)
{
    core_tensor *inputs[] = {leaf(fresh_on(VECTOR(2, 3, 5), "sim:1")),
                             leaf(fresh_on(MATRIX(2, 2, 1, 2, 3, 4), "sim:0"))};
    core_tensor *out;

    OK(core_vmap(loss, device_of("sim:1"), &second_mapped, inputs, 2, &out, 1));
    backward(sum(keep(out)));
    HOLDS(fresh_on(core_tensor_grad(inputs[0]), "cpu"), 2, 10, 20);
    HOLDS(fresh_on(core_tensor_grad(inputs[1]), "cpu"), 4, 6, 20, 18, 40);
}
END_TEST

/* The gradient of a function of the program on another device. */
static core_status pass_backward(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    core_tensor *x = CALL(detach, inputs[0]), *y;

    (void)ninputs;
    leaf(x);
    y = pass(context, on(mul(x, x), "sim:0"));
    OK(core_backward(&y, 1, NULL, 0));
    *noutputs = 1;
    outputs[0] = core_tensor_retain(core_tensor_grad(x));
    return CORE_OK;
}

START_TEST(function_of_the_program_runs_in_another_thread)
{
    passing function = {.factor = 2};
    core_tensor *input = VECTOR(2, 3, 5), *out;

    OK(core_vmap(pass_backward, &function, NULL, &input, 1, &out, 1));
    HOLDS(keep(out), 2, 12, 20);
    ck_assert(!pthread_equal(function.thread, pthread_self()));
}
END_TEST

/* Dropout, and its sums so far. */
static core_status noise(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    core_tensor *x = NULL;
    core_status status = core_dropout(inputs[0], .5, true, &x);

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_cumsum(x, 0, CORE_DTYPE_NONE, &outputs[0]);
    core_tensor_release(x);
    return status;
}

START_TEST(random_numbers_of_the_device_are_the_same_or_different)
{
    core_tensor *input =
        CALL(ones, (int64_t[]){3, 64}, 2, CORE_F64, device_of("sim"));
    core_vmap_options options = {.struct_size = sizeof options};

    for (uint32_t kind = CORE_VMAP_RANDOM_SAME;
         kind <= CORE_VMAP_RANDOM_DIFFERENT; kind++) {
        core_tensor *out;
        bool same;

        options.randomness = kind;
        OK(core_vmap(noise, NULL, &options, &input, 1, &out, 1));
        out = fresh_on(keep(out), "cpu");
        OK(core_equal(CALL(select, out, 0, 0), CALL(select, out, 0, 2), &same));
        ck_assert_int_eq(same, kind == CORE_VMAP_RANDOM_SAME);
    }
}
END_TEST

SUITE("transform/vmap_devices",
      threads_of_the_engine_give_the_gradients_of_each_sample,
      gradients_pass_through_the_call,
      function_of_the_program_runs_in_another_thread,
      random_numbers_of_the_device_are_the_same_or_different)
