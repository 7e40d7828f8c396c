/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread_pool.h: the one thread pool of the CPU backend. */

#ifndef CPU_POOL_H
#define CPU_POOL_H

#include <stdint.h>

/* Computes [begin, end) of a range. */
typedef void (*cpu_task)(void *context, int64_t begin, int64_t end);

/* Runs task over [0, n), cut at multiples of `grain` (>= 1) whatever the
 * number of threads, so that a task which is deterministic per chunk is
 * deterministic in all.  A chunk is never split; one call of the task may be
 * given several adjacent chunks only if the task does not care: it gets
 * exactly one chunk per call.  Runs in the caller alone when n <= grain, when
 * one thread is set, or inside another task.  Returns when all is done. */
void cpu_parallel_for(int64_t n, int64_t grain, cpu_task task, void *context);

/* Threads that compute, the caller included.  Set before or between calls, by
 * any thread; takes effect with the next parallel_for.  A forked child has an
 * empty pool that starts its own workers when first used. */
int cpu_pool_set_threads(uint32_t threads); /* 0, or -1 if none could start */
uint32_t cpu_pool_threads(void);
void cpu_pool_shutdown(void);

#endif
