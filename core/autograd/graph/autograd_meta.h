/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autograd_meta.h: autograd's state of a tensor, and the tensor's connection to
 * the graph.
 *
 * Whether a tensor requires grad is a bit of its keys
 * (CORE__KEYS_REQUIRES_GRAD), so that the layer tests one bit of the call.
 * Only tensors with more state, a history, a gradient or hooks, have
 * this struct. */

#ifndef CORE_AUTOGRAD_AUTOGRAD_META_H
#define CORE_AUTOGRAD_AUTOGRAD_META_H

#include "base/fork.h"
#include "base/memory.h"
#include "tensor/tensor.h"

#include <libcore/stream.h>

typedef struct core_node core_node;
typedef struct core_hook core_hook;

/* An edge of the graph: gradients go to `input` of a node. */
typedef struct core__edge {
    core_node *node; /* referenced; NULL: no gradient is needed */
    uint32_t input;
    uint32_t reserved;
} core__edge;

struct core__autograd_meta {
    core_node *grad_fn; /* referenced; NULL: a leaf */
    core_tensor *grad;  /* referenced */
    /* The stream on which a backward last wrote grad; referenced.  NULL:
     * nothing to wait for. */
    core_stream *written;
    /* Leaves only; not referenced, read and written under the lock.  When its
     * last reference is gone it stays here, parked, for the next graph. */
    core_node *accumulator;
    core_hook *hooks; /* of a leaf, oldest first; under the lock */
    uint32_t output;  /* which result of grad_fn the tensor is */
    /* How often changes of views in place replaced this tensor's history; a
     * view stores the number that its own history was derived from. */
    uint32_t generation;
    _Atomic uint8_t lock;
    bool retains_grad;
    /* core__fork_mark: a thread of this process is adding to grad; under the
     * lock. */
    uint8_t busy;
    uint32_t walks; /* active walks of hooks; under the lock */
    struct core__queued_gradient
        *queued; /* gradients left for that thread to add; under the lock */
};

enum {
    /* core_tensor.flags: some node saved this very tensor. */
    CORE__TENSOR_SAVED = 1u << 15,
    /* A gradient in memory that program code chose: a leaf may take it over
     * even if the memory has other users (the parts of a bucket). */
    CORE__TENSOR_PROGRAM_MEMORY = 1u << 14
};

/* Returns the tensor's autograd state, created if there is none. */
core_status core__autograd_meta_of(core_tensor *tensor,
                                   core__autograd_meta **out_meta);
/* Updates a tensor, perhaps a leaf, whose sizes changed. */
void core__autograd_sizes_changed(core_tensor *tensor);
/* Frees everything but the history of a tensor that is being destroyed. */
void core__autograd_meta_clear(core_tensor *tensor);

/* Makes the tensor result `output` of node.  Takes over one reference of node,
 * also on failure. */
core_status core__history_set(core_tensor *tensor, core_node *node,
                              uint32_t output);
/* Replaces the history of a tensor that was changed in place; the old one lives
 * on in the node's edges.  For views see view.h. */
core_status core__history_replace(core_tensor *tensor, core_node *node,
                                  uint32_t output);

/* The same if only the layout was changed, of a base or of a view. */
core_status core__history_replace_layout(core_tensor *tensor, core_node *node);
/* Replaces *tensor with an alias on the same memory that is result `output` of
 * node.  The caller's reference to the original is released. */
core_status core__history_alias(core_node *node, uint32_t output,
                                core_tensor **tensor);
/* Makes the tensor a leaf that does not require grad. */
void core__history_clear(core_tensor *tensor);

/* The edge that the gradient of a tensor takes, referenced; its node is NULL if
 * the tensor does not require grad.  Views whose base changed get their new
 * history here. */
core_status core__gradient_edge(core_tensor *tensor, core__edge *out_edge);
/* The node that accumulates into a leaf, referenced. */
core_status core__accumulator_of(core_tensor *leaf, core_node **out_node);
/* The same if it exists, else NULL. */
core_node *core__accumulator_find(const core_tensor *leaf);

/* Whether the tensor is a view whose history is older than its base's. */
static inline bool core__view_is_stale(const core_tensor *tensor)
{
    const core__autograd_meta *base;

    if (!tensor->base || !(base = tensor->base->autograd) ||
        tensor->flags & CORE__TENSOR_VIEW_UNKNOWN)
        return false;
    return base->generation !=
           (tensor->autograd ? tensor->autograd->generation : 0);
}

/* Whether the tensor needs a gradient. */
static inline bool core__tensor_needs_grad(const core_tensor *tensor)
{
    return core__tensor_requires_grad(tensor) ||
           (core__unlikely(tensor->base != NULL) &&
            core__tensor_requires_grad(tensor->base) &&
            core__view_is_stale(tensor));
}

static inline bool core__tensor_is_leaf(const core_tensor *tensor)
{
    return !(tensor->autograd && tensor->autograd->grad_fn) &&
           !core__view_is_stale(tensor);
}

/* Destroys a tensor with autograd state, and releases the node that created
 * it. */
void core__autograd_destroy(core__thread *self, core_tensor *tensor);

/* Spinlocks of one byte, held for a few instructions (autograd_meta) or one
 * formula (a node). */
void core__byte_lock_wait(_Atomic uint8_t *lock, uint8_t before);

/* Returns 0 if the lock was taken.  Otherwise the caller continues with
 * core__byte_lock_wait, in a separate function: the fast path then contains no
 * call for which registers would be saved. */
static inline uint8_t core__byte_trylock(_Atomic uint8_t *lock)
{
    return atomic_exchange_explicit(lock, core__fork_mark,
                                    memory_order_acquire);
}

static inline void core__byte_lock(_Atomic uint8_t *lock)
{
    uint8_t before = core__byte_trylock(lock);

    if (core__unlikely(before != 0))
        core__byte_lock_wait(lock, before);
}

static inline void core__byte_unlock(_Atomic uint8_t *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

#endif
