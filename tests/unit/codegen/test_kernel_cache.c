/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels on disk: whatever is wrong with the files, a kernel is built. */

#define SUITE_FORKS true /* counts and settings are those of a process */
#include "support/children.h"
#include "support/sim_device.h"
#include "support/temporary_files.h"

#include "base/memory.h"
#include "codegen/kernel_cache.h"
#include "codegen/saved_kernel.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static temporary_path folder;
static char file[2 * PATH_MAX]; /* of the kernel */
static core_loop_program *program;
static const core_loop_hints hints = {.struct_size = sizeof hints};

/* out = -a of f32 */
static core_loop_program *negation(void)
{
    core__loop_writer w;
    core_loop_program *made;
    uint32_t in, out, value;

    core__loop_writer_begin(&w, 0);
    out = core__loop_write_operand(&w, CORE_F32, CORE_LOOP_OPERAND_OUTPUT);
    in = core__loop_write_operand(&w, CORE_F32, 0);
    value = core__loop_write(&w, CORE_LOOP_LOAD, CORE_F32, in, 0, 0);
    value = core__loop_write(&w, CORE_LOOP_NEG, CORE_F32, value, 0, 0);
    core__loop_write(&w, CORE_LOOP_STORE, 0, out, value, 0);
    OK(core__loop_writer_finish(&w, &made, NULL));
    core__loop_writer_end(&w);
    return made;
}

/* The only kernel in the folder, without files that are being written. */
static bool find_file(void)
{
    char path[PATH_MAX + 16];
    struct dirent *entry;
    bool found = false;
    DIR *all;

    snprintf(path, sizeof path, "%s/kernels", folder);
    all = opendir(path);
    while (all && (entry = readdir(all)))
        if (entry->d_name[0] != '.' && !strstr(entry->d_name, ".part")) {
            /* One that is replaced meanwhile may be read twice. */
            ck_assert_msg(!found || strstr(file, entry->d_name),
                          "two files in %s", path);
            snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
            found = true;
        }
    if (all)
        closedir(all);
    return found;
}

static core__loop_kernel *loaded(void)
{
    core__loop_kernel *kernel;

    core__kernel_cache_load(sim, program, &hints, &kernel);
    return kernel;
}

static void store(void)
{
    core__loop_kernel *kernel;

    OK(core__loop_kernel_build(sim, program, &hints, &kernel));
    core__kernel_cache_store(kernel, &hints);
    core__loop_kernel_release(kernel);
}

static void expect_used(bool used)
{
    core__loop_kernel *kernel = loaded();

    ck_assert_int_eq(kernel != NULL, used);
    core__loop_kernel_release(kernel);
}

/* The file is not used, and deleted; the next one is. */
static void expect_refused(void)
{
    uint64_t before = core__kernel_cache_get_counts().refused;

    expect_used(false);
    ck_assert_uint_eq(core__kernel_cache_get_counts().refused, before + 1);
    ck_assert(!find_file());
    store();
    ck_assert(find_file());
    expect_used(true);
}

static void open_device(void)
{
    sim_find("sim");
    sim->interfaces.codegen.flags |= CORE_CODEGEN_BUILDS_SLOWLY;
}

static void begin_without_device(void)
{
    temporary_folder(folder, "kernel-cache");
    OK(core_setting_set("LIBCORE_CACHE", folder));
    program = negation();
}

static void begin(void)
{
    begin_without_device();
    open_device();
}

static void end(void)
{
    core__loop_program_release(program);
    temporary_remove(folder);
    drop_all();
}

/* ----------------------------------------------------------------- tests -- */

static int builds;
static core_codegen_interface real;

static core_status counting_build(void *device, const core_loop_program *p,
                                  const core_loop_hints *h, void **out_kernel)
{
    builds++;
    return real.build(device, p, h, out_kernel);
}

