/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* grad_scaler.h: scaling of losses, so that gradients in f16 do not underflow.
 *
 *     core_grad_scaler_scale(scaler, loss, &scaled);
 *     core_backward(&scaled, 1, NULL, 0);
 *     core_grad_scaler_step(scaler, optimizer, NULL);
 *     core_grad_scaler_update(scaler);
 *
 * A step divides the gradients by the scale, and is skipped if one of them is
 * not finite.  The update then reduces the scale, and increases it after enough
 * steps without overflow (Micikevicius et al. 2018; the defaults are those of
 * torch.cuda.amp.GradScaler).  Between unscale and step the gradients have
 * their true magnitude, and can be clipped.
 *
 * Gradients are checked on their device, with one kernel each (a few kernels
 * for a scale below 1, because the divided gradients are checked).  The host
 * waits once for each optimizer and device, in step or update.
 *
 * Threads.  Only one thread at a time may use a scaler. */

#ifndef LIBCORE_GRAD_SCALER_H
#define LIBCORE_GRAD_SCALER_H

#include "optim.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A scaler for one or more optimizers. */
typedef struct core_grad_scaler core_grad_scaler;

/* Flags of a scaler. */
enum {
    /* Do not scale losses, and do not check gradients. */
    CORE_GRAD_SCALER_OFF = 1u << 0
};

/* The options and the state of a scaler, as a checkpoint stores them.  The
 * first number in each comment is the default. */
typedef struct core_grad_scaler_state {
    uint32_t struct_size;
    uint32_t flags;        /* 0; CORE_GRAD_SCALER_OFF */
    double scale;          /* 65536; 2^-126 to 2^126, so that f32 represents it
                              and its reciprocal */
    double growth_factor;  /* 2; finite, > 1 */
    double backoff_factor; /* 0.5; in (0, 1) */
    uint64_t growth_interval; /* 2000; finite steps between two growths; > 0 */
    uint64_t growth_tracker;  /* 0; finite steps since the scale changed */
} core_grad_scaler_state;
CORE_STATIC_ASSERT(sizeof(core_grad_scaler_state) == 48,
                   "core_grad_scaler_state");

/* Creates a scaler.  The caller owns it.  state: copied; NULL: the defaults.
 * INVALID_ARGUMENT for a number out of range. */
core_status core_grad_scaler_create(const core_grad_scaler_state *state,
                                    core_grad_scaler **out_scaler);

/* Frees a scaler.  Accepts NULL. */
void core_grad_scaler_release(core_grad_scaler *scaler);

/* Computes loss * scale, recorded by autograd.  The caller owns one reference
 * to *out_scaled.  For a 0-dim loss in f16 or bf16 the result is f32. */
core_status core_grad_scaler_scale(core_grad_scaler *scaler, core_tensor *loss,
                                   core_tensor **out_scaled);

/* Divides the grads of an optimizer's parameters by the scale, in place, and
 * makes their device check whether all are finite.  Does not wait.  AUTOGRAD,
 * without effect, if that was done since the last update, or no parameter has a
 * grad.  DTYPE for grads in f16, in which the quotient may underflow. */
core_status core_grad_scaler_unscale(core_grad_scaler *scaler,
                                     core_optimizer *optimizer);

/* Unscales the grads, unless that was done since the last update, and steps the
 * optimizer if all grads are finite.  Waits for the devices of the grads.
 * *out_stepped is whether it stepped; out_stepped may be NULL.  AUTOGRAD for a
 * second step before the update. */
core_status core_grad_scaler_step(core_grad_scaler *scaler,
                                  core_optimizer *optimizer, bool *out_stepped);

/* Computes the next scale.  Call it after the steps of all optimizers, which
 * may have been released since.  AUTOGRAD, without effect, if no optimizer was
 * unscaled or stepped since the last update. */
core_status core_grad_scaler_update(core_grad_scaler *scaler);

/* Returns the scale.  1 with CORE_GRAD_SCALER_OFF, 0 for NULL. */
double core_grad_scaler_get_scale(const core_grad_scaler *scaler);

/* Sets the scale; the growth tracker does not change.  AUTOGRAD between unscale
 * and update.  INVALID_ARGUMENT for a scale out of range. */
core_status core_grad_scaler_set_scale(core_grad_scaler *scaler, double scale);

/* Fills in the options and the state of a scaler.  The caller sets
 * out_state->struct_size. */
core_status core_grad_scaler_get_state(const core_grad_scaler *scaler,
                                       core_grad_scaler_state *out_state);

/* Sets the options and the state of a scaler.  AUTOGRAD between unscale and
 * update.  INVALID_ARGUMENT for a number out of range. */
core_status core_grad_scaler_set_state(core_grad_scaler *scaler,
                                       const core_grad_scaler_state *state);

#ifdef __cplusplus
}
#endif

#endif
