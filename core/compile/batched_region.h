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

#include "compile/region_trace.h"

/* Records core_cond, whose predicate is the same for all samples.  *out_inside:
 * it failed because autograd inside of core_vmap would not see it. */
core_status core__batched_branch(const core__region *branches,
                                 core_tensor *predicate, core_tensor **outputs,
                                 bool *out_inside);
/* Records core_while. */
core_status core__batched_loop(const core__region *functions,
                               core_tensor **outputs);

#endif
