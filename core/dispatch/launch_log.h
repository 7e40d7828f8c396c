/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* launch_log.h: finds out which kernels a call launches, and with what.
 *
 * A call of a structured operator depends only on what is known of its tensors
 * before they have content: the core infers, converts and allocates, and
 * launches kernels.  While a thread has a log, its kernels are added to the log
 * instead of being launched.  They can then be launched as often as needed,
 * with other memory, without any of the other work (compile/prepare/prepared.h). */

#ifndef CORE_DISPATCH_LAUNCH_LOG_H
#define CORE_DISPATCH_LAUNCH_LOG_H

#include "base/thread.h"
#include "dispatch/structured.h"

/* A kernel call as it was about to be launched. */
typedef struct core__logged_launch {
    struct core__logged_launch *next;
    const core_kernel *kernel;
    /* A copy with all that it points to, except tensors: they are those of the
     * call that was logged, with references if `holds_tensors`, and are
     * replaced before it is launched. */
    core__kernel_call *run;
    bool holds_tensors;
    core_call *block;      /* of core__call_copy, that contains it */
    const core_loop *loop; /* or NULL */
    const core_value *args;
    core_value *results;
    uint32_t nargs, nresults;
    /* Random numbers: the seed and the offset are arguments `random` and the
     * one after it; 0: none are drawn. */
    uint32_t random;
    uint64_t numbers;          /* for core__generator_advance_for */
    core_generator *generator; /* NULL: that of the device */
} core__logged_launch;

typedef struct core__launch_log {
    core__logged_launch *first, *last;
    const char *refusal; /* why the call cannot be logged; static */
    /* Of the next launch: */
    uint32_t random;
    uint64_t numbers;
    core_generator *generator;
} core__launch_log;

/* Calls an operator whose tensors are all on `device` with the log: a
 * structured one, or a function that only creates tensors and fills them.  The
 * results are new tensors without content.  UNSUPPORTED: the call cannot be
 * logged, for the reason in log->refusal.  The thread's error record is left as
 * it was. */
core_status core__launch_log_call(core__launch_log *log, core_operator *op,
                                  core_device *device, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults);
/* The same for to[...] = from[...], on one device. */
core_status core__launch_log_copy(core__launch_log *log, core_tensor *to,
                                  core_tensor *from);
/* Releases the tensors of the call. */
void core__logged_launch_release(core__logged_launch *launch);
/* Frees a launch that was taken out of the log. */
void core__logged_launch_free(core__logged_launch *launch);
/* Frees the launches of a log. */
void core__launch_log_clear(core__launch_log *log);
/* The tensors whose memory the kernel uses. */
static inline core_tensor **core__logged_tensors(core__logged_launch *launch)
{
    return launch->run->ntensors > CORE__KERNEL_TENSORS ? launch->run->many
                                                        : launch->run->tensors;
}

/* For core__kernel_launch: adds the launch. */
core_status core__launch_log_add(core__launch_log *log,
                                 const core__kernel_call *run,
                                 const core_kernel *kernel,
                                 const core_loop *loop, const core_value *args,
                                 uint32_t nargs, const core_value *results,
                                 uint32_t nresults);
/* kernel_call.c: copies the call for a launch, which it completes. */
core_status core__kernel_call_copy(const core__kernel_call *run,
                                   const core_loop *loop,
                                   const core_value *args,
                                   const core_value *results,
                                   core__logged_launch *launch);
/* For random operators: the next launch draws so many numbers. */
void core__launch_log_random(core__launch_log *log, core_generator *generator,
                             uint64_t numbers, uint32_t argument);
core_status core__launch_log_refuse(core__launch_log *log, const char *reason)
    __attribute__((cold));

/* Before anything that reads memory or computes without a kernel: UNSUPPORTED
 * if the thread has a log. */
static inline core_status core__launch_log_check(const char *reason)
{
    core__launch_log *log = core__thread_self()->launch_log;

    return core__likely(!log) ? CORE_OK : core__launch_log_refuse(log, reason);
}

#endif
