/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The core's work before a kernel: promotion, broadcasting, layout, results,
 * overlap.  On the CPU and, if a test needs a second device, on sim. */

#include "support/autograd.h"

#include "base/memory.h"
#include "tensor/tensor.h"

static core_dtype sum_dtype(core_dtype a, size_t ndim_a, core_dtype b,
                            size_t ndim_b)
{
    int64_t one = 1;
    core_tensor *x = typed(a, ndim_a, &one, (double[]){1});
    core_tensor *y = typed(b, ndim_b, &one, (double[]){1});

    return core_tensor_dtype(add(x, y));
}

START_TEST(promotion_ranks_category_before_dimensions)
{
    ck_assert_uint_eq(sum_dtype(CORE_F32, 1, CORE_F64, 0), CORE_F32);
    ck_assert_uint_eq(sum_dtype(CORE_F32, 1, CORE_F64, 1), CORE_F64);
    ck_assert_uint_eq(sum_dtype(CORE_I64, 1, CORE_F32, 0), CORE_F32);
    ck_assert_uint_eq(sum_dtype(CORE_I32, 1, CORE_I64, 0), CORE_I32);
    ck_assert_uint_eq(sum_dtype(CORE_F16, 1, CORE_BF16, 1), CORE_F32);
    ck_assert_uint_eq(sum_dtype(CORE_U8, 1, CORE_I8, 1), CORE_I16);
    ck_assert_uint_eq(sum_dtype(CORE_BOOL, 1, CORE_I8, 0), CORE_I8);
}
END_TEST

START_TEST(numbers_rank_below_tensors)
{
    core_tensor *integers =
        typed(CORE_I32, 1, (int64_t[]){2}, (double[]){1, 2});
    core_tensor *halves = typed(CORE_F16, 1, (int64_t[]){2}, (double[]){1, 2});

    ck_assert_uint_eq(
        core_tensor_dtype(CALL(add_scalar, integers, core_int(1), core_int(1))),
        CORE_I32);
    ck_assert_uint_eq(core_tensor_dtype(CALL(add_scalar, integers,
                                             core_float(0.5), core_int(1))),
                      CORE_F32);
    ck_assert_uint_eq(core_tensor_dtype(CALL(add_scalar, halves,
                                             core_float(0.5), core_int(1))),
                      CORE_F16);
    HOLDS(CALL(add_scalar, integers, core_float(0.5), core_int(2)), 2, 2, 3);
    ck_assert_uint_eq(core_tensor_dtype(CALL(div, integers, integers)),
                      CORE_F32);
}
END_TEST

START_TEST(operands_broadcast)
{
    core_tensor *column = MATRIX(2, 1, 10, 20);
    core_tensor *row = VECTOR(3, 1, 2, 3);

    HOLDS(add(column, row), 6, 11, 12, 13, 21, 22, 23);
    HOLDS(add(row, SCALAR(1)), 3, 2, 3, 4);
}
END_TEST

START_TEST(incompatible_shapes_are_both_named)
{
    core_tensor *out = NULL;

    FAILS(core_add(VECTOR(3, 1, 2, 3), VECTOR(2, 1, 2), core_int(1), &out),
          CORE_ERROR_SHAPE, "add.Tensor", "[3]", "[2]");
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(different_devices_are_both_named)
{
    core_tensor *out = NULL;
    core_tensor *far;
    core_device *sim;
    double value = 2;

    OK(core_device_find("sim", &sim));
    OK(core_tensor_from_data((double[]){1, 2}, CORE_F64, (int64_t[]){2}, 1, sim,
                             &far));
    keep(far);
    FAILS(core_add(far, VECTOR(2, 1, 2), core_int(1), &out), CORE_ERROR_DEVICE,
          "\"sim\"", "\"cpu\"");
    /* but a 0-dim host tensor is accepted, on either side */
    HOLDS(add(far, SCALAR(value)), 2, 3, 4);
    HOLDS(add(SCALAR(value), far), 2, 3, 4);
    ck_assert_ptr_eq(core_tensor_device(add(SCALAR(value), far)), sim);
}
END_TEST

START_TEST(strided_operands_are_not_copied_and_determine_the_layout)
{
    core_tensor *a = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);
    core_tensor *turned = CALL(transpose, a, 0, 1);
    core_tensor *result = add(turned, turned);

    ck_assert_int_eq(core_tensor_strides(result)[0], 1);
    ck_assert_int_eq(core_tensor_strides(result)[1], 3);
    HOLDS(result, 6, 2, 8, 4, 10, 6, 12);
    HOLDS(add(turned,
              CALL(expand, VECTOR(2, 10, 20), (int64_t[]){3, 2}, 2, false)),
          6, 11, 24, 12, 25, 13, 26);
}
END_TEST

