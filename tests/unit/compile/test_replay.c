/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* CORE_COMPILE_REDUCE_OVERHEAD: programs as device graphs, on the simulated
 * device, whose check of races is on. */

#define SUITE_FORKS true /* counts and settings are those of a process */
#include "support/compiled.h"
#include "support/sim_device.h"

#include "base/memory.h"

#include <libcore/capture.h>
#include <libcore/control_flow.h>
#include <libcore/dispatch.h>
#include <libcore/optim.h>
#include <libcore/destination.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 5 };

static void begin(void)
{
    sim_find("sim");
    program_device = sim;
}

static core_compiled *compile(core_tensor_function function, world *w)
{
    return compile_with(
        function, w,
        (core_compile_options){.mode = CORE_COMPILE_REDUCE_OVERHEAD,
                               .flags = CORE_COMPILE_FULLGRAPH});
}

/* Other numbers at other addresses; the old tensors stay in the test's pool. */
static void move_inputs(world *w, uint32_t from, size_t first)
{
    for (size_t i = first; i < w->ninputs; i++)
        w->inputs[i] = NUMBERS(w, from + 40 * (uint32_t)i, 4, 5);
}

static uint64_t launches(void)
{
    return compile_counts().graph_launches;
}

static void no_conflicts(void)
{
    OK(core_device_synchronize(sim));
    ck_assert_uint_eq(counters_of(0).conflicts, 0);
}

/* --------------------------------------------------------------- results -- */

COMPILED_FUNCTION(chain)
{
    core_tensor *product = NULL, *sum = NULL;
    core_status status = core_mul(x[0], x[1], &product);

    if (status == CORE_OK)
        status = core_add(product, x[0], core_int(1), &sum);
    if (status == CORE_OK)
        status = core_tanh(sum, &out[0]);
    core_tensor_release(product);
    core_tensor_release(sum);
    *noutputs = 1;
    return status;
}

START_TEST(the_second_call_is_captured_and_later_ones_launch_the_graph)
{
    world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &traced);
    sim_counters before;

    same_call(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(compile_counts().captures, 0);
    same_call(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(compile_counts().captures, 1);
    before = counters_of(0);
    for (int i = 0; i < CALLS; i++)
        same_call(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(launches(), CALLS + 1);
    ck_assert_uint_eq(counters_of(0).graph_launches - before.graph_launches,
                      CALLS);
    EXPLAINS(compiled, "\"captured\": true");
    EXPLAINS(compiled, "\"launches\": 6");
    EXPLAINS(compiled, "\"copied_inputs\": 0");
    core_compiled_release(compiled);
    no_conflicts();
    ck_assert_uint_eq(counters_of(0).graphs, 0);
}
END_TEST

/* The chain is one kernel, before and after a product. */
COMPILED_FUNCTION(chains)
{
    core_tensor *first = NULL, *turned = NULL, *product = NULL;
    core_tensor *state[2] = {NULL, NULL};
    size_t one = 1;
    core_status status = chain(w, x, 2, &first, &one);

    if (status == CORE_OK)
        status = core_transpose(first, 0, 1, &turned);
    if (status == CORE_OK)
        status = core_mm(first, turned, &product);
    state[0] = state[1] = product;
    if (status == CORE_OK)
        status = chain(w, state, 2, &out[0], &one);
    if (status == CORE_OK)
        status = core_add_(x[1], first, core_int(1));
    core_tensor_release(first);
    core_tensor_release(turned);
    core_tensor_release(product);
    *noutputs = 1;
    return status;
}

START_TEST(a_graph_has_the_kernels_of_groups)
{
    world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
    core_compiled *compiled = compile_with(
        chains, &traced,
        (core_compile_options){.mode = CORE_COMPILE_REDUCE_OVERHEAD,
                               .codegen = CORE_COMPILE_CODEGEN_ON,
                               .flags = CORE_COMPILE_FULLGRAPH});

    for (int i = 0; i < CALLS; i++)
        same_call(chains, &eager, compiled, &traced);
    ck_assert_uint_eq(launches(), CALLS - 1);
    EXPLAINS(compiled, "\"fused_kernels\": 2");
    core_compiled_release(compiled);
    no_conflicts();
    ck_assert_uint_eq(counters_of(0).graphs, 0);
}
END_TEST

START_TEST(results_are_not_changed_by_later_launches)
{
    world w = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &w);
    core_tensor *out[CALLS], *expected[CALLS];
    size_t count = 1;

    for (uint32_t i = 0; i < CALLS; i++) {
        move_inputs(&w, 7 * i, 0);
        OK(chain(&w, w.inputs, 2, &expected[i], &count));
        OK(core_compiled_call(compiled, w.inputs, 2, &out[i], 1));
    }
    for (size_t i = 0; i < CALLS; i++)
        same_bits("output", i, expected[i], out[i]);
    ck_assert_uint_eq(launches(), CALLS - 1);
    EXPLAINS(compiled, "\"copied_inputs\": 2");
    release_tensors(out, CALLS);
    release_tensors(expected, CALLS);
    core_compiled_release(compiled);
    no_conflicts();
}
END_TEST

START_TEST(an_input_that_moves_later_is_copied_from_then_on)
{
    world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &traced);

    for (uint32_t i = 0; i < 3; i++)
        same_call(chain, &eager, compiled, &traced);
    for (uint32_t i = 0; i < 3; i++) {
        move_inputs(&eager, 9 * i, 1);
        move_inputs(&traced, 9 * i, 1);
        same_call(chain, &eager, compiled, &traced);
    }
    ck_assert_uint_eq(compile_counts().captures, 2);
    EXPLAINS(compiled, "\"copied_inputs\": 1");
    core_compiled_release(compiled);
    no_conflicts();
}
END_TEST

