/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* View operators in place: layout and history become those of the view. */

#include "support/autograd.h"

#include "base/memory.h"

#include <libcore/device.h>

static core_tensor *counted(void)
{
    return MATRIX(2, 3, 0, 1, 2, 3, 4, 5);
}

static void check_layout(const core_tensor *tensor, size_t ndim,
                         const int64_t *sizes, const int64_t *strides,
                         bool contiguous)
{
    ck_assert_uint_eq(core_tensor_ndim(tensor), ndim);
    for (size_t i = 0; i < ndim; i++) {
        ck_assert_int_eq(core_tensor_sizes(tensor)[i], sizes[i]);
        ck_assert_int_eq(core_tensor_strides(tensor)[i], strides[i]);
    }
    ck_assert_int_eq(core_tensor_is_contiguous(tensor, CORE_FORMAT_CONTIGUOUS),
                     contiguous);
}

/* Backward that keeps the graph for further calls. */
static void backward_first(core_tensor *tensor)
{
    OK(core_backward(&tensor, 1, NULL, CORE_RETAIN_GRAPH));
}

#define CHECK_LAYOUT(tensor, ndim, contiguous, ...)                 \
    do {                                                            \
        int64_t dims_[2][ndim] = __VA_ARGS__;                       \
        check_layout(tensor, ndim, dims_[0], dims_[1], contiguous); \
    } while (0)

START_TEST(in_place_view_operator_has_layout_of_the_view)
{
    core_tensor *x = counted();
    uint32_t version = core_tensor_version(x);

    OK(core_t_(x));
    CHECK_LAYOUT(x, 2, false, {{3, 2}, {1, 3}});
    HOLDS(x, 6, 0, 3, 1, 4, 2, 5);
    OK(core_transpose_(x, 0, -1));
    CHECK_LAYOUT(x, 2, true, {{2, 3}, {3, 1}});
    OK(core_unsqueeze_(x, 0));
    CHECK_LAYOUT(x, 3, true, {{1, 2, 3}, {6, 3, 1}});
    OK(core_squeeze_dim_(x, 1));
    OK(core_unsqueeze_(x, -1));
    CHECK_LAYOUT(x, 4, true, {{1, 2, 3, 1}, {6, 3, 1, 1}});
    OK(core_squeeze_(x));
    CHECK_LAYOUT(x, 2, true, {{2, 3}, {3, 1}});
    OK(core_as_strided_(x, (int64_t[]){2, 2}, 2, (int64_t[]){1, 2}, 2,
                        (int64_t[]){1}));
    CHECK_LAYOUT(x, 2, false, {{2, 2}, {1, 2}});
    HOLDS(x, 4, 1, 3, 2, 4);
    ck_assert_int_eq(core_tensor_numel(x), 4);
    ck_assert_uint_eq(core_tensor_version(x), version + 7);
}
END_TEST

START_TEST(dimensions_beyond_inline_storage_are_added_and_removed)
{
    int64_t live = 0;

    for (int i = 0; i < 3; i++) {
        core_tensor *x = leaf(counted()), *y = mul(x, x);

        for (int j = 0; j < 10; j++)
            OK(core_unsqueeze_(y, 1));
        ck_assert_uint_eq(core_tensor_ndim(y), 12);
        OK(core_squeeze_(y));
        for (int j = 0; j < 5; j++)
            OK(core_unsqueeze_(y, 0));
        OK(core_transpose_(y, -1, -2));
        backward(sum(y));
        HOLDS(core_tensor_grad(x), 6, 0, 2, 4, 6, 8, 10);
        drop_all();
        if (i == 1)
            live = core__alloc_live();
        if (i == 2)
            ck_assert_int_eq(core__alloc_live(), live);
    }
}
END_TEST

