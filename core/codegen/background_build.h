/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* background_build.h: kernels whose build takes long.  A device with
 * CORE_CODEGEN_BUILDS_SLOWLY builds in a thread of the core, unless
 * LIBCORE_COMPILE_BACKGROUND is 0; until a kernel is there, its operators run
 * one by one. */

#ifndef CORE_CODEGEN_BACKGROUND_BUILD_H
#define CORE_CODEGEN_BACKGROUND_BUILD_H

#include "base/fork.h"
#include "codegen/loop_kernel.h"

/* A build that waits, runs, has succeeded, or has failed. */
typedef struct core__loop_build core__loop_build;

/* Gets a kernel that exists: of an equal program, with the same flags of hints.
 * Otherwise builds it; of a device that builds slowly, in the background: then
 * *out_kernel is NULL, and *out_build is the build, with a reference.  When that
 * is finished, another request gets the kernel, or the error.  So the reference
 * is kept until then; without it a kernel is lost and a failure forgotten.
 * *out_new: the first request that got this kernel or this error. */
core_status core__loop_kernel_request(core_device *device,
                                      core_loop_program *program,
                                      const core_loop_hints *hints,
                                      core__loop_kernel **out_kernel,
                                      bool *out_new,
                                      core__loop_build **out_build);
bool core__loop_build_is_finished(const core__loop_build *build);
/* Accepts NULL. */
void core__loop_build_release(core__loop_build *build);

/* Waits until nothing is being built. */
void core__loop_builds_wait(void);

/* Fork handler of the lock. */
void core__loop_builds_fork(core__fork_phase at);

#endif
