/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Autograd records of tensors: history, accumulators, and gradient edges. */

#include "autograd/graph/autograd_meta.h"

#include "autograd/graph/accumulator.h"
#include "autograd/graph/hooks.h"
#include "autograd/graph/retain_grad.h"
#include "autograd/graph/node.h"
#include "autograd/graph/view.h"
#include "base/memory.h"
#include "tensor/tensor_cache.h"

#include <sched.h>

/* A lock with another mark was taken by a thread of the parent process before a
 * fork, so it belongs to this thread now. */
void core__byte_lock_wait(_Atomic uint8_t *lock, uint8_t before)
{
    while (before == core__fork_mark) {
        sched_yield();
        before = atomic_exchange_explicit(lock, core__fork_mark,
                                          memory_order_acquire);
    }
}

static core__autograd_meta *meta_new(core_tensor *tensor)
{
    core__autograd_meta *meta = core__small_alloc(sizeof *meta);

    if (core__unlikely(!meta))
        return NULL;
    *meta = (core__autograd_meta){0};
    tensor->autograd = meta;
    return meta;
}

core_status core__autograd_meta_of(core_tensor *tensor,
                                   core__autograd_meta **out_meta)
{
    *out_meta = tensor->autograd ? tensor->autograd : meta_new(tensor);
    return *out_meta ? CORE_OK : core__error_memory(sizeof **out_meta);
}

void core__autograd_sizes_changed(core_tensor *tensor)
{
    core__autograd_meta *meta = tensor->autograd;

    core__byte_lock(&meta->lock);
    if (meta->accumulator)
        core__tensor_meta_fill(meta->accumulator->inputs, tensor,
                               tensor->sizes);
    core__byte_unlock(&meta->lock);
}

void core__autograd_meta_clear(core_tensor *tensor)
{
    core__autograd_meta *meta = tensor->autograd;

    if (meta->retains_grad)
        core__retain_grad_stop(tensor);
    core__tensor_release(meta->grad);
    if (meta->written)
        core_stream_release(meta->written);
    if (meta->hooks)
        core__hooks_drop(meta->hooks);
    if (meta->accumulator) /* parked: it holds the tensor otherwise */
        core__small_free(meta->accumulator, meta->accumulator->size);
}

static inline core_node *take(core__thread *self, core_tensor *tensor)
{
    core__autograd_meta *meta = tensor->autograd;
    core_node *node;

    if (core__unlikely(((uintptr_t)meta->grad | (uintptr_t)meta->written |
                        (uintptr_t)meta->hooks | (uintptr_t)meta->accumulator |
                        meta->retains_grad) != 0))
        core__autograd_meta_clear(tensor);
    node = meta->grad_fn;
    tensor->autograd = NULL;
    core__small_free_of(self, meta, sizeof *meta);
    return node;
}

/* Releases the node last, in a tail call: its chain may be long. */
void core__autograd_destroy(core__thread *self, core_tensor *tensor)
{
    core_node *node = take(self, tensor);

    if (core__unlikely(!core__tensor_cache_put(self, tensor)))
        core__tensor_take_apart(tensor, self);
    if (node && core__node_unref_inner(node))
        core__node_destroy(node);
}

/* For a tensor that has autograd state or whose base may have one, or a thread
 * without a small-block cache. */
static core_status __attribute__((noinline))
set_history(core_tensor *tensor, core_node *node, uint32_t output)
{
    core__autograd_meta *meta = tensor->autograd;

    if (!meta) {
        meta = meta_new(tensor);
        if (core__unlikely(!meta)) {
            core__node_release(node);
            return core__error_memory(sizeof *meta);
        }
    }
    core__node_release(meta->grad_fn);
    meta->grad_fn = node;
    meta->output = output;
    if (tensor->base && tensor->base->autograd)
        meta->generation = tensor->base->autograd->generation;
    tensor->keys |= CORE__KEYS_REQUIRES_GRAD;
    return CORE_OK;
}

/* The common case, a new result, calls no other function, so that no register
 * is saved. */
core_status core__history_set(core_tensor *tensor, core_node *node,
                              uint32_t output)
{
    core__thread *self = core__self_pointer;
    core__autograd_meta *meta;

    if (core__unlikely(!self || tensor->autograd || tensor->base))
        return set_history(tensor, node, output);
    meta = core__small_take(self, sizeof *meta);
    if (core__unlikely(!meta))
        return set_history(tensor, node, output);
    *meta = (core__autograd_meta){.grad_fn = node, .output = output};
    tensor->autograd = meta;
    tensor->keys |= CORE__KEYS_REQUIRES_GRAD;
    return CORE_OK;
}

core_status core__history_alias(core_node *node, uint32_t output,
                                core_tensor **tensor)
{
    core_tensor *alias;
    core_status status;

    CORE_TRY(core__tensor_shallow_copy(*tensor, &alias));
    alias->keys &= ~CORE__KEYS_REQUIRES_GRAD;
    core__node_retain(node);
    status = core__history_set(alias, node, output);
    if (status != CORE_OK) {
        core__tensor_release(alias);
        return status;
    }
    core__tensor_release(*tensor);
    *tensor = alias;
    return CORE_OK;
}

core_status core__history_replace(core_tensor *tensor, core_node *node,
                                  uint32_t output)
{
    core__autograd_meta *meta;
    core_status status = core__autograd_meta_of(tensor, &meta);

    if (status != CORE_OK) {
        core__node_release(node);
        return status;
    }
    /* Retained gradients belong to the tensor as it is now. */
    if (meta->retains_grad)
        status = core__retain_grad_move(tensor, node, output);
    core__node_release(meta->grad_fn);
    meta->grad_fn = node;
    meta->output = output;
    meta->generation++;
    tensor->keys |= CORE__KEYS_REQUIRES_GRAD;
    /* Nodes may have saved the tensor itself while it was a leaf. */
    if (tensor->flags & CORE__TENSOR_SAVED) {
        core__node_break_cycle(node, tensor);
        tensor->flags &= (uint16_t)~CORE__TENSOR_SAVED;
    }
    return status;
}

