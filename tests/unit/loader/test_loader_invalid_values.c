/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin that passes NULL or impossible values to the host fails with an
 * error that says so (tests/fixtures/invalid.c). */

#include "support/loader.h"

#include <libcore/device.h>

typedef struct slip {
    const char *where;
    const char *says;
} slip;

/* In init. */
static const slip slips[] = {
    {"device type", "9 bytes at NULL as a device type"},
    {"longer type", "\"invalid\" of 8 bytes"}, /* counts the NUL */
    {"backend", "NULL as a backend"},
    {"copy", "lacks one of the functions alloc, free, copy_from_host"},
    {"fill", "lacks one of the functions alloc, free, copy_from_host"},
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

START_TEST(harmless_invalid_values_are_ignored)
{
    core_plugin *plugin;
    core_device *device;

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
    };
    const test_suite suite = {
        .name = "loader/invalid values",
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
