/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* engine.h: walking the graph.
 *
 * One backward is a task.  It counts, from the roots, how many edges will
 * deliver to each node; a node whose edges have all delivered is ready, and of
 * the ready ones the newest runs next (accumulations first of all).  The
 * caller's thread runs everything: kernels of asynchronous devices are only
 * enqueued by it.  What a task knows of a node lies in the node (core__slot)
 * or, while another task has that, in the task's map.
 *
 * A backward inside a backward (a node's function or a hook that calls one) is
 * a task of its own, run to its end before the outer one goes on. */

#ifndef CORE_AUTOGRAD_ENGINE_H
#define CORE_AUTOGRAD_ENGINE_H

#include "autograd/node.h"
#include "base/thread.h"

enum { CORE__TASK_INLINE = 64, CORE__TASK_DEPTH = 60 };

typedef struct core__destinations core__destinations; /* destination.h */

typedef struct core__ready {
    uint64_t sequence;
    core_node *node;
    core__slot *slot;
} core__ready;

/* A gradient that core_grad wants: what arrives for `input` of node. */
typedef struct core__capture {
    core_node *node; /* referenced; NULL: the input is not in any graph */
    uint32_t input;
    core_tensor **out;
} core__capture;

struct core__task {
    core__thread *self;
    core__task *outer; /* of the backward that this one is inside of */
    uint32_t depth;
    bool retain;
    bool create;       /* grad mode is on */
    uint64_t excluded; /* of the thread before, and while nodes run */
    uint64_t running_excluded;
    bool no_grad;
    bool anomaly;                     /* anomaly.h */
    core__destinations *destinations; /* destination.h; NULL mostly */
    core__capture *captures;          /* NULL: every leaf accumulates */
    size_t ncaptures;
    /* Ready queue: a heap by sequence.  One, since one thread runs. */
    core__ready *ready;
    size_t nready, ready_capacity;
    /* Every node that this task has seen, also the queue of the count. */
    core_node **nodes;
    size_t nnodes, nodes_capacity;
    /* Slots of nodes that another task holds. */
    struct core__map_entry *map;
    size_t map_count, map_capacity;
    core__ready inline_ready[CORE__TASK_INLINE];
    core_node *inline_nodes[CORE__TASK_INLINE];
};

/* roots[i] gets grads[i]: NULL entries are filled with ones by the caller. */
core_status core__engine_run(const core__edge *roots, core_tensor *const *grads,
                             size_t count, bool retain, bool create,
                             core__capture *captures, size_t ncaptures);

/* task.c: what a task knows of nodes. */
void core__task_begin(core__task *task);
/* Releases every slot and the gradients in it. */
void core__task_end(core__task *task);
/* The slot of a node; a new one is listed in task->nodes. */
core_status core__task_slot_slow(core__task *task, core_node *node,
                                 core__slot **out_slot, bool *out_new);
core__slot *core__task_find_slow(const core__task *task, const core_node *node);
core_status core__task_push(core__task *task, core_node *node,
                            core__slot *slot);
bool core__task_pop(core__task *task, core__ready *out_ready);

/* The slot of a node that the task has seen; NULL if it has not. */
static inline core__slot *core__task_find(const core__task *task,
                                          core_node *node)
{
    if (core__likely(atomic_load_explicit(&node->slot.task,
                                          memory_order_relaxed) == task))
        return &node->slot;
    return core__task_find_slow(task, node);
}

/* apply.c: runs one node on its gradients.  needed_edges: by edge.  gradients:
 * nedges entries, NULL, owned by the caller afterwards. */
core_status core__node_compute(core__task *task, core_node *node,
                               core_tensor **grads, const uint8_t *needed_edges,
                               core_tensor **gradients);
/* The same, with what anomaly mode adds. */
core_status core__node_apply(core__task *task, core_node *node,
                             core_tensor **grads, const uint8_t *needed_edges,
                             core_tensor **gradients);

#endif
