/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define SUITE_FORKS true

#include "support/loader.h"

#include "base/memory.h"
#include "dispatch/dispatch.h"
#include "loader/loader.h"

#include <libcore/device.h>

#include <elf.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

/* Opens all plugins in the test's folder. */
static void load_all(void)
{
    ck_assert_int_eq(core_plugins_load_all(), CORE_OK);
}

static core_plugin *load(const char *name)
{
    core_plugin *plugin = NULL;
    core_status status = core_plugin_load(fixture(name), &plugin);

    ck_assert_msg(status == CORE_OK, "%s", core_error_message());
    return plugin;
}

/* Loading the fixture fails with this reason, both in the caller's message and
 * in the plugin's record. */
static void assert_fails(const char *name, uint32_t state, core_status status,
                         const char *part)
{
    core_plugin *plugin = (core_plugin *)"";
    char end[64];

    ck_assert_int_eq(core_plugin_load(fixture(name), &plugin), status);
    ck_assert_ptr_null(plugin);
    assert_contains(core_error_message(), part);
    assert_contains(core_error_message(), fixture(name));
    snprintf(end, sizeof end, "/core_%s.so", name);
    assert_refused(end, state, status, part);
}

static void assert_no_backend(const char *type)
{
    ck_assert_ptr_null(core__backend_by_type(type, strlen(type)));
}

START_TEST(good_plugin_registers_its_device_type)
{
    core_plugin *plugin = load("good");
    core_plugin_information p = {.struct_size = sizeof p};
    core_backend_information b = {.struct_size = sizeof b};

    core_plugin_describe(plugin, &p);
    ck_assert_uint_eq(p.state, CORE_PLUGIN_LOADED);
    ck_assert_uint_eq(p.abi_minor, CORE_ABI_MINOR);
    ck_assert_str_eq(p.name, "good");
    ck_assert_str_eq(p.reason, "");
    ck_assert_int_eq(core_backend_describe(0, &b), CORE_OK);
    ck_assert_str_eq(b.device_type, "good");
    ck_assert_uint_eq(b.device_count, 1);
    ck_assert_ptr_eq(b.plugin, plugin);
    ck_assert_int_eq(core_backend_describe(1, &b), CORE_ERROR_NOT_FOUND);
    ck_assert_ptr_eq(core_plugin_retain(plugin), plugin);
    core_plugin_release(plugin);
    ck_assert_ptr_null(core_plugin_retain(NULL));
    core_plugin_release(plugin);
}
END_TEST

START_TEST(loading_twice_returns_the_same_plugin)
{
    core_plugin *one = load("good"), *two = load("good");

    ck_assert_ptr_eq(one, two);
    ck_assert_uint_eq(core_plugin_count(), 1);
}
END_TEST

START_TEST(scanning_runs_no_code)
{
    install("imports", "core_a.so");
    install("no_note", "core_b.so");
    install("abi_future", "core_c.so");
    install("no_entry", "core_d.so");
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    ck_assert_uint_eq(core_plugin_count(), 4);
    ck_assert_ptr_null(getenv("FIXTURE_imports"));
    ck_assert_ptr_null(getenv("FIXTURE_no_note"));
    ck_assert_ptr_null(getenv("FIXTURE_abi_future"));
    ck_assert_ptr_null(getenv("FIXTURE_no_entry"));
}
END_TEST

START_TEST(plugin_is_opened_when_its_device_type_is_requested)
{
    install("good", "core_good.so");
    install("refuses", "core_refuses.so");
    ck_assert_int_eq(core__loader_load_type("good", 4), CORE_OK);
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_LOADED);
    ck_assert_uint_eq(entry_of("/core_refuses.so").state, CORE_PLUGIN_FOUND);
}
END_TEST

START_TEST(unknown_device_type_names_the_searched_folders)
{
    ck_assert_int_eq(core__loader_load_type("warp", 4), CORE_ERROR_NOT_FOUND);
    assert_contains(core_error_message(), "\"warp\"");
    assert_contains(core_error_message(), folder);
}
END_TEST

