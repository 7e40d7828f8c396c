/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs one node: hooks, the node itself, validation, delivery of its
 * gradients. */

#include "autograd/engine/engine.h"

#include "autograd/graph/accumulator.h"
#include "autograd/engine/destination.h"
#include "autograd/graph/hooks.h"
#include "autograd/engine/input_buffer.h"
#include "autograd/graph/retain_grad.h"
#include "autograd/graph/saved.h"
#include "autograd/graph/validate.h"
#include "base/memory.h"

#include <libcore/memory.h>

enum { INLINE_GRADS = 8, INLINE_GRADIENTS = 16, PLAIN_EDGES = 4 };

/* A program that is being recorded would not call the hooks of a tensor from
 * before the recording. */
static core_status check_recorded(const core__thread *self,
                                  const core_tensor *leaf)
{
    if (core__likely(!self->trace) || !leaf->autograd->hooks ||
        leaf->flags & CORE__TENSOR_TRACED ||
        !core__hooks_active(core__hooks_of_leaf(leaf->autograd)))
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED, CORE__HOOKS_REFUSED
                       ", which the backward in the function calls each time");
}

/* Hooks are program code, so they run with the caller's thread state. */
static core_status run_hooks_before(core__task *task, core_node *node,
                                    core_tensor **grads)
{
    core__thread *self = core__thread_self();
    core__hook_list list = {0};
    core_status status = CORE_OK;

    if (node->kind == CORE__NODE_ACCUMULATE) {
        /* Nothing is accumulated if requires_grad was turned off since the
         * forward. */
        if (core__tensor_requires_grad(node->u.leaf))
            list = core__hooks_of_leaf(node->u.leaf->autograd);
        if (list.first)
            CORE_TRY(check_recorded(self, node->u.leaf));
    } else if (node->hooks) {
        list = core__hooks_of_node(node->hooks);
    }
    self->excluded = task->caller.excluded;
    for (uint32_t i = 0; list.first && i < node->ninputs && status == CORE_OK;
         i++)
        status = core__hooks_run_tensor(list, i, &grads[i]);
    self->excluded = task->running.excluded;
    if (status != CORE_OK) {
        core__error_prefix("a hook on a gradient of %s", node->name);
    } else if (node->hooks) {
        status = core__retain_grad_run(node, grads);
        if (status != CORE_OK)
            core__error_prefix("the retained gradient of %s", node->name);
    }
    return status;
}

static core_status run_pre_hooks(core__task *task, core_node *node,
                                 core_tensor **grads)
{
    core__thread *self = core__thread_self();
    core_status status;

    self->excluded = task->caller.excluded;
    status = core__hooks_run_pre(node, grads);
    self->excluded = task->running.excluded;
    if (status != CORE_OK)
        core__error_prefix("a hook before %s", node->name);
    return status;
}

static core_status run_post_hooks(core__task *task, core_node *node,
                                  core_tensor *const *grads,
                                  core_tensor **gradients)
{
    core__thread *self = core__thread_self();
    core_status status;

    self->excluded = task->caller.excluded;
    status = core__hooks_run_post(node, grads, gradients);
    self->excluded = task->running.excluded;
    if (status != CORE_OK)
        core__error_prefix("a hook after %s", node->name);
    return status;
}

static void capture(core__task *task, const core_node *node,
                    core_tensor *const *grads)
{
    for (size_t i = 0; i < task->ncaptures; i++) {
        core__gradient_capture *capture = &task->captures[i];

        if (capture->node != node || !grads[capture->input])
            continue;
        core__tensor_retain(grads[capture->input]);
        *capture->out = grads[capture->input];
    }
}

/* Validates a gradient on another device than the node's stream: it is reduced
 * or cast on that device's current stream, ordered after the node and before
 * the consumer. */
static core_status validate_elsewhere(core_node *node, uint32_t index,
                                      core_tensor **grad)
{
    const core__edge *edge = &node->edges[index];
    core_stream *there = core__stream_current((*grad)->device);

    CORE_TRY(core__stream_order(there, node->stream));
    CORE_TRY(core_tensor_record_stream(*grad, there));
    CORE_TRY(core__gradient_validate(node->name, index,
                                     &edge->node->inputs[edge->input], grad));
    return core__stream_order(node->stream, there);
}

