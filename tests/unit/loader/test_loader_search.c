/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define SUITE_FORKS true

#include "support/loader.h"

#include "base/sha256.h"

#include <libcore/device.h>

#include <ctype.h>
#include <sys/auxv.h>
#include <sys/wait.h>

static void scan(void)
{
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
}

static void manifest(const char *name, const char *text)
{
    file_write(inside(name), text, strlen(text));
}

/* Creates manifest folders for the test. */
static void manifest_folders(void)
{
    static path_text shared, local;

    snprintf(shared, sizeof shared, "%s", inside("shared"));
    snprintf(local, sizeof local, "%s", inside("local"));
    ck_assert_int_eq(mkdir(shared, 0755), 0);
    ck_assert_int_eq(mkdir(local, 0755), 0);
    core__search_set_folders("", shared, local);
    unsetenv("LIBCORE_PLUGIN_PATH");
    core_setting_set("LIBCORE_PLUGIN_PATH", NULL);
}

static const char *manifest_for(const char *fixture_name)
{
    static char text[PATH_MAX + 64];

    snprintf(text, sizeof text, "# a vendor's plugin\n\n  path = %s   # here\n",
             fixture(fixture_name));
    return text;
}

START_TEST(only_files_with_plugin_names_are_found)
{
    install("good", "core_good.so");
    install("no_note", "libother.so");
    install("good", "core_good.so.1");
    ck_assert_int_eq(symlink("core_good.so", inside("libgood.so")), 0);
    file_write(inside("libtext.so"), "text", 4);
    scan();
    ck_assert_uint_eq(core_plugin_count(), 1);
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    ck_assert_uint_eq(entry_of("/core_good.so").source,
                      CORE_PLUGIN_SOURCE_ENVIRONMENT);
}
END_TEST

