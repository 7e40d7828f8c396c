/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* worker.h: threads that run nodes, for tasks of several devices.
 *
 * An executor is a queue and the one thread that takes nodes from it: a worker,
 * which every device with streams has from the first such task on until it is
 * closed, or a thread that called backward.  The deepest task's nodes come
 * first, the newest of them foremost.
 *
 * A thread that waits for a task goes on taking nodes from its queue, of that
 * task and of those as deep or deeper.  So two backwards that sit inside nodes
 * of each other's devices both come to their end: the deepest task there is
 * finds every thread that it needs either running a node or serving it. */

#ifndef CORE_AUTOGRAD_WORKER_H
#define CORE_AUTOGRAD_WORKER_H

#include "base/fork.h"
#include "autograd/engine/engine.h"

typedef struct core__work {
    core__ready ready;
    core__task *task;
} core__work;

struct core__executor {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    core__work *queue; /* a heap */
    size_t count, capacity;
    uint64_t forks; /* of the process, when its thread was made */
    /* Workers only. */
    core_device *device;
    pthread_t thread;
    bool alive;
    bool stop;
    bool busy;
    core__executor *next;
};

/* For a thread that calls backward. */
void core__executor_begin(core__executor *executor);
void core__executor_end(core__executor *executor);

/* The worker of a device; made if there is none. */
core_status core__executor_of(core_device *device,
                              core__executor **out_executor);
core_status core__executor_push(core__executor *executor, core__task *task,
                                const core__ready *ready);
/* Runs what is queued, in the executor's thread, until the task is done; NULL:
 * until the executor is to stop. */
void core__executor_serve(core__executor *executor, core__task *until);
/* One node less is outstanding; the task may be gone after it. */
void core__executor_finished(core__task *task);

/* How often the process is a forked child: threads of before are not here. */
uint64_t core__executor_forks(void);

/* Fork handler of the workers' list. */
void core__workers_fork(core__fork at);

#endif
