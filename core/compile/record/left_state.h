/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* left_state.h: what a function leaves changed in its thread when it returns,
 * such as grad mode.  A run of its program would not change it, so such a
 * function cannot be recorded.  Afterwards the thread has its state of before,
 * but for modes (dispatch/mode_stack.h) that the function leaves pushed, since
 * calls under a mode are not compiled, and for settings of numerics: these are
 * those of the process, too, which threads that have begun meanwhile have, so
 * what was set last applies, as without recording. */

#ifndef CORE_COMPILE_LEFT_STATE_H
#define CORE_COMPILE_LEFT_STATE_H

#include "base/thread.h"

typedef struct core__state_before {
    struct core__saved_hooks *hooks, *outer_hooks;
    core_device *device;
    uint64_t region; /* of autocast */
    uint64_t outer;  /* regions that the function may not end, before */
    uint32_t call_flags;
    bool no_grad, inference, anomaly;
} core__state_before;

/* Before the function is called. */
core__state_before core__state_remember(core__thread *self);
/* After it: the thread has that state again.  Returns what was changed, or
 * NULL. */
const char *core__state_restore(core__thread *self,
                                const core__state_before *before);

#endif
