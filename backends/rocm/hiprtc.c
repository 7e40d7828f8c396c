/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* hiprtc.c: hipRTC, found at run time: in a library, or in HIP's own, as before
 * HIP 6.  It compiles for the device's architecture, and like hipcc compiled the
 * plugin's kernels: nothing is contracted. */

#include "hiprtc.h"

#include <gpu/host/runtime_compiler.h>

#include <pthread.h>
#include <stdio.h>

enum { REASON = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int state; /* 0: not searched; 1: found; -1: not found */
static char missing[REASON];
static gpu_runtime_compiler rtc;

static const gpu_symbol symbols[GPU_RUNTIME_COMPILER_SYMBOLS] =
    GPU_RUNTIME_COMPILER_NAMES("hiprtc", "Code");

/* Writes the reason to `why` if the library has no hipRTC. */
static int open_one(const char *stem, int major, char *why, size_t size)
{
    char name[GPU_LIBRARY_NAME], error[GPU_LIBRARY_WHY];
    void *library = gpu_library_open_newest(stem, major, major, name, error);
    const char *symbol;

    if (library == NULL) {
        snprintf(why, size, "%s was not found: %s", name, error);
        return 0;
    }
    symbol = gpu_library_resolve(library, symbols, GPU_RUNTIME_COMPILER_SYMBOLS,
                                 &rtc);
    if (symbol != NULL)
        snprintf(why, size, "%s lacks %s", name, symbol);
    return symbol == NULL;
}

/* Opens the library; under the lock. */
static int open_library(int major)
{
    char first[REASON / 2], second[REASON / 2];

    if (open_one("libhiprtc", major, first, sizeof first) ||
        open_one("libamdhip64", major, second, sizeof second))
        return 1;
    snprintf(missing, sizeof missing, "%.200s; %.200s", first, second);
    return 0;
}

const char *rocm_hiprtc_missing(int major)
{
    int found;

    pthread_mutex_lock(&lock);
    if (state == 0)
        state = open_library(major) ? 1 : -1;
    found = state > 0;
    pthread_mutex_unlock(&lock);
    return found ? NULL : missing;
}

void rocm_hiprtc_version(int major, int *out_major, int *out_minor)
{
    *out_major = *out_minor = 0;
    if (rocm_hiprtc_missing(major) == NULL &&
        rtc.version(out_major, out_minor) != 0)
        *out_major = *out_minor = 0;
}

int rocm_hiprtc_compile(int major, gpu_compilation *c)
{
    char architecture[80];
    const char *const options[] = {architecture,
                                   "-std=c++17",
                                   "-O3",
                                   "-ffp-contract=off",
                                   "-D__HIP_PLATFORM_AMD__",
                                   "-w"};

    if (rocm_hiprtc_missing(major) != NULL)
        return GPU_ABSENT;
    snprintf(architecture, sizeof architecture, "--offload-arch=%s",
             c->architecture);
    return gpu_runtime_compile(&rtc, options, sizeof options / sizeof *options,
                               c);
}
