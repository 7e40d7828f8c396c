/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Detects decompositions that recurse infinitely.  The operators that a
 * decomposition calls are seen only when it runs, so each thread records the
 * decompositions that it is running; a cycle is reported before it exhausts the
 * stack. */

#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "dispatch/table.h"

#include <stdio.h>

/* A decomposition may call its own operator on smaller operands, but not to
 * this depth; and this many calls fit on a small thread stack. */
enum { DEPTH_MAX = 24 };

typedef struct core__decomposing {
    const core__registration *registration;
    struct core__decomposing *below;
} core__decomposing;

/* "a, b, a": the latest round, from the outermost to the innermost. */
static void describe(const core__decomposing *frame, char *text, size_t size)
{
    const core__decomposing *round[8];
    size_t count = 0, length = 0;

    do {
        round[count++] = frame;
        frame = frame->below;
    } while (frame && count < 7 &&
             frame->registration != round[0]->registration);
    if (frame)
        round[count++] = frame;
    text[0] = '\0';
    while (count-- > 0 && length < size)
        length += (size_t)snprintf(
            text + length, size - length, "%s%s", length ? ", " : "",
            core__operator_name(round[count]->registration->op));
}

static core_status check(const core__decomposing *innermost)
{
    const core__registration *self = innermost->registration;
    uint32_t depth = 0;
    char text[512];

    for (const core__decomposing *f = innermost; f; f = f->below)
        depth += f->registration == self;
    if (depth <= DEPTH_MAX)
        return CORE_OK;
    describe(innermost, text, sizeof text);
    return core__error(CORE_ERROR_REFUSED,
                       "%s: registered decompositions form a cycle (%s); at "
                       "least one of these operators needs a kernel",
                       core__operator_name(self->op), text);
}

core_status core__decompose(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    const core__registration *registration = call->user;
    core__thread *self = core__thread_self();
    core__decomposing frame = {registration, self->decomposing};
    core_status status = CORE_OK;

    if (frame.below)
        status = check(&frame);
    if (status != CORE_OK)
        return status;
    self->decomposing = &frame;
    status = core__run_registered(call, args, nargs, results, nresults);
    self->decomposing = frame.below;
    return status;
}