START_TEST(in_place_keeps_dtype_and_refuses_a_higher_category)
{
    core_tensor *integers =
        typed(CORE_I32, 1, (int64_t[]){2}, (double[]){1, 2});
    core_tensor *singles = typed(CORE_F32, 1, (int64_t[]){2}, (double[]){1, 2});
    uint32_t version = core_tensor_version(singles);

    FAILS(core_add_(integers, singles, core_int(1)), CORE_ERROR_DTYPE, "add_",
          "f32", "i32");
    HOLDS(integers, 2, 1, 2);
    OK(core_add_(singles, integers, core_int(1)));
    HOLDS(singles, 2, 2, 4);
    ck_assert_uint_eq(core_tensor_version(singles), version + 1);
    OK(core_add_(singles, VECTOR(2, 1, 1), core_int(1)));
    ck_assert_uint_eq(core_tensor_dtype(singles), CORE_F32);
}
END_TEST

START_TEST(in_place_does_not_grow_its_target)
{
    core_tensor *a = VECTOR(2, 1, 2);

    FAILS(core_add_(a, MATRIX(2, 2, 1, 2, 3, 4), core_int(1)), CORE_ERROR_SHAPE,
          "[2, 2]", "[2]");
    HOLDS(a, 2, 1, 2);
}
END_TEST

START_TEST(out_resizes_only_an_empty_tensor)
{
    core_tensor *a = VECTOR(2, 1, 2);
    core_tensor *empty = typed(CORE_F64, 1, (int64_t[]){0}, NULL);
    core_tensor *wrong = VECTOR(3, 0, 0, 0);
    core_tensor *integers =
        typed(CORE_I64, 1, (int64_t[]){2}, (double[]){0, 0});

    OK(core_add_out(a, a, core_int(1), empty));
    HOLDS(empty, 2, 2, 4);
    FAILS(core_add_out(a, a, core_int(1), wrong), CORE_ERROR_SHAPE, "[3]",
          "[2]");
    FAILS(core_add_out(a, a, core_int(1), integers), CORE_ERROR_DTYPE, "i64");
}
END_TEST

START_TEST(writing_over_part_of_an_operand_is_refused)
{
    core_tensor *a = VECTOR(4, 1, 2, 3, 4);
    core_tensor *front = CALL(narrow, a, 0, 0, 3);
    core_tensor *back = CALL(narrow, a, 0, 1, 3);
    core_tensor *wide = CALL(expand, VECTOR(1, 1), (int64_t[]){3}, 1, false);

    FAILS(core_add_(front, back, core_int(1)), CORE_ERROR_INVALID_ARGUMENT,
          "shares");
    FAILS(core_add_(wide, front, core_int(1)), CORE_ERROR_SHAPE, "one address");
    OK(core_add_(front, front, core_int(1)));
    HOLDS(a, 4, 2, 4, 6, 4);
}
END_TEST

START_TEST(result_adjacent_to_an_operand_is_written)
{
    core_tensor *a = MATRIX(2, 4, 1, 2, 3, 4, 5, 6, 7, 8);
    core_tensor *left = CALL(narrow, a, 1, 0, 2);
    core_tensor *right = CALL(narrow, a, 1, 2, 2);

    OK(core_add_(CALL(select, a, 1, 0), CALL(select, a, 1, 3), core_int(1)));
    HOLDS(a, 8, 5, 2, 3, 4, 13, 6, 7, 8);
    OK(core_copy_(left, right, false));
    HOLDS(a, 8, 3, 4, 3, 4, 7, 8, 7, 8);
    OK(core_neg_out(left, right));
    HOLDS(a, 8, 3, 4, -3, -4, 7, 8, -7, -8);
}
END_TEST

