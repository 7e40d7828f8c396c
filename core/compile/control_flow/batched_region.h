/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* batched_region.h: branches and loops that are recorded inside core_vmap.
 *
 * A region computes all samples: its inputs are what the batched inputs hold, with
 * the samples in dimension 0, and it calls the function with tensors that are
 * batched again.  It is recorded outside of the call of core_vmap, as the
 * operators of batched tensors are, so autograd outside sees it.  Which outputs
 * depend on the sample is found out by recording, again if one more does. */

#ifndef CORE_COMPILE_BATCHED_REGION_H
#define CORE_COMPILE_BATCHED_REGION_H

#include "compile/control_flow/region_trace.h"
#include "tensor/batched.h"

/* A branch or loop inside a call of core_vmap. */
typedef struct core__batched {
    const core__region *functions; /* as core_vmap calls them */
    const core__batching *batching;
    core__batching_state
        inside; /* the thread's, in the function of core_vmap */
    bool loop;
    bool differentiates; /* autograd inside does */
    bool nested;         /* and the call is inside of another one */
    bool *mapped;        /* by input: it depends on the sample */
    bool *results;       /* by output; of a loop: those of the inputs */
    bool again;          /* one more output does */
    bool graph;          /* failed: autograd inside differentiates it */
} core__batched;

/* What a tensor of the function stands for.  mapped: with the samples in
 * dimension 0. */
core_status core__batched_hold(const core__batching *batching,
                               core_tensor *tensor, bool mapped,
                               core_tensor **out);
core_status core__batched_wrap(const core__batching *batching,
                               core_tensor *held, bool mapped,
                               core_tensor **out);
/* Calls a function as core_vmap does, with what its inputs hold. */
core_status core__batched_call(core__batched *b, uint32_t index,
                               core_tensor *const *inputs,
                               core_tensor **outputs, size_t *noutputs);
/* Gives the outputs a gradient inside of core_vmap (batched_gradient.c).  predicate:
 * of a branch; NULL: a loop.  recorded: it, with these inputs and outputs, outside
 * of the call. */
core_status core__batched_gradient_new(core__batched *b, core_tensor *predicate,
                                       const core__region_node *recorded,
                                       core_tensor *const *held,
                                       void **out_gradient);
/* Takes over the gradient.  outputs: inside of the call. */
core_status core__batched_gradient_record(const core__batched *b,
                                          void *gradient,
                                          core_tensor **outputs);
void core__batched_gradient_drop(void *gradient);

/* Records core_cond, whose predicate is the same for all samples.  *out_inside:
 * it failed because autograd inside of core_vmap would not see it; both functions
 * can be called instead. */
core_status core__batched_branch(const core__region *branches,
                                 core_tensor *predicate, core_tensor **outputs,
                                 bool *out_inside);
/* Records core_while. */
core_status core__batched_loop(const core__region *functions,
                               core_tensor **outputs);

#endif
