/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* worker.h: threads that run nodes, for tasks of several devices.
 *
 * An executor is a queue and the one thread that takes nodes from it: a worker,
 * which each device with streams gets with its first such task and keeps until
 * it is closed, or a thread that called backward.  Nodes of the deepest task
 * come first, and of those the newest.
 *
 * A thread that waits for a task keeps taking nodes from its queue, of that
 * task and of others at least as deep.  So two backwards that are nested in
 * nodes of each other's devices both finish: every thread that the deepest task
 * needs is either running one of its nodes or serving it. */

#ifndef CORE_AUTOGRAD_WORKER_H
#define CORE_AUTOGRAD_WORKER_H

#include "base/fork.h"
#include "autograd/engine/engine.h"

typedef struct core__executor_work {
    core__ready ready;
    core__task *task;
} core__executor_work;

struct core__executor {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    core__executor_work *queue; /* a heap */
    size_t count, capacity;
    uint64_t forks; /* the process's fork count when the thread was created */
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

/* The worker of a device, created if there is none. */
core_status core__executor_of_device(core_device *device,
                                     core__executor **out_executor);
core_status core__executor_push(core__executor *executor, core__task *task,
                                const core__ready *ready);
/* Runs queued nodes in the executor's thread until the task is done; NULL:
 * until the executor is stopped. */
void core__executor_run(core__executor *executor, core__task *until);
/* Decrements the outstanding nodes; the task may be gone afterwards. */
void core__executor_node_done(core__task *task);

/* How many times the process was forked (as the child): threads from before do
 * not exist. */
uint64_t core__executor_fork_count(void);

/* Fork handler of the workers' list. */
void core__executors_fork(core__fork_phase at);

#endif
