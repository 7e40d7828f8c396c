/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include <libcore/autograd.h>
#include <libcore/dlpack.h>
#include <libcore/ops.h>

#include "base/memory.h"
#include "base/thread.h"
#include "support/dlpack.h"
#include "support/suite.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

/* --------------------------------------------------------------- export -- */

START_TEST(every_dtype_round_trips_without_copy)
{
    static const struct {
        core_dtype dtype;
        core_dlpack_dtype as;
    } known[] = {
        {CORE_F64, {2, 64, 1}},    {CORE_F32, {2, 32, 1}},
        {CORE_F16, {2, 16, 1}},    {CORE_BF16, {4, 16, 1}},
        {CORE_I64, {0, 64, 1}},    {CORE_I32, {0, 32, 1}},
        {CORE_I16, {0, 16, 1}},    {CORE_I8, {0, 8, 1}},
        {CORE_U8, {1, 8, 1}},      {CORE_BOOL, {6, 8, 1}},
        {CORE_F8E4M3, {10, 8, 1}}, {CORE_F8E5M2, {12, 8, 1}},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        core_tensor *tensor, *back;
        core_dlpack_managed *managed;
        void *here, *there;

        OK(core_zeros(two_three, 2, known[i].dtype, cpu, &tensor));
        OK(core_dlpack_export(tensor, 0, CORE_DLPACK_STREAM_NONE, &managed));
        ck_assert_uint_eq(managed->major, 1);
        ck_assert_uint_eq(managed->minor, 3);
        ck_assert_uint_eq(managed->flags, 0);
        ck_assert_mem_eq(&managed->tensor.dtype, &known[i].as, 4);
        ck_assert_int_eq(managed->tensor.device.type, CORE_DLPACK_CPU);
        ck_assert_int_eq(managed->tensor.ndim, 2);
        ck_assert_mem_eq(managed->tensor.shape, two_three, sizeof two_three);
        ck_assert_int_eq(managed->tensor.strides[0], 3);
        OK(core_tensor_data(tensor, &here));
        ck_assert_ptr_eq(
            (char *)managed->tensor.data + managed->tensor.byte_offset, here);
        core_tensor_release(tensor);
        OK(core_dlpack_import(managed, NULL, NULL, &back));
        OK(core_tensor_data(back, &there));
        ck_assert_ptr_eq(here, there);
        ck_assert_uint_eq(core_tensor_dtype(back), known[i].dtype);
        core_tensor_release(back);
    }
    ck_assert_int_eq(core__thread_storages(1) + core__thread_storages(0) +
                         core__thread_storages(2),
                     0);
}
END_TEST

START_TEST(exported_view_has_its_strides_and_offset)
{
    const int64_t sizes[2] = {4, 6};
    core_tensor *base, *turned, *part;
    core_dlpack_managed *managed;
    char *all;
    void *first;

    OK(core_zeros(sizes, 2, CORE_F32, cpu, &base));
    OK(core_transpose(base, 0, 1, &turned));
    OK(core_narrow(turned, 0, 2, 3, &part));
    OK(core_dlpack_export(part, 0, CORE_DLPACK_STREAM_NONE, &managed));
    OK(core_tensor_data(base, &first));
    all = first;
    ck_assert_ptr_eq((char *)managed->tensor.data + managed->tensor.byte_offset,
                     all + 8);
    ck_assert_int_eq(managed->tensor.shape[0], 3);
    ck_assert_int_eq(managed->tensor.shape[1], 4);
    ck_assert_int_eq(managed->tensor.strides[0], 1);
    ck_assert_int_eq(managed->tensor.strides[1], 6);
    core_tensor_release(part);
    core_tensor_release(turned);
    core_tensor_release(base);
    managed->deleter(managed);
}
END_TEST

