/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "api.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

rocm_api hip;

const char *rocm_api_open(void)
{
    static const struct {
        size_t at;
        const char *symbol;
    } functions[] = {
#define ROW(field, symbol) {offsetof(rocm_api, field), #symbol},
        ROCM_FUNCTIONS(ROW) ROCM_OWN_FUNCTIONS(ROW)};
    static void *library;
    static char text[256];
    char name[32];

    if (hip.Init != NULL)
        return NULL;
    /* The one whose types the headers had that this was built with. */
    snprintf(name, sizeof name, "libamdhip64.so.%d", HIP_VERSION_MAJOR);
    if (library == NULL) /* the program's own */
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    /* The library is large: what it would find out slowly is seen before. */
    if (library == NULL && access("/dev/kfd", F_OK) != 0)
        return "there is no driver of AMD's GPUs here: no /dev/kfd";
    if (library == NULL)
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(text, sizeof text, "there is no HIP %d here: %s",
                 HIP_VERSION_MAJOR, dlerror());
        return text;
    }
    /* Init last: it tells that all were found. */
    for (size_t i = sizeof functions / sizeof *functions; i-- > 0;) {
        void *found = dlsym(library, functions[i].symbol);

        if (found == NULL) {
            snprintf(text, sizeof text, "%s is too old: it has no %s", name,
                     functions[i].symbol);
            return text;
        }
        *(void **)((char *)&hip + functions[i].at) = found;
    }
    return NULL;
}
