/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/autograd.h"

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

/* Loses half of the derivative: one factor is detached. */
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

START_TEST(correct_derivative_passes_and_inputs_are_restored)
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

START_TEST(wrong_derivative_is_reported_with_its_elements)
{
    core_tensor *input = leaf(VECTOR(2, 1, 2));

    FAILS(core_gradcheck(half, NULL, &input, 1, 1e-6, 1e-6, 1e-6),
          CORE_ERROR_AUTOGRAD, "output 0, element 0", "input 0, element 0");
}
END_TEST

START_TEST(gradcheck_accepts_only_f64_leaves)
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

/* The context selects the function's mistake. */
enum { NOTHING, TOO_MANY, NO_TENSOR, NO_MESSAGE, INTEGERS };

static core_status careless(void *context, core_tensor *const *inputs,
                            size_t ninputs, core_tensor **outputs,
                            size_t *noutputs)
{
    int how = *(int *)context;

    (void)ninputs;
    *noutputs = how == NOTHING ? 0 : how == TOO_MANY ? *noutputs + 1 : 1;
    if (how == NOTHING || how == NO_TENSOR)
        return CORE_OK;
    if (how == NO_MESSAGE)
        return CORE_ERROR_CANCELLED;
    if (how == INTEGERS)
        return core_to(inputs[0], CORE_I64, NULL, false, false, -1,
                       &outputs[0]);
    return core_exp(inputs[0], &outputs[0]);
}

typedef core_status (*checker)(core_gradcheck_function, void *,
                               core_tensor *const *, size_t, double, double,
                               double);
static const checker checkers[] = {core_gradcheck, core_gradgradcheck};

START_TEST(gradcheck_refuses_functions_without_usable_outputs)
{
    static const char *const texts[] = {"no outputs", "9 outputs",
                                        "left output 0 NULL",
                                        "without a message", "floating"};
    core_tensor *input = leaf(VECTOR(2, 1, 2));

    for (int c = 0; c < 2; c++)
        for (int how = NOTHING; how < INTEGERS + (c == 0); how++)
            FAILS(checkers[c](careless, &how, &input, 1, 1e-6, 1e-6, 1e-6),
                  how == NO_MESSAGE ? CORE_ERROR_CANCELLED
                                    : CORE_ERROR_INVALID_ARGUMENT,
                  texts[how]);
}
END_TEST

/* Returns twice as many elements as in the previous call. */
static core_status growing(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t *noutputs)
{
    core_tensor *parts[64];
    int *calls = context, count = 1 << (*calls < 6 ? (*calls)++ : 6);

    (void)ninputs;
    for (int i = 0; i < count; i++)
        parts[i] = inputs[0];
    *noutputs = 1;
    return core_cat(parts, (size_t)count, 0, &outputs[0]);
}

START_TEST(gradcheck_refuses_outputs_that_change_size)
{
    core_tensor *input = leaf(VECTOR(2, 1, 2));
    int calls = 0;

    FAILS(core_gradcheck(growing, &calls, &input, 1, 1e-6, 1e-6, 1e-6),
          CORE_ERROR_INVALID_ARGUMENT, "elements in its first call",
          "later one");
    calls = 0; /* fails earlier, because the gradients do not fit */
    ck_assert_int_ne(
        core_gradgradcheck(growing, &calls, &input, 1, 1e-6, 1e-6, 1e-6),
        CORE_OK);
}
END_TEST

START_TEST(gradcheck_refuses_invalid_arguments)
{
    core_tensor *input = leaf(VECTOR(2, 1, 2)), *inputs[] = {input, NULL};

    for (int c = 0; c < 2; c++) {
        static const double steps[] = {0, -1e-6, NAN, INFINITY};
        static const double tolerances[] = {-1e-6, NAN, INFINITY};
        checker check = checkers[c];

        FAILS(check(NULL, NULL, &input, 1, 1e-6, 1e-6, 1e-6),
              CORE_ERROR_INVALID_ARGUMENT, "function");
        FAILS(check(cubes, NULL, NULL, 1, 1e-6, 1e-6, 1e-6),
              CORE_ERROR_INVALID_ARGUMENT, "inputs");
        FAILS(check(cubes, NULL, inputs, 2, 1e-6, 1e-6, 1e-6),
              CORE_ERROR_INVALID_ARGUMENT, "input 1 is NULL");
        FAILS(check(cubes, NULL, NULL, 0, 1e-6, 1e-6, 1e-6),
              CORE_ERROR_INVALID_ARGUMENT, "no input requires grad");
        for (int i = 0; i < 4; i++)
            FAILS(check(half, NULL, &input, 1, steps[i], 1e-6, 1e-6),
                  CORE_ERROR_INVALID_ARGUMENT, "eps");
        for (int i = 0; i < 3; i++) {
            FAILS(check(half, NULL, &input, 1, 1e-6, tolerances[i], 1e-6),
                  CORE_ERROR_INVALID_ARGUMENT, "atol");
            FAILS(check(half, NULL, &input, 1, 1e-6, 1e-6, tolerances[i]),
                  CORE_ERROR_INVALID_ARGUMENT, "rtol");
        }
    }
}
END_TEST

SUITE("autograd/autograd_gradcheck",
      correct_derivative_passes_and_inputs_are_restored,
      wrong_derivative_is_reported_with_its_elements,
      gradcheck_accepts_only_f64_leaves,
      gradcheck_refuses_functions_without_usable_outputs,
      gradcheck_refuses_outputs_that_change_size,
      gradcheck_refuses_invalid_arguments)
