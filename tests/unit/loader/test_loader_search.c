/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "support/loader.h"

#include "base/sha256.h"

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

/* Manifest folders of the test's own. */
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

START_TEST(only_files_of_the_right_name_count)
{
    install("good", "core_good.so");
    install("good", "libgood.so");
    install("good", "core_good.so.1");
    scan();
    ck_assert_uint_eq(core_plugin_count(), 1);
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    ck_assert_uint_eq(entry_of("/core_good.so").from,
                      CORE_PLUGIN_FROM_ENVIRONMENT);
}
END_TEST

START_TEST(the_path_may_name_files_and_several_folders)
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

START_TEST(the_environment_goes_before_the_installation)
{
    static path_text installed;

    mkdir(inside("a"), 0755);
    mkdir(inside("installed"), 0755);
    install("twin_a", "a/core_twin.so");
    install("twin_b", "installed/core_twin.so");
    snprintf(installed, sizeof installed, "%s", inside("installed"));
    core__search_set_folders(installed, "", "");
    core_setting_set("LIBCORE_PLUGIN_PATH", inside("a"));
    scan();
    ck_assert_uint_eq(entry_of("a/core_twin.so").state, CORE_PLUGIN_FOUND);
    assert_refused("installed/core_twin.so", CORE_PLUGIN_REFUSED,
                   CORE_ERROR_REFUSED, "another plugin named twin");
    ck_assert_uint_eq(entry_of("installed/core_twin.so").from,
                      CORE_PLUGIN_FROM_INSTALLATION);
}
END_TEST

START_TEST(the_working_directory_is_never_searched)
{
    /* One of the environment: test_loader_settings. */
    install("good", "core_good.so");
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(core_setting_set("LIBCORE_PLUGIN_PATH", "."),
                     CORE_ERROR_INVALID_ARGUMENT);
    core_setting_set("LIBCORE_PLUGIN_PATH", "::");
    scan();
    ck_assert_uint_eq(core_plugin_count(), 0);
}
END_TEST

START_TEST(a_missing_folder_of_the_path_is_told)
{
    core_setting_set("LIBCORE_PLUGIN_PATH", inside("nowhere"));
    scan();
    assert_refused("/nowhere", CORE_PLUGIN_REFUSED, CORE_ERROR_NOT_FOUND,
                   "cannot be read");
}
END_TEST

