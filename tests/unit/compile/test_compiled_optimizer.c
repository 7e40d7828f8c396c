/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Steps of optimizers in compiled functions and programs: the count of steps and
 * the learning rate are those of each run. */

#include "support/compiled.h"

#include <libcore/destination.h>
#include <libcore/device.h>
#include <libcore/optim.h>
#include <libcore/settings.h>

enum { PARAMETERS = 3, STEPS = 6 };

/* How the optimizer is made. */
typedef enum kind {
    ADAM,
    ADAMW,
    MOMENTUM,
    NESTEROV,
    DAMPENED,
    DECAYED,
    PLAIN,
    GROUPED, /* Adam, of which the second parameter has other options */
    KINDS
} kind;

typedef struct model {
    core_tensor *parameters[PARAMETERS];
    core_optimizer *optimizer;
    int steps; /* in one call of the function */
} model;

static core_optimizer *make_optimizer(core_tensor *const *parameters, kind what)
{
    const core_adam_options adam = {.struct_size = sizeof adam,
                                    .decoupled = what == ADAMW,
                                    .learning_rate = .01,
                                    .beta1 = .9,
                                    .beta2 = .999,
                                    .epsilon = 1e-8,
                                    .weight_decay = .125};
    const core_sgd_options sgd = {
        .struct_size = sizeof sgd,
        .nesterov = what == NESTEROV,
        .learning_rate = .0625,
        .momentum = what < DECAYED ? .9 : 0,
        .dampening = what == DAMPENED ? .25 : 0,
        .weight_decay = what == DECAYED || what == DAMPENED ? .125 : 0};
    core_optimizer *optimizer;
    core_adam_options other = adam;

    other.learning_rate = .125;
    other.beta1 = .5;
    if (what == ADAM || what == ADAMW || what == GROUPED)
        OK(core_adam_create(parameters, PARAMETERS, &adam, &optimizer));
    else
        OK(core_sgd_create(parameters, PARAMETERS, &sgd, &optimizer));
    if (what == GROUPED)
        OK(core_adam_set_group(optimizer, parameters + 1, 1, &other));
    return optimizer;
}

/* The last parameter is transposed, so that no fused kernel takes it. */
static model make_model(kind what)
{
    world w = {.device = program_device};
    model m = {.steps = 1};
    core_tensor *last = NUMBERS(&w, 30, 5, 4);

    m.parameters[0] = leaf(NUMBERS(&w, 10, 3, 4));
    m.parameters[1] = leaf(NUMBERS(&w, 20, 7));
    OK(core_transpose(last, 0, 1, &last));
    m.parameters[2] = leaf(keep(last));
    for (int i = 0; i < PARAMETERS; i++) {
        core_tensor *grad;

        OK(core_zeros_like(m.parameters[i], CORE_DTYPE_NONE, NULL, -1, &grad));
        OK(core_tensor_set_grad(m.parameters[i], grad));
        core_tensor_release(grad);
    }
    m.optimizer = make_optimizer(m.parameters, what);
    return m;
}

static core_status step_once(model *m, core_tensor *x)
{
    core_gradient_destination to[PARAMETERS];
    core_tensor *products[PARAMETERS] = {NULL};
    core_status status = CORE_OK;

    for (int i = 0; i < PARAMETERS && status == CORE_OK; i++) {
        core_tensor *p = m->parameters[i], *square = NULL;

        to[i] = (core_gradient_destination){.struct_size = sizeof *to,
                                            .input = p,
                                            .buffer = core_tensor_grad(p)};
        status = core_mul(p, p, &square);
        if (status == CORE_OK)
            status = core_mul(square, x, &products[i]);
        core_tensor_release(square);
        if (status == CORE_OK) {
            core_tensor *sum = NULL;

            status = core_sum(products[i], CORE_DTYPE_NONE, &sum);
            core_tensor_release(products[i]);
            products[i] = sum;
        }
    }
    if (status == CORE_OK)
        status =
            core_backward_into(products, PARAMETERS, NULL, 0, to, PARAMETERS);
    if (status == CORE_OK)
        status = core_optimizer_step(m->optimizer);
    for (int i = 0; i < PARAMETERS; i++)
        core_tensor_release(products[i]);
    return status;
}

/* Input: a factor of the loss. */
static core_status train(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    model *m = context;

    (void)ninputs;
    (void)outputs;
    *noutputs = 0;
    for (int i = 0; i < m->steps; i++)
        CORE_TRY(step_once(m, inputs[0]));
    return CORE_OK;
}

