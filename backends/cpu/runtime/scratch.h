/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* scratch.h: memory in which kernels pack their operands.
 *
 * Released blocks are kept for the next call, up to a limit: memory that is
 * new to the process costs a fault per page, which takes longer than packing
 * itself.  Thread-safe; any thread may release a block. */

#ifndef CPU_SCRATCH_H
#define CPU_SCRATCH_H

#include <stdint.h>

/* Aligned to a cache line, contents undefined.  Returns NULL without memory; no
 * error is set. */
void *cpu_scratch_take(int64_t bytes);
void cpu_scratch_give(void *memory); /* NULL is allowed */
/* Frees the kept blocks.  No other thread may use these functions. */
void cpu_scratch_shutdown(void);

#endif
