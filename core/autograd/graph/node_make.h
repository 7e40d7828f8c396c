/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* node_make.h: core__node_new as an inline function, for the code that records
 * operators. */

#ifndef CORE_AUTOGRAD_NODE_MAKE_H
#define CORE_AUTOGRAD_NODE_MAKE_H

#include "autograd/graph/saved.h"
#include "base/memory.h"

/* The caller also initializes edges and saved slots. */
static inline core_node *core__node_new_bare(core__thread *self,
                                             uint32_t nedges, uint32_t nsaved,
                                             uint32_t ninputs, size_t extra,
                                             void **out_extra)
{
    size_t size =
        sizeof(core_node) + nedges * sizeof(core__edge) +
        nsaved * sizeof(core__saved) +
        ninputs * (sizeof(core__tensor_meta) + sizeof(core_tensor *)) + extra;
    core_node *node =
        size < UINT32_MAX ? core__small_alloc_of(self, size) : NULL;
    char *rest;

    if (core__unlikely(!node))
        return NULL;
    atomic_init(&node->references, 1);
    atomic_init(&node->lock, 0);
    node->released = false;
    node->reserved = 0;
    node->size = (uint32_t)size;
    node->needed = 0;
    node->sequence = self->sequence++;
    node->nedges = nedges;
    node->ninputs = ninputs;
    node->nsaved = nsaved;
    node->users = 0;
    atomic_init(&node->hooks, NULL);
    node->stream = NULL;
    node->gradient = NULL;
    rest = (char *)(node + 1);
    node->edges = (core__edge *)(void *)rest;
    rest += nedges * sizeof(core__edge);
    node->saved = (core__saved *)(void *)rest;
    rest += nsaved * sizeof(core__saved);
    node->inputs = (core__tensor_meta *)(void *)rest;
    rest += ninputs * sizeof(core__tensor_meta);
    node->slot.grads = (core_tensor **)(void *)rest;
    rest += ninputs * sizeof(core_tensor *);
    atomic_init(&node->slot.task, NULL);
    for (uint32_t i = 0; i < ninputs; i++)
        node->slot.grads[i] = NULL;
    *out_extra = rest;
    return node;
}

static inline core_node *core__node_new_inline(uint32_t nedges, uint32_t nsaved,
                                               uint32_t ninputs, size_t extra,
                                               void **out_extra)
{
    core_node *node = core__node_new_bare(core__thread_self(), nedges, nsaved,
                                          ninputs, extra, out_extra);

    if (core__unlikely(!node))
        return NULL;
    for (uint32_t i = 0; i < nedges; i++)
        node->edges[i].node = NULL;
    for (uint32_t i = 0; i < nsaved; i++)
        node->saved[i].kind = CORE__SAVED_NONE;
    return node;
}

#endif
