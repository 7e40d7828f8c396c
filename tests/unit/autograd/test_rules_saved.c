/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Rules of saved values, views and in-place changes that no other file tests.
 * The rest:
 *
 * versions
 *     test_autograd_inplace.c: backward_refuses_saved_tensor_changed_in_place,
 *     change_through_view_or_detached_tensor_is_detected
 * in place
 *     test_autograd_inplace.c: leaf_that_requires_grad_refuses_in_place_change,
 *     in_place_change_gives_result_a_new_history,
 *     change_of_view_updates_history_of_base,
 *     change_of_base_updates_history_of_views
 * views that refuse, out=
 *     test_autograd_inplace.c: view_created_without_grad_refuses_…,
 *     view_created_in_inference_refuses_…, view_from_split_refuses_…,
 *     out_variants_are_not_recorded
 * hooks and checkpoints
 *     test_autograd_saved.c: saved_tensors_can_be_offloaded_to_the_host,
 *     checkpoint_recomputes_with_same_random_numbers */

#include "support/autograd.h"

#include <libcore/saved.h>

START_TEST(failed_in_place_change_keeps_the_version)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = mul(a, a), *y = mul(b, b);

    FAILS(core_add_(b, VECTOR(3, 1, 1, 1), core_int(1)), CORE_ERROR_SHAPE,
          "add_");
    ck_assert_uint_eq(core_tensor_version(b), 0);
    backward(sum(y));
    HOLDS(core_tensor_grad(a), 2, 32, 108);
}
END_TEST

START_TEST(stale_saved_tensor_error_names_shape_node_and_versions)
{
    core_tensor *a = leaf(VECTOR(2, 2, 3)), *b = VECTOR(2, 5, 7);
    core_tensor *y = sum(mul(a, b));

    for (int i = 0; i < 3; i++)
        OK(core_zero_(b));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_VERSION, "mul", "[2]", "0",
          "3");
}
END_TEST

/* --------------------------------------------------------- what is saved -- */

static int64_t bytes;
static int tensors;

static core_status count_pack(void *context, core_tensor *tensor,
                              void **out_handle)
{
    (void)context;
    bytes += core_tensor_numel(tensor) * 8;
    tensors++;
    core_tensor_retain(tensor);
    *out_handle = tensor;
    return CORE_OK;
}

static core_status give_back(void *context, void *handle,
                             core_tensor **out_tensor)
{
    (void)context;
    core_tensor_retain(handle);
    *out_tensor = handle;
    return CORE_OK;
}

static void release_handle(void *context, void *handle)
{
    (void)context;
    core_tensor_release(handle);
}

/* Checks how many bytes a call saves for backward. */
#define SAVES(wanted, ...)                                                \
    do {                                                                  \
        const core_saved_hooks_info info_ = {.struct_size = sizeof info_, \
                                             .pack = count_pack,          \
                                             .unpack = give_back,         \
                                             .release = release_handle};  \
        bytes = 0;                                                        \
        OK(core_saved_hooks_push(&info_));                                \
        CALL(__VA_ARGS__);                                                \
        OK(core_saved_hooks_pop());                                       \
        ck_assert_msg(bytes == (wanted), "%s saves %lld bytes, not %d",   \
                      #__VA_ARGS__, (long long)bytes, (int)(wanted));     \
    } while (0)

/* Bytes of a vector of four 8-byte numbers. */
enum { ONE = 32 };

START_TEST(elementwise_operators_save_what_their_gradient_needs)
{
    core_tensor *a = leaf(VECTOR(4, 1, 2, 3, 4)), *b = VECTOR(4, 5, 6, 7, 8);
    core_tensor *c = leaf(VECTOR(4, 5, 6, 7, 8));

    SAVES(0, add, a, c, core_int(1));
    SAVES(0, sub, a, c, core_int(1));
    SAVES(0, neg, a);
    SAVES(0, mul_scalar, a, core_float(3));
    SAVES(ONE, mul, a, b); /* b only: b needs no gradient */
    SAVES(2 * ONE, mul, a, c);
    SAVES(ONE, div, a, b);
    SAVES(ONE, exp, a);
    SAVES(ONE, log, a);
    SAVES(ONE, tanh, a);
    SAVES(ONE, sigmoid, a);
    SAVES(ONE, relu, a);
    SAVES(ONE, sqrt, a);
    SAVES(ONE, abs, a);
}
END_TEST

START_TEST(sums_and_views_save_nothing)
{
    core_tensor *a = leaf(VECTOR(4, 1, 2, 3, 4)), *m;

    SAVES(0, sum, a, CORE_DTYPE_NONE);
    SAVES(0, mean, a, CORE_DTYPE_NONE);
    m = CALL(view_sizes, a, (int64_t[]){2, 2}, 2);
    SAVES(0, view_sizes, a, (int64_t[]){2, 2}, 2);
    SAVES(0, transpose, m, 0, 1);
    SAVES(0, select, m, 0, 1);
    SAVES(0, unsqueeze, m, 0);
    SAVES(0, clone, a, -1);
}
END_TEST

START_TEST(matrix_products_save_only_needed_factors)
{
    core_tensor *a = leaf(MATRIX(2, 2, 1, 2, 3, 4)),
                *b = MATRIX(2, 2, 1, 0, 0, 1);
    core_tensor *c = leaf(MATRIX(2, 2, 1, 0, 0, 1));

    SAVES(ONE, mm, a, b);
    SAVES(ONE, mm, b, a);
    SAVES(2 * ONE, mm, a, c);
    SAVES(ONE, softmax, a, 1, CORE_DTYPE_NONE);
    SAVES(ONE, log_softmax, a, 1, CORE_DTYPE_NONE);
}
END_TEST

SUITE("autograd/rules_saved", failed_in_place_change_keeps_the_version,
      stale_saved_tensor_error_names_shape_node_and_versions,
      elementwise_operators_save_what_their_gradient_needs,
      sums_and_views_save_nothing, matrix_products_save_only_needed_factors)
