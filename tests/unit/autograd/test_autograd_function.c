/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_function_apply (forward, setup, backward), and operators with a gradient
 * defined by the program (docs/semantics.md, Dispatcher 7). */

#include "support/autograd.h"

#include <libcore/function.h>

static int released;

static void count_release(void *context)
{
    (void)context;
    released++;
}

/* Returns no gradient for its first input; counts its runs in context. */
static core_status second_only(core_node *node, void *context,
                               core_tensor *const *grads, size_t ngrads,
                               core_tensor **gradients, size_t ngradients)
{
    core_tensor *first;
    core_status status = core_node_saved(node, 0, &first);

    ck_assert_uint_eq(ngrads, 1);
    ck_assert_uint_eq(ngradients, 2);
    ++*(int *)context;
    if (status != CORE_OK)
        return status;
    ck_assert_ptr_nonnull(grads[0]);
    status = core_mul(grads[0], first, &gradients[1]);
    core_tensor_release(first);
    return status;
}

/* ------------------------------------------------------------ functions -- */

/* y = a * b, and an integer output without a gradient. */
static core_status product_forward(void *context, core_tensor *const *inputs,
                                   size_t ninputs, core_tensor **outputs,
                                   size_t noutputs)
{
    (void)context;
    (void)ninputs;
    ck_assert(!core_grad_mode());
    if (noutputs > 1) {
        core_status status = core_sign(inputs[0], &outputs[1]);

        if (status != CORE_OK)
            return status;
    }
    return core_mul(inputs[0], inputs[1], &outputs[0]);
}

static core_status product_setup(core_function_context *function, void *context,
                                 core_tensor *const *inputs, size_t ninputs,
                                 core_tensor *const *outputs, size_t noutputs)
{
    (void)context;
    if (noutputs > 1) {
        core_status status =
            core_context_mark_non_differentiable(function, outputs[1]);

        if (status != CORE_OK)
            return status;
    }
    return core_context_save(function, inputs, ninputs);
}

static core_status product_backward(core_node *node, void *context,
                                    core_tensor *const *grads, size_t ngrads,
                                    core_tensor **gradients, size_t ngradients)
{
    core_status status = CORE_OK;

    (void)context;
    (void)ngrads;
    ck_assert_uint_eq(ngradients, 2);
    for (size_t i = 0; i < 2 && status == CORE_OK; i++) {
        core_tensor *other = NULL;

        if (!core_node_needs_gradient(node, i))
            continue;
        status = core_node_saved(node, 1 - i, &other);
        if (status == CORE_OK)
            status = core_mul(grads[0], other, &gradients[i]);
        core_tensor_release(other);
    }
    return status;
}

static const core_custom_function product = {.struct_size = sizeof product,
                                             .name = "product",
                                             .forward = product_forward,
                                             .setup = product_setup,
                                             .backward = product_backward,
                                             .release = count_release};

/* Like the first layer of a model that packs its gradients: it gets no defined
 * gradient but its backward must still run. */
START_TEST(backward_runs_even_if_all_gradients_are_undefined)
{
    int runs[2] = {0, 0};
    core_custom_function steps = product;
    core_tensor *a = leaf(VECTOR(2, 3, 4)), *w = leaf(VECTOR(2, 5, 6));
    core_tensor *v = leaf(VECTOR(2, 7, 8)), *y, *z;
    core_tensor *inputs[] = {a, w};

    steps.backward = second_only;
    steps.context = &runs[0];
    OK(core_function_apply(&steps, inputs, 2, &y, 1));
    inputs[0] = keep(y);
    inputs[1] = v;
    steps.context = &runs[1];
    OK(core_function_apply(&steps, inputs, 2, &z, 1));
    backward(sum(keep(z)));
    ck_assert_int_eq(runs[1], 1);
    ck_assert_int_eq(runs[0], 1);
    HOLDS(core_tensor_grad(v), 2, 15, 24);
    HOLDS(core_tensor_grad(w), 2, 0, 0); /* computed from zeros */
    ck_assert_ptr_null(core_tensor_grad(a));
}
END_TEST