/* Writes an input and a hidden input, draws numbers, and returns a view, an
 * input, and two views of one value. */
COMPILED_FUNCTION(everything)
{
    core_tensor *noise = NULL, *both = NULL;
    core_status status =
        core_rand_like(x[0], CORE_DTYPE_NONE, NULL, -1, &noise);

    if (status == CORE_OK)
        status = core_add_(x[1], noise, core_int(1));
    if (status == CORE_OK)
        status = core_add_(w->hidden[0], x[1], core_float(.5));
    if (status == CORE_OK)
        status = core_dropout(w->hidden[0], .5, true, &out[0]);
    if (status == CORE_OK)
        status = core_select(x[1], 0, 1, &out[1]);
    if (status == CORE_OK)
        status = core_mul(x[1], noise, &both);
    if (status == CORE_OK)
        status = core_t(both, &out[2]);
    if (status == CORE_OK)
        status = core_select(both, 0, 1, &out[3]);
    out[4] = core_tensor_retain(x[1]);
    core_tensor_release(noise);
    core_tensor_release(both);
    *noutputs = 5;
    return status;
}

START_TEST(writes_views_and_random_numbers_are_those_of_the_function)
{
    for (int moves = 0; moves < 2; moves++) {
        world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
        core_compiled *compiled = compile(everything, &traced);

        eager.hidden[0] = NUMBERS(&eager, 3, 4, 5);
        traced.hidden[0] = NUMBERS(&traced, 3, 4, 5);
        eager.nhidden = traced.nhidden = 1;
        for (uint32_t i = 0; i < CALLS; i++) {
            uint32_t version = core_tensor_version(traced.hidden[0]);

            if (moves) {
                move_inputs(&eager, 9 * i, 0);
                move_inputs(&traced, 9 * i, 0);
            }
            same_call(everything, &eager, compiled, &traced);
            ck_assert_uint_gt(core_tensor_version(traced.hidden[0]), version);
        }
        core_compiled_release(compiled);
    }
    ck_assert_uint_eq(launches(), 2 * (CALLS - 1));
    no_conflicts();
}
END_TEST

/* Each launch goes on where the one before has stopped. */
START_TEST(random_numbers_go_on_from_call_to_call)
{
    world w = world_of(2, 4, 5);
    core_compiled *compiled = compile(everything, &w);
    core_tensor *out[CALLS][5], *expected[CALLS][5];
    world eager = w;
    size_t count = 5;

    w.hidden[0] = NUMBERS(&w, 3, 4, 5);
    eager.hidden[0] = NUMBERS(&w, 3, 4, 5);
    eager.inputs[1] = NUMBERS(&w, 41, 4, 5);
    core_seed(3);
    for (uint32_t i = 0; i < CALLS; i++)
        OK(core_compiled_call(compiled, w.inputs, 2, out[i], 5));
    core_seed(3);
    for (uint32_t i = 0; i < CALLS; i++)
        OK(everything(&eager, eager.inputs, 2, expected[i], &count));
    for (size_t i = 0; i < CALLS; i++) {
        same_bits("output", 0, expected[i][0], out[i][0]);
        same_bits("output", 2, expected[i][2], out[i][2]);
        release_tensors(out[i], 5);
        release_tensors(expected[i], 5);
    }
    core_compiled_release(compiled);
}
END_TEST

