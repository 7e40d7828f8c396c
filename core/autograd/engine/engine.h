/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* engine.h: walking the graph.
 *
 * One backward is a task.  It counts, from the roots, how many edges will
 * deliver to each node (prepare.c); a node whose edges have all delivered is
 * ready, and of the ready ones the newest runs next (accumulations first of
 * all).  What a task knows of a node lies in the node (core__slot) or, while
 * another task has that, in the task's map (task.c).
 *
 * Threads.  Nodes of the host run in the caller's thread, nodes of a device
 * with streams in that device's worker (worker.h).  A task whose nodes are all
 * of one kind is run by the caller's thread alone, from a queue of its own and
 * without a lock; this is most of them.
 *
 * Streams.  A node runs with its own stream current; what arrives for it
 * follows the rules of input_buffer.h, and at the end the caller's streams wait
 * for those on which gradients arrived for good.
 *
 * A backward inside a backward (a node's function or a hook that calls one) is
 * a task of its own, run to its end before the outer one goes on. */

#ifndef CORE_AUTOGRAD_ENGINE_H
#define CORE_AUTOGRAD_ENGINE_H

#include "autograd/graph/node.h"
#include "autograd/engine/state.h"
#include "device/device.h"

#include <pthread.h>

enum {
    CORE__TASK_INLINE = 64,
    CORE__TASK_LEVELS = 60, /* backwards inside each other on one stack */
    CORE__TASK_WORKERS = 8  /* devices of one task, before memory is taken */
};

typedef struct core__executor core__executor; /* worker.h */

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
    /* The call that wants it whatever happens; NULL: there may be none. */
    const char *wanted_by;
} core__capture;
/* The error of one that does not come. */
core_status core__capture_missing(const char *wanted_by, size_t input);

/* The worker of a device that the task has nodes of. */
typedef struct core__task_worker {
    core_device *device;
    core__executor *executor;
} core__task_worker;

struct core__task {
    core__task *outer; /* of the backward that this one is inside of */
    uint32_t depth;
    bool retain;
    bool create;  /* grad mode is on */
    bool host;    /* some node is the host's */
    bool several; /* more than one thread runs it */
    bool anomaly; /* anomaly.h */
    bool watched; /* or somebody observes: nodes go the long way */
    /* Nobody watches, every leaf accumulates as it is, and nothing has a
     * stream. */
    bool plain;
    core_device *device;              /* of the first node with a stream */
    core__destinations *destinations; /* destination.h; NULL mostly */
    /* The thread of the caller, and what it is while nodes run. */
    core__thread_state caller;
    core__thread_state running;
    core__capture *captures; /* NULL: every leaf accumulates */
    size_t ncaptures;
    /* Ready queue of one thread: a heap by sequence. */
    core__ready *ready;
    size_t nready, ready_capacity;
    /* Every node that this task has seen, also the queue of the count. */
    core_node **nodes;
    size_t nnodes, nodes_capacity;
    /* Slots of nodes that another task holds. */
    struct core__map_entry *map;
    size_t map_count, map_capacity;
    /* Streams on which gradients arrived for good; referenced. */
    core_stream **leaves;
    size_t nleaves, leaves_capacity;

    /* The rest is for several threads. */
    core__executor *owner;                 /* the caller's */
    struct core__quantized_run *quantized; /* … that it is in (quant/again.h) */
    core__task_worker *workers;
    size_t nworkers, workers_capacity;
    pthread_mutex_t lock;       /* of slots, leaves, sequence and error */
    _Atomic size_t outstanding; /* nodes in queues or running; 1 at the start */
    _Atomic bool failed;        /* what is queued is dropped */
    bool done;                  /* under the owner's lock */
    core_status status;
    core_error *error;
    uint64_t sequence; /* the newest of all threads */

    core__ready inline_ready[CORE__TASK_INLINE];
    core_node *inline_nodes[CORE__TASK_INLINE];
    core__task_worker inline_workers[CORE__TASK_WORKERS];
};

/* core__slot.flags */
enum {
    CORE__SLOT_NEEDED = 1u << 0,  /* core_grad: an input lies behind the node */
    CORE__SLOT_CAPTURE = 1u << 1, /* core_grad: an input's grad arrives here */
    CORE__SLOT_DONE = 1u << 2,    /* its edges were looked at */
    CORE__SLOT_READY = 1u << 3    /* a root that is to be queued */
};

/* backward_run.c: roots[i] gets grads[i]: NULL entries are filled with ones by the
 * caller. */
core_status core__engine_run(const core__edge *roots, core_tensor *const *grads,
                             size_t count, bool retain, bool create,
                             core__capture *captures, size_t ncaptures);

/* prepare.c: counts what will deliver, then who runs it is known. */
core_status core__task_prepare(core__task *task, const core__edge *roots,
                               size_t count);
/* The roots' gradients; those that are ready are queued. */
core_status core__task_start(core__task *task, const core__edge *roots,
                             core_tensor *const *grads, size_t count);

/* engine.c: runs a ready node, with the thread in the task's state, and
 * delivers what it gives. */
core_status core__task_evaluate(core__task *task, core_node *node,
                                core__slot *slot);

/* gradient_delivery.c: one gradient, NULL if it is undefined, to an edge.  Takes it over,
 * on failure too.  producer: the stream it is ready on; NULL: the current one
 * of its device. */
core_status core__deliver(core__task *task, const core__edge *edge,
                          core_tensor *grad, core_stream *producer);
/* A node that is ready, to whom it belongs. */
core_status core__task_ready(core__task *task, core_node *node,
                             core__slot *slot);
/* The error of this thread is the task's, if it is its first. */
void core__task_fail(core__task *task, core_status status);
/* Drops what was postponed. */
void core__pending_clear(core__slot *slot);
/* Gradients arrived for good on this stream. */
core_status core__task_leaf(core__task *task, core_stream *stream);
/* A node wrote more than the gradients that it gives, on this thread's stream of
 * the device: it is as if they had arrived there.  Without a backward nothing is
 * done. */
core_status core__task_wrote(core_device *device);

/* task.c: what a task knows of nodes. */
void core__task_begin(core__task *task);
/* Releases every slot and the gradients in it. */
void core__task_end(core__task *task);
/* The slot of a node; a new one is listed in task->nodes. */
core_status core__task_slot_slow(core__task *task, core_node *node,
                                 core__slot **out_slot);
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

/* slices.c: runs the node of a base of which a view was changed in place. */
core_status core__slices_run(core_node *node, core_tensor *const *grads,
                             core_tensor **gradients);

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