START_TEST(a_file_that_all_may_write_is_refused)
{
    const char *file = install("good", "core_good.so");

    chmod(file, 0666);
    scan();
    assert_refused("/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "written by everybody");
    /* Mended, it is found by the next scan. */
    chmod(file, 0644);
    scan();
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    ck_assert_str_eq(entry_of("/core_good.so").reason, "");
}
END_TEST

START_TEST(a_folder_that_all_may_write_is_refused)
{
    install("good", "core_good.so");
    chmod(folder, 01777);
    scan();
    assert_refused(strrchr(folder, '/'), CORE_PLUGIN_REFUSED,
                   CORE_ERROR_REFUSED, "written by everybody");
    ck_assert_uint_eq(core_plugin_count(), 1);
    ck_assert_int_eq(core_plugin_load(inside("core_good.so"), NULL),
                     CORE_ERROR_REFUSED);
}
END_TEST

START_TEST(a_link_is_judged_by_what_it_points_to)
{
    mkdir(inside("open"), 0755);
    install("good", "open/core_good.so");
    chmod(inside("open"), 0777);
    ck_assert_int_eq(
        symlink(inside("open/core_good.so"), inside("core_good.so")), 0);
    scan();
    assert_refused("open/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "written by everybody");
}
END_TEST

START_TEST(one_file_under_two_names_is_one_plugin)
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

START_TEST(a_file_of_another_user_is_refused)
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

START_TEST(what_is_no_file_is_refused)
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

START_TEST(a_list_allows)
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

START_TEST(a_list_denies)
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

START_TEST(a_manifest_names_a_plugin)
{
    manifest_folders();
    manifest("shared/good.plugin", manifest_for("good"));
    scan();
    ck_assert_uint_eq(entry_of("/core_good.so").state, CORE_PLUGIN_FOUND);
    ck_assert_uint_eq(entry_of("/core_good.so").from,
                      CORE_PLUGIN_FROM_MANIFEST);
}
END_TEST

START_TEST(a_local_manifest_replaces_a_shared_one)
{
    manifest_folders();
    manifest("shared/it.plugin", manifest_for("good"));
    manifest("local/it.plugin", manifest_for("refuses"));
    manifest("shared/hidden.plugin", manifest_for("rude"));
    manifest("local/hidden.plugin", "# nothing\n");
    scan();
    ck_assert_uint_eq(core_plugin_count(), 1);
    ck_assert_uint_eq(entry_of("/core_refuses.so").state, CORE_PLUGIN_FOUND);
}
END_TEST

/* The manifest of a copy, with its hash; in capitals if so wanted. */
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

START_TEST(a_file_of_the_manifests_hash_is_opened)
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

START_TEST(a_file_of_another_hash_is_refused)
{
    manifest_folders();
    manifest_with_hash(false);
    damage_last_byte();
    scan();
    assert_refused("/core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "not the file that its manifest names: its SHA-256 is ");
}
END_TEST

START_TEST(a_file_that_another_replaced_after_the_scan_is_refused)
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

/* It was found in a folder before its manifest was read. */
START_TEST(a_hash_holds_for_a_file_that_was_found_elsewhere_too)
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

START_TEST(a_manifest_that_is_not_understood_is_told)
{
    char text[20000];

    manifest_folders();
    memset(text, '#', sizeof text);
    file_write(inside("local/long.plugin"), text, sizeof text);
    manifest("local/words.plugin", "this is no manifest");
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
                   "of 64 digits; not understood: sha256=1234");
    assert_refused("/hash.plugin", CORE_PLUGIN_REFUSED, CORE_ERROR_CORRUPT,
                   "a hash and no path");
    assert_refused("core_good.so", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "absolute");
    assert_refused("/open.plugin", CORE_PLUGIN_REFUSED, CORE_ERROR_REFUSED,
                   "written by everybody");
}
END_TEST

START_TEST(a_path_of_the_program_may_be_relative)
{
    install("good", "core_good.so");
    unsetenv("LIBCORE_PLUGIN_PATH");
    core_setting_set("LIBCORE_PLUGIN_PATH", NULL);
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(core_plugin_load("core_good.so", NULL), CORE_OK);
    ck_assert_uint_eq(entry_of("/core_good.so").from, CORE_PLUGIN_FROM_PROGRAM);
}
END_TEST

START_TEST(a_path_that_is_not_there_is_an_error)
{
    core_plugin *plugin = (core_plugin *)"";

    ck_assert_int_eq(core_plugin_load("/nowhere/core_x.so", &plugin),
                     CORE_ERROR_NOT_FOUND);
    ck_assert_ptr_null(plugin);
    assert_contains(core_error_message(), "/nowhere/core_x.so");
}
END_TEST

/* This program as another user's, set-user-ID: what it then reads of the
 * environment is told by its exit status. */
enum { READS = 10, READS_NOT = 11, NOT_PRIVILEGED = 12 };

static int tell_setting(void)
{
    const char *value = NULL;

    if (!getauxval(AT_SECURE))
        return NOT_PRIVILEGED;
    core_setting_get("LIBCORE_PLUGIN_PATH", &value);
    return value ? READS : READS_NOT;
}

START_TEST(a_privileged_process_reads_nothing_of_the_environment)
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
        execl(inside("privileged"), "privileged", "tell", (char *)NULL);
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
        only_files_of_the_right_name_count,
        the_path_may_name_files_and_several_folders,
        the_environment_goes_before_the_installation,
        the_working_directory_is_never_searched,
        a_missing_folder_of_the_path_is_told,
        a_file_that_all_may_write_is_refused,
        a_folder_that_all_may_write_is_refused,
        a_link_is_judged_by_what_it_points_to,
        one_file_under_two_names_is_one_plugin,
        a_file_of_another_user_is_refused,
        a_privileged_process_reads_nothing_of_the_environment,
        what_is_no_file_is_refused,
        a_list_allows,
        a_list_denies,
        a_manifest_names_a_plugin,
        a_local_manifest_replaces_a_shared_one,
        a_file_of_another_hash_is_refused,
        a_file_that_another_replaced_after_the_scan_is_refused,
        a_hash_holds_for_a_file_that_was_found_elsewhere_too,
        a_manifest_that_is_not_understood_is_told,
        a_path_of_the_program_may_be_relative,
        a_path_that_is_not_there_is_an_error,
    };
    const suite_loop loops[] = {
        {a_file_of_the_manifests_hash_is_opened, 0, 2},
    };
    const test_suite suite = {
        .name = "loader/search",
        .setup = folder_make,
        .teardown = folder_remove,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    /* The folders of the build are not what is searched here. */
    unsetenv("LIBCORE_PLUGIN_PATH");
    return suite_run(&suite, 1);
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "tell") == 0)
        _exit(tell_setting()); /* a sanitizer's last words need rights */
    return run_all();
}