START_TEST(in_place_view_operator_has_gradient_of_the_view)
{
    core_tensor *a = leaf(counted()), *b = mul(a, a), *root, *first, *second;

    OK(core_tensor_retain_grad(b));
    OK(core_t_(b));
    root = sum(mul(b, MATRIX(3, 2, 1, 2, 3, 4, 5, 6)));
    OK(core_grad(&root, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 6, 0, 6, 20, 12, 32, 60);
    root = sum(first);
    OK(core_grad(&root, 1, NULL, &a, 1, CORE_RETAIN_GRAPH, &second));
    HOLDS(keep(second), 6, 2, 6, 10, 4, 8, 12);
    backward(sum(mul(b, MATRIX(3, 2, 1, 2, 3, 4, 5, 6))));
    CHECK_LAYOUT(core_tensor_grad(b), 2, true, {{3, 2}, {2, 1}});
    b = mul(a, MATRIX(1, 1, 1));
    OK(core_as_strided_(b, (int64_t[]){2, 2}, 2, (int64_t[]){2, 1}, 2,
                        (int64_t[]){1}));
    root = sum(mul(b, MATRIX(2, 2, 1, 2, 3, 4)));
    OK(core_grad(&root, 1, NULL, &a, 1, 0, &first));
    HOLDS(keep(first), 6, 0, 1, 2, 3, 4, 0);
}
END_TEST

START_TEST(relayout_of_view_keeps_layout_of_base)
{
    core_tensor *a = leaf(counted()), *b = mul(a, MATRIX(1, 1, 1));
    core_tensor *view = CALL(slice, b, 1, NULL, (int64_t[]){2}, 1);

    OK(core_t_(view));
    CHECK_LAYOUT(b, 2, true, {{2, 3}, {3, 1}});
    HOLDS(view, 4, 0, 3, 1, 4);
    backward_first(sum(mul(view, MATRIX(2, 2, 1, 2, 3, 4))));
    HOLDS(core_tensor_grad(a), 6, 1, 3, 0, 2, 4, 0);
    /* it is still a view: changes propagate in both directions */
    OK(core_mul_(view, MATRIX(2, 2, 1, 2, 3, 4)));
    backward_first(sum(b));
    HOLDS(core_tensor_grad(a), 6, 2, 6, 1, 4, 8, 1);
    OK(core_mul_scalar_(b, core_float(2)));
    OK(core_tensor_set_grad(a, NULL));
    backward(sum(view));
    HOLDS(core_tensor_grad(a), 6, 2, 6, 0, 4, 8, 0);
}
END_TEST

START_TEST(view_in_new_layout_sees_next_change_of_its_base)
{
    core_tensor *a = leaf(counted()), *b = mul(a, MATRIX(1, 1, 1));
    core_tensor *view = CALL(slice, b, 1, NULL, (int64_t[]){2}, 1);

    OK(core_t_(view));
    OK(core_mul_(b, MATRIX(2, 3, 1, 2, 3, 4, 5, 6)));
    HOLDS(view, 4, 0, 12, 2, 20);
    backward(sum(view));
    HOLDS(core_tensor_grad(a), 6, 1, 2, 0, 4, 5, 0);
}
END_TEST

START_TEST(relayout_keeps_layout_of_existing_views)
{
    core_tensor *a = leaf(counted()), *b = mul(a, MATRIX(1, 1, 1));
    core_tensor *row = CALL(select, b, 0, 1);

    OK(core_t_(b));
    HOLDS(row, 3, 3, 4, 5);
    OK(core_mul_(row, VECTOR(3, 10, 20, 30)));
    HOLDS(b, 6, 0, 30, 1, 80, 2, 150);
    backward_first(sum(mul(b, MATRIX(3, 2, 1, 2, 3, 4, 5, 6))));
    HOLDS(core_tensor_grad(a), 6, 1, 3, 5, 20, 80, 180);
    OK(core_tensor_set_grad(a, NULL));
    backward(sum(row));
    HOLDS(core_tensor_grad(a), 6, 0, 0, 0, 10, 20, 30);
}
END_TEST

START_TEST(refused_relayout_keeps_the_layout)
{
    core_tensor *a = leaf(counted()), *b = mul(a, a), *view, **parts;
    bool before;
    size_t count;

    FAILS(core_t_(a), CORE_ERROR_AUTOGRAD, "t_", "leaf");
    view = CALL(slice, a, 0, NULL, (int64_t[]){1}, 1);
    FAILS(core_squeeze_(view), CORE_ERROR_AUTOGRAD, "squeeze_",
          "view of a leaf");
    before = core_grad_mode_set(false);
    view = CALL(alias, b);
    core_grad_mode_set(before);
    FAILS(core_t_(view), CORE_ERROR_AUTOGRAD, "grad mode off");
    OK(core_unbind(b, 0, &parts, &count));
    FAILS(core_unsqueeze_(parts[0], 0), CORE_ERROR_AUTOGRAD, "several");
    core_tensors_release(parts, count);
    FAILS(core_unsqueeze_(b, 4), CORE_ERROR_INDEX, "unsqueeze_", "4");
    FAILS(core_as_strided_(b, (int64_t[]){7}, 1, (int64_t[]){1}, 1, NULL),
          CORE_ERROR_SHAPE, "as_strided_");
    CHECK_LAYOUT(a, 2, true, {{2, 3}, {3, 1}});
    CHECK_LAYOUT(b, 2, true, {{2, 3}, {3, 1}});
    backward(sum(b));
    HOLDS(core_tensor_grad(a), 6, 0, 2, 4, 6, 8, 10);
}
END_TEST

START_TEST(saved_tensor_in_another_layout_is_refused)
{
    core_tensor *a = leaf(counted()), *b = mul(a, a), *c = mul(b, b);
    core_tensor *root = sum(c);

    OK(core_t_(b));
    FAILS(core_backward(&root, 1, NULL, 0), CORE_ERROR_VERSION, "[2, 3]");
}
END_TEST

/* Without grad mode a leaf may change its layout; graphs of the old layout then
 * fail with an error, and new ones work. */
START_TEST(leaf_accumulates_in_its_new_layout)
{
    core_tensor *a = leaf(counted()), *old = sum(mul(a, MATRIX(1, 1, 1)));
    bool before = core_grad_mode_set(false);

    for (int i = 0; i < 5; i++)
        OK(core_unsqueeze_(a, 0));
    core_grad_mode_set(before);
    FAILS(core_backward(&old, 1, NULL, 0), CORE_ERROR_SHAPE, "[2, 3]",
          "[1, 1, 1, 1, 1, 2, 3]");
    ck_assert_ptr_null(core_tensor_grad(a));
    backward(sum(mul(a, a)));
    ck_assert_uint_eq(core_tensor_ndim(core_tensor_grad(a)), 7);
    HOLDS(core_tensor_grad(a), 6, 0, 2, 4, 6, 8, 10);
}
END_TEST

START_TEST(detach_in_place_removes_result_from_graph)
{
    core_tensor *a = leaf(counted()), *b = mul(a, a), *row;
    core_tensor *c = mul(b, MATRIX(1, 1, 1));
    uint32_t version = core_tensor_version(b);

    OK(core_tensor_retain_grad(b));
    row = CALL(select, b, 0, 0);
    OK(core_detach_(b));
    ck_assert(!core_tensor_requires_grad(b));
    ck_assert(core_tensor_is_leaf(b));
    ck_assert_ptr_null(core_tensor_grad_fn(b));
    ck_assert_uint_eq(core_tensor_version(b), version);
    backward_first(sum(c));
    HOLDS(core_tensor_grad(a), 6, 0, 2, 4, 6, 8, 10);
    HOLDS(core_tensor_grad(b), 6, 1, 1, 1, 1, 1, 1); /* retained before */
    backward(sum(row)); /* keeps its earlier history */
    FAILS(core_detach_(row), CORE_ERROR_AUTOGRAD, "detach_", "view");
    OK(core_detach_(CALL(detach, b)));
    OK(core_detach_(a));
    ck_assert(!core_tensor_requires_grad(a));
    OK(core_t_(a));
    CHECK_LAYOUT(a, 2, false, {{3, 2}, {1, 3}});
}
END_TEST

START_TEST(inference_tensor_changes_layout_only_in_inference_mode)
{
    uint64_t mode = core_inference_begin();
    core_tensor *x = counted();

    OK(core_t_(x));
    core_inference_end(mode);
    FAILS(core_t_(x), CORE_ERROR_AUTOGRAD, "t_", "inference mode");
    OK(core_detach_(x));
    CHECK_LAYOUT(x, 2, false, {{3, 2}, {1, 3}});
}
END_TEST

START_TEST(meta_tensor_changes_layout)
{
    core_device *meta;
    core_tensor *x;

    OK(core_device_find("meta", &meta));
    OK(core_zeros((int64_t[]){2, 1, 3}, 3, CORE_F32, meta, &x));
    keep(x);
    OK(core_squeeze_(x));
    OK(core_t_(x));
    CHECK_LAYOUT(x, 2, false, {{3, 2}, {1, 3}});
}
END_TEST

START_TEST(resized_leaf_accumulates_in_its_new_sizes)
{
    core_tensor *x = leaf(VECTOR(0, 0)), *w = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);

    drop(mul(x, VECTOR(0, 0))); /* puts x into a graph first */
    OK(core_tensor_set_requires_grad(x, false));
    OK(core_add_out(w, w, core_int(1), x));
    leaf(x);
    for (int round = 0; round < 2; round++) {
        OK(core_tensor_set_grad(x, NULL));
        backward(sum(mul(x, w)));
        CHECK_LAYOUT(core_tensor_grad(x), 2, true, {{2, 3}, {3, 1}});
        HOLDS(core_tensor_grad(x), 6, 1, 2, 3, 4, 5, 6);
    }
}
END_TEST