static void same_models(const model *a, const model *b)
{
    for (size_t i = 0; i < PARAMETERS; i++) {
        same_bits("parameter", i, a->parameters[i], b->parameters[i]);
        ck_assert_uint_eq(core_optimizer_steps(a->optimizer, i),
                          core_optimizer_steps(b->optimizer, i));
        for (size_t k = 0; core_optimizer_state_name(a->optimizer, k); k++) {
            core_tensor *x = core_optimizer_state(a->optimizer, i, k);
            core_tensor *y = core_optimizer_state(b->optimizer, i, k);

            ck_assert_int_eq(x != NULL, y != NULL);
            if (x)
                same_bits("state", i, x, y);
        }
    }
}

static core_tensor *factor(void)
{
    world w = {.device = program_device};

    return NUMBERS(&w, 77, 1);
}

static core_compiled *compile(model *m, uint32_t flags)
{
    const core_compile_options options = {.struct_size = sizeof options,
                                          .flags = flags};
    core_compiled *compiled;

    OK(core_compile(train, m, &options, &compiled));
    return compiled;
}

static void call_both(model *eager, core_compiled *compiled, model *traced,
                      core_tensor *x)
{
    size_t none = 0;

    OK(train(eager, &x, 1, NULL, &none));
    OK(core_compiled_call(compiled, &x, 1, NULL, 0));
    same_models(eager, traced);
}

/* With rates that change, and steps outside of the compiled function. */
static void trains_alike(kind what, int steps)
{
    model eager = make_model(what), traced = make_model(what);
    core_compiled *compiled = compile(&traced, CORE_COMPILE_FULLGRAPH);
    core_tensor *x = factor();

    eager.steps = traced.steps = steps;
    for (int i = 0; i < STEPS; i++) {
        double rate = .05 / (i + 1);

        OK(core_optimizer_set_learning_rate(eager.optimizer, rate));
        OK(core_optimizer_set_learning_rate(traced.optimizer, rate));
        call_both(&eager, compiled, &traced, x);
        if (i == 3) {
            OK(step_once(&eager, x));
            OK(step_once(&traced, x));
            same_models(&eager, &traced);
        }
    }
    EXPLAINS(compiled, "\"traces\": 1");
    /* Rates and counts of steps are given to kernels that are ready. */
    EXPLAINS(compiled, "\"called_as_operators\": []");
    core_compiled_release(compiled);
    core_optimizer_release(eager.optimizer);
    core_optimizer_release(traced.optimizer);
}

START_TEST(steps_of_each_optimizer_are_those_of_the_function)
{
    for (int what = 0; what < KINDS; what++)
        trains_alike(what, 1);
}
END_TEST

START_TEST(a_function_may_step_twice)
{
    trains_alike(ADAM, 2);
    trains_alike(DAMPENED, 2);
}
END_TEST

/* Fails after the step. */
static core_status train_and_fail(void *context, core_tensor *const *inputs,
                                  size_t ninputs, core_tensor **outputs,
                                  size_t *noutputs)
{
    CORE_TRY(train(context, inputs, ninputs, outputs, noutputs));
    return core_error_set(CORE_ERROR_IO, "the file is full");
}

START_TEST(a_failed_recording_leaves_the_first_step_to_the_next_one)
{
    for (int what = 0; what < KINDS; what++) {
        model eager = make_model(what), traced = make_model(what);
        core_tensor *x = factor();
        core_program *program;

        FAILS(core_program_trace(train_and_fail, &traced, &x, 1, 0, &program),
              CORE_ERROR_IO, "the file is full");
        same_models(&eager, &traced);
        OK(step_once(&eager, x));
        OK(step_once(&traced, x));
        same_models(&eager, &traced);
        core_optimizer_release(eager.optimizer);
        core_optimizer_release(traced.optimizer);
    }
}
END_TEST

