/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host memory of the program that is registered with a device. */

#include "support/sim_device.h"
#include "support/stream.h"

#include <libcore/memory.h>

#include <pthread.h>
#include <stdlib.h>

enum { COUNT = 1000 };

static _Alignas(16) char memory[COUNT * sizeof(float)];

static void start(void)
{
    sim_find("sim");
}

static core_tensor *tensor_on(void *data)
{
    const int64_t n = COUNT;
    core_tensor *tensor;

    OK(core_tensor_from_memory(data, CORE_F32, &n, 1, NULL, NULL, &tensor));
    return keep(tensor);
}

START_TEST(copies_of_registered_memory_do_not_wait)
{
    float *data = (float *)(void *)memory;
    core_tensor *there = filled(sim, COUNT, 0), *here;
    uint64_t waits;

    for (int i = 0; i < COUNT; i++)
        data[i] = 3;
    OK(core_device_synchronize(sim));
    OK(core_host_memory_register(sim, data, sizeof memory));
    ck_assert_uint_eq(counters_of(0).pinned, 1);
    here = tensor_on(data);
    waits = core_host_waits();
    OK(control->hold(0));
    OK(core_tensor_copy(there, here, CORE_COPY_NON_BLOCKING));
    ck_assert_uint_eq(core_host_waits(), waits);
    OK(control->release(0));
    all_are(there, 3);
    OK(core_host_memory_unregister(sim, data));
    ck_assert_uint_eq(counters_of(0).pinned, 0);
    /* Now a copy waits. */
    waits = core_host_waits();
    OK(core_tensor_copy(there, here, CORE_COPY_NON_BLOCKING));
    ck_assert_uint_gt(core_host_waits(), waits);
}
END_TEST

START_TEST(pinned_memory_is_recognised)
{
    core_tensor *tensor;
    void *data, *block;

    ck_assert(!core_host_memory_is_pinned(sim, memory, 1));
    OK(core_host_memory_register(sim, memory, sizeof memory));
    ck_assert(core_host_memory_is_pinned(sim, memory, sizeof memory));
    ck_assert(core_host_memory_is_pinned(sim, memory + 5, 1));
    ck_assert(!core_host_memory_is_pinned(sim, memory, sizeof memory + 1));
    OK(core_host_memory_unregister(sim, memory));
    ck_assert(!core_host_memory_is_pinned(sim, memory, 1));
    OK(core_host_memory_alloc(sim, 64, &block));
    ck_assert(core_host_memory_is_pinned(sim, block, 64));
    OK(core_host_memory_free(sim, block));
    ck_assert(!core_host_memory_is_pinned(sim, block, 64));
    OK(core_tensor_pinned(sim, CORE_F32, &(int64_t){4}, 1, &tensor));
    OK(core_tensor_data(keep(tensor), &data));
    ck_assert(core_host_memory_is_pinned(sim, data, 16));
    ck_assert(!core_host_memory_is_pinned(sim, NULL, 1));
    ck_assert(!core_host_memory_is_pinned(NULL, data, 16));
}
END_TEST

static void *release_later(void *unused)
{
    (void)unused;
    OK(control->release(0));
    return NULL;
}

START_TEST(unregistering_waits_for_copies)
{
    float *data = (float *)(void *)memory;
    core_tensor *there = filled(sim, COUNT, 7);
    pthread_t thread;

    OK(core_device_synchronize(sim));
    OK(core_host_memory_register(sim, data, sizeof memory));
    OK(control->hold(0));
    OK(core_tensor_copy(tensor_on(data), there, CORE_COPY_NON_BLOCKING));
    ck_assert_int_eq(pthread_create(&thread, NULL, release_later, NULL), 0);
    OK(core_host_memory_unregister(sim, data));
    pthread_join(thread, NULL);
    for (int i = 0; i < COUNT; i++)
        ck_assert_float_eq(data[i], 7);
}
END_TEST

START_TEST(overlapping_ranges_are_refused)
{
    void *pinned;

    OK(core_host_memory_register(sim, memory + 100, 200));
    FAILS(core_host_memory_register(sim, memory + 100, 200),
          CORE_ERROR_INVALID_ARGUMENT, "core_host_memory_register", "200 bytes",
          "overlap", "already pinned for \"sim\"");
    FAILS(core_host_memory_register(sim, memory, 101),
          CORE_ERROR_INVALID_ARGUMENT, "overlap");
    FAILS(core_host_memory_register(sim, memory + 299, 10),
          CORE_ERROR_INVALID_ARGUMENT, "overlap");
    FAILS(core_host_memory_register(sim, memory, 1000),
          CORE_ERROR_INVALID_ARGUMENT, "overlap");
    FAILS(core_host_memory_register(sim, memory + 150, 1),
          CORE_ERROR_INVALID_ARGUMENT, "overlap");
    OK(core_host_memory_register(sim, memory, 100));
    OK(core_host_memory_register(sim, memory + 300, 100));
    OK(core_host_memory_register(device_of("sim:1"), memory, 1000));
    OK(core_host_memory_unregister(device_of("sim:1"), memory));
    OK(core_host_memory_alloc(sim, 1000, &pinned));
    FAILS(core_host_memory_register(sim, (char *)pinned + 10, 10),
          CORE_ERROR_INVALID_ARGUMENT, "overlap");
    OK(core_host_memory_free(sim, pinned));
    for (int i = 0; i < 3; i++)
        OK(core_host_memory_unregister(sim, memory + (i ? 200 * i - 100 : 0)));
    ck_assert_uint_eq(counters_of(0).pinned, 1); /* the cached block */
}
END_TEST

