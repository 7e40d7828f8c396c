/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* api.c: opens HIP. */

#include "api.h"

#include <gpu/host/library.h>

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

rocm_api hip;

const char *rocm_api_open(void)
{
    static const gpu_symbol symbols[] = {
#define ROW(field, symbol) {#symbol, offsetof(rocm_api, field)},
        ROCM_FUNCTIONS(ROW) ROCM_OWN_FUNCTIONS(ROW)
#undef ROW
    };
    static void *library;
    static char text[256];
    const char *missing;
    rocm_api found;
    char name[32];

    if (hip.Init != NULL)
        return NULL;
    /* The major version whose types the headers of this build declare. */
    snprintf(name, sizeof name, "libamdhip64.so.%d", HIP_VERSION_MAJOR);
    if (library == NULL) /* the one that the program has loaded */
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    /* Loading the library takes long, and is useless without this file. */
    if (library == NULL && access("/dev/kfd", F_OK) != 0)
        return "no AMD GPU driver was found: there is no /dev/kfd";
    if (library == NULL)
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(text, sizeof text, "no HIP %d was found: %s",
                 HIP_VERSION_MAJOR, dlerror());
        return text;
    }
    missing = gpu_library_resolve(library, symbols,
                                  sizeof symbols / sizeof *symbols, &found);
    if (missing != NULL) {
        snprintf(text, sizeof text, "%s is too old: it lacks %s", name,
                 missing);
        return text;
    }
    hip = found;
    return NULL;
}
