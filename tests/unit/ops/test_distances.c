/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cdist by a product and from differences: the same distances and gradients. */

#include "support/autograd.h"

#include <libcore/expressions.h>
#include <libcore/memory.h>
#include <libcore/random.h>

#include <math.h>

enum { ANY, ALWAYS, NEVER };

/* Compares the distances of a mode to those from differences, and the gradients
 * of a weighted sum of them. */
static void same(core_sizes sizes_a, core_sizes sizes_b, int64_t mode)
{
    core_scope scope = core_scope_begin();
    core_tensor *a = core_x_randn(sizes_a, NULL, CORE_F64);
    core_tensor *b = core_x_randn(sizes_b, NULL, CORE_F64), *d[2], *weights;
    core_tensor *leaves[2] = {a, b}, *grads[2][2] = {{NULL}};

    CORE_CHECK(core_tensor_set_requires_grad(a, true));
    CORE_CHECK(core_tensor_set_requires_grad(b, true));
    d[0] = core_x_cdist(a, b, 2, NEVER);
    d[1] = core_x_cdist(a, b, 2, mode);
    weights = core_x_randn_like(d[0]);
    for (int i = 0; i < 2; i++) {
        core_tensor *total = core_x_sum(core_x_mul(d[i], weights));

        CORE_CHECK(core_grad(&total, 1, NULL, leaves, 2, 0, grads[i]));
    }
    ck_assert(core_x_item_int(core_x_all(core_x_isclose(d[0], d[1]))));
    for (int k = 0; k < 2; k++)
        ck_assert(core_x_item_int(
            core_x_all(core_x_isclose(grads[0][k], grads[1][k], 1e-6, 1e-9))));
    OK(core_scope_end(scope));
    for (int k = 0; k < 4; k++)
        core_tensor_release(grads[k / 2][k % 2]);
}

START_TEST(a_product_has_the_distances_of_differences)
{
    core_seed(5);
    same(CORE_SIZES(3, 4), CORE_SIZES(5, 4), ALWAYS);
    same(CORE_SIZES(26, 4), CORE_SIZES(5, 4), ANY);
    same(CORE_SIZES(3, 4), CORE_SIZES(40, 4), ANY);
    same(CORE_SIZES(2, 26, 3), CORE_SIZES(2, 4, 3), ANY);
    same(CORE_SIZES(2, 1, 3, 3), CORE_SIZES(5, 4, 3), ALWAYS);
    same(CORE_SIZES(30, 3), CORE_SIZES(2, 4, 3), ANY);
}
END_TEST

START_TEST(equal_rows_have_no_distance_and_no_gradient)
{
    core_scope scope = core_scope_begin();
    core_tensor *a = core_x_ones(CORE_SIZES(2, 3), CORE_F64), *d, *total;
    core_tensor *grad = NULL;

    CORE_CHECK(core_tensor_set_requires_grad(a, true));
    d = core_x_cdist(a, core_x_ones(CORE_SIZES(1, 3), CORE_F64), 2, ALWAYS);
    HOLDS(d, 2, 0, 0);
    total = core_x_sum(d);
    CORE_CHECK(core_grad(&total, 1, NULL, &a, 1, 0, &grad));
    HOLDS(grad, 6, 0, 0, 0, 0, 0, 0);
    core_tensor_release(grad);
    d = core_x_cdist(core_x_full(CORE_SIZES(1, 2), NAN),
                     core_x_ones(CORE_SIZES(1, 2)), 2, ALWAYS);
    ck_assert(core_x_item_int(core_x_isnan(d)));
    OK(core_scope_end(scope));
}
END_TEST

/* In 16 bits, the squares of rows near 300 are infinite or have no digit of the
 * distances; the differences of such rows are exact. */
START_TEST(rows_of_16_bits_are_not_squared_in_16_bits)
{
    static const core_dtype dtypes[] = {CORE_F16, CORE_BF16};
    core_scope scope = core_scope_begin();
    core_tensor *a = core_x_reshape(core_x_arange(90), CORE_SIZES(30, 3));
    core_tensor *b = core_x_part(a, "::9");

    for (int i = 0; i < 2; i++) {
        core_tensor *x =
            core_x_to(core_x_mul(core_x_add(a, 100), 4), dtypes[i]);
        core_tensor *y =
            core_x_to(core_x_mul(core_x_add(b, 100), 4), dtypes[i]);
        core_tensor *d = core_x_cdist(x, y);

        ck_assert_int_eq(core_tensor_dtype(d), dtypes[i]);
        ck_assert(core_x_item_int(
            core_x_all(core_x_isclose(d, core_x_cdist(x, y, 2, NEVER), 0.02))));
    }
    OK(core_scope_end(scope));
}
END_TEST

