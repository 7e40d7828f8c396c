/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpuemu.h: what programs share that test the host side of GPUs on the emulated
 * device. */

#ifndef TESTS_UNIT_GPUEMU_H
#define TESTS_UNIT_GPUEMU_H

#include "autograd.h"

#include <libcore/device.h>

#include <unistd.h>

/* Opened by each test: a child that was forked has no device of its parent. */
static inline core_device *gpuemu(void)
{
    core_device *device;

    OK(core_device_find("gpuemu", &device));
    return device;
}

/* main of such a program: skipped where the plugin was not built. */
static inline int run_emulated(const char *name, const TTest *const *tests,
                               size_t count)
{
    const char *build = getenv("LIBCORE_BUILD");
    char path[4096];

    build = build != NULL ? build : ".";
    snprintf(path, sizeof path, "%s/backends/gpu/emulated/.libs/core_gpuemu.so",
             build);
    if (access(path, R_OK) != 0) {
        printf("1..0 # SKIP the emulated device is not built\n");
        return 0;
    }
    snprintf(path, sizeof path, "%s/.libs:%s/backends/gpu/emulated/.libs",
             build, build);
    setenv("LIBCORE_PLUGIN_PATH", path, 1);
    return run_suite(name, tests, count);
}

#define EMULATED_SUITE(name, ...)                                       \
    int main(void)                                                      \
    {                                                                   \
        const TTest *const tests[] = {__VA_ARGS__};                     \
                                                                        \
        return run_emulated(name, tests, sizeof tests / sizeof *tests); \
    }

#endif
