/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Training through compiled functions, on cpu and sim: models, sets of outputs
 * and inputs, graphs that are kept, states of the thread. */

#include "support/training.h"

/* Makes two equal worlds and compares calls of the function, which are all
 * compiled. */
static void compare_training(world (*make)(void), core_tensor_function function)
{
    world eager = make(), traced = make();
    core_compiled *compiled = compile_fully(function, &traced);

    for (int i = 0; i < 4; i++)
        same_training(function, &eager, compiled, &traced);
    EXPLAINS(compiled, "\"eager_calls\": 0");
    core_compiled_release(compiled);
}

/* ---------------------------------------------------------------- models -- */

START_TEST(a_perceptron_gets_the_gradients_of_eager_calls)
{
    compare_training(mlp, mlp_loss);
}
END_TEST

static world cnn(void)
{
    world w = {.device = program_device, .ninputs = 1, .nhidden = 6};

    w.inputs[0] = NUMBERS(&w, 1, 2, 2, 8, 8);
    w.hidden[0] = leaf(NUMBERS(&w, 200, 4, 2, 3, 3));
    w.hidden[1] = leaf(NUMBERS(&w, 300, 4));
    w.hidden[2] = leaf(NUMBERS(&w, 400, 4));
    w.hidden[3] = NUMBERS(&w, 500, 4);
    w.hidden[4] = CALL(exp, NUMBERS(&w, 600, 4));
    w.hidden[5] = leaf(NUMBERS(&w, 700, 3, 64));
    return w;
}

