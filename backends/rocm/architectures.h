/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* architectures.h: which GPUs the kernels run on. */

#ifndef ROCM_ARCHITECTURES_H
#define ROCM_ARCHITECTURES_H

#include <stdbool.h>
#include <string.h>

/* Whether kernels compiled for `list`, such as "gfx906 gfx90a", run on a GPU
 * named like "gfx90a:sramecc+:xnack-, ...".  Entries that are not names
 * ("native", "gfx11-generic") may run on any. */
static inline bool rocm_arches_fit(const char *list, const char *name)
{
    size_t size = strcspn(name, ":,");

    if (strncmp(name, "gfx", 3) != 0)
        return true;
    for (const char *at = list; *at != 0; at += strcspn(at, " ")) {
        size_t other;

        at += strspn(at, " ");
        other = strcspn(at, ": ");
        if (other == size && strncmp(at, name, size) == 0)
            return true;
        if (other > 0 &&
            (strncmp(at, "gfx", 3) != 0 || memchr(at, '-', other) != NULL))
            return true;
    }
    return false;
}

#endif
