/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* saved.h: saved tensors: hooks that store them elsewhere, and checkpoints that
 * compute them again.
 *
 * Between forward and backward, nodes keep the tensors that their gradients
 * need, which is most of the memory of a training step.  Hooks on saved tensors
 * store them in another place or form.  Checkpoints save only the inputs of a
 * part of the forward, and run it again in backward.
 *
 * Threads.  Hooks are set per thread.  Every function here is thread-safe. */

#ifndef LIBCORE_SAVED_H
#define LIBCORE_SAVED_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------- saved-tensor hooks -- */

/* The hooks on saved tensors.  Copied by core_saved_hooks_push. */
typedef struct core_saved_hooks_info {
    uint32_t struct_size;
    uint32_t flags; /* 0 */

    /* Stores a tensor that is being saved.  The tensor has no history and must
     * not be changed; retain it to keep it.  *out_handle: any pointer, which
     * unpack and release receive. */
    core_status (*pack)(void *context, core_tensor *tensor, void **out_handle);

    /* Returns a stored tensor, whenever a node uses it, in the thread that
     * runs the backward.  *out_tensor: owned, of the sizes, dtype and device of
     * the packed tensor. */
    core_status (*unpack)(void *context, void *handle,
                          core_tensor **out_tensor);

    /* Frees a stored tensor.  May be NULL. */
    void (*release)(void *context, void *handle);
    void *context; /* passed to the functions here */

    /* Frees the context.  Called once, when the hooks were popped and all
     * stored tensors are freed, and also if the push fails.  May be NULL. */
    void (*drop)(void *context);
} core_saved_hooks_info;

/* Sets the hooks on tensors that the calling thread saves, instead of the
 * previous hooks, until core_saved_hooks_pop.  pack and unpack run with grad
 * mode off and without hooks.  An error of pack is returned by the operator
 * that saves the tensor, and an error of unpack by the backward. */
core_status core_saved_hooks_push(const core_saved_hooks_info *info);

/* Restores the previous hooks of the calling thread.  AUTOGRAD if no hooks are
 * set.  UNSUPPORTED, without effect, if a function that is being recorded
 * (compile.h) calls it for hooks that were set before it was called. */
core_status core_saved_hooks_pop(void);

/* ---------------------------------------------------------- checkpoints -- */

/* A part of the forward that is run again in backward. */
typedef struct core_checkpoint_info {
    uint32_t struct_size;
    uint32_t flags; /* 0 */

    /* Computes outputs from inputs by recorded operators.  Called by
     * core_checkpoint, and again in each backward that reaches it, possibly in
     * another thread.  It must compute the same each time, and must return the
     * error of any call that fails: in backward, libcore makes a call fail as
     * soon as all saved tensors are computed. */
    core_tensor_function function;
    void *context; /* passed to function and drop */

    /* Frees the context.  Called once, when the function will not be called
     * again, and also on failure.  May be NULL. */
    void (*drop)(void *context);
} core_checkpoint_info;

/* Runs a function and saves only its inputs.  The run in backward has the
 * modes, the current device and the random numbers of the default generators of
 * the first run, and restores the present ones afterwards.  Checkpoints nest.
 *
 * *noutputs: in: the capacity of outputs, at least 1; out: the number of
 * outputs, 0 on failure.  The caller owns the outputs.  INVALID_ARGUMENT if the
 * function returns no output, more than the capacity, or a NULL output.
 * UNSUPPORTED inside core_vmap if what the function computes requires grad
 * outside: core_vmap may be called in the function instead. */
core_status core_checkpoint(const core_checkpoint_info *info,
                            core_tensor *const *inputs, size_t ninputs,
                            core_tensor **outputs, size_t *noutputs);

#ifdef __cplusplus
}
#endif
#endif
