/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* node.h: a node of the backward graph.
 *
 * A node is one block of memory: this header, its edges, its saved values, the
 * metadata of the forward's results, and one pointer per gradient that a
 * backward collects for it.  Nodes are referenced by the tensors that they
 * produced and by the edges of later nodes; edges never change. */

#ifndef CORE_AUTOGRAD_NODE_H
#define CORE_AUTOGRAD_NODE_H

#include "autograd/graph/gradient.h"
#include "autograd/graph/autograd_meta.h"
#include "device/device.h"

typedef struct core__task core__task;                       /* engine.h */
typedef struct core__node_hooks core__node_hooks;           /* hooks.h */
typedef struct core__saved core__saved;                     /* saved.h */
typedef struct core__custom_function core__custom_function; /* custom.c */
typedef struct core__slices core__slices;                   /* view.h */
typedef struct core__arrival core__arrival;                 /* input_buffer.h */
typedef struct core__pending_kernel
    core__pending_kernel; /* gradient_delivery.c */

typedef enum core__node_kind {
    CORE__NODE_OPERATOR,   /* a formula of ops.yaml */
    CORE__NODE_ACCUMULATE, /* adds to the grad of a leaf */
    CORE__NODE_CUSTOM,     /* a program's function */
    CORE__NODE_SLICES,  /* a change in place of a view, as its base sees it */
    CORE__NODE_MISSING, /* no formula: running it is an error */
    CORE__NODE_ONCE     /* the same, for gradients of a function that can be
                            * differentiated only once */
} core__node_kind;

/* Metadata of a result of the forward, which gradients must match. */
typedef struct core__tensor_meta {
    core_device *device;
    const int64_t *sizes;
    uint8_t ndim;
    uint8_t dtype;
    uint16_t reserved0;
    uint32_t reserved1;
} core__tensor_meta;

/* The state of a node in one backward.  Each node contains one, which the first
 * backward claims; concurrent backwards use a map. */
typedef struct core__slot {
    _Atomic(core__task *) task;
    uint32_t dependencies; /* edges that have not delivered yet */
    uint16_t flags;        /* engine.h */
    bool busy;             /* some thread is adding to the gradients */
    uint8_t reserved;
    core_tensor **grads;     /* by input; owned, NULL while undefined */
    core__arrival *arrivals; /* by input; NULL while streams are equal */
    core__pending_kernel
        *pending; /* gradients that arrived while it was busy */
} core__slot;

struct core_node {
    _Atomic uint32_t references;
    uint8_t kind;
    _Atomic uint8_t lock; /* protects the saved values and the three fields
                           * below */
    bool released;        /* saved values are gone, or are dropped by the last
                           * user */
    uint8_t reserved;
    uint32_t size;     /* of the block */
    uint32_t needed;   /* OPERATOR: needed gradients, by index */
    uint64_t sequence; /* larger: created later */
    const char *name;
    uint32_t nedges;
    uint32_t ninputs; /* results of the forward */
    core__edge *edges;
    core__tensor_meta *inputs;
    core__saved *saved;
    uint32_t nsaved;
    uint16_t counts[8]; /* OPERATOR: edges by gradient */
    uint32_t users;     /* threads computing with the saved values */
    _Atomic(core__node_hooks *) hooks; /* usually NULL; created once */
    core__slot slot;
    /* The canonical stream, referenced: the stream that was current, when the
     * node was created, on the first of its results' devices that has streams;
     * NULL if none has.  Its device is the node's device. */
    core_stream *stream;
    const core__gradient *gradient; /* OPERATOR */
    union {
        core_tensor *leaf;             /* ACCUMULATE; referenced */
        core__custom_function *custom; /* CUSTOM; owned */
        core__slices *slices;          /* SLICES; owned */
    } u;
    core_node *dead; /* link in the list of nodes being freed */
};

/* Allocates a node with space for edges, saved slots, inputs and `extra` bytes
 * at the end (returned in *out_extra, aligned to 8).  It has one reference and
 * empty edges; kind, name and inputs are set by the caller. */
core_node *core__node_new(uint32_t nedges, uint32_t nsaved, uint32_t ninputs,
                          size_t extra, void **out_extra);
/* Called when the last reference is gone: frees the node and everything only it
 * referenced, without recursion, however long the chain. */
void core__node_destroy(core_node *node);

static inline void core__node_retain(core_node *node)
{
    atomic_fetch_add_explicit(&node->references, 1, memory_order_relaxed);
}

/* Drops a reference; returns whether it was the last, in which case the caller
 * destroys the node. */
static inline bool core__node_unref(core_node *node)
{
    return atomic_fetch_sub_explicit(&node->references, 1,
                                     memory_order_acq_rel) == 1;
}

/* The same for nodes other than accumulations, which need no atomic
 * read-modify-write for a sole owner.  An accumulation is also found through
 * its leaf, so that a reference may be added meanwhile. */
static inline bool core__node_unref_inner(core_node *node)
{
    return atomic_load_explicit(&node->references, memory_order_acquire) == 1 ||
           core__node_unref(node);
}

static inline void core__node_release(core_node *node)
{
    if (node && core__node_unref(node))
        core__node_destroy(node);
}

/* Drops the saved values as soon as the node has no users.  It cannot run
 * afterwards, except that a node of an operator that saved no tensor has
 * nothing to drop and stays usable. */
void core__node_release_saved(core_node *node);
/* Makes the caller a user of the node, so that its saved values outlive
 * formulas and program functions, which run without a lock.  Returns false if
 * the node was released. */
static inline bool core__node_begin_use(core_node *node);
#define CORE__RAN_ALREADY                                           \
    "already ran in an earlier backward, which released its saved " \
    "tensors; pass CORE_RETAIN_GRAPH to that backward to run the graph again"
core_status core__node_released_error(
    const core_node *node); /* returns the error */
static inline void core__node_end_use(core_node *node);
void core__node_drop_saved(core_node *node);

static inline bool core__node_begin_use(core_node *node)
{
    bool usable;

    core__byte_lock(&node->lock);
    usable = !node->released;
    node->users += usable;
    core__byte_unlock(&node->lock);
    return usable;
}

static inline void core__node_end_use(core_node *node)
{
    bool last;

    core__byte_lock(&node->lock);
    last = --node->users == 0 && node->released;
    core__byte_unlock(&node->lock);
    if (core__unlikely(last))
        core__node_drop_saved(node);
}

static inline void core__tensor_meta_fill(core__tensor_meta *meta,
                                          const core_tensor *tensor,
                                          const int64_t *sizes)
{
    meta->device = tensor->device;
    meta->sizes = sizes;
    meta->ndim = tensor->ndim;
    meta->dtype = tensor->dtype;
    meta->reserved0 = 0;
    meta->reserved1 = 0;
}

/* Sets the canonical stream of a node whose inputs are filled. */
void core__node_set_stream_slow(core_node *node);
static inline void core__node_set_stream(core_node *node)
{
    for (uint32_t i = 0; i < node->ninputs; i++)
        if (core__unlikely(node->inputs[i].device &&
                           !node->inputs[i].device->synchronous)) {
            core__node_set_stream_slow(node);
            return;
        }
}

/* Prevents a reference cycle when `root` becomes the history of `tensor`: nodes
 * reachable from it that saved this very tensor, whose content is outdated,
 * release it. */
void core__node_break_cycle(core_node *root, core_tensor *tensor);

#endif
