/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Which steps of optimizers read their numbers from memory of the device in a
 * graph (compile/prepare/replay_numbers.h): those of which the graph would keep no number
 * that a run gives. */

#include "support/compiled.h"

#include "compile/prepare/replay_numbers.h"
#include "ops_ids.h"

#include <libcore/optim.h>

enum { SGD_RATE = 3, SGD_MOMENTUM = 4 }; /* arguments of the operator */

static core_status step(void *optimizer, core_tensor *const *x, size_t n,
                        core_tensor **out, size_t *noutputs)
{
    (void)x;
    (void)n;
    (void)out;
    *noutputs = 0;
    return core_optimizer_step(optimizer);
}

/* The program of a step of SGD with momentum. */
static core_program *record_step(core_optimizer **out_optimizer)
{
    const core_sgd_options options = {
        .struct_size = sizeof options, .learning_rate = .1, .momentum = .9};
    const int64_t size = 4;
    core_tensor *weight = leaf(numbers_on(program_device, 1, &size, 1));
    core_program *program;
    core_tensor *grad;

    OK(core_ones_like(weight, CORE_DTYPE_NONE, NULL, -1, &grad));
    OK(core_tensor_set_grad(weight, grad));
    core_tensor_release(grad);
    OK(core_sgd_create(&weight, 1, &options, out_optimizer));
    OK(core_program_trace(step, *out_optimizer, NULL, 0, 0, &program));
    return program;
}

static core__program_argument *arguments_of_step(const core_program *program)
{
    for (uint32_t i = 0; i < program->nnodes; i++)
        if (program->nodes[i].op == &core__operators[CORE_OP_FUSED_SGD_STEP])
            return (core__program_argument *)(uintptr_t)program->nodes[i].args;
    ck_abort_msg("the program has no step");
    return NULL;
}

static bool has_readers(const core_program *program)
{
    core__replay_numbers *numbers;
    bool found;

    OK(core__replay_numbers_find(program, &numbers));
    found = numbers != NULL;
    core__replay_numbers_free(numbers);
    return found;
}

START_TEST(steps_read_the_numbers_that_a_run_gives)
{
    core_optimizer *optimizer;
    core_program *program = record_step(&optimizer);

    ck_assert_int_eq(arguments_of_step(program)[SGD_RATE].tag,
                     CORE__ARGUMENT_NUMBER);
    ck_assert(has_readers(program));
    core_program_release(program);
    core_optimizer_release(optimizer);
}
END_TEST

/* No operator has such a number today. */
START_TEST(a_number_that_the_graph_would_keep_leaves_the_step_outside)
{
    core_optimizer *optimizer;
    core_program *program = record_step(&optimizer);
    core__program_argument *args = arguments_of_step(program);
    core__program_argument before = args[SGD_MOMENTUM];

    args[SGD_MOMENTUM] = args[SGD_RATE];
    ck_assert(!has_readers(program));
    args[SGD_MOMENTUM] = before;
    ck_assert(has_readers(program));
    core_program_release(program);
    core_optimizer_release(optimizer);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        steps_read_the_numbers_that_a_run_gives,
        a_number_that_the_graph_would_keep_leaves_the_step_outside};
    const test_suite suite = {.name = "compile/replay_numbers",
                              .setup = on_sim,
                              .teardown = drop_all,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