/* These operators read again what they have written. */
START_TEST(kernels_do_not_read_their_own_result)
{
    core_tensor *a = MATRIX(2, 2, 1, 2, 3, 4);
    core_tensor *b = MATRIX(3, 2, 1, 2, 3, 4, 5, 6);
    core_tensor *wide = CALL(expand, VECTOR(1, 1), (int64_t[]){2}, 1, false);
    int64_t first = 0;

    OK(core_mm_out(a, a, a));
    HOLDS(a, 4, 7, 10, 15, 22);
    FAILS(core_mm_out(CALL(narrow, b, 0, 0, 2), CALL(narrow, b, 0, 1, 2),
                      CALL(narrow, b, 0, 1, 2)),
          CORE_ERROR_INVALID_ARGUMENT, "argument out", "with self");
    FAILS(core_sum_dim_out(b, &first, 1, false, CORE_DTYPE_NONE,
                           CALL(select, b, 0, 0)),
          CORE_ERROR_INVALID_ARGUMENT, "argument out", "with self");
    HOLDS(b, 6, 1, 2, 3, 4, 5, 6);
    FAILS(core_sum_dim_out(b, &first, 1, false, CORE_DTYPE_NONE, wide),
          CORE_ERROR_SHAPE, "one address");
}
END_TEST

START_TEST(zero_size_and_zero_dim_tensors_work)
{
    core_tensor *nothing = typed(CORE_F64, 2, (int64_t[]){0, 3}, NULL);

    ck_assert_int_eq(core_tensor_numel(add(nothing, VECTOR(3, 1, 2, 3))), 0);
    HOLDS(sum(nothing), 1, 0);
    HOLDS(add(SCALAR(1), SCALAR(2)), 1, 3);
    ck_assert_uint_eq(core_tensor_ndim(add(SCALAR(1), SCALAR(2))), 0);
}
END_TEST

START_TEST(reductions_keep_or_remove_their_dimensions)
{
    core_tensor *a = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);
    int64_t last = -1;
    core_tensor *out = NULL;

    HOLDS(CALL(sum_dim, a, &last, 1, false, CORE_DTYPE_NONE), 2, 6, 15);
    ck_assert_uint_eq(
        core_tensor_ndim(CALL(sum_dim, a, &last, 1, true, CORE_DTYPE_NONE)), 2);
    HOLDS(CALL(sum_dim, CALL(transpose, a, 0, 1), &last, 1, false,
               CORE_DTYPE_NONE),
          3, 5, 7, 9);
    FAILS(core_sum_dim(a, (int64_t[]){0, -2}, 2, false, CORE_DTYPE_NONE, &out),
          CORE_ERROR_INVALID_ARGUMENT, "twice");
    FAILS(core_sum_dim(a, (int64_t[]){2}, 1, false, CORE_DTYPE_NONE, &out),
          CORE_ERROR_INDEX, "sum.dim_IntList", "2");
}
END_TEST

START_TEST(meta_tensors_have_a_shape_and_no_data)
{
    core_device *meta;
    core_tensor *a;
    core_tensor *result;
    double value;

    OK(core_device_find("meta", &meta));
    OK(core_empty((int64_t[]){2, 1}, 2, CORE_F32, meta, -1, &a));
    keep(a);
    result = CALL(mul, a, CALL(transpose, a, 0, 1));
    ck_assert_int_eq(core_tensor_size(result, 0), 2);
    ck_assert_int_eq(core_tensor_size(result, 1), 2);
    ck_assert_ptr_eq(core_tensor_device(result), meta);
    FAILS(core_tensor_item_float(CALL(sum, a, CORE_DTYPE_NONE), &value),
          CORE_ERROR_DATA_DEPENDENT, "meta");
    {
        core_tensor *out = NULL;

        FAILS(core_nonzero(a, &out), CORE_ERROR_DATA_DEPENDENT, "nonzero");
    }
}
END_TEST

