/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Device memory that two processes share.  The other process is this program,
 * started again with a command and a file that contains the handle. */

#include "support/sim_device.h"
#include "support/stream.h"

#include <libcore/memory.h>
#include <libcore/plugins.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1000 };

static char program[4096];

static void start(void)
{
    sim_find("sim");
}

/* ------------------------------------------------------ the other process -- */

typedef struct channel {
    core_memory_handle handle;
    int64_t count;
} channel;

/* Adds 1 to shared memory that has the value; 0: success. */
static int import_and_add(const channel *c, float value)
{
    core_tensor *tensor;
    float got[COUNT];

    if (core_device_find("sim", &sim) != CORE_OK)
        return 7;
    if (core_memory_import(sim, &c->handle, CORE_F32, &c->count, 1, &tensor) !=
        CORE_OK) {
        fprintf(stderr, "# %s\n", core_error_message());
        return 2;
    }
    if (core_tensor_read(tensor, got, (size_t)c->count * sizeof *got) !=
        CORE_OK)
        return 3;
    for (int64_t i = 0; i < c->count; i++)
        if (got[i] != value)
            return 4;
    if (core_add_scalar_(tensor, core_float(1), core_float(1)) != CORE_OK ||
        core_device_synchronize(sim) != CORE_OK)
        return 5;
    core_tensor_release(tensor);
    return core_memory_empty_cache(sim) == CORE_OK ? 0 : 6;
}

/*
 * Exports memory and ends, without a release of anything and so without the
 * search for leaks of a build with a sanitizer: the handle must not work
 * afterwards.
 */
static int export_and_end(int to)
{
    const int64_t count = COUNT;
    core_memory_export *export;
    core_tensor *tensor;
    channel c = {.count = COUNT};

    if (core_device_find("sim", &sim) != CORE_OK)
        return 7;
    if (core_full(&count, 1, core_float(3), CORE_F32, sim, &tensor) !=
            CORE_OK ||
        core_memory_export_create(tensor, &c.handle, &export) != CORE_OK)
        return 2;
    if (write(to, &c, sizeof c) != sizeof c)
        return 3;
    /* Ends when the other side closes the pipe. */
    _exit(read(STDIN_FILENO, &c, 1) == 0 ? 0 : 4);
}

static int other_process(const char *command, float value)
{
    channel c;

    if (strcmp(command, "export") == 0)
        return export_and_end(STDOUT_FILENO);
    if (read(STDIN_FILENO, &c, sizeof c) != sizeof c)
        return 1;
    return import_and_add(&c, value);
}

/* ---------------------------------------------------------- this process -- */

typedef struct child {
    pid_t pid;
    int to, from;
} child;

static child start_child(const char *command, const char *value)
{
    int to[2], from[2];
    child self;

    ck_assert_int_eq(pipe(to), 0);
    ck_assert_int_eq(pipe(from), 0);
    self.pid = fork();
    ck_assert_int_ge(self.pid, 0);
    if (self.pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        close(from[0]);
        setenv("CK_FORK", "no", 1);
        execl(program, program, command, value, (char *)NULL);
        _exit(99);
    }
    close(to[0]);
    close(from[1]);
    self.to = to[1];
    self.from = from[0];
    return self;
}