START_TEST(dtypes_promote_and_integers_are_refused)
{
    core_scope scope = core_scope_begin();
    core_tensor *a = core_x_randn(CORE_SIZES(30, 3));
    core_tensor *b = core_x_randn(CORE_SIZES(30, 3), NULL, CORE_F64);
    core_tensor *d = core_x_cdist(a, b);

    OK(core_scope_status());
    ck_assert_int_eq(core_tensor_dtype(d), CORE_F64);
    ck_assert(core_x_item_int(
        core_x_all(core_x_isclose(d, core_x_cdist(a, b, 2, NEVER)))));
    OK(core_scope_status());
    a = core_x_reshape(core_x_arange(90), CORE_SIZES(30, 3));
    core_x_cdist(a, a);
    FAILS(core_scope_end(scope), CORE_ERROR_DTYPE, "i64");
}
END_TEST

START_TEST(sizes_may_be_0)
{
    core_scope scope = core_scope_begin();
    core_tensor *none = core_x_ones(CORE_SIZES(30, 0));
    core_tensor *d = core_x_cdist(none, core_x_ones(CORE_SIZES(2, 0)));

    ck_assert_int_eq(core_x_size(d, 0), 30);
    ck_assert_double_eq(core_x_item_float(core_x_sum(d)), 0);
    d = core_x_cdist(core_x_ones(CORE_SIZES(0, 2)),
                     core_x_ones(CORE_SIZES(30, 2)));
    ck_assert_int_eq(core_x_size(d, 0), 0);
    ck_assert_int_eq(core_x_size(d, 1), 30);
    OK(core_scope_end(scope));
}
END_TEST

/* The differences of 200 and 300 rows of 500 numbers have 120 MB. */
START_TEST(many_rows_need_no_differences)
{
    const uint64_t enough = 16 << 20;
    core_scope scope = core_scope_begin();
    core_memory_stats stats = {.struct_size = sizeof stats};
    core_tensor *a = core_x_ones(CORE_SIZES(200, 500)), *total, *grad = NULL;
    core_device *cpu = core_tensor_device(a);

    CORE_CHECK(core_tensor_set_requires_grad(a, true));
    CORE_CHECK(core_memory_reset_peaks(cpu));
    total = core_x_sum(core_x_cdist(a, core_x_zeros(CORE_SIZES(300, 500))));
    CORE_CHECK(core_grad(&total, 1, NULL, &a, 1, 0, &grad));
    CORE_CHECK(core_memory_get_stats(cpu, &stats));
    core_tensor_release(grad);
    OK(core_scope_end(scope));
    ck_assert_uint_lt(stats.allocated_bytes[0].peak, enough);
}
END_TEST

START_TEST(the_operator_itself_has_modes)
{
    core_scope scope = core_scope_begin();

    core_x_cdist_forward(core_x_ones(CORE_SIZES(1, 2)),
                         core_x_ones(CORE_SIZES(1, 2)), 2, 3);
    FAILS(core_scope_end(scope), CORE_ERROR_INVALID_ARGUMENT,
          "compute_mode is 3; it must be 0, 1 or 2");
}
END_TEST

/* |a - b| <= atol + rtol |b|: b, the second, counts. */
START_TEST(closeness_has_two_tolerances)
{
    core_scope scope = core_scope_begin();
    core_tensor *a = core_x_full(CORE_SIZES(2), 100, CORE_F64);
    core_tensor *b = core_x_full(CORE_SIZES(2), 101, CORE_F64);
    core_tensor *none = core_x_full(CORE_SIZES(2), NAN, CORE_F64);
    core_tensor *far = core_x_full(CORE_SIZES(2), INFINITY, CORE_F64);

    ck_assert(!core_x_allclose(a, b));
    ck_assert(core_x_allclose(a, b, 0, 1));
    ck_assert(!core_x_allclose(a, b, 0, .99));
    ck_assert(core_x_allclose(a, b, 1 / 100.5, 0));
    ck_assert(!core_x_allclose(b, a, 1 / 100.5, 0));
    ck_assert(core_x_allclose(b, a, 1 / 100.5, .1));
    ck_assert(core_x_allclose(a, core_x_add(a, 1e-4)));
    ck_assert(!core_x_allclose(a, core_x_add(a, 1e-2)));
    ck_assert(core_x_allclose(core_x_zeros_like(a), core_x_full_like(a, 1e-8)));
    ck_assert(
        !core_x_allclose(core_x_zeros_like(a), core_x_full_like(a, 1.1e-8)));
    ck_assert(!core_x_allclose(none, none));
    ck_assert(core_x_allclose(none, none, 0, 0, true));
    ck_assert(!core_x_allclose(none, a, 1e9, 1e9, true));
    ck_assert(core_x_allclose(far, far, 0, 0));
    ck_assert(!core_x_allclose(far, a, 1e9, 1e9));
    OK(core_scope_end(scope));
}
END_TEST

SUITE("ops/distances", closeness_has_two_tolerances,
      a_product_has_the_distances_of_differences,
      equal_rows_have_no_distance_and_no_gradient,
      rows_of_16_bits_are_not_squared_in_16_bits,
      dtypes_promote_and_integers_are_refused, sizes_may_be_0,
      many_rows_need_no_differences, the_operator_itself_has_modes)
