/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of core_while and core_cond in programs: with tensors that the
 * functions read by themselves, in training, saved, of second order, and
 * refused. */

#include "support/compiled.h"
#include "support/temporary_files.h"

#include <libcore/control_flow.h>
#include <libcore/device.h>
#include <libcore/functional.h>
#include <libcore/settings.h>

#include <math.h>

/* State: x, a count.  Hidden: the number of turns, a weight, a bias. */
static world loop_world(void)
{
    world w = {.device = program_device, .ninputs = 2, .nhidden = 3};
    int64_t zero = 0, turns = 3;

    w.inputs[0] = leaf(NUMBERS(&w, 1, 3, 4));
    OK(core_tensor_from_data(&zero, CORE_I64, NULL, 0, program_device,
                             &w.inputs[1]));
    keep(w.inputs[1]);
    OK(core_tensor_from_data(&turns, CORE_I64, NULL, 0, program_device,
                             &w.hidden[0]));
    keep(w.hidden[0]);
    w.hidden[1] = leaf(NUMBERS(&w, 100, 4, 4));
    w.hidden[2] = leaf(NUMBERS(&w, 200, 4));
    return w;
}

COMPILED_FUNCTION(below)
{
    *noutputs = 1;
    return core_lt(x[1], w->hidden[0], &out[0]);
}

/* tanh(mm(x, weight) * bias), with a view of x. */
COMPILED_FUNCTION(turn)
{
    core_tensor *product = NULL, *scaled = NULL;
    core_status status = core_mm(x[0], w->hidden[1], &product);

    if (status == CORE_OK)
        status = core_mul(product, w->hidden[2], &scaled);
    if (status == CORE_OK)
        status = core_tanh(scaled, &out[0]);
    if (status == CORE_OK)
        status = core_add_scalar(x[1], core_int(1), core_int(1), &out[1]);
    core_tensor_release(product);
    core_tensor_release(scaled);
    *noutputs = 2;
    return status;
}

COMPILED_FUNCTION(loops)
{
    core_tensor *state[2] = {NULL, x[1]}, *end[2] = {NULL};
    core_status status = core_mul_scalar(x[0], core_float(.5), &state[0]);

    if (status == CORE_OK)
        status = core_while(below, turn, w, state, 2, end);
    if (status == CORE_OK)
        status = core_mul(end[0], end[0], &out[0]);
    core_tensor_release(state[0]);
    core_tensor_release(end[0]);
    core_tensor_release(end[1]);
    *noutputs = 1;
    return status;
}

static void set_turns(world *w, int64_t turns)
{
    OK(core_fill_(w->hidden[0], core_int(turns)));
}

/* Gradients of x, the weight and the bias. */
static void gradients_of(core_tensor *out, const world *w, core_tensor **grads)
{
    core_tensor *wanted[] = {w->inputs[0], w->hidden[1], w->hidden[2]};
    core_tensor *ones;

    OK(core_ones_like(out, CORE_DTYPE_NONE, NULL, -1, &ones));
    OK(core_grad(&out, 1, &ones, wanted, 3, CORE_ALLOW_UNUSED, grads));
    core_tensor_release(ones);
}

/* A tensor that no turn used has a gradient of zeros, or none. */
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

static void same_training_call(core_tensor_function function, world *eager,
                               core_compiled *compiled, world *traced)
{
    core_tensor *a, *b, *grads[6];
    size_t one = 1;

    OK(function(eager, eager->inputs, eager->ninputs, &a, &one));
    OK(core_compiled_call(compiled, traced->inputs, traced->ninputs, &b, 1));
    same_bits("output", 0, a, b);
    gradients_of(a, eager, &grads[0]);
    gradients_of(b, traced, &grads[3]);
    for (size_t i = 0; i < 3; i++) {
        same_gradient(i, grads[i], grads[3 + i]);
        core_tensor_release(grads[i]);
        core_tensor_release(grads[3 + i]);
    }
    core_tensor_release(a);
    core_tensor_release(b);
}