START_TEST(device_type_of_a_failed_plugin_reports_the_failure)
{
    install("refuses", "core_refuses.so");
    ck_assert_int_eq(core__loader_load_type("refuses", 7),
                     CORE_ERROR_INCOMPATIBLE);
    assert_contains(core_error_message(), "the moon is full; it needs a ");
    assert_contains(core_error_message(), "plugin ABI 0.1000; this one has 0.");
    assert_contains(core_error_message(), "core_refuses.so");
}
END_TEST

START_TEST(newer_abi_is_refused_before_its_constructor)
{
    assert_fails("abi_future", CORE_PLUGIN_REFUSED, CORE_ERROR_INCOMPATIBLE,
                 "0.1000 to 0.1001");
    ck_assert_ptr_null(getenv("FIXTURE_abi_future"));
}
END_TEST

START_TEST(file_without_a_note_runs_no_constructor)
{
    assert_fails("no_note", CORE_PLUGIN_REFUSED, CORE_ERROR_NOT_FOUND,
                 "no libcore note");
    ck_assert_ptr_null(getenv("FIXTURE_no_note"));
}
END_TEST

START_TEST(file_without_an_entry_runs_no_constructor)
{
    assert_fails("no_entry", CORE_PLUGIN_REFUSED, CORE_ERROR_NOT_FOUND,
                 "core_plugin_entry");
    ck_assert_ptr_null(getenv("FIXTURE_no_entry"));
}
END_TEST

START_TEST(entry_in_a_dependency_is_not_accepted)
{
    assert_fails("foreign_entry", CORE_PLUGIN_REFUSED, CORE_ERROR_NOT_FOUND,
                 "does not define core_plugin_entry");
}
END_TEST

/* The dynamic loader needs no section table, and neither does libcore. */
START_TEST(entry_in_a_dependency_is_not_accepted_without_sections)
{
    size_t size;
    unsigned char *bytes = file_read(fixture("foreign_entry"), &size);

    ((Elf64_Ehdr *)bytes)->e_shnum = 0;
    file_write(inside("core_foreign.so"), bytes, size);
    free(bytes);
    load_all();
    assert_refused("/core_foreign.so", CORE_PLUGIN_REFUSED,
                   CORE_ERROR_NOT_FOUND, "does not define core_plugin_entry");
}
END_TEST

START_TEST(importing_libcore_is_refused_without_sections)
{
    core_plugin *plugin;
    size_t size;
    unsigned char *bytes = file_read(fixture("imports"), &size);

    ((Elf64_Ehdr *)bytes)->e_shnum = 0;
    ((Elf64_Ehdr *)bytes)->e_shoff = 0;
    file_write(inside("core_imports.so"), bytes, size);
    free(bytes);
    ck_assert_int_eq(core_plugin_load(inside("core_imports.so"), &plugin),
                     CORE_ERROR_REFUSED);
    assert_contains(core_error_message(), "imports core_");
    ck_assert_ptr_null(getenv("FIXTURE_imports"));
}
END_TEST

/* A call of it would crash the process. */
START_TEST(entry_that_is_not_a_function_is_refused)
{
    core_plugin *plugin;

    ck_assert_int_eq(core_plugin_load(fixture("data_entry"), &plugin),
                     CORE_ERROR_NOT_FOUND);
    assert_contains(core_error_message(), "as a function");
    ck_assert_ptr_null(getenv("FIXTURE_data_entry"));
}
END_TEST

START_TEST(file_replaced_by_a_pipe_does_not_block)
{
    size_t size;
    unsigned char *bytes = file_read(fixture("good"), &size);
    core_device *device;

    file_write(inside("core_good.so"), bytes, size);
    free(bytes);
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    ck_assert_int_eq(unlink(inside("core_good.so")), 0);
    ck_assert_int_eq(mkfifo(inside("core_good.so"), 0600), 0);
    ck_assert_int_ne(core_device_find("good", &device), CORE_OK);
    assert_contains(core_error_message(), "not a regular file");
}
END_TEST

START_TEST(refusal_of_the_entry_is_reported)
{
    assert_fails("refuses", CORE_PLUGIN_FAILED, CORE_ERROR_INCOMPATIBLE,
                 "the moon is full");
}
END_TEST

