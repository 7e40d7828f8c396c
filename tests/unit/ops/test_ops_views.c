/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Views, factories and the variants of composites. */

#include "support/autograd.h"

static core_tensor *counting(size_t ndim, const int64_t *sizes)
{
    double values[64];

    for (int i = 0; i < 64; i++)
        values[i] = i;
    return typed(CORE_F64, ndim, sizes, values);
}

static void layout(core_tensor *tensor, uint32_t ndim, const int64_t *sizes,
                   const int64_t *strides, int64_t offset)
{
    ck_assert_uint_eq(core_tensor_ndim(tensor), ndim);
    for (uint32_t i = 0; i < ndim; i++) {
        ck_assert_int_eq(core_tensor_sizes(tensor)[i], sizes[i]);
        ck_assert_int_eq(core_tensor_strides(tensor)[i], strides[i]);
    }
    ck_assert_int_eq(core_tensor_offset(tensor), offset);
}

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

START_TEST(views_share_memory_and_accept_negative_indices)
{
    core_tensor *x = counting(2, SIZES(3, 4));
    core_tensor *v = CALL(select, x, -1, -2);
    int64_t start = -3, end = 100;

    layout(v, 1, SIZES(3), SIZES(4), 2);
    HOLDS(v, 3, 2, 6, 10);
    ck_assert(core_tensor_shares_storage(v, x));
    ck_assert_ptr_eq(core_tensor_base(v), x);
    v = CALL(slice, x, 1, &start, &end, 2);
    layout(v, 2, SIZES(3, 2), SIZES(4, 2), 1);
    v = CALL(diagonal, x, -1, 0, 1);
    HOLDS(v, 2, 4, 9);
    v = CALL(transpose, x, -1, 0);
    layout(v, 2, SIZES(4, 3), SIZES(1, 4), 0);
    OK(core_fill_(v, core_int(7)));
    HOLDS(x, 12, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7);
}
END_TEST

START_TEST(reshape_copies_only_if_strides_require_it)
{
    core_tensor *x = counting(2, SIZES(3, 4));
    core_tensor *t = CALL(t, x);

    ck_assert(core_tensor_shares_storage(x, CALL(reshape, x, SIZES(2, -1), 2)));
    ck_assert(!core_tensor_shares_storage(x, CALL(reshape, t, SIZES(12), 1)));
    HOLDS(CALL(reshape, t, SIZES(12), 1), 12, 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7,
          11);
}
END_TEST

