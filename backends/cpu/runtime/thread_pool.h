/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread_pool.h: the thread pool of the CPU backend. */

#ifndef CPU_THREAD_POOL_H
#define CPU_THREAD_POOL_H

#include <stdint.h>

/* Computes [begin, end) of a range. */
typedef void (*cpu_task)(void *context, int64_t begin, int64_t end);

/* Runs task over [0, n), divided at multiples of `grain` (>= 1) for any number
 * of threads, so that a task that is deterministic per chunk is deterministic
 * as a whole.  Each call of the task gets exactly one chunk.  Runs in the
 * caller alone if n <= grain, if one thread is set, or inside another task.
 * Returns when everything is done. */
void cpu_parallel_for(int64_t n, int64_t grain, cpu_task task, void *context);

/* The number of computing threads, including the caller.  Thread-safe; may be
 * set before or between calls, and takes effect with the next cpu_parallel_for.
 * A forked child has an empty pool, which starts its own workers when first
 * used. */
int cpu_thread_pool_set_threads(
    uint32_t threads); /* 0, or -1 if none could start */
uint32_t cpu_thread_pool_threads(void);
void cpu_thread_pool_shutdown(void);

#endif
