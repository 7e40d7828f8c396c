/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* batched_graph.h: the derivative of a node inside core_vmap by a graph outside of
 * the call.
 *
 * What the node computes has been computed outside, from leaves that stand for its
 * inputs, as autograd there records it.  The backward of the node differentiates
 * that graph.  Other results outside are not part of it. */

#ifndef CORE_COMPILE_BATCHED_GRAPH_H
#define CORE_COMPILE_BATCHED_GRAPH_H

#include "compile/control_flow/batched_region.h"

/* leaves: one per input of the node; those that require grad have samples in
 * dimension 0.  made: one per output. */
typedef struct core__batched_graph {
    core__trace *trace;
    uint64_t level; /* of the call */
    size_t nleaves, nmade;
    core_tensor **leaves, **made; /* owned */
} core__batched_graph;

/* The tensors are NULL, and become owned. */
core_status core__batched_graph_new(core__trace *trace, uint64_t level,
                                    size_t nleaves, size_t nmade,
                                    core__batched_graph **out);
/* Accepts NULL. */
void core__batched_graph_drop(void *context);
/* Makes the outputs results of a node inside of the call.  Takes over the graph,
 * also on failure. */
core_status core__batched_graph_record(core__batched_graph *graph,
                                       const char *name,
                                       core_tensor *const *inputs,
                                       core_tensor **outputs);
/* UNSUPPORTED unless the thread is in the call and records the program. */
core_status core__batched_check_call(const core__trace *trace, uint64_t level,
                                     const char *name);

#endif
