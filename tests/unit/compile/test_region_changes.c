/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Changes in place of what a branch or loop has read: a backward notices those
 * of tensors that the chosen function's graph saved, compiled or not. */

#include "support/training.h"

#include <libcore/control_flow.h>

/* What the functions do: the branch or loop, what is changed after it. */
static struct {
    core_tensor_function then_function, else_function;
    bool loop, keeps_order, captured, gradient;
} kind;

/* x requires grad; the predicate and a factor do not. */
static world branch_world(void)
{
    world w = {.device = program_device, .ninputs = 2, .nhidden = 1};
    uint8_t yes = 1;

    w.inputs[0] = leaf(NUMBERS(&w, 1, 3, 4));
    OK(core_tensor_from_data(&yes, CORE_BOOL, NULL, 0, program_device,
                             &w.inputs[1]));
    keep(w.inputs[1]);
    w.hidden[0] = NUMBERS(&w, 100, 3, 4);
    return w;
}

COMPILED_FUNCTION(square)
{
    *noutputs = 1;
    return core_mul(x[0], x[0], &out[0]);
}

COMPILED_FUNCTION(negate)
{
    *noutputs = 1;
    return core_neg(x[0], &out[0]);
}

COMPILED_FUNCTION(exponential)
{
    *noutputs = 1;
    return core_exp(x[0], &out[0]);
}

COMPILED_FUNCTION(by_factor)
{
    *noutputs = 1;
    return core_mul(x[0], w->hidden[0], &out[0]);
}

/* Of a view of its input. */
COMPILED_FUNCTION(square_of_view)
{
    size_t before = ntemporaries;
    core_tensor *turned = T(t, x[0]), *back = T(t, T(mul, turned, turned));

    out[0] = own(T(add, back, x[0], core_int(1)));
    while (ntemporaries > before)
        core_tensor_release(temporaries[--ntemporaries]);
    *noutputs = 1;
    return CORE_OK;
}

COMPILED_FUNCTION(square_of_product)
{
    core_tensor *product = NULL;
    core_status status = core_mul(x[0], w->hidden[0], &product);

    *noutputs = 1;
    if (status == CORE_OK)
        status = core_mul(product, product, &out[0]);
    core_tensor_release(product);
    return status;
}

COMPILED_FUNCTION(is_small)
{
    *noutputs = 1;
    return core_lt_scalar(x[1], core_int(2), &out[0]);
}

COMPILED_FUNCTION(turn)
{
    *noutputs = 2;
    CORE_TRY(core_add_scalar(x[1], core_int(1), core_int(1), &out[1]));
    return kind.then_function(w, x, 1, out, &(size_t){1});
}

/* Until finish(). */
static core_tensor *hold(core_tensor *tensor)
{
    temporaries[ntemporaries++] = tensor;
    return tensor;
}

static core_tensor *call_branch(world *w, core_tensor *y, core_tensor *yes)
{
    core_tensor *state[2] = {y, NULL}, *end[2];

    if (!kind.loop) {
        OK(core_cond(yes, kind.then_function, kind.else_function, w, &y, 1, end,
                     1));
        return hold(end[0]);
    }
    state[1] = T(to_copy, yes, CORE_I64, NULL, false, -1);
    OK(core_while(is_small, turn, w, state, 2, end));
    hold(end[1]);
    return hold(end[0]);
}

/* Changes what the branch has read, and returns a sum or its gradient. */
COMPILED_FUNCTION(changes)
{
    core_tensor *y = T(mul_scalar, x[0], core_float(.5)), *result, *changed;
    core_status status = CORE_OK;

    if (!kind.keeps_order)
        y = T(t, y);
    result = call_branch(w, y, x[1]);
    changed = kind.captured ? w->hidden[0] : T(detach, y);
    OK(core_mul_scalar_(changed, core_float(2)));
    *noutputs = 1;
    out[0] = own(T(sum, result, CORE_DTYPE_NONE));
    if (kind.gradient) {
        core_tensor *total = out[0];

        out[0] = NULL;
        status = core_grad(&total, 1, NULL, x, 1, 0, &out[0]);
        core_tensor_release(total);
    }
    (void)finish();
    return status;
}

/* Changes what the functions read by themselves after the first derivative, and
 * returns the second one. */
COMPILED_FUNCTION(changes_between_derivatives)
{
    core_tensor *result = call_branch(w, x[0], x[1]), *first = NULL;
    core_tensor *total = T(sum, result, CORE_DTYPE_NONE);
    core_status status =
        core_grad(&total, 1, NULL, x, 1, CORE_CREATE_GRAPH, &first);

    *noutputs = 1;
    if (status == CORE_OK) {
        hold(first);
        total = T(sum, T(mul, first, first), CORE_DTYPE_NONE);
        OK(core_mul_scalar_(w->hidden[0], core_float(2)));
        status = core_grad(&total, 1, NULL, x, 1, 0, &out[0]);
    }
    (void)finish();
    return status;
}

typedef struct outcome {
    core_status call, backward;
    core_tensor *value, *gradient;
} outcome;