START_TEST(function_applied_in_steps_has_gradients_of_any_order)
{
    core_tensor *inputs[2], *y, *first, *second;

    inputs[0] = leaf(VECTOR(2, 2, 3));
    inputs[1] = leaf(VECTOR(2, 5, 7));
    released = 0;
    OK(core_function_apply(&product, inputs, 2, &y, 1));
    HOLDS(keep(y), 2, 10, 21);
    y = sum(mul(y, y));
    OK(core_grad(&y, 1, NULL, inputs, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 2, 2 * 10 * 5, 2 * 21 * 7);
    first = sum(first);
    OK(core_grad(&first, 1, NULL, &inputs[1], 1, 0, &second));
    HOLDS(keep(second), 2, 4 * 2 * 5, 4 * 3 * 7);
    drop_all();
    ck_assert_int_eq(released, 1);
}
END_TEST

START_TEST(output_marked_non_differentiable_requires_no_grad)
{
    core_tensor *inputs[2], *outputs[2];

    inputs[0] = leaf(VECTOR(2, 2, -3));
    inputs[1] = leaf(VECTOR(2, 5, 7));
    OK(core_function_apply(&product, inputs, 2, outputs, 2));
    keep(outputs[0]);
    keep(outputs[1]);
    ck_assert(core_tensor_requires_grad(outputs[0]));
    ck_assert(!core_tensor_requires_grad(outputs[1]));
    HOLDS(outputs[1], 2, 1, -1);
    backward(sum(outputs[0]));
    HOLDS(core_tensor_grad(inputs[0]), 2, 5, 7);
}
END_TEST

START_TEST(function_records_nothing_if_no_input_requires_grad)
{
    core_tensor *inputs[2] = {VECTOR(1, 2), VECTOR(1, 3)}, *y;

    released = 0;
    OK(core_function_apply(&product, inputs, 2, &y, 1));
    ck_assert(!core_tensor_requires_grad(keep(y)));
    ck_assert_int_eq(released, 1);
}
END_TEST

/* In place: x *= 3. */
static core_status triple_forward(void *context, core_tensor *const *inputs,
                                  size_t ninputs, core_tensor **outputs,
                                  size_t noutputs)
{
    (void)context;
    (void)ninputs;
    (void)noutputs;
    core_tensor_retain(inputs[0]);
    outputs[0] = inputs[0];
    return core_mul_scalar_(inputs[0], core_float(3));
}

static core_status triple_setup(core_function_context *function, void *context,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor *const *outputs, size_t noutputs)
{
    (void)context;
    (void)ninputs;
    (void)outputs;
    (void)noutputs;
    return core_context_mark_dirty(function, inputs[0]);
}

static core_status triple_backward(core_node *node, void *context,
                                   core_tensor *const *grads, size_t ngrads,
                                   core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)ngrads;
    (void)ngradients;
    return core_mul_scalar(grads[0], core_float(3), &gradients[0]);
}

static const core_custom_function triple = {.struct_size = sizeof triple,
                                            .name = "triple",
                                            .forward = triple_forward,
                                            .setup = triple_setup,
                                            .backward = triple_backward};

START_TEST(dirty_input_gets_history_of_the_function)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *a = mul(x, x), *same;

    OK(core_function_apply(&triple, &a, 1, &same, 1));
    ck_assert_ptr_eq(keep(same), a);
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(a)), "triple");
    HOLDS(a, 2, 3, 12);
    backward(sum(a));
    HOLDS(core_tensor_grad(x), 2, 6, 12);
}
END_TEST

START_TEST(dirty_view_updates_its_base)
{
    core_tensor *x = leaf(VECTOR(3, 1, 2, 3)), *a = mul(x, x), *row, *same;

    row = CALL(select, a, 0, 1);
    OK(core_function_apply(&triple, &row, 1, &same, 1));
    keep(same);
    HOLDS(a, 3, 1, 12, 9);
    backward(sum(mul(a, a)));
    HOLDS(core_tensor_grad(x), 3, 4, 9 * 4 * 8, 4 * 27);
}
END_TEST

START_TEST(dirty_leaf_is_refused)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *y;

    FAILS(core_function_apply(&triple, &x, 1, &y, 1), CORE_ERROR_AUTOGRAD,
          "triple", "leaf");
    ck_assert_ptr_null(y);
}
END_TEST

static core_status mark_nothing(core_function_context *function, void *context,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor *const *outputs, size_t noutputs)
{
    (void)function;
    (void)context;
    (void)inputs;
    (void)ninputs;
    (void)outputs;
    (void)noutputs;
    return CORE_OK;
}

static core_status mark_other(core_function_context *function, void *context,
                              core_tensor *const *inputs, size_t ninputs,
                              core_tensor *const *outputs, size_t noutputs)
{
    (void)inputs;
    (void)ninputs;
    (void)outputs;
    (void)noutputs;
    return core_context_mark_dirty(function, context);
}

