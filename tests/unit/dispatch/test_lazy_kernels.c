/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Kernels are created when they are first looked up, which has no observable
 * effect. */

#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/sanitizers.h"

#include "base/memory.h"
#include "device/device.h"
#include "dispatch/registry.h"

#include <libcore/kernel.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static core_device *cpu;
static const char *ran;

static void setup(void)
{
    OK(core_device_find("cpu", &cpu));
}

static core_status note(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    ran = call->user;
    return CORE_OK;
}

static core_kernel kernel_named(const char *word)
{
    return (core_kernel){
        .struct_size = sizeof(core_kernel),
        .name = {"exp", 3},
        .signature = {1u << CORE_F32, 1u << CORE_F32},
        .launch = note,
        .user = (void *)(uintptr_t)word,
    };
}

/* As the backend's plugin would. */
static core_status add_kernel(core_registry *registry,
                              const core_kernel *kernel)
{
    core_status status;

    registry->backends[0] = cpu->backend;
    registry->nbackends = 1;
    status = core__registry_add_kernels(registry, (core_string){"cpu", 3},
                                        &kernel, 1);
    registry->nbackends = 0;
    return status;
}

/* Returns which kernel runs exp; "" for the backend's own. */
static const char *served(void)
{
    const int64_t size = 1;
    core_tensor *a, *b;

    ran = "";
    OK(core_zeros(&size, 1, CORE_F32, cpu, &a));
    OK(core_exp(a, &b));
    core_tensor_release(a);
    core_tensor_release(b);
    return ran;
}

START_TEST(newest_kernel_runs_until_it_is_released)
{
    core_registry first = {0}, second = {0};
    core_kernel a = kernel_named("a"), b = kernel_named("b");

    OK(add_kernel(&first, &a));
    OK(add_kernel(&second, &b));
    ck_assert_str_eq(served(), "b");
    core__registry_undo(&second);
    ck_assert_str_eq(served(), "a");
    core__registry_undo(&first);
    ck_assert_str_eq(served(), "");
}
END_TEST

START_TEST(kernels_never_looked_up_can_be_released_in_any_order)
{
    core_registry rows[4] = {{0}};
    core_kernel a = kernel_named("a"), b = kernel_named("b"),
                c = kernel_named("c"), d = kernel_named("d");

    OK(add_kernel(&rows[0], &a));
    OK(add_kernel(&rows[1], &b));
    OK(add_kernel(&rows[2], &c));
    OK(add_kernel(&rows[3], &d));
    core__registry_undo(&rows[1]);
    core__registry_undo(&rows[3]);
    ck_assert_str_eq(served(), "c");
    core__registry_undo(&rows[0]);
    core__registry_undo(&rows[2]);
    ck_assert_str_eq(served(), "");
    OK(add_kernel(&rows[0], &a));
    core__registry_undo(&rows[0]);
    ck_assert_str_eq(served(), "");
}
END_TEST

/* A kernel with more fields is created at once, and so are those before it. */
START_TEST(kernels_of_both_kinds_keep_their_order)
{
    core_registry rows[3] = {{0}};
    core_kernel a = kernel_named("a"), b = kernel_named("b"),
                c = kernel_named("c");

    b.max_ndim = 1;
    OK(add_kernel(&rows[0], &a));
    OK(add_kernel(&rows[1], &b));
    OK(add_kernel(&rows[2], &c));
    ck_assert_str_eq(served(), "c");
    core__registry_undo(&rows[2]);
    ck_assert_str_eq(served(), "b");
    core__registry_undo(&rows[1]);
    ck_assert_str_eq(served(), "a");
    core__registry_undo(&rows[0]);
}
END_TEST

static uint32_t listed(const char *word)
{
    const core_kernel *kernel;
    uint32_t count = 0;

    for (uint32_t i = 0;
         core__registry_kernel_at(cpu->backend, i, &kernel) == CORE_OK; i++)
        count += kernel->user == word && kernel->launch == note &&
                 kernel->struct_size == sizeof *kernel &&
                 kernel->name.size == 3 &&
                 memcmp(kernel->name.data, "exp", 3) == 0 &&
                 kernel->signature[1] == 1u << CORE_F32;
    return count;
}

START_TEST(listed_kernel_is_complete)
{
    static const char word[] = "listed";
    core_registry registry = {0};
    core_kernel kernel = kernel_named(word);

    OK(add_kernel(&registry, &kernel));
    ck_assert_uint_eq(listed(word), 1);
    core__registry_undo(&registry);
    ck_assert_uint_eq(listed(word), 0);
}
END_TEST

START_TEST(forked_child_finds_pending_kernels)
{
    core_registry registry = {0};
    core_kernel kernel = kernel_named("a");
    int status;
    pid_t child;

    OK(add_kernel(&registry, &kernel));
    child = fork();
    if (child == 0)
        _exit(strcmp(served(), "a") != 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_str_eq(served(), "a");
    core__registry_undo(&registry);
}
END_TEST

/* If memory ran out at registration, the kernel exists or there was an
 * error. */
START_TEST(registration_without_memory_fails_or_is_complete)
{
    core_kernel kernel = kernel_named("a");
    bool done = false;

    for (int64_t allowed = 0; !done; allowed++) {
        core_registry registry = {0};
        core_status status;

        core__alloc_fault_set(allowed, true);
        status = add_kernel(&registry, &kernel);
        core__alloc_fault_set(-1, false);
        done = status == CORE_OK && allowed > 8;
        if (status == CORE_OK)
            ck_assert_str_eq(served(), "a");
        else
            ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        core__registry_undo(&registry);
        ck_assert_str_eq(served(), "");
    }
}
END_TEST

/* The memory reserved for 4096 kernels is at least 144 pages. */
START_TEST(registering_touches_little_memory)
{
    enum { COUNT = 4096 };
    static const core_kernel *kernels[COUNT];
    core_registry registry = {0};
    core_kernel kernel = kernel_named("a");
    struct rusage before, after;

    if (has_sanitizer()) /* which touches additional memory */
        return;
    for (int i = 0; i < COUNT; i++)
        kernels[i] = &kernel;
    registry.backends[0] = cpu->backend;
    registry.nbackends = 1;
    getrusage(RUSAGE_SELF, &before);
    OK(core__registry_add_kernels(&registry, (core_string){"cpu", 3}, kernels,
                                  COUNT));
    getrusage(RUSAGE_SELF, &after);
    registry.nbackends = 0;
    ck_assert_int_lt(after.ru_minflt - before.ru_minflt, 100);
    core__registry_undo(&registry);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        newest_kernel_runs_until_it_is_released,
        kernels_never_looked_up_can_be_released_in_any_order,
        kernels_of_both_kinds_keep_their_order,
        listed_kernel_is_complete,
        forked_child_finds_pending_kernels,
        registration_without_memory_fails_or_is_complete,
        registering_touches_little_memory,
    };
    const test_suite suite = {
        .name = "dispatch/lazy_kernels",
        .setup = setup,
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
