/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compiled training steps: forward, backward and optimizer in one function. */

#include "support/compiled.h"

#include <libcore/autocast.h>
#include <libcore/destination.h>
#include <libcore/device.h>

/* A perceptron with one hidden layer.  Inputs: a batch, its targets, the
 * weights.  Hidden inputs: momentum and buffers of gradients. */
enum { X, TARGET, W1, W2, NINPUTS, STEPS = 6 };

static world perceptron(void)
{
    world w = {.device = program_device, .ninputs = NINPUTS, .nhidden = 4};

    w.inputs[X] = NUMBERS(&w, 1, 8, 5);
    w.inputs[TARGET] = NUMBERS(&w, 100, 8, 3);
    w.inputs[W1] = leaf(NUMBERS(&w, 200, 5, 6));
    w.inputs[W2] = leaf(NUMBERS(&w, 300, 6, 3));
    w.hidden[0] = NUMBERS(&w, 400, 5, 6);
    w.hidden[1] = NUMBERS(&w, 500, 6, 3);
    w.hidden[2] = NUMBERS(&w, 600, 5, 6);
    w.hidden[3] = NUMBERS(&w, 700, 6, 3);
    return w;
}

static core_status loss_of(core_tensor *const *x, core_tensor **out_loss)
{
    core_tensor *h = NULL, *a = NULL, *d = NULL, *y = NULL;
    core_status status = core_mm(x[X], x[W1], &h);

    *out_loss = NULL;
    if (status == CORE_OK)
        status = core_tanh(h, &a);
    if (status == CORE_OK)
        status = core_dropout(a, 0.25, true, &d);
    if (status == CORE_OK)
        status = core_mm(d, x[W2], &y);
    if (status == CORE_OK)
        status = core_mse_loss(y, x[TARGET], CORE_REDUCTION_MEAN, out_loss);
    core_tensor_release(h);
    core_tensor_release(a);
    core_tensor_release(d);
    core_tensor_release(y);
    return status;
}

static core_status momentum_step(world *w, core_tensor *const *x,
                                 core_tensor *const *grads)
{
    bool before = core_grad_mode_set(false);
    core_status status =
        core_fused_sgd_step(&x[W1], 2, grads, 2, w->hidden, 2, .0625, .5, 0, 0,
                            false, false, NULL, NULL);

    core_grad_mode_set(before);
    return status;
}

COMPILED_FUNCTION(step_by_grad)
{
    core_tensor *loss, *grads[2] = {NULL};
    core_status status = loss_of(x, &loss);

    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, &x[W1], 2, 0, grads);
    if (status == CORE_OK)
        status = momentum_step(w, x, grads);
    if (status == CORE_OK)
        status = core_detach(loss, &out[0]);
    core_tensor_release(loss);
    core_tensor_release(grads[0]);
    core_tensor_release(grads[1]);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(step_by_destinations)
{
    core_gradient_destination to[2] = {
        {.struct_size = sizeof *to, .input = x[W1], .buffer = w->hidden[2]},
        {.struct_size = sizeof *to, .input = x[W2], .buffer = w->hidden[3]}};
    core_tensor *loss;
    core_status status = loss_of(x, &loss);

    if (status == CORE_OK)
        status = core_backward_into(&loss, 1, NULL, 0, to, 2);
    if (status == CORE_OK)
        status = momentum_step(w, x, &w->hidden[2]);
    if (status == CORE_OK)
        status = core_detach(loss, &out[0]);
    core_tensor_release(loss);
    *noutputs = 1;
    return status;
}

/* Accumulates to the gradients of the weights, which exist. */
COMPILED_FUNCTION(step_by_backward)
{
    core_tensor *grads[2] = {core_tensor_grad(x[W1]), core_tensor_grad(x[W2])};
    core_tensor *loss;
    core_status status = loss_of(x, &loss);

    if (status == CORE_OK)
        status = core_zero_(grads[0]);
    if (status == CORE_OK)
        status = core_zero_(grads[1]);
    if (status == CORE_OK)
        status = core_backward(&loss, 1, NULL, 0);
    if (status == CORE_OK)
        status = momentum_step(w, x, grads);
    if (status == CORE_OK)
        status = core_detach(loss, &out[0]);
    core_tensor_release(loss);
    *noutputs = 1;
    return status;
}

static void train(core_tensor_function step, bool with_gradients)
{
    world eager = perceptron(), traced = perceptron();
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_FULLGRAPH};
    core_compiled *compiled;

    for (int i = 0; i < 2 && with_gradients; i++) {
        OK(core_tensor_set_grad(eager.inputs[W1 + i], eager.hidden[2 + i]));
        OK(core_tensor_set_grad(traced.inputs[W1 + i], traced.hidden[2 + i]));
    }
    OK(core_compile(step, &traced, &options, &compiled));
    for (int i = 0; i < STEPS; i++)
        same_call(step, &eager, compiled, &traced);
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"compiled_calls\": 6");
    ck_assert(core_tensor_requires_grad(traced.inputs[W1]));
    core_compiled_release(compiled);
}