/* The backward draws the numbers of the forward again. */
COMPILED_FUNCTION(attends)
{
    core_tensor *y = NULL, *noisy = NULL, *loss = NULL;
    core_status status = core_scaled_dot_product_attention(
        x[0], x[0], x[0], NULL, .25, true, NULL, false, &y);

    if (status == CORE_OK)
        status = core_dropout(y, .25, true, &noisy);
    if (status == CORE_OK)
        status = core_sum(noisy, CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, x, 1, 0, &out[0]);
    if (status == CORE_OK)
        status = core_detach(noisy, &out[1]);
    core_tensor_release(y);
    core_tensor_release(noisy);
    core_tensor_release(loss);
    *noutputs = 2;
    return status;
}

START_TEST(attention_with_dropout_is_a_graph)
{
    world eager = {.device = sim, .ninputs = 1}, traced = eager;
    core_compiled *compiled = compile(attends, &traced);

    eager.inputs[0] = leaf(NUMBERS(&eager, 1, 4, 1, 8, 32));
    traced.inputs[0] = leaf(NUMBERS(&eager, 1, 4, 1, 8, 32));
    for (int i = 0; i < CALLS; i++)
        same_call(attends, &eager, compiled, &traced);
    ck_assert_uint_eq(launches(), CALLS - 1);
    core_compiled_release(compiled);
    no_conflicts();
}
END_TEST

/* x[1] is a part of x[0], which is written. */
COMPILED_FUNCTION(writes_a_part)
{
    core_status status = core_add_(x[1], x[1], core_int(1));

    if (status == CORE_OK)
        status = core_neg(x[0], &out[0]);
    *noutputs = 1;
    return status;
}

static void take_part(world *w, uint32_t from)
{
    w->inputs[0] = NUMBERS(w, from, 4, 5);
    w->inputs[1] = CALL(narrow, w->inputs[0], 0, 1, 2);
}

START_TEST(inputs_that_are_written_and_overlap_are_captured_where_they_are)
{
    for (int moves = 0; moves < 2; moves++) {
        world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
        core_compiled *compiled = compile(writes_a_part, &traced);
        uint64_t before = launches();

        for (uint32_t i = 0; i < CALLS; i++) {
            if (i == 0 || moves) {
                take_part(&eager, 5 * i);
                take_part(&traced, 5 * i);
            }
            same_call(writes_a_part, &eager, compiled, &traced);
        }
        ck_assert_uint_eq(launches() - before, moves ? 0 : CALLS - 1);
        if (moves)
            EXPLAINS(compiled, "inputs that share memory");
        core_compiled_release(compiled);
    }
    no_conflicts();
}
END_TEST

START_TEST(entries_of_several_sizes_share_a_pool)
{
    world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &traced);

    for (uint32_t i = 0; i < 4 * CALLS; i++) {
        for (int k = 0; k < 2; k++) {
            eager.inputs[k] = NUMBERS(&eager, i + 11, 2 + i % 3, 5);
            traced.inputs[k] = NUMBERS(&traced, i + 11, 2 + i % 3, 5);
        }
        same_call(chain, &eager, compiled, &traced);
    }
    ck_assert_uint_ge(launches(), 4 * CALLS - 6);
    core_compiled_release(compiled);
    no_conflicts();
}
END_TEST

/* -------------------------------------------------------------- training -- */

COMPILED_FUNCTION(model)
{
    core_tensor *h = NULL, *noisy = NULL, *y = NULL;
    core_status status = core_linear(x[0], x[1], NULL, &h);

    if (status == CORE_OK)
        status = core_dropout(h, .5, true, &noisy);
    if (status == CORE_OK)
        status = core_tanh(noisy, &y);
    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &out[0]);
    core_tensor_release(h);
    core_tensor_release(noisy);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

static core_tensor *gradient_of_model(world *w, core_compiled *compiled)
{
    core_tensor *loss, *grad;

    call_world(model, w, compiled, 1, &loss);
    OK(core_grad(&loss, 1, NULL, &w->inputs[1], 1, 0, &grad));
    core_tensor_release(loss);
    return keep(grad);
}

