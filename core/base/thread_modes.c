/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/thread_modes.h"

#include <string.h>

core__thread_modes core__thread_modes_get(const core__thread *self)
{
    core__thread_modes modes = {.included = self->included,
                                .excluded = self->excluded,
                                .call_flags = self->call_flags,
                                .no_grad = self->no_grad,
                                .inference = self->inference,
                                .autocast_cached = self->autocast_cached,
                                .device = self->device};

    /* A lazy region belongs to the call, not to what is called again. */
    if (self->lazy)
        modes.included &= (uint32_t)~CORE__KEYS_TRACED;
    memcpy(modes.autocast, self->autocast, sizeof modes.autocast);
    return modes;
}

void core__thread_modes_set(core__thread *self, const core__thread_modes *modes)
{
    self->included = modes->included;
    self->excluded = modes->excluded;
    self->call_flags = modes->call_flags;
    self->no_grad = modes->no_grad;
    self->inference = modes->inference;
    self->autocast_cached = modes->autocast_cached;
    self->device = modes->device;
    memcpy(self->autocast, modes->autocast, sizeof self->autocast);
}

core__thread_modes core__thread_modes_again(const core__thread_modes *first,
                                            const core__thread_modes *now)
{
    core__thread_modes modes = *first;

    modes.included = (first->included & ~(uint32_t)CORE__KEYS_MODE) |
                     (now->included & (uint32_t)CORE__KEYS_MODE);
    modes.no_grad = modes.inference = modes.autocast_cached = false;
    return modes;
}
