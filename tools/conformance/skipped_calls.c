/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "skipped_calls.h"

#include <stdio.h>
#include <string.h>

void skipped_calls_add(skipped_calls *self, const char *op, core_dtype dtype)
{
    size_t capacity = sizeof self->list - self->length;
    char name[TEST_NAME];
    int more;

    self->count++;
    snprintf(name, sizeof name, "%s%s%s", op,
             dtype == CORE_DTYPE_NONE ? "" : " of ",
             dtype == CORE_DTYPE_NONE ? "" : core_dtype_name(dtype));
    if (strcmp(self->last, name) == 0)
        return;
    memcpy(self->last, name, sizeof name);
    more = snprintf(self->list + self->length, capacity, "%s%s",
                    self->length ? ", " : "", name);
    if (more > 0 && (size_t)more < capacity) {
        self->length += (size_t)more;
        return;
    }
    self->list[self->length] = 0;
    self->unlisted++;
}

void skipped_calls_report(const skipped_calls *self, size_t ran, outcome *out)
{
    if (out->verdict != VERDICT_PASS)
        return;
    if (ran == 0)
        not_supported(out, "none of the operators that this needs is claimed");
    else if (self->count > 0)
        snprintf(out->detail, sizeof out->detail,
                 "%u of %zu calls were not tested, because no kernel computes "
                 "them: %s%s",
                 self->count, ran + self->count, self->list,
                 self->unlisted ? ", …" : "");
}
