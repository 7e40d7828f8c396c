/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Every gradient formula of ops.yaml against finite differences; to second
 * order where there is a second derivative. */

#include "support/ops_calls.h"

/* Returns all floating results that require grad. */
static core_status call(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    arguments *a = context;
    core_value results[4];

    (void)inputs;
    (void)ninputs;
    *noutputs = 0;
    CORE_TRY(core_op_call(a->op, a->values, a->count, results, 4));
    for (int i = 0; i < 4; i++) {
        if (results[i].tag == CORE_VALUE_TENSOR &&
            core_tensor_requires_grad(results[i].u.tensor))
            outputs[(*noutputs)++] = results[i].u.tensor;
        else if (results[i].tag == CORE_VALUE_TENSOR_LIST)
            for (uint32_t j = 0; j < results[i].count; j++)
                outputs[(*noutputs)++] =
                    core_tensor_retain(results[i].u.tensors[j]);
        if (results[i].tag != CORE_VALUE_TENSOR ||
            !core_tensor_requires_grad(results[i].u.tensor))
            core_value_release(&results[i]);
    }
    ck_assert_uint_gt(*noutputs, 0);
    return CORE_OK;
}

static void run(const check *checks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const check *c = &checks[i];
        char words[256];
        arguments a;
        core_status status;

        state = 12345;
        snprintf(words, sizeof words, "%s", c->words);
        parse(&a, c, words);
        status =
            core_gradcheck(call, &a, a.leaves, a.nleaves, 1e-6, 1e-5, 1e-5);
        ck_assert_msg(status == CORE_OK, "%s(%s): %s", c->op, c->words,
                      core_error_message());
        if (c->order < SECOND)
            continue;
        status =
            core_gradgradcheck(call, &a, a.leaves, a.nleaves, 1e-6, 1e-4, 1e-4);
        ck_assert_msg(status == CORE_OK, "second order of %s(%s): %s", c->op,
                      c->words, core_error_message());
    }
}

#define RUN(checks) run(checks, sizeof checks / sizeof *checks)

/* ----------------------------------------------------------------- cases -- */

START_TEST(unary_functions_pass_gradcheck)
{
    RUN(unary);
}
END_TEST

START_TEST(functions_of_several_tensors_pass_gradcheck)
{
    RUN(binary);
}
END_TEST

START_TEST(activation_functions_pass_gradcheck)
{
    RUN(activations);
}
END_TEST

START_TEST(reductions_and_sorts_pass_gradcheck)
{
    RUN(reductions);
}
END_TEST

START_TEST(views_and_shape_operators_pass_gradcheck)
{
    RUN(shapes);
}
END_TEST

START_TEST(indexing_and_masking_pass_gradcheck)
{
    RUN(indexing);
}
END_TEST

START_TEST(matrix_products_pass_gradcheck)
{
    RUN(matrices);
}
END_TEST

START_TEST(layers_and_losses_pass_gradcheck)
{
    RUN(networks);
}
END_TEST

START_TEST(backward_without_formula_names_the_operator)
{
    core_tensor *x = leaf(VECTOR(2, .5, 1.5));
    core_tensor *y = CALL(special_airy_ai, x);
    core_tensor *grad = NULL;
    core_tensor *loss = CALL(sum, y, CORE_DTYPE_NONE);

    FAILS(core_backward(&loss, 1, NULL, 0), CORE_ERROR_UNSUPPORTED,
          "special_airy_ai");
    /* core_grad must not take its input for an unused one either */
    loss = sum(CALL(special_airy_ai, x));
    FAILS(core_grad(&loss, 1, NULL, &x, 1, CORE_ALLOW_UNUSED, &grad),
          CORE_ERROR_UNSUPPORTED, "special_airy_ai");
    ck_assert_ptr_null(grad);
}
END_TEST

/* The slopes at infinity and at -0. */
START_TEST(slopes_at_domain_edges_are_limits)
{
    core_tensor *x = leaf(VECTOR(3, INFINITY, 1, 20));
    core_tensor *y = leaf(VECTOR(3, -0.0, 0.0, 1));
    core_tensor *loss = sum(CALL(digamma, x));
    double slopes[3];

    OK(core_backward(&loss, 1, NULL, 0));
    HOLDS(core_tensor_grad(x), 3, 0, 1.6449340668482264, 0.05127082293520312);
    loss = sum(CALL(logit, y, NULL));
    OK(core_backward(&loss, 1, NULL, 0));
    OK(core_tensor_read(core_tensor_grad(y), slopes, sizeof slopes));
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(slopes[i], INFINITY);
}
END_TEST

SUITE("ops gradients", unary_functions_pass_gradcheck,
      functions_of_several_tensors_pass_gradcheck,
      activation_functions_pass_gradcheck, reductions_and_sorts_pass_gradcheck,
      views_and_shape_operators_pass_gradcheck,
      indexing_and_masking_pass_gradcheck, matrix_products_pass_gradcheck,
      layers_and_losses_pass_gradcheck,
      backward_without_formula_names_the_operator,
      slopes_at_domain_edges_are_limits)
