/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nvrtc.c: NVRTC, found at run time.  It compiles for the device's architecture,
 * and like nvcc compiled the plugin's kernels: nothing is contracted, quotients
 * and roots are rounded exactly, and subnormal numbers are kept. */

#include "nvrtc.h"

#include <gpu/host/runtime_compiler.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The oldest version of CUDA whose library is used. */
enum { OLDEST = 12, REASON = 320 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int state; /* 0: not searched; 1: found; -1: not found */
static char missing[REASON];
static gpu_runtime_compiler rtc, ptx; /* ptx: its code is PTX */
static int found_major, found_minor;  /* its version, or 0 */

static const gpu_symbol symbols[GPU_RUNTIME_COMPILER_SYMBOLS] =
    GPU_RUNTIME_COMPILER_NAMES("nvrtc", "CUBIN");
static const gpu_symbol ptx_symbols[GPU_RUNTIME_COMPILER_SYMBOLS] =
    GPU_RUNTIME_COMPILER_NAMES("nvrtc", "PTX");

/* Opens the library; under the lock. */
static int open_library(int newest)
{
    char name[GPU_LIBRARY_NAME], error[GPU_LIBRARY_WHY];
    int major = 0, minor = 0;
    const char *symbol;
    void *library =
        gpu_library_open_newest("libnvrtc", newest, OLDEST, name, error);

    if (library == NULL) {
        snprintf(missing, sizeof missing,
                 "libnvrtc.so of CUDA %d or newer, up to the driver's %d, was "
                 "not found: %s",
                 OLDEST, newest, error);
        return 0;
    }
    symbol = gpu_library_resolve(library, symbols, GPU_RUNTIME_COMPILER_SYMBOLS,
                                 &rtc);
    if (symbol == NULL)
        symbol = gpu_library_resolve(library, ptx_symbols,
                                     GPU_RUNTIME_COMPILER_SYMBOLS, &ptx);
    if (symbol != NULL) {
        snprintf(missing, sizeof missing, "%s lacks %s", name, symbol);
        return 0;
    }
    if (rtc.version(&major, &minor) == 0 && major >= OLDEST &&
        major <= newest) {
        found_major = major;
        found_minor = minor;
        return 1;
    }
    snprintf(missing, sizeof missing,
             "%s has version %d.%d; versions %d to %d are supported", name,
             major, minor, OLDEST, newest);
    return 0;
}

const char *cuda_nvrtc_missing(int newest)
{
    int found;

    /* Not remembered: the driver may give its version the next time. */
    if (newest < OLDEST)
        return "the driver supports no version of CUDA whose libnvrtc.so can "
               "be used, or does not tell which it supports";
    pthread_mutex_lock(&lock);
    if (state == 0)
        state = open_library(newest) ? 1 : -1;
    found = state > 0;
    pthread_mutex_unlock(&lock);
    return found ? NULL : missing;
}

void cuda_nvrtc_version(int newest, int *out_major, int *out_minor)
{
    bool found = cuda_nvrtc_missing(newest) == NULL;

    *out_major = found ? found_major : 0;
    *out_minor = found ? found_minor : 0;
}

int cuda_nvrtc_compile(int newest, gpu_compilation *c)
{
    char architecture[80];
    const char *const options[] = {architecture, "-std=c++17",
                                   "-default-device", "--fmad=false", "-w"};

    if (cuda_nvrtc_missing(newest) != NULL)
        return GPU_ABSENT;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s",
             c->architecture);
    return gpu_runtime_compile(
        strncmp(c->architecture, "compute_", 8) == 0 ? &ptx : &rtc, options,
        sizeof options / sizeof *options, c);
}