START_TEST(a_kernel_is_built_once_and_then_loaded)
{
    core__loop_kernel *kernel;

    real = sim->interfaces.codegen;
    sim->interfaces.codegen.build = counting_build;
    for (int i = 0; i < 3; i++) {
        OK(core__loop_kernel_make_shared(sim, program, &hints, &kernel));
        core__loop_kernel_release(kernel);
    }
    sim->interfaces.codegen = real;
    ck_assert_int_eq(builds, 1);
    ck_assert_uint_eq(core__kernel_cache_get_counts().stored, 1);
    ck_assert_uint_eq(core__kernel_cache_get_counts().loaded, 2);
}
END_TEST

static void change(long at)
{
    FILE *f = fopen(file, "r+b");
    int c;

    if (!f) /* another process has deleted it */
        return;
    fseek(f, at, SEEK_SET);
    c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
}

START_TEST(damaged_files_are_replaced)
{
    struct stat now;

    store();
    ck_assert(find_file());
    ck_assert_int_eq(stat(file, &now), 0);
    ck_assert_int_eq(now.st_mode & 0777, 0600);
    for (long at = 0; at < now.st_size; at += 7) {
        change(at);
        expect_refused();
    }
    for (long size = 0; size < now.st_size; size += 31) {
        ck_assert_int_eq(truncate(file, size), 0);
        expect_refused();
    }
}
END_TEST

START_TEST(files_that_others_may_write_are_refused)
{
    store();
    ck_assert(find_file());
    ck_assert_int_eq(chmod(file, 0622), 0);
    expect_refused();
    ck_assert_int_eq(chmod(file, 0620), 0);
    expect_refused();
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(file, 12345, (gid_t)-1), 0);
        expect_refused();
    }
}
END_TEST

START_TEST(links_are_refused)
{
    char other[PATH_MAX + 8];

    store();
    ck_assert(find_file());
    snprintf(other, sizeof other, "%s/other", folder);
    ck_assert_int_eq(rename(file, other), 0);
    ck_assert_int_eq(symlink(other, file), 0);
    expect_refused();
}
END_TEST

/* It is counted, and stays. */
static void expect_kept(void)
{
    uint64_t before = core__kernel_cache_get_counts().refused;

    expect_used(false);
    ck_assert_uint_eq(core__kernel_cache_get_counts().refused, before + 1);
}

static core_status load_without_memory(void *device, const core_loop_program *p,
                                       const void *data, uint64_t size,
                                       void **out_kernel)
{
    (void)device;
    (void)p;
    (void)data;
    (void)size;
    *out_kernel = NULL;
    return CORE_ERROR_OUT_OF_MEMORY;
}

START_TEST(files_that_cannot_be_used_now_are_kept)
{
    core_codegen_interface *table = &sim->interfaces.codegen;
    const core_codegen_interface ours = *table;
    struct rlimit none, before;

    store();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    expect_kept();
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    expect_used(true);
    table->load = load_without_memory;
    expect_kept();
    *table = ours;
    expect_used(true);
}
END_TEST

START_TEST(a_folder_that_others_may_write_is_not_used)
{
    char path[PATH_MAX + 16];

    store();
    snprintf(path, sizeof path, "%s/kernels", folder);
    ck_assert_int_eq(chmod(path, 0777), 0);
    expect_used(false);
    store();
    ck_assert_uint_eq(core__kernel_cache_get_counts().failed, 1);
}
END_TEST

static core_status other_identity(void *device, core_string *out_text)
{
    (void)device;
    *out_text = (core_string){"another instruction set", 23};
    return CORE_OK;
}

START_TEST(kernels_of_another_generator_are_not_used)
{
    core_codegen_interface *table = &sim->interfaces.codegen;
    const core_codegen_interface before = *table;
    char first[2 * PATH_MAX], moved[PATH_MAX + 8];

    store();
    ck_assert(find_file());
    strcpy(first, file);
    snprintf(moved, sizeof moved, "%s/moved", folder);
    table->identity = other_identity;
    expect_used(false);
    /* Also if it has that generator's name. */
    ck_assert_int_eq(rename(first, moved), 0);
    store();
    ck_assert(find_file());
    ck_assert_str_ne(file, first);
    ck_assert_int_eq(rename(moved, file), 0);
    expect_refused();
    *table = before;
}
END_TEST