START_TEST(plugin_with_another_file_name_is_reported)
{
    install("good", "libgood.so");
    scan();
    ck_assert_uint_eq(core_plugin_count(), 1);
    assert_refused("/libgood.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "only files named core_*.so are loaded: rename it");
    /* The file itself may have any name. */
    core_setting_set("LIBCORE_PLUGIN_PATH", inside("libgood.so"));
    scan();
    ck_assert_uint_eq(core_plugin_count(), 1);
    ck_assert_uint_eq(entry_of("/libgood.so").state, CORE_PLUGIN_FOUND);
}
END_TEST

START_TEST(path_may_name_files_and_several_folders)
{
    char list[3 * PATH_MAX];

    mkdir(inside("a"), 0755);
    mkdir(inside("b"), 0755);
    install("good", "a/core_good.so");
    install("refuses", "b/core_refuses.so");
    snprintf(list, sizeof list, ":%s::%s:", inside("a"),
             inside("b/core_refuses.so"));
    core_setting_set("LIBCORE_PLUGIN_PATH", list);
    scan();
    ck_assert_uint_eq(core_plugin_count(), 2);
    ck_assert_uint_eq(entry_of("a/core_good.so").state, CORE_PLUGIN_FOUND);
    ck_assert_uint_eq(entry_of("b/core_refuses.so").state, CORE_PLUGIN_FOUND);
}
END_TEST

START_TEST(environment_precedes_the_installation)
{
    static path_text installed;

    mkdir(inside("a"), 0755);
    mkdir(inside("installed"), 0755);
    install("same_name_a", "a/core_same_name.so");
    install("same_name_b", "installed/core_same_name.so");
    snprintf(installed, sizeof installed, "%s", inside("installed"));
    core__search_set_folders(installed, "", "");
    core_setting_set("LIBCORE_PLUGIN_PATH", inside("a"));
    scan();
    ck_assert_uint_eq(entry_of("a/core_same_name.so").state, CORE_PLUGIN_FOUND);
    assert_refused("installed/core_same_name.so", CORE_PLUGIN_REFUSED,
                   CORE_ERROR_REFUSED, "another plugin named same_name");
    ck_assert_uint_eq(entry_of("installed/core_same_name.so").source,
                      CORE_PLUGIN_SOURCE_INSTALLATION);
}
END_TEST

START_TEST(working_directory_is_never_searched)
{
    /* Relative folders in the environment: base/test_settings. */
    install("good", "core_good.so");
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(core_setting_set("LIBCORE_PLUGIN_PATH", "."),
                     CORE_ERROR_INVALID_ARGUMENT);
    core_setting_set("LIBCORE_PLUGIN_PATH", "::");
    scan();
    ck_assert_uint_eq(core_plugin_count(), 0);
}
END_TEST

START_TEST(missing_folder_of_the_path_is_reported)
{
    core_setting_set("LIBCORE_PLUGIN_PATH", inside("nowhere"));
    scan();
    assert_refused("/nowhere", CORE_PLUGIN_REFUSED, CORE_ERROR_NOT_FOUND,
                   "cannot be read");
}
END_TEST

START_TEST(world_writable_file_is_refused)
{
    const char *file = install("good", "core_good.so");

    chmod(file, 0666);
    scan();
    assert_refused("/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "writable by everyone");
    /* With its mode corrected, the next scan accepts it. */
    chmod(file, 0644);
    scan();
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    ck_assert_str_eq(entry_of("/core_good.so").reason, "");
}
END_TEST

START_TEST(world_writable_folder_is_refused)
{
    install("good", "core_good.so");
    chmod(folder, 01777);
    scan();
    assert_refused(strrchr(folder, '/'), CORE_PLUGIN_REFUSED,
                   CORE_ERROR_REFUSED, "writable by everyone");
    ck_assert_uint_eq(core_plugin_count(), 1);
    ck_assert_int_eq(core_plugin_load(inside("core_good.so"), NULL),
                     CORE_ERROR_REFUSED);
}
END_TEST

START_TEST(symbolic_link_is_checked_by_its_target)
{
    mkdir(inside("open"), 0755);
    install("good", "open/core_good.so");
    chmod(inside("open"), 0777);
    ck_assert_int_eq(
        symlink(inside("open/core_good.so"), inside("core_good.so")), 0);
    scan();
    assert_refused("open/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "writable by everyone");
}
END_TEST

START_TEST(file_under_two_names_is_one_plugin)
{
    install("good", "core_good.so");
    ck_assert_int_eq(link(inside("core_good.so"), inside("core_hard.so")), 0);
    ck_assert_int_eq(symlink(inside("core_good.so"), inside("core_soft.so")),
                     0);
    scan();
    scan();
    ck_assert_uint_eq(core_plugin_count(), 1);
}
END_TEST

START_TEST(file_of_another_user_is_refused)
{
    if (geteuid() != 0) {
        suite_skip("only root can create files of another user");
        return;
    }
    ck_assert_int_eq(chown(install("good", "core_good.so"), 54321, 0), 0);
    scan();
    assert_refused("/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "belongs to user 54321");
}
END_TEST

START_TEST(only_regular_files_are_accepted)
{
    mkdir(inside("core_folder.so"), 0755);
    ck_assert_int_eq(mkfifo(inside("core_pipe.so"), 0644), 0);
    ck_assert_int_eq(symlink("nothing", inside("core_dangling.so")), 0);
    file_write(inside("core_empty.so"), "", 0);
    file_write(inside("core_text.so"), "#!/bin/sh\n", 10);
    scan();
    assert_refused("/core_folder.so", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "not a regular file");
    assert_refused("/core_pipe.so", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "not a regular file");
    assert_refused("/core_dangling.so", CORE_PLUGIN_REFUSED,
                   CORE_ERROR_NOT_FOUND, "cannot be opened");
    assert_refused("/core_empty.so", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "not an ELF file");
    assert_refused("/core_text.so", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "not an ELF file");
}
END_TEST

START_TEST(allow_list_is_applied)
{
    install("good", "core_good.so");
    install("refuses", "core_refuses.so");
    core_setting_set("LIBCORE_PLUGIN_ALLOW", "other, good");
    scan();
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    assert_refused("/core_refuses.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "LIBCORE_PLUGIN_ALLOW");
}
END_TEST

START_TEST(deny_list_is_applied)
{
    install("good", "core_good.so");
    core_setting_set("LIBCORE_PLUGIN_DENY", "goo,good");
    scan();
    assert_refused("/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "LIBCORE_PLUGIN_DENY");
    ck_assert_int_eq(core_plugin_load(inside("core_good.so"), NULL),
                     CORE_ERROR_REFUSED);
}
END_TEST

START_TEST(manifest_names_a_plugin)
{
    manifest_folders();
    manifest("shared/good.plugin", manifest_for("good"));
    scan();
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    ck_assert_uint_eq(entry_of("/core_good.so").source,
                      CORE_PLUGIN_SOURCE_MANIFEST);
}
END_TEST

START_TEST(local_manifest_replaces_a_shared_one)
{
    manifest_folders();
    manifest("shared/it.plugin", manifest_for("good"));
    manifest("local/it.plugin", manifest_for("refuses"));
    manifest("shared/hidden.plugin", manifest_for("changes_state"));
    manifest("local/hidden.plugin", "# nothing\n");
    scan();
    ck_assert_uint_eq(core_plugin_count(), 1);
    ck_assert_uint_eq(entry_of("/core_refuses.so").state, CORE_PLUGIN_FOUND);
}
END_TEST

/* The manifest of a copy, with its hash; optionally in capitals. */
static void manifest_with_hash(bool capitals)
{
    static char text[PATH_MAX + 128];
    char hash[65];

    install("good", "core_good.so");
    ck_assert(core__sha256_file(inside("core_good.so"), hash));
    for (char *c = hash; capitals && *c; c++)
        *c = (char)toupper((unsigned char)*c);
    snprintf(text, sizeof text, "path = %s\nsha256=%s # as it was shipped\n",
             inside("core_good.so"), hash);
    manifest("shared/good.plugin", text);
}

static void damage_last_byte(void)
{
    size_t size;
    unsigned char *bytes = file_read(inside("core_good.so"), &size);

    bytes[size - 1] ^= 1;
    file_write(inside("core_good.so"), bytes, size);
    free(bytes);
}

START_TEST(file_with_the_hash_of_its_manifest_is_opened)
{
    core_plugin *plugin;

    manifest_folders();
    manifest_with_hash(_i);
    scan();
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    ck_assert_int_eq(core_plugin_load(inside("core_good.so"), &plugin),
                     CORE_OK);
}
END_TEST

START_TEST(file_with_another_hash_is_refused)
{
    manifest_folders();
    manifest_with_hash(false);
    damage_last_byte();
    scan();
    assert_refused("/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "does not match its manifest: its SHA-256 is ");
}
END_TEST

START_TEST(file_replaced_after_the_scan_is_refused)
{
    core_plugin *plugin;

    manifest_folders();
    manifest_with_hash(false);
    scan();
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    damage_last_byte();
    ck_assert_int_eq(core_plugin_load(inside("core_good.so"), &plugin),
                     CORE_ERROR_CORRUPT);
    assert_contains(core_error_message(), "SHA-256");
}
END_TEST

/* The file was found in a folder before its manifest was read. */
START_TEST(hash_applies_to_a_file_found_elsewhere)
{
    manifest_folders();
    manifest_with_hash(false);
    damage_last_byte();
    core_setting_set("LIBCORE_PLUGIN_PATH", inside("core_good.so"));
    scan();
    assert_refused("/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "SHA-256");
}
END_TEST

START_TEST(malformed_manifest_is_reported)
{
    char text[20000];

    manifest_folders();
    memset(text, '#', sizeof text);
    file_write(inside("local/long.plugin"), text, sizeof text);
    manifest("local/words.plugin", "this is not a manifest");
    manifest("local/two.plugin", "path=/a\npath=/b\n");
    manifest("local/relative.plugin", "path = core_good.so");
    manifest("local/short.plugin", "path=/a\nsha256=1234\n");
    manifest("local/hash.plugin", "sha256 = "
                                  "0123456789abcdef0123456789abcdef"
                                  "0123456789abcdef0123456789abcdef\n");
    manifest("local/open.plugin", manifest_for("good"));
    chmod(inside("local/open.plugin"), 0666);
    scan();
    assert_refused("/long.plugin", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "too long");
    assert_refused("/words.plugin", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "not understood");
    assert_refused("/two.plugin", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "not understood");
    assert_refused("/short.plugin", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "sha256=1234");
    assert_refused("/hash.plugin", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "a hash and no path");
    assert_refused("core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "absolute");
    assert_refused("/open.plugin", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "writable by everyone");
}
END_TEST

START_TEST(path_given_by_the_program_may_be_relative)
{
    install("good", "core_good.so");
    unsetenv("LIBCORE_PLUGIN_PATH");
    core_setting_set("LIBCORE_PLUGIN_PATH", NULL);
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(core_plugin_load("core_good.so", NULL), CORE_OK);
    ck_assert_uint_eq(entry_of("/core_good.so").source,
                      CORE_PLUGIN_SOURCE_PROGRAM);
}
END_TEST

START_TEST(missing_path_is_an_error)
{
    core_plugin *plugin = (core_plugin *)"";

    ck_assert_int_eq(core_plugin_load("/nowhere/core_x.so", &plugin),
                     CORE_ERROR_NOT_FOUND);
    ck_assert_ptr_null(plugin);
    assert_contains(core_error_message(), "/nowhere/core_x.so");
}
END_TEST

START_TEST(find_reports_refused_plugins)
{
    core_device *device;
    const char *message, *named;

    file_write(inside("core_a.so"), "text", 4);
    file_write(inside("core_b.so"), "text", 4);
    file_write(inside("core_c.so"), "text", 4);
    file_write(inside("core_simm.so"), "text", 4);
    install("good", "core_good.so");
    ck_assert_int_eq(core_device_find("simm", &device), CORE_ERROR_NOT_FOUND);
    message = core_error_message();
    assert_contains(message, "/core_simm.so: is not an ELF file");
    assert_contains(message, "/core_a.so: is not an ELF file");
    named = strstr(message, "/core_a.so");
    ck_assert(strstr(message, "/core_simm.so") < named);
    assert_contains(message, "and 1 more");
    assert_contains(message, "available: good");
}
END_TEST

START_TEST(find_reports_invalid_paths)
{
    core_device *device;

    core_setting_set("LIBCORE_PLUGIN_PATH", inside("nowhere"));
    ck_assert_int_eq(core_device_find("cpu", &device), CORE_ERROR_NOT_FOUND);
    assert_contains(core_error_message(), "/nowhere: cannot be read");
    ck_assert_ptr_null(strstr(core_error_message(), "available"));
    chmod(folder, 01777);
    core_setting_set("LIBCORE_PLUGIN_PATH", folder);
    ck_assert_int_eq(core_plugins_scan(), CORE_OK);
    ck_assert_int_eq(core_device_find("cpu", &device), CORE_ERROR_NOT_FOUND);
    assert_contains(core_error_message(), "writable by everyone");
}
END_TEST

/* Runs this program as another user's set-user-ID program; its exit status
 * tells whether it reads the environment. */
enum { READS = 10, READS_NOT = 11, NOT_PRIVILEGED = 12 };

static int report_setting(void)
{
    const char *value = NULL;

    if (!getauxval(AT_SECURE))
        return NOT_PRIVILEGED;
    core_setting_get("LIBCORE_PLUGIN_PATH", &value);
    return value ? READS : READS_NOT;
}

START_TEST(privileged_process_ignores_the_environment)
{
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    size_t bytes;
    unsigned char *copy;
    int status;
    pid_t child;

    if (geteuid() != 0) {
        suite_skip("only root can create files of another user");
        return;
    }
    ck_assert_int_gt(size, 0);
    program[size] = '\0';
    copy = file_read(program, &bytes);
    file_write(inside("privileged"), copy, bytes);
    free(copy);
    chmod(folder, 0755);
    ck_assert_int_eq(chown(inside("privileged"), 54321, 0), 0);
    ck_assert_int_eq(chmod(inside("privileged"), 04755), 0);
    setenv("LIBCORE_PLUGIN_PATH", folder, 1);
    child = fork();
    if (child == 0) {
        execl(inside("privileged"), "privileged", "report", (char *)NULL);
        _exit(NOT_PRIVILEGED);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_PRIVILEGED)
        suite_skip("the file system takes no set-user-ID programs");
    else
        ck_assert_int_eq(WEXITSTATUS(status), READS_NOT);
}
END_TEST

static int run_all(void)
{
    const TTest *const tests[] = {
        only_files_with_plugin_names_are_found,
        plugin_with_another_file_name_is_reported,
        path_may_name_files_and_several_folders,
        environment_precedes_the_installation,
        working_directory_is_never_searched,
        missing_folder_of_the_path_is_reported,
        world_writable_file_is_refused,
        world_writable_folder_is_refused,
        symbolic_link_is_checked_by_its_target,
        file_under_two_names_is_one_plugin,
        file_of_another_user_is_refused,
        privileged_process_ignores_the_environment,
        only_regular_files_are_accepted,
        allow_list_is_applied,
        deny_list_is_applied,
        manifest_names_a_plugin,
        local_manifest_replaces_a_shared_one,
        file_with_another_hash_is_refused,
        file_replaced_after_the_scan_is_refused,
        hash_applies_to_a_file_found_elsewhere,
        malformed_manifest_is_reported,
        path_given_by_the_program_may_be_relative,
        missing_path_is_an_error,
        find_reports_refused_plugins,
        find_reports_invalid_paths,
    };
    const suite_loop loops[] = {
        {file_with_the_hash_of_its_manifest_is_opened, 0, 2},
    };
    const test_suite suite = {
        .name = "loader/loader_search",
        .setup = folder_make,
        .teardown = folder_remove,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    /* The build's folders are not searched in this test. */
    unsetenv("LIBCORE_PLUGIN_PATH");
    return suite_run(&suite, 1);
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "report") == 0)
        /* a sanitizer's exit handler needs rights that it lacks */
        _exit(report_setting());
    return run_all();
}
