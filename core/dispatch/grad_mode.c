/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The thread's grad mode and inference mode. */

#include "base/thread.h"
#include "base/keys.h"

#include <libcore/autograd.h>

bool core_grad_mode_set(bool enabled)
{
    core__thread *self = core__thread_self();
    bool before = !self->no_grad;

    self->no_grad = !enabled;
    return before;
}

bool core_grad_mode(void)
{
    return !core__thread_self()->no_grad;
}

enum {
    BEFORE_INFERENCE = 1u << 0,
    BEFORE_EXCLUDED = 1u << 1,
    BEFORE_NO_GRAD = 1u << 2
};

uint64_t core_inference_begin(void)
{
    core__thread *self = core__thread_self();
    uint64_t before = 0;

    if (self->inference)
        before |= BEFORE_INFERENCE;
    if (self->excluded & CORE__KEY_AUTOGRAD)
        before |= BEFORE_EXCLUDED;
    if (self->no_grad)
        before |= BEFORE_NO_GRAD;
    self->inference = true;
    self->no_grad = true;
    self->excluded |= CORE__KEY_AUTOGRAD;
    self->included &= ~CORE__KEY_INPLACE_OR_VIEW;
    return before;
}

void core_inference_end(uint64_t before)
{
    core__thread *self = core__thread_self();

    self->inference = before & BEFORE_INFERENCE;
    self->no_grad = before & BEFORE_NO_GRAD;
    if (!self->inference)
        self->included |= CORE__KEY_INPLACE_OR_VIEW;
    if (!(before & BEFORE_EXCLUDED))
        self->excluded &= ~CORE__KEY_AUTOGRAD;
}

bool core_inference_mode(void)
{
    return core__thread_self()->inference;
}
