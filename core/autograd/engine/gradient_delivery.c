/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Delivers gradients from node to node. */

#include "autograd/engine/engine.h"

#include "autograd/engine/input_buffer.h"
#include "autograd/engine/worker.h"
#include "base/memory.h"

/* A gradient that arrived while another thread was adding one to the same slot.
 * That thread adds it next, so that no thread waits. */
struct core__pending_kernel {
    core__pending_kernel *next;
    core_tensor *grad;     /* owned */
    core_stream *producer; /* referenced; NULL: a gradient of the host */
    uint32_t input;
};

static core_status add_gradient(const core__task *task, core_node *consumer,
                                core__slot *slot, uint32_t input,
                                core_tensor *grad, core_stream *producer)
{
    core_status status = core__input_buffer_deliver(consumer, slot, input, grad,
                                                    producer, task->create);

    if (core__unlikely(status != CORE_OK))
        core__error_prefix("a gradient for %s", consumer->name);
    return status;
}

/* -------------------------------------------------------- several threads -- */

/* The gradient as a pending entry, with a reference to its stream. */
static core__pending_kernel pending_of(const core__edge *edge,
                                       core_tensor *grad, core_stream *producer)
{
    if (!producer && !grad->device->synchronous)
        producer = core__stream_current(grad->device);
    if (producer)
        core_stream_retain(producer);
    return (core__pending_kernel){NULL, grad, producer, edge->input};
}

/* With the task locked. */
static core_status postpone(core__slot *slot, const core__pending_kernel *now)
{
    core__pending_kernel *pending = core__alloc(sizeof *pending);

    if (!pending) {
        core__tensor_release(now->grad);
        core_stream_release(now->producer);
        return core__error_memory(sizeof *pending);
    }
    *pending = *now;
    pending->next = slot->pending;
    slot->pending = pending;
    return CORE_OK;
}

/* Adds a gradient and those that arrive meanwhile; all but the last are counted
 * as delivered here.  With the task locked; the lock is released while
 * adding. */
static core_status add_with_pending(core__task *task, core_node *consumer,
                                    core__slot *slot, core__pending_kernel now)
{
    core__pending_kernel *next;
    core_status status;

    slot->busy = true;
    for (;;) {
        pthread_mutex_unlock(&task->lock);
        status = add_gradient(task, consumer, slot, now.input, now.grad,
                              now.producer);
        core_stream_release(now.producer);
        pthread_mutex_lock(&task->lock);
        next = slot->pending;
        if (status != CORE_OK || !next)
            break;
        slot->pending = next->next;
        slot->dependencies--;
        now = *next;
        core__free(next);
    }
    slot->busy = false;
    return status;
}

static core_status deliver_shared(core__task *task, const core__edge *edge,
                                  core__slot *slot, core_tensor *grad,
                                  core_stream *producer)
{
    core_status status = CORE_OK;
    bool ready = false;

    if (core__unlikely(task->owner->forks != core__executor_fork_count())) {
        core__tensor_release(grad);
        return core__error(CORE_ERROR_AUTOGRAD,
                           "the process was forked during a backward, whose "
                           "worker threads do not exist in the child process");
    }
    pthread_mutex_lock(&task->lock);
    if (grad) {
        core__pending_kernel now = pending_of(edge, grad, producer);

        if (slot->busy) {
            status = postpone(slot, &now);
            pthread_mutex_unlock(&task->lock);
            return status;
        }
        status = add_with_pending(task, edge->node, slot, now);
    }
    ready = --slot->dependencies == 0;
    pthread_mutex_unlock(&task->lock);
    if (status == CORE_OK && ready)
        status = core__task_ready(task, edge->node, slot);
    return status;
}

/* ------------------------------------------------------------------ tasks -- */

core_status core__gradient_deliver(core__task *task, const core__edge *edge,
                                   core_tensor *grad, core_stream *producer)
{
    core__slot *slot = core__task_find(task, edge->node);

    if (task->multithreaded)
        return deliver_shared(task, edge, slot, grad, producer);
    if (grad)
        CORE_TRY(
            add_gradient(task, edge->node, slot, edge->input, grad, producer));
    if (--slot->dependencies == 0)
        return core__task_push(task, edge->node, slot);
    return CORE_OK;
}

static core__executor *executor_of(const core__task *task,
                                   const core_node *node)
{
    size_t i = 0;

    if (!node->stream)
        return task->owner;
    while (task->workers[i].device != node->stream->device)
        i++;
    return task->workers[i].executor;
}

core_status core__task_ready(core__task *task, core_node *node,
                             core__slot *slot)
{
    core__ready ready = {node->sequence, node, slot};

    if (!task->multithreaded)
        return core__task_push(task, node, slot);
    return core__executor_push(executor_of(task, node), task, &ready);
}

void core__task_fail(core__task *task, core_status status)
{
    core_error *error = NULL;

    core_error_detach(&error);
    pthread_mutex_lock(&task->lock);
    if (!atomic_load(&task->failed)) {
        task->status = status;
        task->error = error;
        error = NULL;
        atomic_store(&task->failed, true);
    }
    pthread_mutex_unlock(&task->lock);
    core_error_release(error);
}

void core__pending_clear(core__slot *slot)
{
    core__pending_kernel *next;

    for (core__pending_kernel *at = slot->pending; at; at = next) {
        next = at->next;
        core__tensor_release(at->grad);
        core_stream_release(at->producer);
        core__free(at);
    }
    slot->pending = NULL;
}

static core_status leaf_add(core__task *task, core_stream *stream)
{
    size_t capacity;
    core_stream **leaves;

    for (size_t i = 0; i < task->nleaves; i++)
        if (task->leaves[i] == stream)
            return CORE_OK;
    if (task->nleaves == task->leaves_capacity) {
        capacity = task->leaves_capacity ? 2 * task->leaves_capacity : 8;
        leaves = core__realloc(task->leaves, capacity * sizeof *leaves);
        if (!leaves)
            return core__error_memory(capacity * sizeof *leaves);
        task->leaves = leaves;
        task->leaves_capacity = capacity;
    }
    task->leaves[task->nleaves++] = core_stream_retain(stream);
    return CORE_OK;
}

core_status core__task_add_leaf_stream(core__task *task, core_stream *stream)
{
    core_status status;

    if (!task->multithreaded)
        return leaf_add(task, stream);
    pthread_mutex_lock(&task->lock);
    status = leaf_add(task, stream);
    pthread_mutex_unlock(&task->lock);
    return status;
}

core_status core__task_note_write(core_device *device)
{
    core__task *task = core__thread_self()->engine;

    if (!task || device->synchronous)
        return CORE_OK;
    return core__task_add_leaf_stream(task, core__stream_current(device));
}