/* Batch norm writes running statistics. */
COMPILED_FUNCTION(cnn_scores)
{
    const int64_t one[] = {1, 1}, two[] = {2, 2};
    core_tensor *h =
        T(conv2d, x[0], w->hidden[0], NULL, one, 2, one, 2, one, 2, 1);

    h = T(batch_norm, h, w->hidden[1], w->hidden[2], w->hidden[3], w->hidden[4],
          true, .125, 1e-5);
    h = T(relu, h);
    h = T(max_pool2d, h, two, 2, two, 2, (int64_t[]){0, 0}, 2, one, 2, false);
    h = T(reshape, h, (int64_t[]){2, 64}, 2);
    h = T(linear, h, w->hidden[5], NULL);
    out[0] = own(T(log_softmax, h, 1, CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(a_convolutional_network_gets_the_gradients_of_eager_calls)
{
    compare_training(cnn, cnn_scores);
}
END_TEST

static world attention(void)
{
    world w = {.device = program_device, .ninputs = 1, .nhidden = 3};

    w.inputs[0] = leaf(NUMBERS(&w, 1, 2, 6, 8));
    w.hidden[0] = leaf(NUMBERS(&w, 200, 24, 8));
    w.hidden[1] = leaf(NUMBERS(&w, 600, 8, 8));
    w.hidden[2] = leaf(NUMBERS(&w, 700, 8));
    return w;
}

static core_tensor *heads(core_tensor *x, int64_t first)
{
    core_tensor *part =
        T(slice, x, 2, &(int64_t){first}, &(int64_t){first + 8}, 1);

    return T(transpose, T(reshape, part, (int64_t[]){2, 6, 2, 4}, 4), 1, 2);
}

/* A block with a residual connection; dropout in attention and after it. */
COMPILED_FUNCTION(attention_block)
{
    core_tensor *n =
        T(layer_norm, x[0], (int64_t[]){8}, 1, w->hidden[2], NULL, 1e-5);
    core_tensor *qkv = T(linear, n, w->hidden[0], NULL), *a;

    a = T(scaled_dot_product_attention, heads(qkv, 0), heads(qkv, 8),
          heads(qkv, 16), NULL, .25, true, NULL, false);
    a = T(reshape, T(transpose, a, 1, 2), (int64_t[]){2, 6, 8}, 3);
    a = T(dropout, T(linear, a, w->hidden[1], NULL), .25, true);
    out[0] = own(T(add, x[0], a, core_int(1)));
    *noutputs = 1;
    return finish();
}

START_TEST(attention_with_dropout_gets_the_gradients_of_eager_calls)
{
    compare_training(attention, attention_block);
}
END_TEST

/* --------------------------------------------------------------- outputs -- */

COMPILED_FUNCTION(three_outputs)
{
    core_tensor *zero = T(mul_scalar, x[0], core_int(0));

    out[0] = own(T(mul, x[0], x[1]));
    /* Its gradient is 0 / 0 unless the output is not used. */
    out[1] = own(T(log, zero));
    out[2] = own(T(tanh, T(add, x[0], out[0], core_int(1))));
    *noutputs = 3;
    return finish();
}

START_TEST(every_set_of_outputs_can_be_used)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(three_outputs, &traced);

    for (unsigned used = 1; used < 8; used++)
        same_training_of(three_outputs, &eager, compiled, &traced, used);
    EXPLAINS(compiled, "\"backward_calls\": 6");
    EXPLAINS(compiled, "\"backward_calls_of_the_function\": 0");
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(five_outputs)
{
    for (int i = 0; i < 5; i++)
        out[i] = own(T(mul, T(dropout, x[0], .25, true), x[1]));
    *noutputs = 5;
    return finish();
}

/* The function is called again, with the same random numbers. */
START_TEST(a_set_of_outputs_that_was_not_recorded_can_be_used)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(five_outputs, &traced);

    same_training_of(five_outputs, &eager, compiled, &traced, 0x1f);
    same_training_of(five_outputs, &eager, compiled, &traced, 8);
    EXPLAINS(compiled, "\"backward_calls_of_the_function\": 0");
    same_training_of(five_outputs, &eager, compiled, &traced, 5);
    EXPLAINS(compiled, "\"backward_calls_of_the_function\": 1");
    EXPLAINS(compiled, "\"eager_calls\": 0");
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(mixed_outputs)
{
    core_tensor *y = T(mul, x[0], x[1]);

    out[0] = own(T(detach, y));
    out[1] = own(y);
    out[2] = own(T(gt_scalar, y, core_int(0)));
    out[3] = own(x[1]);
    out[4] = own(y);
    *noutputs = 5;
    return finish();
}

START_TEST(outputs_that_need_no_grad_are_those_of_the_function)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(mixed_outputs, &traced);

    same_training_of(mixed_outputs, &eager, compiled, &traced, 2);
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(views_of_a_result)
{
    core_tensor *y = T(mul, x[0], x[1]), **rows;
    size_t count;

    OK(core_unbind(y, 0, &rows, &count));
    for (size_t i = 0; i < count; i++)
        out[i] = rows[i];
    free(rows);
    out[3] = own(T(t, y));
    out[4] = own(T(t, x[0]));
    out[5] = own(T(alias, y));
    *noutputs = 6;
    return finish();
}

START_TEST(outputs_may_be_views)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(views_of_a_result, &traced);

    for (unsigned used = 1; used < 64; used += 7)
        same_training_of(views_of_a_result, &eager, compiled, &traced, used);
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(one_view)
{
    out[0] = own(T(t, T(mul, x[0], x[1])));
    out[1] = own(T(exp, x[0]));
    *noutputs = 2;
    return finish();
}

/* Results are changed in place like those of the function: what the backward
 * does not need may be, what it needs is noticed. */
START_TEST(outputs_can_be_changed_in_place)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(one_view, &traced);
    core_tensor *a[2], *b[2];

    call_world(one_view, &eager, NULL, 2, a);
    call_world(one_view, &traced, compiled, 2, b);
    OK(core_mul_scalar_(a[0], core_int(3)));
    OK(core_mul_scalar_(b[0], core_int(3)));
    backward_of(a, 1, 1, 0);
    backward_of(b, 1, 1, 0);
    same_gradients("input", eager.inputs, traced.inputs, 2);
    release_tensors(a, 2);
    release_tensors(b, 2);
    call_world(one_view, &eager, NULL, 2, a);
    call_world(one_view, &traced, compiled, 2, b);
    OK(core_mul_scalar_(a[1], core_int(3)));
    OK(core_mul_scalar_(b[1], core_int(3)));
    FAILS(core_backward(&a[1], 1, &a[1], 0), CORE_ERROR_VERSION, "version");
    FAILS(core_backward(&b[1], 1, &b[1], 0), CORE_ERROR_VERSION, "version");
    release_tensors(a, 2);
    release_tensors(b, 2);
    core_compiled_release(compiled);
}
END_TEST

static world transposed(void)
{
    world w = {.device = program_device, .ninputs = 2};
    core_tensor *x = CALL(exp, NUMBERS(&w, 60, 8, 8, 1));

    w.inputs[0] = leaf(CALL(exp, NUMBERS(&w, 1, 1, 8)));
    w.inputs[1] = leaf(CALL(detach, CALL(transpose, x, 0, 1)));
    return w;
}

/* A part of a product that is not row-major. */
COMPILED_FUNCTION(part_of_transposed)
{
    core_tensor *y = T(mul, x[0], x[1]);

    out[0] = own(T(slice, y, 2, &(int64_t){1}, &(int64_t){7}, 1));
    *noutputs = 1;
    return finish();
}

/* The gradient of the product is row-major, with zeros around that of the part;
 * in another layout it would be summed in another order. */
START_TEST(a_gradient_of_a_part_has_its_layout)
{
    compare_training(transposed, part_of_transposed);
}
END_TEST

/* A copy of a view of an input: the backward uses it, after the input changes. */
COMPILED_FUNCTION(squared_copies)
{
    core_tensor *one = T(mul_scalar, T(t, x[0]), core_int(1));
    core_tensor *two = T(neg, T(neg, T(t, x[1])));

    out[0] = own(T(mul, T(mul, one, one), T(mul, two, two)));
    *noutputs = 1;
    return finish();
}

START_TEST(copies_of_views_are_kept_for_the_backward)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(squared_copies, &traced);
    core_tensor *a, *b;

    for (int call = 0; call < 3; call++) {
        bool before;

        call_world(squared_copies, &eager, NULL, 1, &a);
        call_world(squared_copies, &traced, compiled, 1, &b);
        before = core_grad_mode_set(false);
        for (int i = 0; i < 2; i++) {
            OK(core_mul_scalar_(eager.inputs[i], core_int(3)));
            OK(core_mul_scalar_(traced.inputs[i], core_int(3)));
        }
        core_grad_mode_set(before);
        backward_of(&a, 1, 1, 0);
        backward_of(&b, 1, 1, 0);
        same_gradients("input", eager.inputs, traced.inputs, 2);
        core_tensor_release(a);
        core_tensor_release(b);
    }
    core_compiled_release(compiled);
}
END_TEST

/* ---------------------------------------------------------------- inputs -- */

START_TEST(inputs_may_require_grad_or_not_from_call_to_call)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(products, &traced);

    for (int call = 0; call < 6; call++) {
        for (int i = 0; i < 2; i++) {
            bool requires_grad = call % 3 != i;

            OK(core_tensor_set_requires_grad(eager.inputs[i], requires_grad));
            OK(core_tensor_set_requires_grad(traced.inputs[i], requires_grad));
        }
        same_training(products, &eager, compiled, &traced);
    }
    core_compiled_release(compiled);
}
END_TEST

