/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/autograd.h"

#include <libcore/functional.h>

/* f(a, b) = a^2 b, elementwise; and sum(a). */
static core_status two_outputs(void *context, core_tensor *const *inputs,
                               size_t ninputs, core_tensor **outputs,
                               size_t *noutputs)
{
    core_tensor *square = NULL;
    core_status status = core_mul(inputs[0], inputs[0], &square);

    (void)context;
    (void)ninputs;
    ck_assert(core_grad_mode());
    *noutputs = 2;
    if (status == CORE_OK)
        status = core_mul(square, inputs[1], &outputs[0]);
    if (status == CORE_OK)
        status = core_sum(inputs[0], CORE_DTYPE_NONE, &outputs[1]);
    core_tensor_release(square);
    return status;
}

/* sum(a^2 b) */
static core_status number(void *context, core_tensor *const *inputs,
                          size_t ninputs, core_tensor **outputs,
                          size_t *noutputs)
{
    core_tensor *both[2] = {NULL, NULL};
    size_t two = 2;
    core_status status = two_outputs(context, inputs, ninputs, both, &two);

    *noutputs = 1;
    if (status == CORE_OK)
        status = core_sum(both[0], CORE_DTYPE_NONE, &outputs[0]);
    core_tensor_release(both[0]);
    core_tensor_release(both[1]);
    return status;
}

static core_tensor *inputs[2];

static core_derivative derivative_of(core_tensor_function function,
                                     uint32_t flags)
{
    return (core_derivative){.struct_size = sizeof(core_derivative),
                             .flags = flags,
                             .function = function,
                             .inputs = inputs,
                             .ninputs = 2};
}

static void make_inputs(void)
{
    inputs[0] = VECTOR(2, 2, 3);
    inputs[1] = VECTOR(2, 5, 7);
}

START_TEST(vjp_is_vectors_times_jacobian)
{
    core_derivative d;
    core_tensor *vectors[2], *outputs[2], *gradients[2];
    size_t count = 2;

    make_inputs();
    d = derivative_of(two_outputs, 0);
    vectors[0] = VECTOR(2, 1, 10);
    vectors[1] = SCALAR(100);
    OK(core_vjp(&d, vectors, outputs, &count, gradients));
    ck_assert_uint_eq(count, 2);
    HOLDS(keep(outputs[0]), 2, 20, 63);
    HOLDS(keep(outputs[1]), 1, 5);
    HOLDS(keep(gradients[0]), 2, 20 + 100, 420 + 100);
    HOLDS(keep(gradients[1]), 2, 4, 90);
    ck_assert(!core_tensor_requires_grad(gradients[0]));
    ck_assert(!core_tensor_requires_grad(outputs[0]));
    ck_assert(!core_tensor_requires_grad(inputs[0]));
}
END_TEST

START_TEST(jvp_is_jacobian_times_vectors)
{
    core_derivative d;
    core_tensor *vectors[2], *tangents[2];
    size_t count = 2;

    make_inputs();
    d = derivative_of(two_outputs, 0);
    vectors[0] = VECTOR(2, 1, 10);
    vectors[1] = VECTOR(2, 100, 1000);
    OK(core_jvp(&d, vectors, tangents, &count));
    HOLDS(keep(tangents[0]), 2, 20 + 400, 420 + 9000);
    HOLDS(keep(tangents[1]), 1, 11);
    vectors[0] = NULL;
    count = 2;
    OK(core_jvp(&d, vectors, tangents, &count));
    HOLDS(keep(tangents[0]), 2, 400, 9000);
    HOLDS(keep(tangents[1]), 1, 0);
}
END_TEST

START_TEST(jacobian_returns_a_matrix_per_output_and_input)
{
    core_derivative d;
    core_tensor *jacobians[4];
    size_t count = 2;

    make_inputs();
    d = derivative_of(two_outputs, 0);
    OK(core_jacobian(&d, jacobians, &count));
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(core_tensor_ndim(jacobians[0]), 2);
    HOLDS(keep(jacobians[0]), 4, 20, 0, 0, 42);
    HOLDS(keep(jacobians[1]), 4, 4, 0, 0, 9);
    ck_assert_uint_eq(core_tensor_ndim(jacobians[2]), 1);
    HOLDS(keep(jacobians[2]), 2, 1, 1);
    HOLDS(keep(jacobians[3]), 2, 0, 0);
}
END_TEST

START_TEST(hessian_and_hvp_agree)
{
    core_derivative d;
    core_tensor *hessians[4], *vectors[2], *products[2];

    make_inputs();
    d = derivative_of(number, 0);
    OK(core_hessian(&d, hessians));
    HOLDS(keep(hessians[0]), 4, 10, 0, 0, 14);
    HOLDS(keep(hessians[1]), 4, 4, 0, 0, 6);
    HOLDS(keep(hessians[2]), 4, 4, 0, 0, 6);
    HOLDS(keep(hessians[3]), 4, 0, 0, 0, 0);
    vectors[0] = VECTOR(2, 1, 2);
    vectors[1] = VECTOR(2, 10, 20);
    OK(core_hvp(&d, vectors, products));
    HOLDS(keep(products[0]), 2, 10 + 40, 28 + 120);
    HOLDS(keep(products[1]), 2, 4, 12);
}
END_TEST

START_TEST(derivatives_are_differentiable_with_create_graph)
{
    core_derivative d;
    core_tensor *hessians[4], *third;

    make_inputs();
    leaf(inputs[0]);
    d = derivative_of(number, CORE_CREATE_GRAPH);
    OK(core_hessian(&d, hessians));
    for (int i = 0; i < 4; i++)
        keep(hessians[i]);
    third = sum(hessians[1]); /* 2a summed over the diagonal */
    backward(third);
    HOLDS(core_tensor_grad(inputs[0]), 2, 2, 2);
}
END_TEST