core_status core__history_replace_layout(core_tensor *tensor, core_node *node)
{
    core_status status = core__history_replace(tensor, node, 0);

    /* A view's elements are the base's, which did not change, so it is up to
     * date. */
    if (status == CORE_OK && tensor->base && tensor->base->autograd)
        tensor->autograd->generation = tensor->base->autograd->generation;
    return status;
}

void core__history_clear(core_tensor *tensor)
{
    core__autograd_meta *meta = tensor->autograd;

    tensor->keys &= ~CORE__KEYS_REQUIRES_GRAD;
    if (!meta)
        return;
    /* If it retains its gradient, it still gets that from the old node. */
    core__node_release(meta->grad_fn);
    meta->grad_fn = NULL;
    meta->output = 0;
}

core_node *core__accumulator_find(const core_tensor *leaf)
{
    core__autograd_meta *meta = leaf->autograd;
    core_node *node;

    if (!meta)
        return NULL;
    core__byte_lock(&meta->lock);
    node = meta->accumulator;
    if (node && node->released)
        node = NULL;
    /* A count of 0 means that it is being destroyed. */
    if (node && atomic_fetch_add_explicit(&node->references, 1,
                                          memory_order_relaxed) == 0) {
        atomic_store_explicit(&node->references, 0, memory_order_relaxed);
        node = NULL;
    }
    core__byte_unlock(&meta->lock);
    return node;
}

/* Its sizes are up to date: core__autograd_sizes_changed keeps them so. */
static inline void revive_parked(core_node *node, core_tensor *leaf)
{
    node->released = false;
    atomic_store_explicit(&node->references, 1, memory_order_relaxed);
    core__tensor_retain(leaf);
}

/* With meta locked: returns the accumulator with one more reference, or
 * NULL if there is none that can get one. */
static core_node *revive(core__autograd_meta *meta, core_tensor *leaf)
{
    core_node *node = meta->accumulator;

    if (!node)
        return NULL;
    if (node->released) {
        revive_parked(node, leaf);
        core__node_set_stream(node);
        return node;
    }
    if (core__likely(atomic_fetch_add_explicit(&node->references, 1,
                                               memory_order_relaxed) != 0))
        return node;
    atomic_store_explicit(&node->references, 0, memory_order_relaxed);
    return NULL;
}

static core_status __attribute__((noinline))
make_accumulator(core__autograd_meta *meta, core_tensor *leaf,
                 core_node **out_node)
{
    core_node *node;

    CORE_TRY(core__accumulator_new(leaf, out_node));
    /* Another thread may have been faster. */
    core__byte_lock(&meta->lock);
    node = revive(meta, leaf);
    if (!node)
        meta->accumulator = *out_node;
    core__byte_unlock(&meta->lock);
    if (node) {
        core__node_release(*out_node);
        *out_node = node;
    }
    return CORE_OK;
}

/* before: returned by core__byte_trylock. */
static core_status __attribute__((noinline))
accumulator_slowly(core_tensor *leaf, core_node **out_node, uint8_t before)
{
    core__autograd_meta *meta = leaf->autograd;
    core_node *node;

    if (before)
        core__byte_lock_wait(&meta->lock, before);
    node = revive(meta, leaf);
    core__byte_unlock(&meta->lock);
    *out_node = node;
    return node ? CORE_OK : make_accumulator(meta, leaf, out_node);
}

static core_status __attribute__((noinline))
accumulator_of_none(core_tensor *leaf, core_node **out_node)
{
    core__autograd_meta *meta;

    CORE_TRY(core__autograd_meta_of(leaf, &meta));
    return core__accumulator_of(leaf, out_node);
}

/* The common case, a parked node, calls no other function. */
core_status core__accumulator_of(core_tensor *leaf, core_node **out_node)
{
    core__autograd_meta *meta = leaf->autograd;
    core_node *node;
    uint8_t before;

    if (core__unlikely(!meta))
        return accumulator_of_none(leaf, out_node);
    before = core__byte_trylock(&meta->lock);
    if (core__unlikely(before != 0))
        return accumulator_slowly(leaf, out_node, before);
    node = meta->accumulator;
    if (core__unlikely(!node || !node->released || !leaf->device->synchronous))
        return accumulator_slowly(leaf, out_node, 0);
    revive_parked(node, leaf);
    core__byte_unlock(&meta->lock);
    *out_node = node;
    return CORE_OK;
}

core_status core__gradient_edge(core_tensor *tensor, core__edge *out_edge)
{
    core__autograd_meta *meta = tensor->autograd;

    out_edge->input = 0;
    out_edge->reserved = 0;
    if (core__unlikely(tensor->base != NULL) && core__view_is_stale(tensor)) {
        out_edge->node = NULL;
        CORE_TRY(core__view_regenerate(tensor));
        meta = tensor->autograd;
    }
    if (meta && meta->grad_fn) {
        core__node_retain(meta->grad_fn);
        out_edge->node = meta->grad_fn;
        out_edge->input = meta->output;
        return CORE_OK;
    }
    out_edge->node = NULL;
    if (!core__tensor_requires_grad(tensor))
        return CORE_OK;
    return core__accumulator_of(tensor, &out_edge->node);
}
