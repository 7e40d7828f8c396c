/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

cuda_api cuda;

const char *cuda_api_open(void)
{
    static const struct {
        size_t at;
        const char *symbol;
    } functions[] = {
#define ROW(field, symbol, arguments) {offsetof(cuda_api, field), #symbol},
        CUDA_FUNCTIONS(ROW)};
    static void *library;
    static char text[256];

    if (cuda.Init != NULL)
        return NULL;
    if (library == NULL)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) { /* none, or a file that is no library of it */
        snprintf(text, sizeof text, "there is no NVIDIA driver here: %s",
                 dlerror());
        return text;
    }
    /* Init last: it tells that all were found. */
    for (size_t i = sizeof functions / sizeof *functions; i-- > 0;) {
        void *found = dlsym(library, functions[i].symbol);

        if (found == NULL) {
            snprintf(text, sizeof text,
                     "the NVIDIA driver here is too old: its libcuda.so.1 has "
                     "no %s (error 35)",
                     functions[i].symbol);
            return text;
        }
        *(void **)((char *)&cuda + functions[i].at) = found;
    }
    return NULL;
}
