/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The node that accumulates into a leaf, parked in the leaf between graphs. */

#include "autograd/graph/accumulator.h"

#include "autograd/graph/hooks.h"
#include "base/memory.h"
#include "device/stream.h"

core_status core__accumulator_new(core_tensor *leaf, core_node **out_node)
{
    core_node *node = core__node_new(0, 0, 1, 0, NULL);

    *out_node = node;
    if (core__unlikely(!node))
        return core__error_memory(sizeof *node);
    node->kind = CORE__NODE_ACCUMULATE;
    node->name = "accumulation of grad";
    node->sequence = CORE__SEQUENCE_ACCUMULATE;
    core__tensor_retain(leaf);
    node->u.leaf = leaf;
    /* The leaf outlives the node and updates this when its sizes change. */
    core__tensor_meta_fill(node->inputs, leaf, leaf->sizes);
    core__node_set_stream(node);
    return CORE_OK;
}

/* For a node with no references left, which cannot get one before it is
 * parked. */
static void __attribute__((noinline)) park_stripped(core_node *node)
{
    if (node->hooks)
        core__node_hooks_destroy(node);
    core_stream_release(node->stream);
    node->stream = NULL;
    core__accumulator_park(node);
}

/* For a node that is not parked because the leaf has another one. */
static void __attribute__((noinline)) discard(core_node *node)
{
    core_tensor *leaf = node->u.leaf;

    core__small_free(node, node->size);
    core__tensor_release(leaf);
}

/* Called with the lock of meta held; releases it. */
static inline void park(core_node *node, core_tensor *leaf,
                        core__autograd_meta *meta)
{
    bool mine = meta->accumulator == node;

    node->released = true;
    core__byte_unlock(&meta->lock);
    if (core__likely(mine))
        core__tensor_release(leaf);
    else
        discard(node);
}

static void __attribute__((noinline))
park_after(core_node *node, uint8_t before)
{
    core_tensor *leaf = node->u.leaf;
    core__autograd_meta *meta = leaf->autograd;

    core__byte_lock_wait(&meta->lock, before);
    park(node, leaf, meta);
}

/* The common case, in which the leaf lives on, calls no other function. */
void core__accumulator_park(core_node *node)
{
    core_tensor *leaf = node->u.leaf;
    core__autograd_meta *meta = leaf->autograd;
    uint8_t before;

    if (core__unlikely(((uintptr_t)atomic_load_explicit(&node->hooks,
                                                        memory_order_relaxed) |
                        (uintptr_t)node->stream) != 0)) {
        park_stripped(node);
        return;
    }
    before = core__byte_trylock(&meta->lock);
    if (core__unlikely(before != 0))
        park_after(node, before);
    else
        park(node, leaf, meta);
}