static outcome run(world *w, core_compiled *compiled)
{
    outcome of = {.backward = CORE_OK};
    size_t one = 1;

    OK(core_tensor_set_grad(w->inputs[0], NULL));
    of.call = compiled ? core_compiled_call(compiled, w->inputs, w->ninputs,
                                            &of.value, 1)
                       : changes(w, w->inputs, w->ninputs, &of.value, &one);
    if (of.call == CORE_OK && !kind.gradient)
        of.backward = core_backward(&of.value, 1, NULL, 0);
    of.gradient = core_tensor_retain(core_tensor_grad(w->inputs[0]));
    return of;
}

static void release(outcome *of)
{
    core_tensor_release(of->value);
    core_tensor_release(of->gradient);
}

/* Calls both with either predicate; compiled: whether there is no break.
 * Returns how many calls or backwards have failed. */
static int compare_changes(bool compiled_expected)
{
    world eager = branch_world(), traced = branch_world();
    core_compiled *compiled =
        compile_with(changes, &traced, (core_compile_options){.mode = 0});
    int failed = 0;

    for (int i = 0; i < 4; i++) {
        outcome a, b;

        OK(core_fill_(eager.inputs[1], core_int(i % 2)));
        OK(core_fill_(traced.inputs[1], core_int(i % 2)));
        a = run(&eager, NULL);
        b = run(&traced, compiled);
        ck_assert_int_eq(a.call, b.call);
        ck_assert_int_eq(a.backward, b.backward);
        ck_assert_int_eq(!a.gradient, !b.gradient);
        if (a.value)
            same_bits("value", 0, a.value, b.value);
        if (a.gradient)
            same_bits("gradient", 0, a.gradient, b.gradient);
        failed += a.call == CORE_ERROR_VERSION;
        failed += a.backward == CORE_ERROR_VERSION;
        release(&a);
        release(&b);
    }
    EXPLAINS(compiled, compiled_expected ? "\"break_calls\": 0"
                                         : "is changed in place later");
    core_compiled_release(compiled);
    return failed;
}

static void choose(core_tensor_function then_function,
                   core_tensor_function else_function)
{
    kind.then_function = then_function;
    kind.else_function = else_function;
    kind.loop = kind.captured = kind.gradient = false;
    kind.keeps_order = true;
}

/* Only the predicate shows whether the backward fails. */
START_TEST(a_change_of_what_a_branch_saved_is_noticed)
{
    choose(square, negate);
    ck_assert_int_eq(compare_changes(false), 2);
    choose(negate, square_of_view);
    ck_assert_int_eq(compare_changes(false), 2);
    choose(square, negate);
    kind.gradient = true;
    ck_assert_int_eq(compare_changes(false), 2);
}
END_TEST

START_TEST(a_change_of_what_a_branch_reads_by_itself_is_noticed)
{
    choose(negate, by_factor);
    kind.captured = true;
    ck_assert_int_eq(compare_changes(false), 2);
    kind.gradient = true;
    ck_assert_int_eq(compare_changes(false), 2);
}
END_TEST

/* Nothing is changed that a gradient needs: exp saves its result. */
START_TEST(a_change_of_what_no_branch_saved_is_compiled)
{
    choose(negate, exponential);
    ck_assert_int_eq(compare_changes(true), 0);
    choose(negate, by_factor);
    ck_assert_int_eq(compare_changes(true), 0);
    choose(square, negate);
    kind.captured = true;
    ck_assert_int_eq(compare_changes(true), 0);
}
END_TEST

/* The first turn of a loop reads its input, or a copy in row-major order. */
START_TEST(a_change_of_what_a_loop_saved_is_noticed)
{
    choose(square, NULL);
    kind.loop = true;
    ck_assert_int_eq(compare_changes(false), 4);
    kind.keeps_order = false;
    ck_assert_int_eq(compare_changes(true), 0);
    choose(negate, NULL);
    kind.loop = true;
    ck_assert_int_eq(compare_changes(true), 0);
    choose(by_factor, NULL);
    kind.loop = kind.captured = true;
    ck_assert_int_eq(compare_changes(false), 4);
}
END_TEST

START_TEST(a_change_between_two_derivatives_is_noticed)
{
    world eager = branch_world(), traced = branch_world();
    core_tensor *y = NULL;
    core_program *program;
    size_t one = 1;

    choose(square_of_product, square_of_product);
    for (int i = 0; i < 2; i++) {
        kind.loop = i;
        FAILS(changes_between_derivatives(&eager, eager.inputs, 2, &y, &one),
              CORE_ERROR_VERSION, "changed");
        FAILS(core_program_trace(changes_between_derivatives, &traced,
                                 traced.inputs, 2, 1, &program),
              CORE_ERROR_UNSUPPORTED, "is changed in place later");
    }
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/region_changes",
                     a_change_of_what_a_branch_saved_is_noticed,
                     a_change_of_what_a_branch_reads_by_itself_is_noticed,
                     a_change_of_what_no_branch_saved_is_compiled,
                     a_change_of_what_a_loop_saved_is_noticed,
                     a_change_between_two_derivatives_is_noticed)
