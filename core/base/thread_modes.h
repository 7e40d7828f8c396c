/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread_modes.h: the state of a thread on which the calls of a function
 * depend, for functions that backward calls again: checkpoints, compiled
 * functions. */

#ifndef CORE_BASE_THREAD_MODES_H
#define CORE_BASE_THREAD_MODES_H

#include "base/keys.h"
#include "base/thread.h"

typedef struct core__thread_modes {
    uint32_t included, excluded; /* dispatch keys */
    uint32_t call_flags;
    bool no_grad, inference, autocast_cached;
    uint8_t autocast[CORE__SLOTS];
    core_device *device;
} core__thread_modes;

core__thread_modes core__thread_modes_get(const core__thread *self);
void core__thread_modes_set(core__thread *self,
                            const core__thread_modes *modes);
/* Those for another call of a function: of its first call, but with the modes
 * (mode.h) of now, with gradients, and without cached casts. */
core__thread_modes core__thread_modes_again(const core__thread_modes *first,
                                            const core__thread_modes *now);

#endif