START_TEST(version_that_was_not_offered_is_refused)
{
    assert_fails("wrong_version", CORE_PLUGIN_FAILED, CORE_ERROR_INCOMPATIBLE,
                 "were offered");
}
END_TEST

START_TEST(failing_init_leaves_nothing_registered)
{
    core_backend_information b = {.struct_size = sizeof b};

    assert_fails("init_fails", CORE_PLUGIN_FAILED, CORE_ERROR_NO_DEVICE,
                 "the driver is not there");
    assert_no_backend("halfway");
    ck_assert_int_eq(core_backend_describe(0, &b), CORE_ERROR_NOT_FOUND);
    ck_assert_ptr_null(core__operator_find("halfway::operator", 17));
    /* The slot is free again: the next plugin can use it. */
    core_plugin_release(load("good"));
    ck_assert_ptr_nonnull(core__backend_by_type("good", 4));
}
END_TEST

START_TEST(last_error_is_what_the_plugin_reported)
{
    const core_error_info reported = {.struct_size = sizeof reported,
                                      .code = CORE_ERROR_OUT_OF_MEMORY,
                                      .severity = CORE_SEVERITY_STREAM_POISONED,
                                      .retryable = 1,
                                      .vendor_code = -7,
                                      .component = {"driver", 6},
                                      .text = {"full", 4}};
    core_error_info last = {.struct_size = sizeof last};
    core_host host;

    core__host_fill(&host, CORE_ABI_MINOR);
    host.error_last(&last);
    ck_assert_int_eq(last.code, CORE_OK);
    ck_assert_int_eq(host.error(&reported), CORE_ERROR_OUT_OF_MEMORY);
    host.error_last(&last);
    ck_assert_int_eq(last.code, CORE_ERROR_OUT_OF_MEMORY);
    ck_assert_uint_eq(last.severity, CORE_SEVERITY_STREAM_POISONED);
    ck_assert_uint_eq(last.retryable, 1);
    ck_assert_int_eq(last.vendor_code, -7);
    ck_assert_str_eq(last.text.data, "driver: full");
    core_error_set(CORE_ERROR_IO, "another");
    host.error_last(&last);
    ck_assert_int_eq(last.code, CORE_ERROR_IO);
    ck_assert_uint_eq(last.severity, CORE_SEVERITY_RECOVERABLE);
    ck_assert_uint_eq(last.retryable, 0);
    ck_assert_int_eq(last.vendor_code, 0);
}
END_TEST

START_TEST(device_types_outside_the_note_are_refused)
{
    assert_fails("undeclared", CORE_PLUGIN_FAILED, CORE_ERROR_REFUSED,
                 "its note does not list");
    assert_no_backend("undeclared");
}
END_TEST

START_TEST(importing_libcore_is_refused_before_the_constructor)
{
    assert_fails("imports", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                 "imports core_version");
    ck_assert_ptr_null(getenv("FIXTURE_imports"));
}
END_TEST

START_TEST(unresolved_symbol_is_reported)
{
    assert_fails("unresolved", CORE_PLUGIN_FAILED, CORE_ERROR_IO,
                 "fixture_is_not_anywhere");
}
END_TEST

