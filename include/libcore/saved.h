/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* saved.h: what backward needs of the forward, kept elsewhere or computed
 * again.
 *
 * Between forward and backward, nodes hold the tensors that their gradients
 * need: most of the memory of a training step.  Hooks on saved tensors keep
 * them in another place or form; checkpoints keep only the inputs of a part of
 * the forward, and run it again. */

#ifndef LIBCORE_SAVED_H
#define LIBCORE_SAVED_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------ saved-tensor hooks -- */

typedef struct core_saved_hooks_info {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* Called for each tensor that is saved while the hooks are in force.  The
     * tensor has no history and must not be changed; retain it to keep it.
     * *out_handle is anything; it goes to unpack and release. */
    core_status (*pack)(void *context, core_tensor *tensor, void **out_handle);
    /* Called whenever a node uses what was saved, in the thread that walks the
     * graph.  Gives an owned tensor: sizes, dtype and device are those of the
     * tensor that was packed. */
    core_status (*unpack)(void *context, void *handle,
                          core_tensor **out_tensor);
    /* What was saved is needed no more.  May be NULL. */
    void (*release)(void *context, void *handle);
    void *context;
    /* The hooks are in force no more, and nothing packed is left.  Called
     * once, also when the push fails.  May be NULL. */
    void (*drop)(void *context);
} core_saved_hooks_info;

/* Puts hooks in force for what this thread saves, instead of those that were,
 * until core_saved_hooks_pop.  pack and unpack run with grad mode off and no
 * hooks in force.  An error of pack fails the operator that saves, one of
 * unpack the backward. */
core_status core_saved_hooks_push(const core_saved_hooks_info *info);
/* AUTOGRAD error if there are none. */
core_status core_saved_hooks_pop(void);

/* ------------------------------------------------------------- checkpoints -- */

typedef struct core_checkpoint_info {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* Computes outputs from inputs by recorded operators.  Called now, and
     * again in each backward that reaches it, perhaps in another thread; it
     * must do the same each time, and pass on the error of any call that fails:
     * the second time it is cut short when enough was computed. */
    core_tensor_function function;
    void *context;
    /* It is called no more.  Once, also on failure.  May be NULL. */
    void (*drop)(void *context);
} core_checkpoint_info;

/* Runs the function and saves nothing of it but its inputs.  Its second run
 * has the modes, the current device and the numbers of the default generators
 * that the first one had; they are as before afterwards.  Nests.
 * outputs: owned, at most *noutputs, which is 1 at least and then set (0 on
 * failure).  INVALID_ARGUMENT if the function gives none, more than there is
 * room for, or leaves one NULL. */
core_status core_checkpoint(const core_checkpoint_info *info,
                            core_tensor *const *inputs, size_t ninputs,
                            core_tensor **outputs, size_t *noutputs);

#ifdef __cplusplus
}
#endif
#endif
