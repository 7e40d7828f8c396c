/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* library.c: vendors' libraries, opened at run time. */

#include <gpu/host/library.h>

#include <dlfcn.h>
#include <stdio.h>

const char *gpu_library_resolve(void *library, const gpu_symbol *symbols,
                                size_t count, void *table)
{
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, symbols[i].name);

        if (found == NULL)
            return symbols[i].name;
        *(void **)(void *)((char *)table + symbols[i].offset) = found;
    }
    return NULL;
}

void *gpu_library_open_newest(const char *stem, int newest, int oldest,
                              char name[GPU_LIBRARY_NAME],
                              char reason[GPU_LIBRARY_WHY])
{
    void *library = NULL;

    name[0] = reason[0] = 0;
    for (int n = newest; n >= oldest && library == NULL; n--) {
        snprintf(name, GPU_LIBRARY_NAME, "%s.so.%d", stem, n);
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL && reason[0] == 0)
            snprintf(reason, GPU_LIBRARY_WHY, "%s", dlerror());
    }
    return library;
}
