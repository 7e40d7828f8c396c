/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The state of a thread around a function that is recorded. */

#include "compile/record/left_state.h"

#include "autocast/autocast.h"

#include <libcore/saved.h>

core__state_before core__state_remember(core__thread *self)
{
    core__state_before before = {.hooks = self->saved_hooks,
                                 .outer_hooks = self->outer_hooks,
                                 .device = self->device,
                                 .region = core__autocast_mark(self),
                                 .outer = self->autocast_outer,
                                 .call_flags = self->call_flags,
                                 .no_grad = self->no_grad,
                                 .inference = self->inference,
                                 .anomaly = self->anomaly};

    self->autocast_outer = before.region;
    self->outer_hooks = before.hooks;
    return before;
}

static const char *find_change(const core__thread *self,
                               const core__state_before *before)
{
    if (self->inference != before->inference)
        return "inference mode";
    if (self->no_grad != before->no_grad)
        return "grad mode";
    if (core__autocast_mark(self) != before->region)
        return "the region of autocast";
    if (self->device != before->device)
        return "the current device";
    if (self->call_flags != before->call_flags)
        return "a setting of numerics";
    if (self->anomaly != before->anomaly)
        return "anomaly mode";
    return self->saved_hooks == before->hooks ? NULL
                                              : "hooks for saved tensors";
}

const char *core__state_restore(core__thread *self,
                                const core__state_before *before)
{
    const char *changed = find_change(self, before);

    self->inference = before->inference;
    self->no_grad = before->no_grad;
    self->device = before->device;
    self->anomaly = before->anomaly;
    self->autocast_outer = before->outer;
    core__autocast_unwind(self, before->region);
    while (self->saved_hooks != before->hooks)
        core_saved_hooks_pop();
    self->outer_hooks = before->outer_hooks;
    return changed;
}
