/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* saved_kernel.h: what kernel.c does for save.c. */

#ifndef CORE_CODEGEN_SAVED_KERNEL_H
#define CORE_CODEGEN_SAVED_KERNEL_H

#include "codegen/loop_kernel.h"

/* Makes a kernel with the plugin's `load`, which exists, from the plugin's
 * bytes. */
core_status core__loop_kernel_restore(core_device *device,
                                      core_loop_program *program,
                                      const void *data, uint64_t size,
                                      core__loop_kernel **out_kernel);

#endif