START_TEST(forward_and_backward_are_graphs)
{
    world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
    core_compiled *compiled = compile(model, &traced);

    leaf(eager.inputs[1]);
    leaf(traced.inputs[1]);
    for (size_t i = 0; i < CALLS; i++)
        same_bits("gradient", i, gradient_of_model(&eager, NULL),
                  gradient_of_model(&traced, compiled));
    ck_assert_uint_eq(launches(), 2 * (CALLS - 1));
    core_compiled_release(compiled);
    no_conflicts();
}
END_TEST

typedef struct trained {
    core_tensor *weight, *x;
    core_optimizer *optimizer;
} trained;

static core_status train_step(void *context, core_tensor *const *inputs,
                              size_t n, core_tensor **out, size_t *noutputs)
{
    trained *t = context;
    core_tensor *y = NULL, *noisy = NULL, *z = NULL, *loss = NULL;
    core_gradient_destination to = {.struct_size = sizeof to,
                                    .input = t->weight,
                                    .buffer = core_tensor_grad(t->weight)};
    core_status status = core_linear(inputs[0], t->weight, NULL, &y);

    (void)n;
    if (status == CORE_OK)
        status = core_dropout(y, .5, true, &noisy);
    if (status == CORE_OK)
        status = core_tanh(noisy, &z);
    if (status == CORE_OK)
        status = core_sum(z, CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_backward_into(&loss, 1, NULL, 0, &to, 1);
    if (status == CORE_OK)
        status = core_optimizer_step(t->optimizer);
    if (status == CORE_OK)
        status = core_detach(loss, &out[0]);
    core_tensor_release(y);
    core_tensor_release(noisy);
    core_tensor_release(z);
    core_tensor_release(loss);
    *noutputs = 1;
    return status;
}

enum { SGD, NESTEROV, ADAM, ADAMW, OPTIMIZERS };

static void make_optimizer(trained *t, int kind)
{
    core_adam_options adam = {.struct_size = sizeof adam,
                              .learning_rate = .01,
                              .beta1 = .9,
                              .beta2 = .99,
                              .epsilon = 1e-8,
                              .weight_decay = .05,
                              .decoupled = kind == ADAMW};
    core_sgd_options sgd = {.struct_size = sizeof sgd,
                            .learning_rate = .01,
                            .momentum = .9,
                            .dampening = kind == SGD ? .25 : 0,
                            .weight_decay = .05,
                            .nesterov = kind == NESTEROV};

    if (kind >= ADAM)
        OK(core_adam_create(&t->weight, 1, &adam, &t->optimizer));
    else
        OK(core_sgd_create(&t->weight, 1, &sgd, &t->optimizer));
}

static void make_trained(trained *t, int kind)
{
    core_tensor *grad;

    t->x = numbers_on(sim, 2, (int64_t[]){4, 5}, 2);
    t->weight = leaf(numbers_on(sim, 2, (int64_t[]){3, 5}, 9));
    OK(core_zeros_like(t->weight, CORE_DTYPE_NONE, NULL, -1, &grad));
    OK(core_tensor_set_grad(t->weight, grad));
    core_tensor_release(grad);
    make_optimizer(t, kind);
}

static void train(trained *t, core_compiled *compiled, bool decays)
{
    core_tensor *loss;
    size_t count = 1;

    core_seed(4);
    for (int i = 0; i < 3 * CALLS; i++) {
        if (compiled)
            OK(core_compiled_call(compiled, &t->x, 1, &loss, 1));
        else
            OK(train_step(t, &t->x, 1, &loss, &count));
        core_tensor_release(loss);
        if (decays && i % CALLS == 0)
            OK(core_optimizer_set_learning_rate(t->optimizer, .01 / (i + 1)));
    }
}

/* Forward, backward and step are one graph, captured once: the count of steps,
 * the mark of the first and the learning rate are read in each launch. */
static void check_steps(int kind, bool decays)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .mode = CORE_COMPILE_REDUCE_OVERHEAD,
                                    .flags = CORE_COMPILE_FULLGRAPH};
    trained eager, graphs;
    core_compiled *compiled;
    uint64_t before = launches();

    make_trained(&eager, kind);
    make_trained(&graphs, kind);
    OK(core_compile(train_step, &graphs, &options, &compiled));
    train(&eager, NULL, decays);
    train(&graphs, compiled, decays);
    same_bits("weight", 0, eager.weight, graphs.weight);
    for (size_t k = 0; k < (kind >= ADAM ? 2 : 1); k++)
        same_bits("state", k, core_optimizer_state(eager.optimizer, 0, k),
                  core_optimizer_state(graphs.optimizer, 0, k));
    ck_assert_uint_eq(core_optimizer_steps(graphs.optimizer, 0), 3 * CALLS);
    ck_assert_uint_eq(launches() - before, 3 * CALLS - 1);
    EXPLAINS(compiled, "\"captures\": 1,");
    ck_assert(!explains(compiled, "changes from call to call"));
    core_compiled_release(compiled);
    core_optimizer_release(eager.optimizer);
    core_optimizer_release(graphs.optimizer);
}

