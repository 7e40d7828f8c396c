/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* function.h: functions and operators with a gradient of the program's own, in
 * three parts: forward computes, setup says what backward will need, backward
 * gives the gradients.
 *
 * core_function_apply is for a function that the program calls itself;
 * core_gradient_register gives such a backward to an operator (dispatch.h),
 * which is then differentiated like those that are built in. */

#ifndef LIBCORE_FUNCTION_H
#define LIBCORE_FUNCTION_H

#include "autograd.h"
#include "dispatch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What setup fills (core_function_context, plugin.h) is valid while it runs;
 * the gradient of an operator, core_operator_gradient, is in kernel.h. */

/* For core_node_saved in backward, by index; entries may be NULL.  Once. */
core_status core_context_save(core_function_context *context,
                              core_tensor *const *tensors, size_t count);
/* An input that forward changed in place; it is an output too. */
core_status core_context_mark_dirty(core_function_context *context,
                                    core_tensor *tensor);
/* An output that has no gradient. */
core_status core_context_mark_non_differentiable(core_function_context *context,
                                                 core_tensor *tensor);
/* backward gets NULL for the gradients of outputs that nothing used, not
 * zeros. */
core_status core_context_no_zeros(core_function_context *context);
/* Backward's context of this call, in place of the registration's or the
 * function's.  release(state), unless NULL, is called when it is needed no
 * more.  Once. */
core_status core_context_set_state(core_function_context *context, void *state,
                                   void (*release)(void *state));

/* ---------------------------------------------------------------- functions -- */

typedef struct core_function_steps {
    uint32_t struct_size;
    uint32_t flags;   /* CORE_FUNCTION_… */
    const char *name; /* for messages; copied */
    /* Writes noutputs owned tensors.  Grad mode is off.  May change inputs in
     * place and return them (retained), if setup marks them as dirty.  An input
     * that is returned as it was comes out as a view of it, with the function's
     * history; it may be returned more than once.  Such outputs, and views of
     * inputs, refuse to be changed in place, and to be used once their base was,
     * while operators are recorded. */
    core_status (*forward)(void *context, core_tensor *const *inputs,
                           size_t ninputs, core_tensor **outputs,
                           size_t noutputs);
    /* Called when the call is recorded; NULL: backward needs nothing. */
    core_status (*setup)(core_function_context *function, void *context,
                         core_tensor *const *inputs, size_t ninputs,
                         core_tensor *const *outputs, size_t noutputs);
    core_function_backward backward;
    void *context;
    /* The context is needed no more.  Once, also on failure.  May be NULL. */
    void (*release)(void *context);
} core_function_steps;

/* outputs: noutputs entries, owned by the caller afterwards; NULL on
 * failure. */
core_status core_function_apply(const core_function_steps *steps,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs, size_t noutputs);

/* ---------------------------------------------------------------- operators -- */

/* Registers under CORE_KEY_AUTOGRAD, for all backends.  Arguments that the
 * schema marks as changed, (a!), are taken as dirty.  The operator comes first:
 * NOT_FOUND if core_op_register was not called for it yet. */
core_status core_gradient_register(const char *operator_name,
                                   const core_operator_gradient *gradient,
                                   core_registration **out_registration);

/* Sizes and dtypes of an operator's results without data: a function that
 * gives meta tensors for meta arguments.  The same as core_function_register
 * with CORE_KEY_BACKEND and "meta". */
core_status core_shape_register(const char *operator_name,
                                core_function function, void *user,
                                core_registration **out_registration);

#ifdef __cplusplus
}
#endif
#endif
