/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region_trace.h: recording of regions (region.h). */

#ifndef CORE_COMPILE_REGION_TRACE_H
#define CORE_COMPILE_REGION_TRACE_H

#include "compile/region.h"
#include "compile/trace.h"

#include <libcore/autograd.h>

/* A function of core_cond or core_while, and what it is called with. */
typedef struct core__region {
    const char *name; /* "core_cond" */
    const char *part; /* "then_function" */
    core_tensor_function function;
    void *context;
    core_tensor *const *inputs;
    size_t ninputs, noutputs;
    bool row_major;      /* the inputs are, when it is called */
    bool differentiates; /* it computes a gradient, which what it reads besides
                          * its inputs cannot have */
} core__region;

typedef struct core__region_captured {
    uint32_t *values; /* of the outer program; in its arena */
    uint32_t count;
} core__region_captured;

/* A node with regions while it is recorded. */
typedef struct core__region_node {
    core__trace *trace; /* locked by the caller */
    const char *name;
    core_program *regions[CORE__REGIONS];
    core__program_argument *arguments;
    core_tensor **outputs; /* set by core__region_node_add */
    size_t noutputs;
} core__region_node;

/* Reads the inputs. */
core_status core__region_node_begin(core__region_node *node,
                                    core_tensor *const *inputs, size_t ninputs);
core_status core__region_node_predicate(core__region_node *node,
                                        core_tensor *predicate);
/* Records a region. */
core_status core__region_node_record(core__region_node *node,
                                     const core__region *region,
                                     uint32_t index);
/* Appends the node, which takes over the regions. */
core_status core__region_node_add(core__region_node *node);
/* Releases regions that no node has. */
void core__region_node_drop(core__region_node *node);

/* Makes the outputs of a recorded branch results of a node of the graph. */
core_status core__region_differentiate(const core__region *branches,
                                       core_tensor *predicate,
                                       core_tensor **outputs);

/* Calls the function.  The outputs are row-major and have memory of their
 * own. */
core_status core__region_call(const core__region *region,
                              core_tensor *const *inputs,
                              core_tensor **outputs);
/* Records it; the caller owns *out_program. */
core_status core__region_trace(core__trace *outer, const core__region *region,
                               core__region_captured *out_captured,
                               core_program **out_program);

#endif