START_TEST(a_training_step_is_one_graph)
{
    for (int kind = 0; kind < OPTIMIZERS; kind++)
        for (int decays = 0; decays < 2; decays++)
            check_steps(kind, decays);
    no_conflicts();
}
END_TEST

/* ----------------------------------------------------- streams and threads -- */

START_TEST(streams_take_turns_and_end)
{
    world w = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &w);
    core_stream *home;
    core_tensor *expected, *out;
    size_t count = 1;

    OK(core_stream_current(sim, &home));
    OK(chain(&w, w.inputs, 2, &expected, &count));
    OK(core_device_synchronize(sim));
    for (int i = 0; i < 4 * CALLS; i++) {
        core_stream *stream;

        OK(core_stream_create(sim, &stream));
        OK(core_stream_set_current(stream));
        core_stream_release(stream);
        OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
        same_bits("output", 0, expected, out);
        core_tensor_release(out);
        if (i % 3 == 0)
            OK(core_stream_set_current(home));
    }
    OK(core_stream_set_current(home));
    ck_assert_uint_eq(launches(), 4 * CALLS - 1);
    core_stream_release(home);
    core_tensor_release(expected);
    core_compiled_release(compiled);
    no_conflicts();
}
END_TEST

static core_compiled *shared;

static void *call_on_a_stream(void *from)
{
    world w = {.device = sim, .ninputs = 2};
    core_stream *stream;
    core_tensor *expected, *out;
    size_t count = 1;

    OK(core_stream_create(sim, &stream));
    OK(core_stream_set_current(stream));
    for (uint32_t i = 0; i < 40; i++) {
        for (uint32_t k = 0; k < 2; k++)
            OK(core_full((int64_t[]){4, 5}, 2,
                         core_float(*(int *)from + i + k / 8.), CORE_F32, sim,
                         &w.inputs[k]));
        OK(chain(&w, w.inputs, 2, &expected, &count));
        OK(core_compiled_call(shared, w.inputs, 2, &out, 1));
        same_bits("output", i, expected, out);
        core_tensor_release(out);
        core_tensor_release(expected);
        release_tensors(w.inputs, 2);
    }
    core_stream_release(stream);
    return NULL;
}

START_TEST(two_threads_call_at_once)
{
    world w = world_of(2, 4, 5);
    pthread_t threads[2];
    int numbers[2] = {0, 100};

    shared = compile(chain, &w);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, call_on_a_stream, &numbers[i]),
            0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_ge(launches() + compile_counts().graph_busy, 78);
    core_compiled_release(shared);
    no_conflicts();
}
END_TEST

START_TEST(a_child_process_is_refused_and_leaves_the_graph)
{
    world w = world_of(2, 4, 5);
    core_tensor *out;
    pid_t child;
    int result;

    shared = compile(chain, &w);
    for (int i = 0; i < 3; i++) {
        OK(core_compiled_call(shared, w.inputs, 2, &out, 1));
        core_tensor_release(out);
    }
    OK(core_device_synchronize(sim));
    child = fork();
    if (child == 0) {
        bool fails =
            core_compiled_call(shared, w.inputs, 2, &out, 1) != CORE_OK &&
            strstr(core_error_message(), "fork");

        core_compiled_release(shared);
        _exit(!fails);
    }
    ck_assert_int_eq(waitpid(child, &result, 0), child);
    ck_assert_int_eq(result, 0);
    OK(core_compiled_call(shared, w.inputs, 2, &out, 1));
    core_tensor_release(out);
    ck_assert_uint_eq(launches(), 3);
    core_compiled_release(shared);
}
END_TEST

/* ----------------------------------------------------- what is not captured -- */

static core_status decides(void *context, core_tensor *const *x, size_t n,
                           core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)n;
    *noutputs = 1;
    return core_neg(x[0], &out[0]);
}

static core_status keeps(void *context, core_tensor *const *x, size_t n,
                         core_tensor **out, size_t *noutputs)
{
    (void)context;
    (void)n;
    *noutputs = 1;
    return core_abs(x[0], &out[0]);
}