START_TEST(ranges_that_are_not_registered_are_refused)
{
    void *pinned;

    FAILS(core_host_memory_unregister(sim, memory), CORE_ERROR_INVALID_ARGUMENT,
          "core_host_memory_unregister",
          "not the beginning of memory that is registered for \"sim\"");
    OK(core_host_memory_register(sim, memory, 100));
    FAILS(core_host_memory_unregister(sim, memory + 1),
          CORE_ERROR_INVALID_ARGUMENT, "not the beginning");
    FAILS(core_host_memory_free(sim, memory), CORE_ERROR_INVALID_ARGUMENT,
          "core_host_memory_unregister");
    OK(core_host_memory_unregister(sim, memory));
    FAILS(core_host_memory_unregister(sim, memory), CORE_ERROR_INVALID_ARGUMENT,
          "not the beginning");
    OK(core_host_memory_alloc(sim, 1000, &pinned));
    FAILS(core_host_memory_unregister(sim, pinned), CORE_ERROR_INVALID_ARGUMENT,
          "not the beginning");
    OK(core_host_memory_free(sim, pinned));
    FAILS(core_host_memory_register(sim, memory, 0),
          CORE_ERROR_INVALID_ARGUMENT, "0 bytes");
    FAILS(core_host_memory_register(sim, memory, SIZE_MAX),
          CORE_ERROR_INVALID_ARGUMENT, "the range overflows");
    FAILS(core_host_memory_register(sim, NULL, 8), CORE_ERROR_INVALID_ARGUMENT,
          "data");
    FAILS(core_host_memory_register(NULL, memory, 8),
          CORE_ERROR_INVALID_ARGUMENT, "device");
}
END_TEST

START_TEST(failed_registration_leaves_nothing)
{
    OK(control->fault(0, SIM_FAULT_HOST, 1));
    FAILS(core_host_memory_register(sim, memory, 100), CORE_ERROR_OUT_OF_MEMORY,
          "host");
    FAILS(core_host_memory_unregister(sim, memory), CORE_ERROR_INVALID_ARGUMENT,
          "not the beginning");
    OK(core_host_memory_register(sim, memory, 100));
    OK(core_host_memory_unregister(sim, memory));
}
END_TEST

START_TEST(registration_ends_with_a_reset)
{
    float *data = (float *)(void *)memory;
    core_tensor *there;
    uint64_t waits;

    OK(core_host_memory_register(sim, data, sizeof memory));
    OK(control->lose(0));
    FAILS(core_device_synchronize(sim), CORE_ERROR_DEVICE_LOST);
    FAILS(core_host_memory_register(sim, memory + 1, 1),
          CORE_ERROR_DEVICE_LOST);
    OK(core_device_reset(sim));
    there = filled(sim, COUNT, 1);
    waits = core_host_waits();
    OK(core_tensor_copy(there, tensor_on(data), CORE_COPY_NON_BLOCKING));
    ck_assert_uint_gt(core_host_waits(), waits);
    OK(core_host_memory_unregister(sim, data));
    OK(core_host_memory_register(sim, data, sizeof memory));
    waits = core_host_waits();
    OK(core_tensor_copy(there, tensor_on(data), CORE_COPY_NON_BLOCKING));
    ck_assert_uint_eq(core_host_waits(), waits);
    OK(core_host_memory_unregister(sim, data));
}
END_TEST

START_TEST(synchronous_device_needs_no_registration)
{
    core_device *cpu = device_of("cpu");

    OK(core_host_memory_register(cpu, memory, 100));
    FAILS(core_host_memory_register(cpu, memory, 100),
          CORE_ERROR_INVALID_ARGUMENT, "overlap");
    OK(core_host_memory_unregister(cpu, memory));
}
END_TEST

/* sim checks that the memory is not used after it was unregistered. */
START_TEST(registration_under_interposers_is_clean)
{
    core_tensor *there;

    OK(core_setting_set("LIBCORE_INTERPOSERS", "validate"));
    setenv("LIBCORE_SIM_CHECK", "1", 1);
    sim_find("sim");
    there = filled(sim, COUNT, 2);
    OK(core_host_memory_register(sim, memory, sizeof memory));
    OK(core_tensor_copy(tensor_on(memory), there, CORE_COPY_NON_BLOCKING));
    OK(core_host_memory_unregister(sim, memory));
    ck_assert_float_eq(*(float *)(void *)memory, 2);
    ck_assert_uint_eq(counters_of(0).conflicts, 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        copies_of_registered_memory_do_not_wait,
        pinned_memory_is_recognised,
        unregistering_waits_for_copies,
        overlapping_ranges_are_refused,
        ranges_that_are_not_registered_are_refused,
        failed_registration_leaves_nothing,
        registration_ends_with_a_reset,
        synchronous_device_needs_no_registration,
    };
    const TTest *const settings[] = {registration_under_interposers_is_clean};
    const test_suite suites[] = {
        {"memory/host_registration", start, drop_all, 0, SUITE_TESTS(tests)},
        {"memory/host_registration, interposers", NULL, drop_all, 0,
         SUITE_TESTS(settings)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
