/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autocast.h: autocast regions as the dispatch layer sees them.
 *
 * A region's decision is 16 bytes of thread state, a dtype for each backend
 * slot, so that it travels with the thread's other modes to backward workers
 * and to the second run of a checkpoint.  The cast cache stays with the
 * thread. */

#ifndef CORE_AUTOCAST_AUTOCAST_H
#define CORE_AUTOCAST_AUTOCAST_H

#include "base/thread.h"
#include "tensor/tensor.h"

#include <libcore/autocast.h>

/* The dispatch layer: casts by the operator's rule, or by the rule that
 * call->user points to, and redispatches below itself. */
core_status core__autocast_layer(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);

/* Casts source to dtype, or returns a cached cast; owned.  Call it with the
 * autocast key excluded. */
core_status core__autocast_cast(core__thread *self, core_tensor *source,
                                core_dtype dtype, core_tensor **out_tensor);
void core__autocast_cache_clear(core__thread *self);

/* core__autocast_mark returns the number of the innermost region;
 * core__autocast_unwind ends all regions begun since, which a callee left open
 * on an error path.  Numbers only grow. */
uint64_t core__autocast_mark(const core__thread *self);
void core__autocast_unwind(core__thread *self, uint64_t mark);

#endif
