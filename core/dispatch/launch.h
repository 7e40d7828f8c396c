/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* launch.h: fills in the call that a kernel receives.
 *
 * core__kernel_launch handles every case; elementwise_fast_path.c handles the
 * plain case itself: a device without streams and a kernel without plans. */

#ifndef CORE_DISPATCH_LAUNCH_H
#define CORE_DISPATCH_LAUNCH_H

#include "base/thread.h"
#include "device/device.h"
#include "dispatch/registry.h"
#include "dispatch/structured.h"

/* Sets all fields of the call except id and plan, which are 0.  stream: the
 * plugin's handle. */
static inline void core__kernel_call_fill(core__kernel_call *run,
                                          const core__thread *self,
                                          void *stream,
                                          const core__kernel *kernel,
                                          const core_loop *loop)
{
    core_call *call = &run->call;

    call->struct_size = sizeof *call;
    call->flags = self->call_flags;
    /* the table that the kernel's plugin negotiated */
    call->host = kernel->host;
    call->user = kernel->kernel.user;
    call->op = run->op;
    call->keys = 0;
    call->loop = loop;
    call->kernel_op = run->op->kernel_op;
    call->device = run->device->impl;
    call->stream = stream;
    call->plan = NULL;
    call->id = 0;
    call->core = run;
    run->scratch = NULL;
}

/* After a launch on a synchronous device: frees scratch memory, counts, and
 * completes an error.  errors: self->error.sequence before the launch. */
core_status core__kernel_launched(core__kernel_call *run, core__thread *self,
                                  core_status status, uint32_t errors);

#endif
