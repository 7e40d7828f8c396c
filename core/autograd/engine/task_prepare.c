/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Prepares a task: counts the dependencies of its nodes and chooses the threads
 * that run them. */

#include "autograd/engine/engine.h"

#include "autograd/engine/input_buffer.h"
#include "autograd/engine/worker.h"
#include "base/memory.h"

#include <string.h>

static core_status find_or_add_slot(core__task *task, core_node *node,
                                    core__slot **out_slot)
{
    if (core__likely(atomic_load_explicit(&node->slot.task,
                                          memory_order_relaxed) == task)) {
        *out_slot = &node->slot;
        return CORE_OK;
    }
    return core__task_slot_slow(task, node, out_slot);
}

/* Counts the edges that will deliver; task->nodes is the queue. */
static core_status count_edges(core__task *task)
{
    for (size_t at = 0; at < task->nnodes; at++) {
        core_node *node = task->nodes[at];

        for (uint32_t i = 0; i < node->nedges; i++) {
            core__slot *slot;

            if (!node->edges[i].node)
                continue;
            CORE_TRY(find_or_add_slot(task, node->edges[i].node, &slot));
            slot->dependencies++;
        }
    }
    return CORE_OK;
}

typedef struct frame {
    core_node *node;
    core__slot *slot;
    uint32_t edge;
} frame;

/* Depth first: a node is needed if a captured one is reachable from it. */
static core_status mark_needed_from(core__task *task, core_node *root,
                                    frame **stack, size_t *capacity)
{
    size_t depth = 0;
    core__slot *slot;

    CORE_TRY(find_or_add_slot(task, root, &slot));
    if (slot->flags & CORE__SLOT_DONE)
        return CORE_OK;
    slot->flags |= CORE__SLOT_DONE;
    if (slot->flags & CORE__SLOT_STOP)
        return CORE_OK;
    (*stack)[depth++] = (frame){root, slot, 0};
    while (depth) {
        frame *top = &(*stack)[depth - 1];
        core_node *next;

        if (top->edge == top->node->nedges) {
            if (--depth &&
                top->slot->flags & (CORE__SLOT_NEEDED | CORE__SLOT_CAPTURE))
                (*stack)[depth - 1].slot->flags |= CORE__SLOT_NEEDED;
            continue;
        }
        next = top->node->edges[top->edge++].node;
        if (!next)
            continue;
        CORE_TRY(find_or_add_slot(task, next, &slot));
        if (slot->flags & CORE__SLOT_DONE) {
            if (slot->flags & (CORE__SLOT_NEEDED | CORE__SLOT_CAPTURE))
                top->slot->flags |= CORE__SLOT_NEEDED;
            continue;
        }
        slot->flags |= CORE__SLOT_DONE;
        if (slot->flags & CORE__SLOT_STOP) {
            top->slot->flags |= CORE__SLOT_NEEDED;
            continue;
        }
        if (depth == *capacity) {
            frame *more = core__realloc(*stack, 2 * *capacity * sizeof *more);

            if (!more)
                return core__error_memory(2 * *capacity * sizeof *more);
            *stack = more;
            *capacity *= 2;
        }
        (*stack)[depth++] = (frame){next, slot, 0};
    }
    return CORE_OK;
}

static core_status mark_needed(core__task *task, const core__edge *roots,
                               size_t count)
{
    size_t capacity = 64;
    frame *stack = core__alloc(capacity * sizeof *stack);
    core_status status = CORE_OK;

    if (!stack)
        return core__error_memory(capacity * sizeof *stack);
    for (size_t i = 0; i < task->ncaptures && status == CORE_OK; i++) {
        core__slot *slot;

        if (!task->captures[i].node)
            continue;
        status = find_or_add_slot(task, task->captures[i].node, &slot);
        if (status == CORE_OK)
            slot->flags |= task->captures[i].stops
                               ? CORE__SLOT_CAPTURE | CORE__SLOT_STOP
                               : CORE__SLOT_CAPTURE;
    }
    for (size_t i = 0; i < count && status == CORE_OK; i++)
        status = mark_needed_from(task, roots[i].node, &stack, &capacity);
    core__free(stack);
    return status;
}

/* Reports unreachable inputs before anything runs, so that the graph is
 * unchanged and can be run for fewer inputs. */
