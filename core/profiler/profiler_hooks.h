/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* profiler_hooks.h: the profiler's interface to the rest of the core. */

#ifndef CORE_PROFILER_PROFILER_HOOKS_H
#define CORE_PROFILER_PROFILER_HOOKS_H

#include "base/thread.h"

#include <libcore/plugin.h>

/* Frees the log of a thread that ends. */
void core__profiler_thread_end(core__thread *self);
/* The dispatch layer: records the call and redispatches below itself. */
core_status core__profiler_layer(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);

#endif
