/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* functional.h: derivatives of functions.
 *
 * A function computes tensors from tensors by recorded operators
 * (core_tensor_function; grad mode is on while it runs).  It is called with
 * stand-ins for the inputs, which share their content, so that neither the
 * inputs' grads nor their graphs are touched; with CORE_CREATE_GRAPH the
 * answers are differentiable with respect to the inputs themselves.  Inputs
 * that are not floating are passed on as they are, and have no derivative:
 * their answer is NULL.  An output that does not depend on an input has zeros.
 *
 * flags: 0 or CORE_CREATE_GRAPH.  out_… arrays are the caller's, and what is
 * written to them is owned by the caller; all NULL on failure.  *noutputs: how
 * much room there is, 1 at least, then how many there are; 0 on failure, so that
 * it is set anew before another try.  Outputs that are not floating have no
 * derivative: NULL.  INVALID_ARGUMENT for a function that says that it gave more
 * than there is room for. */

#ifndef LIBCORE_FUNCTIONAL_H
#define LIBCORE_FUNCTIONAL_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct core_derivative {
    uint32_t struct_size;
    uint32_t flags;
    core_tensor_function function;
    void *context;
    core_tensor *const *inputs;
    size_t ninputs;
} core_derivative;

/* The product of vectors with the Jacobian: out_gradients[i] = sum over o of
 * vectors[o] * d output o / d input i.  vectors: by output, of its sizes; NULL,
 * or a NULL entry, is 1 for an output of one element.  out_outputs may be NULL
 * if the outputs are not wanted, which are at most CORE_GRADCHECK_OUTPUTS
 * then; only then may noutputs be NULL. */
core_status core_vjp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_outputs, size_t *noutputs,
                     core_tensor **out_gradients);

/* The product of the Jacobian with vectors: out_tangents[o] = sum over i of
 * d output o / d input i * vectors[i].  vectors: by input, of its sizes; NULL
 * entries are zero.  Computed by differentiating core_vjp's answer with respect
 * to its vectors, so that it needs no formulas beyond those of backward. */
core_status core_jvp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_tangents, size_t *noutputs);

/* out_jacobians[o * ninputs + i]: d output o / d input i, of the output's sizes
 * followed by the input's.  There is room for *noutputs * ninputs. */
core_status core_jacobian(const core_derivative *of,
                          core_tensor **out_jacobians, size_t *noutputs);

/* Of a function with one output of one element; there is room for
 * CORE_GRADCHECK_OUTPUTS, so that more are told.  out_hessians[i * ninputs + j]:
 * its second derivative by inputs i and j, of sizes of i followed by those of
 * j. */
core_status core_hessian(const core_derivative *of, core_tensor **out_hessians);

/* The product of that with vectors, by input: out_products[i]. */
core_status core_hvp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_products);

#ifdef __cplusplus
}
#endif
#endif
