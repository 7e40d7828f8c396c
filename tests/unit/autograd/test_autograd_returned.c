/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Functions that return an input unchanged, or a view of one. */

#include "support/autograd.h"

#include "base/memory.h"

#include <libcore/function.h>

/* Output i is input i modulo ninputs; with a context, row 1 of it. */
static core_status give_back(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t noutputs)
{
    for (size_t i = 0; i < noutputs; i++) {
        if (context)
            CORE_TRY(core_select(inputs[i % ninputs], 0, 1, &outputs[i]));
        else
            outputs[i] = core_tensor_retain(inputs[i % ninputs]);
    }
    return CORE_OK;
}

static core_status save_first(core_function_context *function, void *context,
                              core_tensor *const *inputs, size_t ninputs,
                              core_tensor *const *outputs, size_t noutputs)
{
    (void)context;
    (void)ninputs;
    (void)noutputs;
    return core_context_save(function, (core_tensor *[]){inputs[0], outputs[0]},
                             2);
}

/* Gradient of the first input: the sum over outputs i of 2 (i + 1) grads[i]. */
static core_status weighted(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    core_tensor *all = NULL;

    (void)context;
    (void)ngradients;
    if (core_tensor_ndim(grads[0]) == 0) { /* row 1 of a vector of two */
        core_tensor *x;

        CORE_TRY(core_node_saved(node, 0, &x));
        CORE_TRY(core_zeros_like(x, CORE_DTYPE_NONE, NULL, -1, &all));
        core_tensor_release(x);
        keep(all);
        return core_select_scatter(all,
                                   CALL(mul_scalar, grads[0], core_float(2)), 0,
                                   1, &gradients[0]);
    }
    for (size_t i = 0; i < ngrads; i++) {
        core_tensor *part =
            CALL(mul_scalar, grads[i], core_float(2 * (double)(i + 1)));

        all = all ? add(all, part) : part;
    }
    gradients[0] = core_tensor_retain(all);
    return CORE_OK;
}

static const core_custom_function back = {.struct_size = sizeof back,
                                          .name = "back",
                                          .forward = give_back,
                                          .setup = save_first,
                                          .backward = weighted};

START_TEST(returned_input_has_gradient_of_the_function)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *x = mul(a, a), *y, *grad, *twice;

    for (int leaf = 0; leaf < 2; leaf++) {
        core_tensor *input = leaf ? a : x;

        OK(core_function_apply(&back, &input, 1, &y, 1));
        ck_assert_ptr_ne(keep(y), input);
        HOLDS(y, 2, 1, leaf ? 2 : 4);
        ck_assert_str_eq(core_node_name(core_tensor_grad_fn(y)), "back");
        ck_assert_str_ne(core_node_name(core_tensor_grad_fn(x)), "back");
        y = sum(mul(y, y));
        OK(core_grad(&y, 1, NULL, &input, 1, CORE_CREATE_GRAPH, &grad));
        HOLDS(keep(grad), 2, 4, leaf ? 8 : 16);
        grad = sum(grad);
        OK(core_grad(&grad, 1, NULL, &input, 1, 0, &twice));
        HOLDS(keep(twice), 2, 8, 8);
    }
    ck_assert(core_tensor_is_leaf(a));
}
END_TEST

START_TEST(input_may_be_returned_twice)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *y[2];

    OK(core_function_apply(&back, &a, 1, y, 2));
    ck_assert_ptr_ne(keep(y[0]), keep(y[1]));
    backward(sum(add(y[0], CALL(mul_scalar, y[1], core_float(10)))));
    HOLDS(core_tensor_grad(a), 2, 42, 42);
}
END_TEST

START_TEST(returned_plain_input_stays_plain)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *p = VECTOR(2, 5, 6), *y[2], *z;
    core_tensor *inputs[] = {a, p};
    bool before;

    OK(core_function_apply(&back, inputs, 2, y, 2));
    keep(y[0]), keep(y[1]);
    ck_assert(core_tensor_requires_grad(y[1]));
    ck_assert(!core_tensor_requires_grad(p));
    z = sum(y[1]);
    OK(core_backward(&z, 1, NULL, CORE_RETAIN_GRAPH));
    HOLDS(core_tensor_grad(a), 2, 4, 4);
    before = core_grad_mode_set(false);
    OK(core_function_apply(&back, inputs, 1, &z, 1));
    core_grad_mode_set(before);
    ck_assert(!core_tensor_requires_grad(keep(z)));
    HOLDS(z, 2, 1, 2);
    /* Making the input a leaf later does not change the recorded output. */
    OK(core_tensor_set_requires_grad(p, true));
    backward(sum(y[1]));
    HOLDS(core_tensor_grad(a), 2, 8, 8);
    ck_assert_ptr_null(core_tensor_grad(p));
}
END_TEST

