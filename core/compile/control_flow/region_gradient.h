/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region_gradient.h: the gradient of a recorded branch or loop (region.h) while it
 * is recorded. */

#ifndef CORE_COMPILE_REGION_GRADIENT_H
#define CORE_COMPILE_REGION_GRADIENT_H

#include "compile/control_flow/region_saved.h"

/* What a region of the gradient differentiates. */
typedef struct core__region_differentiated {
    const core__region *function;
    const bool *wanted;    /* by input of the function */
    core_tensor **sources; /* others, which the function reads by itself */
    size_t nwanted, nsources;
    bool *depend; /* by output, or NULL: receives true for those that depend on
                   * something wanted */
    core__region_saved *saved; /* or NULL: receives what the graph saves */
} core__region_differentiated;

/* What the node of the graph has. */
typedef struct core__region_gradient {
    core__region_node node; /* its inputs are those of the function; the
                             * gradients of its outputs are appended */
    bool branch;
    uint32_t ninputs, nwanted;
    core__region_saved saved; /* others: until the node is recorded */
    uint32_t nothers;         /* that the node has saved, behind the inputs */
    bool *depend;    /* by output: it requires grad, in either branch */
    bool computed[]; /* by input: the node computes its gradient */
} core__region_gradient;

/* The function of such a region; context: a core__region_differentiated.  inputs:
 * those of the function, and the gradients of its floating outputs. */
core_status core__region_gradient_call(void *context,
                                       core_tensor *const *inputs,
                                       size_t ninputs, core_tensor **gradients,
                                       size_t *ngradients);
/* Makes the gradient of a function that was recorded.  A loop computes the
 * gradients of everything that a turn passes to the next. */
core_status core__region_gradient_new(const core__region_node *recorded,
                                      const core__region *function, bool branch,
                                      core__region_gradient **out);
/* Takes condition and body from the loop. */
core_status core__region_gradient_share_loop(core__region_gradient *g,
                                             const core__region_node *loop);
/* UNSUPPORTED unless a gradient draws what the function drew. */
core_status core__region_gradient_check_draws(const core__region *function,
                                              const core_program *region,
                                              const core_program *gradient);
/* Appends the node that computes the gradients, `made`.  out_node: with the
 * arguments of the node, and the references of g. */
core_status core__region_gradient_add(const core__region_gradient *g,
                                      core_tensor *const *grads, size_t ngrads,
                                      core_tensor **made,
                                      core__region_node *out_node);
/* context: a core__region_gradient. */
void core__region_gradient_drop(void *context);

#endif
