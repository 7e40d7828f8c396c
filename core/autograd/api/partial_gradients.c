/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of a part of a graph. */

#include "autograd/api/partial_gradients.h"

#include "autograd/engine/engine.h"
#include "autograd/graph/accumulator.h"
#include "base/memory.h"

/* Edges to tensors; those of leaves that are in no graph have no node. */
static core_status edges_of(core_tensor *const *tensors, size_t count,
                            core__edge *edges)
{
    for (size_t i = 0; i < count; i++) {
        edges[i] = (core__edge){0};
        if (core__tensor_is_leaf(tensors[i]))
            edges[i].node = core__accumulator_find(tensors[i]);
        else
            CORE_TRY(core__gradient_edge(tensors[i], &edges[i]));
    }
    return CORE_OK;
}

/* The edges of outputs and inputs. */
typedef struct boundary {
    core__edge *outputs, *inputs;
    size_t count;
} boundary;

static void boundary_end(boundary *b)
{
    for (size_t i = 0; b->outputs && i < b->count; i++)
        core__node_release(b->outputs[i].node);
    core__free(b->outputs);
}

static core_status boundary_begin(boundary *b, core_tensor *const *outputs,
                                  size_t noutputs, core_tensor *const *inputs,
                                  size_t ninputs)
{
    size_t size = (noutputs + ninputs + 1) * sizeof *b->outputs;

    b->count = noutputs + ninputs;
    b->outputs = core__alloc_zero(size);
    if (!b->outputs)
        return core__error_memory(size);
    b->inputs = b->outputs + noutputs;
    CORE_TRY(edges_of(outputs, noutputs, b->outputs));
    return edges_of(inputs, ninputs, b->inputs);
}

static core_status run(const boundary *b, core_tensor *const *grads,
                       size_t noutputs, size_t ninputs, bool retain,
                       bool create, core_tensor **out_grads)
{
    size_t size = (ninputs + 1) * sizeof(core__gradient_capture);
    core__gradient_capture *captures = core__alloc(size);
    core_status status;

    if (!captures)
        return core__error_memory(size);
    for (size_t i = 0; i < ninputs; i++)
        captures[i] = (core__gradient_capture){.node = b->inputs[i].node,
                                               .input = b->inputs[i].input,
                                               .out = &out_grads[i],
                                               .stops = true};
    status = core__engine_run(b->outputs, grads, noutputs, retain, create,
                              captures, ninputs);
    core__free(captures);
    return status;
}

core_status core__partial_gradients(core_tensor *const *outputs,
                                    core_tensor *const *grads, size_t noutputs,
                                    core_tensor *const *inputs, size_t ninputs,
                                    bool retain, bool create,
                                    core_tensor **out_grads)
{
    core_status status;
    boundary b;

    for (size_t i = 0; i < ninputs; i++)
        out_grads[i] = NULL;
    status = boundary_begin(&b, outputs, noutputs, inputs, ninputs);
    if (status == CORE_OK)
        status = run(&b, grads, noutputs, ninputs, retain, create, out_grads);
    boundary_end(&b);
    for (size_t i = 0; i < ninputs && status != CORE_OK; i++) {
        core__tensor_release(out_grads[i]);
        out_grads[i] = NULL;
    }
    return status;
}

bool core__backward_retains(void)
{
    const core__task *task = core__thread_self()->engine;

    return task && task->retain;
}

/* ------------------------------------------------------------- visiting -- */

/* Nodes that were visited, in a hash table, and the queue of the visit. */
typedef struct visit {
    core_node **table;
    core_node **queue;
    size_t mask, count;
} visit;

