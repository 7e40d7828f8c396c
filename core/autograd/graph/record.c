/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Autograd records of tensors: history, accumulators, and gradient edges. */

#include "autograd/graph/record.h"

#include "autograd/graph/accumulate.h"
#include "autograd/graph/hooks.h"
#include "autograd/graph/retain_grad.h"
#include "autograd/graph/node.h"
#include "autograd/graph/view.h"
#include "base/memory.h"
#include "tensor/tensor_cache.h"

#include <sched.h>

/* A lock with another mark was taken by a thread of the parent process before a
 * fork, so it belongs to this thread now. */
void core__spin_wait(_Atomic uint8_t *lock, uint8_t before)
{
    while (before == core__fork_mark) {
        sched_yield();
        before = atomic_exchange_explicit(lock, core__fork_mark,
                                          memory_order_acquire);
    }
}

static core__autograd *record_new(core_tensor *tensor)
{
    core__autograd *record = core__small_alloc(sizeof *record);

    if (core__unlikely(!record))
        return NULL;
    *record = (core__autograd){0};
    tensor->autograd = record;
    return record;
}

core_status core__autograd_record(core_tensor *tensor,
                                  core__autograd **out_record)
{
    *out_record = tensor->autograd ? tensor->autograd : record_new(tensor);
    return *out_record ? CORE_OK : core__error_memory(sizeof **out_record);
}

void core__autograd_relayout(core_tensor *tensor)
{
    core__autograd *record = tensor->autograd;

    core__spin_lock(&record->lock);
    if (record->accumulator)
        core__meta_fill(record->accumulator->inputs, tensor, tensor->sizes);
    core__spin_unlock(&record->lock);
}

void core__autograd_strip(core_tensor *tensor)
{
    core__autograd *record = tensor->autograd;

    if (record->retains_grad)
        core__retained_forget(tensor);
    core__tensor_release(record->grad);
    if (record->written)
        core_stream_release(record->written);
    if (record->hooks)
        core__hooks_drop(record->hooks);
    if (record->accumulator) /* parked: it holds the tensor otherwise */
        core__small_free(record->accumulator, record->accumulator->size);
}

static inline core_node *take(core__thread *self, core_tensor *tensor)
{
    core__autograd *record = tensor->autograd;
    core_node *node;

    if (core__unlikely(((uintptr_t)record->grad | (uintptr_t)record->written |
                        (uintptr_t)record->hooks |
                        (uintptr_t)record->accumulator |
                        record->retains_grad) != 0))
        core__autograd_strip(tensor);
    node = record->grad_fn;
    tensor->autograd = NULL;
    core__small_free_of(self, record, sizeof *record);
    return node;
}

/* Releases the node last, in a tail call: its chain may be long. */
void core__autograd_destroy(core__thread *self, core_tensor *tensor)
{
    core_node *node = take(self, tensor);

    if (core__unlikely(!core__kept_keep(self, tensor)))
        core__tensor_take_apart(tensor, self);
    if (node && core__node_drop_made(node))
        core__node_destroy(node);
}

/* For a tensor that has a record or whose base may have one, or a thread
 * without a small-block cache. */
static core_status __attribute__((noinline))
set_history(core_tensor *tensor, core_node *node, uint32_t output)
{
    core__autograd *record = tensor->autograd;

    if (!record) {
        record = record_new(tensor);
        if (core__unlikely(!record)) {
            core__node_release(node);
            return core__error_memory(sizeof *record);
        }
    }
    core__node_release(record->grad_fn);
    record->grad_fn = node;
    record->output = output;
    if (tensor->base && tensor->base->autograd)
        record->generation = tensor->base->autograd->generation;
    tensor->keys |= CORE__KEYS_REQUIRES_GRAD;
    return CORE_OK;
}

/* The common case, a new result, calls no other function, so that no register
 * is saved. */
core_status core__history_set(core_tensor *tensor, core_node *node,
                              uint32_t output)
{
    core__thread *self = core__self_pointer;
    core__autograd *record;

    if (core__unlikely(!self || tensor->autograd || tensor->base))
        return set_history(tensor, node, output);
    record = core__small_take(self, sizeof *record);
    if (core__unlikely(!record))
        return set_history(tensor, node, output);
    *record = (core__autograd){.grad_fn = node, .output = output};
    tensor->autograd = record;
    tensor->keys |= CORE__KEYS_REQUIRES_GRAD;
    return CORE_OK;
}

core_status core__history_twin(core_node *node, uint32_t output,
                               core_tensor **tensor)
{
    core_tensor *twin;
    core_status status;

    CORE_TRY(core__tensor_shallow(*tensor, &twin));
    twin->keys &= ~CORE__KEYS_REQUIRES_GRAD;
    core__node_retain(node);
    status = core__history_set(twin, node, output);
    if (status != CORE_OK) {
        core__tensor_release(twin);
        return status;
    }
    core__tensor_release(*tensor);
    *tensor = twin;
    return CORE_OK;
}

core_status core__history_replace(core_tensor *tensor, core_node *node,
                                  uint32_t output)
{
    core__autograd *record;
    core_status status = core__autograd_record(tensor, &record);

    if (status != CORE_OK) {
        core__node_release(node);
        return status;
    }
    /* Retained gradients belong to the tensor as it is now. */
    if (record->retains_grad)
        status = core__retained_move(tensor, node, output);
    core__node_release(record->grad_fn);
    record->grad_fn = node;
    record->output = output;
    record->generation++;
    tensor->keys |= CORE__KEYS_REQUIRES_GRAD;
    /* Nodes may have saved the tensor itself while it was a leaf. */
    if (tensor->flags & CORE__TENSOR_SAVED) {
        core__node_forget(node, tensor);
        tensor->flags &= (uint16_t)~CORE__TENSOR_SAVED;
    }
    return status;
}

