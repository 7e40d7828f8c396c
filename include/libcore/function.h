/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* function.h: custom gradients of functions and operators, in three parts:
 * forward computes, setup stores what backward will need, and backward computes
 * the gradients.
 *
 * core_function_apply calls a function with such a gradient;
 * core_gradient_register registers one for an operator (dispatch.h), which is
 * then differentiated like a built-in operator.
 *
 * core_function_apply and the register functions are thread-safe.  A
 * core_function_context belongs to the thread that runs setup. */

#ifndef LIBCORE_FUNCTION_H
#define LIBCORE_FUNCTION_H

#include "autograd.h"
#include "dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* setup calls these functions.  Its core_function_context is valid while it
 * runs.  The context keeps a reference to every tensor that it is given until
 * the call is recorded, so setup may release what it has computed at once. */

/* Saves tensors for backward, which gets them with core_node_saved by index.
 * The array is copied; the node keeps the tensors until its saved tensors are
 * released.  Entries may be NULL.  INVALID_ARGUMENT for a second call. */
core_status core_context_save(core_function_context *context,
                              core_tensor *const *tensors, size_t count);

/* Marks an input that forward changed in place.  It must also be an output. */
core_status core_context_mark_dirty(core_function_context *context,
                                    core_tensor *tensor);

/* Marks an output that has no gradient. */
core_status core_context_mark_non_differentiable(core_function_context *context,
                                                 core_tensor *tensor);

/* Makes backward receive NULL instead of zeros as the gradient of an output
 * that nothing used. */
core_status core_context_no_zeros(core_function_context *context);

/* Sets the context that backward receives for this call, instead of that of the
 * registration or the function.  release(state), unless NULL, is called once,
 * when the state is no longer needed, also if recording fails.
 * INVALID_ARGUMENT for a second call, whose state stays the caller's. */
core_status core_context_set_state(core_function_context *context, void *state,
                                   void (*release)(void *state));

/* ------------------------------------------------------------ functions -- */

/* A function with its gradient. */
typedef struct core_custom_function {
    uint32_t struct_size;
    uint32_t flags;   /* CORE_FUNCTION_… */
    const char *name; /* for messages; copied */

    /* Computes noutputs owned tensors, with grad mode off.  It may change
     * inputs in place and return them (retained), if setup marks them as dirty.
     * An input that is returned unchanged, once or more, becomes a view with
     * the function's history.  While operators are recorded, such outputs, and
     * outputs that are views of inputs, cannot be changed in place, nor used
     * after their base was. */
    core_status (*forward)(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t noutputs);

    /* Stores what backward will need.  Called after forward, if the call is
     * recorded.  inputs and outputs: borrowed.  NULL: backward needs
     * nothing. */
    core_status (*setup)(core_function_context *function, void *context,
                         core_tensor *const *inputs, size_t ninputs,
                         core_tensor *const *outputs, size_t noutputs);

    /* Computes the gradients of the inputs (kernel.h). */
    core_function_backward backward;
    void *context; /* passed to the functions here */

    /* Frees the context.  Called once, also on failure.  May be NULL. */
    void (*release)(void *context);
} core_custom_function;

/* Calls a function with a custom gradient, and records it if an input requires
 * grad and grad mode is on.  steps: copied; its context is kept until its
 * release is called.  inputs: borrowed.  outputs: noutputs entries, which the
 * caller owns; all are NULL on failure. */
core_status core_function_apply(const core_custom_function *steps,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs, size_t noutputs);

/* ------------------------------------------------------------ operators -- */

/* Registers a gradient (kernel.h) for an operator, under CORE_KEY_AUTOGRAD and
 * for all backends.  The name and the struct are copied; gradient->user is
 * borrowed until the release of the registration and of what was recorded with
 * it.  Arguments that the schema marks as changed, (a!), are treated as dirty.
 * The caller owns *out_registration.  NOT_FOUND if the operator is not
 * registered. */
core_status core_gradient_register(const char *operator_name,
                                   const core_operator_gradient *gradient,
                                   core_registration **out_registration);

/* Registers a function that infers the sizes and dtypes of an operator's
 * results: it returns meta tensors for meta arguments.  Equivalent to
 * core_function_register with CORE_KEY_BACKEND and "meta", for user too.  The
 * caller owns *out_registration. */
core_status core_shape_register(const char *operator_name,
                                core_function function, void *user,
                                core_registration **out_registration);

#ifdef __cplusplus
}
#endif
#endif