START_TEST(recorded_loops_have_gradients)
{
    static const int64_t turns[] = {3, 0, 1, 20};
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled = compile_fully(loops, &traced);

    for (size_t i = 0; i < 4; i++) {
        set_turns(&eager, turns[i]);
        set_turns(&traced, turns[i]);
        same_training_call(loops, &eager, compiled, &traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
}
END_TEST

/* Only what the body reads by itself requires grad. */
START_TEST(the_body_alone_makes_a_loop_differentiable)
{
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled;

    OK(core_tensor_set_requires_grad(eager.inputs[0], false));
    OK(core_tensor_set_requires_grad(traced.inputs[0], false));
    eager.inputs[0] = eager.hidden[1];
    traced.inputs[0] = traced.hidden[1];
    compiled = compile_fully(loops, &traced);
    same_training_call(loops, &eager, compiled, &traced);
    same_training_call(loops, &eager, compiled, &traced);
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* The backward is in the function. */
static core_status descend(core_tensor_function function, world *w,
                           core_tensor *const *x, core_tensor **out,
                           size_t *noutputs)
{
    core_tensor *wanted[] = {x[0], w->hidden[1]};
    core_tensor *result = NULL, *loss = NULL, *grads[2] = {NULL};
    core_status status = function(w, x, 2, &result, noutputs);

    if (status == CORE_OK)
        status = core_sum(result, CORE_DTYPE_NONE, &loss);
    if (status == CORE_OK)
        status = core_grad(&loss, 1, NULL, wanted, 2, CORE_ALLOW_UNUSED, grads);
    for (size_t i = 0; i < 2; i++) {
        if (status == CORE_OK && !grads[i])
            status = core_zeros_like(wanted[i], CORE_DTYPE_NONE, NULL, -1,
                                     &grads[i]);
        if (status == CORE_OK)
            status = core_clone(grads[i], CORE_FORMAT_CONTIGUOUS, &out[i]);
        core_tensor_release(grads[i]);
    }
    core_tensor_release(result);
    core_tensor_release(loss);
    *noutputs = 2;
    return status;
}

COMPILED_FUNCTION(descends)
{
    return descend(loops, w, x, out, noutputs);
}

static core_program *trace(core_tensor_function function, world *w)
{
    core_program *program;

    OK(core_program_trace(function, w, w->inputs, w->ninputs, WORLD_OUTPUTS,
                          &program));
    OK(core_program_verify(program));
    return program;
}

static void same_results(core_tensor_function function, world *w,
                         core_program *program)
{
    core_tensor *a[2], *b[2];
    size_t two = 2;

    OK(function(w, w->inputs, 2, a, &two));
    OK(core_program_run(program, w->inputs, 2, b, 2));
    for (size_t i = 0; i < 2; i++) {
        same_bits("output", i, a[i], b[i]);
        core_tensor_release(a[i]);
        core_tensor_release(b[i]);
    }
}

/* A run of a program becomes a part of the program that is recorded. */
static core_status run_program(void *context, core_tensor *const *x, size_t n,
                               core_tensor **out, size_t *noutputs)
{
    *noutputs = 2;
    return core_program_run(context, x, n, out, 2);
}

START_TEST(a_program_with_the_backward_of_a_loop_is_saved_and_loaded)
{
    world w = loop_world();
    core_program *program = trace(descends, &w), *loaded, *outer;
    char *before, *after;
    temporary_path path;

    for (int turns = 0; turns < 3; turns++) {
        set_turns(&w, turns);
        same_results(descends, &w, program);
    }
    OK(core_program_trace(run_program, program, w.inputs, 2, 2, &outer));
    OK(core_program_verify(outer));
    same_results(descends, &w, outer);
    temporary_file(path, "libcore-loop");
    OK(core_program_save(program, path));
    OK(core_program_load(path, NULL, &loaded));
    temporary_remove(path);
    OK(core_program_text(program, &before));
    OK(core_program_text(loaded, &after));
    ck_assert_str_eq(before, after);
    ck_assert_ptr_nonnull(strstr(before, " = core_while backward(none, ["));
    ck_assert_ptr_nonnull(strstr(before, "\n    gradient\n"));
    core_text_free(before);
    core_text_free(after);
    same_results(descends, &w, loaded);
    core_program_release(program);
    core_program_release(loaded);
    core_program_release(outer);
}
END_TEST

START_TEST(a_function_with_the_backward_of_a_loop_is_compiled)
{
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled = compile_fully(descends, &traced);

    for (int turns = 4; turns >= 0; turns -= 2) {
        set_turns(&eager, turns);
        set_turns(&traced, turns);
        same_call(descends, &eager, compiled, &traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

static void close_values(core_tensor *a, core_tensor *b)
{
    float x[16], y[16];
    size_t count = (size_t)core_tensor_numel(a);

    OK(core_tensor_read(a, x, count * sizeof *x));
    OK(core_tensor_read(b, y, count * sizeof *y));
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(fabsf(x[i] - y[i]) <= 1e-5f * (1 + fabsf(x[i])),
                      "element %zu: %g, not %g", i, (double)y[i], (double)x[i]);
}

/* A loop whose body has a branch that reads the weight, and a loop. */
COMPILED_FUNCTION(positive_branch)
{
    *noutputs = 1;
    return core_mul(x[0], w->hidden[2], &out[0]);
}

COMPILED_FUNCTION(other_branch)
{
    *noutputs = 1;
    return core_sin(x[0], &out[0]);
}

COMPILED_FUNCTION(nested_turn)
{
    core_tensor *sum = NULL, *positive = NULL, *chosen = NULL, *zero = NULL;
    core_tensor *state[2] = {NULL}, *end[2] = {NULL};
    core_status status = core_sum(x[0], CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_gt_scalar(sum, core_int(0), &positive);
    if (status == CORE_OK)
        status = core_cond(positive, positive_branch, other_branch, w, x, 1,
                           &chosen, 1);
    if (status == CORE_OK)
        status =
            core_add_scalar(w->hidden[0], core_int(-1), core_int(1), &zero);
    state[0] = chosen;
    state[1] = zero;
    if (status == CORE_OK)
        status = core_while(below, turn, w, state, 2, end);
    if (status == CORE_OK)
        status = core_neg(end[0], &out[0]);
    if (status == CORE_OK)
        status = core_add_scalar(x[1], core_int(1), core_int(1), &out[1]);
    core_tensor_release(sum);
    core_tensor_release(positive);
    core_tensor_release(chosen);
    core_tensor_release(zero);
    core_tensor_release(end[0]);
    core_tensor_release(end[1]);
    *noutputs = 2;
    return status;
}

COMPILED_FUNCTION(nested_loops)
{
    core_tensor *end[2] = {NULL};
    core_status status = core_while(below, nested_turn, w, x, 2, end);

    if (status == CORE_OK)
        status = core_mul_scalar(end[0], core_float(2), &out[0]);
    core_tensor_release(end[0]);
    core_tensor_release(end[1]);
    *noutputs = 1;
    return status;
}

/* Sums over the turns may round in another order where the body reads a tensor
 * twice, as it does here. */
START_TEST(loops_and_branches_in_loops_have_gradients)
{
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled = compile_fully(nested_loops, &traced);

    for (int turns = 2; turns >= 0; turns--) {
        core_tensor *a, *b, *grads[6];
        size_t one = 1;

        set_turns(&eager, turns);
        set_turns(&traced, turns);
        OK(nested_loops(&eager, eager.inputs, 2, &a, &one));
        OK(core_compiled_call(compiled, traced.inputs, 2, &b, 1));
        same_bits("output", 0, a, b);
        gradients_of(a, &eager, &grads[0]);
        gradients_of(b, &traced, &grads[3]);
        for (size_t i = 0; i < 3; i++) {
            if (grads[i])
                close_values(grads[i], grads[3 + i]);
            core_tensor_release(grads[i]);
            core_tensor_release(grads[3 + i]);
        }
        core_tensor_release(a);
        core_tensor_release(b);
    }
    core_compiled_release(compiled);
}
END_TEST

/* ----------------------------------------------------------------- errors */

START_TEST(the_number_of_turns_that_are_kept_is_limited)
{
    world w = loop_world();
    core_program *program = trace(descends, &w);
    core_tensor *out[2];

    OK(core_setting_set("LIBCORE_LOOP_ITERATIONS", "3"));
    OK(core_program_run(program, w.inputs, 2, out, 2));
    core_tensor_release(out[0]);
    core_tensor_release(out[1]);
    set_turns(&w, 4);
    FAILS(core_program_run(program, w.inputs, 2, out, 2),
          CORE_ERROR_OUT_OF_MEMORY,
          "core_while backward: more than 3 iterations, whose inputs it would "
          "keep; LIBCORE_LOOP_ITERATIONS sets the limit");
    ck_assert_ptr_null(out[0]);
    OK(core_setting_set("LIBCORE_LOOP_ITERATIONS", NULL));
    OK(core_program_run(program, w.inputs, 2, out, 2));
    core_tensor_release(out[0]);
    core_tensor_release(out[1]);
    core_program_release(program);
}
END_TEST

/* ------------------------------------------------------------ second order */

/* x cubed times the weight, or its sine times the bias. */
COMPILED_FUNCTION(cube)
{
    core_tensor *square = NULL, *power = NULL;
    core_status status = core_mul(x[0], x[0], &square);

    if (status == CORE_OK)
        status = core_mul(square, x[0], &power);
    if (status == CORE_OK)
        status = core_mm(power, w->hidden[1], &out[0]);
    core_tensor_release(square);
    core_tensor_release(power);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(wave)
{
    core_tensor *sine = NULL;
    core_status status = core_sin(x[0], &sine);

    if (status == CORE_OK)
        status = core_mul(sine, w->hidden[2], &out[0]);
    core_tensor_release(sine);
    *noutputs = 1;
    return status;
}

COMPILED_FUNCTION(chooses)
{
    core_tensor *sum = NULL, *positive = NULL;
    core_status status = core_sum(x[0], CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_gt_scalar(sum, core_int(0), &positive);
    if (status == CORE_OK)
        status = core_cond(positive, cube, wave, w, x, 1, &out[0], 1);
    core_tensor_release(sum);
    core_tensor_release(positive);
    *noutputs = 1;
    return status;
}

static void negate_first(world *w)
{
    bool before = core_grad_mode_set(false);

    OK(core_neg_(w->inputs[0]));
    core_grad_mode_set(before);
}

START_TEST(recorded_branches_have_gradients_of_what_they_read)
{
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled = compile_fully(chooses, &traced);

    for (int i = 0; i < 4; i++) {
        same_training_call(chooses, &eager, compiled, &traced);
        negate_first(&eager);
        negate_first(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
}
END_TEST

/* The gradients of the sum of the squares of the gradients, by x and weight. */
COMPILED_FUNCTION(twice)
{
    core_tensor *wanted[] = {x[0], w->hidden[1], w->hidden[2]};
    core_tensor *result = NULL, *sum = NULL, *square = NULL, *total = NULL;
    core_tensor *first[2] = {NULL}, *second[3] = {NULL};
    core_status status = chooses(w, x, 2, &result, noutputs);

    if (status == CORE_OK)
        status = core_sum(result, CORE_DTYPE_NONE, &sum);
    if (status == CORE_OK)
        status = core_grad(&sum, 1, NULL, wanted, 1,
                           CORE_CREATE_GRAPH | CORE_ALLOW_UNUSED, first);
    if (status == CORE_OK)
        status = core_mul(first[0], first[0], &square);
    if (status == CORE_OK)
        status = core_sum(square, CORE_DTYPE_NONE, &total);
    if (status == CORE_OK)
        status =
            core_grad(&total, 1, NULL, wanted, 3, CORE_ALLOW_UNUSED, second);
    for (size_t i = 0; i < 3 && status == CORE_OK; i++) {
        if (!second[i])
            status = core_zeros_like(wanted[i], CORE_DTYPE_NONE, NULL, -1,
                                     &second[i]);
        if (status == CORE_OK)
            status = core_clone(second[i], CORE_FORMAT_CONTIGUOUS, &out[i]);
    }
    core_tensor_release(result);
    core_tensor_release(sum);
    core_tensor_release(square);
    core_tensor_release(total);
    core_tensor_release(first[0]);
    release_tensors(second, 3);
    *noutputs = 3;
    return status;
}

START_TEST(recorded_branches_have_second_derivatives)
{
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled = compile_fully(twice, &traced);

    for (int i = 0; i < 4; i++) {
        same_call(twice, &eager, compiled, &traced);
        negate_first(&eager);
        negate_first(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* The derivative of the branch along the weight. */
COMPILED_FUNCTION(along)
{
    const core_derivative of = {.struct_size = sizeof of,
                                .function = chooses,
                                .context = w,
                                .inputs = x,
                                .ninputs = 1};
    core_tensor *direction = NULL;
    core_status status =
        core_ones_like(x[0], CORE_DTYPE_NONE, NULL, -1, &direction);

    *noutputs = 1;
    if (status == CORE_OK)
        status = core_jvp(&of, &direction, out, noutputs);
    core_tensor_release(direction);
    return status;
}

START_TEST(recorded_branches_have_forward_derivatives)
{
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled = compile_fully(along, &traced);

    for (int i = 0; i < 4; i++) {
        same_call(along, &eager, compiled, &traced);
        negate_first(&eager);
        negate_first(&traced);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    core_compiled_release(compiled);
}
END_TEST

/* As it is, autograd records each turn, so a loop has every derivative. */
COMPILED_FUNCTION(loops_along)
{
    const core_derivative of = {.struct_size = sizeof of,
                                .function = loops,
                                .context = w,
                                .inputs = x,
                                .ninputs = 2};
    core_tensor *directions[2] = {NULL};
    core_status status =
        core_ones_like(x[0], CORE_DTYPE_NONE, NULL, -1, &directions[0]);

    *noutputs = 1;
    if (status == CORE_OK)
        status = core_jvp(&of, directions, out, noutputs);
    core_tensor_release(directions[0]);
    return status;
}

/* Turns add their gradients in another order. */
static void same_numbers(size_t i, core_tensor *a, core_tensor *b)
{
    float numbers[2][64];
    size_t count = (size_t)core_tensor_numel(a), size = count * sizeof(float);

    ck_assert_int_eq(core_tensor_numel(b), core_tensor_numel(a));
    OK(core_tensor_read(a, numbers[0], size));
    OK(core_tensor_read(b, numbers[1], size));
    for (size_t k = 0; k < count; k++) {
        float bound = 1e-5f * (1 + fabsf(numbers[0][k]));

        ck_assert_msg(fabsf(numbers[0][k] - numbers[1][k]) <= bound,
                      "output %zu: element %zu is %g, expected %g", i, k,
                      numbers[1][k], numbers[0][k]);
    }
}

static void same_derivatives(core_tensor_function function, size_t count)
{
    world eager = loop_world(), traced = loop_world();
    core_compiled *compiled = compile_fully(function, &traced);

    for (int turns = 0; turns < 4; turns++) {
        core_tensor *a[WORLD_OUTPUTS] = {NULL}, *b[WORLD_OUTPUTS] = {NULL};

        set_turns(&eager, turns);
        set_turns(&traced, turns);
        call_world(function, &eager, NULL, count, a);
        call_world(function, &traced, compiled, count, b);
        for (size_t i = 0; i < count; i++)
            same_numbers(i, a[i], b[i]);
        release_tensors(a, count);
        release_tensors(b, count);
    }
    EXPLAINS(compiled, "\"traces\": 1");
    EXPLAINS(compiled, "\"breaks\": []");
    core_compiled_release(compiled);
}

START_TEST(recorded_loops_have_forward_derivatives)
{
    same_derivatives(loops_along, 1);
}
END_TEST

static core_tensor_function differentiated = loops;

/* The gradients of the sum of the squares of the gradients, by x, the weight and
 * the bias. */
COMPILED_FUNCTION(loops_twice)
{
    core_tensor *wanted[] = {x[0], w->hidden[1], w->hidden[2]};
    core_tensor *y = NULL, *sum = NULL, *total = NULL;
    core_tensor *first[3] = {NULL}, *second[3] = {NULL};
    core_status status = differentiated(w, x, 2, &y, noutputs);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &sum);
    if (status == CORE_OK)
        status = core_grad(&sum, 1, NULL, wanted, 3,
                           CORE_CREATE_GRAPH | CORE_ALLOW_UNUSED, first);
    for (size_t i = 0; i < 3 && status == CORE_OK; i++) {
        core_tensor *square = NULL, *part = NULL, *before = total;

        if (!first[i])
            continue;
        total = NULL;
        status = core_mul(first[i], first[i], &square);
        if (status == CORE_OK)
            status = core_sum(square, CORE_DTYPE_NONE, &part);
        if (status == CORE_OK && before)
            status = core_add(before, part, core_int(1), &total);
        else if (status == CORE_OK)
            total = core_tensor_retain(part);
        core_tensor_release(square);
        core_tensor_release(part);
        core_tensor_release(before);
    }
    if (status == CORE_OK)
        status =
            core_grad(&total, 1, NULL, wanted, 3, CORE_ALLOW_UNUSED, second);
    for (size_t i = 0; i < 3 && status == CORE_OK; i++)
        status = second[i]
                     ? core_clone(second[i], CORE_FORMAT_CONTIGUOUS, &out[i])
                     : core_zeros_like(wanted[i], CORE_DTYPE_NONE, NULL, -1,
                                       &out[i]);
    core_tensor_release(y);
    core_tensor_release(sum);
    core_tensor_release(total);
    release_tensors(first, 3);
    release_tensors(second, 3);
    *noutputs = 3;
    return status;
}

START_TEST(recorded_loops_have_second_derivatives)
{
    same_derivatives(loops_twice, 3);
}
END_TEST

/* A loop in a branch. */
COMPILED_FUNCTION(one_of_loops)
{
    core_tensor *sum = NULL, *few = NULL;
    core_status status = core_sum(x[0], CORE_DTYPE_NONE, &sum);

    if (status == CORE_OK)
        status = core_lt_scalar(sum, core_int(1000), &few);
    if (status == CORE_OK)
        status = core_cond(few, loops, nested_loops, w, x, 2, out, 1);
    core_tensor_release(sum);
    core_tensor_release(few);
    *noutputs = 1;
    return status;
}

static core_tensor_function below_sine;

/* It has all derivatives, also without a turn. */
COMPILED_FUNCTION(sine)
{
    core_tensor *y = NULL;
    core_status status = below_sine(w, x, 2, &y, noutputs);

    if (status == CORE_OK)
        status = core_sin(y, &out[0]);
    core_tensor_release(y);
    *noutputs = 1;
    return status;
}

START_TEST(loops_and_branches_in_one_another_have_second_derivatives)
{
    differentiated = sine;
    below_sine = nested_loops;
    same_derivatives(loops_twice, 3);
    below_sine = one_of_loops;
    same_derivatives(loops_twice, 3);
}
END_TEST

static void same_when_loaded(core_tensor_function function, size_t count)
{
    world w = loop_world();
    core_program *program, *loaded;
    core_tensor *a[3] = {NULL}, *b[3] = {NULL};
    temporary_path path;

    OK(core_program_trace(function, &w, w.inputs, 2, count, &program));
    temporary_file(path, "libcore-derivative");
    OK(core_program_save(program, path));
    OK(core_program_load(path, NULL, &loaded));
    temporary_remove(path);
    OK(core_program_run(program, w.inputs, 2, a, count));
    OK(core_program_run(loaded, w.inputs, 2, b, count));
    for (size_t i = 0; i < count; i++)
        same_bits("output", i, a[i], b[i]);
    release_tensors(a, count);
    release_tensors(b, count);
    core_program_release(program);
    core_program_release(loaded);
}

START_TEST(a_program_with_a_second_derivative_is_saved_and_loaded)
{
    same_when_loaded(loops_twice, 3);
}
END_TEST

COMPILED_FUNCTION(loops_thrice)
{
    core_tensor *y = NULL, *sum = NULL, *at = NULL;
    core_status status = differentiated(w, x, 2, &y, noutputs);

    if (status == CORE_OK)
        status = core_sum(y, CORE_DTYPE_NONE, &at);
    for (int i = 0; i < 3 && status == CORE_OK; i++) {
        core_tensor *grad = NULL;

        status = core_grad(&at, 1, NULL, x, 1, CORE_CREATE_GRAPH, &grad);
        core_tensor_release(at);
        at = NULL;
        if (status == CORE_OK)
            status = core_sum(grad, CORE_DTYPE_NONE, &at);
        core_tensor_release(grad);
    }
    core_tensor_release(y);
    core_tensor_release(sum);
    out[0] = at;
    *noutputs = 1;
    return status;
}

START_TEST(recorded_loops_have_further_derivatives)
{
    differentiated = sine;
    below_sine = loops;
    same_derivatives(loops_thrice, 1);
    below_sine = nested_loops;
    same_derivatives(loops_thrice, 1);
}
END_TEST

START_TEST(a_program_with_a_third_derivative_is_saved_and_loaded)
{
    same_when_loaded(loops_thrice, 1);
}
END_TEST

/* Of a loop in a branch. */
START_TEST(the_third_derivative_of_a_loop_in_a_branch_is_refused)
{
    world w = loop_world();
    core_program *program;

    differentiated = one_of_loops;
    FAILS(core_program_trace(loops_thrice, &w, w.inputs, 2, 1, &program),
          CORE_ERROR_UNSUPPORTED,
          "core_while second backward: the second derivative of a loop cannot "
          "become a part of another program, such as the gradient of a branch "
          "around the loop; replace the branch by core_where");
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/loop_gradient", recorded_loops_have_gradients,
                     the_body_alone_makes_a_loop_differentiable,
                     a_program_with_the_backward_of_a_loop_is_saved_and_loaded,
                     a_function_with_the_backward_of_a_loop_is_compiled,
                     loops_and_branches_in_loops_have_gradients,
                     the_number_of_turns_that_are_kept_is_limited,
                     recorded_branches_have_gradients_of_what_they_read,
                     recorded_branches_have_second_derivatives,
                     recorded_branches_have_forward_derivatives,
                     recorded_loops_have_forward_derivatives,
                     recorded_loops_have_second_derivatives,
                     loops_and_branches_in_one_another_have_second_derivatives,
                     a_program_with_a_second_derivative_is_saved_and_loaded,
                     recorded_loops_have_further_derivatives,
                     a_program_with_a_third_derivative_is_saved_and_loaded,
                     the_third_derivative_of_a_loop_in_a_branch_is_refused)
