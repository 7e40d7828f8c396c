/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd.h"

static core_status cubes(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    core_tensor *square = NULL;
    core_status status = core_mul(inputs[0], inputs[0], &square);

    (void)context;
    ck_assert_uint_eq(ninputs, 2);
    if (status == CORE_OK)
        status = core_mul(square, inputs[1], &outputs[0]);
    if (status == CORE_OK)
        status = core_exp(inputs[1], &outputs[1]);
    core_tensor_release(square);
    *noutputs = 2;
    return status;
}

/* Forgets half of the derivative: one factor is detached. */
static core_status half(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    core_tensor *cut = NULL;
    core_status status = core_detach(inputs[0], &cut);

    (void)context;
    (void)ninputs;
    if (status == CORE_OK)
        status = core_mul(cut, inputs[0], &outputs[0]);
    core_tensor_release(cut);
    *noutputs = 1;
    return status;
}

START_TEST(right_derivatives_pass_and_inputs_are_restored)
{
    core_tensor *inputs[2];

    inputs[0] = leaf(VECTOR(3, .5, -1.5, 2));
    inputs[1] = leaf(MATRIX(2, 1, .25, -.75));
    OK(core_gradcheck(cubes, NULL, inputs, 2, 1e-6, 1e-6, 1e-6));
    OK(core_gradgradcheck(cubes, NULL, inputs, 2, 1e-6, 1e-6, 1e-6));
    HOLDS(inputs[0], 3, .5, -1.5, 2);
    ck_assert_ptr_null(core_tensor_grad(inputs[0]));
}
END_TEST

START_TEST(a_wrong_derivative_is_found_and_named)
{
    core_tensor *input = leaf(VECTOR(2, 1, 2));

    FAILS(core_gradcheck(half, NULL, &input, 1, 1e-6, 1e-6, 1e-6),
          CORE_ERROR_AUTOGRAD, "output 0, element 0", "input 0, element 0");
}
END_TEST

START_TEST(only_f64_leaves_can_be_checked)
{
    core_tensor *narrow =
        leaf(typed(CORE_F32, 1, (int64_t[]){1}, (double[]){1}));
    core_tensor *plain = VECTOR(1, 1);

    FAILS(core_gradcheck(half, NULL, &narrow, 1, 1e-6, 1e-6, 1e-6),
          CORE_ERROR_INVALID_ARGUMENT, "f64");
    FAILS(core_gradcheck(half, NULL, &plain, 1, 1e-6, 1e-6, 1e-6),
          CORE_ERROR_INVALID_ARGUMENT, "no input requires grad");
}
END_TEST

SUITE("gradcheck", right_derivatives_pass_and_inputs_are_restored,
      a_wrong_derivative_is_found_and_named, only_f64_leaves_can_be_checked)