START_TEST(a_weight_may_require_grad_or_not_from_call_to_call)
{
    world eager = input_and_weight(), traced = input_and_weight();
    core_compiled *compiled = compile_fully(scaled, &traced);

    for (int call = 0; call < 4; call++) {
        OK(core_tensor_set_requires_grad(eager.hidden[0], call % 2));
        OK(core_tensor_set_requires_grad(traced.hidden[0], call % 2));
        same_training(scaled, &eager, compiled, &traced);
    }
    core_compiled_release(compiled);
}
END_TEST

static world linear_layer(void)
{
    world w = {.device = program_device, .ninputs = 1, .nhidden = 1};

    w.inputs[0] = leaf(NUMBERS(&w, 1, 3, 4));
    w.hidden[0] = NUMBERS(&w, 200, 5, 4);
    return w;
}

/* linear makes a view of the weight, below autograd. */
COMPILED_FUNCTION(linear_scores)
{
    out[0] = own(T(linear, x[0], w->hidden[0], NULL));
    *noutputs = 1;
    return finish();
}

START_TEST(a_weight_of_a_view_may_require_grad_after_a_call)
{
    world eager = linear_layer(), traced = linear_layer();
    core_compiled *compiled = compile_fully(linear_scores, &traced);

    for (int call = 0; call < 3; call++) {
        OK(core_tensor_set_requires_grad(eager.hidden[0], call));
        OK(core_tensor_set_requires_grad(traced.hidden[0], call));
        same_training(linear_scores, &eager, compiled, &traced);
    }
    core_compiled_release(compiled);
}
END_TEST

