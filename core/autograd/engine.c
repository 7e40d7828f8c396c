/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd/engine.h"

#include "autograd/accumulate.h"
#include "autograd/destination.h"
#include "autograd/hooks.h"
#include "autograd/input_buffer.h"
#include "autograd/saved.h"
#include "autograd/validate.h"
#include "base/memory.h"

#include <pthread.h>
#include <string.h>

enum {
    SLOT_NEEDED = 1u << 0,  /* core_grad: an input lies behind the node */
    SLOT_CAPTURE = 1u << 1, /* core_grad: it is where an input's grad arrives */
    SLOT_DONE = 1u << 2     /* its edges were looked at */
};

enum { INLINE_GRADS = 8, INLINE_GRADIENTS = 16 };

static core_status see(core__task *task, core_node *node, core__slot **out_slot,
                       bool *out_new)
{
    if (core__likely(atomic_load_explicit(&node->slot.task,
                                          memory_order_relaxed) == task)) {
        *out_slot = &node->slot;
        *out_new = false;
        return CORE_OK;
    }
    return core__task_slot_slow(task, node, out_slot, out_new);
}

/* ------------------------------------------------------------- preparing -- */

/* Counts the edges that will deliver: task->nodes is the queue. */
static core_status count_edges(core__task *task)
{
    for (size_t at = 0; at < task->nnodes; at++) {
        core_node *node = task->nodes[at];

        for (uint32_t i = 0; i < node->nedges; i++) {
            core__slot *slot;
            bool new;

            if (!node->edges[i].node)
                continue;
            CORE_TRY(see(task, node->edges[i].node, &slot, &new));
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

/* Depth first: a node is needed if a captured one lies behind it. */
static core_status mark_needed_from(core__task *task, core_node *root,
                                    frame **stack, size_t *capacity)
{
    size_t depth = 0;
    core__slot *slot;
    bool new;

    CORE_TRY(see(task, root, &slot, &new));
    if (slot->flags & SLOT_DONE)
        return CORE_OK;
    slot->flags |= SLOT_DONE;
    (*stack)[depth++] = (frame){root, slot, 0};
    while (depth) {
        frame *top = &(*stack)[depth - 1];
        core_node *next;

        if (top->edge == top->node->nedges) {
            if (--depth && top->slot->flags & (SLOT_NEEDED | SLOT_CAPTURE))
                (*stack)[depth - 1].slot->flags |= SLOT_NEEDED;
            continue;
        }
        next = top->node->edges[top->edge++].node;
        if (!next)
            continue;
        CORE_TRY(see(task, next, &slot, &new));
        if (slot->flags & SLOT_DONE) {
            if (slot->flags & (SLOT_NEEDED | SLOT_CAPTURE))
                top->slot->flags |= SLOT_NEEDED;
            continue;
        }
        slot->flags |= SLOT_DONE;
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
        bool new;

        if (!task->captures[i].node)
            continue;
        status = see(task, task->captures[i].node, &slot, &new);
        if (status == CORE_OK)
            slot->flags |= SLOT_CAPTURE;
    }
    for (size_t i = 0; i < count && status == CORE_OK; i++)
        status = mark_needed_from(task, roots[i].node, &stack, &capacity);
    core__free(stack);
    return status;
}

/* Only what will run delivers, and only to what will receive. */
static void count_needed_edges(core__task *task)
{
    for (size_t at = 0; at < task->nnodes; at++) {
        core_node *node = task->nodes[at];

        if (!(core__task_find(task, node)->flags & SLOT_NEEDED))
            continue;
        for (uint32_t i = 0; i < node->nedges; i++)
            if (node->edges[i].node)
                core__task_find(task, node->edges[i].node)->dependencies++;
    }
}

static core_status start(core__task *task, const core__edge *roots,
                         core_tensor *const *grads, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core__slot *slot;
        bool new;

        CORE_TRY(see(task, roots[i].node, &slot, &new));
    }
    if (task->captures) {
        CORE_TRY(mark_needed(task, roots, count));
        count_needed_edges(task);
    } else {
        CORE_TRY(count_edges(task));
    }
    for (size_t i = 0; i < count; i++) {
        core__slot *slot = core__task_find(task, roots[i].node);

        core__tensor_retain(grads[i]);
        CORE_TRY(core__input_buffer_add(&slot->grads[roots[i].input], grads[i],
                                        task->create));
    }
    /* A root may occur twice; it becomes ready once. */
    for (size_t i = 0; i < count; i++) {
        core__slot *slot = core__task_find(task, roots[i].node);

        if (slot->dependencies)
            continue;
        slot->dependencies = UINT32_MAX;
        CORE_TRY(core__task_push(task, roots[i].node, slot));
    }
    return CORE_OK;
}

/* --------------------------------------------------------------- running -- */

/* Hooks are the program's code: they see the thread as it was. */
static core_status run_hooks_before(core__task *task, core_node *node,
                                    core_tensor **grads)
{
    core__hook_list list = {0};
    core_status status = CORE_OK;

    if (node->kind == CORE__NODE_ACCUMULATE)
        list = core__hooks_of_leaf(node->u.leaf->autograd);
    else if (node->hooks)
        list = core__hooks_of_node(node->hooks);
    task->self->excluded = task->excluded;
    for (uint32_t i = 0; list.first && i < node->ninputs && status == CORE_OK;
         i++)
        status = core__hooks_run_tensor(list, i, &grads[i]);
    if (status == CORE_OK && node->hooks)
        status = core__hooks_run_retained(node, grads);
    task->self->excluded = task->running_excluded;
    if (status != CORE_OK)
        core__error_prefix("a hook on a gradient of %s", node->name);
    return status;
}

static core_status run_pre_hooks(core__task *task, core_node *node,
                                 core_tensor **grads)
{
    core_status status;

    task->self->excluded = task->excluded;
    status = core__hooks_run_pre(node, grads);
    task->self->excluded = task->running_excluded;
    if (status != CORE_OK)
        core__error_prefix("a hook before %s", node->name);
    return status;
}

static core_status run_post_hooks(core__task *task, core_node *node,
                                  core_tensor *const *grads,
                                  core_tensor **gradients)
{
    core_status status;

    task->self->excluded = task->excluded;
    status = core__hooks_run_post(node, grads, gradients);
    task->self->excluded = task->running_excluded;
    if (status != CORE_OK)
        core__error_prefix("a hook after %s", node->name);
    return status;
}

static void capture(core__task *task, const core_node *node,
                    core_tensor *const *grads)
{
    for (size_t i = 0; i < task->ncaptures; i++) {
        core__capture *capture = &task->captures[i];

        if (capture->node != node || !grads[capture->input])
            continue;
        core__tensor_retain(grads[capture->input]);
        *capture->out = grads[capture->input];
    }
}

static core_status validate(core_node *node, core_tensor **gradients)
{
    for (uint32_t i = 0; i < node->nedges; i++) {
        const core__edge *edge = &node->edges[i];

        if (edge->node && gradients[i])
            CORE_TRY(core__validate(node->name, i,
                                    &edge->node->inputs[edge->input],
                                    &gradients[i]));
    }
    return CORE_OK;
}

/* Gradients go to where the edges lead.  Those not delivered stay. */
static core_status deliver(core__task *task, core_node *node,
                           core_tensor **gradients)
{
    for (uint32_t i = 0; i < node->nedges; i++) {
        const core__edge *edge = &node->edges[i];
        core_tensor *grad = gradients[i];
        core__slot *slot;

        if (!edge->node)
            continue;
        slot = core__task_find(task, edge->node);
        gradients[i] = NULL;
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
                         (SLOT_NEEDED | SLOT_CAPTURE)) != 0;
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
                        node->u.leaf->autograd->hooks != NULL)))
        CORE_TRY(run_hooks_before(task, node, grads));
    if (core__unlikely(slot->flags & SLOT_CAPTURE))
        capture(task, node, grads);
    if (core__unlikely(task->captures && !(slot->flags & SLOT_NEEDED)))
        return CORE_OK;
    if (core__unlikely(node->hooks != NULL))
        CORE_TRY(run_pre_hooks(task, node, grads));
    for (uint32_t i = 0; i < node->ninputs; i++)
        defined |= grads[i] != NULL;
    if (core__unlikely(task->destinations != NULL))
        defined |= core__destination_touched(task->destinations, node);
    needed_edges(task, node, needed);
    if (core__likely(defined)) {
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

static core_status run(core__task *task, const core__edge *roots,
                       core_tensor *const *grads, size_t count)
{
    core__thread *self = core__thread_self();
    core__ready ready;
    core_status status;

    task->self = self;
    task->excluded = self->excluded;
    task->no_grad = self->no_grad;
    task->running_excluded = self->excluded;
    if (!task->create)
        task->running_excluded |= CORE__KEY_AUTOGRAD;
    core__task_begin(task);
    self->engine = task;
    self->no_grad = !task->create;
    self->excluded = task->running_excluded;
    status = start(task, roots, grads, count);
    while (status == CORE_OK && core__task_pop(task, &ready))
        status = evaluate(task, ready.node, ready.slot);
    core__task_end(task);
    self->excluded = task->excluded;
    self->no_grad = task->no_grad;
    self->engine = task->outer;
    return status;
}

/* ------------------------------------------------------------- reentrancy -- */

typedef struct elsewhere {
    core__task *task;
    const core__edge *roots;
    core_tensor *const *grads;
    size_t count;
    core__thread *from;
    core_status status;
    core_error *error;
} elsewhere;

static void *run_elsewhere(void *argument)
{
    elsewhere *call = argument;
    core__thread *self = core__thread_self();

    self->included = call->from->included;
    self->excluded = call->from->excluded;
    self->no_grad = call->from->no_grad;
    self->inference = call->from->inference;
    self->deterministic = call->from->deterministic;
    self->device = call->from->device;
    call->status = run(call->task, call->roots, call->grads, call->count);
    if (call->status != CORE_OK)
        core_error_detach(&call->error);
    return NULL;
}

/* Backwards inside backwards inside …: a fresh stack now and then, so that
 * their number has no limit. */
static core_status run_on_fresh_stack(core__task *task, const core__edge *roots,
                                      core_tensor *const *grads, size_t count)
{
    elsewhere call = {.task = task,
                      .roots = roots,
                      .grads = grads,
                      .count = count,
                      .from = core__thread_self()};
    pthread_t thread;

    if (pthread_create(&thread, NULL, run_elsewhere, &call) != 0)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%u backwards are running inside each other, and "
                           "no thread could be made for one more",
                           task->depth);
    pthread_join(thread, NULL);
    if (call.status != CORE_OK && call.error)
        return core_error_raise(call.error);
    if (call.status != CORE_OK)
        return core__error(call.status, "a nested backward failed, and there "
                                        "was no memory to say why");
    return CORE_OK;
}

core_status core__engine_run(const core__edge *roots, core_tensor *const *grads,
                             size_t count, bool retain, bool create,
                             core__capture *captures, size_t ncaptures)
{
    core__task task;

    task.outer = core__thread_self()->engine;
    task.depth = task.outer ? task.outer->depth + 1 : 0;
    task.retain = retain;
    task.create = create;
    task.anomaly = core__thread_self()->anomaly;
    task.destinations = core__thread_self()->destinations;
    core__thread_self()->destinations = NULL; /* not for those inside */
    task.captures = captures;
    task.ncaptures = ncaptures;
    if (core__unlikely(task.depth && task.depth % CORE__TASK_DEPTH == 0))
        return run_on_fresh_stack(&task, roots, grads, count);
    return run(&task, roots, grads, count);
}