START_TEST(a_step_by_core_grad_trains_as_the_function)
{
    train(step_by_grad, false);
}
END_TEST

/* Regions keep casts of weights, in the thread. */
START_TEST(a_step_in_an_autocast_region_trains_as_the_function)
{
    world eager = perceptron(), traced = perceptron();
    core_compile_counts before = compile_counts();
    core_compiled *compiled;

    OK(core_compile(step_by_grad, &traced, NULL, &compiled));
    for (int step = 0; step < STEPS; step++) {
        uint64_t region;

        OK(core_autocast_begin(program_device, CORE_BF16, 0, &region));
        same_call(step_by_grad, &eager, compiled, &traced);
        OK(core_autocast_end(region));
    }
    ck_assert_uint_eq(compile_counts().traces, before.traces + 1);
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_step_to_destinations_trains_as_the_function)
{
    train(step_by_destinations, false);
}
END_TEST

START_TEST(a_step_that_accumulates_gradients_trains_as_the_function)
{
    train(step_by_backward, true);
}
END_TEST

START_TEST(another_gradient_of_an_input_is_seen)
{
    world eager = perceptron(), traced = perceptron();
    core_compiled *compiled;

    OK(core_compile(step_by_backward, &traced, NULL, &compiled));
    for (int call = 0; call < 2; call++) {
        for (int i = 0; i < 2; i++) {
            core_tensor *a = NUMBERS(&eager, 40, i ? 6 : 5, i ? 3 : 6);
            core_tensor *b = NUMBERS(&eager, 40, i ? 6 : 5, i ? 3 : 6);

            OK(core_tensor_set_grad(eager.inputs[W1 + i], a));
            OK(core_tensor_set_grad(traced.inputs[W1 + i], b));
        }
        same_call(step_by_backward, &eager, compiled, &traced);
        for (int i = 0; i < 2; i++)
            same_bits("gradient", (size_t)i,
                      core_tensor_grad(eager.inputs[W1 + i]),
                      core_tensor_grad(traced.inputs[W1 + i]));
    }
    EXPLAINS(compiled, "\"compiled_calls\": 2");
    core_compiled_release(compiled);
}
END_TEST

/* The caller makes the backward. */
COMPILED_FUNCTION(forward)
{
    *noutputs = 1;
    return loss_of(x, &out[0]);
}

START_TEST(outputs_that_require_grad_are_those_of_the_function)
{
    world eager = perceptron(), traced = perceptron();
    core_compiled *compiled;

    OK(core_compile(forward, &traced, NULL, &compiled));
    for (int call = 0; call < 2; call++) {
        core_tensor *a[1], *b[1];
        size_t count = 1;

        core_seed(3);
        OK(forward(&eager, eager.inputs, NINPUTS, a, &count));
        core_seed(3);
        OK(core_compiled_call(compiled, traced.inputs, NINPUTS, b, 1));
        OK(core_backward(a, 1, NULL, 0));
        OK(core_backward(b, 1, NULL, 0));
        same_bits("loss", 0, a[0], b[0]);
        for (int i = W1; i <= W2; i++)
            same_bits("gradient", (size_t)i, core_tensor_grad(eager.inputs[i]),
                      core_tensor_grad(traced.inputs[i]));
        core_tensor_release(a[0]);
        core_tensor_release(b[0]);
    }
    core_compiled_release(compiled);
}
END_TEST

static core_tensor *buffer;

/* The buffer becomes a part of the graph. */
COMPILED_FUNCTION(accumulates)
{
    *noutputs = 0;
    return core_add_(buffer, x[W1], core_int(1));
}

START_TEST(a_change_of_a_hidden_input_that_autograd_records_is_a_break)
{
    world w = perceptron();
    core_compiled *compiled;
    core_tensor *loss;

    buffer = w.hidden[0];
    OK(core_compile(accumulates, NULL, NULL, &compiled));
    for (int i = 0; i < 3; i++)
        OK(core_compiled_call(compiled, w.inputs, NINPUTS, NULL, 0));
    EXPLAINS(compiled, "in a way that autograd records");
    OK(core_sum(buffer, CORE_DTYPE_NONE, &loss));
    backward(keep(loss));
    for (int i = 0; i < 30; i++) {
        float values[30];

        OK(core_tensor_read(core_tensor_grad(w.inputs[W1]), values,
                            sizeof values));
        ck_assert(values[i] == 3);
    }
    core_compiled_release(compiled);
}
END_TEST

SUITE_ON_CPU_AND_SIM(
    "compile/step", a_step_by_core_grad_trains_as_the_function,
    a_step_in_an_autocast_region_trains_as_the_function,
    a_step_to_destinations_trains_as_the_function,
    a_step_that_accumulates_gradients_trains_as_the_function,
    another_gradient_of_an_input_is_seen,
    outputs_that_require_grad_are_those_of_the_function,
    a_change_of_a_hidden_input_that_autograd_records_is_a_break)