static core_node **place_of(const visit *v, const core_node *node)
{
    size_t at =
        (size_t)(((uintptr_t)node >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20);

    while (v->table[at & v->mask] && v->table[at & v->mask] != node)
        at++;
    return &v->table[at & v->mask];
}

static bool grow(visit *v)
{
    size_t capacity = 2 * (v->mask + 1);
    visit larger = {core__alloc_zero(capacity * sizeof *v->table),
                    core__alloc(capacity * sizeof *v->queue), capacity - 1,
                    v->count};

    if (!larger.table || !larger.queue) {
        core__free(larger.table);
        core__free(larger.queue);
        return false;
    }
    for (size_t i = 0; i < v->count; i++) {
        larger.queue[i] = v->queue[i];
        *place_of(&larger, v->queue[i]) = v->queue[i];
    }
    core__free(v->table);
    core__free(v->queue);
    *v = larger;
    return true;
}

static core_status visit_node(visit *v, core_node *node)
{
    core_node **place;

    if (!node)
        return CORE_OK;
    if (2 * v->count >= v->mask && !grow(v))
        return core__error_memory(2 * v->mask * sizeof *v->table);
    place = place_of(v, node);
    if (*place)
        return CORE_OK;
    *place = node;
    v->queue[v->count++] = node;
    return CORE_OK;
}

static core_status visit_all(visit *v, const boundary *b, size_t noutputs,
                             core_status (*function)(void *context,
                                                     core_node *node),
                             void *context)
{
    size_t ninputs = b->count - noutputs;

    /* What is behind the inputs is not visited. */
    for (size_t i = 0; i < ninputs; i++)
        CORE_TRY(visit_node(v, b->inputs[i].node));
    ninputs = v->count;
    for (size_t i = 0; i < noutputs; i++)
        CORE_TRY(visit_node(v, b->outputs[i].node));
    for (size_t at = ninputs; at < v->count; at++) {
        core_node *node = v->queue[at];

        CORE_TRY(function(context, node));
        for (uint32_t k = 0; k < node->nedges; k++)
            CORE_TRY(visit_node(v, node->edges[k].node));
    }
    return CORE_OK;
}

core_status core__partial_gradients_visit(
    core_tensor *const *outputs, size_t noutputs, core_tensor *const *inputs,
    size_t ninputs, core_status (*function)(void *context, core_node *node),
    void *context)
{
    visit v = {.mask = 0};
    core_status status;
    boundary b;

    status = boundary_begin(&b, outputs, noutputs, inputs, ninputs);
    if (status == CORE_OK)
        status = visit_all(&v, &b, noutputs, function, context);
    boundary_end(&b);
    core__free(v.table);
    core__free(v.queue);
    return status;
}

typedef struct known_leaves {
    bool (*is_known)(const core_tensor *leaf);
} known_leaves;

static core_status check_leaf(void *context, core_node *node)
{
    const known_leaves *known = context;

    if (node->kind != CORE__NODE_ACCUMULATE || known->is_known(node->u.leaf))
        return CORE_OK;
    return core__error(
        CORE_ERROR_UNSUPPORTED,
        "the function uses a tensor whose gradient leads to a leaf "
        "that the function does not use itself, in a way that cannot "
        "be recorded");
}

core_status core__partial_gradients_check(
    core_tensor *const *outputs, size_t noutputs, core_tensor *const *inputs,
    size_t ninputs, bool (*is_known)(const core_tensor *leaf))
{
    known_leaves known = {is_known};

    return core__partial_gradients_visit(outputs, noutputs, inputs, ninputs,
                                         check_leaf, &known);
}

/* True for a node of a backward that is running in this thread. */
static bool is_running(core_node *node)
{
    for (const core__task *task = core__thread_self()->engine; task;
         task = task->outer)
        if (core__task_find(task, node))
            return true;
    return false;
}

static core_status check_saved(void *context, core_node *node)
{
    bool released;

    (void)context;
    core__byte_lock(&node->lock);
    released = node->released;
    core__byte_unlock(&node->lock);
    return released && !is_running(node) ? core__node_released_error(node)
                                         : CORE_OK;
}

core_status core__partial_gradients_check_saved(core_tensor *const *outputs,
                                                size_t noutputs,
                                                core_tensor *const *inputs,
                                                size_t ninputs)
{
    return core__partial_gradients_visit(outputs, noutputs, inputs, ninputs,
                                         check_saved, NULL);
}

static core_status release_saved(void *context, core_node *node)
{
    (void)context;
    if (node->kind != CORE__NODE_ACCUMULATE)
        core__node_release_saved(node);
    return CORE_OK;
}

core_status core__partial_gradients_release_saved(core_tensor *const *outputs,
                                                  size_t noutputs,
                                                  core_tensor *const *inputs,
                                                  size_t ninputs)
{
    return core__partial_gradients_visit(outputs, noutputs, inputs, ninputs,
                                         release_saved, NULL);
}