START_TEST(copy_works_between_devices_and_broadcasts)
{
    core_tensor *here = MATRIX(2, 2, 1, 2, 3, 4);
    core_tensor *far;
    core_device *sim;

    OK(core_device_find("sim", &sim));
    OK(core_zeros((int64_t[]){2, 2}, 2, CORE_F32, sim, &far));
    keep(far);
    OK(core_copy_(far, CALL(transpose, here, 0, 1), false));
    HOLDS(far, 4, 1, 3, 2, 4);
    OK(core_copy_(here, far, false));
    HOLDS(here, 4, 1, 3, 2, 4);
    OK(core_copy_(far, VECTOR(2, 7, 8), false));
    HOLDS(far, 4, 7, 8, 7, 8);
    FAILS(core_copy_(far, VECTOR(3, 7, 8, 9), false), CORE_ERROR_SHAPE, "copy_",
          "[3]");
    /* and the gradient is copied back to the device of the source */
    leaf(here);
    OK(core_copy_(far, here, false));
    backward(sum(mul(far, far)));
    HOLDS(core_tensor_grad(here), 4, 2, 6, 4, 8);
    ck_assert_ptr_eq(core_tensor_device(core_tensor_grad(here)),
                     core_tensor_device(here));
}
END_TEST

START_TEST(inference_tensor_may_be_changed_only_in_inference_mode)
{
    uint64_t before = core_inference_begin();
    core_tensor *inside = VECTOR(2, 1, 2);

    OK(core_mul_scalar_(inside, core_float(2)));
    core_inference_end(before);
    FAILS(core_mul_scalar_(inside, core_float(2)), CORE_ERROR_AUTOGRAD,
          "mul_.Scalar", "inference");
    FAILS(core_zero_(inside), CORE_ERROR_AUTOGRAD, "inference");
    before = core_inference_begin();
    OK(core_mul_scalar_(inside, core_float(2)));
    core_inference_end(before);
    HOLDS(inside, 2, 4, 8);
}
END_TEST

START_TEST(out_of_memory_at_every_allocation_leaks_nothing)
{
    core_tensor *a = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);
    core_tensor *b = typed(CORE_F32, 1, (int64_t[]){3}, (double[]){1, 2, 3});
    core_tensor *out = NULL;
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    int64_t allowed = 0;
    int64_t before;

    add(a, b); /* allocates what is allocated only once */
    core__alloc_fault_set(INT32_MAX, false);
    before = core__alloc_live();
    /* Allocations: the cast of b, its storage, the result, its storage. */
    while (status != CORE_OK) {
        core__alloc_fault_set(allowed++, false);
        status = core_add(a, b, core_int(1), &out);
        core__alloc_fault_set(INT32_MAX, false);
        if (status != CORE_OK) {
            ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
            ck_assert_ptr_null(out);
            ck_assert_int_eq(core__alloc_live(), before);
        }
    }
    core__alloc_fault_set(-1, false);
    ck_assert_int_gt(allowed, 4);
    HOLDS(keep(out), 6, 2, 4, 6, 5, 7, 9);
}
END_TEST

SUITE("dispatch/structured", promotion_ranks_category_before_dimensions,
      numbers_rank_below_tensors, operands_broadcast,
      incompatible_shapes_are_both_named, different_devices_are_both_named,
      strided_operands_are_not_copied_and_determine_the_layout,
      in_place_keeps_dtype_and_refuses_a_higher_category,
      in_place_does_not_grow_its_target, out_resizes_only_an_empty_tensor,
      writing_over_part_of_an_operand_is_refused,
      result_adjacent_to_an_operand_is_written,
      kernels_do_not_read_their_own_result, zero_size_and_zero_dim_tensors_work,
      reductions_keep_or_remove_their_dimensions,
      meta_tensors_have_a_shape_and_no_data,
      copy_works_between_devices_and_broadcasts,
      inference_tensor_may_be_changed_only_in_inference_mode,
      out_of_memory_at_every_allocation_leaks_nothing)
