/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Engines that plugins register: what is refused, and when they end. */

#include "support/ranks.h"

static core_plugin *plugin;

/* Loads the fixture as SOCKETS_REGISTERS and SOCKETS_MINOR say. */
static core_status load(const char *registers, const char *minor)
{
    char path[4096];

    if (registers)
        setenv("SOCKETS_REGISTERS", registers, 1);
    if (minor)
        setenv("SOCKETS_MINOR", minor, 1);
    snprintf(path, sizeof path, "%s/tests/fixtures/.libs/core_sockets.so",
             getenv("LIBCORE_BUILD") ? getenv("LIBCORE_BUILD") : ".");
    return core_plugin_load(path, &plugin);
}

/* A communicator of this process alone. */
static core_status create(core_comm **out_comm)
{
    core_comm_options options = rank_options(0, 1);

    return core_comm_create(rank_device_find(), &options, out_comm);
}

static const struct {
    const char *registers;
    core_status status;
    const char *message;
} refused[] = {
    {"no run", CORE_ERROR_INVALID_ARGUMENT,
     "core.collectives of the engine \"sockets\" lacks run; accepted: an "
     "interface that has probe, create, destroy, exchange and run"},
    {"no exchange", CORE_ERROR_INVALID_ARGUMENT, "lacks exchange"},
    {"no create", CORE_ERROR_INVALID_ARGUMENT, "lacks create"},
    {"a small table", CORE_ERROR_INVALID_ARGUMENT,
     "core.collectives has 88 bytes; accepted: "},
    {"no engine", CORE_ERROR_INVALID_ARGUMENT, "names an engine by 0 bytes"},
    {"a long name", CORE_ERROR_INVALID_ARGUMENT, "names an engine by 33 bytes"},
    {"another name", CORE_ERROR_UNSUPPORTED,
     "registers the interface \"core.collections\", version 1; this libcore "
     "has core.collectives, version 1"},
    {"version 2", CORE_ERROR_UNSUPPORTED,
     "registers the interface \"core.collectives\", version 2; this"},
    {"no table", CORE_ERROR_INVALID_ARGUMENT, "an interface"},
    {"it twice", CORE_ERROR_INVALID_ARGUMENT,
     "the engine \"sockets\" is registered twice"},
};

START_TEST(wrong_interface_is_refused)
{
    core_comm *comm;
    core_status status = load(refused[_i].registers, NULL);

    ck_assert_msg(status == refused[_i].status, "%s: %s",
                  core_status_name(status), core_error_message());
    MESSAGE(refused[_i].message);
    ck_assert_int_eq(create(&comm), CORE_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(larger_table_of_a_later_version_is_accepted)
{
    core_comm *comm;

    OK(load("a larger table", NULL));
    OK(create(&comm));
    core_comm_release(comm);
}
END_TEST

/* It ends before create_on_device. */
START_TEST(smaller_table_of_an_earlier_version_is_accepted)
{
    core_comm *comm;

    OK(load("the first table", NULL));
    OK(create(&comm));
    core_comm_release(comm);
}
END_TEST

START_TEST(engine_of_device_memory_refuses_devices_of_other_plugins)
{
    core_comm *comm;

    OK(load("device memory", NULL));
    ck_assert_int_eq(create(&comm), CORE_ERROR_UNSUPPORTED);
    MESSAGE("core_comm_create: the engine \"sockets\" moves the memory of its "
            "own plugin's devices; the device is \"cpu\"");
    ck_assert_ptr_null(comm);
}
END_TEST

START_TEST(registration_after_init_is_refused)
{
    core_comm *comm;

    OK(load("late", NULL));
    ck_assert_int_eq(create(&comm), CORE_ERROR_NOT_FOUND);
    MESSAGE("a plugin can register only while its init runs");
}
END_TEST

START_TEST(plugin_that_needs_a_later_minor_is_refused)
{
    core_comm *comm;

    ck_assert_int_ne(load(NULL, "99"), CORE_OK);
    MESSAGE("99");
    ck_assert_int_eq(create(&comm), CORE_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(engine_ends_with_its_plugin)
{
    core_comm *comm;

    OK(load(NULL, NULL));
    OK(create(&comm));
    ck_assert_int_eq(core_plugin_unload(plugin, 1000000000), CORE_ERROR_BUSY);
    MESSAGE("communicators that were not released");
    core_comm_release(comm);
    OK(core_plugin_unload(plugin, 1000000000));
    ck_assert_int_eq(create(&comm), CORE_ERROR_NOT_FOUND);
    MESSAGE("no engine \"sockets\" can be used");
    OK(load(NULL, NULL));
    OK(create(&comm));
    core_comm_release(comm);
}
END_TEST

START_TEST(engines_are_described)
{
    core_comm_engine_information found = {.struct_size = sizeof found};
    core_plugin_information owner = {.struct_size = sizeof owner};
    size_t count = 0;

    OK(load(NULL, NULL));
    while (core_comm_engine_describe(count, &found) == CORE_OK &&
           strcmp(found.name, "sockets") != 0)
        count++;
    ck_assert_str_eq(found.name, "sockets");
    ck_assert_uint_eq(found.usable, 1);
    ck_assert_str_eq(found.reason, "");
    OK(core_plugin_describe(found.plugin, &owner));
    ck_assert_str_eq(owner.name, "sockets");
    ck_assert_int_eq(core_comm_engine_describe(count + 100, &found),
                     CORE_ERROR_INDEX);
    MESSAGE("core_comm_engine_describe: there is no engine");
    found.struct_size = 0;
    ck_assert_int_eq(core_comm_engine_describe(count, &found),
                     CORE_ERROR_INVALID_ARGUMENT);
    OK(core_plugin_unload(plugin, 1000000000));
    found.struct_size = sizeof found;
    for (size_t i = 0; core_comm_engine_describe(i, &found) == CORE_OK; i++)
        ck_assert_str_ne(found.name, "sockets");
}
END_TEST

/* An engine of an earlier version of libcore has the first eight. */
START_TEST(missing_collective_is_an_error_that_says_so)
{
    const int64_t one = 1;
    core_comm *comm;
    core_tensor *x, *y;

    OK(load("the first collectives", NULL));
    OK(create(&comm));
    x = rank_numbers(comm, 1);
    ck_assert_int_eq(core_reduce(comm, x, CORE_REDUCE_SUM, 0, &y),
                     CORE_ERROR_UNSUPPORTED);
    MESSAGE("core_reduce: the engine \"sockets\" does not have this "
            "collective");
    ck_assert_int_eq(core_all_to_all_rows(comm, x, &one, &one, &y),
                     CORE_ERROR_UNSUPPORTED);
    OK(core_all_gather(comm, x, &y));
    core_tensor_release(x);
    core_tensor_release(y);
    core_comm_release(comm);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        larger_table_of_a_later_version_is_accepted,
        smaller_table_of_an_earlier_version_is_accepted,
        engine_of_device_memory_refuses_devices_of_other_plugins,
        registration_after_init_is_refused,
        plugin_that_needs_a_later_minor_is_refused,
        engine_ends_with_its_plugin,
        engines_are_described,
        missing_collective_is_an_error_that_says_so,
    };
    const suite_loop loops[] = {
        {wrong_interface_is_refused, 0, sizeof refused / sizeof *refused},
    };
    const test_suite suites[] = {
        {"comm/comm_engine", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
