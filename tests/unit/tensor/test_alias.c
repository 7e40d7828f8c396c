/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_tensor_alias and core_tensor_memory. */

#include "support/sim_device.h"
#include "support/stream.h"

#include <libcore/memory.h>

#include <string.h>

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static core_device *cpu;

static void start(void)
{
    cpu = device_of("cpu");
}

/* An untyped storage. */
static core_tensor *bytes_on(core_device *device, int64_t count)
{
    core_tensor *storage;

    OK(core_empty(&count, 1, CORE_U8, device, CORE_FORMAT_CONTIGUOUS,
                  &storage));
    return keep(storage);
}

static core_tensor *alias(core_tensor *storage, core_dtype dtype,
                          const int64_t *sizes, const int64_t *strides,
                          size_t ndim, int64_t offset)
{
    core_tensor *tensor;

    OK(core_tensor_alias(storage, dtype, sizes, strides, ndim, offset,
                         &tensor));
    return keep(tensor);
}

static void refused(core_tensor *storage, core_dtype dtype,
                    const int64_t *sizes, const int64_t *strides, size_t ndim,
                    int64_t offset, core_status expected)
{
    core_tensor *tensor = storage;

    ck_assert_int_eq(core_tensor_alias(storage, dtype, sizes, strides, ndim,
                                       offset, &tensor),
                     expected);
    ck_assert_ptr_null(tensor);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "core_tensor_alias"));
}

START_TEST(alias_reads_the_bytes_with_another_dtype)
{
    core_tensor *storage = bytes_on(cpu, 24);
    core_tensor *all = alias(storage, CORE_F32, DIMS(6), DIMS(1), 1, 0);
    core_tensor *part = alias(storage, CORE_F32, DIMS(2, 2), DIMS(1, 2), 2, 2);
    const float values[] = {0, 1, 2, 3, 4, 5}, expected[] = {2, 4, 3, 5};
    float have[4];

    OK(core_tensor_write(all, values, sizeof values));
    OK(core_tensor_read(part, have, sizeof have));
    ck_assert_mem_eq(have, expected, sizeof have);
    ck_assert(core_tensor_shares_storage(all, part));
    ck_assert_int_eq(core_tensor_offset(part), 2);
    ck_assert_ptr_null(core_tensor_base(part));
}
END_TEST

START_TEST(alias_keeps_the_memory_alive)
{
    const int64_t count = 4096;
    core_tensor *storage, *tensor;

    OK(core_empty(&count, 1, CORE_U8, cpu, CORE_FORMAT_CONTIGUOUS, &storage));
    OK(core_tensor_alias(storage, CORE_F32, DIMS(1024), DIMS(1), 1, 0,
                         &tensor));
    core_tensor_release(storage);
    OK(core_fill_(tensor, core_float(3)));
    all_are(keep(tensor), 3);
}
END_TEST

START_TEST(changes_of_an_alias_count_for_the_storage)
{
    core_tensor *storage = bytes_on(cpu, 16);
    core_tensor *one = alias(storage, CORE_F32, DIMS(4), DIMS(1), 1, 0);
    core_tensor *other = alias(storage, CORE_I32, DIMS(4), DIMS(1), 1, 0);
    uint32_t before = core_tensor_version(other);

    OK(core_fill_(one, core_float(1)));
    ck_assert_uint_eq(core_tensor_version(other), before + 1);
}
END_TEST

START_TEST(alias_in_inference_mode_is_an_ordinary_tensor)
{
    core_tensor *storage = bytes_on(cpu, 16), *tensor;
    uint64_t modes = core_inference_begin();

    tensor = alias(storage, CORE_F32, DIMS(4), DIMS(1), 1, 0);
    core_inference_end(modes);
    OK(core_tensor_set_requires_grad(tensor, true));
}
END_TEST

START_TEST(alias_without_elements_needs_no_memory)
{
    core_tensor *storage = bytes_on(cpu, 0);

    alias(storage, CORE_F64, DIMS(0, 5), DIMS(5, 1), 2, 0);
    refused(storage, CORE_F64, DIMS(0, 5), DIMS(5, 1), 2, 1, CORE_ERROR_SHAPE);
    refused(storage, CORE_F64, NULL, NULL, 0, 0, CORE_ERROR_SHAPE);
}
END_TEST

START_TEST(alias_outside_of_the_storage_is_refused)
{
    core_tensor *storage = bytes_on(cpu, 24);

    alias(storage, CORE_F32, DIMS(2, 2), DIMS(3, 2), 2, 0);
    refused(storage, CORE_F32, DIMS(7), DIMS(1), 1, 0, CORE_ERROR_SHAPE);
    refused(storage, CORE_F32, DIMS(6), DIMS(1), 1, 1, CORE_ERROR_SHAPE);
    refused(storage, CORE_F32, DIMS(2, 2), DIMS(4, 2), 2, 0, CORE_ERROR_SHAPE);
    refused(storage, CORE_F32, DIMS(2), DIMS(INT64_MAX), 1, 1,
            CORE_ERROR_SHAPE);
    refused(storage, CORE_F32, DIMS(INT64_MAX), DIMS(0), 1, 0,
            CORE_ERROR_SHAPE);
    refused(storage, CORE_F32, NULL, NULL, 0, INT64_MAX, CORE_ERROR_SHAPE);
    refused(storage, CORE_F32, DIMS(1), DIMS(1), 1, -1, CORE_ERROR_SHAPE);
    refused(storage, CORE_F32, DIMS(-1), DIMS(1), 1, 0, CORE_ERROR_SHAPE);
    refused(storage, CORE_F32, DIMS(2), DIMS(-1), 1, 1, CORE_ERROR_SHAPE);
}
END_TEST

