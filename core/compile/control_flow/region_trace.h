/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region_trace.h: recording of regions (region.h). */

#ifndef CORE_COMPILE_REGION_TRACE_H
#define CORE_COMPILE_REGION_TRACE_H

#include "compile/control_flow/region_random.h"
#include "compile/record/trace.h"

#include <libcore/autograd.h>

/* A function of core_cond or core_while, and what it is called with. */
typedef struct core__region {
    const char *name; /* "core_cond" */
    const char *part; /* "then_function" */
    core_tensor_function function;
    void *context;
    core_tensor *const *inputs;
    size_t ninputs, noutputs;
    bool row_major; /* the inputs are, when it is called */
    bool decides;   /* the condition of a loop, whose result has no gradient */
} core__region;

/* What a region reads besides its inputs. */
typedef struct core__region_captured {
    uint32_t *values;      /* of the outer program; in its arena */
    core_tensor **tensors; /* what they are the values of, with references */
    uint32_t *versions;    /* of region_saved.h; NULL: not noted */
    uint32_t count;
} core__region_captured;

/* A node with regions while it is recorded. */
typedef struct core__region_node {
    core__trace *trace; /* locked by the caller */
    const char *name;
    core_program *regions[CORE__REGIONS_MAX]; /* with references */
    uint32_t nregions;
    core__program_argument *arguments;
    core__region_captured captured[CORE__REGIONS_MAX];
    core_tensor **sources; /* what its regions read besides their inputs and has
                            * a gradient; with references */
    uint32_t nsources;
    /* The state of generators (region_random.h), with a reference: with which
     * the node begins, or which core__region_node_add returns; NULL: neither. */
    core_tensor *state;
    bool replays, keeps;
    bool differentiates;             /* autograd may record the node */
    bool inside;                     /* autograd inside of core_vmap does */
    const core__program_type *types; /* of the outputs; NULL: as of a region */
    core_tensor **outputs;           /* set by core__region_node_add */
    size_t noutputs;
} core__region_node;

/* Reads the inputs. */
core_status core__region_node_begin(core__region_node *node,
                                    core_tensor *const *inputs, size_t ninputs);
core_status core__region_node_predicate(core__region_node *node,
                                        core_tensor *predicate);
core_status core__region_node_state(core__region_node *node,
                                    core_tensor *state);
/* Records a region.  It may be called in grad mode. */
core_status core__region_node_record(core__region_node *node,
                                     const core__region *region,
                                     uint32_t index);
/* Appends the node. */
core_status core__region_node_add(core__region_node *node);
/* Releases what it refers to. */
void core__region_node_drop(core__region_node *node);

/* Makes the outputs of a recorded branch or loop results of a node of the graph.
 * functions: the two that were recorded.  predicate: of a branch; else NULL. */
core_status core__region_differentiate(const core__region_node *recorded,
                                       const core__region *functions,
                                       core_tensor *predicate,
                                       core_tensor **outputs);

/* Records core_cond.  state: with which it begins, or NULL. */
core_status core__region_branch(const core__region *branches,
                                core_tensor *predicate, core_tensor *state,
                                core_tensor **outputs);
/* Records core_while, or core_cond if predicate is not NULL, of which there is a
 * gradient inside of core_vmap.  out_node: for core__region_node_drop, also after
 * an error. */
core_status core__region_record_inside(const core__region *functions,
                                       core_tensor *predicate,
                                       core_tensor **outputs,
                                       core__region_node *out_node);
/* Runs or records a node that is the gradient of a loop.  functions: its three
 * regions.  tensors: its inputs.  state: with which it begins, or NULL; random:
 * the generators, which have that state in a run. */
core_status core__region_loop_backward(const core__region *functions,
                                       core_tensor *const *tensors,
                                       core_tensor *state,
                                       const core__region_random *random,
                                       core_tensor **outputs);

/* Computes the gradient of a loop with these functions, as a run does.  Outputs
 * of which there is no gradient are NULL. */
core_status core__region_loop_gradient(const core__region *functions,
                                       core_tensor *const *tensors,
                                       const core__region_random *random,
                                       core_tensor **outputs);

/* The state of a loop before its first turn: the inputs, row-major. */
core_status core__region_loop_begin(core_tensor *const *inputs, size_t ninputs,
                                    core_tensor **state);
/* True if autograd records the operators of the regions that run: a derivative is
 * computed by differentiating them. */
bool core__region_is_differentiated(void);
/* Calls the condition: whether there is another turn. */
core_status core__region_loop_decide(const core__region *condition,
                                     core_tensor *const *state, bool *out_more);
/* Calls the body, whose outputs replace the state. */
core_status core__region_loop_step(const core__region *body,
                                   core_tensor **state);
bool core__region_is_row_major(const core_tensor *tensor);
/* Makes the tensor row-major and the only one that refers to its memory. */
core_status core__region_make_own(core_tensor **tensor);

/* Calls the function.  The outputs are row-major and have memory of their
 * own. */
core_status core__region_call(const core__region *region,
                              core_tensor *const *inputs,
                              core_tensor **outputs);
/* The error of a function that leaves this changed when it returns. */
core_status core__region_left_error(const core__region *region,
                                    const char *changed);
/* Records it as a region of the node. */
core_status core__region_trace(core__region_node *node,
                               const core__region *region, uint32_t index);

/* Runs a node with regions.  devices: those of this run, by index.  tensors: by
 * value.  outputs: of the node. */
core_status core__region_run(const core_program *program,
                             const core__program_node *node,
                             core_device *const *devices,
                             core_tensor *const *tensors,
                             core_tensor **outputs);

#endif
