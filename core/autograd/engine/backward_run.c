/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* One backward from beginning to end: in the caller's thread alone or with
 * workers, nested, and joined with the caller's streams. */

#include "autograd/engine/engine.h"

#include "autograd/engine/accumulate_grad.h"
#include "autograd/engine/worker.h"
#include "base/memory.h"
#include "base/observe.h"
#include "base/thread.h"
#include "base/thread_start.h"
#include "device/stream.h"
#include "quant/checkpoint_scales.h"

#include <libcore/memory.h>

/* ---------------------------------------------------------------- streams -- */

/* For steps that are done for all streams even if one fails: the first error is
 * reported. */
typedef struct first_error {
    core_status status;
    core__error_record record;
} first_error;

static void keep_error(first_error *first, core_status status)
{
    if (status == CORE_OK || first->status != CORE_OK)
        return;
    core__error_prefix("gradients for the caller's stream");
    first->status = status;
    core__error_save(&first->record);
}

/* Records the caller's streams for the gradients that the caller gets. */
static void record_caller_streams(core__task *task, first_error *first)
{
    for (size_t i = 0; i < task->ncaptures; i++) {
        core_tensor *grad = *task->captures[i].out;

        if (grad && !grad->device->synchronous)
            keep_error(first, core_tensor_record_stream(
                                  grad, core__stream_current(grad->device)));
    }
    for (size_t i = 0; !task->captures && i < task->nnodes; i++) {
        core_node *node = task->nodes[i];
        core_stream *current;

        if (node->kind != CORE__NODE_ACCUMULATE || !node->stream)
            continue;
        current = core__stream_current(node->stream->device);
        if (current != node->stream)
            keep_error(first, core__accumulate_record_stream(node, current));
    }
}

/* Makes the caller's current streams wait for the streams on which leaf
 * gradients arrived. */
static core_status join_leaves(core__task *task)
{
    first_error first;

    first.status = CORE_OK; /* its record is large and not read yet */
    for (size_t i = 0; i < task->nleaves; i++) {
        core_stream *leaf = task->leaves[i];
        core_stream *current = core__stream_current(leaf->device);

        keep_error(&first, core__stream_order(current, leaf));
    }
    record_caller_streams(task, &first);
    if (first.status != CORE_OK)
        core__error_restore(&first.record);
    return first.status;
}

/* Also after an error, since some gradients may have arrived; the first error
 * is reported. */
static core_status join(core__task *task, core_status status)
{
    core__error_record first;

    if (status == CORE_OK)
        return join_leaves(task);
    if (task->nleaves == 0)
        return status;
    core__error_save(&first);
    join_leaves(task);
    core__error_restore(&first);
    return status;
}

/* ---------------------------------------------------------------- threads -- */

static core_status run_alone(core__task *task, const core__edge *roots,
                             core_tensor *const *grads, size_t count)
{
    core_status status = core__task_start(task, roots, grads, count);
    core__ready ready;

    while (status == CORE_OK && core__task_pop(task, &ready))
        status = core__task_evaluate(task, ready.node, ready.slot);
    return status;
}

static core_status raise_task_error(core__task *task)
{
    if (task->error)
        return core_error_raise(task->error);
    return core__error(task->status,
                       "a backward failed in another thread; its error message "
                       "was lost for lack of memory");
}

static core_status run_together(core__task *task, const core__edge *roots,
                                core_tensor *const *grads, size_t count)
{
    core__executor *owner = task->owner;
    core_status status = core__task_start(task, roots, grads, count);

    if (status != CORE_OK)
        core__task_fail(task, status);
    core__executor_node_done(task);
    core__executor_run(owner, task);
    if (owner->forks != core__executor_fork_count())
        return core__error(CORE_ERROR_AUTOGRAD,
                           "the process was forked during a backward, whose "
                           "worker threads do not exist in the child process");
    core__thread_self()->sequence = task->sequence;
    return atomic_load(&task->failed) ? raise_task_error(task) : CORE_OK;
}

static core_status run_with_workers(core__task *task, const core__edge *roots,
                                    core_tensor *const *grads, size_t count)
{
    core__thread *self = core__thread_self();
    core__executor *before = self->executor, own;
    core_status status;

    if (!before) {
        core__executor_begin(&own);
        self->executor = &own;
    }
    task->owner = self->executor;
    task->quantized = core__checkpoint_scales_current(self);
    task->modes = core__modes_of(self);
    pthread_mutex_init(&task->lock, NULL);
    atomic_init(&task->outstanding, 1);
    atomic_init(&task->failed, false);
    task->done = false;
    task->status = CORE_OK;
    task->error = NULL;
    task->sequence = self->sequence;
    status = run_together(task, roots, grads, count);
    pthread_mutex_destroy(&task->lock);
    self->executor = before;
    if (!before)
        core__executor_end(&own);
    return status;
}

