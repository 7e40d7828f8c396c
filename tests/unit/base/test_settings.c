/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define SUITE_FORKS true

#include "support/loader.h"

#include "base/log.h"
#include "base/settings.h"

#include <libcore/device.h>
#include <pthread.h>

/* Every test is a process: nothing was read before it. */
static void clear(void)
{
    core_setting_information s = {.struct_size = sizeof s};

    unsetenv("LIBCORE_LOG");
    unsetenv("LIBCORE_THREADS");
    unsetenv("LIBCORE_TRACE_DISPATCH");
    unsetenv("LIBCORE_FALLBACK");
    unsetenv("LIBCORE_SIM_SEED");
    (void)s;
}

static void assert_invalid(core_status status, const char *value,
                           const char *allowed)
{
    ck_assert_int_eq(status, CORE_ERROR_INVALID_ARGUMENT);
    assert_contains(core_error_message(), value);
    assert_contains(core_error_message(), allowed);
}

START_TEST(every_table_row_is_complete)
{
    core_setting_information s = {.struct_size = sizeof s};
    uint32_t count = core_setting_count();

    ck_assert_uint_ge(count, CORE__SETTINGS);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(core_setting_describe(i, &s), CORE_OK);
        ck_assert_int_eq(strncmp(s.name, "LIBCORE_", 8), 0);
        ck_assert_ptr_nonnull(s.default_text);
        ck_assert_ptr_nonnull(s.allowed);
        ck_assert_ptr_nonnull(s.used_by);
        ck_assert_int_eq(s.help[strlen(s.help) - 1], '.');
    }
    ck_assert_int_eq(core_setting_describe(count, &s), CORE_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(shorter_struct_is_not_filled_beyond_its_size)
{
    core_setting_information s = {.struct_size = 24, .value = "kept"};

    ck_assert_int_eq(core_setting_describe(0, &s), CORE_OK);
    ck_assert_uint_eq(s.struct_size, 24);
    ck_assert_str_eq(s.name, "LIBCORE_DEVICE");
    ck_assert_str_eq(s.value, "kept");
}
END_TEST

START_TEST(environment_is_read_once)
{
    int64_t threads;

    setenv("LIBCORE_THREADS", "3", 1);
    ck_assert_int_eq(core__setting_integer(CORE__SETTING_THREADS, &threads),
                     CORE_OK);
    ck_assert_int_eq(threads, 3);
    setenv("LIBCORE_THREADS", "4", 1);
    ck_assert_int_eq(core__setting_integer(CORE__SETTING_THREADS, &threads),
                     CORE_OK);
    ck_assert_int_eq(threads, 3);
}
END_TEST

START_TEST(empty_variable_counts_as_unset)
{
    setenv("LIBCORE_FALLBACK", "", 1);
    ck_assert_ptr_null(core__setting("LIBCORE_FALLBACK"));
}
END_TEST

START_TEST(program_overrides_the_environment)
{
    const char *value;

    setenv("LIBCORE_FALLBACK", "count", 1);
    ck_assert_str_eq(core__setting("LIBCORE_FALLBACK"), "count");
    ck_assert_int_eq(core_setting_set("LIBCORE_FALLBACK", "error"), CORE_OK);
    ck_assert_int_eq(core_setting_get("LIBCORE_FALLBACK", &value), CORE_OK);
    ck_assert_str_eq(value, "error");
    ck_assert_int_eq(core_setting_set("LIBCORE_FALLBACK", NULL), CORE_OK);
    ck_assert_str_eq(core__setting("LIBCORE_FALLBACK"), "count");
}
END_TEST

START_TEST(number_out_of_range_names_the_range)
{
    static const char *const wrong[] = {"0",   "1025", "-1",
                                        "+1",  " 1",   "1 ",
                                        "two", "1e2",  "99999999999999999999"};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_invalid(core_setting_set("LIBCORE_THREADS", wrong[i]), wrong[i],
                       "1 to 1024");
    ck_assert_int_eq(core_setting_set("LIBCORE_THREADS", "1024"), CORE_OK);
    assert_invalid(core_setting_set("LIBCORE_PLAN_CACHE", "1048577"), "1048577",
                   "1 to 1048576");
}
END_TEST

START_TEST(invalid_value_in_the_environment_is_reported_and_ignored)
{
    core_setting_information s = {.struct_size = sizeof s};
    bool trace = true;

    setenv("LIBCORE_TRACE_DISPATCH", "maybe", 1);
    assert_invalid(core__setting_boolean(CORE__SETTING_TRACE_DISPATCH, &trace),
                   "maybe", "0 or 1");
    ck_assert(!trace);
    core_setting_describe(CORE__SETTING_TRACE_DISPATCH, &s);
    ck_assert_int_eq(s.status, CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_str_eq(s.value, "maybe");
}
END_TEST

START_TEST(switches_accept_several_spellings)
{
    static const char *const on[] = {"1", "on", "yes", "true"};
    static const char *const off[] = {"0", "off", "no", "false"};
    bool value;

    for (int i = 0; i < 4; i++) {
        core_setting_set("LIBCORE_DETERMINISTIC", on[i]);
        ck_assert_int_eq(
            core__setting_boolean(CORE__SETTING_DETERMINISTIC, &value),
            CORE_OK);
        ck_assert(value);
        core_setting_set("LIBCORE_DETERMINISTIC", off[i]);
        ck_assert_int_eq(
            core__setting_boolean(CORE__SETTING_DETERMINISTIC, &value),
            CORE_OK);
        ck_assert(!value);
    }
}
END_TEST

START_TEST(misspelt_name_is_refused)
{
    ck_assert_int_eq(core_setting_set("LIBCORE_DEVIC", "cpu"),
                     CORE_ERROR_NOT_FOUND);
    ck_assert_int_eq(core_setting_set("PATH", "/"), CORE_ERROR_NOT_FOUND);
    ck_assert_int_eq(core_setting_set("LIBCORE_COMPILE_MODE", "on"),
                     CORE_ERROR_NOT_FOUND);
    ck_assert_int_eq(core_setting_set("LIBCORE_sim_seed", "1"),
                     CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(settings_of_plugins_are_read_and_set)
{
    setenv("LIBCORE_SIM_SEED", "7", 1);
    ck_assert_str_eq(core__setting("LIBCORE_SIM_SEED"), "7");
    ck_assert_int_eq(core_setting_set("LIBCORE_SIM_SEED", "8"), CORE_OK);
    ck_assert_str_eq(core__setting("LIBCORE_SIM_SEED"), "8");
    ck_assert_ptr_null(core__setting("LIBCORE_SIM_NOTHING"));
}
END_TEST

START_TEST(list_items_match_only_as_a_whole)
{
    ck_assert(core__list_contains("a,bc, d ,e", "d", 1));
    ck_assert(core__list_contains("a,bc", "bc", 2));
    ck_assert(!core__list_contains("a,bc", "b", 1));
    ck_assert(!core__list_contains("", "a", 1));
    ck_assert(!core__list_contains(", ,", "", 0));
    ck_assert(!core__list_contains(NULL, "a", 1));
}
END_TEST

START_TEST(text_stays_valid_when_the_setting_changes)
{
    const char *first;

    core_setting_set("LIBCORE_DEVICE", "cpu");
    first = core__setting("LIBCORE_DEVICE");
    for (int i = 0; i < 10; i++) {
        core_setting_set("LIBCORE_DEVICE", i % 2 ? "sim" : "sim:1");
        ck_assert_str_eq(first, "cpu");
    }
}
END_TEST

static void *read_and_set(void *context)
{
    const char *value = context;

    for (int i = 0; i < 2000; i++) {
        const char *text;

        core_setting_set("LIBCORE_FALLBACK", value);
        text = core__setting("LIBCORE_FALLBACK");
        if (strcmp(text, "count") != 0 && strcmp(text, "error") != 0)
            return (void *)text;
    }
    return NULL;
}

START_TEST(threads_read_whole_values)
{
    pthread_t threads[2];
    void *wrong[2];

    pthread_create(&threads[0], NULL, read_and_set, "count");
    pthread_create(&threads[1], NULL, read_and_set, "error");
    pthread_join(threads[0], &wrong[0]);
    pthread_join(threads[1], &wrong[1]);
    ck_assert_ptr_null(wrong[0]);
    ck_assert_ptr_null(wrong[1]);
}
END_TEST

/* Values that only the reader of the setting can check. */
START_TEST(unknown_values_are_refused)
{
    static const char *const wrong[][3] = {
        {"LIBCORE_FALLBACK", "abacus", "\"abacus\", which is not an operator"},
        {"LIBCORE_FALLBACK", "exp, mull ,log", "\"mull\""},
        {"LIBCORE_FALLBACK", "exp,count", "\"count\""},
        {"LIBCORE_ALLOC", "caching", "LIBCORE_ALLOC: \"caching\" is not of"},
        {"LIBCORE_ALLOC", "caching:maybe", "true or false"},
        {"LIBCORE_FAULT", "allocate:3", "\"allocate:3\""},
        {"LIBCORE_FAULT", "alloc:0", "KIND:N"},
        {"LIBCORE_TRACE_DISPATCH", "2", "0 or 1"},
        {"LIBCORE_PLAN_CACHE", "0", "1 to 1048576"},
        {"LIBCORE_INTERPOSERS", "validate,nonsense", "\"nonsense\"; accepted"},
        {"LIBCORE_QUARANTINE", "maybe", "0, 1, unsealed, or the abs"},
        {"LIBCORE_QUARANTINE", "bin/helper", "0, 1, unsealed, or the abs"},
        {"LIBCORE_CACHE", "rel", "0 or an absolute path"},
        {"LIBCORE_DEVICE", "GPU!!", "\"GPU!!\" is not a device name; names"},
        {"LIBCORE_DEVICE", "sim:", "names look like"},
        {"LIBCORE_PLUGIN_PATH", "/plugins:build", "\"build\"; accepted: abs"},
        {"LIBCORE_PLUGIN_PATH", ".", "absolute paths"},
    };
    const char *value;

    unsetenv("LIBCORE_PLUGIN_PATH");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_invalid(core_setting_set(wrong[i][0], wrong[i][1]), wrong[i][0],
                       wrong[i][2]);
        ck_assert_int_eq(core_setting_get(wrong[i][0], &value), CORE_OK);
        ck_assert_ptr_null(value);
    }
}
END_TEST

/* Even of a setting that is never read. */
START_TEST(invalid_environment_is_reported_before_the_first_device)
{
    /* Invalid values, and the expected ones. */
    static const char *const wrong[][3] = {
        {"LIBCORE_FALLBACK", "exp,abacus", "exp"},
        {"LIBCORE_ALLOC", "caching", "caching:true"},
        {"LIBCORE_FAULT", "allocate:3", "alloc:3"},
        {"LIBCORE_TRACE_DISPATCH", "2", "off"},
        {"LIBCORE_PLAN_CACHE", "0", "1"},
        {"LIBCORE_INTERPOSERS", "nonsense", "validate"},
        {"LIBCORE_QUARANTINE", "maybe", "0"},
        {"LIBCORE_CACHE", "rel", "/nowhere"},
        {"LIBCORE_DEVICE", "GPU!!", "cpu"},
    };
    core_setting_information information = {.struct_size = sizeof information};
    core_device *device;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        setenv(wrong[i][0], wrong[i][1], 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t k = 0;

        /* The order of the table decides which setting is reported. */
        assert_invalid(core_device_find("cpu", &device), "LIBCORE_", "");
        ck_assert_ptr_null(device);
        while (!strstr(core_error_message(), wrong[k][0]))
            ck_assert_uint_lt(++k, sizeof wrong / sizeof *wrong);
        for (uint32_t row = 0;
             core_setting_describe(row, &information) == CORE_OK; row++)
            if (strcmp(information.name, wrong[k][0]) == 0)
                ck_assert_int_eq(information.status,
                                 CORE_ERROR_INVALID_ARGUMENT);
        ck_assert_int_eq(core_setting_set(wrong[k][0], wrong[k][2]), CORE_OK);
    }
    ck_assert_int_eq(core_device_find("cpu", &device), CORE_OK);
}
END_TEST

START_TEST(valid_values_are_accepted)
{
    static const char *const right[][2] = {
        {"LIBCORE_INTERPOSERS", "validate, trace,fault"},
        {"LIBCORE_INTERPOSERS", ""},
        {"LIBCORE_QUARANTINE", "off"},
        {"LIBCORE_QUARANTINE", "unsealed"},
        {"LIBCORE_QUARANTINE", "/helper"},
        {"LIBCORE_CACHE", "0"},
        {"LIBCORE_CACHE", "/kept"},
        {"LIBCORE_DEVICE", "abacus:1"}, /* its plugin may be loaded later */
        {"LIBCORE_PLUGIN_PATH", ":/plugins::/more:"},
        {"LIBCORE_PLUGIN_PATH", ""},
    };

    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        ck_assert_msg(core_setting_set(right[i][0], right[i][1]) == CORE_OK,
                      "%s", core_error_message());
}
END_TEST

START_TEST(invalid_path_in_the_environment_is_ignored_alone)
{
    const char *path = getenv("LIBCORE_PLUGIN_PATH");
    char both[PATH_MAX + 8];
    core_device *device;

    snprintf(both, sizeof both, ".:%s", path ? path : "");
    setenv("LIBCORE_PLUGIN_PATH", both, 1);
    ck_assert_int_eq(core_device_find("cpu", &device), CORE_OK);
    assert_refused(".", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "working directory is never searched");
}
END_TEST

START_TEST(operators_of_later_plugins_are_accepted)
{
    core_device *device;

    ck_assert_int_eq(
        core_setting_set("LIBCORE_FALLBACK", " exp , acme::swish,add.Tensor"),
        CORE_OK);
    ck_assert_int_eq(core_device_find("cpu", &device), CORE_OK);
}
END_TEST

/* ----------------------------------------------------------------- log -- */

static char logged[256];

static void sink(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    snprintf(logged, sizeof logged, "%u %s %s", level, component, text);
}

/* Captures the standard error of a function. */
static void stderr_of(void (*doing)(void), char *text, size_t size)
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    size_t got;

    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    doing();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    got = fread(text, 1, size - 1, file);
    text[got] = '\0';
    fclose(file);
}

static void log_warning(void)
{
    core__log(CORE_LOG_WARNING, "test", "one %d\ntwo", 1);
}

START_TEST(nothing_is_printed_by_default)
{
    char text[256];

    stderr_of(log_warning, text, sizeof text);
    ck_assert_str_eq(text, "");
    ck_assert(!core__log_is_enabled(CORE_LOG_ERROR));
}
END_TEST

START_TEST(setting_sends_messages_to_standard_error)
{
    char text[256];

    setenv("LIBCORE_LOG", "warning", 1);
    stderr_of(log_warning, text, sizeof text);
    ck_assert_str_eq(text, "libcore warning: test: one 1 two\n");
    ck_assert(!core__log_is_enabled(CORE_LOG_INFO));
    core_setting_set("LIBCORE_LOG", "debug");
    ck_assert(core__log_is_enabled(CORE_LOG_DEBUG));
}
END_TEST

START_TEST(misspelt_level_is_reported_in_the_log)
{
    char text[512];

    setenv("LIBCORE_LOG", "loud", 1);
    stderr_of(log_warning, text, sizeof text);
    assert_contains(text, "\"loud\"");
    assert_contains(text, "error, warning, info or debug");
    assert_contains(text, "one 1 two");
}
END_TEST

START_TEST(sink_gets_the_levels_it_requested)
{
    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    core__log(CORE_LOG_INFO, "test", "not wanted");
    ck_assert_str_eq(logged, "");
    log_warning();
    ck_assert_str_eq(logged, "1 test one 1 two");
    logged[0] = '\0';
    core_log_set_sink(sink, NULL, UINT32_MAX); /* all levels */
    core__log(CORE_LOG_DEBUG, "test", "wanted");
    ck_assert_str_eq(logged, "3 test wanted");
    logged[0] = '\0';
    core_log_set_sink(NULL, NULL, 0);
    log_warning();
    ck_assert_str_eq(logged, "");
}
END_TEST

START_TEST(logging_does_not_change_the_error_record)
{
    setenv("LIBCORE_LOG", "loud", 1);
    core_error_set(CORE_ERROR_SHAPE, "what happened");
    core_log_set_sink(NULL, NULL, 0);
    core__log_is_enabled(CORE_LOG_ERROR);
    ck_assert_int_eq(core_error_code(), CORE_ERROR_SHAPE);
    ck_assert_str_eq(core_error_message(), "what happened");
}
END_TEST

static char warnings[1024];

static void collect(void *context, uint32_t level, const char *component,
                    const char *text)
{
    size_t size = strlen(warnings);

    (void)context;
    ck_assert_uint_eq(level, CORE_LOG_WARNING);
    if (strcmp(component, "settings") == 0)
        snprintf(warnings + size, sizeof warnings - size, "%s\n", text);
}

START_TEST(misspelt_variable_is_reported_once_with_the_nearest_setting)
{
    unsetenv("LIBCORE_BUILD");
    unsetenv("LIBCORE_SOURCE");
    setenv("LIBCORE_DEVCE", "cpu", 1);
    setenv("LIBCORE_PLUGINS_PATH", "/nowhere", 1);
    setenv("LIBCORE_ACME_TILES", "3", 1);       /* may belong to a plugin */
    setenv("LIBCORE_COMPILE_THE_MOST", "1", 1); /* no plugin has these */
    setenv("LIBCORE_PLUGIN_PATH", "/nowhere", 1);
    setenv("LIBCORE_TREADS", "", 1); /* the same as unset */
    core_log_set_sink(collect, NULL, CORE_LOG_WARNING);
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    assert_contains(warnings, "the environment variable LIBCORE_DEVCE ");
    assert_contains(warnings, "closest setting is LIBCORE_DEVICE\n");
    assert_contains(warnings, "the environment variable LIBCORE_PLUGINS_PATH ");
    assert_contains(warnings, "closest setting is LIBCORE_PLUGIN_PATH\n");
    assert_contains(warnings, "variable LIBCORE_COMPILE_THE_MOST is not a ");
    ck_assert_ptr_null(strstr(warnings, "ACME"));
    ck_assert_ptr_null(strstr(warnings, "TREADS"));
    ck_assert_ptr_null(strstr(warnings, "variable LIBCORE_PLUGIN_PATH"));
    warnings[0] = 0;
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    ck_assert_str_eq(warnings, "");
    core_log_set_sink(NULL, NULL, 0);
}
END_TEST

START_TEST(faults_without_their_interposer_are_reported)
{
    bool used = _i == 1;

    setenv("LIBCORE_FAULT", "alloc:1", 1);
    if (used)
        setenv("LIBCORE_INTERPOSERS", "fault", 1);
    core_log_set_sink(collect, NULL, CORE_LOG_WARNING);
    ck_assert_int_eq(core_plugin_load(fixture("good"), NULL), CORE_OK);
    core_log_set_sink(NULL, NULL, 0);
    if (used)
        ck_assert_ptr_null(strstr(warnings, "LIBCORE_FAULT is set"));
    else
        assert_contains(warnings, "LIBCORE_FAULT is set and has no effect");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        every_table_row_is_complete,
        shorter_struct_is_not_filled_beyond_its_size,
        environment_is_read_once,
        empty_variable_counts_as_unset,
        program_overrides_the_environment,
        number_out_of_range_names_the_range,
        invalid_value_in_the_environment_is_reported_and_ignored,
        switches_accept_several_spellings,
        misspelt_name_is_refused,
        settings_of_plugins_are_read_and_set,
        list_items_match_only_as_a_whole,
        text_stays_valid_when_the_setting_changes,
        threads_read_whole_values,
        unknown_values_are_refused,
        invalid_environment_is_reported_before_the_first_device,
        valid_values_are_accepted,
        invalid_path_in_the_environment_is_ignored_alone,
        operators_of_later_plugins_are_accepted,
        nothing_is_printed_by_default,
        setting_sends_messages_to_standard_error,
        misspelt_level_is_reported_in_the_log,
        sink_gets_the_levels_it_requested,
        logging_does_not_change_the_error_record,
        misspelt_variable_is_reported_once_with_the_nearest_setting,
    };
    const suite_loop loops[] = {
        {faults_without_their_interposer_are_reported, 0, 2},
    };
    const test_suite suite = {
        .name = "base/settings",
        .setup = clear,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
