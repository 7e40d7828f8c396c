/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The process forks while another thread opens a plugin.  dlopen is this file's,
 * so that the thread can be held there. */

#define _GNU_SOURCE
#define SUITE_FORKS true

#include "support/autograd.h"
#include "support/children.h"

#include "device/device.h"

#include <libcore/device.h>

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

static sem_t inside, forked;
static _Atomic bool opened;
static int patience; /* how long the plugin takes to open, in milliseconds */

static void wait_for_fork(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += patience / 1000;
    until.tv_nsec += patience % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    sem_timedwait(&forked, &until);
}

/* Opens the plugin when the fork is done, or after a while. */
void *dlopen(const char *name, int flags)
{
    void *(*real)(const char *, int);

    *(void **)(void *)&real = dlsym(RTLD_NEXT, "dlopen");
    if (patience && name && strstr(name, "core_sim")) {
        sem_post(&inside);
        wait_for_fork();
        atomic_store(&opened, true);
    }
    return real(name, flags);
}

static void *open_plugin(void *unused)
{
    uint32_t count;

    (void)unused;
    core_device_count("sim", &count, NULL);
    return NULL;
}

/* Calls in_child in a child that is forked while a thread opens the plugin. */
static void fork_while_opening(bool (*in_child)(void))
{
    core_device *device;
    pthread_t thread;
    pid_t child;

    sem_init(&inside, 0, 0);
    sem_init(&forked, 0, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, open_plugin, NULL), 0);
    while (sem_wait(&inside) != 0)
        ;
    child = fork();
    if (child == 0) {
        child_begins(200);
        child_ends(in_child());
    }
    sem_post(&forked);
    wait_for_child(child);
    pthread_join(thread, NULL);
    OK(core_device_find("sim", &device));
}

static bool device_is_there(void)
{
    core_device *device;
    core_tensor *x;
    double number = 0;

    if (!atomic_load(&opened) || core_device_find("sim", &device) != CORE_OK ||
        core_full(NULL, 0, core_float(2), CORE_F32, device, &x) != CORE_OK ||
        core_tensor_item_float(x, &number) != CORE_OK)
        return false;
    core_tensor_release(x);
    return number == 2;
}

START_TEST(fork_waits_until_a_plugin_is_open)
{
    patience = 100;
    core__device_fork_wait = 1000000;
    fork_while_opening(device_is_there);
}
END_TEST

static bool reason_is_reported(void)
{
    core_device *device;

    return !atomic_load(&opened) &&
           core_device_find("sim", &device) == CORE_ERROR_REFUSED &&
           strstr(core_error_message(), "forked while another thread") &&
           core_device_find("cpu", &device) == CORE_OK;
}

START_TEST(fork_that_cannot_wait_leaves_a_child_without_the_plugin)
{
    patience = 1000000;
    core__device_fork_wait = 10;
    fork_while_opening(reason_is_reported);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        fork_waits_until_a_plugin_is_open,
        fork_that_cannot_wait_leaves_a_child_without_the_plugin,
    };
    const test_suite suite = {
        .name = "loader/fork_while_opening",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