START_TEST(first_of_two_plugins_with_one_name_is_used)
{
    install("same_name_a", "core_1.so");
    install("same_name_b", "core_2.so");
    load_all();
    ck_assert_uint_eq(entry_of("/core_1.so").state, CORE_PLUGIN_LOADED);
    assert_refused("/core_2.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "another plugin named same_name");
}
END_TEST

/* A file that is refused when it is opened, though its note could be read. */
static void install_damaged(const char *name)
{
    const char *path = install("same_name_a", name);
    unsigned char *bytes;
    size_t size;
    Elf64_Ehdr header;
    Elf64_Phdr segment = {.p_type = PT_NULL};

    ck_assert_int_eq(core_plugin_seal_file(path), CORE_OK);
    bytes = file_read(path, &size);
    memcpy(&header, bytes, sizeof header);
    for (size_t i = 0; !(segment.p_flags & PF_X) && i < header.e_phnum; i++)
        memcpy(&segment, bytes + header.e_phoff + i * sizeof segment,
               sizeof segment);
    ck_assert(segment.p_flags & PF_X);
    bytes[segment.p_offset + segment.p_filesz / 2] ^= 0x55; /* its code */
    file_write(path, bytes, size);
    free(bytes);
}

START_TEST(damaged_plugin_hides_no_other_of_its_name)
{
    install_damaged("core_1.so");
    install("same_name_b", "core_2.so");
    load_all();
    assert_refused("/core_1.so", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "does not match its seal");
    ck_assert_uint_eq(entry_of("/core_2.so").state, CORE_PLUGIN_LOADED);
}
END_TEST

START_TEST(device_of_a_plugin_behind_a_damaged_one_is_found)
{
    core_device *device;

    install_damaged("core_1.so");
    install_damaged("core_2.so");
    install("same_name_b", "core_3.so");
    install("same_name_b", "core_4.so");
    ck_assert_int_eq(core_device_find("samename", &device), CORE_OK);
    ck_assert_uint_eq(entry_of("/core_3.so").state, CORE_PLUGIN_LOADED);
    assert_refused("/core_4.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "another plugin named same_name");
}
END_TEST

START_TEST(plugin_given_by_the_program_precedes_a_found_one)
{
    install("same_name_a", "core_1.so");
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    core_plugin_release(load("same_name_b"));
    load_all();
    assert_refused("/core_1.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "which the program chose");
    ck_assert_uint_eq(entry_of("/core_same_name_b.so").state,
                      CORE_PLUGIN_LOADED);
}
END_TEST

START_TEST(second_plugin_with_one_device_type_is_undone)
{
    install("good", "core_1.so");
    install("same_type", "core_2.so");
    load_all();
    ck_assert_uint_eq(entry_of("/core_1.so").state, CORE_PLUGIN_LOADED);
    assert_refused("/core_2.so", CORE_PLUGIN_FAILED, CORE_ERROR_REFUSED,
                   "\"good\": another plugin");
}
END_TEST

START_TEST(bad_plugin_does_not_affect_the_others)
{
    install("init_fails", "core_1.so");
    install("unresolved", "core_2.so");
    install("good", "core_3.so");
    load_all();
    ck_assert_uint_eq(entry_of("/core_1.so").state, CORE_PLUGIN_FAILED);
    ck_assert_uint_eq(entry_of("/core_2.so").state, CORE_PLUGIN_FAILED);
    ck_assert_uint_eq(entry_of("/core_3.so").state, CORE_PLUGIN_LOADED);
}
END_TEST

START_TEST(successful_searches_and_loads_keep_an_earlier_error)
{
    core_backend_information backend = {.struct_size = sizeof backend};
    core_device *device;
    uint32_t count;

    install("init_fails", "core_1.so");
    install("no_note", "core_2.so");
    install("good", "core_3.so");
    install("good", "another_name.so"); /* refused for its name */
    ck_assert_int_eq(symlink("nothing", inside("broken.so")), 0);
    core_error_set(CORE_ERROR_INDEX, "earlier");
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    ck_assert_str_eq(core_error_message(), "earlier");
    ck_assert_int_eq(core_device_count("good", &count, NULL), CORE_OK);
    ck_assert_str_eq(core_error_message(), "earlier");
    ck_assert_int_eq(core_device_find("good", &device), CORE_OK);
    ck_assert_str_eq(core_error_message(), "earlier");
    load_all();
    ck_assert_str_eq(core_error_message(), "earlier");
    ck_assert_int_eq(core_backend_describe(0, &backend), CORE_OK);
    install("same_name_a", "core_4.so");
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    core_plugin_release(load("same_name_b")); /* the other one is refused */
    ck_assert_str_eq(core_error_message(), "earlier");
    ck_assert_int_eq(core_error_code(), CORE_ERROR_INDEX);
}
END_TEST

START_TEST(loading_restores_the_process_state)
{
    volatile double tiny = 1e-310, third = 1.0, three = 3.0;
    double before = third / three;
    sigset_t blocked;
    char *text;

    ck_assert_ptr_nonnull(setlocale(LC_ALL, "C"));
    core_plugin_release(load("changes_state"));
    ck_assert_double_eq(third / three, before);
    ck_assert_int_eq(fegetround(), FE_TONEAREST);
    ck_assert(tiny / 2 != 0);
    text = setlocale(LC_ALL, NULL);
    ck_assert_str_eq(text, "C");
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    ck_assert_int_eq(sigismember(&blocked, SIGINT), 0);
    ck_assert_int_eq(sigismember(&blocked, SIGTERM), 0);
}
END_TEST

START_TEST(file_changed_since_the_scan_is_refused)
{
    install("good", "core_x.so");
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    install("same_name_a", "core_x.so");
    load_all();
    assert_refused("/core_x.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "has changed");
}
END_TEST

START_TEST(unloaded_plugin_is_shut_down_and_can_be_loaded_again)
{
    core_plugin *plugin = load("good");

    ck_assert_int_eq(core_plugin_unload(plugin, 0), CORE_OK);
    ck_assert_str_eq(getenv("FIXTURE_good"), "shut down");
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_UNLOADED);
    assert_no_backend("good");
    ck_assert_int_eq(core_plugin_unload(plugin, 0),
                     CORE_ERROR_INVALID_ARGUMENT);
    core_plugin_release(plugin);
    core_plugin_release(load("good"));
    ck_assert_ptr_nonnull(core__backend_by_type("good", 4));
}
END_TEST

START_TEST(unloading_in_use_is_busy_and_changes_nothing)
{
    core_plugin *plugin = load("good");
    core_device *device;

    ck_assert_int_eq(
        core__backend_device(core__backend_by_type("good", 4), 0, &device),
        CORE_OK);
    atomic_fetch_add(&device->references, 1);
    ck_assert_int_eq(core_plugin_unload(plugin, 0), CORE_ERROR_BUSY);
    ck_assert_ptr_nonnull(core__backend_by_type("good", 4));
    atomic_fetch_sub(&device->references, 1);
    ck_assert_int_eq(core_plugin_unload(plugin, 0), CORE_OK);
}
END_TEST

START_TEST(borrowed_kernels_pin_their_plugin)
{
    core_plugin *plugin = load("good");
    const core_kernel *kernel;

    core__host.backend_kernel((core_string){"good", 4}, 0, &kernel);
    ck_assert_int_eq(core_plugin_unload(plugin, 0), CORE_ERROR_BUSY);
    assert_contains(core_error_message(), "borrowed");
}
END_TEST

START_TEST(out_of_memory_anywhere_fails_only_one_load)
{
    core_status status = CORE_ERROR_OUT_OF_MEMORY;
    const char *path = fixture("init_fails");
    int64_t allowed;

    for (allowed = 0; status == CORE_ERROR_OUT_OF_MEMORY; allowed++) {
        ck_assert_int_lt(allowed, 1000);
        core__alloc_fault_set(allowed, true);
        status = core_plugin_load(path, NULL);
        core__alloc_fault_set(-1, false);
        assert_no_backend("halfway");
    }
    ck_assert_int_gt(allowed, 5);
    ck_assert_int_eq(status, CORE_ERROR_NO_DEVICE);
    status = CORE_ERROR_OUT_OF_MEMORY;
    path = fixture("good");
    for (allowed = 0; status != CORE_OK; allowed++) {
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        core__alloc_fault_set(allowed, true);
        status = core_plugin_load(path, NULL);
        core__alloc_fault_set(-1, false);
    }
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_LOADED);
    ck_assert_str_eq(entry_of("/core_good.so").name, "good");
}
END_TEST

static void *load_and_look(void *context)
{
    (void)context;
    for (int i = 0; i < 20; i++) {
        core_plugin_information p = {.struct_size = sizeof p};

        if (core__loader_load_type("good", 4) != CORE_OK ||
            core__loader_load_type("refuses", 7) == CORE_OK ||
            core_plugins_scan() != CORE_OK)
            return "failed";
        for (uint32_t k = 0; k < core_plugin_count(); k++)
            core_plugin_describe(core_plugin_at(k), &p);
    }
    return NULL;
}

START_TEST(threads_may_load_at_once)
{
    pthread_t threads[4];

    install("good", "core_good.so");
    install("refuses", "core_refuses.so");
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, load_and_look, NULL),
                         0);
    for (int i = 0; i < 4; i++) {
        void *failure;

        pthread_join(threads[i], &failure);
        ck_assert_ptr_null(failure);
    }
    ck_assert_uint_eq(core_plugin_count(), 2);
}
END_TEST

