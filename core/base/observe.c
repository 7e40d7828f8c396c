/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/observe.h"

const core__observer *_Atomic core__observing;
const core__observer *_Atomic core__observed_last;

/* Ends what began while an observer was set; none may be set any more.  The
 * end is reported in any case, because plugins were notified of the beginning.
 * A program may end a range that never began, so there may never have been an
 * observer. */
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
