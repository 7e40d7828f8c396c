/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* functional.h: derivatives of functions.
 *
 * A function computes tensors from tensors by recorded operators
 * (core_tensor_function), with grad mode on.  It receives stand-ins that share
 * the content of the inputs, so the grads and the graph of the inputs do not
 * change.  With CORE_CREATE_GRAPH the results are differentiable with respect
 * to the inputs themselves.  The derivative with respect to an input that is
 * not floating, or of an output that is not floating, is NULL.  The derivative
 * of an output that does not depend on an input is zero.
 *
 * out_… arrays belong to the caller, who owns the tensors stored in them; all
 * are NULL on failure.  *noutputs: in: the capacity of the array, at least 1;
 * out: the number of outputs, 0 on failure (set it again before another call).
 * INVALID_ARGUMENT if the function reports more outputs than the capacity.
 *
 * Every function here is thread-safe. */

#ifndef LIBCORE_FUNCTIONAL_H
#define LIBCORE_FUNCTIONAL_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A function and the inputs at which it is differentiated.  Borrowed. */
typedef struct core_derivative {
    uint32_t struct_size;
    uint32_t flags; /* 0 or CORE_CREATE_GRAPH */
    core_tensor_function function;
    void *context;
    core_tensor *const *inputs;
    size_t ninputs;
} core_derivative;

/* Computes the product of vectors with the Jacobian: out_gradients[i] = sum
 * over o of vectors[o] * d output o / d input i.  vectors: one per output, of
 * its sizes; NULL, or a NULL entry, means 1 for an output of one element.
 * out_gradients: one per input.  out_outputs may be NULL; the function may then
 * have up to CORE_GRADCHECK_OUTPUTS outputs, and noutputs may be NULL. */
core_status core_vjp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_outputs, size_t *noutputs,
                     core_tensor **out_gradients);

/* Computes the product of the Jacobian with vectors: out_tangents[o] = sum over
 * i of d output o / d input i * vectors[i].  vectors: one per input, of its
 * sizes; a NULL entry means zero.  out_tangents: one per output.  The result is
 * the derivative of core_vjp with respect to its vectors, so only the formulas
 * of backward are needed. */
core_status core_jvp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_tangents, size_t *noutputs);

/* Computes the Jacobian.  out_jacobians[o * ninputs + i] is d output o / d
 * input i, of the output's sizes followed by the input's.  The array has
 * *noutputs * ninputs entries. */
core_status core_jacobian(const core_derivative *of,
                          core_tensor **out_jacobians, size_t *noutputs);

/* Computes the Hessian of a function with one output of one element.
 * out_hessians[i * ninputs + j] is the second derivative with respect to inputs
 * i and j, of the sizes of i followed by those of j.  The array has ninputs *
 * ninputs entries.  The function receives space for CORE_GRADCHECK_OUTPUTS
 * outputs, so that an error can report that it has more than one.  SHAPE if it
 * has more than one output or element. */
core_status core_hessian(const core_derivative *of, core_tensor **out_hessians);

/* Computes the product of the Hessian with vectors: out_products[i] = sum over
 * j of the second derivative with respect to inputs i and j * vectors[j].
 * vectors: one per input, of its sizes; a NULL entry means zero.  The function
 * is as for core_hessian. */
core_status core_hvp(const core_derivative *of, core_tensor *const *vectors,
                     core_tensor **out_products);

#ifdef __cplusplus
}
#endif
#endif