/* Reads the predicate after `before` operators. */
static core_status branches(world *w, core_tensor *const *x, int before,
                            core_tensor **out)
{
    core_tensor *sum = NULL, *positive = NULL, *at = core_tensor_retain(x[0]);
    core_status status = CORE_OK;

    for (int i = 0; i < before && status == CORE_OK; i++) {
        core_tensor *next = NULL;

        status = core_tanh(at, &next);
        core_tensor_release(at);
        at = next;
    }
    if (status == CORE_OK)
        status = core_sum(at, CORE_DTYPE_NONE, &sum);
    if (status == CORE_OK)
        status = core_gt_scalar(sum, core_int(0), &positive);
    if (status == CORE_OK)
        status = core_cond(positive, decides, keeps, w, &at, 1, out, 1);
    core_tensor_release(at);
    core_tensor_release(sum);
    core_tensor_release(positive);
    return status;
}

COMPILED_FUNCTION(branches_late)
{
    core_tensor *result = NULL;
    core_status status = branches(w, x, 3, &result);

    if (status == CORE_OK)
        status = core_mul(result, x[1], &out[0]);
    core_tensor_release(result);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(branches_early)
{
    core_tensor *result = NULL, *y = NULL, *z = NULL;
    core_status status = branches(w, x, 0, &result);

    if (status == CORE_OK)
        status = core_mul(result, x[1], &y);
    if (status == CORE_OK)
        status = core_tanh(y, &z);
    if (status == CORE_OK)
        status = core_neg(z, &out[0]);
    core_tensor_release(result);
    core_tensor_release(y);
    core_tensor_release(z);
    *noutputs = 1;
    return status;
}

START_TEST(a_graph_ends_before_an_operator_that_reads_on_the_host)
{
    const core_tensor_function functions[] = {branches_late, branches_early};

    for (int f = 0; f < 2; f++) {
        world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
        core_compiled *compiled = compile(functions[f], &traced);
        uint64_t before = launches();

        for (uint32_t i = 0; i < CALLS; i++) {
            move_inputs(&eager, 777 * i, 0);
            move_inputs(&traced, 777 * i, 0);
            same_call(functions[f], &eager, compiled, &traced);
        }
        ck_assert_uint_eq(launches() - before, f ? 0 : CALLS - 1);
        EXPLAINS(compiled, f ? "\"captured\": false" : "\"captured\": true");
        EXPLAINS(compiled, f ? "\"operators\": 0" : "\"operators\": 5");
        EXPLAINS(compiled, "data choose");
        core_compiled_release(compiled);
    }
    no_conflicts();
}
END_TEST

START_TEST(calls_in_a_capture_and_in_a_pool_run_operators)
{
    world w = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &w);
    core_stream *stream;
    core_memory_pool *pool;
    core_tensor *out, *expected;
    core_graph *graph;
    size_t count = 1;

    OK(chain(&w, w.inputs, 2, &expected, &count));
    for (int i = 0; i < 3; i++) {
        OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
        core_tensor_release(out);
    }
    OK(core_stream_create(sim, &stream));
    OK(core_device_synchronize(sim));
    OK(core_capture_begin(stream, NULL));
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    OK(core_capture_end(stream, &graph));
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    same_bits("output", 0, expected, out);
    core_tensor_release(out);
    core_graph_release(graph);
    core_stream_release(stream);
    OK(core_memory_pool_create(sim, &pool));
    OK(core_memory_pool_begin(pool));
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    OK(core_memory_pool_end(pool));
    core_memory_pool_release(pool);
    core_tensor_release(out);
    core_tensor_release(expected);
    ck_assert_uint_eq(launches(), 2);
    core_compiled_release(compiled);
}
END_TEST

/* As called as an operator, also if there was a graph before. */
START_TEST(a_graph_ends_before_an_operator_with_a_registered_function)
{
    world eager = world_of(2, 4, 5), traced = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &traced);
    core_registration *registration;
    int runs = 0;

    for (int i = 0; i < CALLS; i++)
        same_call(chain, &eager, compiled, &traced);
    OK(core_function_register("tanh", CORE_KEY_BACKEND, "sim",
                              count_and_pass_on, &runs, &registration));
    for (int i = 0; i < CALLS; i++)
        same_call(chain, &eager, compiled, &traced);
    ck_assert_int_eq(runs, 2 * CALLS);
    EXPLAINS(compiled, "\"operators\": 2");
    EXPLAINS(compiled, "tanh: a function is registered for it");
    core_registration_release(registration);
    for (int i = 0; i < CALLS; i++)
        same_call(chain, &eager, compiled, &traced);
    ck_assert_int_eq(runs, 2 * CALLS);
    core_compiled_release(compiled);
    no_conflicts();
}
END_TEST