static core_status check_reached(core__task *task)
{
    for (size_t i = 0; i < task->ncaptures; i++) {
        const core__gradient_capture *capture = &task->captures[i];

        if (capture->required_by &&
            !(capture->node &&
              core__task_find(task, capture->node)->flags & CORE__SLOT_DONE))
            return core__gradient_capture_missing(capture->required_by, i);
    }
    return CORE_OK;
}

/* Counts only edges from needed nodes to needed nodes. */
static void count_needed_edges(core__task *task)
{
    for (size_t at = 0; at < task->nnodes; at++) {
        core_node *node = task->nodes[at];

        if (!(core__task_find(task, node)->flags & CORE__SLOT_NEEDED))
            continue;
        for (uint32_t i = 0; i < node->nedges; i++)
            if (node->edges[i].node)
                core__task_find(task, node->edges[i].node)->dependencies++;
    }
}

core_status core__task_prepare(core__task *task, const core__edge *roots,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core__slot *slot;

        CORE_TRY(find_or_add_slot(task, roots[i].node, &slot));
    }
    if (task->captures) {
        CORE_TRY(mark_needed(task, roots, count));
        CORE_TRY(check_reached(task));
        count_needed_edges(task);
    } else {
        CORE_TRY(count_edges(task));
    }
    task->multithreaded |= task->host && task->device;
    return CORE_OK;
}

/* --------------------------------------------------------------- workers -- */

static bool workers_grow(core__task *task)
{
    size_t capacity = 2 * task->workers_capacity;
    bool owned = task->workers != task->inline_workers;
    core__task_worker *workers =
        core__realloc(owned ? task->workers : NULL, capacity * sizeof *workers);

    if (!workers)
        return false;
    if (!owned)
        memcpy(workers, task->inline_workers, sizeof task->inline_workers);
    task->workers = workers;
    task->workers_capacity = capacity;
    return true;
}

static core_status add_worker(core__task *task, core_device *device)
{
    core__task_worker *worker;

    for (size_t i = 0; i < task->nworkers; i++)
        if (task->workers[i].device == device)
            return CORE_OK;
    if (task->nworkers == task->workers_capacity && !workers_grow(task))
        return core__error_memory(2 * task->workers_capacity *
                                  sizeof *task->workers);
    worker = &task->workers[task->nworkers];
    CORE_TRY(core__executor_of_device(device, &worker->executor));
    worker->device = device;
    task->nworkers++;
    return CORE_OK;
}

/* --------------------------------------------------------------- starting -- */

static core_status add_root(core__task *task, const core__edge *root,
                            core_tensor *grad)
{
    core__slot *slot = core__task_find(task, root->node);

    core__tensor_retain(grad);
    return core__input_buffer_deliver(root->node, slot, root->input, grad, NULL,
                                      task->create);
}

core_status core__task_start(core__task *task, const core__edge *roots,
                             core_tensor *const *grads, size_t count)
{
    for (size_t i = 0; task->multithreaded && i < task->nnodes; i++)
        if (task->nodes[i]->stream)
            CORE_TRY(add_worker(task, task->nodes[i]->stream->device));
    for (size_t i = 0; i < count; i++)
        CORE_TRY(add_root(task, &roots[i], grads[i]));
    /* A root may occur twice, but is queued once.  Roots without other
     * dependencies are found before any runs and delivers to others. */
    for (size_t i = 0; i < count; i++) {
        core__slot *slot = core__task_find(task, roots[i].node);

        if (slot->dependencies == 0)
            slot->flags |= CORE__SLOT_READY;
    }
    for (size_t i = 0; i < count; i++) {
        core__slot *slot = core__task_find(task, roots[i].node);

        if (!(slot->flags & CORE__SLOT_READY))
            continue;
        slot->flags &= (uint16_t)~CORE__SLOT_READY;
        CORE_TRY(core__task_ready(task, roots[i].node, slot));
    }
    return CORE_OK;
}

core_status core__gradient_capture_missing(const char *name, size_t input)
{
    return core__error(CORE_ERROR_AUTOGRAD,
                       "%s: the outputs do not depend on input %zu; if that is "
                       "as meant, pass CORE_ALLOW_UNUSED",
                       name, input);
}