core_status core__history_relayout(core_tensor *tensor, core_node *node)
{
    core_status status = core__history_replace(tensor, node, 0);

    /* A view's elements are the base's, which did not change, so it is up to
     * date. */
    if (status == CORE_OK && tensor->base && tensor->base->autograd)
        tensor->autograd->generation = tensor->base->autograd->generation;
    return status;
}

void core__history_drop(core_tensor *tensor)
{
    core__autograd *record = tensor->autograd;

    tensor->keys &= ~CORE__KEYS_REQUIRES_GRAD;
    if (!record)
        return;
    /* If it retains its gradient, it still gets that from the old node. */
    core__node_release(record->grad_fn);
    record->grad_fn = NULL;
    record->output = 0;
}

core_node *core__accumulator_if_any(const core_tensor *leaf)
{
    core__autograd *record = leaf->autograd;
    core_node *node;

    if (!record)
        return NULL;
    core__spin_lock(&record->lock);
    node = record->accumulator;
    if (node && node->released)
        node = NULL;
    /* A count of 0 means that it is being destroyed. */
    if (node && atomic_fetch_add_explicit(&node->references, 1,
                                          memory_order_relaxed) == 0) {
        atomic_store_explicit(&node->references, 0, memory_order_relaxed);
        node = NULL;
    }
    core__spin_unlock(&record->lock);
    return node;
}

/* Its sizes are up to date: core__autograd_relayout keeps them so. */
static inline void revive_parked(core_node *node, core_tensor *leaf)
{
    node->released = false;
    atomic_store_explicit(&node->references, 1, memory_order_relaxed);
    core__tensor_retain(leaf);
}

/* With the record locked: returns the accumulator with one more reference, or
 * NULL if there is none that can get one. */
static core_node *revive(core__autograd *record, core_tensor *leaf)
{
    core_node *node = record->accumulator;

    if (!node)
        return NULL;
    if (node->released) {
        revive_parked(node, leaf);
        core__node_place(node);
        return node;
    }
    if (core__likely(atomic_fetch_add_explicit(&node->references, 1,
                                               memory_order_relaxed) != 0))
        return node;
    atomic_store_explicit(&node->references, 0, memory_order_relaxed);
    return NULL;
}

static core_status __attribute__((noinline))
make_accumulator(core__autograd *record, core_tensor *leaf,
                 core_node **out_node)
{
    core_node *node;

    CORE_TRY(core__accumulate_new(leaf, out_node));
    /* Another thread may have been faster. */
    core__spin_lock(&record->lock);
    node = revive(record, leaf);
    if (!node)
        record->accumulator = *out_node;
    core__spin_unlock(&record->lock);
    if (node) {
        core__node_release(*out_node);
        *out_node = node;
    }
    return CORE_OK;
}

/* before: returned by core__spin_try. */
static core_status __attribute__((noinline))
accumulator_slowly(core_tensor *leaf, core_node **out_node, uint8_t before)
{
    core__autograd *record = leaf->autograd;
    core_node *node;

    if (before)
        core__spin_wait(&record->lock, before);
    node = revive(record, leaf);
    core__spin_unlock(&record->lock);
    *out_node = node;
    return node ? CORE_OK : make_accumulator(record, leaf, out_node);
}

static core_status __attribute__((noinline))
accumulator_of_none(core_tensor *leaf, core_node **out_node)
{
    core__autograd *record;

    CORE_TRY(core__autograd_record(leaf, &record));
    return core__accumulator(leaf, out_node);
}

/* The common case, a parked node, calls no other function. */
core_status core__accumulator(core_tensor *leaf, core_node **out_node)
{
    core__autograd *record = leaf->autograd;
    core_node *node;
    uint8_t before;

    if (core__unlikely(!record))
        return accumulator_of_none(leaf, out_node);
    before = core__spin_try(&record->lock);
    if (core__unlikely(before != 0))
        return accumulator_slowly(leaf, out_node, before);
    node = record->accumulator;
    if (core__unlikely(!node || !node->released || !leaf->device->synchronous))
        return accumulator_slowly(leaf, out_node, 0);
    revive_parked(node, leaf);
    core__spin_unlock(&record->lock);
    *out_node = node;
    return CORE_OK;
}

core_status core__gradient_edge(core_tensor *tensor, core__edge *out_edge)
{
    core__autograd *record = tensor->autograd;

    out_edge->input = 0;
    out_edge->reserved = 0;
    if (core__unlikely(tensor->base != NULL) && core__view_is_stale(tensor)) {
        out_edge->node = NULL;
        CORE_TRY(core__view_regenerate(tensor));
        record = tensor->autograd;
    }
    if (record && record->grad_fn) {
        core__node_retain(record->grad_fn);
        out_edge->node = record->grad_fn;
        out_edge->input = record->output;
        return CORE_OK;
    }
    out_edge->node = NULL;
    if (!core__tensor_requires_grad(tensor))
        return CORE_OK;
    return core__accumulator(tensor, &out_edge->node);
}
