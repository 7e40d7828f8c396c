/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define SUITE_FORKS true

#include "support/cpu.h"

#include <malloc.h>

START_TEST(offer_of_another_abi_major_is_refused_with_reason)
{
    core_plugin_offer offer = {
        sizeof(offer), CORE_ABI_MAJOR + 1, 0, 9, {"test", 4}};
    core_plugin_answer answer = {.struct_size = sizeof(answer)};

    ck_assert_int_eq(core_plugin_entry(&offer, &answer),
                     CORE_ERROR_INCOMPATIBLE);
    ck_assert_uint_gt(answer.refusal.size, 0);
}
END_TEST

START_TEST(newer_host_gets_minor_of_the_plugin)
{
    core_plugin_offer offer = {
        sizeof(offer), CORE_ABI_MAJOR, 0, CORE_ABI_MINOR + 5, {"test", 4}};
    core_plugin_answer answer = {.struct_size = sizeof(answer)};

    ck_assert_int_eq(core_plugin_entry(&offer, &answer), CORE_OK);
    ck_assert_uint_eq(answer.abi_minor, CORE_ABI_MINOR);
}
END_TEST

START_TEST(backend_has_one_synchronous_device)
{
    core_device_properties properties = {.struct_size = sizeof(properties)};
    core_device_information information = {.struct_size = sizeof(information)};
    core_string reason;
    uint32_t count;
    void *device;

    ck_assert_int_eq(cpu_open("baseline"), CORE_OK);
    ck_assert_ptr_null(cpu_backend->streams);
    ck_assert_int_eq(cpu_backend->enumerate(NULL, &count, &reason), CORE_OK);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(cpu_backend->device_open(NULL, 1, &device),
                     CORE_ERROR_NOT_FOUND);
    ck_assert_int_eq(cpu_backend->device_open(NULL, 0, &device), CORE_OK);
    ck_assert_int_eq(cpu_backend->device_properties(device, &properties),
                     CORE_OK);
    ck_assert(properties.flags & CORE_DEVICE_HOST_ACCESS);
    ck_assert_int_eq(cpu_backend->device_information(device, &information),
                     CORE_OK);
    ck_assert_uint_gt(information.name.size, 0);
    ck_assert_ptr_nonnull(strstr(information.features.data, "isa=baseline"));
    cpu_close();
}
END_TEST

START_TEST(memory_table_aligns_copies_and_fills)
{
    const core_memory_table *table;
    core_memory memory, other;
    unsigned char bytes[100], pattern[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t word;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    table = cpu_backend->memory;
    ck_assert_int_eq(table->alloc(NULL, 100, &memory), CORE_OK);
    ck_assert_uint_eq((uintptr_t)memory.handle % 64, 0);
    ck_assert_int_eq(table->alloc(NULL, 3 << 20, &other), CORE_OK);
    ck_assert_uint_eq((uintptr_t)other.handle % 64, 0);
    memcpy(&word, pattern, 8);
    ck_assert_int_eq(table->fill(NULL, NULL, memory, 100, word, 4), CORE_OK);
    ck_assert_int_eq(table->copy(NULL, NULL, other, memory, 100), CORE_OK);
    ck_assert_int_eq(table->copy_to_host(NULL, NULL, bytes, other, 100),
                     CORE_OK);
    for (int k = 0; k < 100; k++)
        ck_assert_uint_eq(bytes[k], pattern[k % 4]);
    ck_assert_int_eq(table->fill(NULL, NULL, memory, 100, word, 3),
                     CORE_ERROR_INVALID_ARGUMENT);
    table->free(NULL, memory, 100);
    table->free(NULL, other, 3 << 20);
    cpu_close();
}
END_TEST

START_TEST(excessive_allocation_is_out_of_memory)
{
    core_memory memory;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    ck_assert_int_eq(
        cpu_backend->memory->alloc(NULL, UINT64_C(1) << 62, &memory),
        CORE_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(cpu_backend->memory->alloc(NULL, UINT64_MAX, &memory),
                     CORE_ERROR_OUT_OF_MEMORY);
    ck_assert_ptr_null(memory.handle);
    cpu_close();
}
END_TEST

START_TEST(invalid_settings_are_refused)
{
    ck_assert_int_eq(cpu_open("sse9"), CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(cpu_message, "avx512"));
    cpu_threads_setting = "many";
    ck_assert_int_eq(cpu_open(NULL), CORE_ERROR_INVALID_ARGUMENT);
    cpu_threads_setting = "0";
    ck_assert_int_eq(cpu_open(NULL), CORE_ERROR_INVALID_ARGUMENT);
    cpu_threads_setting = "3";
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    cpu_close();
}
END_TEST

/* The host undoes the registrations; stop is not called for a failed init. */
START_TEST(failed_init_leaks_no_memory)
{
    enum { TIMES = 3, KEPT = 4096 /* kept by the C library */ };
    size_t before = 0, after = 0;
    uint32_t registrations;

    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    registrations = UINT32_MAX - cpu_refused_after;
    ck_assert_uint_gt(registrations, 1);
    cpu_close();
    for (uint32_t n = 0; n < registrations; n++) {
        for (int k = 0; k < TIMES; k++) {
            before = mallinfo2().uordblks;
            cpu_refused_after = n;
            ck_assert_int_eq(cpu_open(NULL), CORE_ERROR_OUT_OF_MEMORY);
            free(cpu_all_kernels);
            cpu_all_kernels = NULL;
            cpu_kernel_count = 0;
            after = mallinfo2().uordblks;
        }
        ck_assert_msg(after < before + KEPT,
                      "%zu bytes leak after %u registrations", after - before,
                      n);
    }
}
END_TEST

START_TEST(every_registered_kernel_has_name_and_function)
{
    ck_assert_int_eq(cpu_open(NULL), CORE_OK);
    ck_assert_uint_gt(cpu_kernel_count, 500);
    for (uint32_t k = 0; k < cpu_kernel_count; k++) {
        ck_assert_uint_gt(cpu_all_kernels[k].name.size, 0);
        ck_assert_ptr_nonnull(cpu_all_kernels[k].launch);
    }
    cpu_close();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        offer_of_another_abi_major_is_refused_with_reason,
        newer_host_gets_minor_of_the_plugin,
        backend_has_one_synchronous_device,
        memory_table_aligns_copies_and_fills,
        excessive_allocation_is_out_of_memory,
        invalid_settings_are_refused,
        failed_init_leaks_no_memory,
        every_registered_kernel_has_name_and_function,
    };
    const test_suite suite = {
        .name = "cpu/cpu_plugin",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