START_TEST(scalars_and_empty_tensors_round_trip)
{
    const int64_t none[3] = {2, 0, 3};
    core_tensor *tensor, *back;
    core_dlpack_managed *managed;
    double value;

    OK(core_tensor_from_data(&(float){2.5f}, CORE_F32, NULL, 0, cpu, &tensor));
    OK(core_dlpack_export(tensor, 0, CORE_DLPACK_STREAM_NONE, &managed));
    ck_assert_int_eq(managed->tensor.ndim, 0);
    OK(core_dlpack_import(managed, NULL, NULL, &back));
    OK(core_tensor_item_float(back, &value));
    ck_assert_double_eq(value, 2.5);
    core_tensor_release(tensor);
    core_tensor_release(back);

    OK(core_zeros(none, 3, CORE_I64, cpu, &tensor));
    OK(core_dlpack_export(tensor, 0, CORE_DLPACK_STREAM_NONE, &managed));
    OK(core_dlpack_import(managed, NULL, NULL, &back));
    ck_assert_int_eq(core_tensor_numel(back), 0);
    ck_assert_int_eq(core_tensor_size(back, 2), 3);
    core_tensor_release(tensor);
    core_tensor_release(back);
}
END_TEST

START_TEST(exported_tensor_outlives_its_owner_and_is_freed_in_any_thread)
{
    core_tensor *tensor;
    core_dlpack_managed *managed;
    pthread_t thread;
    float *data;

    OK(core_ones(two_three, 2, CORE_F32, cpu, &tensor));
    OK(core_dlpack_export(tensor, 0, CORE_DLPACK_STREAM_NONE, &managed));
    core_tensor_release(tensor);
    data = managed->tensor.data;
    ck_assert_float_eq(data[5], 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, delete_it, managed), 0);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(copied_export_has_own_memory_and_flag)
{
    core_tensor *tensor;
    core_dlpack_managed *managed;
    void *data;

    OK(core_ones(two_three, 2, CORE_F32, cpu, &tensor));
    OK(core_dlpack_export(tensor, CORE_DLPACK_COPIED, CORE_DLPACK_STREAM_NONE,
                          &managed));
    ck_assert_uint_eq(managed->flags, CORE_DLPACK_COPIED);
    OK(core_tensor_data(tensor, &data));
    ck_assert_ptr_ne(managed->tensor.data, data);
    managed->deleter(managed);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(unversioned_layout_round_trips)
{
    core_tensor *tensor, *back;
    core_dlpack_unversioned *managed;

    OK(core_ones(two_three, 2, CORE_BF16, cpu, &tensor));
    OK(core_dlpack_export_unversioned(tensor, 0, CORE_DLPACK_STREAM_NONE,
                                      &managed));
    OK(core_dlpack_import_unversioned(managed, NULL, NULL, &back));
    ck_assert_uint_eq(core_tensor_dtype(back), CORE_BF16);
    core_tensor_release(back);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(unexportable_tensors_are_refused)
{
    core_tensor *leaf, *shape;
    core_device *meta;
    core_dlpack_managed *managed = (core_dlpack_managed *)two_three;
    core_dlpack_unversioned *older;

    OK(core_ones(two_three, 2, CORE_F32, cpu, &leaf));
    failed(core_dlpack_export(leaf, 8, 0, &managed),
           CORE_ERROR_INVALID_ARGUMENT,
           "flags are 0x8; accepted: CORE_DLPACK_READ_ONLY");
    failed(core_dlpack_export(leaf, CORE_DLPACK_SUBBYTE_PADDED, 0, &managed),
           CORE_ERROR_INVALID_ARGUMENT,
           "flags are 0x4; accepted: CORE_DLPACK_READ_ONLY");
    failed(
        core_dlpack_export_unversioned(leaf, CORE_DLPACK_READ_ONLY, 0, &older),
        CORE_ERROR_REFUSED, "unversioned");
    OK(core_tensor_set_requires_grad(leaf, true));
    failed(core_dlpack_export(leaf, 0, 0, &managed), CORE_ERROR_AUTOGRAD,
           "requires grad");
    ck_assert_ptr_null(managed);
    OK(core_device_find("meta", &meta));
    OK(core_ones(two_three, 2, CORE_F32, meta, &shape));
    failed(core_dlpack_export(shape, 0, 0, &managed), CORE_ERROR_UNSUPPORTED,
           "no memory to share");
    failed(core_dlpack_export(NULL, 0, 0, &managed),
           CORE_ERROR_INVALID_ARGUMENT, "tensor");
    failed(core_dlpack_export(leaf, 0, 0, NULL), CORE_ERROR_INVALID_ARGUMENT,
           "out_managed");
    core_tensor_release(leaf);
    core_tensor_release(shape);
}
END_TEST

/* --------------------------------------------------------------- import -- */

START_TEST(imported_memory_is_used_in_place_and_deleted_once)
{
    float data[6] = {1, 2, 3, 4, 5, 6};
    foreign f = describe(data, 2, two_three, NULL);
    core_tensor *tensor, *view, *sum;
    double value;

    OK(take(&f, false, &tensor));
    OK(core_add_scalar_(tensor, core_float(1), core_int(1)));
    ck_assert_float_eq(data[0], 2);
    OK(core_narrow(tensor, 1, 2, 1, &view));
    core_tensor_release(tensor);
    ck_assert_int_eq(atomic_load(&deleted), 0);
    OK(core_sum(view, CORE_DTYPE_NONE, &sum));
    OK(core_tensor_item_float(sum, &value));
    ck_assert_double_eq(value, 4 + 7);
    core_tensor_release(view);
    ck_assert_int_eq(atomic_load(&deleted), 1);
    core_tensor_release(sum);
}
END_TEST

START_TEST(import_honors_arbitrary_strides_and_offsets)
{
    float data[20];
    const int64_t strides[2] = {7, 3};
    foreign f = describe(data, 2, two_three, strides);
    float read[6];
    core_tensor *tensor;

    for (int i = 0; i < 20; i++)
        data[i] = (float)i;
    f.managed.tensor.byte_offset = 8;
    OK(take(&f, true, &tensor));
    OK(core_tensor_read(tensor, read, sizeof read));
    ck_assert_float_eq(read[0], 2);
    ck_assert_float_eq(read[2], 8);
    ck_assert_float_eq(read[5], 15);
    core_tensor_release(tensor);

    /* A stride of 0 repeats the first row. */
    f = describe(data, 2, two_three, (int64_t[]){0, 1});
    OK(take(&f, true, &tensor));
    OK(core_tensor_read(tensor, read, sizeof read));
    ck_assert_float_eq(read[4], 1);
    core_tensor_release(tensor);
    ck_assert_int_eq(atomic_load(&deleted), 2);
}
END_TEST

START_TEST(strides_of_dimensions_of_size_one_or_zero_are_ignored)
{
    float data[3] = {1, 2, 3};
    const int64_t shape[3] = {1, 3, 1};
    const int64_t strides[3] = {-5, 1, INT64_MIN};
    foreign f = describe(data, 3, shape, strides);
    core_tensor *tensor;

    OK(take(&f, true, &tensor));
    ck_assert(core_tensor_is_contiguous(tensor, CORE_FORMAT_CONTIGUOUS));
    core_tensor_release(tensor);

    f = describe(NULL, 2, (int64_t[]){0, 3}, (int64_t[]){-1, -1});
    OK(take(&f, true, &tensor));
    ck_assert_int_eq(core_tensor_numel(tensor), 0);
    core_tensor_release(tensor);
    ck_assert_int_eq(atomic_load(&deleted), 2);
}
END_TEST

START_TEST(missing_deleter_is_accepted)
{
    float data[6] = {0};
    foreign f = describe(data, 2, two_three, NULL);
    core_dlpack_unversioned older = {.tensor = f.managed.tensor};
    core_tensor *tensor;

    f.managed.deleter = NULL;
    OK(take(&f, false, &tensor));
    core_tensor_release(tensor);
    older.tensor.shape = f.shape;
    OK(core_dlpack_import_unversioned(&older, NULL, NULL, &tensor));
    core_tensor_release(tensor);
    older.deleter = count_deletion_unversioned;
    OK(core_dlpack_import_unversioned(&older, NULL, NULL, &tensor));
    ck_assert_int_eq(atomic_load(&deleted), 0);
    core_tensor_release(tensor);
    ck_assert_int_eq(atomic_load(&deleted), 1);
}
END_TEST

START_TEST(pinned_host_memory_is_imported_on_cpu)
{
    float data[6] = {0};
    foreign f = describe(data, 2, two_three, NULL);
    core_tensor *tensor;

    f.managed.tensor.device = (core_dlpack_device){CORE_DLPACK_CUDA_HOST, 3};
    OK(take(&f, false, &tensor));
    ck_assert_ptr_eq(core_tensor_device(tensor), cpu);
    core_tensor_release(tensor);
}
END_TEST

START_TEST(imported_tensor_may_be_released_in_another_thread)
{
    float data[6] = {0};
    foreign f = describe(data, 2, two_three, NULL);
    core_tensor *tensor;
    pthread_t thread;

    OK(take(&f, false, &tensor));
    ck_assert_int_eq(pthread_create(&thread, NULL, release_it, tensor), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(atomic_load(&deleted), 1);
}
END_TEST

/* ------------------------------------------------------------ read-only -- */

START_TEST(read_only_memory_refuses_changes)
{
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    float here[6];
    foreign f = describe((void *)(uintptr_t)data, 2, two_three, NULL);
    core_tensor *tensor, *view, *detached, *sum, *copy;
    core_dlpack_managed *again;

    f.managed.flags = CORE_DLPACK_READ_ONLY;
    OK(take(&f, false, &tensor));
    ck_assert(core_tensor_is_read_only(tensor));
    failed(core_add_scalar_(tensor, core_float(1), core_int(1)),
           CORE_ERROR_REFUSED, "add_.Scalar: the tensor's memory");
    failed(core_tensor_write(tensor, data, sizeof data), CORE_ERROR_REFUSED,
           "read-only");
    failed(core_sqrt_out(tensor, tensor), CORE_ERROR_REFUSED, "read-only");
    OK(core_transpose(tensor, 0, 1, &view));
    failed(core_zero_(view), CORE_ERROR_REFUSED, "zero_");
    OK(core_detach(tensor, &detached));
    failed(core_zero_(detached), CORE_ERROR_REFUSED, "zero_");
    OK(core_add(tensor, tensor, core_int(1), &sum));
    ck_assert(!core_tensor_is_read_only(sum));
    OK(core_clone(tensor, -1, &copy));
    OK(core_zero_(copy));
    OK(core_tensor_read(tensor, here, sizeof here));
    ck_assert_float_eq(here[5], 6);

    OK(core_dlpack_export(view, 0, CORE_DLPACK_STREAM_NONE, &again));
    ck_assert_uint_eq(again->flags, CORE_DLPACK_READ_ONLY);
    again->deleter(again);
    core_tensor_release(tensor);
    core_tensor_release(view);
    core_tensor_release(detached);
    core_tensor_release(sum);
    core_tensor_release(copy);
    ck_assert_int_eq(atomic_load(&deleted), 1);
}
END_TEST

START_TEST(read_only_memory_refuses_changes_in_inference_mode)
{
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    foreign f = describe((void *)(uintptr_t)data, 2, two_three, NULL);
    core_tensor *tensor, *view;
    uint64_t before = core_inference_begin();

    f.managed.flags = CORE_DLPACK_READ_ONLY;
    OK(take(&f, false, &tensor));
    failed(core_zero_(tensor), CORE_ERROR_REFUSED, "zero_");
    OK(core_detach(tensor, &view));
    failed(core_zero_(view), CORE_ERROR_REFUSED, "zero_");
    core_inference_end(before);
    core_tensor_release(tensor);
    core_tensor_release(view);
}
END_TEST

/* ------------------------------------------------------------ bad input -- */

START_TEST(unsupported_dtypes_are_refused)
{
    static const struct {
        core_dlpack_dtype dtype;
        const char *text;
    } bad[] = {
        {{CORE_DLPACK_FLOAT, 32, 4}, "4 lanes"},
        {{CORE_DLPACK_FLOAT, 32, 0}, "0 lanes"},
        {{CORE_DLPACK_COMPLEX, 64, 1}, "code 5 and 64"},
        {{CORE_DLPACK_UINT, 32, 1}, "code 1 and 32"},
        {{CORE_DLPACK_HANDLE, 64, 1}, "code 3"},
        {{13, 8, 1}, "code 13"},
        {{CORE_DLPACK_BOOL, 1, 1}, "and 1 bits"},
        {{CORE_DLPACK_INT, 4, 1}, "code 0 and 4"},
        {{17, 4, 1}, "code 17"}, /* float4_e2m1fn */
        {{255, 255, 65535}, "65535 lanes"},
    };
    float data[6];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        foreign f = describe(data, 2, two_three, NULL);

        f.managed.tensor.dtype = bad[i].dtype;
        refuses(&f, false, CORE_ERROR_UNSUPPORTED, bad[i].text);
        f = describe(data, 2, two_three, NULL);
        f.managed.tensor.dtype = bad[i].dtype;
        f.managed.flags = CORE_DLPACK_SUBBYTE_PADDED;
        refuses(&f, false, CORE_ERROR_UNSUPPORTED, bad[i].text);
    }
}
END_TEST

START_TEST(other_major_versions_are_refused_and_deleted)
{
    float data[6];
    foreign f = describe(data, 2, two_three, NULL);
    core_tensor *tensor;

    f.managed.major = 2;
    f.managed.tensor.ndim = INT_MAX; /* must not be read */
    refuses(&f, false, CORE_ERROR_INCOMPATIBLE, "version 2.7");
    f = describe(data, 2, two_three, NULL);
    f.managed.major = 0;
    refuses(&f, false, CORE_ERROR_INCOMPATIBLE, "version 0.7");
    f = describe(data, 2, two_three, NULL);
    f.managed.minor = 4000;
    f.managed.flags = UINT64_MAX & ~(uint64_t)CORE_DLPACK_READ_ONLY;
    OK(take(&f, false, &tensor));
    core_tensor_release(tensor);
}
END_TEST

START_TEST(invalid_shapes_and_strides_are_refused)
{
    static const int64_t large[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
    static const int64_t wide[2] = {3, INT64_MAX / 2};
    static const int64_t ones[CORE_MAX_NDIM + 1] = {0};
    float data[6];
    foreign f = describe(data, -1, NULL, NULL);

    refuses(&f, false, CORE_ERROR_SHAPE, "-1 dimensions");
    f = describe(data, CORE_MAX_NDIM + 1, ones, NULL);
    refuses(&f, false, CORE_ERROR_SHAPE, "33 dimensions");
    f = describe(data, 2, two_three, NULL);
    f.managed.tensor.ndim = INT_MAX;
    refuses(&f, false, CORE_ERROR_SHAPE, "2147483647 dimensions");
    f = describe(data, 2, (int64_t[]){2, -3}, NULL);
    refuses(&f, false, CORE_ERROR_SHAPE, "dimension 1 is -3");
    f = describe(data, 2, large, NULL);
    refuses(&f, false, CORE_ERROR_SHAPE, "more bytes than");
    f = describe(data, 2, two_three, wide);
    refuses(&f, true, CORE_ERROR_SHAPE, "more bytes than");
    f = describe(data, 1, (int64_t[]){INT64_MAX / 4}, NULL);
    refuses(&f, false, CORE_ERROR_SHAPE, "more bytes than");
    f = describe(data, 2, two_three, (int64_t[]){-3, 1});
    refuses(&f, true, CORE_ERROR_UNSUPPORTED, "dimension 0 is -3");
    f = describe(data, 2, two_three, NULL);
    ck_assert_ptr_null(f.managed.tensor.shape);
    failed(core_dlpack_import(&f.managed, NULL, NULL, &(core_tensor *){NULL}),
           CORE_ERROR_INVALID_ARGUMENT, "shape is NULL");
}
END_TEST

START_TEST(null_or_misaligned_memory_is_refused)
{
    _Alignas(16) char data[64];
    foreign f = describe(NULL, 2, two_three, NULL);

    refuses(&f, false, CORE_ERROR_INVALID_ARGUMENT,
            "data is NULL, but the tensor has 6");
    f = describe(data + 1, 2, two_three, NULL);
    refuses(&f, false, CORE_ERROR_INVALID_ARGUMENT, "not a multiple of 4");
    f = describe(data, 2, two_three, NULL);
    f.managed.tensor.byte_offset = 2;
    refuses(&f, false, CORE_ERROR_INVALID_ARGUMENT, "not a multiple of 4");
    f = describe(data, 2, two_three, NULL);
    f.managed.tensor.byte_offset = UINT64_MAX - 3;
    refuses(&f, false, CORE_ERROR_SHAPE, "byte_offset is 18446744073709551612");
}
END_TEST

/* Each number at the end of its range, alone and with the others. */
START_TEST(numbers_beyond_all_memory_are_refused)
{
    static const uint64_t offsets[] = {
        UINT64_C(1) << 63, (UINT64_C(1) << 63) + 4, (UINT64_C(1) << 63) - 4,
        (UINT64_C(1) << 63) - 24 + 4};
    static const int64_t still[2] = {0, 0};
    _Alignas(16) char data[64] = {0};
    core_tensor *tensor;
    foreign f;

    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        f = describe(data, 2, two_three, NULL);
        f.managed.tensor.byte_offset = offsets[i];
        refuses(&f, false, CORE_ERROR_SHAPE, "byte_offset is 92233720368");
    }
    f = describe(NULL, 1, still, NULL);
    f.managed.tensor.byte_offset = UINT64_C(1) << 63;
    refuses(&f, false, CORE_ERROR_SHAPE, "byte_offset is 9223372036854775808");
    /* Elements that share memory count, too. */
    f = describe(data, 2, (int64_t[]){INT64_C(1) << 31, INT64_C(1) << 31},
                 still);
    refuses(&f, true, CORE_ERROR_SHAPE, "more bytes than");
    f = describe(data, 2, (int64_t[]){0, INT64_MAX}, still);
    refuses(&f, true, CORE_ERROR_SHAPE, "more bytes than");
    f = describe(data, 2, (int64_t[]){2, 2}, (int64_t[]){INT64_MAX, INT64_MAX});
    refuses(&f, true, CORE_ERROR_SHAPE, "more bytes than");
    f = describe(data, 2, two_three, NULL);
    f.managed.tensor.byte_offset = 8;
    OK(take(&f, false, &tensor));
    core_tensor_release(tensor);
}
END_TEST

START_TEST(missing_devices_are_refused)
{
    float data[6];
    foreign f = describe(data, 2, two_three, NULL);
    core_tensor *tensor;

    f.managed.tensor.device.type = CORE_DLPACK_METAL;
    refuses(&f, false, CORE_ERROR_NOT_FOUND, "metal");
    f = describe(data, 2, two_three, NULL);
    f.managed.tensor.device.type = 99;
    refuses(&f, false, CORE_ERROR_UNSUPPORTED, "type 99");
    f = describe(data, 2, two_three, NULL);
    f.managed.tensor.device.type = CORE_DLPACK_EXTENSION;
    refuses(&f, false, CORE_ERROR_DEVICE, "must pass");
    f = describe(data, 2, two_three, NULL);
    f.managed.tensor.device.index = -1;
    refuses(&f, false, CORE_ERROR_INVALID_ARGUMENT, "cpu:-1");
    f = describe(data, 2, two_three, NULL);
    f.managed.tensor.shape = f.shape;
    f.managed.tensor.device.type = CORE_DLPACK_VULKAN;
    failed(core_dlpack_import(&f.managed, cpu, NULL, &tensor),
           CORE_ERROR_DEVICE, "device 7:0, which is not");
    failed(core_dlpack_import(NULL, NULL, NULL, &tensor),
           CORE_ERROR_INVALID_ARGUMENT, "managed");
}
END_TEST

START_TEST(failed_allocation_deletes_the_import)
{
    for (int64_t allowed = 0;; allowed++) {
        float data[6] = {0};
        foreign f = describe(data, 2, two_three, NULL);
        int before = atomic_load(&deleted);
        core_tensor *tensor;
        core_status status;

        core__alloc_fault_set(allowed, true);
        status = take(&f, false, &tensor);
        core__alloc_fault_set(-1, false);
        if (status == CORE_OK) {
            ck_assert_int_eq(atomic_load(&deleted), before);
            core_tensor_release(tensor);
            ck_assert_int_gt(allowed, 2);
            return;
        }
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        ck_assert_int_eq(atomic_load(&deleted), before + 1);
    }
}
END_TEST

START_TEST(round_trips_leak_no_memory)
{
    int64_t before = 0;

    for (int round = 0; round < 20; round++) {
        float data[6] = {0};
        foreign f = describe(data, 2, two_three, NULL);
        core_tensor *tensor, *back;
        core_dlpack_managed *managed;

        OK(take(&f, false, &tensor));
        OK(core_dlpack_export(tensor, 0, CORE_DLPACK_STREAM_NONE, &managed));
        core_tensor_release(tensor);
        OK(core_dlpack_import(managed, NULL, NULL, &back));
        core_tensor_release(back);
        ck_assert_int_eq(atomic_load(&deleted), round + 1);
        if (round == 0)
            before = core__alloc_live();
    }
    ck_assert_int_eq(core__alloc_live(), before);
}
END_TEST

/* --------------------------------------------------------- other devices -- */

START_TEST(device_of_plugin_is_exported_as_extension)
{
    core_device *sim;
    core_tensor *tensor, *back;
    core_dlpack_managed *managed;
    float read[6];
    int64_t stream;

    OK(core_device_find("sim", &sim));
    OK(core_ones(two_three, 2, CORE_F32, sim, &tensor));
    failed(core_dlpack_export(tensor, 0, -7, &managed),
           CORE_ERROR_INVALID_ARGUMENT, "-7 is not a stream of");
    OK(core_dlpack_export(tensor, 0, CORE_DLPACK_STREAM_NONE, &managed));
    ck_assert_int_eq(managed->tensor.device.type, CORE_DLPACK_EXTENSION);
    OK(core_dlpack_import(managed, sim, NULL, &back));
    ck_assert_ptr_eq(core_tensor_device(back), sim);
    OK(core_add_scalar_(back, core_float(1), core_int(1)));
    OK(core_tensor_read(tensor, read, sizeof read));
    ck_assert_float_eq(read[5], 2);
    core_tensor_release(tensor);
    core_tensor_release(back);
    OK(core_dlpack_stream(cpu, NULL, &stream));
    ck_assert_int_eq(stream, CORE_DLPACK_STREAM_NONE);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        every_dtype_round_trips_without_copy,
        exported_view_has_its_strides_and_offset,
        scalars_and_empty_tensors_round_trip,
        exported_tensor_outlives_its_owner_and_is_freed_in_any_thread,
        copied_export_has_own_memory_and_flag,
        unversioned_layout_round_trips,
        unexportable_tensors_are_refused,
        imported_memory_is_used_in_place_and_deleted_once,
        import_honors_arbitrary_strides_and_offsets,
        strides_of_dimensions_of_size_one_or_zero_are_ignored,
        missing_deleter_is_accepted,
        pinned_host_memory_is_imported_on_cpu,
        imported_tensor_may_be_released_in_another_thread,
        read_only_memory_refuses_changes,
        read_only_memory_refuses_changes_in_inference_mode,
        unsupported_dtypes_are_refused,
        other_major_versions_are_refused_and_deleted,
        invalid_shapes_and_strides_are_refused,
        null_or_misaligned_memory_is_refused,
        numbers_beyond_all_memory_are_refused,
        missing_devices_are_refused,
        failed_allocation_deletes_the_import,
        round_trips_leak_no_memory,
        device_of_plugin_is_exported_as_extension,
    };
    const test_suite suite = {
        .name = "dlpack/dlpack",
        .setup = set_up,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
