/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu_collectives.h: the fake drivers and libraries of collectives
 * (tests/fixtures/gpu) of the plugins cuda and rocm. */

#ifndef TESTS_SUPPORT_GPUCOLLECTIVES_H
#define TESTS_SUPPORT_GPUCOLLECTIVES_H

#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The files are patterns, relative to the build's tests/fixtures/gpu. */
typedef struct gpu_collectives_vendor {
    const char *device, *engine, *title, *driver, *library, *old, *name;
} gpu_collectives_vendor;

static const gpu_collectives_vendor gpu_vendors[] = {
    {"cuda", "nccl", "NCCL", ".libs/libcuda.so.1", ".libs/libnccl.so.2",
     "old/.libs/libnccl.so.2", "libnccl.so.2"},
    {"rocm", "rccl", "RCCL", ".libs/libamdhip64.so.?", ".libs/librccl.so.1",
     NULL, "librccl.so.1"},
};
enum { GPU_VENDORS = 2 };

/* Opens a library, which the plugin then finds by its name. */
static inline bool gpu_open_fake(const char *pattern, int mode)
{
    const char *build = getenv("LIBCORE_BUILD");
    char path[4096];
    glob_t found;
    bool done;

    snprintf(path, sizeof path, "%s/tests/fixtures/gpu/%s", build ? build : ".",
             pattern);
    if (glob(path, 0, NULL, &found) != 0)
        return false;
    done = dlopen(found.gl_pathv[0], RTLD_NOW | mode) != NULL;
    globfree(&found);
    return done;
}

/* Sets where the plugins are; false if one or its fake library is not built. */
static inline bool gpu_find_plugin(const gpu_collectives_vendor *vendor)
{
    const char *build = getenv("LIBCORE_BUILD");
    char path[4096];
    glob_t found;

    build = build ? build : ".";
    snprintf(path, sizeof path, "%s/tests/fixtures/gpu/%s", build,
             vendor->library);
    if (glob(path, 0, NULL, &found) != 0)
        return false;
    globfree(&found);
    snprintf(path, sizeof path, "%s/backends/%s/.libs/core_%s.so", build,
             vendor->device, vendor->device);
    if (access(path, R_OK) != 0)
        return false;
    snprintf(path, sizeof path, "%s/.libs:%s/backends/%s/.libs", build, build,
             vendor->device);
    setenv("LIBCORE_PLUGIN_PATH", path, 1);
    unsetenv("LIBCORE_DEVICE");
    return true;
}

#endif