static core_status with_index(void *context, core_tensor *const *given,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_index_select(given[0], 0, given[1], &outputs[0]);
}

START_TEST(non_floating_inputs_are_passed_through)
{
    core_derivative d;
    core_tensor *jacobians[2];
    int64_t picks[3] = {1, 1, 0};
    size_t count = 1;

    make_inputs();
    OK(core_tensor_from_data(picks, CORE_I64, (int64_t[]){3}, 1, NULL,
                             &inputs[1]));
    keep(inputs[1]);
    d = derivative_of(with_index, 0);
    OK(core_jacobian(&d, jacobians, &count));
    HOLDS(keep(jacobians[0]), 6, 0, 1, 0, 1, 1, 0);
    ck_assert_ptr_null(jacobians[1]);
}
END_TEST

static core_status failing(void *context, core_tensor *const *given,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    if (core_neg(given[0], &outputs[0]) != CORE_OK)
        return core_error_code();
    return core_error_set(CORE_ERROR_REFUSED, "no");
}

static core_status vector(void *context, core_tensor *const *given,
                          size_t ninputs, core_tensor **outputs,
                          size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    return core_mul(given[0], given[1], &outputs[0]);
}

START_TEST(invalid_derivative_calls_are_refused)
{
    core_derivative d;
    core_tensor *vectors[2], *out[4];
    bool mode;
    size_t count = 2;

    make_inputs();
    d = derivative_of(two_outputs, 0);
    vectors[0] = VECTOR(3, 1, 2, 3);
    vectors[1] = NULL;
    FAILS(core_jvp(&d, vectors, out, &count), CORE_ERROR_SHAPE, "core_jvp",
          "[3]", "[2]");
    FAILS(core_vjp(&d, vectors, NULL, NULL, out), CORE_ERROR_SHAPE, "core_vjp",
          "[3]", "[2]");
    FAILS(core_vjp(&d, NULL, NULL, NULL, out), CORE_ERROR_AUTOGRAD, "[2]");
    ck_assert_ptr_null(out[0]);
    d = derivative_of(vector, 0);
    FAILS(core_hessian(&d, out), CORE_ERROR_SHAPE, "core_hessian", "[2]");
    d = derivative_of(two_outputs, 0);
    FAILS(core_hessian(&d, out), CORE_ERROR_SHAPE, "core_hessian", "2 outputs");
    d = derivative_of(failing, 0);
    FAILS(core_hessian(&d, out), CORE_ERROR_REFUSED, "core_hessian", "no");
    d.flags = 1u << 9;
    FAILS(core_hessian(&d, out), CORE_ERROR_INVALID_ARGUMENT, "flags");
    d = derivative_of(NULL, 0);
    FAILS(core_hessian(&d, out), CORE_ERROR_INVALID_ARGUMENT, "function");
    FAILS(core_hessian(NULL, out), CORE_ERROR_INVALID_ARGUMENT, "of");
    FAILS(core_hvp(&d, NULL, out), CORE_ERROR_INVALID_ARGUMENT, "vectors");
    FAILS(core_jacobian(&d, NULL, &count), CORE_ERROR_INVALID_ARGUMENT,
          "out_jacobians");
    mode = core_grad_mode_set(false);
    d = derivative_of(number, 0);
    OK(core_vjp(&d, NULL, NULL, NULL, out)); /* works without grad mode */
    ck_assert(!core_grad_mode());
    core_grad_mode_set(mode);
    HOLDS(keep(out[0]), 2, 20, 42);
    keep(out[1]);
}
END_TEST

/* Produces two outputs even if *noutputs is smaller. */
static core_status loud(void *context, core_tensor *const *given,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    size_t capacity = *noutputs;

    (void)context;
    (void)ninputs;
    ck_assert_uint_gt(capacity, 0);
    *noutputs = capacity + 1;
    return core_mul(given[0], given[1], &outputs[0]);
}

START_TEST(more_outputs_than_allowed_are_refused)
{
    core_derivative d;
    core_tensor *outputs[3], *out[4], *vectors[2] = {NULL, NULL};
    core_tensor *untouched = (core_tensor *)&d;
    size_t count = 1;

    make_inputs();
    d = derivative_of(loud, 0);
    FAILS(core_jacobian(&d, out, &count), CORE_ERROR_INVALID_ARGUMENT,
          "core_jacobian", "2 outputs", "holds 1");
    ck_assert_uint_eq(count, 0);
    /* *noutputs is 0 now: no output may be written. */
    FAILS(core_jacobian(&d, out, &count), CORE_ERROR_INVALID_ARGUMENT,
          "core_jacobian", "noutputs");
    FAILS(core_jvp(&d, vectors, out, &count), CORE_ERROR_INVALID_ARGUMENT,
          "core_jvp", "noutputs");
    FAILS(core_vjp(&d, NULL, outputs, &count, out), CORE_ERROR_INVALID_ARGUMENT,
          "core_vjp", "noutputs");
    outputs[0] = untouched;
    FAILS(core_vjp(&d, NULL, outputs, NULL, out), CORE_ERROR_INVALID_ARGUMENT,
          "core_vjp", "noutputs");
    ck_assert_ptr_eq(outputs[0], untouched);
    ck_assert_ptr_null(out[0]);
}
END_TEST

SUITE("autograd/autograd_functional", vjp_is_vectors_times_jacobian,
      jvp_is_jacobian_times_vectors,
      jacobian_returns_a_matrix_per_output_and_input, hessian_and_hvp_agree,
      derivatives_are_differentiable_with_create_graph,
      non_floating_inputs_are_passed_through,
      invalid_derivative_calls_are_refused,
      more_outputs_than_allowed_are_refused)
