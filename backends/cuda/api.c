/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* api.c: opens CUDA's driver. */

#include "api.h"

#include <gpu/host/library.h>

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

cuda_api cuda;

const char *cuda_api_open(void)
{
    static const gpu_symbol symbols[] = {
#define ROW(field, symbol, arguments) {#symbol, offsetof(cuda_api, field)},
        CUDA_FUNCTIONS(ROW)
#undef ROW
    };
    static void *library;
    static char text[256];
    const char *missing;
    cuda_api found;

    if (cuda.Init != NULL)
        return NULL;
    if (library == NULL)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) { /* absent, or not a library */
        snprintf(text, sizeof text, "no NVIDIA driver was found: %s",
                 dlerror());
        return text;
    }
    missing = gpu_library_resolve(library, symbols,
                                  sizeof symbols / sizeof *symbols, &found);
    if (missing != NULL) {
        snprintf(text, sizeof text,
                 "the NVIDIA driver is too old: its libcuda.so.1 lacks %s "
                 "(error 35)",
                 missing);
        return text;
    }
    cuda = found;
    return NULL;
}
