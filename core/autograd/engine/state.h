/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* state.h: the thread state that calls depend on, for taking it to another
 * thread or a later time: keys, modes, current device, saved-tensor hooks.
 * Current streams are not part of it. */

#ifndef CORE_AUTOGRAD_STATE_H
#define CORE_AUTOGRAD_STATE_H

#include "base/thread.h"

typedef struct core__thread_state {
    uint32_t included;
    uint32_t excluded;
    core_device *device;
    uint64_t sequence; /* a thread that takes the state over continues from
                        * here, so that what it records is newer */
    struct core__saved_hooks
        *saved_hooks; /* borrowed from a thread that waits */
    const char *place;
    bool no_grad;
    bool inference;
    uint32_t call_flags;
    bool anomaly;
    struct core__batching *batching; /* borrowed, like saved_hooks */
    struct core__trace *trace;       /* with `included` */
} core__thread_state;

static inline core__thread_state core__thread_state_of(const core__thread *self)
{
    return (core__thread_state){
        self->included,    self->excluded,      self->device,   self->sequence,
        self->saved_hooks, self->anomaly_place, self->no_grad,  self->inference,
        self->call_flags,  self->anomaly,       self->batching, self->trace};
}

static inline void core__thread_state_set(core__thread *self,
                                          const core__thread_state *state)
{
    self->included = state->included;
    self->excluded = state->excluded;
    self->device = state->device;
    if (self->sequence < state->sequence)
        self->sequence = state->sequence;
    self->saved_hooks = state->saved_hooks;
    self->anomaly_place = state->place;
    self->no_grad = state->no_grad;
    self->inference = state->inference;
    self->call_flags = state->call_flags;
    self->anomaly = state->anomaly;
    self->batching = state->batching;
    self->trace = state->trace;
}

#endif
