/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Ranges of the program, passed to a vendor's tool (core.ranges): the core's
 * side on the emulated device, and NVTX if backends/cuda and a fake tool
 * (tests/fixtures/gpu) are built. */

#define _GNU_SOURCE /* gettid */

#define SUITE_FORKS true

#include "support/gpu_emulated.h"
#include "support/temporary_files.h"

#include <libcore/plugins.h>
#include <libcore/profiler.h>

#include <pthread.h>
#include <dlfcn.h>

static char lines[65536]; /* of this thread, without its number */
static temporary_path path;

static void make_file(const char *setting)
{
    temporary_file(path, "gpu-ranges");
    setenv(setting, path, 1);
}

/* The events of a thread in the file, such as "+a+b--". */
static const char *events_of(int thread)
{
    FILE *file = fopen(path, "r");
    char line[256];
    int number, from;

    lines[0] = 0;
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%d %n", &number, &from) == 1 && number == thread)
            strcat(lines, line + from);
    }
    fclose(file);
    unlink(path);
    return lines;
}

static core_device *gpu;
static core_profiler *profiler;

static core_tensor *some(void)
{
    return CALL(full, (int64_t[]){4}, 1, core_float(2), CORE_F32, gpu);
}

START_TEST(operators_and_ranges_are_reported_nested)
{
    core_range outer;
    core_tensor *x;

    make_file("GPUEMU_RANGES");
    gpu = gpuemu();
    x = some();
    x = CALL(exp, x); /* before the session */
    OK(core_profiler_start(NULL, &profiler));
    outer = core_range_begin("epoch");
    x = CALL(exp, x);
    x = CALL(sin, x);
    core_range_end(outer);
    OK(core_profiler_stop(profiler));
    x = CALL(exp, x); /* after the session */
    core_profiler_release(profiler);
    ck_assert_str_eq(events_of(gettid()), "+step+epoch+exp-+sin---");
}
END_TEST

START_TEST(nodes_of_a_backward_are_reported)
{
    core_tensor *x;

    make_file("GPUEMU_RANGES");
    gpu = gpuemu();
    x = some();
    OK(core_tensor_set_requires_grad(x, true));
    x = CALL(exp, x);
    x = CALL(sum, x, CORE_DTYPE_NONE);
    OK(core_profiler_start(NULL, &profiler));
    OK(core_backward(&x, 1, NULL, 0));
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    ck_assert_msg(strstr(events_of(gettid()), "+exp backward+mul") != NULL,
                  "%s", lines);
}
END_TEST

static void *in_a_thread(void *number)
{
    core_range range = core_range_begin("elsewhere");

    core_range_end(range);
    *(int *)number = gettid();
    return NULL;
}

START_TEST(each_thread_has_its_own_ranges)
{
    pthread_t thread;
    int number = 0;

    make_file("GPUEMU_RANGES");
    gpu = gpuemu();
    OK(core_profiler_start(NULL, &profiler));
    pthread_create(&thread, NULL, in_a_thread, &number);
    pthread_join(thread, NULL);
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    ck_assert_str_eq(events_of(number), "+elsewhere-");
}
END_TEST

/* Every end has a begin, and every begin an end. */
START_TEST(ranges_cut_off_by_a_session_are_complete)
{
    core_range before, within;

    make_file("GPUEMU_RANGES");
    gpu = gpuemu();
    before = core_range_begin("before");
    OK(core_profiler_start(NULL, &profiler));
    core_range_end(before);
    within = core_range_begin("within");
    OK(core_profiler_stop(profiler));
    core_range_end(within);
    core_profiler_release(profiler);
    ck_assert_str_eq(events_of(gettid()), "+step+within--");
}
END_TEST

/* A range that is never ended ends with the enclosing one, and does not use up
 * the space of others. */
START_TEST(unended_range_ends_with_its_parent)
{
    core_range outer, inner = 0;
    char expected[1200] = "+step";

    make_file("GPUEMU_RANGES");
    gpu = gpuemu();
    OK(core_profiler_start(NULL, &profiler));
    for (int i = 0; i < 70; i++) {
        outer = core_range_begin("outer");
        inner = core_range_begin("inner");
        core_range_end(outer);
        if (i % 2)
            core_range_end(inner); /* it has already ended */
        strcat(expected, "+outer+inner--");
    }
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    strcat(expected, "-");
    ck_assert_str_eq(events_of(gettid()), expected);
}
END_TEST

