/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* saved_kernel.h: what kernel.c does for save.c and background_build.c. */

#ifndef CORE_CODEGEN_SAVED_KERNEL_H
#define CORE_CODEGEN_SAVED_KERNEL_H

#include "codegen/loop_kernel.h"

/* Returns the status of a plugin's function, and sets a message if the plugin
 * has failed without one.  errors: the thread's error sequence before the
 * call. */
core_status core__loop_reason(const core_device *device, core_status status,
                              uint32_t errors, const char *what);

/* Makes a kernel with the plugin's `load`, which exists, from the plugin's
 * bytes. */
core_status core__loop_kernel_restore(core_device *device,
                                      core_loop_program *program,
                                      const void *data, uint64_t size,
                                      core__loop_kernel **out_kernel);

/* Finds a kernel that core__loop_kernel_make_shared has made of an equal
 * program, with the same flags of hints, and returns a reference, or NULL. */
core__loop_kernel *core__loop_kernel_find(const core_device *device,
                                          const core_loop_program *program,
                                          const core_loop_hints *hints);
/* Builds a kernel that others find.  Any thread may call it. */
core_status core__loop_kernel_make_shared(core_device *device,
                                          core_loop_program *program,
                                          const core_loop_hints *hints,
                                          core__loop_kernel **out_kernel);

#endif
