/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* node.h: a step of the backward graph.
 *
 * A node is one block of memory: this header, its edges, what it saved, what
 * it knows of the forward's results, and one pointer per gradient that a
 * backward collects for it.  Nodes are referenced by the tensors that they
 * made and by the edges of later nodes; edges never change. */

#ifndef CORE_AUTOGRAD_NODE_H
#define CORE_AUTOGRAD_NODE_H

#include "autograd/graph/gradient.h"
#include "autograd/graph/record.h"
#include "device/device.h"

typedef struct core__task core__task;             /* engine.h */
typedef struct core__node_hooks core__node_hooks; /* hooks.h */
typedef struct core__saved core__saved;           /* saved.h */
typedef struct core__custom core__custom;         /* custom.c */
typedef struct core__slices core__slices;         /* view.h */
typedef struct core__arrival core__arrival;       /* input_buffer.h */
typedef struct core__pending core__pending;       /* gradient_delivery.c */

typedef enum core__node_kind {
    CORE__NODE_OPERATOR,   /* a formula of ops.yaml */
    CORE__NODE_ACCUMULATE, /* adds to the grad of a leaf */
    CORE__NODE_CUSTOM,     /* a program's function */
    CORE__NODE_SLICES,     /* a change in place of a view, seen by the base */
    CORE__NODE_MISSING,    /* no formula: using it is an error */
    CORE__NODE_ONCE        /* the same: gradients of a function that can be
                              differentiated once */
} core__node_kind;

/* What is known of a result of the forward: gradients must look like it. */
typedef struct core__meta {
    core_device *device;
    const int64_t *sizes;
    uint8_t ndim;
    uint8_t dtype;
    uint16_t reserved0;
    uint32_t reserved1;
} core__meta;

/* What one backward keeps of a node.  Each node has one inside, claimed by the
 * first backward that comes; others at the same time use a map. */
typedef struct core__slot {
    _Atomic(core__task *) task;
    uint32_t dependencies; /* edges that have not delivered yet */
    uint16_t flags;        /* engine.h */
    bool busy;             /* some thread is adding to the gradients */
    uint8_t reserved;
    core_tensor **grads;     /* by input; owned, NULL while undefined */
    core__arrival *arrivals; /* by input; NULL while streams are equal */
    core__pending *pending;  /* what arrived while it was busy */
} core__slot;

struct core_node {
    _Atomic uint32_t references;
    uint8_t kind;
    _Atomic uint8_t lock; /* of saved values and of the three below */
    bool released;        /* saved values are gone, or go with `users` */
    uint8_t reserved;
    uint32_t size;     /* of the block */
    uint32_t needed;   /* OPERATOR: gradients wanted, by index */
    uint64_t sequence; /* larger: made later */
    const char *name;
    uint32_t nedges;
    uint32_t ninputs; /* results of the forward */
    core__edge *edges;
    core__meta *inputs;
    core__saved *saved;
    uint32_t nsaved;
    uint16_t counts[8]; /* OPERATOR: edges by gradient */
    uint32_t users;     /* who computes with the saved values now */
    _Atomic(core__node_hooks *) hooks; /* NULL mostly; made once */
    core__slot slot;
    /* Its canonical stream, referenced: the current one, when the node was
     * made, of the first of its results' devices that has streams; NULL where
     * none has.  The stream's device is the node's. */
    core_stream *stream;
    const core__gradient *gradient; /* OPERATOR */
    union {
        core_tensor *leaf;    /* ACCUMULATE; referenced */
        core__custom *custom; /* CUSTOM; owned */
        core__slices *slices; /* SLICES; owned */
    } u;
    core_node *dead; /* list of nodes that are being freed */
};

/* A block with room for edges, saved slots, inputs and `extra` bytes behind
 * them (given back in *out_extra, aligned to 8).  One reference; edges are
 * empty, kind, name and inputs the caller's. */
core_node *core__node_new(uint32_t nedges, uint32_t nsaved, uint32_t ninputs,
                          size_t extra, void **out_extra);
/* Last reference is gone: frees it and what only it held, without recursion
 * however long the chain. */
void core__node_destroy(core_node *node);

static inline void core__node_retain(core_node *node)
{
    atomic_fetch_add_explicit(&node->references, 1, memory_order_relaxed);
}

/* Whether that was the last one: the caller destroys it then. */
static inline bool core__node_drop(core_node *node)
{
    return atomic_fetch_sub_explicit(&node->references, 1,
                                     memory_order_acq_rel) == 1;
}

/* The same of a node that is no accumulation: those are found through their
 * leaf too, by whom a reference may be added meanwhile; of others a sole owner
 * needs no atomic read-modify-write. */
static inline bool core__node_drop_made(core_node *node)
{
    return atomic_load_explicit(&node->references, memory_order_acquire) == 1 ||
           core__node_drop(node);
}

static inline void core__node_release(core_node *node)
{
    if (node && core__node_drop(node))
        core__node_destroy(node);
}

/* core__node_release for a node that is not an accumulation. */
void core__node_release_made(core_node *node);

/* Drops what was saved, when nobody uses it any more.  From now on the node
 * cannot run; but one of an operator that saved no tensor has nothing to drop
 * and stays as it is. */
void core__node_release_saved(core_node *node);
/* Whoever computes with saved values is a user of the node: no lock is held
 * while formulas and programs' functions run, and what was saved outlives
 * them.  False: released. */
static inline bool core__node_use(core_node *node);
core_status core__node_was_released(const core_node *node); /* the error */
static inline void core__node_end_use(core_node *node);
void core__node_unused(core_node *node);

static inline bool core__node_use(core_node *node)
{
    bool usable;

    core__spin_lock(&node->lock);
    usable = !node->released;
    node->users += usable;
    core__spin_unlock(&node->lock);
    return usable;
}

static inline void core__node_end_use(core_node *node)
{
    bool last;

    core__spin_lock(&node->lock);
    last = --node->users == 0 && node->released;
    core__spin_unlock(&node->lock);
    if (core__unlikely(last))
        core__node_unused(node);
}

static inline void core__meta_fill(core__meta *meta, const core_tensor *tensor,
                                   const int64_t *sizes)
{
    meta->device = tensor->device;
    meta->sizes = sizes;
    meta->ndim = tensor->ndim;
    meta->dtype = tensor->dtype;
    meta->reserved0 = 0;
    meta->reserved1 = 0;
}

/* Gives the node its canonical stream; its inputs are filled. */
void core__node_place_slow(core_node *node);
static inline void core__node_place(core_node *node)
{
    for (uint32_t i = 0; i < node->ninputs; i++)
        if (core__unlikely(node->inputs[i].device &&
                           !node->inputs[i].device->synchronous)) {
            core__node_place_slow(node);
            return;
        }
}

/* Keeps `root`'s new history from owning `tensor`: nodes behind it that saved
 * this very tensor, whose content is outdated, let go of it. */
void core__node_forget(core_node *root, core_tensor *tensor);

#endif
