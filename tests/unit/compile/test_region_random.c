/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of core_cond and core_while whose functions draw random numbers: in a
 * program they draw the same numbers again, and leave the generators as they
 * were. */

#include "support/compiled.h"

#include <libcore/control_flow.h>
#include <libcore/device.h>
#include <libcore/functional.h>
#include <libcore/lazy.h>

#include <pthread.h>

enum { GRADIENTS = 2, CALLS = 4 };

/* x, a count.  Hidden: a weight, the number of turns. */
static world random_world(void)
{
    world w = {.device = program_device, .ninputs = 2, .nhidden = 2};
    int64_t zero = 0, turns = 3;

    w.inputs[0] = leaf(NUMBERS(&w, 1, 6, 4));
    OK(core_tensor_from_data(&zero, CORE_I64, NULL, 0, program_device,
                             &w.inputs[1]));
    keep(w.inputs[1]);
    w.hidden[0] = leaf(NUMBERS(&w, 100, 4));
    OK(core_tensor_from_data(&turns, CORE_I64, NULL, 0, program_device,
                             &w.hidden[1]));
    keep(w.hidden[1]);
    OK(core_generator_create(3, &w.generator));
    return w;
}

/* dropout(tanh(x * weight)) */
COMPILED_FUNCTION(drops)
{
    core_tensor *product = NULL, *y = NULL;
    core_status status = core_mul(x[0], w->hidden[0], &product);

    if (status == CORE_OK)
        status = core_tanh(product, &y);
    if (status == CORE_OK)
        status = core_dropout(y, .5, true, &out[0]);
    core_tensor_release(product);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

/* x * x where a given generator says, and 1 + x elsewhere. */
COMPILED_FUNCTION(chooses_elements)
{
    core_tensor *mask = NULL, *chosen = NULL, *square = NULL, *more = NULL;
    core_status status = core_empty_like(x[0], CORE_BOOL, NULL, -1, &mask);

    if (status == CORE_OK)
        status = core_bernoulli_float_(mask, .5, w->generator);
    if (status == CORE_OK)
        status = core_mul(x[0], x[0], &square);
    if (status == CORE_OK)
        status = core_add_scalar(x[0], core_int(1), core_int(1), &more);
    if (status == CORE_OK)
        status = core_where(mask, square, more, &out[0]);
    core_tensor_release(mask);
    core_tensor_release(chosen);
    core_tensor_release(square);
    core_tensor_release(more);
    *noutputs = 1;
    return status;
}

static core_status is_positive(core_tensor *x, core_tensor **out)
{
    core_tensor *sum = NULL;
    core_status status = core_sum(x, CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_gt_scalar(sum, core_int(0), out);
    core_tensor_release(sum);
    return status;
}

COMPILED_FUNCTION(branches)
{
    core_tensor *predicate = NULL;
    core_status status = is_positive(x[0], &predicate);

    if (status == CORE_OK)
        status = core_cond(predicate, drops, chooses_elements, w, x, 1, out, 1);
    core_tensor_release(predicate);
    *noutputs = 1;
    return status;
}

/* Numbers are drawn before and after the branch, too. */
COMPILED_FUNCTION(branches_between)
{
    core_tensor *before = NULL, *middle = NULL;
    core_status status = core_dropout(x[0], .25, true, &before);

    if (status == CORE_OK)
        status = branches(w, &before, 1, &middle, noutputs);
    if (status == CORE_OK)
        status = core_dropout(middle, .25, true, &out[0]);
    core_tensor_release(before);
    core_tensor_release(middle);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(is_below)
{
    *noutputs = 1;
    return core_lt(x[1], w->hidden[1], &out[0]);
}

COMPILED_FUNCTION(drops_and_counts)
{
    size_t one;
    core_status status = drops(w, x, 1, &out[0], &one);

    *noutputs = 2;
    return status == CORE_OK
               ? core_add_scalar(x[1], core_int(1), core_int(1), &out[1])
               : status;
}

COMPILED_FUNCTION(branches_and_counts)
{
    size_t one;
    core_status status = branches(w, x, 1, &out[0], &one);

    *noutputs = 2;
    return status == CORE_OK
               ? core_add_scalar(x[1], core_int(1), core_int(1), &out[1])
               : status;
}

static core_status loop(world *w, core_tensor *const *x,
                        core_tensor_function body, core_tensor **out)
{
    core_tensor *end[2] = {NULL};
    core_status status = core_while(is_below, body, w, x, 2, end);

    if (status == CORE_OK)
        status = core_dropout(end[0], .25, true, out);
    core_tensor_release(end[0]);
    core_tensor_release(end[1]);
    return status;
}

COMPILED_FUNCTION(loops)
{
    *noutputs = 1;
    return loop(w, x, drops_and_counts, out);
}

COMPILED_FUNCTION(loops_with_branches)
{
    *noutputs = 1;
    return loop(w, x, branches_and_counts, out);
}

static void negate_first(world *w)
{
    bool before = core_grad_mode_set(false);

    OK(core_mul_scalar_(w->inputs[0], core_int(-1)));
    core_grad_mode_set(before);
}

/* The output, then the gradients; *out_after: how many numbers were drawn. */
static void train(core_tensor_function function, world *w,
                  core_compiled *compiled, core_tensor **out,
                  uint64_t *out_after)
{
    core_tensor *wanted[] = {w->inputs[0], w->hidden[0]}, *ones;
    uint64_t seed;

    core_generator_seed(w->generator, 5);
    call_world(function, w, compiled, 1, out);
    OK(core_ones_like(out[0], CORE_DTYPE_NONE, NULL, -1, &ones));
    OK(core_grad(out, 1, &ones, wanted, GRADIENTS, CORE_ALLOW_UNUSED, out + 1));
    core_tensor_release(ones);
    core_generator_state(w->generator, &seed, out_after);
    *out_after += random_offset();
}

static void same_gradient(size_t i, core_tensor *a, core_tensor *b)
{
    core_tensor *expected;

    ck_assert_ptr_nonnull(b);
    if (a)
        OK(core_clone(a, CORE_FORMAT_CONTIGUOUS, &expected));
    else
        OK(core_zeros_like(b, CORE_DTYPE_NONE, NULL, -1, &expected));
    same_bits("gradient", i, expected, b);
    core_tensor_release(expected);
}

static void same_training(core_tensor_function function)
{
    world eager = random_world(), traced = random_world();
    core_compiled *compiled = compile_fully(function, &traced);

    for (int i = 0; i < CALLS; i++) {
        core_tensor *a[1 + GRADIENTS] = {NULL}, *b[1 + GRADIENTS] = {NULL};
        uint64_t drawn, drawn_again;

        train(function, &eager, NULL, a, &drawn);
        train(function, &traced, compiled, b, &drawn_again);
        ck_assert_uint_eq(drawn, drawn_again);
        same_bits("output", 0, a[0], b[0]);
        for (size_t k = 1; k <= GRADIENTS; k++)
            same_gradient(k, a[k], b[k]);
        release_tensors(a, 1 + GRADIENTS);
        release_tensors(b, 1 + GRADIENTS);
        negate_first(&eager);
        negate_first(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
    core_generator_release(eager.generator);
    core_generator_release(traced.generator);
}

START_TEST(branches_draw_the_same_numbers_in_their_gradient)
{
    same_training(branches);
    same_training(branches_between);
}
END_TEST

START_TEST(loops_draw_the_same_numbers_in_their_gradient)
{
    same_training(loops);
    same_training(loops_with_branches);
}
END_TEST

/* The gradient of the sum of the squares of the gradient of the branch, and more
 * numbers.  A recorded branch adds a gradient of zeros where there is none, so
 * zeros may have another sign. */
COMPILED_FUNCTION(differentiates_twice)
{
    core_tensor *y = NULL, *sum = NULL, *first = NULL, *square = NULL;
    core_tensor *total = NULL, *second = NULL, *wanted = x[0];
    core_status status = branches(w, x, 1, &y, noutputs);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &sum);
    if (status == CORE_OK)
        status =
            core_grad(&sum, 1, NULL, &wanted, 1, CORE_CREATE_GRAPH, &first);
    if (status == CORE_OK)
        status = core_mul(first, first, &square);
    if (status == CORE_OK)
        status = core_sum(square, CORE_DTYPE_NONE, &total);
    if (status == CORE_OK)
        status = core_grad(&total, 1, NULL, &wanted, 1, 0, &second);
    if (status == CORE_OK)
        status = core_add_scalar(second, core_int(0), core_int(1), &out[0]);
    if (status == CORE_OK)
        status = core_rand_like(x[0], CORE_DTYPE_NONE, NULL, -1, &out[1]);
    core_tensor_release(y);
    core_tensor_release(sum);
    core_tensor_release(first);
    core_tensor_release(square);
    core_tensor_release(total);
    core_tensor_release(second);
    *noutputs = 2;
    return status;
}

START_TEST(second_derivatives_draw_the_same_numbers)
{
    world eager = random_world(), traced = random_world();
    core_compiled *compiled = compile_fully(differentiates_twice, &traced);

    for (int i = 0; i < CALLS; i++) {
        core_generator_seed(eager.generator, 5);
        core_generator_seed(traced.generator, 5);
        same_call(differentiates_twice, &eager, compiled, &traced);
        negate_first(&eager);
        negate_first(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
    core_generator_release(eager.generator);
    core_generator_release(traced.generator);
}
END_TEST

COMPILED_FUNCTION(decides_at_random)
{
    core_tensor *number = NULL;
    core_status status =
        core_rand(NULL, 0, NULL, CORE_F32, program_device, &number);

    if (status == CORE_OK)
        status = core_lt_scalar(number, core_float(.75), &out[0]);
    core_tensor_release(number);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(loops_at_random)
{
    core_tensor *end[2] = {NULL};
    core_status status =
        core_while(decides_at_random, drops_and_counts, w, x, 2, end);

    core_tensor_release(end[1]);
    out[0] = end[0];
    *noutputs = 1;
    return status;
}

/* The body draws nothing. */
COMPILED_FUNCTION(squashes_and_counts)
{
    core_tensor *product = NULL;
    core_status status = core_mul(x[0], w->hidden[0], &product);

    if (status == CORE_OK)
        status = core_tanh(product, &out[0]);
    core_tensor_release(product);
    *noutputs = 2;
    return status == CORE_OK
               ? core_add_scalar(x[1], core_int(1), core_int(1), &out[1])
               : status;
}

COMPILED_FUNCTION(loops_at_random_alone)
{
    core_tensor *end[2] = {NULL};
    core_status status =
        core_while(decides_at_random, squashes_and_counts, w, x, 2, end);

    core_tensor_release(end[1]);
    out[0] = end[0];
    *noutputs = 1;
    return status;
}

START_TEST(a_condition_may_draw)
{
    same_training(loops_at_random);
    same_training(loops_at_random_alone);
}
END_TEST

/* In a lazy region autograd records what is drawn. */
static void train_in_region(core_tensor_function function, world *w,
                            bool region, core_tensor **out)
{
    uint64_t drawn;

    if (region)
        OK(core_lazy_begin(NULL));
    train(function, w, NULL, out, &drawn);
    if (region)
        OK(core_lazy_end());
}

START_TEST(gradients_in_lazy_regions_use_the_numbers_that_were_drawn)
{
    static const core_tensor_function functions[] = {drops, chooses_elements,
                                                     branches_between, loops};

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        world eager = random_world(), lazy = random_world();

        for (int run = 0; run < CALLS; run++) {
            core_tensor *a[1 + GRADIENTS] = {NULL}, *b[1 + GRADIENTS] = {NULL};

            train_in_region(functions[i], &eager, false, a);
            train_in_region(functions[i], &lazy, true, b);
            for (size_t k = 0; k <= GRADIENTS; k++)
                if (a[k] || b[k])
                    same_bits("tensor", k, a[k], b[k]);
            release_tensors(a, 1 + GRADIENTS);
            release_tensors(b, 1 + GRADIENTS);
        }
        core_generator_release(eager.generator);
        core_generator_release(lazy.generator);
    }
}
END_TEST

/* ------------------------------------------------------- other threads -- */

static bool interferes;

static void *draw(void *unused)
{
    core_tensor *number = NULL;

    (void)unused;
    (void)core_rand(NULL, 0, NULL, CORE_F32, program_device, &number);
    core_tensor_release(number);
    return NULL;
}

/* Another thread draws a number before the call. */
static core_status let_draw(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    pthread_t thread;

    if (interferes) {
        ck_assert_int_eq(pthread_create(&thread, NULL, draw, NULL), 0);
        pthread_join(thread, NULL);
    }
    return core_redispatch_displaced(call, args, nargs, results, nresults);
}

COMPILED_FUNCTION(drops_in_branch)
{
    core_tensor *predicate = NULL;
    core_status status = is_positive(x[0], &predicate);

    if (status == CORE_OK)
        status = core_cond(predicate, drops, drops, w, x, 1, out, 1);
    core_tensor_release(predicate);
    *noutputs = 1;
    return status;
}

static void check_interference(core_tensor_function function)
{
    world w = random_world();
    core_compiled *compiled = compile_fully(function, &w);
    core_tensor *out[1 + GRADIENTS] = {NULL}, *ones, *wanted = w.inputs[0];
    uint64_t drawn;

    train(function, &w, compiled, out, &drawn);
    release_tensors(out, 1 + GRADIENTS);
    interferes = true;
    FAILS(core_compiled_call(compiled, w.inputs, 2, out, 1), CORE_ERROR_REFUSED,
          "another thread used a generator");
    ck_assert_ptr_null(out[0]);
    interferes = false;
    OK(core_compiled_call(compiled, w.inputs, 2, out, 1));
    OK(core_ones_like(out[0], CORE_DTYPE_NONE, NULL, -1, &ones));
    interferes = true;
    FAILS(core_grad(out, 1, &ones, &wanted, 1, CORE_ALLOW_UNUSED, out + 1),
          CORE_ERROR_REFUSED, "another thread used a generator");
    interferes = false;
    ck_assert_ptr_null(out[1]);
    core_tensor_release(out[0]);
    core_tensor_release(ones);
    train(function, &w, compiled, out, &drawn);
    release_tensors(out, 1 + GRADIENTS);
    core_compiled_release(compiled);
    core_generator_release(w.generator);
}

START_TEST(another_thread_that_draws_during_a_run_is_reported)
{
    core_registration *handle;

    OK(core_function_register("tanh", CORE_KEY_BACKEND,
                              core_device_type(program_device), let_draw, NULL,
                              &handle));
    check_interference(drops_in_branch);
    check_interference(loops);
    core_registration_release(handle);
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/region_random",
                     branches_draw_the_same_numbers_in_their_gradient,
                     loops_draw_the_same_numbers_in_their_gradient,
                     second_derivatives_draw_the_same_numbers,
                     a_condition_may_draw,
                     gradients_in_lazy_regions_use_the_numbers_that_were_drawn,
                     another_thread_that_draws_during_a_run_is_reported)
