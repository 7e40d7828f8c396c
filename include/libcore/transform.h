/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* transform.h: a function of one sample applied to many at once.
 *
 * Inside core_vmap the function sees tensors of one sample.  Each operator that
 * it calls computes all samples in one call where it has a rule for that, and
 * otherwise runs once for each sample (core_vmap_loops counts these).
 *
 * Autograd works on both sides.  core_vjp, core_jvp, core_grad and
 * core_backward inside the function give the derivatives of each sample; a
 * tensor that requires grad outside gets the gradient of all of them.  Calls of
 * core_vmap nest.
 *
 * UNSUPPORTED, with the operator's name: results whose sizes depend on the
 * elements (core_nonzero), reading elements (core_tensor_item), and writing
 * results of mapped tensors to a tensor that is not mapped.
 *
 * Every function here is thread-safe.  The tensors that the function receives
 * belong to the call and to its thread: INVALID_ARGUMENT if one is used in
 * another thread or after the call has returned.
 *
 * The semantics are those of torch.func.vmap, and of a loop over the
 * samples. */

#ifndef LIBCORE_TRANSFORM_H
#define LIBCORE_TRANSFORM_H

#include "autograd.h"
#include "dispatch.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In in_dims and out_dims: all samples share the tensor. */
#define CORE_VMAP_NOT_MAPPED INT64_MIN

/* What random operators inside the function do. */
typedef enum core_vmap_randomness {
    CORE_VMAP_RANDOM_ERROR = 0,    /* REFUSED */
    CORE_VMAP_RANDOM_SAME = 1,     /* all samples draw the same numbers */
    CORE_VMAP_RANDOM_DIFFERENT = 2 /* each sample draws its own */
} core_vmap_randomness;

/* Options of core_vmap.  Set struct_size; 0 elsewhere is the default. */
typedef struct core_vmap_options {
    uint32_t struct_size;
    uint32_t randomness; /* core_vmap_randomness */
    /* For each input the dimension of the samples, counted from the end if it
     * is negative, or CORE_VMAP_NOT_MAPPED.  NULL: 0 for all. */
    const int64_t *in_dims;
    /* For each output the dimension in which the samples are returned, in the
     * same way.  CORE_VMAP_NOT_MAPPED: the output must not depend on the
     * sample, and is returned once.  NULL: 0 for all. */
    const int64_t *out_dims;
    /* Samples that are computed at once, to limit memory; 0: all.  The function
     * is called once for each chunk; an output that is not mapped is that of
     * the first one. */
    int64_t chunk;
} core_vmap_options;

/* Calls a function of one sample for all samples.  function: receives ninputs
 * inputs without the dimension of the samples, and must store noutputs outputs,
 * at least 1.  user: its context, borrowed for the call, like the arrays of
 * options.  options: NULL for the defaults.  inputs: borrowed; at least one is
 * mapped, and all mapped ones have the same number of samples, at least 1.
 * outputs: belong to the caller; NULL on failure.  An output that does not
 * depend on the sample is repeated.
 *
 * Errors are those of the function, and INDEX for a dimension that a tensor
 * does not have, SHAPE for different numbers of samples or none, REFUSED for
 * random numbers without the option randomness, and INVALID_ARGUMENT for the
 * rest. */
core_status core_vmap(core_tensor_function function, void *user,
                      const core_vmap_options *options,
                      core_tensor *const *inputs, size_t ninputs,
                      core_tensor **outputs, size_t noutputs);

/* Returns how many calls of an operator core_vmap has split into one for each
 * sample, because it has no rule for batches, in all threads since the process
 * started.  NULL: of all operators. */
uint64_t core_vmap_loops(const core_operator *op);

#ifdef __cplusplus
}
#endif
#endif
