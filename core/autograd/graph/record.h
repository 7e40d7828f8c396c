/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* record.h: what autograd keeps of a tensor, and how a tensor meets the graph.
 *
 * That a tensor requires grad is a bit of its keys (CORE__KEYS_REQUIRES_GRAD),
 * so that the layer's test is one bit of the call.  The record exists only for
 * tensors that have more to say: a history, a gradient, hooks. */

#ifndef CORE_AUTOGRAD_RECORD_H
#define CORE_AUTOGRAD_RECORD_H

#include "base/fork.h"
#include "base/memory.h"
#include "tensor/tensor.h"

#include <libcore/stream.h>

typedef struct core_node core_node;
typedef struct core_hook core_hook;

/* One end of the graph: gradients for `input` of a node. */
typedef struct core__edge {
    core_node *node; /* referenced; NULL: no gradient is wanted */
    uint32_t input;
    uint32_t reserved;
} core__edge;

struct core__autograd {
    core_node *grad_fn; /* referenced; NULL: a leaf */
    core_tensor *grad;  /* referenced */
    /* Where a backward last wrote grad; referenced.  NULL: nowhere that one
     * would have to wait for. */
    core_stream *written;
    /* Of a leaf; not referenced, read and written under lock.  When its last
     * reference goes it stays here, parked, for the next graph. */
    core_node *accumulator;
    core_hook *hooks; /* of a leaf, oldest first; under lock */
    uint32_t output;  /* which result of grad_fn it is */
    /* How often the history of this tensor was replaced by changes in place of
     * its views; a view holds what it saw when its own was made. */
    uint32_t generation;
    _Atomic uint8_t lock;
    bool retains_grad;
    /* core__fork_mark: a thread of this process adds to grad; under lock. */
    uint8_t busy;
    uint32_t walks; /* of hooks, under lock */
    struct core__late
        *late; /* what that thread is to add as well; under lock */
};

enum {
    /* core_tensor.flags: some node holds this very tensor as a saved value. */
    CORE__TENSOR_SAVED = 1u << 15,
    /* A gradient in memory that the program's own code chose for it: a leaf may
     * take it over though others lie there too (a bucket's parts). */
    CORE__TENSOR_GIVEN = 1u << 14
};

/* Makes the record if there is none. */
core_status core__autograd_record(core_tensor *tensor,
                                  core__autograd **out_record);
/* The tensor, perhaps a leaf, has got other sizes. */
void core__autograd_relayout(core_tensor *tensor);
/* What a tensor that is going away has besides its history. */
void core__autograd_strip(core_tensor *tensor);

/* The tensor is result `output` of node.  Takes over one reference of node,
 * on failure too. */
core_status core__history_set(core_tensor *tensor, core_node *node,
                              uint32_t output);
/* Replaces the history of a tensor that was changed in place; the old one
 * lives on in the node's edges.  A view: see view.h. */
core_status core__history_replace(core_tensor *tensor, core_node *node,
                                  uint32_t output);

/* The same where only the layout was changed, of a base or of a view. */
core_status core__history_relayout(core_tensor *tensor, core_node *node);
/* A leaf that requires no grad, from now on. */
void core__history_drop(core_tensor *tensor);

/* Where the gradient of a tensor goes, referenced; an edge without node if it
 * requires none.  Views whose base moved get their new history here. */
core_status core__gradient_edge(core_tensor *tensor, core__edge *out_edge);
/* The node that accumulates into a leaf, referenced. */
core_status core__accumulator(core_tensor *leaf, core_node **out_node);
/* The same if it is alive, else NULL; makes nothing. */
core_node *core__accumulator_if_any(const core_tensor *leaf);

/* A view that has not seen the latest history of its base. */
static inline bool core__view_is_stale(const core_tensor *tensor)
{
    const core__autograd *base;

    if (!tensor->base || !(base = tensor->base->autograd) ||
        tensor->flags & CORE__TENSOR_VIEW_UNKNOWN)
        return false;
    return base->generation !=
           (tensor->autograd ? tensor->autograd->generation : 0);
}

/* Whether a gradient must reach this tensor. */
static inline bool core__wants_grad(const core_tensor *tensor)
{
    return core__tensor_requires_grad(tensor) ||
           (core__unlikely(tensor->base != NULL) &&
            core__tensor_requires_grad(tensor->base) &&
            core__view_is_stale(tensor));
}

static inline bool core__is_leaf(const core_tensor *tensor)
{
    return !(tensor->autograd && tensor->autograd->grad_fn) &&
           !core__view_is_stale(tensor);
}

/* Of a tensor that is going away: its record goes.  The node that made it, or
 * NULL: the caller releases it when the tensor has gone. */
core_node *core__autograd_take(core__thread *self, core_tensor *tensor);

/* Locks held for a few instructions (a record) or one formula (a node). */
void core__spin_wait(_Atomic uint8_t *lock, uint8_t before);

/* 0: the lock is held now.  Else the caller goes on with core__spin_wait, in a
 * function of its own: the other way then has no call that registers are saved
 * for. */
static inline uint8_t core__spin_try(_Atomic uint8_t *lock)
{
    return atomic_exchange_explicit(lock, core__fork_mark,
                                    memory_order_acquire);
}

static inline void core__spin_lock(_Atomic uint8_t *lock)
{
    uint8_t before = core__spin_try(lock);

    if (core__unlikely(before != 0))
        core__spin_wait(lock, before);
}

static inline void core__spin_unlock(_Atomic uint8_t *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

#endif
