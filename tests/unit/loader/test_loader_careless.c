/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin that gives the host NULL, or says what cannot be, costs an error
 * that says so (tests/fixtures/careless.c). */

#include "support/loader.h"

#include <libcore/device.h>

typedef struct slip {
    const char *where;
    const char *says;
} slip;

/* In init. */
static const slip slips[] = {
    {"device type", "9 bytes at NULL as a device type"},
    {"longer type", "\"careless\" of 9 bytes"}, /* with its NUL */
    {"backend", "NULL as a backend"},
    {"kernel", "NULL as a kernel"},
    {"kernels", "NULL as an array of kernels"},
    {"kernel's name", "at NULL as a kernel's name"},
    {"kernels' device", "at NULL as a device type"},
    {"fallback", "a fallback needs a function"},
    {"schema", "at NULL as a schema"},
    {"function's name", "at NULL as an operator's name"},
    {"gradient", "NULL as a gradient"},
    {"operator", "at NULL as an operator's name"},
    {"lender", "at NULL as a device type"},
    {"cache", "has a name of [a-z0-9_]+"},
    {"error", "NULL as an error"},
    {"no error", "the plugin gave no text"},
    {"text", "the plugin gave no text"},
};

/* When the device is asked for. */
static const slip devices[] = {
    {"enumerate", "enumerate failed and did not say why"},
    {"reason", "the plugin gave no reason"},
    {"devices", "4000000000 devices; more than 4096"},
    {"device_open", "device_open failed and did not say why"},
    {"device_properties", "device_properties failed and did not say why"},
    {"granularity", "cannot be: an alignment of 64, a granularity of 1844"},
    {"alignment", "cannot be: an alignment of 48"},
    {"padding", "padding of 1844"},
};

enum {
    SLIPS = sizeof slips / sizeof *slips,
    DEVICES = sizeof devices / sizeof *devices
};

START_TEST(what_init_gives_is_looked_at)
{
    core_plugin *plugin;

    setenv("FIXTURE_CARELESS", slips[_i].where, 1);
    ck_assert_int_ne(core_plugin_load(fixture("careless"), &plugin), CORE_OK);
    assert_contains(core_error_message(), slips[_i].says);
    ck_assert_ptr_null(plugin);
}
END_TEST

START_TEST(what_a_device_says_is_looked_at)
{
    core_plugin *plugin;
    core_device *device;

    setenv("FIXTURE_CARELESS", devices[_i].where, 1);
    ck_assert_int_eq(core_plugin_load(fixture("careless"), &plugin), CORE_OK);
    ck_assert_int_ne(core_device_find("careless", &device), CORE_OK);
    assert_contains(core_error_message(), devices[_i].says);
}
END_TEST

START_TEST(what_is_harmless_is_taken_for_nothing)
{
    core_plugin *plugin;
    core_device *device;

    setenv("FIXTURE_CARELESS", "nowhere", 1);
    ck_assert_int_eq(core_plugin_load(fixture("careless"), &plugin), CORE_OK);
    ck_assert_int_eq(core_device_find("careless", &device), CORE_OK);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        what_is_harmless_is_taken_for_nothing,
    };
    const suite_loop loops[] = {
        {what_init_gives_is_looked_at, 0, SLIPS},
        {what_a_device_says_is_looked_at, 0, DEVICES},
    };
    const test_suite suite = {
        .name = "loader/careless",
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
