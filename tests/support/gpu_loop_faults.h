/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu_loop_faults.h: compiled functions on a fake driver with a fake compiler
 * (tests/fixtures/gpu/rtc.c) that may fail: the results are the operators', and
 * core_compiled_explain says why there is no kernel.  Before including it, define
 * what gpu_fake.h needs and
 *
 *     GPU_COMPILER       the compiler, like GPU_DRIVER
 *     GPU_OLD_COMPILER   one without its functions */

#ifndef TESTS_SUPPORT_GPU_LOOP_FAULTS_H
#define TESTS_SUPPORT_GPU_LOOP_FAULTS_H

/* Its tests are about drivers, not compilers. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-function"
#include "gpu_fake.h"
#pragma GCC diagnostic pop

#include "codegen/background_build.h"
#include "device/device.h"

#include <libcore/codegen.h>
#include <libcore/compiled.h>
#include <libcore/expressions.h>

/* relu(x y + x) / 2 */
static inline core_status chain(void *context, core_tensor *const *x,
                                size_t count, core_tensor **out, size_t *nout)
{
    core_scope scope = core_scope_begin();
    core_tensor *y = core_x_add(core_x_mul(x[0], x[1]), x[0], core_int(1));

    (void)context;
    (void)count;
    *nout = 1;
    return core_scope_end_with(
        scope, core_x_mul_scalar(core_x_relu(y), core_float(.5)), out);
}

typedef struct calls_of_chain {
    core_compiled *compiled;
    core_tensor *in[2];
} calls_of_chain;

static inline void begin_chain(calls_of_chain *c)
{
    core_compile_options options = {.struct_size = sizeof options,
                                    .flags = CORE_COMPILE_FULLGRAPH,
                                    .codegen = CORE_COMPILE_CODEGEN_ON};
    core_device *gpu = device_of(GPU);

    OK(core_setting_set("LIBCORE_CACHE", "0"));
    c->in[0] = filled(gpu, 3);
    c->in[1] = filled(gpu, 5);
    OK(core_compile(chain, NULL, &options, &c->compiled));
}

/* (3 · 5 + 3) / 2 */
static inline void check_call(calls_of_chain *c)
{
    core_tensor *y;

    OK(core_compiled_call(c->compiled, c->in, 2, &y, 1));
    ck_assert_float_eq(first_of(y), 9);
    core_tensor_release(y);
}

static inline core_compile_counts counts_now(void)
{
    core_compile_counts counts = {.struct_size = sizeof counts};

    OK(core_compile_get_counts(&counts));
    return counts;
}

static inline void check_explanation(const calls_of_chain *c, const char *text)
{
    char *json;

    OK(core_compiled_explain(c->compiled, &json));
    ck_assert_msg(strstr(json, text) != NULL, "\"%s\" is not in %s", text,
                  json);
    core_text_free(json);
}

static inline void end_chain(calls_of_chain *c)
{
    core_compiled_release(c->compiled);
}

/* The calls run operator by operator, and the explanation has the text. */
static inline void check_runs_operators(const char *text)
{
    calls_of_chain c;

    begin_chain(&c);
    check_call(&c);
    core__loop_builds_wait();
    for (int i = 0; i < 3; i++)
        check_call(&c);
    ck_assert_uint_eq(counts_now().fused_kernels, 0);
    check_explanation(&c, text);
    end_chain(&c);
    OK(core_device_status(device_of(GPU)));
}

static inline void begin_faults(const char *fault)
{
    setenv("FAKE_RTC", fault, 1);
    load_fake("");
    load(GPU_COMPILER);
}

START_TEST(failed_compilation_is_explained_by_its_log)
{
    begin_faults("fail");
    check_runs_operators("error: the fake compiler fails");
}
END_TEST

START_TEST(failed_compilation_may_have_no_log)
{
    begin_faults("silent");
    check_runs_operators("it gave no reason");
}
END_TEST

START_TEST(code_that_the_driver_refuses_is_reported)
{
    begin_faults("garbage");
    check_runs_operators("loading the kernels of a loop program");
}
END_TEST

START_TEST(compilation_without_code_is_reported)
{
    begin_faults("nothing");
    check_runs_operators("the compiler failed");
}
END_TEST

START_TEST(compiler_that_lacks_a_function_is_not_used)
{
    load_fake("");
    load(GPU_OLD_COMPILER);
    check_runs_operators("lacks ");
}
END_TEST

/* Calls return meanwhile. */
START_TEST(slow_compilation_runs_in_the_background)
{
    char path[sizeof(temporary_path) + 8];
    temporary_path folder;
    calls_of_chain c;
    FILE *file;

    temporary_folder(folder, "gpu-rtc");
    snprintf(path, sizeof path, "%s/gate", folder);
    setenv("FAKE_RTC_GATE", path, 1);
    begin_faults("fail");
    begin_chain(&c);
    for (int i = 0; i < 3; i++)
        check_call(&c);
    check_explanation(&c, "its kernel is being built");
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    core__loop_builds_wait();
    check_call(&c);
    check_explanation(&c, "error: the fake compiler fails");
    end_chain(&c);
    unlink(path);
    rmdir(folder);
}
END_TEST

/* Lets the fake compiler use the host's; false if there is none. */
static inline bool begin_with_compiler(void)
{
    const char *source = getenv("LIBCORE_SOURCE");
    char command[4200];

    if (system("c++ -x c++ -fsyntax-only /dev/null") != 0) {
        suite_skip("no C++ compiler was found");
        return false;
    }
    snprintf(command, sizeof command, "c++ -I '%s/backends'",
             source != NULL ? source : ".");
    setenv("GPUEMU_COMPILER", command, 1);
    begin_faults("");
    return true;
}

START_TEST(kernel_is_used_when_it_is_compiled)
{
    calls_of_chain c;

    if (!begin_with_compiler())
        return;
    begin_chain(&c);
    check_call(&c);
    core__loop_builds_wait();
    check_call(&c);
    ck_assert_uint_eq(counts_now().fused_kernels, 1);
    check_explanation(&c, "\"kernels\": 1");
    /* The device forgets its kernels. */
    OK(core_device_reset(device_of(GPU)));
    end_chain(&c);
    begin_chain(&c);
    check_call(&c);
    core__loop_builds_wait();
    check_call(&c);
    ck_assert_uint_eq(counts_now().fused_kernels, 2);
    end_chain(&c);
}
END_TEST

/* Kernels on disk are those of one version. */
START_TEST(identity_has_the_version_of_the_compiler)
{
    core_device *gpu;
    core_string text = {NULL, 0}, again = {NULL, 0};
    const core_codegen_interface *codegen;
    int major = 0, minor = -1;

    begin_faults("");
    gpu = device_of(GPU);
    codegen = &gpu->interfaces.codegen;
    OK(codegen->identity(gpu->impl, &text));
    sscanf(strrchr(text.data, ';'), "; %d.%d", &major, &minor);
    ck_assert_msg(major > 0 && minor == 0, "%s", text.data);
    OK(codegen->identity(gpu->impl, &again));
    ck_assert_ptr_eq(text.data, again.data);
}
END_TEST

#define GPU_LOOP_FAULT_TESTS                        \
    failed_compilation_is_explained_by_its_log,     \
        failed_compilation_may_have_no_log,         \
        code_that_the_driver_refuses_is_reported,   \
        compilation_without_code_is_reported,       \
        compiler_that_lacks_a_function_is_not_used, \
        slow_compilation_runs_in_the_background,    \
        kernel_is_used_when_it_is_compiled,         \
        identity_has_the_version_of_the_compiler

#endif
