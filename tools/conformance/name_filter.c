/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "name_filter.h"

#include <fnmatch.h>
#include <string.h>

enum { PATTERN = 256 }; /* longer ones select nothing */

bool name_filter_selects(const char *filter, const char *name)
{
    char one[PATTERN];

    if (!filter)
        return true;
    for (const char *at = filter;; at++) {
        size_t size = strcspn(at, ",");

        if (size < sizeof one) {
            memcpy(one, at, size);
            one[size] = 0;
            if (fnmatch(one, name, 0) == 0)
                return true;
        }
        at += size;
        if (!*at)
            return false;
    }
}
