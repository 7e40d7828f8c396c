/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Anomaly mode names the node that produced a NaN and the place in the forward
 * that created it (docs/semantics.md, Autograd graph 10). */

#include "support/autograd.h"

static void setup(void)
{
    ck_assert(!core_anomaly_mode_set(true));
}

static void teardown(void)
{
    core_anomaly_mode_set(false);
    core_anomaly_place_set(NULL);
}

/* The gradient of sqrt at 0, times 0, is NaN. */
static core_tensor *makes_nan(core_tensor *x)
{
    core_tensor *y;

    core_anomaly_place_set("layer 1");
    y = mul(x, x);
    core_anomaly_place_set("layer 2");
    y = CALL(sqrt, y);
    core_anomaly_place_set("layer 3");
    return sum(mul(y, VECTOR(1, 0)));
}

START_TEST(anomaly_mode_names_node_and_its_place)
{
    core_tensor *x = leaf(VECTOR(1, 0)), *y;

    setup();
    y = makes_nan(x);
    FAILS(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH), CORE_ERROR_AUTOGRAD,
          "sqrt backward", "gradient 0", "NaN", "layer 2");
    ck_assert_ptr_null(core_tensor_grad(x));
    teardown();
    OK(core_backward(&y, 1, NULL, 0)); /* not detected without the mode */
}
END_TEST

START_TEST(unrecorded_place_is_reported_as_unknown)
{
    core_tensor *x = leaf(VECTOR(1, 0)), *y = makes_nan(x);

    setup();
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "sqrt backward",
          "not known");
    teardown();
}
END_TEST

static core_tensor *__attribute__((noinline)) root_of_the_square(core_tensor *x)
{
    core_tensor *y = CALL(sqrt, mul(x, x));

    __asm__ volatile("" ::: "memory"); /* no jump to what is called */
    return y;
}

/* dladdr knows exported functions only. */
START_TEST(static_functions_of_the_stack_have_names)
{
    core_tensor *x = leaf(VECTOR(1, 0)), *y;

    setup();
    core_anomaly_place_set(NULL);
    y = sum(mul(root_of_the_square(x), VECTOR(1, 0)));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "sqrt backward",
          "root_of_the_square+0x", "static_functions_of_the_stack_have_names");
    ck_assert_ptr_null(strstr(core_error_message(), "?"));
    teardown();
}
END_TEST

START_TEST(unset_place_defaults_to_the_stack_trace)
{
    core_tensor *x = leaf(VECTOR(1, 0)), *y;

    setup();
    core_anomaly_place_set(NULL);
    y = sum(mul(CALL(sqrt, mul(x, x)), VECTOR(1, 0)));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_AUTOGRAD, "sqrt backward",
          "test_autograd_anomaly");
    teardown();
}
END_TEST

START_TEST(node_error_reports_its_place)
{
    core_tensor *x = leaf(VECTOR(2, 1, 2)), *a, *y;

    setup();
    core_anomaly_place_set("the square");
    a = mul(x, x);
    y = sum(mul(a, a));
    OK(core_add_(a, a, core_int(1)));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_VERSION, "mul.Tensor",
          "the square");
    teardown();
}
END_TEST

/* The first derivative of x^1.5, times 0, is finite at 0; the second is inf
 * times 0. */
START_TEST(node_created_in_backward_names_the_original_node)
{
    core_tensor *x = leaf(VECTOR(1, 0)), *y, *first, *second;

    setup();
    core_anomaly_place_set("forward");
    y = sum(mul(CALL(pow_scalar, x, core_float(1.5)), VECTOR(1, 0)));
    core_anomaly_place_set("first derivative");
    OK(core_grad(&y, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 1, 0);
    core_anomaly_place_set("second derivative");
    FAILS(core_grad(&first, 1, NULL, &x, 1, 0, &second), CORE_ERROR_AUTOGRAD,
          "NaN",
          "the backward of pow.Tensor_Scalar backward, at first derivative");
    ck_assert_ptr_null(second);
    teardown();
}
END_TEST

START_TEST(anomaly_mode_works_with_long_graphs)
{
    core_tensor *x = leaf(VECTOR(1, 1)), *y = x;

    setup();
    core_anomaly_place_set("a chain");
    for (int i = 0; i < 300; i++)
        y = mul(y, x);
    backward(y);
    HOLDS(core_tensor_grad(x), 1, 301);
    teardown();
}
END_TEST

SUITE("autograd/autograd_anomaly", static_functions_of_the_stack_have_names,
      anomaly_mode_names_node_and_its_place,
      unrecorded_place_is_reported_as_unknown,
      unset_place_defaults_to_the_stack_trace, node_error_reports_its_place,
      node_created_in_backward_names_the_original_node,
      anomaly_mode_works_with_long_graphs)
