/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scratch.h: memory that kernels pack their operands in.
 *
 * What is given back is kept for the next call, within a limit: memory that is
 * new to the process costs a fault for each page, which is more than packing
 * itself.  Any thread may call; memory may be given back by another thread. */

#ifndef CPU_SCRATCH_H
#define CPU_SCRATCH_H

#include <stdint.h>

/* Aligned to a line of the cache, its contents undefined.  NULL: there is none;
 * no error is set. */
void *cpu_scratch_take(int64_t bytes);
void cpu_scratch_give(void *memory); /* NULL: nothing */
/* Frees what is kept.  Nobody else may be in here. */
void cpu_scratch_shutdown(void);

#endif