START_TEST(devices_that_do_not_capture_prepare_calls)
{
    world eager, traced;
    core_compiled *compiled;

    on_cpu();
    eager = world_of(2, 4, 5);
    traced = world_of(2, 4, 5);
    compiled = compile(chain, &traced);
    for (int i = 0; i < CALLS; i++)
        same_call(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(launches(), 0);
    EXPLAINS(compiled, "\"mode\": \"reduce_overhead\"");
    EXPLAINS(compiled, "\"executor\": \"prepared\"");
    EXPLAINS(compiled, "\"reason\": \"the device does not capture; its calls "
                       "are prepared ones\"");
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- errors -- */

/* Each submission of a call fails once: the call reports it, and the next one
 * is right. */
static void fail_each(uint32_t kind, bool moves)
{
    world w = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &w);
    core_tensor *out, *expected;
    size_t count = 1;
    uint64_t occurred;

    for (int i = 0; i < 3; i++) {
        if (moves)
            move_inputs(&w, 5, 0);
        OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
        core_tensor_release(out);
    }
    OK(chain(&w, w.inputs, 2, &expected, &count));
    for (uint64_t nth = 1;; nth++) {
        core_status status;

        if (moves)
            move_inputs(&w, 5, 0);
        OK(core_device_synchronize(sim));
        occurred = counters_of(0).faults;
        OK(control->fault(0, kind, nth));
        status = core_compiled_call(compiled, w.inputs, 2, &out, 1);
        OK(control->fault(0, kind, 0));
        if (counters_of(0).faults == occurred) {
            OK(status);
            core_tensor_release(out);
            break;
        }
        if (status == CORE_OK)
            core_tensor_release(out);
        else
            ck_assert_ptr_null(out);
        OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
        same_bits("output", 0, expected, out);
        core_tensor_release(out);
    }
    core_tensor_release(expected);
    core_compiled_release(compiled);
    OK(core_device_synchronize(sim));
    ck_assert_uint_eq(counters_of(0).graphs, 0);
}

START_TEST(a_submission_that_fails_is_the_calls_error)
{
    fail_each(SIM_FAULT_GRAPH, false);
    fail_each(SIM_FAULT_COPY, true);
    fail_each(SIM_FAULT_LAUNCH, true);
    fail_each(SIM_FAULT_ALLOC, true);
}
END_TEST

/* A call whose kernels could not be noted says nothing about graphs. */
START_TEST(a_first_call_that_fails_leaves_graphs_possible)
{
    bool failed = true;

    for (int64_t nth = 0; failed; nth++) {
        world w = world_of(2, 4, 5);
        core_compiled *compiled = compile(chain, &w);
        core_tensor *out;
        core_status status;

        core__alloc_fault_set(nth, false);
        status = core_compiled_call(compiled, w.inputs, 2, &out, 1);
        failed = core__alloc_count() > nth;
        core__alloc_fault_set(-1, false);
        if (status != CORE_OK)
            ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        else
            core_tensor_release(out);
        for (int i = 0; i < 4; i++) {
            OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
            core_tensor_release(out);
        }
        EXPLAINS(compiled, "\"captured\": true");
        core_compiled_release(compiled);
    }
}
END_TEST

/* Every step of a capture fails once. */
START_TEST(a_capture_that_fails_leaves_nothing)
{
    const uint32_t kinds[] = {SIM_FAULT_ALLOC, SIM_FAULT_STREAM,
                              SIM_FAULT_GRAPH, SIM_FAULT_LAUNCH,
                              SIM_FAULT_EVENT};

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint64_t nth = 1; nth < 4; nth++) {
            world w = world_of(2, 4, 5);
            core_compiled *compiled = compile(chain, &w);
            core_tensor *out, *expected;
            size_t count = 1;

            OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
            core_tensor_release(out);
            OK(core_device_synchronize(sim));
            OK(core_memory_empty_cache(sim));
            OK(control->fault(0, kinds[k], nth));
            if (core_compiled_call(compiled, w.inputs, 2, &out, 1) == CORE_OK)
                core_tensor_release(out);
            OK(control->fault(0, kinds[k], 0));
            OK(chain(&w, w.inputs, 2, &expected, &count));
            for (int i = 0; i < 3; i++) {
                OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
                same_bits("output", 0, expected, out);
                core_tensor_release(out);
            }
            core_tensor_release(expected);
            core_compiled_release(compiled);
        }
    no_conflicts();
    ck_assert_uint_eq(counters_of(0).graphs, 0);
}
END_TEST