START_TEST(scalars_and_empty_tensors_are_valid_operands)
{
    core_tensor *number = SCALAR(3);
    core_tensor *none = CALL(zeros, SIZES(0, 3), 2, CORE_F32, NULL);
    core_tensor *out;

    layout(CALL(unsqueeze, number, -1), 1, SIZES(1), SIZES(1), 0);
    layout(CALL(expand, number, SIZES(2, 2), 2, false), 2, SIZES(2, 2),
           SIZES(0, 0), 0);
    HOLDS(CALL(flatten, number, 0, -1), 1, 3);
    ck_assert_int_eq(core_tensor_numel(CALL(sum, none, CORE_DTYPE_NONE)), 1);
    HOLDS(CALL(sum, none, CORE_DTYPE_NONE), 1, 0);
    HOLDS(CALL(sum_dim, none, SIZES(0), 1, false, CORE_DTYPE_NONE), 3, 0, 0, 0);
    ck_assert_int_eq(core_tensor_numel(CALL(add, none, none, core_int(1))), 0);
    HOLDS(CALL(mm, CALL(zeros, SIZES(1, 0), 2, CORE_F64, NULL),
               CALL(zeros, SIZES(0, 2), 2, CORE_F64, NULL)),
          2, 0, 0);
    FAILS(core_max(none, &out), CORE_ERROR_SHAPE, "zero elements");
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(split_and_chunk_return_lists_of_views)
{
    core_tensor *x = counting(1, SIZES(5));
    core_tensor **parts;
    size_t count;

    OK(core_split(x, 2, 0, &parts, &count));
    ck_assert_uint_eq(count, 3);
    HOLDS(parts[2], 1, 4);
    ck_assert(core_tensor_shares_storage(parts[1], x));
    core_tensors_release(parts, count);
    OK(core_chunk(x, 2, 0, &parts, &count));
    ck_assert_uint_eq(count, 2);
    HOLDS(parts[1], 2, 3, 4);
    core_tensors_release(parts, count);
}
END_TEST

START_TEST(composites_have_in_place_and_out_variants)
{
    core_tensor *x = VECTOR(3, -2, .5, 3);
    core_tensor *out = CALL(empty, SIZES(0), 1, CORE_F64, NULL, -1);
    core_tensor *wrong = CALL(empty, SIZES(2), 1, CORE_F64, NULL, -1);
    core_tensor *parts[2] = {x, x};
    core_scalar low = core_int(0), high = core_int(1);
    uint32_t version = core_tensor_version(x);

    OK(core_stack_out(parts, 2, 0, out));
    HOLDS(out, 6, -2, .5, 3, -2, .5, 3);
    FAILS(core_stack_out(parts, 2, 0, wrong), CORE_ERROR_SHAPE, "stack");
    OK(core_clamp_(x, &low, &high));
    HOLDS(x, 3, 0, .5, 1);
    ck_assert_uint_gt(core_tensor_version(x), version);
}
END_TEST

START_TEST(in_place_composite_is_differentiable)
{
    core_tensor *x = leaf(VECTOR(3, -2, .5, 3));
    core_tensor *y = CALL(mul_scalar, x, core_int(2));
    core_scalar low = core_int(0), high = core_int(2);
    core_tensor *loss;

    OK(core_clamp_(y, &low, &high));
    loss = sum(y);
    backward(loss);
    HOLDS(core_tensor_grad(x), 3, 0, 2, 0);
}
END_TEST

START_TEST(cat_joins_700_tensors_and_differentiates_them)
{
    core_tensor *parts[700];
    core_tensor *out;

    for (int i = 0; i < 700; i++)
        parts[i] = leaf(VECTOR(1, i));
    out = CALL(cat, parts, 700, 0);
    ck_assert_int_eq(core_tensor_numel(out), 700);
    HOLDS(CALL(select, out, 0, 123), 1, 123);
    backward(sum(out));
    HOLDS(core_tensor_grad(parts[699]), 1, 1);
}
END_TEST

START_TEST(factories_infer_dtype_and_fill_values)
{
    core_tensor *x =
        CALL(full, SIZES(2), 1, core_int(3), CORE_DTYPE_NONE, NULL);

    ck_assert_uint_eq(core_tensor_dtype(x), CORE_I64);
    x = CALL(full, SIZES(2), 1, core_float(3), CORE_DTYPE_NONE, NULL);
    ck_assert_uint_eq(core_tensor_dtype(x), CORE_F32);
    x = CALL(arange, core_int(3), CORE_DTYPE_NONE, NULL);
    ck_assert_uint_eq(core_tensor_dtype(x), CORE_I64);
    HOLDS(CALL(arange_start_step, core_int(5), core_int(0), core_int(-2),
               CORE_F32, NULL),
          3, 5, 3, 1);
    HOLDS(CALL(eye_m, 2, 3, CORE_F64, NULL), 6, 1, 0, 0, 0, 1, 0);
    HOLDS(CALL(one_hot, CALL(arange, core_int(2), CORE_I64, NULL), -1), 4, 1, 0,
          0, 1);
    x = CALL(randperm, 20, NULL, CORE_I64, NULL);
    HOLDS(CALL(sum, x, CORE_DTYPE_NONE), 1, 190);
    FAILS(core_zeros(SIZES(-1), 1, CORE_F32, NULL, &x), CORE_ERROR_SHAPE,
          "0 or more");
}
END_TEST

START_TEST(convolution_and_pooling_keep_channels_last)
{
    core_tensor *x = counting(4, SIZES(1, 2, 4, 4));
    core_tensor *w = CALL(ones, SIZES(3, 2, 3, 3), 4, CORE_F64, NULL);
    core_tensor *y;

    x = CALL(contiguous, x, CORE_FORMAT_CHANNELS_LAST);
    y = CALL(conv2d, x, w, NULL, SIZES(1), 1, SIZES(1), 1, SIZES(1), 1, 1);
    ck_assert(core_tensor_is_contiguous(y, CORE_FORMAT_CHANNELS_LAST));
    y = CALL(max_pool2d, y, SIZES(2), 1, NULL, 0, SIZES(0), 1, SIZES(1), 1,
             false);
    ck_assert(core_tensor_is_contiguous(y, CORE_FORMAT_CHANNELS_LAST));
    y = CALL(add, y, y, core_int(1));
    ck_assert(core_tensor_is_contiguous(y, CORE_FORMAT_CHANNELS_LAST));
}
END_TEST

START_TEST(dimensions_are_split_and_moved)
{
    core_tensor *x = counting(3, SIZES(2, 6, 1)), *y;
    const int64_t first = 0, end = 12;
    int64_t ones[CORE_MAX_NDIM - 1];

    for (int i = 0; i < CORE_MAX_NDIM - 1; i++)
        ones[i] = 1;
    y = CALL(unflatten, CALL(zeros, ones, CORE_MAX_NDIM - 1, CORE_F32, NULL), 0,
             ones, 2);
    ck_assert_uint_eq(core_tensor_ndim(y), CORE_MAX_NDIM);
    y = CALL(unflatten, x, 1, SIZES(-1, 3), 2);
    ck_assert(core_tensor_shares_storage(x, y));
    layout(y, 4, SIZES(2, 2, 3, 1), SIZES(6, 3, 1, 1), 0);
    FAILS(core_unflatten(x, 1, SIZES(4, -1), 2, &y), CORE_ERROR_SHAPE,
          "sizes [4, -1] do not multiply to 6, the size of dimension 1");
    FAILS(core_unflatten(x, 1, SIZES(-1, 0), 2, &y), CORE_ERROR_SHAPE);
    FAILS(core_unflatten(x, 1, NULL, 0, &y), CORE_ERROR_SHAPE);
    y = CALL(ravel, x);
    ck_assert(core_tensor_shares_storage(x, y));
    y = CALL(ravel, CALL(slice, y, 0, &first, &end, 2));
    layout(y, 1, SIZES(6), SIZES(1), 0);
    ck_assert(!core_tensor_shares_storage(x, y));
    y = CALL(movedim_intlist, x, SIZES(-1, 0), 2, SIZES(0, 1), 2);
    layout(y, 3, SIZES(1, 2, 6), SIZES(1, 6, 1), 0);
    FAILS(core_moveaxis_intlist(x, SIZES(0, 0), 2, SIZES(0, 1), 2, &y),
          CORE_ERROR_INVALID_ARGUMENT, "dimension 0 is given twice");
    FAILS(core_moveaxis_intlist(x, SIZES(0), 1, SIZES(0, 1), 2, &y),
          CORE_ERROR_INVALID_ARGUMENT, "source has 1 dimensions");
    y = CALL(atleast_3d, CALL(swapaxes, CALL(select, x, 2, 0), 0, 1));
    layout(y, 3, SIZES(6, 2, 1), SIZES(1, 6, 1), 0);
    layout(CALL(atleast_2d, SCALAR(1)), 2, SIZES(1, 1), SIZES(1, 1), 0);
}
END_TEST

START_TEST(grids_have_a_dimension_for_each_tensor)
{
    core_tensor *in[2] = {VECTOR(2, 1, 2), VECTOR(3, 3, 4, 5)}, **out;
    size_t count;

    OK(core_meshgrid(in, 2, "ij", &out, &count));
    HOLDS(out[0], 6, 1, 1, 1, 2, 2, 2);
    HOLDS(out[1], 6, 3, 4, 5, 3, 4, 5);
    core_tensors_release(out, count);
    OK(core_meshgrid(in, 2, "xy", &out, &count));
    ck_assert_int_eq(core_tensor_size(out[0], 0), 3);
    HOLDS(out[0], 6, 1, 2, 1, 2, 1, 2);
    HOLDS(out[1], 6, 3, 3, 4, 4, 5, 5);
    core_tensors_release(out, count);
    FAILS(core_meshgrid(in, 2, "ab", &out, &count), CORE_ERROR_INVALID_ARGUMENT,
          "indexing is \"ab\"");
    FAILS(core_meshgrid(in, 0, "ij", &out, &count), CORE_ERROR_INVALID_ARGUMENT,
          "no tensor");
    in[1] = NULL;
    FAILS(core_meshgrid(in, 2, "ij", &out, &count), CORE_ERROR_INVALID_ARGUMENT,
          "meshgrid");
    in[1] = in[0];
    in[0] = NULL;
    FAILS(core_meshgrid(in, 2, "ij", &out, &count), CORE_ERROR_INVALID_ARGUMENT,
          "meshgrid");
    in[0] = in[1];
    in[1] = VECTOR(3, 3, 4, 5);
    in[0] = CALL(unsqueeze, in[0], 1);
    OK(core_broadcast_tensors(in, 2, &out, &count));
    ck_assert(core_tensor_shares_storage(out[1], in[1]));
    HOLDS(out[1], 6, 3, 4, 5, 3, 4, 5);
    core_tensors_release(out, count);
}
END_TEST

START_TEST(tensors_are_stacked_side_by_side)
{
    core_tensor *in[2] = {VECTOR(2, 1, 2), VECTOR(2, 3, 4)}, *x;

    HOLDS(CALL(hstack, in, 2), 4, 1, 2, 3, 4);
    HOLDS(CALL(vstack, in, 2), 4, 1, 2, 3, 4);
    HOLDS(CALL(column_stack, in, 2), 4, 1, 3, 2, 4);
    layout(CALL(dstack, in, 2), 3, SIZES(1, 2, 2), SIZES(4, 2, 1), 0);
    HOLDS(CALL(dstack, in, 2), 4, 1, 3, 2, 4);
    x = CALL(tile, in[0], SIZES(2, 2), 2);
    layout(x, 2, SIZES(2, 4), SIZES(4, 1), 0);
    HOLDS(x, 8, 1, 2, 1, 2, 1, 2, 1, 2);
    in[1] = NULL;
    FAILS(core_hstack(in, 2, &x), CORE_ERROR_INVALID_ARGUMENT, "hstack");
    FAILS(core_vstack(in, 0, &x), CORE_ERROR_INVALID_ARGUMENT, "no tensor");
}
END_TEST

START_TEST(differences_of_neighbours)
{
    core_tensor *x = VECTOR(4, 1, 3, 8, 4), *end = VECTOR(1, 0), *out;

    HOLDS(CALL(diff, x, 1, -1, NULL, NULL), 3, 2, 5, -4);
    HOLDS(CALL(diff, x, 2, 0, NULL, NULL), 2, 3, -9);
    HOLDS(CALL(diff, x, 1, 0, end, end), 5, 1, 2, 5, -4, -4);
    ck_assert_int_eq(core_tensor_numel(CALL(diff, x, 9, 0, NULL, NULL)), 0);
    HOLDS(CALL(diff, x, 0, 0, end, NULL), 4, 1, 3, 8, 4);
    x = CALL(gt_scalar, x, core_int(3));
    HOLDS(CALL(diff, x, 1, 0, NULL, NULL), 3, 0, 1, 0);
    FAILS(core_diff(SCALAR(1), 1, 0, NULL, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "self has 0 dimensions and n is 1");
    FAILS(core_diff(x, 1, 1, NULL, NULL, &out), CORE_ERROR_INDEX, "diff");
    x = MATRIX(1, 2, 1, 2);
    FAILS(core_diff(x, 1, 1, CALL(zeros, SIZES(0), 1, CORE_F32, NULL), NULL,
                    &out),
          CORE_ERROR_SHAPE, "prepend has 1 dimensions and self 2");
}
END_TEST

START_TEST(products_over_chosen_dimensions)
{
    core_tensor *a = MATRIX(2, 2, 1, 2, 3, 4), *b = VECTOR(2, 1, -1), *out;
    core_tensor *c = VECTOR(3, 1, 0, 2);

    HOLDS(CALL(inner, a, b), 2, -1, -1);
    HOLDS(CALL(inner, a, a), 4, 5, 11, 11, 25);
    HOLDS(CALL(inner, a, SCALAR(2)), 4, 2, 4, 6, 8);
    HOLDS(CALL(tensordot, a, a, SIZES(0, 1), 2, SIZES(1, 0), 2), 1, 29);
    HOLDS(CALL(tensordot, a, CALL(unsqueeze, b, 0), SIZES(1), 1, SIZES(0), 1),
          4, 3, -3, 7, -7);
    HOLDS(CALL(kron, b, a), 8, 1, 2, -1, -2, 3, 4, -3, -4);
    HOLDS(CALL(cross, c, VECTOR(3, 0, 1, 0), NULL), 3, -2, 0, 1);
    HOLDS(CALL(square, b), 2, 1, 1);
    FAILS(core_inner(a, c, &out), CORE_ERROR_SHAPE, "last dimensions");
    FAILS(core_tensordot(a, c, SIZES(1), 1, SIZES(0), 1, &out),
          CORE_ERROR_SHAPE, "dimension 1 of self and 0 of other");
    FAILS(core_tensordot(a, a, SIZES(1), 1, SIZES(0, 1), 2, &out),
          CORE_ERROR_INVALID_ARGUMENT, "dims_self has 1 dimensions");
    FAILS(core_tensordot(SCALAR(1), SCALAR(1), SIZES(0), 1, SIZES(0), 1, &out),
          CORE_ERROR_INVALID_ARGUMENT, "of those that the tensors have");
    HOLDS(CALL(tensordot, SCALAR(2), b, NULL, 0, NULL, 0), 2, 2, -2);
    c = CALL(tensordot, CALL(to_copy, b, CORE_I32, NULL, false, -1),
             CALL(ones, SIZES(1, 2), 2, CORE_I32, NULL), SIZES(0), 1, SIZES(0),
             1);
    ck_assert_int_eq(core_tensor_dtype(c), CORE_I32);
    HOLDS(c, 2, 0, 0);
    FAILS(core_cross(a, a, NULL, &out), CORE_ERROR_SHAPE,
          "self has no dimension of size 3");
}
END_TEST

START_TEST(distances_determinants_and_elements_along_a_dimension)
{
    core_tensor *a = MATRIX(2, 2, 1, 2, 3, 4), *out, *sign, *at;
    const int64_t bad = 3, one = 1;

    HOLDS(CALL(cdist, a, MATRIX(1, 2, 1, 2), 1, NULL), 2, 0, 4);
    FAILS(core_cdist(a, a, 2, &bad, &out), CORE_ERROR_INVALID_ARGUMENT,
          "compute_mode is 3");
    HOLDS(CALL(det, a), 1, -2);
    out = leaf(MATRIX(2, 2, 0, 0, 0, 0));
    backward(CALL(det, out));
    HOLDS(core_tensor_grad(out), 4, 0, 0, 0, 0);
    out = leaf(MATRIX(1, 1, 0));
    backward(CALL(det, out));
    HOLDS(core_tensor_grad(out), 1, 1);
    HOLDS(CALL(inverse, a), 4, -2, 1, 1.5, -.5);
    OK(core_slogdet(a, &sign, &out));
    HOLDS(keep(sign), 1, -1);
    keep(out);
    out = CALL(isnan, CALL(logdet, a));
    HOLDS(out, 1, 1);
    FAILS(core_inverse(CALL(zeros_like, a, CORE_DTYPE_NONE, NULL, -1), &out),
          CORE_ERROR_INVALID_ARGUMENT, "inverse");
    at = CALL(to_copy, MATRIX(2, 1, 1, 0), CORE_I64, NULL, false, -1);
    HOLDS(CALL(take_along_dim, a, at, &one), 2, 2, 3);
    HOLDS(CALL(take_along_dim, a, at, NULL), 2, 2, 1);
    FAILS(core_take_along_dim(a, CALL(select, at, 1, 0), &one, &out),
          CORE_ERROR_SHAPE, "the same number of dimensions");
}
END_TEST

SUITE("ops/ops_views", views_share_memory_and_accept_negative_indices,
      reshape_copies_only_if_strides_require_it,
      scalars_and_empty_tensors_are_valid_operands,
      split_and_chunk_return_lists_of_views,
      composites_have_in_place_and_out_variants,
      in_place_composite_is_differentiable,
      cat_joins_700_tensors_and_differentiates_them,
      factories_infer_dtype_and_fill_values,
      convolution_and_pooling_keep_channels_last,
      dimensions_are_split_and_moved, grids_have_a_dimension_for_each_tensor,
      tensors_are_stacked_side_by_side, differences_of_neighbours,
      products_over_chosen_dimensions,
      distances_determinants_and_elements_along_a_dimension)
