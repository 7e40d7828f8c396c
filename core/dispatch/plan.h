/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plan.h: plans prepared by devices that compile per shape. */

#ifndef CORE_DISPATCH_PLAN_H
#define CORE_DISPATCH_PLAN_H

#include "base/fork.h"
#include "dispatch/structured.h"

typedef struct core__plan core__plan;

/* Returns the plan of this call, and prepares it if there is none for its
 * structure; it is not destroyed before core__plan_done.  call is complete
 * except for `plan`. */
core_status core__plan_find(core__kernel_call *run, const core_kernel *kernel,
                            const core_value *args, uint32_t nargs,
                            const core_value *results, uint32_t nresults,
                            core__plan **out_plan);
void *core__plan_word(const core__plan *plan);
void core__plan_done(core__plan *plan);

/* Called before a kernel or a device is removed.  NULL: any. */
void core__plans_drop(const core_kernel *kernel, const core_device *device);

/* Fork handler of the lock of the plans. */
void core__plans_fork(core__fork at);

#endif
