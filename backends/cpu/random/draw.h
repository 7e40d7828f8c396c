/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* draw.h: what a random kernel draws, from its call. */

#ifndef CPU_DRAW_H
#define CPU_DRAW_H

#include "runtime/thread_pool.h"
#include "view.h"

typedef struct draw {
    uint64_t seed, offset;
    core_dtype dtype; /* of the result */
    cpu_dense out, p;
    int64_t n;
    double a, b; /* from and to; mean and std; probability */
    int64_t first;
    uint64_t range; /* 0: 2^64 */
} draw;

/* The minimum of elements that one thread draws: whole blocks. */
enum { GRAIN = 4096 };

static inline draw draw_of(const core_value *args, uint32_t nargs,
                           const core_value *results)
{
    const core_view *view = cpu_view(&results[0]);
    const core_value *last = &args[nargs - 1];
    /* A host of minor 0.1 that borrows this kernel passes two values. */
    const core_value *seed = last->tag == CORE_VALUE_INT ? last - 1 : last - 2;
    draw job = {.seed = (uint64_t)seed[0].u.i,
                .offset = (uint64_t)seed[1].u.i,
                .dtype = view->dtype,
                .n = view->numel};

    if (last->tag == CORE_VALUE_VIEW) {
        const uint64_t *counter = cpu_address(last->u.view->memory);

        job.offset += counter[0];
        job.seed = counter[1];
    }
    return job;
}

/* Computes a result in a compute type and writes it back. */
static inline core_status draw_run(draw *job, const core_value *results,
                                   core_dtype dtype, cpu_task task)
{
    core_status status =
        cpu_dense_open(cpu_view(&results[0]), dtype, &job->out);

    if (status == CORE_OK) {
        cpu_parallel_for(job->n, GRAIN, task, job);
        cpu_dense_write(&job->out);
    }
    cpu_dense_close(&job->out);
    return status;
}

#endif
