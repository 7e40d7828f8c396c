/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* codegen.h: kernels of loop programs. */

#ifndef GPU_CODEGEN_H
#define GPU_CODEGEN_H

#include <gpu/host/host.h>

#include <libcore/codegen.h>

extern const core_codegen_interface gpu_codegen;

/* Forgets all compiled code; unload: the device still has it. */
void gpu_codegen_clear(gpu_device *device, bool unload);

#endif
