/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* compiled_node.h: training through a compiled function.
 *
 * A call runs the forward program and gives the roots one node of the graph,
 * whose backward runs a backward program.  The node saves what that program
 * gets, with versions, and the inputs of the call.
 *
 * Where the node has no program, the function is called again instead, in the
 * state of the call, and its graph is differentiated: for gradients that
 * themselves have a graph (CORE_CREATE_GRAPH), and for sets of gradients for
 * which no backward was recorded. */

#ifndef CORE_COMPILE_COMPILED_NODE_H
#define CORE_COMPILE_COMPILED_NODE_H

#include "compile/compiled/compiled.h"
#include "compile/compiled/partition.h"

struct core__training {
    core_program *joint;
    core__joint described; /* outputs and roots are of the forward program */
    core__joint recorded;  /* as it was before the partition */
    uint64_t budget;       /* recompute_budget */
    core__partition partition; /* its forward is the program of the entry */
    core__backward *_Atomic *backwards; /* by mask; NULL: not made yet */
    uint32_t forward_nodes, backward_nodes, recomputed;
    bool random; /* the function may draw random numbers */
    /* A derivative of its gradients was computed: later calls are eager. */
    _Atomic bool second_derivative;
    _Atomic uint64_t eager_calls, backward_calls, repeated_calls;
};

/* Takes over the joint program.  *out_forward: the forward program, which the
 * caller owns. */
core_status core__training_new(core_program *joint,
                               const core__joint *described, uint64_t budget,
                               core_program **out_forward,
                               core__training **out_training);
void core__training_free(core__training *training);

/* Calls of its entry that called the function as it is.  Accepts NULL. */
uint64_t core__training_eager_calls(const core__training *training);
/* Compares backward programs.  False: they differ, and text says where.
 * Accepts NULL. */
bool core__training_equal(core__training *a, core__training *b, char *text,
                          size_t size);

/* Calls the function of an entry. */
core_status core__training_call(core_compiled *compiled,
                                core__compiled_entry *entry,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs);

#endif