/* Kernels of the graph find bad data: a later wait reports it. */
COMPILED_FUNCTION(selects)
{
    core_tensor *y = NULL;
    core_status status = core_index_select(x[0], 0, x[1], &y);

    if (status == CORE_OK)
        status = core_neg(y, &out[0]);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

START_TEST(bad_data_in_a_launch_is_reported_by_the_wait)
{
    world w = world_of(1, 4, 5);
    core_compiled *compiled = compile(selects, &w);
    core_tensor *out;
    int64_t index[] = {1, 0};

    OK(core_tensor_from_data(index, CORE_I64, (int64_t[]){2}, 1, sim,
                             &w.inputs[1]));
    keep(w.inputs[1]);
    for (int i = 0; i < 6; i++) {
        index[0] = i == 4 ? 99 : 1;
        OK(core_tensor_write(w.inputs[1], index, sizeof index));
        OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
        if (i == 4)
            FAILS(core_device_synchronize(sim), CORE_ERROR_INDEX, "99");
        OK(core_device_synchronize(sim));
        core_tensor_release(out);
    }
    ck_assert_uint_eq(launches(), 5);
    core_compiled_release(compiled);
}
END_TEST

/* The work of a launch fails: the stream has the error, another one goes on. */
START_TEST(a_launch_that_fails_poisons_its_stream_alone)
{
    world w = world_of(2, 4, 5);
    core_compiled *compiled = compile(chain, &w);
    core_stream *home, *stream;
    core_tensor *out, *expected;
    size_t count = 1;

    OK(core_stream_current(sim, &home));
    OK(chain(&w, w.inputs, 2, &expected, &count));
    for (int i = 0; i < 3; i++) {
        OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
        core_tensor_release(out);
    }
    OK(core_stream_create(sim, &stream));
    OK(core_device_synchronize(sim));
    OK(core_stream_set_current(stream));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    ck_assert_int_eq(core_stream_synchronize(stream), CORE_ERROR_STREAM);
    core_tensor_release(out);
    ck_assert_int_eq(core_compiled_call(compiled, w.inputs, 2, &out, 1),
                     CORE_ERROR_STREAM);
    ck_assert_ptr_null(out);
    OK(core_stream_set_current(home));
    core_stream_release(stream);
    OK(core_compiled_call(compiled, w.inputs, 2, &out, 1));
    same_bits("output", 0, expected, out);
    core_tensor_release(out);
    core_tensor_release(expected);
    core_stream_release(home);
    core_compiled_release(compiled);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        the_second_call_is_captured_and_later_ones_launch_the_graph,
        results_are_not_changed_by_later_launches,
        a_graph_has_the_kernels_of_groups,
        an_input_that_moves_later_is_copied_from_then_on,
        writes_views_and_random_numbers_are_those_of_the_function,
        random_numbers_go_on_from_call_to_call,
        attention_with_dropout_is_a_graph,
        inputs_that_are_written_and_overlap_are_captured_where_they_are,
        entries_of_several_sizes_share_a_pool,
        forward_and_backward_are_graphs,
        a_training_step_is_one_graph,
        streams_take_turns_and_end,
        two_threads_call_at_once,
        a_child_process_is_refused_and_leaves_the_graph,
        a_graph_ends_before_an_operator_that_reads_on_the_host,
        calls_in_a_capture_and_in_a_pool_run_operators,
        a_graph_ends_before_an_operator_with_a_registered_function,
        devices_that_do_not_capture_prepare_calls,
        a_submission_that_fails_is_the_calls_error,
        a_first_call_that_fails_leaves_graphs_possible,
        a_capture_that_fails_leaves_nothing,
        bad_data_in_a_launch_is_reported_by_the_wait,
        a_launch_that_fails_poisons_its_stream_alone,
    };
    const test_suite suites[] = {
        {.name = "compile/replay",
         .setup = begin,
         .teardown = drop_all,
         SUITE_TESTS(tests)},
    };

    setenv("LIBCORE_SIM_CHECK", "1", 1);
    return suite_run(suites, sizeof suites / sizeof *suites);
}