START_TEST(a_disk_that_is_full_loses_nothing)
{
    const struct rlimit small = {100, RLIM_INFINITY};
    struct rlimit before;
    core__loop_kernel *kernel;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    OK(core__loop_kernel_make_shared(sim, program, &hints, &kernel));
    core__loop_kernel_release(kernel);
    ck_assert_uint_eq(core__kernel_cache_get_counts().failed, 1);
    ck_assert(!find_file());
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    store();
    expect_used(true);
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_loses_nothing)
{
    core__loop_kernel *kernel;

    OK(core_setting_set("LIBCORE_CACHE", "/dev/null/below"));
    OK(core__loop_kernel_make_shared(sim, program, &hints, &kernel));
    core__loop_kernel_release(kernel);
    ck_assert_uint_eq(core__kernel_cache_get_counts().failed, 1);
    OK(core_setting_set("LIBCORE_CACHE", "0"));
    OK(core__loop_kernel_make_shared(sim, program, &hints, &kernel));
    core__loop_kernel_release(kernel);
    ck_assert_uint_eq(core__kernel_cache_get_counts().failed, 1);
    ck_assert_uint_eq(core__kernel_cache_get_counts().stored, 0);
}
END_TEST

START_TEST(files_that_were_not_used_make_room)
{
    char path[PATH_MAX + 32];
    uint64_t files, bytes;
    FILE *f;

    store();
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/kernels/%d.kernel", folder, i);
        f = fopen(path, "w");
        ck_assert_ptr_nonnull(f);
        fclose(f); /* of zeros, which need no space */
        ck_assert_int_eq(truncate(path, (CORE__KERNEL_CACHE_SIZE >> i) - 100),
                         0);
    }
    expect_used(true); /* it is the newest now */
    store();
    OK(core__kernel_cache_measure(&files, &bytes, NULL, 0));
    ck_assert_uint_eq(files, 2);
    ck_assert_uint_le(bytes, CORE__KERNEL_CACHE_SIZE);
    expect_used(true);
}
END_TEST

/* Some store what others load and delete. */
START_TEST(processes_share_a_folder)
{
    pid_t children[4];

    for (int c = 0; c < 4; c++) {
        children[c] = fork();
        if (children[c] != 0)
            continue;
        child_begins(60);
        open_device();
        for (int i = 0; i < 50; i++) {
            core__loop_kernel *kernel;

            store();
            if (c == 3 && find_file())
                change(200 + i);
            kernel = loaded();
            core__loop_kernel_release(kernel);
        }
        child_ends(core__kernel_cache_get_counts().failed == 0);
    }
    for (int c = 0; c < 4; c++)
        wait_for_child(children[c]);
    open_device();
    store();
    expect_used(true);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_kernel_is_built_once_and_then_loaded,
        damaged_files_are_replaced,
        files_that_others_may_write_are_refused,
        links_are_refused,
        files_that_cannot_be_used_now_are_kept,
        a_folder_that_others_may_write_is_not_used,
        kernels_of_another_generator_are_not_used,
        a_disk_that_is_full_loses_nothing,
        a_folder_that_cannot_be_made_loses_nothing,
        files_that_were_not_used_make_room,
    };
    const TTest *const shared[] = {processes_share_a_folder};
    const test_suite suites[] = {
        {.name = "codegen/kernel cache",
         .setup = begin,
         .teardown = end,
         SUITE_TESTS(tests)},
        {.name = "codegen/kernel cache, processes",
         .setup = begin_without_device,
         .teardown = end,
         SUITE_TESTS(shared)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
