/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels that a device builds slowly: calls run operator by operator until the
 * kernel is there, and what fails is tried once. */

#define SUITE_FORKS true /* counts and settings are those of a process */
#include "support/sim_device.h"
#include "support/temporary_files.h"
#include "support/training.h"

#include "codegen/background_build.h"
#include "compile/compiled/compiled.h"
#include "compile/prepare/prepared.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------ a slow generator -- */

static core_codegen_interface real;
static _Atomic int builds, destroyed;
static core_status build_status;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static core_status slow_build(void *device, const core_loop_program *program,
                              const core_loop_hints *hints, void **out_kernel)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    atomic_fetch_add(&builds, 1);
    *out_kernel = NULL;
    return build_status == CORE_OK
               ? real.build(device, program, hints, out_kernel)
               : build_status;
}

static void counting_destroy(void *device, void *kernel)
{
    atomic_fetch_add(&destroyed, 1);
    real.destroy(device, kernel);
}

static void on_slow_sim(void)
{
    core_codegen_interface *table;

    /* No kernel of an earlier run is found. */
    ck_assert_int_eq(setenv("LIBCORE_CACHE", "0", 1), 0);
    on_sim();
    table = &program_device->interfaces.codegen;
    real = *table;
    table->build = slow_build;
    table->destroy = counting_destroy;
    table->flags |= CORE_CODEGEN_BUILDS_SLOWLY;
    build_status = CORE_OK;
}

static void on_device_end(void)
{
    core__loop_builds_wait();
    drop_all();
}

/* Calls both while no kernel can be built.  Without this, a build may end before
 * the call looks for it: a thread can be stopped at any place. */
static void call_before_build(core_tensor_function function, world *eager,
                              core_compiled *compiled, world *traced)
{
    pthread_mutex_lock(&gate);
    same_call(function, eager, compiled, traced);
    pthread_mutex_unlock(&gate);
}

/* ----------------------------------------------------------------- tests -- */

/* relu(x y + x) / 2 */
COMPILED_FUNCTION(chain)
{
    core_tensor *y = T(mul, x[0], x[1]);

    y = T(relu, T(add, y, x[0], core_int(1)));
    out[0] = own(T(mul_scalar, y, core_float(.5)));
    *noutputs = 1;
    return finish();
}

static core_compiled *compile(world *w)
{
    return compile_with(
        chain, w,
        (core_compile_options){.flags = CORE_COMPILE_FULLGRAPH,
                               .codegen = CORE_COMPILE_CODEGEN_ON});
}

static uint32_t launches_of(core_compiled *compiled)
{
    const char *reason;
    core__prepared_facts *facts =
        core__prepared_describe(compiled->entries[0]->program, &reason);
    uint32_t launches = facts->launches;

    core__prepared_facts_release(facts);
    return launches;
}

START_TEST(operators_run_until_the_kernel_is_there)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled = compile(&traced);
    core_compile_counts before = compile_counts();

    pthread_mutex_lock(&gate);
    for (int i = 0; i < 3; i++)
        same_call(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(launches_of(compiled), 4);
    EXPLAINS(compiled, "its kernel is being built");
    pthread_mutex_unlock(&gate);
    core__loop_builds_wait();
    for (int i = 0; i < 3; i++)
        same_call(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(launches_of(compiled), 1);
    EXPLAINS(compiled, "\"kernels\": 1");
    ck_assert_int_eq(builds, 1);
    ck_assert_uint_eq(compile_counts().fused_kernels, before.fused_kernels + 1);
    ck_assert_uint_eq(compile_counts().refused_kernels, before.refused_kernels);
    core_compiled_release(compiled);
    ck_assert_int_eq(destroyed, 1);
}
END_TEST

START_TEST(a_build_that_fails_is_not_repeated)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled = compile(&traced);
    core_compile_counts before = compile_counts();

    build_status = CORE_ERROR_INTERNAL;
    call_before_build(chain, &eager, compiled, &traced);
    core__loop_builds_wait();
    for (int i = 0; i < 4; i++)
        same_call(chain, &eager, compiled, &traced);
    ck_assert_uint_eq(launches_of(compiled), 4);
    EXPLAINS(compiled, "gave no reason");
    ck_assert_int_eq(builds, 1);
    ck_assert_uint_eq(compile_counts().refused_kernels,
                      before.refused_kernels + 1);
    core_compiled_release(compiled);
}
END_TEST

START_TEST(functions_share_a_build)
{
    world eager = world_of(2, 8, 8), first = world_of(2, 8, 8),
          second = world_of(2, 8, 8), copy = world_of(2, 8, 8);
    core_compiled *one = compile(&first), *other = compile(&second);

    pthread_mutex_lock(&gate);
    same_call(chain, &eager, one, &first);
    same_call(chain, &copy, other, &second);
    pthread_mutex_unlock(&gate);
    core__loop_builds_wait();
    same_call(chain, &copy, other, &second);
    same_call(chain, &eager, one, &first);
    ck_assert_int_eq(builds, 1);
    ck_assert_uint_eq(launches_of(one), 1);
    ck_assert_uint_eq(launches_of(other), 1);
    core_compiled_release(one);
    core_compiled_release(other);
    ck_assert_int_eq(destroyed, 1);
}
END_TEST

