/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin that ends or holds up the process that opens it costs an error. */

#include "loader.h"

#include "loader/quarantine.h"

#include <libcore/device.h>

static void quarantine(void)
{
    path_text helper;
    const char *build = getenv("LIBCORE_BUILD");

    folder_make();
    snprintf(helper, sizeof helper, "%s/quarantine", build ? build : ".");
    ck_assert_int_eq(core_setting_set("LIBCORE_QUARANTINE", helper), CORE_OK);
}

static void refused(const char *how, core_status status, const char *says)
{
    core_plugin *plugin;

    setenv("FIXTURE_DIES", how, 1);
    ck_assert_int_eq(core_plugin_load(fixture("dies"), &plugin), status);
    ck_assert_ptr_null(plugin);
    assert_contains(core_error_message(), says);
    assert_refused("/core_dies.so", CORE_PLUGIN_REFUSED, status, says);
}

START_TEST(a_good_plugin_passes)
{
    core_device *device;
    core_plugin *plugin;

    setenv("FIXTURE_DIES", "no", 1);
    ck_assert_msg(core_plugin_load(fixture("dies"), &plugin) == CORE_OK, "%s",
                  core_error_message());
    ck_assert_int_eq(core_device_find("dies", &device), CORE_OK);
}
END_TEST

START_TEST(a_crash_in_init_is_a_reason)
{
    refused("crash", CORE_ERROR_REFUSED, "with signal 11");
}
END_TEST

START_TEST(a_crash_in_a_constructor_is_a_reason)
{
    refused("constructor", CORE_ERROR_REFUSED, "with signal 6");
}
END_TEST

START_TEST(an_exit_in_init_is_a_reason)
{
    refused("exit", CORE_ERROR_REFUSED, "with status 0");
}
END_TEST

START_TEST(an_answer_of_the_plugins_own_does_not_count)
{
    refused("lies", CORE_ERROR_REFUSED, "with status 0");
}
END_TEST

START_TEST(an_init_that_hangs_is_a_reason)
{
    core__quarantine_ms = 2000;
    refused("hang", CORE_ERROR_REFUSED, "did not come back");
}
END_TEST

START_TEST(what_the_plugin_says_itself_comes_through)
{
    refused("fails", CORE_ERROR_NO_DEVICE, "the driver is asleep");
}
END_TEST

START_TEST(it_can_be_tried_again)
{
    core_plugin *plugin;

    refused("crash", CORE_ERROR_REFUSED, "with signal 11");
    setenv("FIXTURE_DIES", "no", 1);
    ck_assert_int_eq(core_plugin_load(fixture("dies"), &plugin), CORE_OK);
}
END_TEST

START_TEST(the_programs_settings_hold_there_too)
{
    core_plugin *plugin;

    core_setting_set("LIBCORE_PLUGIN_DENY", "dies");
    ck_assert_int_eq(core_plugin_load(fixture("dies"), &plugin),
                     CORE_ERROR_REFUSED);
    assert_contains(core_error_message(), "LIBCORE_PLUGIN_DENY");
    core_setting_set("LIBCORE_PLUGIN_DENY", NULL);
    core_setting_set("LIBCORE_LAYERS", "loud");
    ck_assert_int_eq(core_plugin_load(fixture("dies"), &plugin),
                     CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), "in quarantine");
}
END_TEST

START_TEST(a_helper_that_is_not_there_refuses_everything)
{
    core_plugin *plugin;

    core_setting_set("LIBCORE_QUARANTINE", "/nowhere/quarantine");
    ck_assert_int_eq(core_plugin_load(fixture("dies"), &plugin), CORE_ERROR_IO);
    assert_contains(core_error_message(), "/nowhere/quarantine could not be");
    core_setting_set("LIBCORE_QUARANTINE", "maybe");
    ck_assert_int_eq(core_plugin_load(fixture("dies"), &plugin),
                     CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), "\"maybe\"");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loader/quarantine");
    TCase *tests = tcase_create("quarantine");

    tcase_add_checked_fixture(tests, quarantine, folder_remove);
    tcase_add_test(tests, a_good_plugin_passes);
    tcase_add_test(tests, a_crash_in_init_is_a_reason);
    tcase_add_test(tests, a_crash_in_a_constructor_is_a_reason);
    tcase_add_test(tests, an_exit_in_init_is_a_reason);
    tcase_add_test(tests, an_answer_of_the_plugins_own_does_not_count);
    tcase_add_test(tests, an_init_that_hangs_is_a_reason);
    tcase_add_test(tests, what_the_plugin_says_itself_comes_through);
    tcase_add_test(tests, it_can_be_tried_again);
    tcase_add_test(tests, the_programs_settings_hold_there_too);
    tcase_add_test(tests, a_helper_that_is_not_there_refuses_everything);
    suite_add_tcase(suite, tests);
    return run(suite);
}