START_TEST(another_state_leads_to_another_recording)
{
    model eager = make_model(ADAM), traced = make_model(ADAM);
    core_compiled *compiled = compile(&traced, 0);
    core_tensor *x = factor();
    model *both[2] = {&eager, &traced};

    call_both(&eager, compiled, &traced, x);
    call_both(&eager, compiled, &traced, x);
    for (int i = 0; i < 2; i++)
        OK(core_optimizer_set_state(both[i]->optimizer, 1, 0, NULL, 0));
    call_both(&eager, compiled, &traced, x);
    EXPLAINS(compiled, "\"traces\": 2");
    EXPLAINS(compiled, "\"compiled_calls\": 3");
    /* The same tensors with another count of steps: the parameter does not step
     * together with the first one any more. */
    for (int i = 0; i < 2; i++) {
        core_optimizer *optimizer = both[i]->optimizer;
        core_tensor *state[2] = {core_optimizer_state(optimizer, 1, 0),
                                 core_optimizer_state(optimizer, 1, 1)};

        OK(core_optimizer_set_state(optimizer, 1, 7, state, 2));
    }
    call_both(&eager, compiled, &traced, x);
    call_both(&eager, compiled, &traced, x);
    EXPLAINS(compiled, "\"compiled_calls\": 5");
    core_compiled_release(compiled);
    core_optimizer_release(eager.optimizer);
    core_optimizer_release(traced.optimizer);
}
END_TEST

static core_status run_program(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    (void)outputs;
    *noutputs = 0;
    return core_program_run(context, inputs, ninputs, NULL, 0);
}

START_TEST(a_program_steps_an_optimizer_that_exists)
{
    model eager = make_model(ADAMW), traced = make_model(ADAMW);
    core_program *program, *other;
    core_tensor *x = factor();
    size_t none = 0;
    char *text;

    OK(core_program_trace(train, &traced, &x, 1, 0, &program));
    OK(core_program_verify(program));
    for (int i = 0; i < 3; i++) {
        OK(core_program_run(program, &x, 1, NULL, 0));
        OK(train(&eager, &x, 1, NULL, &none));
        same_models(&eager, &traced);
    }
    OK(core_program_text(program, &text));
    ck_assert_ptr_nonnull(strstr(text, "corrected rate of optimizer, part 2"));
    ck_assert_ptr_nonnull(strstr(text, "counts a step of optimizer, part 0\n"));
    core_text_free(text);
    FAILS(core_program_save(program, "unused"), CORE_ERROR_UNSUPPORTED,
          "optimizer", "a file cannot express");
    FAILS(core_program_trace(run_program, program, &x, 1, 0, &other),
          CORE_ERROR_UNSUPPORTED, "cannot become a part of another");
    core_optimizer_release(traced.optimizer);
    FAILS(core_program_run(program, &x, 1, NULL, 0), CORE_ERROR_REFUSED,
          "was released");
    core_program_release(program);
    core_optimizer_release(eager.optimizer);
}
END_TEST

START_TEST(a_check_compares_the_steps)
{
    model eager = make_model(NESTEROV), traced = make_model(NESTEROV);
    core_compiled *compiled = compile(&traced, CORE_COMPILE_FULLGRAPH);
    core_tensor *x = factor();

    OK(core_setting_set("LIBCORE_COMPILE_CHECK", "1"));
    /* An error from before is not one of the function. */
    FAILS(core_optimizer_set_learning_rate(traced.optimizer, -1),
          CORE_ERROR_INVALID_ARGUMENT, "learning rate");
    for (int i = 0; i < 3; i++)
        call_both(&eager, compiled, &traced, x);
    traced.steps = 2;
    FAILS(core_compiled_call(compiled, &x, 1, NULL, 0), CORE_ERROR_INTERNAL,
          "LIBCORE_COMPILE_CHECK");
    OK(core_setting_set("LIBCORE_COMPILE_CHECK", "0"));
    core_compiled_release(compiled);
    core_optimizer_release(eager.optimizer);
    core_optimizer_release(traced.optimizer);
}
END_TEST

/* The result requires grad: the function is split into a forward and a
 * backward. */
static core_status train_and_scale(void *context, core_tensor *const *inputs,
                                   size_t ninputs, core_tensor **outputs,
                                   size_t *noutputs)
{
    model *m = context;
    core_status status = step_once(m, inputs[1]);

    (void)ninputs;
    if (status == CORE_OK)
        status = core_mul(inputs[0], inputs[1], &outputs[0]);
    *noutputs = 1;
    return status;
}

