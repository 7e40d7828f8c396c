/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Executors: the worker thread of each device, their queues, and their end. */

#include "autograd/engine/worker.h"

#include "base/fork.h"
#include "base/memory.h"
#include "base/thread_start.h"
#include "quant/checkpoint_scales.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core__executor *workers; /* protected by the lock */
static _Atomic uint64_t forks;

uint64_t core__executor_fork_count(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

/* ----------------------------------------------------------------- queue -- */

/* Deeper first, then newer. */
static bool before(const core__executor_work *a, const core__executor_work *b)
{
    if (a->task->depth != b->task->depth)
        return a->task->depth > b->task->depth;
    return a->ready.sequence > b->ready.sequence;
}

static bool grow(core__executor *executor)
{
    size_t capacity = executor->capacity ? 2 * executor->capacity : 64;
    core__executor_work *queue =
        core__realloc(executor->queue, capacity * sizeof *queue);

    if (!queue)
        return false;
    executor->queue = queue;
    executor->capacity = capacity;
    return true;
}

core_status core__executor_push(core__executor *executor, core__task *task,
                                const core__ready *ready)
{
    core__executor_work work = {*ready, task};
    core_status status = CORE_OK;
    core__executor_work *queue;
    size_t i;

    pthread_mutex_lock(&executor->lock);
    if (executor->count < executor->capacity || grow(executor)) {
        atomic_fetch_add(&task->outstanding, 1);
        queue = executor->queue;
        for (i = executor->count++; i > 0; i = (i - 1) / 2) {
            if (!before(&work, &queue[(i - 1) / 2]))
                break;
            queue[i] = queue[(i - 1) / 2];
        }
        queue[i] = work;
        pthread_cond_signal(&executor->wake);
    } else {
        status = core__error_memory(2 * executor->capacity * sizeof *queue);
    }
    pthread_mutex_unlock(&executor->lock);
    return status;
}

/* With the lock held; the queue is not empty. */
static core__executor_work pop(core__executor *executor)
{
    core__executor_work *queue = executor->queue;
    core__executor_work first = queue[0], last = queue[--executor->count];
    size_t count = executor->count, i = 0;

    for (;;) {
        size_t child = 2 * i + 1;

        if (child >= count)
            break;
        if (child + 1 < count && before(&queue[child + 1], &queue[child]))
            child++;
        if (!before(&queue[child], &last))
            break;
        queue[i] = queue[child];
        i = child;
    }
    if (count)
        queue[i] = last;
    return first;
}

/* --------------------------------------------------------------- serving -- */

/* Switches the thread to the task's state for one node. */
static void run(const core__executor_work *work)
{
    core__thread *self = core__thread_self();
    core__thread_state state = core__thread_state_of(self);
    core__task *task = work->task;
    core__checkpoint_scales_run *quantized;
    core__modes modes;
    void *engine = self->engine;
    core_status status;

    if (atomic_load(&task->failed))
        return;
    core__thread_state_set(self, &task->running);
    core__modes_enter(self, &task->modes, &modes);
    quantized = core__checkpoint_scales_set(self, task->quantized);
    self->engine = task;
    status = core__task_evaluate(task, work->ready.node, work->ready.slot);
    if (!core__modes_leave(self, &modes) && status == CORE_OK)
        status = core__modes_left_error();
    if (status != CORE_OK)
        core__task_fail(task, status);
    self->engine = engine;
    pthread_mutex_lock(&task->lock);
    if (task->sequence < self->sequence)
        task->sequence = self->sequence;
    pthread_mutex_unlock(&task->lock);
    core__checkpoint_scales_set(self, quantized);
    core__thread_state_set(self, &state);
}

void core__executor_node_done(core__task *task)
{
    core__executor *owner = task->owner;

    if (atomic_fetch_sub(&task->outstanding, 1) != 1)
        return;
    pthread_mutex_lock(&owner->lock);
    task->done = true;
    pthread_cond_signal(&owner->wake);
    pthread_mutex_unlock(&owner->lock);
}

void core__executor_run(core__executor *executor, core__task *until)
{
    core__executor_work work;

    pthread_mutex_lock(&executor->lock);
    while (executor->forks == core__executor_fork_count() &&
           !(until ? until->done : executor->stop)) {
        if (executor->count == 0 ||
            (until && executor->queue[0].task->depth < until->depth)) {
            pthread_cond_wait(&executor->wake, &executor->lock);
            continue;
        }
        work = pop(executor);
        executor->busy = true;
        pthread_mutex_unlock(&executor->lock);
        run(&work);
        if (executor->forks == core__executor_fork_count())
            core__executor_node_done(work.task);
        pthread_mutex_lock(&executor->lock);
        executor->busy = until != NULL;
    }
    pthread_mutex_unlock(&executor->lock);
}

static void *work_on(void *argument)
{
    core__executor *executor = argument;

    core__thread_self()->executor = executor;
    core__executor_run(executor, NULL);
    return NULL;
}

/* --------------------------------------------------------------- closing -- */

static void stop(core__executor *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->stop = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
    if (worker->alive)
        pthread_join(worker->thread, NULL);
    core__executor_end(worker);
    core__free(worker);
}

/* Called before a device is closed: no task has nodes of it any more. */
static void close_worker(core_device *device)
{
    core__executor **link, *worker;

    pthread_mutex_lock(&lock);
    for (link = &workers; *link && (*link)->device != device;)
        link = &(*link)->next;
    worker = *link;
    if (worker)
        *link = worker->next;
    pthread_mutex_unlock(&lock);
    if (worker)
        stop(worker);
}

/* ------------------------------------------------------------------ fork -- */

static void empty(core__executor *executor)
{
    pthread_mutex_init(&executor->lock, NULL);
    pthread_cond_init(&executor->wake, NULL);
    executor->count = 0;
    executor->alive = false;
}

/* The child process has only the forking thread.  The workers' queues are
 * reset; a backward that was running fails (backward_run.c). */
void core__executors_fork(core__fork_phase at)
{
    core__thread *self = core__self_pointer;

    core__fork_mutex(at, &lock);
    if (at != CORE__FORK_CHILD)
        return;
    atomic_fetch_add(&forks, 1);
    for (core__executor *worker = workers; worker; worker = worker->next)
        empty(worker);
    if (self && self->executor)
        empty(self->executor);
    for (core__task *task = self ? self->engine : NULL; task;
         task = task->outer)
        if (task->multithreaded)
            pthread_mutex_init(&task->lock, NULL);
}

/* --------------------------------------------------------------- workers -- */

void core__executor_begin(core__executor *executor)
{
    atomic_store(&core__device_closing, close_worker);
    *executor = (core__executor){.forks = core__executor_fork_count()};
    pthread_mutex_init(&executor->lock, NULL);
    pthread_cond_init(&executor->wake, NULL);
}

void core__executor_end(core__executor *executor)
{
    pthread_cond_destroy(&executor->wake);
    pthread_mutex_destroy(&executor->lock);
    core__free(executor->queue);
}

static bool thread_make(core__executor *executor)
{
    executor->forks = core__executor_fork_count();
    executor->alive =
        core__thread_start(&executor->thread, work_on, executor) == 0;
    return executor->alive;
}

static core_status worker_make(core_device *device, core__executor **out_worker)
{
    core__executor *worker = core__alloc(sizeof *worker);

    *out_worker = NULL;
    if (!worker)
        return core__error_memory(sizeof *worker);
    core__executor_begin(worker);
    worker->device = device;
    worker->next = workers;
    workers = worker;
    *out_worker = worker;
    return CORE_OK;
}

core_status core__executor_of_device(core_device *device,
                                     core__executor **out_executor)
{
    core_status status = CORE_OK;
    core__executor *worker;

    *out_executor = NULL;
    atomic_store(&core__device_closing, close_worker);
    pthread_mutex_lock(&lock);
    for (worker = workers; worker && worker->device != device;)
        worker = worker->next;
    if (!worker)
        status = worker_make(device, &worker);
    if (worker && !worker->alive && !thread_make(worker)) {
        status =
            core__error(CORE_ERROR_AUTOGRAD,
                        "no thread could be created to run the nodes of \"%s\"",
                        device->name);
        worker = NULL;
    }
    pthread_mutex_unlock(&lock);
    *out_executor = worker;
    return status;
}

/* Ends idle workers when the library is unloaded or the process exits.  A
 * worker that is still busy at exit is left alone. */
__attribute__((destructor)) static void end_all(void)
{
    core__executor *worker, *next;
    bool busy;

    for (worker = workers; worker; worker = next) {
        next = worker->next;
        pthread_mutex_lock(&worker->lock);
        busy = worker->alive && (worker->busy || worker->count);
        pthread_mutex_unlock(&worker->lock);
        if (!busy)
            stop(worker);
    }
    workers = NULL;
}