START_TEST(alias_of_a_wrong_kind_is_refused)
{
    const int64_t many[CORE_MAX_NDIM + 1] = {0};
    core_tensor *storage = bytes_on(cpu, 24);
    core_tensor *meta = bytes_on(device_of("meta"), 24);
    core_tensor *out = storage;

    refused(storage, 77, DIMS(1), DIMS(1), 1, 0, CORE_ERROR_DTYPE);
    refused(storage, CORE_DTYPE_NONE, DIMS(1), DIMS(1), 1, 0, CORE_ERROR_DTYPE);
    refused(storage, CORE_F32, many, many, CORE_MAX_NDIM + 1, 0,
            CORE_ERROR_SHAPE);
    refused(meta, CORE_F32, DIMS(1), DIMS(1), 1, 0, CORE_ERROR_UNSUPPORTED);
    refused(storage, CORE_F32, NULL, DIMS(1), 1, 0,
            CORE_ERROR_INVALID_ARGUMENT);
    refused(storage, CORE_F32, DIMS(1), NULL, 1, 0,
            CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_tensor_alias(NULL, CORE_F32, NULL, NULL, 0, 0, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(alias_of_memory_that_is_not_aligned_is_refused)
{
    static _Alignas(16) char memory[20];
    core_tensor *storage;

    OK(core_tensor_from_memory(memory + 1, CORE_U8, DIMS(16), 1, NULL, NULL,
                               &storage));
    keep(storage);
    alias(storage, CORE_I8, DIMS(16), DIMS(1), 1, 0);
    refused(storage, CORE_F32, DIMS(1), DIMS(1), 1, 0,
            CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(memory_is_where_the_first_element_is)
{
    core_tensor *storage = bytes_on(cpu, 24);
    core_tensor *part = alias(storage, CORE_F32, DIMS(2), DIMS(1), 1, 2);
    core_memory whole, memory;
    void *address;

    OK(core_tensor_memory(storage, &whole));
    OK(core_tensor_memory(part, &memory));
    ck_assert_ptr_eq(memory.handle, whole.handle);
    ck_assert_uint_eq(memory.offset, whole.offset + 8);
    OK(core_tensor_data(part, &address));
    ck_assert_ptr_eq((char *)memory.handle + memory.offset, address);
    ck_assert_int_eq(
        core_tensor_memory(bytes_on(device_of("meta"), 1), &memory),
        CORE_ERROR_UNSUPPORTED);
    ck_assert_ptr_null(memory.handle);
    ck_assert_int_eq(core_tensor_memory(NULL, &memory),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_tensor_memory(part, NULL),
                     CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

static void start_sim(void)
{
    sim_find("sim");
}

START_TEST(alias_on_a_device_without_addresses_computes)
{
    core_tensor *storage = bytes_on(sim, 4096);
    core_tensor *tensor = alias(storage, CORE_F32, DIMS(8), DIMS(2), 1, 3);

    OK(core_fill_(tensor, core_float(2)));
    all_are(tensor, 2);
}
END_TEST

START_TEST(alias_after_a_reset_is_refused)
{
    core_tensor *storage = bytes_on(sim, 64), *tensor = storage;
    core_memory memory;

    OK(core_device_reset(sim));
    ck_assert_int_eq(
        core_tensor_alias(storage, CORE_F32, NULL, NULL, 0, 0, &tensor),
        CORE_ERROR_DEVICE_LOST);
    ck_assert_ptr_null(tensor);
    ck_assert_int_eq(core_tensor_memory(storage, &memory),
                     CORE_ERROR_DEVICE_LOST);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        alias_reads_the_bytes_with_another_dtype,
        alias_keeps_the_memory_alive,
        changes_of_an_alias_count_for_the_storage,
        alias_in_inference_mode_is_an_ordinary_tensor,
        alias_without_elements_needs_no_memory,
        alias_outside_of_the_storage_is_refused,
        alias_of_a_wrong_kind_is_refused,
        alias_of_memory_that_is_not_aligned_is_refused,
        memory_is_where_the_first_element_is,
    };

    const TTest *const on_sim[] = {
        alias_on_a_device_without_addresses_computes,
        alias_after_a_reset_is_refused,
    };
    const test_suite suites[] = {
        {"tensor/alias", start, drop_all, 0, SUITE_TESTS(tests)},
        {"tensor/alias, sim", start_sim, drop_all, 0, SUITE_TESTS(on_sim)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
