/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* lazy.h: lazy regions (libcore/lazy.h).
 *
 * A region is a trace (trace.h) that stays open on its thread.  Its program has
 * no inputs: what it reads are hidden inputs, which become inputs when a segment
 * is kept (segment.h).  The tensors that it returns are traced tensors, on
 * storages without memory.  A cut gives each storage that is still used its
 * memory, and makes its tensors ordinary ones.  Therefore the region has a list
 * of them, which holds a reference to each until then.
 *
 * While a segment runs, or an operator that cannot be recorded, the region is
 * paused (core__thread_pause): the thread calls operators as usual. */

#ifndef CORE_COMPILE_LAZY_H
#define CORE_COMPILE_LAZY_H

#include "compile/record/trace.h"

#include "base/thread.h"

#include <libcore/lazy.h>

struct core__lazy {
    core__trace trace; /* of the segment; its program is NULL at first */
    core_lazy_options options;
    uint32_t depth;      /* begins without an end */
    uint32_t paused;     /* those at the last cut, before which each pause is */
    bool inert;          /* begun while a program was recorded */
    uint32_t calls;      /* recorded in the segment */
    core_device *device; /* of the segment; NULL: of nothing yet */
    core_tensor *tensors; /* newest first, linked by `held` */
    core_error *deferred; /* the next cut reports it */
};

/* Adds a new traced tensor to the list of its region, if it has one. */
void core__lazy_note(core_tensor *tensor);
/* Called before a call is recorded: the region may be cut for its limit. */
core_status core__lazy_enter(core__lazy *lazy);
/* Calls an operator that could not be recorded, after a cut.  The thread's error
 * says why. */
core_status core__lazy_call(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults);
/* The upcalls of base/upcalls.h. */
core_status core__lazy_cut(core__thread *self, const char *name);
void core__lazy_cut_later(core__thread *self, const char *name);
/* Ends the region of a thread that ends. */
void core__lazy_thread_end(core__thread *self);

#endif
