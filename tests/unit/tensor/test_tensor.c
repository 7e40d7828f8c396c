/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define SUITE_FORKS true

#include "support/suite.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>
#include <libcore/tensor.h>

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static core_device *host;

static void start(void)
{
    ck_assert_msg(core__device_host(&host) == CORE_OK, "%s",
                  core_error_message());
}

static core_tensor *counting(core_dtype dtype, uint32_t ndim,
                             const int64_t *sizes)
{
    core_tensor *tensor;
    unsigned char data[4096];
    int64_t numel = 1;

    for (uint32_t d = 0; d < ndim; d++)
        numel *= sizes[d];
    for (int64_t i = 0; i < numel; i++)
        core__element_store(dtype, data + i * core__dtype_size(dtype),
                            core_int(i));
    ck_assert_msg(core_tensor_from_data(data, dtype, sizes, ndim, NULL,
                                        &tensor) == CORE_OK,
                  "%s", core_error_message());
    return tensor;
}

/* ------------------------------------------------------------- creation -- */

START_TEST(new_tensor_has_the_requested_properties)
{
    core_tensor *tensor;

    ck_assert_int_eq(
        core__tensor_new(host, CORE_I16, 3, DIMS(2, 3, 4), NULL, &tensor),
        CORE_OK);
    ck_assert_uint_eq(core_tensor_ndim(tensor), 3);
    ck_assert_int_eq(core_tensor_numel(tensor), 24);
    ck_assert_mem_eq(core_tensor_strides(tensor), DIMS(12, 4, 1), 24);
    ck_assert_uint_eq(core_tensor_dtype(tensor), CORE_I16);
    ck_assert_int_eq(core_tensor_offset(tensor), 0);
    ck_assert_uint_eq(core_tensor_references(tensor), 1);
    ck_assert_uint_eq(core_tensor_version(tensor), 0);
    ck_assert_ptr_null(core_tensor_base(tensor));
    ck_assert_ptr_eq(core_tensor_device(tensor), host);
    ck_assert(core_tensor_is_contiguous(tensor, CORE_FORMAT_CONTIGUOUS));
    ck_assert_int_eq(core_tensor_size(tensor, 0), 2);
    ck_assert_int_eq(core_tensor_size(tensor, -1), 4);
    ck_assert_int_eq(core_tensor_size(tensor, 3), -1);
    ck_assert_int_eq(core_tensor_size(tensor, -4), -1);
    core_tensor_release(tensor);
    core_tensor_release(NULL);
}
END_TEST

static void refused(core_dtype dtype, uint32_t ndim, const int64_t *sizes,
                    core_status expected)
{
    core_tensor *tensor = (core_tensor *)host;

    ck_assert_int_eq(
        core_tensor_from_data("", dtype, sizes, ndim, NULL, &tensor), expected);
    ck_assert_ptr_null(tensor);
    ck_assert_int_eq(core_error_code(), expected);
}

