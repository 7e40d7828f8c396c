/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin that ends or holds up the process that opens it costs an error. */

#include "support/loader.h"

#include "loader/quarantine.h"

#include <libcore/device.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
}
END_TEST

START_TEST(what_is_wrong_in_the_environment_is_wrong_there_too)
{
    core_plugin *plugin;

    setenv("LIBCORE_LAYERS", "loud", 1);
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
}
END_TEST

/* Runs a script as the helper; the milliseconds of processor time that waiting
 * for it took. */
static uint64_t waiting(const char *script, core_status status,
                        const char *says)
{
    struct rusage before, after;
    core_plugin *plugin;

    file_write(inside("helper"), script, strlen(script));
    ck_assert_int_eq(chmod(inside("helper"), 0700), 0);
    core_setting_set("LIBCORE_QUARANTINE", inside("helper"));
    getrusage(RUSAGE_SELF, &before);
    ck_assert_int_eq(core_plugin_load(fixture("good"), &plugin), status);
    getrusage(RUSAGE_SELF, &after);
    if (says)
        assert_contains(core_error_message(), says);
    return (uint64_t)((after.ru_utime.tv_sec + after.ru_stime.tv_sec -
                       before.ru_utime.tv_sec - before.ru_stime.tv_sec) *
                          1000 +
                      (after.ru_utime.tv_usec + after.ru_stime.tv_usec -
                       before.ru_utime.tv_usec - before.ru_stime.tv_usec) /
                          1000);
}

/* Its pipe is ready for ever then, and to ask it again is to wait busily. */
START_TEST(a_helper_that_has_closed_its_pipe_is_waited_for_asleep)
{
    core__quarantine_ms = 1000;
    ck_assert_uint_lt(waiting("#!/bin/sh\nexec sleep 30 >/dev/null\n",
                              CORE_ERROR_REFUSED, "did not come back"),
                      300);
}
END_TEST

START_TEST(what_it_said_before_it_closed_its_pipe_counts)
{
    ck_assert_uint_lt(waiting("#!/bin/sh\necho OK\nexec >/dev/null\nsleep 1\n",
                              CORE_OK, NULL),
                      300);
}
END_TEST

START_TEST(a_helper_that_says_too_much_is_waited_for_asleep)
{
    core__quarantine_ms = 1000;
    ck_assert_uint_lt(waiting("#!/bin/sh\nhead -c 4000 /dev/zero\n"
                              "exec sleep 30\n",
                              CORE_ERROR_REFUSED, "did not come back"),
                      300);
}
END_TEST

/* Files whose damage is not in what can be checked: code, data, relocations.
 * LIBCORE_CORRUPTIONS=N tries more of them. */
static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t random_next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void corrupt(const unsigned char *bytes, size_t size)
{
    unsigned char *copy = malloc(size);
    uint64_t changes = 1 + random_next() % 16;

    memcpy(copy, bytes, size);
    for (uint64_t k = 0; k < changes; k++)
        copy[random_next() % size] = (unsigned char)random_next();
    file_write(inside("core_good.so"), copy, size);
    free(copy);
}

/* What becomes of it depends on the process a little: a name that is damaged
 * may be found in one and not in another.  So a few get past. */
START_TEST(hardly_any_damaged_code_gets_past_it)
{
    const char *wanted = getenv("LIBCORE_CORRUPTIONS");
    int rounds = wanted ? atoi(wanted) : 60, refused = 0, crashed = 0;
    size_t size;
    unsigned char *bytes = file_read(fixture("good"), &size);

    core__quarantine_ms = 2000;
    for (int round = 0; round < rounds; round++) {
        int status;
        pid_t child;

        corrupt(bytes, size);
        child = fork();
        if (child == 0) {
            core_plugin *plugin;

            if (core_plugin_load(inside("core_good.so"), &plugin) == CORE_OK)
                _exit(0);
            _exit(*core_error_message() ? 1 : 2);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        crashed += !WIFEXITED(status);
        refused += WIFEXITED(status) && WEXITSTATUS(status) == 1;
        /* a failure without a reason */
        ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 2);
    }
    free(bytes);
    if (wanted)
        printf("# %d damaged files: %d refused, %d crashed\n", rounds, refused,
               crashed);
    ck_assert_int_gt(refused, 0);
    ck_assert_int_le(crashed, 1 + rounds / 1000);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_good_plugin_passes,
        a_crash_in_init_is_a_reason,
        a_crash_in_a_constructor_is_a_reason,
        an_exit_in_init_is_a_reason,
        an_answer_of_the_plugins_own_does_not_count,
        an_init_that_hangs_is_a_reason,
        what_the_plugin_says_itself_comes_through,
        it_can_be_tried_again,
        the_programs_settings_hold_there_too,
        what_is_wrong_in_the_environment_is_wrong_there_too,
        a_helper_that_is_not_there_refuses_everything,
        a_helper_that_has_closed_its_pipe_is_waited_for_asleep,
        what_it_said_before_it_closed_its_pipe_counts,
        a_helper_that_says_too_much_is_waited_for_asleep,
        hardly_any_damaged_code_gets_past_it,
    };
    const test_suite suite = {
        .name = "loader/quarantine",
        .setup = quarantine,
        .teardown = folder_remove,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
