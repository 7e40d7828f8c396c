/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin that crashes or blocks the process that loads it costs only an
 * error. */

#define SUITE_FORKS true

#include "support/loader.h"

#include "loader/quarantine.h"

#include <libcore/device.h>

#include <poll.h>
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

    setenv("FIXTURE_CRASHING", how, 1);
    ck_assert_int_eq(core_plugin_load(fixture("crashing"), &plugin), status);
    ck_assert_ptr_null(plugin);
    assert_contains(core_error_message(), says);
    assert_refused("/core_crashing.so", CORE_PLUGIN_REFUSED, status, says);
}

START_TEST(good_plugin_passes)
{
    core_device *device;
    core_plugin *plugin;

    setenv("FIXTURE_CRASHING", "no", 1);
    ck_assert_msg(core_plugin_load(fixture("crashing"), &plugin) == CORE_OK,
                  "%s", core_error_message());
    ck_assert_int_eq(core_device_find("crashing", &device), CORE_OK);
}
END_TEST

START_TEST(crash_in_init_is_reported)
{
    refused("crash", CORE_ERROR_REFUSED, "with signal 11");
}
END_TEST

START_TEST(crash_in_a_constructor_is_reported)
{
    refused("constructor", CORE_ERROR_REFUSED, "with signal 6");
}
END_TEST

START_TEST(exit_in_init_is_reported)
{
    refused("exit", CORE_ERROR_REFUSED, "with status 0");
}
END_TEST

START_TEST(forged_output_of_the_plugin_is_ignored)
{
    refused("forges", CORE_ERROR_REFUSED, "with status 0");
}
END_TEST

START_TEST(hanging_init_is_reported)
{
    core__quarantine_ms = 2000;
    refused("hang", CORE_ERROR_REFUSED, "did not return");
}
END_TEST

START_TEST(error_of_the_plugin_is_reported)
{
    refused("fails", CORE_ERROR_NO_DEVICE, "the driver is asleep");
}
END_TEST

START_TEST(failed_plugin_can_be_loaded_again)
{
    core_plugin *plugin;

    refused("crash", CORE_ERROR_REFUSED, "with signal 11");
    setenv("FIXTURE_CRASHING", "no", 1);
    ck_assert_int_eq(core_plugin_load(fixture("crashing"), &plugin), CORE_OK);
}
END_TEST

START_TEST(program_settings_apply_in_the_helper)
{
    core_plugin *plugin;

    core_setting_set("LIBCORE_PLUGIN_DENY", "crashing");
    ck_assert_int_eq(core_plugin_load(fixture("crashing"), &plugin),
                     CORE_ERROR_REFUSED);
    assert_contains(core_error_message(), "LIBCORE_PLUGIN_DENY");
}
END_TEST

START_TEST(invalid_environment_is_invalid_in_the_helper)
{
    core_plugin *plugin;

    setenv("LIBCORE_INTERPOSERS", "loud", 1);
    ck_assert_int_eq(core_plugin_load(fixture("crashing"), &plugin),
                     CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), "in quarantine");
}
END_TEST

START_TEST(missing_helper_refuses_every_plugin)
{
    core_plugin *plugin;

    core_setting_set("LIBCORE_QUARANTINE", "/nowhere/quarantine");
    ck_assert_int_eq(core_plugin_load(fixture("crashing"), &plugin),
                     CORE_ERROR_IO);
    assert_contains(core_error_message(), "/nowhere/quarantine could not be");
}
END_TEST

/* Replaces poll in this program, and counts the calls that returned because the
 * pipe was ready. */
static uint32_t ready_polls;

int poll(struct pollfd *list, nfds_t count, int timeout)
{
    const struct timespec limit = {timeout / 1000, timeout % 1000 * 1000000};
    int ready = ppoll(list, count, &limit, NULL);

    ready_polls += ready > 0;
    return ready;
}

/* Runs a script as the helper.  Its output makes the pipe ready a few times; a
 * busy wait finds it ready at every poll. */
static void check_sleeps(const char *script, core_status status,
                         const char *says)
{
    core_plugin *plugin;

    file_write(inside("helper"), script, strlen(script));
    ck_assert_int_eq(chmod(inside("helper"), 0700), 0);
    core_setting_set("LIBCORE_QUARANTINE", inside("helper"));
    ready_polls = 0;
    ck_assert_int_eq(core_plugin_load(fixture("good"), &plugin), status);
    if (says)
        assert_contains(core_error_message(), says);
    ck_assert_uint_gt(ready_polls, 0);
    ck_assert_uint_le(ready_polls, 20);
}

START_TEST(wait_for_a_helper_with_closed_pipe_sleeps)
{
    core__quarantine_ms = 1000;
    check_sleeps("#!/bin/sh\nexec sleep 30 >/dev/null\n", CORE_ERROR_REFUSED,
                 "did not return");
}
END_TEST

START_TEST(result_before_the_pipe_is_closed_is_accepted)
{
    check_sleeps("#!/bin/sh\necho OK\nexec >/dev/null\nsleep 1\n", CORE_OK,
                 NULL);
}
END_TEST

START_TEST(wait_for_a_helper_with_too_much_output_sleeps)
{
    core__quarantine_ms = 1000;
    check_sleeps("#!/bin/sh\nhead -c 4000 /dev/zero\nexec sleep 30\n",
                 CORE_ERROR_REFUSED, "did not return");
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

/* The outcome depends a little on the process: a damaged name may be found in
 * one and not in another.  So a few files pass. */
START_TEST(quarantine_catches_most_damaged_code)
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
        good_plugin_passes,
        crash_in_init_is_reported,
        crash_in_a_constructor_is_reported,
        exit_in_init_is_reported,
        forged_output_of_the_plugin_is_ignored,
        hanging_init_is_reported,
        error_of_the_plugin_is_reported,
        failed_plugin_can_be_loaded_again,
        program_settings_apply_in_the_helper,
        invalid_environment_is_invalid_in_the_helper,
        missing_helper_refuses_every_plugin,
        wait_for_a_helper_with_closed_pipe_sleeps,
        result_before_the_pipe_is_closed_is_accepted,
        wait_for_a_helper_with_too_much_output_sleeps,
        quarantine_catches_most_damaged_code,
    };
    const test_suite suite = {
        .name = "loader/quarantine",
        .setup = quarantine,
        .teardown = folder_remove,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