/* ------------------------------------------------------------------ tasks -- */

static core_status run(core__task *task, const core__edge *roots,
                       core_tensor *const *grads, size_t count)
{
    core__thread *self = core__thread_self();
    core_status status;

    task->caller = core__thread_state_of(self);
    task->running = task->caller;
    task->running.no_grad = !task->create;
    task->running.excluded |=
        CORE__KEY_AUTOCAST; /* its forward did the casting */
    if (!task->create)
        task->running.excluded |= CORE__KEY_AUTOGRAD;
    core__task_begin(task);
    self->engine = task;
    self->backward_depth++;
    self->no_grad = task->running.no_grad;
    self->excluded = task->running.excluded;
    status = core__task_prepare(task, roots, count);
    task->fast_path = !task->device && !task->captures && !task->destinations &&
                      !task->observed;
    if (core__likely(status == CORE_OK))
        status = core__likely(!task->multithreaded)
                     ? run_alone(task, roots, grads, count)
                     : run_with_workers(task, roots, grads, count);
    if (core__unlikely(self->pushed_modes[0] || self->pushed_modes[1]))
        status = core__modes_backward_end(self, status);
    if (core__unlikely(task->device != NULL))
        status = join(task, status);
    core__task_end(task);
    self->excluded = task->caller.excluded;
    self->no_grad = task->caller.no_grad;
    self->backward_depth--;
    self->engine = task->outer;
    return status;
}

/* ------------------------------------------------------------- reentrancy -- */

typedef struct nested_call {
    core__task *task;
    const core__edge *roots;
    core_tensor *const *grads;
    size_t count;
    core__thread *from; /* it waits, so the new thread serves its queue */
    core_status status;
    core_error *error;
} nested_call;

static core_status set_streams(const core__thread *from)
{
    for (uint32_t i = 0; i < from->nstreams; i++)
        if (from->streams[i])
            CORE_TRY(core_stream_set_current(from->streams[i]));
    return CORE_OK;
}

static void *run_in_thread(void *argument)
{
    nested_call *call = argument;
    core__thread *self = core__thread_self();
    core__thread_state state = core__thread_state_of(call->from);
    core__modes modes = core__modes_of(call->from), before;

    core__thread_state_set(self, &state);
    core__modes_enter(self, &modes, &before);
    core__checkpoint_scales_set(self,
                                core__checkpoint_scales_current(call->from));
    self->executor = call->from->executor;
    call->status = set_streams(call->from);
    if (call->status == CORE_OK)
        call->status = run(call->task, call->roots, call->grads, call->count);
    if (call->status != CORE_OK)
        core_error_detach(&call->error);
    call->from->sequence = self->sequence;
    return NULL;
}

/* Runs a deeply nested backward on a new thread, so that the nesting depth is
 * not limited by the stack. */
static core_status run_on_fresh_stack(core__task *task, const core__edge *roots,
                                      core_tensor *const *grads, size_t count)
{
    nested_call call = {.task = task,
                        .roots = roots,
                        .grads = grads,
                        .count = count,
                        .from = core__thread_self()};
    pthread_t thread;

    if (core__thread_start(&thread, run_in_thread, &call) != 0)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "backward passes are nested %u deep, and no thread "
                           "could be created for another one",
                           task->depth);
    pthread_join(thread, NULL);
    if (call.status != CORE_OK && call.error)
        return core_error_raise(call.error);
    if (call.status != CORE_OK)
        return core__error(call.status, "a nested backward failed; its error "
                                        "message was lost for lack of memory");
    return CORE_OK;
}

core_status core__engine_run(const core__edge *roots, core_tensor *const *grads,
                             size_t count, bool retain, bool create,
                             core__gradient_capture *captures, size_t ncaptures)
{
    core__thread *self = core__thread_self();
    core__lazy_pause pause;
    core_status status;
    core__task task;

    status = core__thread_pause("core_backward", &pause);
    if (status != CORE_OK) {
        self->destinations = NULL;
        return status;
    }
    task.outer = self->engine;
    task.depth = task.outer ? task.outer->depth + 1 : 0;
    task.retain = retain;
    task.create = create;
    task.anomaly = self->anomaly;
    task.observed = task.anomaly || core__observer_now();
    task.destinations = self->destinations;
    self->destinations = NULL; /* not for nested backwards */
    task.captures = captures;
    task.ncaptures = ncaptures;
    status = core__unlikely(self->backward_depth == CORE__TASK_LEVELS)
                 ? run_on_fresh_stack(&task, roots, grads, count)
                 : run(&task, roots, grads, count);
    core__thread_resume(&pause);
    return status;
}
