/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define SUITE_FORKS true

#include "support/stream.h"

#include "device/device.h"

START_TEST(first_available_device_of_the_preference_is_default)
{
    core_device *device;

    OK(core_device_set_preference("nothere, sim ,cpu"));
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "sim");
}
END_TEST

START_TEST(cpu_is_default_where_none_of_the_preference_is_available)
{
    core_device *device;

    OK(core_device_set_preference("nothere,neither"));
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "cpu");
    OK(core_device_set_preference(NULL));
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "cpu");
}
END_TEST

START_TEST(malformed_names_and_missing_devices_are_reported)
{
    core_device *device = NULL;

    FAILS(core_device_find("SIM!", &device), CORE_ERROR_INVALID_ARGUMENT,
          "SIM!");
    FAILS(core_device_find("sim:7", &device), CORE_ERROR_NOT_FOUND, "sim:7");
    FAILS(core_device_find("nothere", &device), CORE_ERROR_NOT_FOUND,
          "nothere");
    ck_assert_ptr_null(device);
}
END_TEST

START_TEST(malformed_preference_is_refused_and_changes_nothing)
{
    core_device *device;

    OK(core_device_set_preference("sim"));
    FAILS(core_device_set_preference("cpu,GPU!"), CORE_ERROR_INVALID_ARGUMENT,
          "GPU!", "cpu,GPU!");
    FAILS(core_device_set_preference("cpu,,sim"), CORE_ERROR_INVALID_ARGUMENT,
          "cpu,,sim");
    FAILS(core_device_set_preference(""), CORE_ERROR_INVALID_ARGUMENT, "\"\"");
    FAILS(core_device_set_preference("sim:"), CORE_ERROR_INVALID_ARGUMENT,
          "core_device_set_preference: \"sim:\" is not a device name");
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "sim");
}
END_TEST

START_TEST(setting_applies_after_a_default_was_chosen)
{
    core_device *device;

    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "cpu");
    OK(core_setting_set("LIBCORE_DEVICE", "sim:1"));
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "sim:1");
    OK(core_setting_set("LIBCORE_DEVICE", "nothere"));
    FAILS(core_device_default(&device), CORE_ERROR_NOT_FOUND, "nothere");
    OK(core_setting_set("LIBCORE_DEVICE", NULL));
    OK(core_device_default(&device));
    ck_assert_str_eq(core_device_name(device), "cpu");
}
END_TEST

START_TEST(null_is_refused)
{
    core_device *cpu = device_of("cpu"), *device;
    core_device_properties properties;
    core_device_information information;
    core_device_guard guard;
    core_stream_guard stream_guard;
    core_stream *stream = stream_of(cpu), *made;
    const void *table;
    void *native;
    uint64_t bytes;
    uint32_t count;
    int32_t priority;

#define NO(call, argument) \
    FAILS(call, CORE_ERROR_INVALID_ARGUMENT, "argument " argument " is NULL")
    NO(core_device_find(NULL, &device), "name");
    NO(core_device_find("cpu", NULL), "out_device");
    NO(core_device_default(NULL), "out_device");
    NO(core_device_count(NULL, &count, NULL), "type");
    NO(core_device_count("cpu", NULL, NULL), "out_count");
    NO(core_device_get_properties(NULL, &properties), "device");
    NO(core_device_get_properties(cpu, NULL), "out");
    NO(core_device_get_information(NULL, &information), "device");
    NO(core_device_get_information(cpu, NULL), "out");
    NO(core_device_memory(NULL, &bytes, &bytes), "device");
    NO(core_device_memory(cpu, NULL, &bytes), "out_free");
    NO(core_device_memory(cpu, &bytes, NULL), "out_total");
    NO(core_device_synchronize(NULL), "device");
    NO(core_threads_get(NULL), "out_threads");
    NO(core_device_status(NULL), "device");
    NO(core_device_reset(NULL), "device");
    NO(core_device_interface(NULL, "x", 1, &table), "device");
    NO(core_device_interface(cpu, NULL, 1, &table), "name");
    NO(core_device_interface(cpu, "x", 1, NULL), "out_table");
    NO(core_device_priorities(cpu, NULL, &priority), "out_least");
    NO(core_device_priorities(NULL, &priority, &priority), "device");
    NO(core_device_guard_enter(NULL, &guard), "device");
    NO(core_device_guard_enter(cpu, NULL), "guard");
    NO(core_stream_guard_enter(stream, NULL), "guard");
    NO(core_stream_guard_enter(NULL, &stream_guard), "stream");
    NO(core_stream_create(NULL, &made), "device");
    NO(core_stream_create(cpu, NULL), "out_stream");
    NO(core_stream_create_priority(NULL, 0, &made), "device");
    NO(core_stream_adopt(NULL, &made, &made), "device");
    NO(core_stream_native(NULL, &native), "stream");
    NO(core_stream_default(NULL, &made), "device");
    NO(core_stream_current(NULL, &made), "device");
    NO(core_stream_set_current(NULL), "stream");
    NO(core_stream_query(NULL), "stream");
    NO(core_stream_synchronize(NULL), "stream");
    NO(core_stream_callback(NULL, NULL, NULL, NULL), "stream");
    NO(core_stream_callback(stream, NULL, NULL, NULL), "function");
    NO(core_tensor_copy(NULL, NULL, 0), "to");
    core_stream_release(stream);
}
END_TEST

