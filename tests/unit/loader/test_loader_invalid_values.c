/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin that passes NULL or impossible values to the host fails with an
 * error that says so (tests/fixtures/invalid.c). */

#define SUITE_FORKS true

#include "support/loader.h"

#include <libcore/device.h>
#include <libcore/tensor.h>

typedef struct slip {
    const char *where;
    const char *says;
} slip;

/* In init. */
static const slip slips[] = {
    {"device type", "9 bytes at NULL as a device type"},
    {"longer type", "\"invalid\" (its size counts a NUL)"},
    {"backend", "NULL as a backend"},
    {"no memory", "has no core_memory_table"},
    {"no copy", "the function copy of its core_memory_table is NULL"},
    {"memory size", "the struct_size of its core_memory_table is 0"},
    {"no stream", "the function create of its core_stream_table is NULL"},
    {"no device_open", "the function device_open of its core_backend is NULL"},
    {"kernel size", "\"exp\": its struct_size is 8"},
    {"no launch", "\"exp\": its function launch is NULL"},
    {"signature", "\"exp\": signature[1] is 0x80000004, with bits of no dtype, "
                  "0x80000000"},
    {"reserved field", "\"exp\": its field reserved is 7; it must be 0"},
    {"kernel", "NULL as a kernel"},
    {"kernels", "NULL as an array of kernels"},
    {"kernel's name", "at NULL as a kernel's name"},
    {"kernels' device", "at NULL as a device type"},
    {"fallback", "the function of a fallback is NULL"},
    {"schema", "at NULL as a schema"},
    {"function's name", "at NULL as an operator's name"},
    {"gradient", "NULL as a gradient"},
    {"operator", "at NULL as an operator's name"},
    {"lender", "at NULL as a device type"},
    {"cache", "must consist of [a-z0-9_]+"},
    {"error", "NULL as an error"},
    {"no error", "the plugin gave no message"},
    {"text", "the plugin gave no message"},
};

/* When the device is opened. */
static const slip devices[] = {
    {"enumerate", "enumerate failed and gave no reason"},
    {"reason", "the plugin gave no reason"},
    {"devices", "4000000000 devices; at most 4096"},
    {"device_open", "device_open failed and gave no reason"},
    {"device_properties", "device_properties failed and gave no reason"},
    {"granularity", "a granularity of 1844"},
    {"alignment", "reports an alignment of 48"},
    {"padding", "padding of 1844"},
};

enum {
    SLIPS = sizeof slips / sizeof *slips,
    DEVICES = sizeof devices / sizeof *devices
};

START_TEST(invalid_values_in_init_are_refused)
{
    core_plugin *plugin;

    setenv("FIXTURE_INVALID", slips[_i].where, 1);
    ck_assert_int_ne(core_plugin_load(fixture("invalid"), &plugin), CORE_OK);
    assert_contains(core_error_message(), slips[_i].says);
    ck_assert_ptr_null(plugin);
}
END_TEST

START_TEST(invalid_values_of_a_device_are_refused)
{
    core_plugin *plugin;
    core_device *device;

    setenv("FIXTURE_INVALID", devices[_i].where, 1);
    ck_assert_int_eq(core_plugin_load(fixture("invalid"), &plugin), CORE_OK);
    ck_assert_int_ne(core_device_find("invalid", &device), CORE_OK);
    assert_contains(core_error_message(), devices[_i].says);
}
END_TEST

/* The tensor's size selects the cache of small blocks, the cache of large ones
 * or the device itself. */
START_TEST(silent_error_of_a_synchronous_device_is_described)
{
    static const int64_t sizes[] = {4, 10000, 30000000};
    static const slip silent[] = {
        {"alloc", "of \"invalid\" reported CORE_ERROR_OUT_OF_MEMORY"},
        {"copy_from_host", "of \"invalid\" reported CORE_ERROR_INTERNAL"},
    };
    const slip *error = &silent[_i / 3];
    int64_t size = sizes[_i % 3];
    core_device *device;
    core_tensor *tensor;
    float *data = calloc((size_t)size, sizeof *data);

    ck_assert_ptr_nonnull(data);
    setenv("FIXTURE_INVALID", error->where, 1);
    ck_assert_int_eq(core_plugin_load(fixture("invalid"), NULL), CORE_OK);
    ck_assert_int_eq(core_device_find("invalid", &device), CORE_OK);
    for (int earlier = 0; earlier < 2; earlier++) {
        if (earlier)
            core_error_set(_i < 3 ? CORE_ERROR_OUT_OF_MEMORY
                                  : CORE_ERROR_INTERNAL,
                           "an earlier error");
        ck_assert_int_ne(
            core_tensor_from_data(data, CORE_F32, &size, 1, device, &tensor),
            CORE_OK);
        assert_contains(core_error_message(), error->says);
    }
    free(data);
}
END_TEST

static void ignore_message(void *context, uint32_t level, const char *component,
                           const char *text)
{
    (void)context;
    (void)level;
    (void)component;
    (void)text;
}

START_TEST(harmless_invalid_values_are_ignored)
{
    core_plugin *plugin;
    core_device *device;

    core_log_set_sink(ignore_message, NULL, CORE_LOG_DEBUG);
    setenv("FIXTURE_INVALID", "nowhere", 1);
    ck_assert_int_eq(core_plugin_load(fixture("invalid"), &plugin), CORE_OK);
    ck_assert_int_eq(core_device_find("invalid", &device), CORE_OK);
}
END_TEST

START_TEST(reason_for_no_devices_outlives_the_next_count)
{
    core_backend_information backend = {.struct_size = sizeof backend};
    const char *first, *second;
    char copy[64];
    uint32_t count;

    setenv("FIXTURE_INVALID", "raw reason", 1);
    ck_assert_int_eq(core_plugin_load(fixture("invalid"), NULL), CORE_OK);
    ck_assert_int_eq(core_device_count("invalid", &count, &first), CORE_OK);
    ck_assert_uint_eq(count, 0);
    assert_contains(first, "device");
    snprintf(copy, sizeof copy, "%s", first);
    ck_assert_int_eq(core_backend_describe(0, &backend), CORE_OK);
    ck_assert_str_eq(backend.reason, copy);
    setenv("FIXTURE_INVALID", "other reason", 1);
    ck_assert_int_eq(core_device_count("invalid", &count, &second), CORE_OK);
    ck_assert_str_eq(second, "another reason of the plugin");
    ck_assert_str_eq(first, copy);
    ck_assert_str_eq(backend.reason, copy);
    setenv("FIXTURE_INVALID", "nowhere", 1);
    ck_assert_int_eq(core_device_count("invalid", &count, &second), CORE_OK);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(second, "");
    ck_assert_str_eq(first, copy);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        harmless_invalid_values_are_ignored,
        reason_for_no_devices_outlives_the_next_count,
    };
    const suite_loop loops[] = {
        {invalid_values_in_init_are_refused, 0, SLIPS},
        {invalid_values_of_a_device_are_refused, 0, DEVICES},
        {silent_error_of_a_synchronous_device_is_described, 0, 6},
    };
    const test_suite suite = {
        .name = "loader/loader_invalid_values",
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
