/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cpu.h: the common declarations of the CPU backend. */

#ifndef CPU_CPU_H
#define CPU_CPU_H

#include <libcore/backend.h>
#include <libcore/kernel.h>

/* Set by init, before any kernel can run. */
extern const core_host *cpu_host;

/* Reports an error through the host: printf-style, returns code. */
core_status cpu_error(core_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One row of a file's table of kernels; plugin.c registers them all. */
typedef struct cpu_kernel {
    const char *name; /* functional operator, "add.Tensor" */
    core_function launch;
    void *user;
    uint32_t signature[CORE_SIGNATURE_MAX]; /* kernel.h; 0 = any */
    uint32_t requirements;
} cpu_kernel;

typedef struct cpu_kernel_table {
    const cpu_kernel *kernels;
    uint32_t count;
} cpu_kernel_table;

/* The address of a view's or operand's first element. */
static inline void *cpu_address(core_memory memory)
{
    return (char *)memory.handle + memory.offset;
}

#endif