static core_status validate(core_node *node, core_tensor **gradients)
{
    for (uint32_t i = 0; i < node->nedges; i++) {
        const core__edge *edge = &node->edges[i];
        const core__tensor_meta *meta;

        if (!edge->node || !gradients[i])
            continue;
        meta = &edge->node->inputs[edge->input];
        if (core__likely(core__gradient_fits(meta, gradients[i])))
            continue;
        if (node->stream && !gradients[i]->device->synchronous &&
            gradients[i]->device != node->stream->device)
            CORE_TRY(validate_elsewhere(node, i, &gradients[i]));
        else
            CORE_TRY(core__gradient_validate_slow(node->name, i, meta,
                                                  &gradients[i]));
    }
    return CORE_OK;
}

/* Delivers gradients along the edges.  Those not delivered stay in the
 * array. */
static core_status deliver(core__task *task, core_node *node,
                           core_tensor **gradients)
{
    for (uint32_t i = 0; i < node->nedges; i++) {
        const core__edge *edge = &node->edges[i];
        core_tensor *grad = gradients[i];
        core__slot *slot;

        if (!edge->node)
            continue;
        gradients[i] = NULL;
        if (core__unlikely(task->device != NULL)) {
            CORE_TRY(core__gradient_deliver(task, edge, grad, node->stream));
            continue;
        }
        slot = core__task_find(task, edge->node);
        if (grad)
            CORE_TRY(core__input_buffer_add(&slot->grads[edge->input], grad,
                                            task->create));
        if (--slot->dependencies == 0)
            CORE_TRY(core__task_push(task, edge->node, slot));
    }
    return CORE_OK;
}

static void needed_edges(core__task *task, core_node *node, uint8_t *needed)
{
    for (uint32_t i = 0; i < node->nedges; i++) {
        core_node *next = node->edges[i].node;

        needed[i] = next != NULL;
        if (next && core__unlikely(task->captures != NULL))
            needed[i] = (core__task_find(task, next)->flags &
                         (CORE__SLOT_NEEDED | CORE__SLOT_CAPTURE)) != 0;
    }
}

/* grads: owned by the caller. */
static core_status run_node(core__task *task, core_node *node,
                            const core__slot *slot, core_tensor **grads,
                            uint8_t *needed, core_tensor **gradients)
{
    bool defined = false;

    if (core__unlikely(node->hooks != NULL ||
                       (node->kind == CORE__NODE_ACCUMULATE &&
                        node->u.leaf->autograd->hooks != NULL))) {
        if (!(slot->flags & CORE__SLOT_STOP))
            CORE_TRY(run_hooks_before(task, node, grads));
    }
    if (core__unlikely(slot->flags & CORE__SLOT_CAPTURE))
        capture(task, node, grads);
    if (core__unlikely(task->captures && !(slot->flags & CORE__SLOT_NEEDED)))
        return CORE_OK;
    if (core__unlikely(node->hooks != NULL))
        CORE_TRY(run_pre_hooks(task, node, grads));
    for (uint32_t i = 0; i < node->ninputs; i++)
        defined |= grads[i] != NULL;
    if (core__unlikely(task->destinations != NULL))
        defined |= core__destination_touched(task->destinations, node);
    needed_edges(task, node, needed);
    /* A custom function may have side effects, so it runs even if all its
     * gradients are undefined (they are zeros for it). */
    if (core__likely(defined) || node->kind == CORE__NODE_CUSTOM) {
        CORE_TRY(core__node_apply(task, node, grads, needed, gradients));
        CORE_TRY(validate(node, gradients));
    }
    if (core__unlikely(node->hooks != NULL)) {
        CORE_TRY(run_post_hooks(task, node, grads, gradients));
        CORE_TRY(validate(node, gradients));
    }
    if (core__likely(!task->retain) &&
        (node->nsaved || node->kind >= CORE__NODE_CUSTOM))
        core__node_release_saved(node);
    for (uint32_t i = 0; i < node->ninputs; i++) {
        core__tensor_release(grads[i]);
        grads[i] = NULL;
    }
    return deliver(task, node, gradients);
}

static void release_all(core_tensor **tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        core__tensor_release(tensors[i]);
}

/* run_node for most nodes: those of operators with one result and few edges, in
 * a task without streams, hooks or captures (core__task.fast_path), which skips
 * all checks for them. */