START_TEST(changed_input_must_be_marked_dirty_and_returned)
{
    core_tensor *x = leaf(VECTOR(1, 2)), *a = mul(x, x), *y;
    core_custom_function steps = triple;

    steps.setup = mark_nothing;
    FAILS(core_function_apply(&steps, &a, 1, &y, 1), CORE_ERROR_AUTOGRAD,
          "triple", "dirty");
    steps = product;
    steps.setup = mark_other;
    steps.context = a;
    FAILS(core_function_apply(&steps, (core_tensor *[]){a, x}, 2, &y, 1),
          CORE_ERROR_AUTOGRAD, "product", "not one of its outputs");
    steps.context = VECTOR(1, 1);
    FAILS(core_function_apply(&steps, (core_tensor *[]){a, x}, 2, &y, 1),
          CORE_ERROR_AUTOGRAD, "product", "not one of its inputs");
}
END_TEST

START_TEST(once_differentiable_function_refuses_second_derivative)
{
    core_tensor *inputs[2], *y, *first, *second, *x;
    core_custom_function steps = product;

    steps.flags = CORE_FUNCTION_ONCE_DIFFERENTIABLE;
    x = leaf(VECTOR(2, 2, 3));
    inputs[0] = mul(x, x);
    inputs[1] = x;
    OK(core_function_apply(&steps, inputs, 2, &y, 1));
    y = sum(keep(y));
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_RETAIN_GRAPH, &first));
    HOLDS(keep(first), 2, 12, 27);
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 2, 12, 27);
    first = sum(first);
    FAILS(core_grad(&first, 1, NULL, &x, 1, 0, &second), CORE_ERROR_AUTOGRAD,
          "product", "once");
    ck_assert_ptr_null(second);
}
END_TEST

static bool saw_null;

static core_status look_backward(core_node *node, void *context,
                                 core_tensor *const *grads, size_t ngrads,
                                 core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)ngradients;
    saw_null = false;
    for (size_t i = 0; i < ngrads; i++) {
        saw_null |= !grads[i];
        if (grads[i] && !gradients[0]) {
            core_tensor_retain(grads[i]);
            gradients[0] = grads[i];
        }
    }
    return CORE_OK;
}

static core_status twice_forward(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t noutputs)
{
    core_status status = CORE_OK;

    (void)context;
    (void)ninputs;
    for (size_t i = 0; i < noutputs && status == CORE_OK; i++)
        status = core_neg(inputs[0], &outputs[i]);
    return status;
}

START_TEST(undefined_gradients_are_zeros_unless_disabled)
{
    core_custom_function steps = {.struct_size = sizeof steps,
                                  .name = "twice",
                                  .forward = twice_forward,
                                  .backward = look_backward};
    core_tensor *x = leaf(VECTOR(1, 2)), *outputs[2];

    OK(core_function_apply(&steps, &x, 1, outputs, 2));
    keep(outputs[0]);
    backward(keep(outputs[1]));
    ck_assert(!saw_null);
    HOLDS(core_tensor_grad(x), 1, 0);
    steps.flags = CORE_FUNCTION_NO_ZEROS;
    OK(core_tensor_set_grad(x, NULL));
    OK(core_function_apply(&steps, &x, 1, outputs, 2));
    keep(outputs[0]);
    backward(keep(outputs[1]));
    ck_assert(saw_null);
    HOLDS(core_tensor_grad(x), 1, 1);
}
END_TEST

static core_status fail_half_way(core_node *node, void *context,
                                 core_tensor *const *grads, size_t ngrads,
                                 core_tensor **gradients, size_t ngradients)
{
    core_tensor *saved = NULL;
    core_status status;

    (void)ngrads;
    (void)ngradients;
    status = core_neg(grads[0], &gradients[0]); /* succeeds first */
    if (status == CORE_OK)
        status = core_node_saved(node, 0, &saved);
    core_tensor_release(saved);
    if (status != CORE_OK || !*(bool *)context)
        return status;
    return core_error_set(CORE_ERROR_REFUSED, "half way");
}

START_TEST(graph_stays_usable_after_backward_fails_halfway)
{
    core_custom_function steps = product;
    bool fails = true;
    core_tensor *inputs[2], *y;

    inputs[0] = leaf(VECTOR(1, 2));
    inputs[1] = VECTOR(1, 3);
    steps.backward = fail_half_way;
    steps.context = &fails;
    released = 0;
    OK(core_function_apply(&steps, inputs, 2, &y, 1));
    keep(y);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_REFUSED, "product",
          "half way");
    ck_assert_ptr_null(core_tensor_grad(inputs[0]));
    ck_assert_int_eq(released, 0);
    fails = false;
    backward(y);
    HOLDS(core_tensor_grad(inputs[0]), 1, -1);
    ck_assert_int_eq(released, 1);
}
END_TEST