START_TEST(a_step_may_be_in_a_function_whose_result_requires_grad)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_FULLGRAPH};
    model eager = make_model(ADAM), traced = make_model(ADAM);
    world w = {.device = program_device};
    core_tensor *x[2] = {leaf(NUMBERS(&w, 1, 1)), NUMBERS(&w, 2, 1)};
    core_compiled *compiled;

    OK(core_compile(train_and_scale, &traced, &options, &compiled));
    for (int step = 0; step < STEPS; step++) {
        core_tensor *a, *b, *grad_a, *grad_b;
        size_t count = 1;

        OK(train_and_scale(&eager, x, 2, &a, &count));
        OK(core_compiled_call(compiled, x, 2, &b, 1));
        OK(core_grad(&a, 1, NULL, x, 1, 0, &grad_a));
        OK(core_grad(&b, 1, NULL, x, 1, 0, &grad_b));
        same_bits("gradient", 0, grad_a, grad_b);
        for (size_t i = 0; i < PARAMETERS; i++)
            same_bits("parameter", i, eager.parameters[i],
                      traced.parameters[i]);
        core_tensor_release(a);
        core_tensor_release(b);
        core_tensor_release(grad_a);
        core_tensor_release(grad_b);
    }
    core_compiled_release(compiled);
    core_optimizer_release(eager.optimizer);
    core_optimizer_release(traced.optimizer);
}
END_TEST

/* The function has used up the graph of its result. */
static core_status step_with_loss(void *context, core_tensor *const *inputs,
                                  size_t ninputs, core_tensor **outputs,
                                  size_t *noutputs)
{
    core_tensor *grad = NULL, *y = NULL;
    core_status status = core_mul(inputs[0], inputs[0], &y);

    (void)context;
    (void)ninputs;
    *noutputs = 1;
    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &outputs[0]);
    if (status == CORE_OK)
        status = core_grad(outputs, 1, NULL, inputs, 1, 0, &grad);
    core_tensor_release(y);
    core_tensor_release(grad);
    return status;
}

START_TEST(a_result_whose_graph_was_used_up_is_a_graph_break)
{
    world w = {.device = program_device};
    core_tensor *x = leaf(NUMBERS(&w, 1, 3)), *y;
    core_compiled *compiled;

    OK(core_compile(step_with_loss, NULL, NULL, &compiled));
    OK(core_compiled_call(compiled, &x, 1, &y, 1));
    ck_assert(core_tensor_requires_grad(y));
    EXPLAINS(compiled, "the function has run the backward of a result");
    core_tensor_release(y);
    core_compiled_release(compiled);
}
END_TEST

static core_status step_model(void *context, core_tensor *const *inputs,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    core_status status = step_once(context, inputs[0]);

    (void)ninputs;
    *noutputs = 1;
    return status == CORE_OK ? core_mul(inputs[0], inputs[0], &outputs[0])
                             : status;
}

/* More optimizers than there may be programs. */
START_TEST(programs_of_released_optimizers_make_room)
{
    world w = {.device = program_device};
    model m = make_model(PLAIN);
    core_tensor *x = NUMBERS(&w, 1, 1), *y;
    core_compiled *compiled;

    core_optimizer_release(m.optimizer);
    OK(core_compile(step_model, &m, NULL, &compiled));
    for (int i = 0; i < 20; i++) {
        m.optimizer = make_optimizer(m.parameters, PLAIN);
        for (int k = 0; k < 2; k++) {
            OK(core_compiled_call(compiled, &x, 1, &y, 1));
            core_tensor_release(y);
        }
        core_optimizer_release(m.optimizer);
    }
    EXPLAINS(compiled, "\"eager_calls\": 0");
    core_compiled_release(compiled);
}
END_TEST

START_TEST(groups_do_not_change_under_a_program)
{
    const core_adam_options adam = {
        .struct_size = sizeof adam, .beta1 = .9, .beta2 = .9};
    world w = {.device = program_device};
    model m = make_model(ADAM);
    core_tensor *x = NUMBERS(&w, 1, 1);
    core_compiled *compiled;

    OK(core_compile(train, &m, NULL, &compiled));
    OK(core_compiled_call(compiled, &x, 1, NULL, 0));
    FAILS(core_adam_set_group(m.optimizer, m.parameters, 1, &adam),
          CORE_ERROR_BUSY, "a recorded program contains its step");
    core_compiled_release(compiled);
    OK(core_adam_set_group(m.optimizer, m.parameters, 1, &adam));
    core_optimizer_release(m.optimizer);
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/compiled_optimizer",
                     groups_do_not_change_under_a_program,
                     programs_of_released_optimizers_make_room,
                     steps_of_each_optimizer_are_those_of_the_function,
                     a_function_may_step_twice,
                     a_failed_recording_leaves_the_first_step_to_the_next_one,
                     another_state_leads_to_another_recording,
                     a_program_steps_an_optimizer_that_exists,
                     a_check_compares_the_steps,
                     a_step_may_be_in_a_function_whose_result_requires_grad,
                     a_result_whose_graph_was_used_up_is_a_graph_break)
