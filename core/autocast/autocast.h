/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autocast.h: regions as the layer sees them.
 *
 * What a region decides is 16 bytes of the thread, a dtype for each backend's
 * slot, so that it goes with the thread's other modes to workers of a backward
 * and to the second run of a checkpoint.  The casts that are kept stay with the
 * thread itself. */

#ifndef CORE_AUTOCAST_AUTOCAST_H
#define CORE_AUTOCAST_AUTOCAST_H

#include "base/thread.h"
#include "tensor/tensor.h"

#include <libcore/autocast.h>

/* The layer: casts by the operator's rule, or by that which call->user points
 * to, then goes on below. */
core_status core__autocast_layer(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);

/* A cast of source to dtype, owned: one that was kept, or a new one.  With the
 * key of autocast excluded. */
core_status core__autocast_cast(core__thread *self, core_tensor *source,
                                core_dtype dtype, core_tensor **out_tensor);
void core__autocast_forget(core__thread *self);

/* The innermost region, and the end of those begun since: by code that another
 * one called and that left them on an error's way out.  Numbers only grow. */
uint64_t core__autocast_mark(const core__thread *self);
void core__autocast_unwind(core__thread *self, uint64_t mark);

#endif
