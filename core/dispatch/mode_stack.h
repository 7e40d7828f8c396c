/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* mode_stack.h: the modes of a thread (libcore/mode.h).
 *
 * A thread's record has two lists per level: `modes`, those that see the next
 * call, innermost first, and `pushed_modes`, those that this thread has pushed.
 * They differ while a mode runs, which its own calls skip, and in a thread of
 * the engine, which works under the modes of another one.  A level's key is in
 * the thread's set while `modes` is not empty.
 *
 * The handle of a mode is a number, so that a wrong one is found without being
 * dereferenced. */

#ifndef CORE_DISPATCH_MODE_STACK_H
#define CORE_DISPATCH_MODE_STACK_H

#include "base/keys.h"
#include "base/thread.h"

#include <libcore/mode.h>

enum { CORE__MODE_LEVELS = 2 };

typedef struct core__mode core__mode;

/* core_mode_push of a mode whose user pointer is owned: release(user), unless
 * NULL, is called once, when the mode is popped, also if the push fails. */
core_status core__mode_push(const char *caller, uint32_t level,
                            core_function function, void *user,
                            void (*release)(void *user), core_mode **out_mode);

/* The layer of both levels. */
core_status core__mode_layer(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults);

/* The active modes of a thread, for another one to work under while the first
 * waits. */
typedef struct core__modes {
    core__mode *active[CORE__MODE_LEVELS];
    core__mode *pushed[CORE__MODE_LEVELS];
} core__modes;

core__modes core__modes_of(const core__thread *self);
/* Makes the given active modes those of the thread; *out_before is for
 * core__modes_leave.  The keys are part of the thread's state, which the caller
 * takes over. */
void core__modes_enter(core__thread *self, const core__modes *modes,
                       core__modes *out_before);
/* Restores them, and pops modes that were pushed in between; false: there were
 * some. */
bool core__modes_leave(core__thread *self, const core__modes *before);

/* The error of a backward whose functions or hooks left a mode pushed. */
core_status core__modes_left_error(void);
/* Before the innermost backward of a thread that has pushed modes ends: pops
 * those that were pushed in it, which is an error unless there is one. */
core_status core__modes_backward_end(core__thread *self, core_status status);

/* Restores the keys that a thread had before it called a function of the
 * program, except those of modes, which the function may have pushed or
 * popped. */
static inline void core__modes_restore_keys(core__thread *self,
                                            uint32_t included)
{
    const uint32_t modes = (uint32_t)CORE__KEYS_MODE;

    self->included = (included & ~modes) | (self->included & modes);
}

/* Pops the modes of a thread that ends. */
void core__modes_thread_end(core__thread *self);

#endif
