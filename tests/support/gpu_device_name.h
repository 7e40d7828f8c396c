/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu_device_name.h: the device that tests of backends/gpu use: the emulated
 * one, or the one in LIBCORE_TEST_GPU, which tools/gpu-tests sets on a machine
 * with a GPU. */

#ifndef TESTS_SUPPORT_GPUNAME_H
#define TESTS_SUPPORT_GPUNAME_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The device's name: "gpuemu", "cuda", "rocm:1". */
static inline const char *gpu_name(void)
{
    const char *name = getenv("LIBCORE_TEST_GPU");

    return name != NULL && *name != 0 ? name : "gpuemu";
}

/* Sets the plugin path to the build's CPU plugin and that device's; returns
 * whether the latter was built. */
static inline bool gpu_plugin_found(void)
{
    const char *build = getenv("LIBCORE_BUILD"), *name = gpu_name();
    bool emulated = strcmp(name, "gpuemu") == 0;
    int length = (int)strcspn(name, ":");
    char folder[2048], path[4200];
    bool found;

    build = build != NULL ? build : ".";
    snprintf(folder, sizeof folder, "%s/backends/%.*s/.libs", build,
             emulated ? 12 : length, emulated ? "gpu/emulated" : name);
    snprintf(path, sizeof path, "%s/core_%.*s.so", folder, length, name);
    found = access(path, R_OK) == 0;
    snprintf(path, sizeof path, "%s/.libs:%s", build, folder);
    setenv("LIBCORE_PLUGIN_PATH", path, 1);
    return found;
}

#endif
