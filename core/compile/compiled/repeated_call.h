/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* repeated_call.h: what a call of a compiled function leaves for its backward
 * besides saved tensors: all that it takes to call the function again.
 *
 * If the gradients get a graph, the function's own graph, which that call makes,
 * is kept.  Without compilation all backwards of the call would share its nodes
 * with the gradients, so what one of them releases is released for all. */

#ifndef CORE_COMPILE_REPEATED_CALL_H
#define CORE_COMPILE_REPEATED_CALL_H

#include "compile/compiled/compiled_node.h"

#include "autograd/graph/saved.h"
#include "base/thread_modes.h"
#include "random/generator.h"

/* The tensors of a call that was made again, with references. */
typedef struct core__repeated_call {
    uint32_t count;
    core_tensor **outputs; /* behind the inputs */
    core_tensor *inputs[];
} core__repeated_call;

typedef struct core__call_state {
    core_compiled *compiled;     /* held */
    core__compiled_entry *entry; /* with a reference */
    core__thread_modes modes;
    uint32_t ninputs;
    core__generators *random; /* NULL: the function draws no numbers */
    uint32_t *versions;       /* of hidden inputs */
    core__repeated_call *_Atomic repeated; /* whose graph is kept; or NULL */
    core__saved inputs[];
} core__call_state;

/* Before the call.  Freed by core__call_state_free, also after an error. */
core_status core__call_state_new(core_compiled *compiled,
                                 core__compiled_entry *entry, size_t ninputs,
                                 core__call_state **out_state);
/* After the call, which may have written some of the tensors. */
core_status core__call_state_tensors(core__call_state *state,
                                     core_tensor *const *inputs,
                                     size_t ninputs);
/* state: a core__call_state, or NULL. */
void core__call_state_free(void *state);

/* Calls the function again and differentiates it.  node: of the call.  keeps: keep
 * the graph, or use the one that is kept.  gradients: by source. */
core_status core__call_differentiate(core_node *node, core__call_state *state,
                                     core_tensor *const *grads, bool keeps,
                                     core_tensor **gradients);
/* Fails if a backward that has ended has released a part of the graph that is
 * kept.  grads: by root. */
core_status core__call_check_graph(const core__call_state *state,
                                   core_tensor *const *grads);
/* At the end of a backward that keeps nothing: releases that part of it. */
core_status core__call_release_graph(const core__call_state *state,
                                     core_tensor *const *grads);

#endif
