/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* architectures.h: which GPUs the kernels run on. */

#ifndef ROCM_ARCHITECTURES_H
#define ROCM_ARCHITECTURES_H

#include <stdbool.h>
#include <string.h>

/* Of a GPU that is named: "gfx90a:sramecc+:xnack-, ...".  What the list has that
 * is no such name ("native", "gfx11-generic") may be for any. */
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