/* What the function knows may have a history. */
START_TEST(gradients_reach_the_history_of_a_hidden_input)
{
    world eager = input_and_weight(), traced = input_and_weight();
    core_tensor *roots[2] = {eager.hidden[0], traced.hidden[0]};
    core_compiled *compiled = compile_fully(scaled, &traced);

    for (int call = 0; call < 2; call++) {
        eager.hidden[0] = CALL(exp, roots[0]);
        traced.hidden[0] = CALL(exp, roots[1]);
        same_training(scaled, &eager, compiled, &traced);
        same_gradients("weight", &roots[0], &roots[1], 1);
    }
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(weight_twice)
{
    core_tensor *y = T(mul, x[0], w->hidden[0]);

    out[0] = own(T(mul, y, w->hidden[1]));
    *noutputs = 1;
    return finish();
}

/* One of two hidden inputs is computed from the other. */
START_TEST(hidden_inputs_may_depend_on_each_other)
{
    world eager = input_and_weight(), traced = input_and_weight();
    core_compiled *compiled = compile_fully(weight_twice, &traced);

    eager.hidden[1] = CALL(exp, eager.hidden[0]);
    traced.hidden[1] = CALL(exp, traced.hidden[0]);
    same_training(weight_twice, &eager, compiled, &traced);
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(doubles_its_input)
{
    *noutputs = 1;
    CORE_TRY(core_mul_scalar_(x[0], core_float(2)));
    return core_sin(x[0], &out[0]);
}

/* Of a result of an operator, which eager calls change. */
START_TEST(a_change_of_an_input_that_requires_grad_is_a_break)
{
    world w = two_leaves();
    core_compiled *compiled =
        compile_with(doubles_its_input, &w, (core_compile_options){.mode = 0});
    core_tensor *x, *out;

    OK(core_exp(w.inputs[0], &x));
    OK(core_compiled_call(compiled, &x, 1, &out, 1));
    EXPLAINS(compiled, "an input that does of a function that is recorded");
    core_tensor_release(out);
    core_tensor_release(x);
    core_compiled_release(compiled);
}
END_TEST

/* An input that is needed, and one that is not. */
START_TEST(inputs_that_are_changed_in_place_are_noticed)
{
    world w = two_leaves();
    core_compiled *compiled = compile_fully(products, &w);
    core_tensor *y;

    call_world(products, &w, compiled, 1, &y);
    core_grad_mode_set(false);
    OK(core_add_scalar_(w.inputs[0], core_int(1), core_int(1)));
    core_grad_mode_set(true);
    FAILS(core_backward(&y, 1, &y, 0), CORE_ERROR_VERSION, "compiled function",
          "changed in place");
    core_tensor_release(y);
    core_compiled_release(compiled);
}
END_TEST

/* tanh could be computed again from the inputs, but eager calls save it. */
COMPILED_FUNCTION(sum_of_tanh)
{
    core_tensor *y = T(tanh, T(add, x[0], x[1], core_int(1)));

    out[0] = own(T(sum, y, CORE_DTYPE_NONE));
    *noutputs = 1;
    return finish();
}

START_TEST(inputs_that_no_gradient_needs_may_be_changed_in_place)
{
    world w = two_leaves();
    core_compiled *compiled = compile_fully(sum_of_tanh, &w);
    core_tensor *y;

    call_world(sum_of_tanh, &w, compiled, 1, &y);
    core_grad_mode_set(false);
    OK(core_add_scalar_(w.inputs[0], core_int(1), core_int(1)));
    core_grad_mode_set(true);
    backward_of(&y, 1, 1, 0);
    core_tensor_release(y);
    core_compiled_release(compiled);
}
END_TEST

COMPILED_FUNCTION(two_sums)
{
    out[0] = own(T(add, x[0], x[1], core_int(1)));
    out[1] = own(T(add, x[0], x[1], core_int(2)));
    *noutputs = 2;
    return finish();
}

/* The tensors given to the first backward, and to later ones, are the same or
 * not, aligned or not. */
START_TEST(gradients_may_be_other_tensors_than_in_the_first_backward)
{
    world eager = two_leaves(), traced = two_leaves();
    core_compiled *compiled = compile_fully(two_sums, &traced);
    core_tensor *given[3], *long_row = NUMBERS(&eager, 70, 13), *flat;

    given[0] = NUMBERS(&eager, 50, 3, 4);
    given[1] = NUMBERS(&eager, 60, 3, 4);
    OK(core_narrow(long_row, 0, 1, 12, &flat));
    OK(core_reshape(keep(flat), (int64_t[]){3, 4}, 2, &given[2]));
    keep(given[2]);
    for (int i = 0; i < 3; i++) {
        core_tensor *grads[] = {given[0], given[i]};
        core_tensor *out[2], *a[2], *b[2];

        call_world(two_sums, &eager, NULL, 2, out);
        OK(core_grad(out, 2, grads, eager.inputs, 2, 0, a));
        release_tensors(out, 2);
        call_world(two_sums, &traced, compiled, 2, out);
        OK(core_grad(out, 2, grads, traced.inputs, 2, 0, b));
        release_tensors(out, 2);
        for (int k = 0; k < 2; k++)
            same_bits("gradient", k, a[k], b[k]);
        release_tensors(a, 2);
        release_tensors(b, 2);
    }
    core_compiled_release(compiled);
}
END_TEST

SUITE_ON_CPU_AND_SIM("compile/training",
                     gradients_may_be_other_tensors_than_in_the_first_backward,
                     a_perceptron_gets_the_gradients_of_eager_calls,
                     a_convolutional_network_gets_the_gradients_of_eager_calls,
                     attention_with_dropout_gets_the_gradients_of_eager_calls,
                     every_set_of_outputs_can_be_used,
                     a_set_of_outputs_that_was_not_recorded_can_be_used,
                     outputs_that_need_no_grad_are_those_of_the_function,
                     outputs_may_be_views, outputs_can_be_changed_in_place,
                     a_gradient_of_a_part_has_its_layout,
                     copies_of_views_are_kept_for_the_backward,
                     inputs_may_require_grad_or_not_from_call_to_call,
                     a_weight_may_require_grad_or_not_from_call_to_call,
                     a_weight_of_a_view_may_require_grad_after_a_call,
                     gradients_reach_the_history_of_a_hidden_input,
                     hidden_inputs_may_depend_on_each_other,
                     inputs_that_are_changed_in_place_are_noticed,
                     a_change_of_an_input_that_requires_grad_is_a_break,
                     inputs_that_no_gradient_needs_may_be_changed_in_place)
