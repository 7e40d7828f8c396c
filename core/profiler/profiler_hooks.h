/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profiler_hooks.h: what the rest of the core knows of the profiler. */

#ifndef CORE_PROFILER_WATCH_H
#define CORE_PROFILER_WATCH_H

#include "base/thread.h"

#include <libcore/plugin.h>

/* What a thread that ends leaves: its log. */
void core__profiler_thread_end(core__thread *self);
/* The layer: records the call, then goes on below. */
core_status core__profiler_layer(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);

#endif