START_TEST(returned_view_of_input_has_gradient_of_the_function)
{
    core_custom_function steps = back;
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *x = mul(a, a), *y;

    steps.context = "row";
    OK(core_function_apply(&steps, &x, 1, &y, 1));
    ck_assert_str_eq(core_node_name(core_tensor_grad_fn(keep(y))), "back");
    backward(mul(y, y));
    HOLDS(core_tensor_grad(a), 2, 0, 2 * 2 * 4 * 4);
}
END_TEST

START_TEST(returned_input_refuses_in_place_change)
{
    for (int row = 0; row < 2; row++) {
        core_custom_function steps = back;
        core_tensor *a = leaf(VECTOR(2, 1, 2)), *x = mul(a, a), *y, *z;
        bool before;

        steps.context = row ? "row" : NULL;
        OK(core_function_apply(&steps, &x, 1, &y, 1));
        FAILS(core_mul_scalar_(keep(y), core_float(2)), CORE_ERROR_AUTOGRAD,
              "mul_", "function");
        z = row ? CALL(unsqueeze, y, 0) : CALL(select, y, 0, 1);
        FAILS(core_mul_scalar_(z, core_float(2)), CORE_ERROR_AUTOGRAD, "mul_",
              "function");
        HOLDS(x, 2, 1, 4);
        z = CALL(mul_scalar, y, core_float(1));
        OK(core_mul_scalar_(x, core_float(2)));
        FAILS(core_mul_scalar(y, core_float(2), &z), CORE_ERROR_AUTOGRAD,
              "changed in place", "function");
        ck_assert_ptr_null(z);
        before = core_grad_mode_set(false);
        OK(core_mul_scalar_(y, core_float(2)));
        core_grad_mode_set(before);
    }
}
END_TEST

static core_status mark_first(core_function_context *function, void *context,
                              core_tensor *const *inputs, size_t ninputs,
                              core_tensor *const *outputs, size_t noutputs)
{
    (void)context;
    (void)ninputs;
    (void)outputs;
    (void)noutputs;
    return core_context_mark_non_differentiable(function, inputs[0]);
}

START_TEST(returned_input_marked_non_differentiable_is_detached)
{
    core_custom_function steps = back;
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *b = leaf(VECTOR(2, 3, 4)), *y[2];
    core_tensor *inputs[] = {a, b};

    steps.setup = mark_first;
    OK(core_function_apply(&steps, inputs, 2, y, 2));
    ck_assert(!core_tensor_requires_grad(keep(y[0])));
    ck_assert(core_tensor_requires_grad(a));
    backward(sum(keep(y[1])));
    HOLDS(core_tensor_grad(a), 2, 4, 4);
}
END_TEST

START_TEST(returned_inputs_leak_no_memory)
{
    int64_t live;

    for (int i = 0; i < 3; i++) {
        core_custom_function steps = back;
        core_tensor *a = leaf(VECTOR(2, 3, 4)), *x = mul(a, a), *y[2], *z;

        OK(core_function_apply(&steps, &x, 1, y, 2));
        keep(y[0]), keep(y[1]);
        OK(core_function_apply(&steps, &a, 1, &z, 1));
        keep(z);
        OK(core_mul_(x, z));
        steps.context = "row";
        OK(core_function_apply(&steps, &x, 1, &z, 1));
        backward(keep(z));
        drop_all();
        if (i == 1)
            live = core__alloc_live();
        if (i == 2)
            ck_assert_int_eq(core__alloc_live(), live);
    }
}
END_TEST

/* Changes the first input in place. */
static core_status change_first(void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t noutputs)
{
    (void)context;
    OK(core_mul_scalar_(inputs[0], core_float(3)));
    return give_back(NULL, inputs, ninputs, outputs, noutputs);
}

START_TEST(changed_input_must_be_marked_dirty)
{
    core_custom_function steps = back;
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *x = mul(a, a), *y;
    bool before;

    steps.forward = change_first;
    FAILS(core_function_apply(&steps, &x, 1, &y, 1), CORE_ERROR_AUTOGRAD,
          "back", "output 0", "input 0", "dirty");
    ck_assert_ptr_null(y);
    before = core_grad_mode_set(false);
    OK(core_function_apply(&steps, &a, 1, &y, 1));
    core_grad_mode_set(before);
    ck_assert_ptr_eq(keep(y), a);
    HOLDS(a, 2, 3, 6);
}
END_TEST

SUITE("autograd/autograd_returned", returned_input_has_gradient_of_the_function,
      input_may_be_returned_twice, returned_plain_input_stays_plain,
      returned_view_of_input_has_gradient_of_the_function,
      returned_input_refuses_in_place_change,
      returned_input_marked_non_differentiable_is_detached,
      returned_inputs_leak_no_memory, changed_input_must_be_marked_dirty)