START_TEST(missing_interface_is_unsupported)
{
    core_device *cpu = device_of("cpu");
    core_stream *stream = stream_of(cpu), *none;
    const void *table = &cpu;
    void *native;

    FAILS(core_device_reset(cpu), CORE_ERROR_UNSUPPORTED, "\"cpu\"");
    FAILS(core_device_interface(cpu, "vendor.thing", 3, &table),
          CORE_ERROR_NOT_FOUND, "\"cpu\"", "vendor.thing", "3");
    ck_assert_ptr_null(table);
    FAILS(core_stream_create_priority(cpu, -1, &none), CORE_ERROR_UNSUPPORTED,
          "\"cpu\"", "-1");
    FAILS(core_stream_adopt(cpu, &cpu, &none), CORE_ERROR_UNSUPPORTED,
          "\"cpu\"");
    FAILS(core_stream_native(stream, &native), CORE_ERROR_UNSUPPORTED,
          "\"cpu\"");
    OK(core_stream_create_priority(cpu, 0, &none));
    core_stream_release(none);
    core_stream_release(stream);
}
END_TEST

static char logged[256];
static int logs;

static void note(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    (void)component;
    ck_assert_uint_eq(level, CORE_LOG_ERROR);
    logs++;
    snprintf(logged, sizeof logged, "%s", text);
}

static uint32_t references(core_device *device)
{
    return atomic_load(&device->references);
}

START_TEST(found_device_is_borrowed)
{
    core_device *sim = device_of("sim"), *again;

    ck_assert_uint_eq(references(sim), 1); /* the backend's own reference */
    OK(core_device_find("sim", &again));
    ck_assert_ptr_eq(sim, again);
    OK(core_device_set_current(sim));
    OK(core_device_default(&again));
    ck_assert_ptr_eq(sim, again);
    OK(core_device_set_current(NULL));
    ck_assert_uint_eq(references(sim), 1);
    core_device_retain(sim);
    ck_assert_uint_eq(references(sim), 2);
    core_device_release(sim);
    ck_assert_uint_eq(references(sim), 1);
}
END_TEST

START_TEST(extra_release_is_reported_and_changes_nothing)
{
    core_device *sim = device_of("sim");

    core_log_set_sink(note, NULL, CORE_LOG_ERROR);
    core_device_release(core_device_retain(sim));
    ck_assert_int_eq(logs, 0);
    core_device_release(sim);
    ck_assert_int_eq(logs, 1);
    ck_assert_ptr_nonnull(strstr(logged, "sim"));
    ck_assert_uint_eq(references(sim), 1);
    core_log_set_sink(NULL, NULL, 0);
}
END_TEST

START_TEST(null_device_has_no_name_and_is_not_released)
{
    ck_assert_str_eq(core_device_name(NULL), "");
    ck_assert_str_eq(core_device_type(NULL), "");
    ck_assert_uint_eq(core_device_index(NULL), 0);
    ck_assert_ptr_null(core_device_retain(NULL));
    core_device_release(NULL);
}
END_TEST

SUITE("device/device", first_available_device_of_the_preference_is_default,
      cpu_is_default_where_none_of_the_preference_is_available,
      malformed_names_and_missing_devices_are_reported,
      malformed_preference_is_refused_and_changes_nothing,
      setting_applies_after_a_default_was_chosen, null_is_refused,
      missing_interface_is_unsupported, found_device_is_borrowed,
      extra_release_is_reported_and_changes_nothing,
      null_device_has_no_name_and_is_not_released)