START_TEST(a_kernel_that_comes_too_late_is_destroyed)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled = compile(&traced);

    pthread_mutex_lock(&gate);
    same_call(chain, &eager, compiled, &traced);
    core_compiled_release(compiled);
    pthread_mutex_unlock(&gate);
    core__loop_builds_wait();
    ck_assert_int_eq(destroyed, builds);
}
END_TEST

START_TEST(a_setting_makes_calls_wait)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled = compile(&traced);

    OK(core_setting_set("LIBCORE_COMPILE_BACKGROUND", "0"));
    same_call(chain, &eager, compiled, &traced);
    OK(core_setting_set("LIBCORE_COMPILE_BACKGROUND", NULL));
    ck_assert_uint_eq(launches_of(compiled), 1);
    core_compiled_release(compiled);
}
END_TEST

/* ------------------------------------------------------------- measuring -- */

static core_compiled *compile_measured(core_tensor_function function, world *w)
{
    return compile_with(
        function, w,
        (core_compile_options){.mode = CORE_COMPILE_MAX_AUTOTUNE,
                               .flags = CORE_COMPILE_FULLGRAPH});
}

START_TEST(a_kernel_is_measured_when_it_is_built)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled = compile_measured(chain, &traced);

    pthread_mutex_lock(&gate);
    same_call(chain, &eager, compiled, &traced);
    ck_assert(!explains(compiled, "operators_ns"));
    pthread_mutex_unlock(&gate);
    core__loop_builds_wait();
    same_call(chain, &eager, compiled, &traced);
    EXPLAINS(compiled, "operators_ns");
    ck_assert_int_eq(builds, 1);
    core_compiled_release(compiled);
}
END_TEST

/* x y < x + x and z < x y, where z is a product: it is compared first, because
 * that frees it.  Alone, z is an input, and the other comparison is first. */
COMPILED_FUNCTION(two_orders)
{
    core_tensor *z = T(mm, x[0], x[1]);
    core_tensor *u = T(add, x[0], x[0], core_int(1));
    core_tensor *t = T(mul, x[0], x[1]);
    core_tensor *b = T(lt, z, t), *a = T(lt, t, u);

    out[0] = own(T(bitwise_and, a, b));
    *noutputs = 1;
    return finish();
}

static void count_unmeasured(void *context, uint32_t level,
                             const char *component, const char *text)
{
    (void)level;
    (void)component;
    *(int *)context += strstr(text, "its kernel is being built") != NULL;
}

/* Operators that run because a kernel is being built are no measurement of it. */
START_TEST(a_group_whose_kernel_alone_is_not_built_is_not_measured)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled = compile_measured(two_orders, &traced);
    core_compile_cache cache = {.struct_size = sizeof cache};
    temporary_path folder;
    int unmeasured = 0;

    temporary_folder(folder, "choices");
    OK(core_setting_set("LIBCORE_CACHE", folder));
    call_before_build(two_orders, &eager, compiled, &traced);
    core__loop_builds_wait();
    ck_assert_int_eq(builds, 1);
    core_log_set_sink(count_unmeasured, &unmeasured, CORE_LOG_WARNING);
    call_before_build(two_orders, &eager, compiled, &traced);
    core_log_set_sink(NULL, NULL, 0);
    ck_assert_int_eq(unmeasured, 1);
    EXPLAINS(compiled, "\"kernels\": 1");
    ck_assert(!explains(compiled, "operators_ns"));
    OK(core_compile_get_cache(&cache, NULL, 0));
    ck_assert_uint_eq(cache.choices_stored, 0);
    core_compiled_release(compiled);
    temporary_remove(folder);
}
END_TEST

/* ----------------------------------------------------------------- forks -- */

/* A child has no thread that would finish a build. */
START_TEST(a_child_does_not_wait_for_a_build_of_its_parent)
{
    world eager = world_of(2, 8, 8), traced = world_of(2, 8, 8);
    core_compiled *compiled = compile(&traced);
    int status;
    pid_t child;

    pthread_mutex_lock(&gate);
    same_call(chain, &eager, compiled, &traced);
    child = fork();
    if (child == 0) {
        core__loop_builds_wait();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    pthread_mutex_unlock(&gate);
    core_compiled_release(compiled);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        operators_run_until_the_kernel_is_there,
        a_build_that_fails_is_not_repeated,
        functions_share_a_build,
        a_kernel_that_comes_too_late_is_destroyed,
        a_setting_makes_calls_wait,
        a_kernel_is_measured_when_it_is_built,
        a_group_whose_kernel_alone_is_not_built_is_not_measured,
        a_child_does_not_wait_for_a_build_of_its_parent,
    };
    const test_suite suites[] = {
        {.name = "compile/background builds",
         .setup = on_slow_sim,
         .teardown = on_device_end,
         SUITE_TESTS(tests)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