START_TEST(registering_outside_init_is_refused)
{
    core_plugin *plugin = load("good");

    ck_assert_int_eq(core__host.register_backend(&plugin->registry, NULL),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(
        core__host.register_kernels(NULL, (core_string){"good", 4}, NULL, 0),
        CORE_ERROR_INVALID_ARGUMENT);
}
END_TEST

START_TEST(host_reads_settings_of_plugins)
{
    core_string value;

    ck_assert_int_eq(core_setting_set("LIBCORE_SIM_FAULTS", "alloc:3"),
                     CORE_OK);
    value = core__host.setting((core_string){"LIBCORE_SIM_FAULTS", 18});
    ck_assert_uint_eq(value.size, 7);
    ck_assert_int_eq(memcmp(value.data, "alloc:3", 7), 0);
    value = core__host.setting((core_string){"LIBCORE_SIM_OTHER", 17});
    ck_assert_ptr_null(value.data);
    value = core__host.setting((core_string){"HOME", 4});
    ck_assert_ptr_null(value.data);
}
END_TEST

START_TEST(shorter_error_struct_is_not_read_beyond_its_size)
{
    core_error_info info = {.struct_size = 8,
                            .code = CORE_ERROR_DEVICE_LOST,
                            .text = {(const char *)1, 1000}};

    ck_assert_int_eq(core__host.error(&info), CORE_ERROR_DEVICE_LOST);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        good_plugin_registers_its_device_type,
        loading_twice_returns_the_same_plugin,
        scanning_runs_no_code,
        plugin_is_opened_when_its_device_type_is_requested,
        unknown_device_type_names_the_searched_folders,
        device_type_of_a_failed_plugin_reports_the_failure,
        newer_abi_is_refused_before_its_constructor,
        file_without_a_note_runs_no_constructor,
        file_without_an_entry_runs_no_constructor,
        entry_in_a_dependency_is_not_accepted,
        entry_in_a_dependency_is_not_accepted_without_sections,
        importing_libcore_is_refused_without_sections,
        entry_that_is_not_a_function_is_refused,
        file_replaced_by_a_pipe_does_not_block,
        refusal_of_the_entry_is_reported,
        version_that_was_not_offered_is_refused,
        failing_init_leaves_nothing_registered,
        last_error_is_what_the_plugin_reported,
        device_types_outside_the_note_are_refused,
        importing_libcore_is_refused_before_the_constructor,
        unresolved_symbol_is_reported,
        first_of_two_plugins_with_one_name_is_used,
        damaged_plugin_hides_no_other_of_its_name,
        device_of_a_plugin_behind_a_damaged_one_is_found,
        plugin_given_by_the_program_precedes_a_found_one,
        second_plugin_with_one_device_type_is_undone,
        bad_plugin_does_not_affect_the_others,
        successful_searches_and_loads_keep_an_earlier_error,
        loading_restores_the_process_state,
        file_changed_since_the_scan_is_refused,
        unloaded_plugin_is_shut_down_and_can_be_loaded_again,
        unloading_in_use_is_busy_and_changes_nothing,
        borrowed_kernels_pin_their_plugin,
        out_of_memory_anywhere_fails_only_one_load,
        threads_may_load_at_once,
        registering_outside_init_is_refused,
        host_reads_settings_of_plugins,
        shorter_error_struct_is_not_read_beyond_its_size,
    };
    const test_suite suite = {
        .name = "loader/loader_open",
        .setup = folder_make,
        .teardown = folder_remove,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