START_TEST(impossible_tensors_are_refused)
{
    int64_t many[33] = {0};

    refused(CORE_F32, 1, DIMS(-1), CORE_ERROR_SHAPE);
    refused(CORE_F32, 2, DIMS(INT64_MAX, 2), CORE_ERROR_SHAPE);
    refused(CORE_F32, 2, DIMS(INT64_C(1) << 40, INT64_C(1) << 40),
            CORE_ERROR_SHAPE);
    refused(CORE_F64, 1, DIMS(INT64_MAX / 4), CORE_ERROR_SHAPE);
    refused(CORE_F32, 33, many, CORE_ERROR_SHAPE);
    refused(CORE_DTYPE_NONE, 1, DIMS(1), CORE_ERROR_INVALID_ARGUMENT);
    refused(CORE_COMPLEX64, 1, DIMS(1), CORE_ERROR_UNSUPPORTED);
    refused(77, 1, DIMS(1), CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(allocation_beyond_all_memory_fails)
{
    core_tensor *tensor;

    ck_assert_int_eq(core__tensor_new(host, CORE_F32, 1, DIMS(INT64_C(1) << 50),
                                      NULL, &tensor),
                     CORE_ERROR_OUT_OF_MEMORY);
    ck_assert_ptr_null(tensor);
}
END_TEST

START_TEST(given_strides_get_a_large_enough_storage)
{
    core_tensor *tensor;

    ck_assert_int_eq(
        core__tensor_new(host, CORE_F32, 2, DIMS(2, 3), DIMS(1, 10), &tensor),
        CORE_OK);
    ck_assert_uint_ge(tensor->storage->size, 22 * 4);
    ck_assert(!core_tensor_is_contiguous(tensor, CORE_FORMAT_CONTIGUOUS));
    core_tensor_release(tensor);
}
END_TEST

START_TEST(many_dimensions_are_stored_outside_the_header)
{
    int64_t sizes[32];
    core_tensor *tensor;
    core_tensor *view;

    for (uint32_t ndim = 0; ndim <= 32; ndim++) {
        for (uint32_t d = 0; d < ndim; d++)
            sizes[d] = 1 + (d == 0);
        tensor = counting(CORE_F32, ndim, sizes);
        ck_assert_int_eq(core__tensor_shallow_copy(tensor, &view), CORE_OK);
        ck_assert_uint_eq(core_tensor_ndim(view), ndim);
        if (ndim)
            ck_assert_mem_eq(core_tensor_sizes(view), sizes, ndim * 8);
        core_tensor_release(tensor);
        core_tensor_release(view);
    }
}
END_TEST

START_TEST(tensors_without_elements_work)
{
    core_tensor *tensor = counting(CORE_F32, 2, DIMS(0, 3));
    char byte = 7;

    ck_assert_int_eq(core_tensor_numel(tensor), 0);
    ck_assert(core_tensor_is_contiguous(tensor, CORE_FORMAT_CONTIGUOUS));
    ck_assert_int_eq(core_tensor_read(tensor, &byte, 0), CORE_OK);
    ck_assert_int_eq(byte, 7);
    ck_assert_int_eq(core_tensor_write(tensor, NULL, 0), CORE_OK);
    core_tensor_release(tensor);
}
END_TEST

/* -------------------------------------------------------------- aliases -- */

START_TEST(views_share_storage_version_and_base)
{
    core_tensor *tensor = counting(CORE_F32, 2, DIMS(3, 4));
    core_tensor *row;
    core_tensor *part;
    float data[2];

    ck_assert_int_eq(core__tensor_view(tensor, 1, DIMS(4), DIMS(1), 4, &row),
                     CORE_OK);
    ck_assert_int_eq(core__tensor_view(row, 1, DIMS(2), DIMS(2), 5, &part),
                     CORE_OK);
    ck_assert(core_tensor_shares_storage(tensor, part));
    ck_assert_ptr_eq(core_tensor_base(row), tensor);
    ck_assert_ptr_eq(core_tensor_base(part), tensor);
    core_tensor_release(row);
    ck_assert_int_eq(core_tensor_read(part, data, sizeof data), CORE_OK);
    ck_assert_float_eq(data[0], 5);
    ck_assert_float_eq(data[1], 7);
    data[0] = 50;
    data[1] = 70;
    ck_assert_int_eq(core_tensor_write(part, data, sizeof data), CORE_OK);
    ck_assert_uint_eq(core_tensor_version(tensor), 1);
    ck_assert_uint_eq(core_tensor_version(part), 1);
    core_tensor_release(tensor);
    ck_assert_int_eq(core_tensor_read(part, data, sizeof data), CORE_OK);
    ck_assert_float_eq(data[1], 70);
    core_tensor_release(part);
}
END_TEST

START_TEST(other_tensors_do_not_share)
{
    core_tensor *a = counting(CORE_F32, 1, DIMS(4));
    core_tensor *b = counting(CORE_F32, 1, DIMS(4));

    ck_assert(core_tensor_shares_storage(a, a));
    ck_assert(!core_tensor_shares_storage(a, b));
    core_tensor_release(a);
    core_tensor_release(b);
}
END_TEST

START_TEST(resizing_keeps_the_tensor_and_discards_the_data)
{
    core_tensor *tensor = counting(CORE_F32, 1, DIMS(2));
    core_tensor *view;

    ck_assert_int_eq(core__tensor_resize(tensor, 2, DIMS(3, 5)), CORE_OK);
    ck_assert_int_eq(core_tensor_numel(tensor), 15);
    ck_assert_mem_eq(core_tensor_strides(tensor), DIMS(5, 1), 16);
    ck_assert_int_eq(
        core__tensor_resize(tensor, 8, DIMS(1, 1, 1, 2, 1, 1, 1, 2)), CORE_OK);
    ck_assert_int_eq(core_tensor_numel(tensor), 4);
    ck_assert_int_eq(core__tensor_resize(tensor, 1, DIMS(3)), CORE_OK);
    ck_assert_mem_eq(core_tensor_strides(tensor), DIMS(1), 8);
    ck_assert_int_eq(core__tensor_resize(tensor, 1, DIMS(-3)),
                     CORE_ERROR_SHAPE);
    ck_assert_int_eq(core_tensor_numel(tensor), 3);
    ck_assert_int_eq(core__tensor_shallow_copy(tensor, &view), CORE_OK);
    ck_assert_int_eq(core__tensor_resize(tensor, 1, DIMS(9)), CORE_ERROR_SHAPE);
    core_tensor_release(view);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(views_record_the_grad_mode_they_were_created_in)
{
    core_tensor *tensor = counting(CORE_F32, 1, DIMS(2));
    core_tensor *view;
    bool mode = core_grad_mode_set(false);
    uint64_t before;

    ck_assert_int_eq(core__tensor_view(tensor, 1, DIMS(1), DIMS(1), 1, &view),
                     CORE_OK);
    ck_assert_uint_ne(view->flags & CORE__TENSOR_VIEW_NO_GRAD, 0);
    core_tensor_release(view);
    core_grad_mode_set(mode);
    before = core_inference_begin();
    ck_assert_int_eq(core__tensor_view(tensor, 1, DIMS(1), DIMS(1), 1, &view),
                     CORE_OK);
    ck_assert_uint_ne(view->flags & CORE__TENSOR_VIEW_INFERENCE, 0);
    ck_assert_uint_eq(view->flags & CORE__TENSOR_INFERENCE, 0);
    ck_assert_uint_eq(view->keys, tensor->keys | CORE__KEYS_VIEW);
    core_tensor_release(view);
    core_tensor_release(tensor);
    tensor = counting(CORE_F32, 1, DIMS(2));
    core_inference_end(before);
    ck_assert_uint_ne(tensor->flags & CORE__TENSOR_INFERENCE, 0);
    ck_assert_int_eq(core__tensor_view(tensor, 1, DIMS(1), DIMS(1), 1, &view),
                     CORE_OK);
    ck_assert_uint_ne(view->flags & CORE__TENSOR_INFERENCE, 0);
    ck_assert_uint_eq(view->keys, tensor->keys);
    core_tensor_release(view);
    core_tensor_release(tensor);
}
END_TEST

/* ---------------------------------------------------------- host memory -- */

static int released;

static void note_release(void *context, void *data)
{
    (void)data;
    released += *(int *)context;
}

START_TEST(memory_of_the_caller_is_used_in_place)
{
    float data[4] = {1, 2, 3, 4};
    int step = 1;
    core_tensor *tensor;
    core_tensor *view;
    void *at;

    ck_assert_int_eq(core_tensor_from_memory(data, CORE_F32, DIMS(2, 2), 2,
                                             note_release, &step, &tensor),
                     CORE_OK);
    ck_assert_int_eq(core_tensor_data(tensor, &at), CORE_OK);
    ck_assert_ptr_eq(at, data);
    ck_assert_int_eq(core__tensor_view(tensor, 1, DIMS(2), DIMS(1), 2, &view),
                     CORE_OK);
    ck_assert_int_eq(core_tensor_data(view, &at), CORE_OK);
    ck_assert_ptr_eq(at, data + 2);
    core_tensor_release(tensor);
    ck_assert_int_eq(released, 0);
    core_tensor_release(view);
    ck_assert_int_eq(released, 1);
}
END_TEST

/* C treats any nonzero byte as true; the byte of a bool tensor is 0 or 1. */
START_TEST(bool_is_stored_as_0_or_1)
{
    static const uint8_t given[4] = {2, 0, 255, 1};
    static const uint8_t truths[4] = {1, 0, 1, 1};
    core_tensor *tensor;
    core_tensor *turned;
    uint8_t bytes[4] = {9, 9, 9, 9};

    ck_assert_int_eq(
        core_tensor_from_data(given, CORE_BOOL, DIMS(2, 2), 2, NULL, &tensor),
        CORE_OK);
    ck_assert_int_eq(core_tensor_read(tensor, bytes, 4), CORE_OK);
    ck_assert_mem_eq(bytes, truths, 4);
    memset(bytes, 0, 4);
    ck_assert_int_eq(core_tensor_write(tensor, bytes, 4), CORE_OK);
    ck_assert_int_eq(
        core__tensor_view(tensor, 2, DIMS(2, 2), DIMS(1, 2), 0, &turned),
        CORE_OK);
    ck_assert_int_eq(core_tensor_write(turned, given, 4), CORE_OK);
    ck_assert_int_eq(core_tensor_read(turned, bytes, 4), CORE_OK);
    ck_assert_mem_eq(bytes, truths, 4);
    ck_assert_mem_eq(given, "\2\0\377\1", 4);
    core_tensor_release(turned);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(memory_is_released_when_the_call_fails)
{
    static float data[4];
    int step = 1;
    int64_t many[40] = {0};
    core_tensor *tensor;

    ck_assert_int_eq(core_tensor_from_memory(data, CORE_F32, DIMS(-1), 1,
                                             note_release, &step, &tensor),
                     CORE_ERROR_SHAPE);
    ck_assert_ptr_null(tensor);
    ck_assert_int_eq(core_tensor_from_memory(data, CORE_F32, many, 40,
                                             note_release, &step, &tensor),
                     CORE_ERROR_SHAPE);
    ck_assert_int_eq(core_tensor_from_memory(data, 77, DIMS(1), 1, note_release,
                                             &step, &tensor),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_tensor_from_memory((char *)data + 1, CORE_F32,
                                             DIMS(1), 1, note_release, &step,
                                             &tensor),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_ptr_null(tensor);
    ck_assert_int_eq(released, 4);
}
END_TEST

START_TEST(reads_and_writes_follow_strides)
{
    core_tensor *tensor = counting(CORE_I32, 2, DIMS(2, 3));
    core_tensor *turned;
    int32_t data[6];
    static const int32_t expected[6] = {0, 3, 1, 4, 2, 5};
    static const int32_t fresh[6] = {10, 11, 12, 13, 14, 15};
    static const int32_t written[6] = {10, 12, 14, 11, 13, 15};

    ck_assert_int_eq(
        core__tensor_view(tensor, 2, DIMS(3, 2), DIMS(1, 3), 0, &turned),
        CORE_OK);
    ck_assert_int_eq(core_tensor_read(turned, data, sizeof data), CORE_OK);
    ck_assert_mem_eq(data, expected, sizeof data);
    ck_assert_int_eq(core_tensor_write(turned, fresh, sizeof fresh), CORE_OK);
    ck_assert_int_eq(core_tensor_read(tensor, data, sizeof data), CORE_OK);
    ck_assert_mem_eq(data, written, sizeof data);
    core_tensor_release(turned);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(wrong_size_is_refused_before_anything_is_written)
{
    core_tensor *tensor = counting(CORE_I32, 1, DIMS(3));
    int32_t data[4] = {9, 9, 9, 9};

    ck_assert_int_eq(core_tensor_read(tensor, data, 16),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_tensor_read(tensor, data, 8),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_tensor_write(tensor, data, 8),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(data[0], 9);
    ck_assert_uint_eq(core_tensor_version(tensor), 0);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(single_elements_are_read_as_numbers)
{
    static const core_dtype all[] = {CORE_F64,  CORE_F32, CORE_F16,
                                     CORE_BF16, CORE_I64, CORE_I32,
                                     CORE_I16,  CORE_I8,  CORE_U8};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        core_tensor *tensor = counting(all[i], 2, DIMS(2, 3));
        core_tensor *one;
        double number;
        int64_t integer;

        ck_assert_int_eq(
            core__tensor_view(tensor, 2, DIMS(1, 1), DIMS(0, 0), 5, &one),
            CORE_OK);
        ck_assert_int_eq(core_tensor_item_float(one, &number), CORE_OK);
        ck_assert_double_eq(number, 5);
        ck_assert_int_eq(core_tensor_item_int(one, &integer),
                         core_dtype_is_floating(all[i]) ? CORE_ERROR_DTYPE
                                                        : CORE_OK);
        ck_assert_int_eq(integer, core_dtype_is_floating(all[i]) ? 0 : 5);
        ck_assert_int_eq(core_tensor_item_float(tensor, &number),
                         CORE_ERROR_SHAPE);
        core_tensor_release(one);
        core_tensor_release(tensor);
    }
}
END_TEST

START_TEST(meta_tensors_have_no_data)
{
    core_device *meta;
    core_tensor *tensor;
    core_scalar value;
    float data[4] = {0};
    void *at;

    ck_assert_int_eq(core_device_find("meta", &meta), CORE_OK);
    ck_assert_int_eq(
        core_tensor_from_data(data, CORE_F32, DIMS(4), 1, meta, &tensor),
        CORE_OK);
    ck_assert_int_eq(core_tensor_read(tensor, data, sizeof data),
                     CORE_ERROR_DATA_DEPENDENT);
    ck_assert_int_eq(core_tensor_data(tensor, &at), CORE_ERROR_DATA_DEPENDENT);
    ck_assert_ptr_null(at);
    ck_assert(!core_tensor_shares_storage(tensor, tensor));
    core_tensor_release(tensor);
    ck_assert_int_eq(
        core_tensor_from_data(NULL, CORE_F32, NULL, 0, meta, &tensor), CORE_OK);
    ck_assert_int_eq(core_tensor_item(tensor, &value),
                     CORE_ERROR_DATA_DEPENDENT);
    core_tensor_release(tensor);
}
END_TEST

/* ------------------------------------------------------------ ownership -- */

/* Compares a slice of x with its expected elements and contiguity. */
static void check_slice(core_tensor *x, int64_t dim, int64_t first, int64_t end,
                        int64_t step)
{
    int64_t count = (end - first + step - 1) / step, numel = 1, expected = 1;
    bool contiguous = true;
    core_tensor *y;

    ck_assert_int_eq(core_slice(x, dim, &first, &end, step, &y), CORE_OK);
    for (uint32_t d = x->ndim; d-- > 0;) {
        ck_assert_int_eq(y->sizes[d], d == dim ? count : x->sizes[d]);
        ck_assert_int_eq(y->strides[d],
                         d == dim ? x->strides[d] * step : x->strides[d]);
        numel *= y->sizes[d];
        contiguous &= y->sizes[d] == 1 || y->strides[d] == expected;
        expected *= y->sizes[d];
    }
    ck_assert_int_eq(y->offset, x->offset + first * x->strides[dim]);
    ck_assert_int_eq(core_tensor_numel(y), numel);
    ck_assert_int_eq(core_tensor_is_contiguous(y, CORE_FORMAT_CONTIGUOUS),
                     contiguous || numel == 0);
    core_tensor_release(y);
}

/* Slices of x that its sizes, all below 4, allow. */
static void check_slices(core_tensor *x)
{
    for (int64_t dim = 0; dim < x->ndim; dim++)
        for (int64_t first = 0; first <= x->sizes[dim]; first++)
            for (int64_t end = first; end <= x->sizes[dim]; end++)
                for (int64_t step = 1; step < 4; step++)
                    check_slice(x, dim, first, end, step);
}

START_TEST(slices_have_the_elements_of_their_bounds)
{
    for (int shape = 0; shape < 64; shape++) {
        int64_t sizes[] = {shape % 4, shape / 4 % 4, shape / 16};
        core_tensor *x = counting(CORE_F32, 3, sizes), *y;

        check_slices(x);
        ck_assert_int_eq(core_transpose(x, 0, 2, &y), CORE_OK);
        check_slices(y);
        core_tensor_release(y);
        core_tensor_release(x);
        x = counting(CORE_F32, 1, sizes);
        check_slices(x);
        core_tensor_release(x);
    }
}
END_TEST

START_TEST(released_values_have_no_tensor)
{
    core_tensor *tensor = counting(CORE_F32, 1, DIMS(2));
    core_tensor **list = core__alloc(2 * sizeof *list);
    core_value value = {CORE_VALUE_TENSOR, 0, {.tensor = tensor}};

    core_tensor_retain(tensor);
    core_value_release(&value);
    ck_assert_uint_eq(value.tag, CORE_VALUE_NONE);
    ck_assert_uint_eq(core_tensor_references(tensor), 1);
    list[0] = core_tensor_retain(tensor);
    list[1] = NULL;
    value = (core_value){CORE_VALUE_TENSOR_LIST, 2, {.tensors = list}};
    core_value_release(&value);
    ck_assert_uint_eq(core_tensor_references(tensor), 1);
    value = (core_value){CORE_VALUE_INT, 0, {5}};
    core_value_release(&value);
    ck_assert_uint_eq(value.tag, CORE_VALUE_NONE);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(out_of_memory_sets_null_and_leaks_nothing)
{
    int64_t sizes[8] = {1, 1, 1, 1, 1, 1, 1, 2};
    float data[2] = {1, 2};
    core_tensor *tensor = counting(CORE_F32, 8, sizes);
    int64_t live;
    int tries = 0;

    core_tensor_release(tensor);
    core__alloc_fault_set(1 << 30, false); /* free lists off */
    live = core__alloc_live();
    for (;; tries++) {
        core_status status;

        ck_assert_int_lt(tries, 50);
        tensor = (core_tensor *)data;
        core__alloc_fault_set(tries, true);
        status = core_tensor_from_data(data, CORE_F32, sizes, 8, host, &tensor);
        core__alloc_fault_set(1 << 30, false);
        if (status == CORE_OK)
            break;
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_ptr_null(tensor);
        ck_assert_int_eq(core__alloc_live(), live);
    }
    ck_assert_int_ge(tries, 3);
    core_tensor_release(tensor);
    ck_assert_int_eq(core__alloc_live(), live);
    core__alloc_fault_set(-1, false);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        new_tensor_has_the_requested_properties,
        impossible_tensors_are_refused,
        bool_is_stored_as_0_or_1,
        allocation_beyond_all_memory_fails,
        given_strides_get_a_large_enough_storage,
        many_dimensions_are_stored_outside_the_header,
        tensors_without_elements_work,
        views_share_storage_version_and_base,
        other_tensors_do_not_share,
        resizing_keeps_the_tensor_and_discards_the_data,
        views_record_the_grad_mode_they_were_created_in,
        memory_of_the_caller_is_used_in_place,
        memory_is_released_when_the_call_fails,
        reads_and_writes_follow_strides,
        wrong_size_is_refused_before_anything_is_written,
        single_elements_are_read_as_numbers,
        meta_tensors_have_no_data,
        slices_have_the_elements_of_their_bounds,
        released_values_have_no_tensor,
        out_of_memory_sets_null_and_leaks_nothing,
    };
    const test_suite suite = {
        .name = "tensor/tensor",
        .setup = start,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