static int end_child(child self)
{
    int status = 0;

    close(self.to);
    ck_assert_int_eq(waitpid(self.pid, &status, 0), self.pid);
    close(self.from);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static core_memory_export *export_of(core_tensor *tensor, channel *out)
{
    core_memory_export *export;

    OK(core_memory_export_create(tensor, &out->handle, &export));
    out->count = core_tensor_numel(tensor);
    return export;
}

/* The other process imports, checks and changes the memory. */
static void share(const channel *c, const char *value)
{
    child other = start_child("import", value);

    ck_assert_int_eq(write(other.to, c, sizeof *c), sizeof *c);
    ck_assert_int_eq(end_child(other), 0);
}

START_TEST(two_processes_share_memory)
{
    core_tensor *tensor = filled(sim, COUNT, 3);
    core_memory_export *export;
    channel c;

    export = export_of(tensor, &c);
    share(&c, "3");
    all_are(tensor, 4);
    /* Computing here is seen there. */
    OK(core_fill_(tensor, core_float(8)));
    OK(core_device_synchronize(sim));
    share(&c, "8");
    all_are(tensor, 9);
    core_memory_export_release(export);
    all_are(tensor, 9);
}
END_TEST

/* A part of an allocation, and its neighbours. */
START_TEST(only_the_exported_part_is_imported)
{
    core_tensor *tensor = filled(sim, COUNT, 1), *part, *other;
    core_tensor *neighbour = filled(sim, COUNT, 5);
    core_memory_export *export;
    const int64_t more = 101;
    channel c;

    OK(core_narrow(tensor, 0, 300, 100, &part));
    keep(part);
    export = export_of(part, &c);
    share(&c, "1");
    all_are(part, 2);
    all_are(neighbour, 5);
    OK(core_narrow(tensor, 0, 0, 300, &part));
    all_are(keep(part), 1);
    OK(core_narrow(tensor, 0, 400, 600, &part));
    all_are(keep(part), 1);
    FAILS(core_memory_import(sim, &c.handle, CORE_F32, &more, 1, &other),
          CORE_ERROR_SHAPE, "core_memory_import", "404 bytes", "400 bytes");
    core_memory_export_release(export);
}
END_TEST

/* sim opens its own exports, too. */
START_TEST(imported_memory_is_the_same_memory)
{
    const int64_t sizes[2] = {10, 100};
    core_tensor *tensor = filled(sim, COUNT, 2), *imported, *again;
    core_memory_export *export, *second;
    core_stream *stream = stream_of(sim);
    core_stream_guard guard;
    channel c, d;

    export = export_of(tensor, &c);
    second = export_of(tensor, &d);
    core_memory_export_release(second);
    OK(core_memory_import(sim, &c.handle, CORE_F32, sizes, 2, &imported));
    all_are(add(imported, imported), 4);
    OK(core_fill_(imported, core_float(7)));
    OK(core_device_synchronize(sim));
    all_are(tensor, 7);
    /* The same export can be imported twice. */
    OK(core_memory_import(sim, &c.handle, CORE_F32, sizes, 2, &again));
    all_are(again, 7);
    core_tensor_release(again);
    all_are(imported, 7);
    /* Imported memory cannot be exported. */
    FAILS(core_memory_export_create(imported, &d.handle, &second),
          CORE_ERROR_UNSUPPORTED, "core_memory_export_create",
          "not allocated by libcore");
    /* It stays open for work that was recorded. */
    OK(control->hold(0));
    OK(core_stream_guard_enter(stream, &guard));
    OK(core_add(imported, imported, core_float(1), &again));
    keep(again);
    core_stream_guard_leave(&guard);
    OK(core_tensor_record_stream(imported, stream));
    core_tensor_release(imported);
    OK(control->release(0));
    OK(core_stream_synchronize(stream));
    all_are(again, 14);
    core_memory_export_release(export);
    core_stream_release(stream);
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(counters_of(0).bad_frees, 0);
    ck_assert_uint_eq(counters_of(0).imports, 0);
}
END_TEST

/* Releases imported memory that held work uses, and lets the work run. */
static core_memory_export *release_in_use(void)
{
    const int64_t count = COUNT;
    core_tensor *tensor = filled(sim, COUNT, 2), *imported, *sum;
    core_memory_export *export;
    channel c;

    export = export_of(tensor, &c);
    OK(core_memory_import(sim, &c.handle, CORE_F32, &count, 1, &imported));
    OK(core_device_synchronize(sim));
    ck_assert_uint_eq(counters_of(0).imports, 1);
    OK(control->hold(0));
    OK(core_add(imported, imported, core_float(1), &sum));
    core_tensor_release(imported);
    core_tensor_release(sum);
    ck_assert_uint_eq(counters_of(0).imports, 1);
    OK(control->release(0));
    return export;
}

START_TEST(imported_memory_is_closed_when_the_device_is_synchronized)
{
    core_memory_export *export = release_in_use();

    OK(core_device_synchronize(sim));
    ck_assert_uint_eq(counters_of(0).imports, 0);
    core_memory_export_release(export);
    ck_assert_uint_eq(counters_of(0).bad_frees, 0);
}
END_TEST

START_TEST(imported_memory_does_not_prevent_unloading)
{
    const char *build = getenv("LIBCORE_BUILD");
    core_memory_export *export;
    core_plugin *plugin;
    core_stream *stream;
    char path[4096];

    snprintf(path, sizeof path,
             "%s/tests/fixtures/mutants/.libs/core_mutant.so",
             build ? build : ".");
    OK(core_plugin_load(path, &plugin));
    sim_find("mutant");
    export = release_in_use();
    OK(core_stream_current(sim, &stream));
    OK(core_stream_synchronize(stream));
    core_memory_export_release(export);
    drop_all();
    OK(core_plugin_unload(plugin, UINT64_C(1000000000)));
}
END_TEST

START_TEST(ended_export_cannot_be_imported)
{
    const int64_t count = COUNT;
    core_tensor *tensor = filled(sim, COUNT, 2), *imported;
    core_memory_export *export;
    channel c;

    export = export_of(tensor, &c);
    OK(core_memory_import(sim, &c.handle, CORE_F32, &count, 1, &imported));
    keep(imported);
    core_memory_export_release(export);
    FAILS(core_memory_import(sim, &c.handle, CORE_F32, &count, 1, &tensor),
          CORE_ERROR_NOT_FOUND, "no longer exports");
    ck_assert_ptr_null(tensor);
    all_are(imported, 2); /* what is open stays open */
    core_memory_export_release(NULL);
}
END_TEST

START_TEST(memory_is_exported_again_after_its_export_ended)
{
    const int64_t count = COUNT;
    core_tensor *tensor = filled(sim, COUNT, 3), *imported;
    channel c;

    for (int i = 0; i < 3; i++) {
        core_memory_export *export = export_of(tensor, &c);

        OK(core_memory_import(sim, &c.handle, CORE_F32, &count, 1, &imported));
        all_are(keep(imported), 3);
        core_memory_export_release(export);
    }
    all_are(tensor, 3);
}
END_TEST

/* The export keeps the memory, even if the tensor is gone. */
START_TEST(export_keeps_memory_allocated)
{
    const int64_t count = COUNT;
    core_tensor *tensor, *imported;
    core_memory_export *export;
    channel c;

    OK(core_full(&count, 1, core_float(6), CORE_F32, sim, &tensor));
    export = export_of(tensor, &c);
    core_tensor_release(tensor);
    OK(core_memory_empty_cache(sim));
    for (int i = 0; i < 10; i++)
        filled(sim, COUNT, 0);
    OK(core_memory_import(sim, &c.handle, CORE_F32, &count, 1, &imported));
    all_are(keep(imported), 6);
    core_memory_export_release(export);
}
END_TEST

START_TEST(memory_of_an_ended_process_is_not_found)
{
    child other = start_child("export", "0");
    core_tensor *before, *after;
    channel c;

    ck_assert_int_eq(read(other.from, &c, sizeof c), sizeof c);
    OK(core_memory_import(sim, &c.handle, CORE_F32, &c.count, 1, &before));
    keep(before);
    all_are(before, 3);
    ck_assert_int_eq(end_child(other), 0);
    FAILS(core_memory_import(sim, &c.handle, CORE_F32, &c.count, 1, &after),
          CORE_ERROR_NOT_FOUND, "no longer exports");
    /* What is open stays open. */
    all_are(before, 3);
    all_are(add(before, before), 6);
}
END_TEST

START_TEST(wrong_handles_are_refused)
{
    const int64_t count = COUNT;
    core_tensor *tensor = filled(sim, COUNT, 2), *out;
    core_memory_export *export;
    core_memory_handle nothing = {{0}};
    channel c, damaged;

    export = export_of(tensor, &c);
    FAILS(core_memory_import(sim, &nothing, CORE_F32, &count, 1, &out),
          CORE_ERROR_INVALID_ARGUMENT, "not one of");
    for (size_t i = 0; i < sizeof c.handle; i++) {
        damaged = c;
        damaged.handle.bytes[i] ^= 0x10;
        ck_assert_int_ne(
            core_memory_import(sim, &damaged.handle, CORE_F32, &count, 1, &out),
            CORE_OK);
        ck_assert_ptr_null(out);
    }
    FAILS(core_memory_import(device_of("sim:1"), &c.handle, CORE_F32, &count, 1,
                             &out),
          CORE_ERROR_DEVICE, "another device", "sim:1");
    FAILS(core_memory_import(device_of("cpu"), &c.handle, CORE_F32, &count, 1,
                             &out),
          CORE_ERROR_UNSUPPORTED, "cpu", "core.ipc");
    FAILS(core_memory_import(sim, NULL, CORE_F32, &count, 1, &out),
          CORE_ERROR_INVALID_ARGUMENT, "handle");
    core_memory_export_release(export);
}
END_TEST

START_TEST(only_row_major_device_memory_is_exported)
{
    const int64_t sizes[2] = {4, 8};
    core_tensor *tensor, *turned;
    core_memory_export *export;
    core_memory_handle handle;

    OK(core_zeros(sizes, 2, CORE_F32, sim, &tensor));
    keep(tensor);
    OK(core_transpose(tensor, 0, 1, &turned));
    keep(turned);
    FAILS(core_memory_export_create(turned, &handle, &export), CORE_ERROR_SHAPE,
          "not row-major");
    ck_assert_ptr_null(export);
    FAILS(core_memory_export_create(filled(sim, 0, 0), &handle, &export),
          CORE_ERROR_SHAPE, "0 elements");
    FAILS(core_memory_export_create(filled(device_of("cpu"), 4, 0), &handle,
                                    &export),
          CORE_ERROR_UNSUPPORTED, "core.ipc", "cpu");
    FAILS(core_memory_export_create(NULL, &handle, &export),
          CORE_ERROR_INVALID_ARGUMENT, "tensor");
}
END_TEST

START_TEST(lost_memory_is_not_shared)
{
    const int64_t count = COUNT;
    core_tensor *tensor = filled(sim, COUNT, 2), *imported, *out;
    core_memory_export *export, *other;
    channel c;

    export = export_of(tensor, &c);
    OK(core_memory_import(sim, &c.handle, CORE_F32, &count, 1, &imported));
    OK(control->lose(0));
    FAILS(core_device_synchronize(sim), CORE_ERROR_DEVICE_LOST);
    FAILS(core_memory_export_create(tensor, &c.handle, &other),
          CORE_ERROR_DEVICE_LOST);
    OK(core_device_reset(sim));
    FAILS(core_add(imported, imported, core_float(1), &out),
          CORE_ERROR_DEVICE_LOST);
    core_tensor_release(imported);
    core_memory_export_release(export);
    all_are(filled(sim, COUNT, 1), 1);
}
END_TEST

START_TEST(sharing_in_every_mode_of_the_device)
{
    core_tensor *tensor;
    core_memory_export *export;
    channel c;

    if (_i & 1)
        setenv("LIBCORE_SIM_MEMORY", "flat", 1);
    if (_i & 2)
        setenv("LIBCORE_SIM_ALLOCATOR", "1", 1);
    setenv("LIBCORE_SIM_CHECK", "1", 1);
    setenv("LIBCORE_INTERPOSERS", "validate", 1);
    sim_find("sim");
    tensor = filled(sim, COUNT, 3);
    export = export_of(tensor, &c);
    share(&c, "3");
    all_are(tensor, 4);
    core_memory_export_release(export);
    ck_assert_uint_eq(counters_of(0).bad_frees, 0);
    ck_assert_uint_eq(counters_of(0).overruns, 0);
}
END_TEST

int main(int argc, char **argv)
{
    const TTest *const tests[] = {
        two_processes_share_memory,
        only_the_exported_part_is_imported,
        imported_memory_is_the_same_memory,
        imported_memory_is_closed_when_the_device_is_synchronized,
        ended_export_cannot_be_imported,
        memory_is_exported_again_after_its_export_ended,
        export_keeps_memory_allocated,
        memory_of_an_ended_process_is_not_found,
        wrong_handles_are_refused,
        only_row_major_device_memory_is_exported,
        lost_memory_is_not_shared,
    };
    const TTest *const unloading[] = {
        imported_memory_does_not_prevent_unloading,
    };
    const suite_loop loops[] = {
        {sharing_in_every_mode_of_the_device, 0, 4},
    };
    const test_suite suites[] = {
        {"tensor/exported_memory", start, drop_all, 0, SUITE_TESTS(tests)},
        {.name = "tensor/exported_memory, unloading",
         .teardown = drop_all,
         SUITE_TESTS(unloading)},
        {.name = "tensor/exported_memory, modes",
         .teardown = drop_all,
         SUITE_LOOPS(loops)},
    };

    if (argc == 3)
        return other_process(argv[1], (float)atof(argv[2]));
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return 99;
    return suite_run(suites, sizeof suites / sizeof *suites);
}
