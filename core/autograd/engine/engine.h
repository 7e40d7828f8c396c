/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* engine.h: executes the backward graph.
 *
 * One backward is a task.  Starting at the roots it counts how many edges will
 * deliver to each node (task_prepare.c); a node is ready when all of them have, and
 * of the ready nodes the newest runs next (accumulations first of all).  The
 * task's state of a node is stored in the node (core__slot) or, if another task
 * occupies that, in the task's map (task.c).
 *
 * Threads.  Nodes of the host run in the caller's thread, nodes of a device
 * with streams in that device's worker (worker.h).  A task whose nodes are all
 * of one kind, as in most tasks, runs in the caller's thread alone, with its
 * own queue and without locks.
 *
 * Streams.  A node runs with its own stream current; gradients that arrive for
 * it follow the rules of input_buffer.h.  At the end the caller's streams wait
 * for those on which leaf gradients arrived.
 *
 * A nested backward (called by a node's function or a hook) is a separate task,
 * which runs to its end before the outer one continues. */

#ifndef CORE_AUTOGRAD_ENGINE_H
#define CORE_AUTOGRAD_ENGINE_H

#include "autograd/graph/node.h"
#include "autograd/engine/state.h"
#include "device/device.h"
#include "dispatch/mode_stack.h"

#include <pthread.h>

enum {
    CORE__TASK_INLINE = 64,
    CORE__TASK_LEVELS = 60, /* nested backwards on one stack */
    CORE__TASK_WORKERS = 8  /* devices of one task that need no allocation */
};

typedef struct core__executor core__executor; /* worker.h */

typedef struct core__destinations core__destinations; /* destination.h */

typedef struct core__ready {
    uint64_t sequence;
    core_node *node;
    core__slot *slot;
} core__ready;

/* A gradient that core_grad returns: what arrives for `input` of node. */
typedef struct core__gradient_capture {
    core_node *node; /* referenced; NULL: the input is not in any graph */
    uint32_t input;
    core_tensor **out;
    /* The call, if the gradient must exist; NULL: it may be missing. */
    const char *required_by;
    /* The gradient is taken as it arrives, before hooks, and nothing behind it
     * runs, even if another captured input is reachable from there. */
    bool stops;
} core__gradient_capture;
/* Returns the error for a missing gradient. */
core_status core__gradient_capture_missing(const char *required_by,
                                           size_t input);

/* The worker of a device for whose nodes the task needs it. */
typedef struct core__task_worker {
    core_device *device;
    core__executor *executor;
} core__task_worker;

struct core__task {
    core__task *outer; /* the enclosing backward */
    uint32_t depth;
    bool retain;
    bool create;        /* grad mode is on */
    bool host;          /* some node is the host's */
    bool multithreaded; /* several threads run it */
    bool anomaly;       /* anomaly.h */
    bool observed;      /* anomaly mode or an observer: no shortcuts */
    /* Nothing is observed, every leaf accumulates, and no node has a stream. */
    bool fast_path;
    core_device *device;              /* of the first node with a stream */
    core__destinations *destinations; /* destination.h; usually NULL */
    /* The state of the calling thread, and the one in which nodes run. */
    core__thread_state caller;
    core__thread_state running;
    core__gradient_capture *captures; /* NULL: every leaf accumulates */
    size_t ncaptures;
    /* The ready queue of a single thread: a heap by sequence number. */
    core__ready *ready;
    size_t nready, ready_capacity;
    /* Every node that this task has seen; also the work queue of counting. */
    core_node **nodes;
    size_t nnodes, nodes_capacity;
    /* Slots for nodes whose own slot another task occupies. */
    struct core__map_entry *map;
    size_t map_count, map_capacity;
    /* Streams on which leaf gradients arrived; referenced. */
    core_stream **leaves;
    size_t nleaves, leaves_capacity;

    /* The rest is for several threads. */
    core__executor *owner;                         /* the caller's */
    struct core__checkpoint_scales_run *quantized; /* the caller's
                                            * (quant/checkpoint_scales.h) */
    core__modes modes; /* likewise (dispatch/mode_stack.h) */
    core__task_worker *workers;
    size_t nworkers, workers_capacity;
    pthread_mutex_t lock;       /* protects slots, leaves, sequence and error */
    _Atomic size_t outstanding; /* nodes in queues or running; 1 at the start */
    _Atomic bool failed;        /* queued nodes are dropped */
    bool done;                  /* protected by the owner's lock */
    core_status status;
    core_error *error;
    uint64_t sequence; /* the newest of all threads */

    core__ready inline_ready[CORE__TASK_INLINE];
    core_node *inline_nodes[CORE__TASK_INLINE];
    core__task_worker inline_workers[CORE__TASK_WORKERS];
};

/* core__slot.flags */
enum {
    CORE__SLOT_NEEDED = 1u << 0,  /* core_grad: an input is reachable from the
                                   * node */
    CORE__SLOT_CAPTURE = 1u << 1, /* core_grad: the gradient of an input arrives
                                   * here */
    CORE__SLOT_DONE = 1u << 2,    /* its edges were visited */
    CORE__SLOT_READY = 1u << 3,   /* a root to be queued */
    CORE__SLOT_STOP = 1u << 4     /* a capture that stops */
};

/* backward_run.c: runs a backward from roots[i] with gradient grads[i]; the
 * caller replaces NULL entries with ones. */
core_status core__engine_run(const core__edge *roots, core_tensor *const *grads,
                             size_t count, bool retain, bool create,
                             core__gradient_capture *captures,
                             size_t ncaptures);

/* task_prepare.c: counts dependencies and decides which threads run the task. */
core_status core__task_prepare(core__task *task, const core__edge *roots,
                               size_t count);
/* Delivers the roots' gradients and queues the nodes that are ready. */
core_status core__task_start(core__task *task, const core__edge *roots,
                             core_tensor *const *grads, size_t count);

/* engine.c: runs a ready node, with the thread in the task's state, and
 * delivers its gradients. */
core_status core__task_evaluate(core__task *task, core_node *node,
                                core__slot *slot);

/* gradient_delivery.c: delivers one gradient, NULL if undefined, along an edge.
 * Takes ownership of it, also on failure.  producer: the stream it is ready on;
 * NULL: the current one of its device. */
core_status core__gradient_deliver(core__task *task, const core__edge *edge,
                                   core_tensor *grad, core_stream *producer);
/* Queues a ready node for the thread that runs it. */
core_status core__task_ready(core__task *task, core_node *node,
                             core__slot *slot);
/* Moves this thread's error to the task if it is the task's first. */
void core__task_fail(core__task *task, core_status status);
/* Drops postponed gradients. */
void core__pending_clear(core__slot *slot);
/* Notes that leaf gradients arrived on this stream. */
core_status core__task_add_leaf_stream(core__task *task, core_stream *stream);
/* For a node that writes gradients elsewhere, on this thread's stream of the
 * device: orders the caller after the stream as if they had arrived at a leaf.
 * Outside a backward it does nothing. */
core_status core__task_note_write(core_device *device);

/* task.c: a task's state of its nodes. */
void core__task_begin(core__task *task);
/* Releases every slot and the gradients in it. */
void core__task_end(core__task *task);
/* Returns the slot of a node; a new one is added to task->nodes. */
core_status core__task_slot_slow(core__task *task, core_node *node,
                                 core__slot **out_slot);
core__slot *core__task_find_slow(const core__task *task, const core_node *node);
core_status core__task_push(core__task *task, core_node *node,
                            core__slot *slot);
bool core__task_pop(core__task *task, core__ready *out_ready);

/* The slot of a node that the task has seen, else NULL. */
static inline core__slot *core__task_find(const core__task *task,
                                          core_node *node)
{
    if (core__likely(atomic_load_explicit(&node->slot.task,
                                          memory_order_relaxed) == task))
        return &node->slot;
    return core__task_find_slow(task, node);
}

/* copy_slices.c: runs the node of a base of which a view was changed in place. */
core_status core__slices_run(core_node *node, core_tensor *const *grads,
                             core_tensor **gradients);

/* node_apply.c: runs one node on its gradients.  needed_edges: by edge.  gradients:
 * nedges entries, NULL at first, owned by the caller afterwards. */
core_status core__node_compute(core__task *task, core_node *node,
                               core_tensor **grads, const uint8_t *needed_edges,
                               core_tensor **gradients);
/* The same with the additions of anomaly mode. */
core_status core__node_apply(core__task *task, core_node *node,
                             core_tensor **grads, const uint8_t *needed_edges,
                             core_tensor **gradients);

#endif
