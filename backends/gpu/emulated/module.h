/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* module.h: included before the source of kernels that compile.c compiles to a
 * library.  The position of the running thread, `gpu_emulated`, is the plugin's;
 * module.c says where. */

#ifndef GPU_EMULATED_MODULE_H
#define GPU_EMULATED_MODULE_H

/* emulate.h declares it: so it declares a pointer. */
#define gpu_emulated (*gpu_emulated_at)
#pragma GCC visibility push(default)
#include <gpu/emulated/emulate.h>
#pragma GCC visibility pop

__attribute__((
    visibility("hidden"))) extern gpu_emulated_kernel __start_gpu_kernels[],
    __stop_gpu_kernels[];
#pragma GCC visibility push(default)
gpu_emulated_position *gpu_emulated_at;
extern "C" void gpu_emulated_kernels(gpu_emulated_kernel **first,
                                     gpu_emulated_kernel **end);
#pragma GCC visibility pop
void gpu_emulated_kernels(gpu_emulated_kernel **first,
                          gpu_emulated_kernel **end)
{
    *first = __start_gpu_kernels;
    *end = __stop_gpu_kernels;
}

#endif
