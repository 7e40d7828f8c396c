/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/observe.h"

const core__observer *_Atomic core__observing;
const core__observer *_Atomic core__observed_last;

/* What began while somebody observed, and may end when nobody does: the end
 * comes in any case, as plugins were told of the beginning.  A program may end
 * a range that never was: then nobody may have observed at all. */
void core__observe_end_slow(uint64_t token)
{
    const core__observer *last = atomic_load(&core__observed_last);

    if (last)
        last->end(token);
}

void core__observe_work_end_slow(void *work, struct core_stream *stream)
{
    atomic_load(&core__observed_last)->work_end(work, stream);
}