static inline core_status run_fast(core__task *task, core_node *node,
                                   core_tensor *grad, core_tensor **gradients)
{
    uint8_t needed[PLAIN_EDGES];

    for (uint32_t i = 0; i < node->nedges; i++) {
        gradients[i] = NULL;
        needed[i] = node->edges[i].node != NULL;
    }
    if (core__likely(grad != NULL)) {
        CORE_TRY(core__node_compute(task, node, &grad, needed, gradients));
        CORE_TRY(validate(node, gradients));
    }
    if (node->nsaved && core__likely(!task->retain))
        core__node_release_saved(node);
    return CORE_OK;
}

static core_status evaluate_fast(core__task *task, core_node *node,
                                 core__slot *slot)
{
    core_tensor *gradients[PLAIN_EDGES];
    core_tensor *grad = slot->grads[0];
    uint32_t nedges = node->nedges;
    core_status status;

    slot->grads[0] = NULL;
    status = run_fast(task, node, grad, gradients);
    core__tensor_release(grad);
    if (core__likely(status == CORE_OK))
        status = deliver(task, node, gradients);
    for (uint32_t i = 0; i < nedges; i++)
        if (core__unlikely(gradients[i] != NULL))
            core__tensor_release(gradients[i]);
    return status;
}

static core_status evaluate(core__task *task, core_node *node, core__slot *slot)
{
    uint32_t ninputs = node->ninputs, nedges = node->nedges;
    core_tensor *inline_grads[INLINE_GRADS];
    core_tensor *inline_gradients[INLINE_GRADIENTS];
    uint8_t inline_needed[INLINE_GRADIENTS];
    core_tensor **grads = inline_grads, **gradients = inline_gradients;
    uint8_t *needed = inline_needed;
    void *block = NULL;
    core_status status;

    if (core__unlikely(ninputs > INLINE_GRADS || nedges > INLINE_GRADIENTS)) {
        size_t size = (ninputs + nedges) * sizeof *grads + nedges;

        block = core__alloc(size);
        if (!block)
            return core__error_memory(size);
        grads = block;
        gradients = grads + ninputs;
        needed = (uint8_t *)(gradients + nedges);
    }
    for (uint32_t i = 0; i < ninputs; i++) {
        grads[i] = slot->grads[i];
        slot->grads[i] = NULL;
    }
    for (uint32_t i = 0; i < nedges; i++)
        gradients[i] = NULL;
    status = run_node(task, node, slot, grads, needed, gradients);
    if (core__unlikely(status != CORE_OK || task->captures))
        release_all(grads, ninputs);
    if (core__unlikely(status != CORE_OK || nedges))
        release_all(gradients, nedges);
    core__free(block);
    return status;
}

/* --------------------------------------------------------------- streams -- */

/* Keeps the error of before. */
static void add_leaf_stream_after_error(core__task *task, core_stream *stream)
{
    core__error_record error;

    core__error_save(&error);
    core__task_add_leaf_stream(task, stream);
    core__error_restore(&error);
}

/* With the node's stream current. */
static core_status evaluate_on_stream(core__task *task, core_node *node,
                                      core__slot *slot)
{
    core_status status = core__input_buffer_wait(node, slot);

    if (core__unlikely(status != CORE_OK)) {
        core__error_prefix("%s", node->name);
        return status;
    }
    status = evaluate(task, node, slot);
    if (core__unlikely(status != CORE_OK)) {
        /* What it has written to a destination before, the caller may change. */
        if (task->destinations)
            add_leaf_stream_after_error(task, node->stream);
        return status;
    }
    if (node->nedges == 0 || slot->flags & CORE__SLOT_CAPTURE ||
        core__unlikely(task->destinations != NULL))
        return core__task_add_leaf_stream(task, node->stream);
    return CORE_OK;
}

core_status core__task_evaluate(core__task *task, core_node *node,
                                core__slot *slot)
{
    core_stream *stream = node->stream, *before = NULL;
    core_status status = CORE_OK;

    if (core__likely(task->fast_path && node->kind == CORE__NODE_OPERATOR &&
                     node->ninputs == 1 && node->nedges <= PLAIN_EDGES &&
                     !node->hooks))
        return evaluate_fast(task, node, slot);
    if (core__likely(!stream))
        return evaluate(task, node, slot);
    if (core__stream_current(stream->device) != stream)
        status = core__stream_swap(stream, &before);
    if (status == CORE_OK)
        status = evaluate_on_stream(task, node, slot);
    else
        core__error_prefix("%s", node->name);
    if (before)
        core__stream_restore(before);
    else if (core__unlikely(core__stream_current(stream->device) != stream))
        core_stream_set_current(
            stream); /* the node switched to another stream */
    return status;
}
