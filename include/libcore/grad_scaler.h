/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* grad_scaler.h: losses scaled up, so that gradients in f16 do not vanish.
 *
 *     core_grad_scaler_scale(scaler, loss, &scaled);
 *     core_backward(&scaled, 1, NULL, 0);
 *     core_grad_scaler_step(scaler, optimizer, NULL);
 *     core_grad_scaler_update(scaler);
 *
 * A step divides the gradients by the scale again, and is left out if one of
 * them is not finite; the update then makes the scale smaller, and after enough
 * steps that went well larger (Micikevicius et al. 2018; the numbers are those
 * of torch.cuda.amp.GradScaler).  Between unscale and step gradients have their
 * true size, to be clipped, say.
 *
 * Gradients are looked at on their device, one kernel each (a few with a scale
 * below 1: they count as they are once divided by it), and the host waits
 * once for each optimizer and device, in step or update.
 *
 * Threads: one at a time per scaler. */

#ifndef LIBCORE_GRAD_SCALER_H
#define LIBCORE_GRAD_SCALER_H

#include "optim.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct core_grad_scaler core_grad_scaler;

enum {
    /* Everything passes through: losses are not scaled, steps are steps. */
    CORE_GRAD_SCALER_OFF = 1u << 0
};

/* Options and state in one: what a checkpoint holds. */
typedef struct core_grad_scaler_state {
    uint32_t struct_size;
    uint32_t flags;
    double scale;          /* 65536 is usual; 2^-126 to 2^126, where f32 has
                              it and its reciprocal */
    double growth_factor;  /* 2; finite, > 1 */
    double backoff_factor; /* 0.5; in (0, 1) */
    uint64_t
        growth_interval;     /* 2000; steps that go well between growths; > 0 */
    uint64_t growth_tracker; /* those since the last change of the scale */
} core_grad_scaler_state;
CORE_STATIC_ASSERT(sizeof(core_grad_scaler_state) == 48,
                   "core_grad_scaler_state");

/* state NULL: the usual numbers. */
core_status core_grad_scaler_create(const core_grad_scaler_state *state,
                                    core_grad_scaler **out_scaler);
/* Takes NULL. */
void core_grad_scaler_release(core_grad_scaler *scaler);

/* loss * scale, recorded; owned by the caller.  Of a 0-dim loss in f16 or bf16 it
 * is f32. */
core_status core_grad_scaler_scale(core_grad_scaler *scaler, core_tensor *loss,
                                   core_tensor **out_scaled);

/* Divides the grads of the optimizer's parameters by the scale, in place, and
 * has their device find out whether all are finite.  AUTOGRAD error, and
 * nothing changes, where that was done since the last update or no parameter
 * has a grad; DTYPE error for grads in f16, which the division may lose. */
core_status core_grad_scaler_unscale(core_grad_scaler *scaler,
                                     core_optimizer *optimizer);
/* Unscales, unless that was done, and steps the optimizer if all grads were
 * finite.  *out_stepped (may be NULL) tells whether it did.  AUTOGRAD error for
 * a second step before the update. */
core_status core_grad_scaler_step(core_grad_scaler *scaler,
                                  core_optimizer *optimizer, bool *out_stepped);
/* After the steps of all optimizers: the next scale.  AUTOGRAD error, and
 * nothing changes, if none was unscaled or stepped since the last one.  The
 * optimizers must live until then. */
core_status core_grad_scaler_update(core_grad_scaler *scaler);

double core_grad_scaler_get_scale(const core_grad_scaler *scaler);
/* After an update, in place of what that made it; the growth tracker stays.
 * AUTOGRAD error between unscale and update. */
core_status core_grad_scaler_set_scale(core_grad_scaler *scaler, double scale);

/* struct_size is the caller's. */
core_status core_grad_scaler_get_state(const core_grad_scaler *scaler,
                                       core_grad_scaler_state *out_state);
/* AUTOGRAD error between unscale and update. */
core_status core_grad_scaler_set_state(core_grad_scaler *scaler,
                                       const core_grad_scaler_state *state);

#ifdef __cplusplus
}
#endif

#endif
