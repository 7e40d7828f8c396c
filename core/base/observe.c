/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/observe.h"

const core__observer *_Atomic core__observing;
const core__observer *_Atomic core__observed_last;

/* What began while somebody observed, and may end when nobody does. */
void core__observe_end_slow(uint64_t token)
{
    const core__observer *observer = core__observer_now();

    if (observer)
        observer->end(token);
}

/* The end comes in any case: the plugin was told of the beginning. */
void core__observe_work_end_slow(void *work, struct core_stream *stream)
{
    atomic_load(&core__observed_last)->work_end(work, stream);
}
