/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Nodes: allocation, release of saved values, and destruction without
 * recursion. */

#include "autograd/graph/node.h"

#include "autograd/graph/accumulator.h"
#include "autograd/graph/custom.h"
#include "autograd/graph/hooks.h"
#include "autograd/graph/node_make.h"
#include "autograd/graph/view.h"
#include "base/thread.h"
#include "device/stream.h"

#include <string.h>

core_node *core__node_new(uint32_t nedges, uint32_t nsaved, uint32_t ninputs,
                          size_t extra, void **out_extra)
{
    void *rest;

    return core__node_new_inline(nedges, nsaved, ninputs, extra,
                                 out_extra ? out_extra : &rest);
}

/* Drops the saved values, which nothing uses any more. */
void core__node_drop_saved(core_node *node)
{
    for (uint32_t i = 0; i < node->nsaved; i++)
        core__saved_release(&node->saved[i]);
    if (node->kind == CORE__NODE_SLICES)
        core__slices_release_saved(node);
    else if (node->kind == CORE__NODE_CUSTOM)
        core__custom_function_release_context(node);
}

/* Whether only numbers and sizes are saved, so that there is nothing to
 * release.  Called with the lock held, for a node that is not released. */
static bool saved_only_numbers(const core_node *node)
{
    for (uint32_t i = 0; i < node->nsaved; i++)
        if (node->saved[i].kind > CORE__SAVED_VALUE)
            return false;
    return node->kind == CORE__NODE_OPERATOR;
}

/* A node that saved no tensor can run again, for example the cast of a weight
 * that several graphs of an autocast region share. */
void core__node_release_saved(core_node *node)
{
    bool drop = false;

    core__byte_lock(&node->lock);
    /* Once it is released, another thread may be dropping the values that
     * saved_only_numbers reads. */
    if (!node->released && !saved_only_numbers(node)) {
        drop = node->users == 0;
        node->released = true;
    }
    core__byte_unlock(&node->lock);
    if (core__likely(drop))
        core__node_drop_saved(node);
}

void core__node_set_stream_slow(core_node *node)
{
    for (uint32_t i = 0; i < node->ninputs; i++) {
        core_device *device = node->inputs[i].device;

        if (!device || device->synchronous)
            continue;
        node->stream = core_stream_retain(core__stream_current(device));
        return;
    }
}

/* Frees what only some nodes have: those that are not an operator's on a
 * synchronous device. */
static void __attribute__((noinline)) destroy_rest(core_node *node)
{
    if (node->kind == CORE__NODE_CUSTOM)
        core__custom_function_destroy(node);
    else if (node->kind == CORE__NODE_SLICES)
        core__slices_destroy(node);
    if (node->hooks)
        core__node_hooks_destroy(node);
    core_stream_release(node->stream);
}

/* Frees one node.  Nodes that only it referenced, or that released tensors
 * referenced, are put on the pending list. */
static inline void destroy_one(core__thread *self, core_node *node,
                               core_node **pending)
{
    const core__edge *edge = node->edges, *end = edge + node->nedges;

    for (uint32_t i = 0; i < node->nsaved; i++)
        if (node->saved[i].kind > CORE__SAVED_VALUE)
            core__saved_release(&node->saved[i]);
    for (; edge != end; edge++) {
        core_node *next = edge->node;

        if (!next)
            continue;
        if (next->kind == CORE__NODE_ACCUMULATE) {
            if (core__node_unref(next))
                core__accumulator_park(next);
        } else if (core__node_unref_inner(next)) {
            next->dead = *pending;
            *pending = next;
        }
    }
    if (core__unlikely((node->kind | (uintptr_t)node->stream |
                        (uintptr_t)atomic_load_explicit(
                            &node->hooks, memory_order_relaxed)) != 0))
        destroy_rest(node);
    core__small_free_of(self, node, node->size);
}

/* A node that dies while another one is being freed in this thread is put on
 * that one's list: `destroying` of the thread points to it. */
core_status core__node_released_error(const core_node *node)
{
    return core__error(CORE_ERROR_AUTOGRAD, "%s " CORE__RAN_ALREADY,
                       node->name);
}

void core__node_destroy(core_node *node)
{
    core__thread *self = core__thread_self();
    core_node *pending = NULL;
    core_node **outer = self->destroying;

    if (node->kind == CORE__NODE_ACCUMULATE) {
        core__accumulator_park(node);
        return;
    }
    if (outer) {
        node->dead = *outer;
        *outer = node;
        return;
    }
    self->destroying = &pending;
    for (;;) {
        destroy_one(self, node, &pending);
        node = pending;
        if (core__likely(!node))
            break;
        pending = node->dead;
    }
    self->destroying = NULL;
}

/* ---------------------------------------------------------------- cycles -- */

typedef struct visited {
    core_node **nodes; /* open addressing, capacity a power of two */
    core_node **stack;
    size_t capacity;
    size_t count;
} visited;

static bool visited_add(visited *set, core_node *node)
{
    size_t mask = set->capacity - 1;
    size_t i = ((uintptr_t)node >> 6) * UINT64_C(0x9e3779b97f4a7c15) & mask;

    for (; set->nodes[i]; i = (i + 1) & mask)
        if (set->nodes[i] == node)
            return false;
    set->nodes[i] = node;
    set->count++;
    return true;
}

static bool visited_grow(visited *set)
{
    visited larger = {.capacity = set->capacity ? set->capacity * 2 : 64};

    larger.nodes = core__alloc_zero(larger.capacity * sizeof *larger.nodes);
    larger.stack = core__alloc(larger.capacity * sizeof *larger.stack);
    if (!larger.nodes || !larger.stack) {
        core__free(larger.nodes);
        core__free(larger.stack);
        return false;
    }
    for (size_t i = 0; i < set->capacity; i++)
        if (set->nodes[i])
            visited_add(&larger, set->nodes[i]);
    if (set->capacity)
        memcpy(larger.stack, set->stack,
               set->capacity / 2 * sizeof *larger.stack);
    core__free(set->nodes);
    core__free(set->stack);
    *set = larger;
    return true;
}

static void drop_saved(core_node *node, core_tensor *tensor)
{
    core__byte_lock(&node->lock);
    for (uint32_t i = 0; !node->released && i < node->nsaved; i++) {
        core__saved *saved = &node->saved[i];

        if (saved->kind == CORE__SAVED_TENSOR &&
            saved->value.u.tensor == tensor) {
            /* Not the last reference: the caller has one through the root. */
            core__tensor_release(tensor);
            saved->value.u.tensor = NULL;
            saved->kind = CORE__SAVED_STALE;
        }
    }
    core__byte_unlock(&node->lock);
}

void core__node_break_cycle(core_node *root, core_tensor *tensor)
{
    visited set = {0};
    size_t depth = 0;

    if (!visited_grow(&set))
        return; /* the cycle stays and leaks memory, without other harm */
    visited_add(&set, root);
    set.stack[depth++] = root;
    while (depth) {
        core_node *node = set.stack[--depth];

        drop_saved(node, tensor);
        for (uint32_t i = 0; i < node->nedges; i++) {
            core_node *next = node->edges[i].node;

            if (!next || next->kind == CORE__NODE_ACCUMULATE)
                continue;
            if (set.count * 2 >= set.capacity && !visited_grow(&set))
                goto done;
            if (visited_add(&set, next))
                set.stack[depth++] = next;
        }
    }
done:
    core__free(set.nodes);
    core__free(set.stack);
}
