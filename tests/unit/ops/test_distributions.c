/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that draw from distributions: ranges, means and variances,
 * gradients, refusals. */

#include "support/ops.h"

#include <libcore/device.h>
#include <libcore/random.h>

#include <math.h>

/* With this seed one of the uniform numbers, which include 0, is 0. */
enum { SEED_OF_ZERO = 42591, DRAWN = 1024 };

START_TEST(exponential_numbers_are_above_zero)
{
    const int64_t n = DRAWN;
    float drawn[DRAWN];
    core_tensor *x = CALL(zeros, &n, 1, CORE_F32, NULL);
    int zeros = 0;

    core_seed(SEED_OF_ZERO);
    OK(core_uniform_(x, 0, 1, NULL));
    OK(core_tensor_read(x, drawn, sizeof drawn));
    for (int i = 0; i < DRAWN; i++)
        zeros += drawn[i] == 0;
    ck_assert_int_eq(zeros, 1);
    core_seed(SEED_OF_ZERO);
    OK(core_exponential_(x, 1, NULL));
    OK(core_tensor_read(x, drawn, sizeof drawn));
    for (int i = 0; i < DRAWN; i++)
        ck_assert_float_gt(drawn[i], 0);
}
END_TEST

SUITE("distributions", exponential_numbers_are_above_zero)