static core_status wrong_shape(core_node *node, void *context,
                               core_tensor *const *grads, size_t ngrads,
                               core_tensor **gradients, size_t ngradients)
{
    (void)node;
    (void)context;
    (void)grads;
    (void)ngrads;
    (void)ngradients;
    return core_zeros((int64_t[]){7}, 1, CORE_F64, NULL, &gradients[1]);
}

START_TEST(gradient_of_wrong_shape_names_function_and_index)
{
    core_custom_function steps = product;
    core_tensor *inputs[2], *y;

    inputs[0] = leaf(VECTOR(2, 2, 3));
    inputs[1] = leaf(VECTOR(2, 5, 7));
    steps.backward = wrong_shape;
    OK(core_function_apply(&steps, inputs, 2, &y, 1));
    y = sum(keep(y));
    FAILS(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH), CORE_ERROR_SHAPE,
          "product", "1", "[7]", "[2]");
    ck_assert_ptr_null(core_tensor_grad(inputs[0]));
    ck_assert_ptr_null(core_tensor_grad(inputs[1]));
}
END_TEST

static core_status no_output(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t noutputs)
{
    (void)context;
    (void)inputs;
    (void)ninputs;
    (void)outputs;
    (void)noutputs;
    return CORE_OK;
}

START_TEST(invalid_function_steps_are_refused)
{
    core_custom_function steps = product;
    core_tensor *inputs[2] = {leaf(VECTOR(1, 2)), VECTOR(1, 3)}, *y;

    released = 0;
    steps.forward = no_output;
    FAILS(core_function_apply(&steps, inputs, 2, &y, 1),
          CORE_ERROR_INVALID_ARGUMENT, "product", "output 0");
    steps.forward = NULL;
    FAILS(core_function_apply(&steps, inputs, 2, &y, 1),
          CORE_ERROR_INVALID_ARGUMENT, "forward");
    steps = product;
    steps.flags = 64;
    FAILS(core_function_apply(&steps, inputs, 2, &y, 1),
          CORE_ERROR_INVALID_ARGUMENT, "product", "0x40");
    FAILS(core_function_apply(&product, NULL, 2, &y, 1),
          CORE_ERROR_INVALID_ARGUMENT, "inputs");
    FAILS(core_function_apply(NULL, inputs, 2, &y, 1),
          CORE_ERROR_INVALID_ARGUMENT, "steps");
    ck_assert_int_eq(released, 4);
    FAILS(core_context_save(NULL, inputs, 1), CORE_ERROR_INVALID_ARGUMENT,
          "context");
}
END_TEST

START_TEST(a_second_backward_names_the_function_once)
{
    core_tensor *inputs[2] = {leaf(VECTOR(2, 2, 3)), leaf(VECTOR(2, 4, 5))};
    core_tensor *y, *grad = NULL;
    const char *message, *name;

    inputs[0] = mul(inputs[0], inputs[1]);
    OK(core_function_apply(&product, inputs, 2, &y, 1));
    keep(y);
    OK(core_grad(&y, 1, (core_tensor *[]){inputs[0]}, inputs + 1, 1, 0, &grad));
    keep(grad);
    FAILS(
        core_grad(&y, 1, (core_tensor *[]){inputs[0]}, inputs + 1, 1, 0, &grad),
        CORE_ERROR_AUTOGRAD, "product", "already ran");
    message = core_error_message();
    name = strstr(message, "product");
    ck_assert_msg(!strstr(name + 1, "product"), "%s", message);
}
END_TEST

SUITE("autograd/autograd_function", a_second_backward_names_the_function_once,
      backward_runs_even_if_all_gradients_are_undefined,
      function_applied_in_steps_has_gradients_of_any_order,
      output_marked_non_differentiable_requires_no_grad,
      function_records_nothing_if_no_input_requires_grad,
      dirty_input_gets_history_of_the_function, dirty_view_updates_its_base,
      dirty_leaf_is_refused, changed_input_must_be_marked_dirty_and_returned,
      once_differentiable_function_refuses_second_derivative,
      undefined_gradients_are_zeros_unless_disabled,
      graph_stays_usable_after_backward_fails_halfway,
      gradient_of_wrong_shape_names_function_and_index,
      invalid_function_steps_are_refused)
