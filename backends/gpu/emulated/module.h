/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* module.h: included before the source of kernels that compile.c compiles to a
 * library.  The position of the running thread, `gpu_emulated`, and what its
 * threads meet in are the plugin's; module.c says where. */

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
gpu_emulated_meetings gpu_emulated_meet;
extern "C" void gpu_emulated_kernels(gpu_emulated_kernel **first,
                                     gpu_emulated_kernel **end);
#pragma GCC visibility pop
void gpu_emulated_barrier(void)
{
    gpu_emulated_meet.barrier();
}
uint64_t gpu_emulated_exchange(uint64_t x, uint32_t from)
{
    return gpu_emulated_meet.exchange(x, from);
}
uint64_t gpu_emulated_ballot(int x)
{
    return gpu_emulated_meet.ballot(x);
}
uint32_t gpu_emulated_lane(void)
{
    return gpu_emulated_meet.lane();
}
void gpu_emulated_kernels(gpu_emulated_kernel **first,
                          gpu_emulated_kernel **end)
{
    *first = __start_gpu_kernels;
    *end = __stop_gpu_kernels;
}

#endif
