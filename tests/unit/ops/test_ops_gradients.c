/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What finite differences cannot show: test_ops_gradgrad.c checks every
 * formula against those. */

#include "support/autograd.h"

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

SUITE("ops/ops_gradients", backward_without_formula_names_the_operator,
      slopes_at_domain_edges_are_limits)
