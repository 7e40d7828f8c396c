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

SUITE("ops/ops_views", views_share_memory_and_accept_negative_indices,
      reshape_copies_only_if_strides_require_it,
      scalars_and_empty_tensors_are_valid_operands,
      split_and_chunk_return_lists_of_views,
      composites_have_in_place_and_out_variants,
      in_place_composite_is_differentiable,
      cat_joins_700_tensors_and_differentiates_them,
      factories_infer_dtype_and_fill_values,
      convolution_and_pooling_keep_channels_last)