START_TEST(polygamma_in_place_takes_its_tensor_first)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *x = mul(a, VECTOR(2, 1, 1));
    core_tensor *whole;

    OK(core_polygamma_(x, 1));
    HOLDS(x, 2, 1.6449340668482264, 0.6449340668482264);
    backward(sum(x));
    HOLDS(core_tensor_grad(a), 2, -2.4041138063191886, -0.4041138063191886);
    FAILS(core_polygamma_(a, 1), CORE_ERROR_AUTOGRAD, "leaf");
    whole = CALL(to_copy, x, CORE_I64, NULL, false, -1);
    FAILS(core_polygamma_(whole, 1), CORE_ERROR_DTYPE, "polygamma_", "i64");
}
END_TEST

SUITE("autograd/autograd_relayout",
      in_place_view_operator_has_layout_of_the_view,
      dimensions_beyond_inline_storage_are_added_and_removed,
      in_place_view_operator_has_gradient_of_the_view,
      relayout_of_view_keeps_layout_of_base,
      view_in_new_layout_sees_next_change_of_its_base,
      relayout_keeps_layout_of_existing_views,
      refused_relayout_keeps_the_layout,
      saved_tensor_in_another_layout_is_refused,
      leaf_accumulates_in_its_new_layout,
      resized_leaf_accumulates_in_its_new_sizes,
      detach_in_place_removes_result_from_graph,
      inference_tensor_changes_layout_only_in_inference_mode,
      meta_tensor_changes_layout, polygamma_in_place_takes_its_tensor_first)