START_TEST(later_device_reports_from_the_next_session)
{
    core_profiler_options options = {.struct_size = sizeof options,
                                     .active = 1};
    core_range outer;

    make_file("GPUEMU_RANGES");
    OK(core_profiler_start(&options, &profiler));
    outer = core_range_begin("outer");
    gpu = gpuemu();
    drop(some());
    core_range_end(outer);
    OK(core_profiler_step(profiler));
    drop(CALL(exp, some()));
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    ck_assert_msg(strncmp(events_of(gettid()), "+step+full", 10) == 0, "%s",
                  lines);
}
END_TEST

START_TEST(deep_ranges_are_reported_up_to_a_depth)
{
    core_range ranges[100];

    make_file("GPUEMU_RANGES");
    gpu = gpuemu();
    OK(core_profiler_start(NULL, &profiler));
    for (int i = 0; i < 100; i++)
        ranges[i] = core_range_begin("r");
    for (int i = 100; i-- > 0;)
        core_range_end(ranges[i]);
    core_range_end(core_range_begin("last"));
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    events_of(gettid());
    ck_assert_msg(strstr(lines, "r--") != NULL, "%s", lines);
    ck_assert_str_eq(lines + strlen(lines) - 7, "+last--");
    for (const char *at = strchr(lines, '+'); at != NULL;
         at = strchr(at + 1, '+'))
        ck_assert_ptr_nonnull(strchr(at, '-'));
}
END_TEST

START_TEST(ranges_are_not_offered_without_a_tool)
{
    unsetenv("GPUEMU_RANGES");
    temporary_file(path, "gpu-ranges");
    gpu = gpuemu();
    OK(core_profiler_start(NULL, &profiler));
    drop(some());
    setenv("GPUEMU_RANGES", path, 1); /* too late: the variable is read once */
    drop(some());
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    ck_assert_str_eq(events_of(gettid()), "");
}
END_TEST

/* ---------------------------------------------------------------- NVTX -- */

static const char *build;

static bool is_built(const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s/%s", build, name);
    return access(out, R_OK) == 0;
}

START_TEST(nvtx_ranges_are_in_a_domain)
{
    char driver[4096], tool[4096], plugins[4096];
    core_range outer;

    if (!is_built("tests/fixtures/gpu/.libs/libcuda.so.1", driver,
                  sizeof driver) ||
        !is_built("tests/fixtures/gpu/.libs/libnvtx.so", tool, sizeof tool) ||
        !is_built("backends/cuda/.libs", plugins, sizeof plugins)) {
        suite_skip("core_cuda.so or its fake libraries are not built");
        return;
    }
    make_file("FAKE_NVTX");
    setenv("NVTX_INJECTION64_PATH", tool, 1);
    setenv("LIBCORE_PLUGIN_PATH", plugins, 1);
    ck_assert_ptr_nonnull(dlopen(driver, RTLD_NOW | RTLD_GLOBAL));
    OK(core_device_find("cuda", &gpu));
    OK(core_profiler_start(NULL, &profiler));
    outer = core_range_begin("epoch");
    drop(CALL(exp, some()));
    core_range_end(outer);
    OK(core_profiler_stop(profiler));
    core_profiler_release(profiler);
    ck_assert_str_eq(events_of(gettid()),
                     "domain libcore+step+epoch+full-+exp---");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        operators_and_ranges_are_reported_nested,
        nodes_of_a_backward_are_reported,
        each_thread_has_its_own_ranges,
        ranges_cut_off_by_a_session_are_complete,
        unended_range_ends_with_its_parent,
        later_device_reports_from_the_next_session,
        deep_ranges_are_reported_up_to_a_depth,
        ranges_are_not_offered_without_a_tool,
        nvtx_ranges_are_in_a_domain,
    };

    build = getenv("LIBCORE_BUILD");
    build = build != NULL ? build : ".";
    return run_emulated("gpu/gpu_ranges", tests, sizeof tests / sizeof *tests);
}
