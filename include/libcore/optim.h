/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* optim.h: optimizers, which change parameters along their gradients.
 *
 *     core_optimizer_zero_grad(optimizer);
 *     ... forward ...
 *     core_backward(&loss, 1, NULL, 0);
 *     core_optimizer_step(optimizer);
 *
 * A step changes the parameters in place by operators, records nothing, and
 * runs on whatever device each parameter is on.  Parameters without grad are
 * left alone.
 *
 * Threads: one at a time per optimizer, as for the parameters. */

#ifndef LIBCORE_OPTIM_H
#define LIBCORE_OPTIM_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct core_optimizer core_optimizer;

/* ----------------------------------------------------------------- SGD -- */

/* All zero but struct_size and learning_rate is plain gradient descent.
 *
 *     g = grad + weight_decay * p
 *     b = g                                      at the first step, then
 *     b = momentum * b + (1 - dampening) * g     (no b if momentum is 0)
 *     p = p - learning_rate * (nesterov ? g + momentum * b : b)
 *
 * as in torch.optim.SGD (Sutskever et al. 2013, with the learning rate outside
 * the velocity). */
typedef struct core_sgd_options {
    uint32_t struct_size;
    uint32_t nesterov; /* 0 or 1; wants momentum > 0 and dampening 0 */
    double learning_rate;
    double momentum;
    double dampening;
    double weight_decay;
} core_sgd_options;
CORE_STATIC_ASSERT(sizeof(core_sgd_options) == 40, "core_sgd_options");

/* parameters: leaves that require grad; the optimizer takes a reference of
 * each.  INVALID_ARGUMENT: an option out of range; AUTOGRAD: not such a leaf,
 * or the same one twice. */
core_status core_sgd_create(core_tensor *const *parameters, size_t count,
                            const core_sgd_options *options,
                            core_optimizer **out_optimizer);

/* ---------------------------------------------------------------- Adam -- */

/* Kingma and Ba 2015, as torch.optim.Adam computes it; k counts from 1:
 *
 *     g = grad + weight_decay * p                 (decoupled: g = grad and
 *                        first p = p * (1 - learning_rate * weight_decay))
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g * g
 *     p = p - learning_rate / (1 - beta1^k)
 *             * m / (sqrt(v) / sqrt(1 - beta2^k) + epsilon)
 *
 * decoupled is AdamW (Loshchilov and Hutter 2019). */
typedef struct core_adam_options {
    uint32_t struct_size;
    uint32_t decoupled; /* 0 or 1 */
    double learning_rate;
    double beta1;   /* 0.9 is usual; in [0, 1) */
    double beta2;   /* 0.999 */
    double epsilon; /* 1e-8; more for f16 parameters, in which that is 0 */
    double weight_decay;
} core_adam_options;
CORE_STATIC_ASSERT(sizeof(core_adam_options) == 48, "core_adam_options");

core_status core_adam_create(core_tensor *const *parameters, size_t count,
                             const core_adam_options *options,
                             core_optimizer **out_optimizer);

/* ----------------------------------------------------------------- use -- */

/* Takes NULL. */
void core_optimizer_release(core_optimizer *optimizer);

/* On failure every parameter, with its state, is either as it was or fully
 * stepped if the failure was in getting memory for state or temporaries, which
 * come before any change; a failure of a kernel may leave the parameter that
 * it met half stepped.  core_optimizer_steps tells which were stepped. */
core_status core_optimizer_step(core_optimizer *optimizer);
/* Drops the grads of the parameters. */
void core_optimizer_zero_grad(core_optimizer *optimizer);

double core_optimizer_learning_rate(const core_optimizer *optimizer);
/* From the next step on; for schedules. */
core_status core_optimizer_set_learning_rate(core_optimizer *optimizer,
                                             double learning_rate);

size_t core_optimizer_parameter_count(const core_optimizer *optimizer);
/* Borrowed; NULL behind the last. */
core_tensor *core_optimizer_parameter(const core_optimizer *optimizer,
                                      size_t parameter);

/* ----------------------------------------------------- gradients' size -- */

/* Multiplies the grads of the parameters, those that have one, by
 * min(1, max_norm / (norm + 1e-6)) in place; norm is that of all grads as one
 * vector, of order norm_type (2 is usual, infinity the largest magnitude), as
 * torch.nn.utils.clip_grad_norm_ does.  Grads may be on several devices.  The
 * norm before clipping is *out_norm (may be NULL): 0-dim, f32 or f64, on the
 * device of the first grad; nothing waits for it.  A norm that is not finite
 * makes grads so, unless error_if_nonfinite: then that is INVALID_ARGUMENT,
 * told before any grad changes (this waits for the device). */
core_status core_clip_grad_norm(core_tensor *const *parameters, size_t count,
                                double max_norm, double norm_type,
                                bool error_if_nonfinite,
                                core_tensor **out_norm);
/* Clamps every element of the grads to [-max_value, max_value], in place. */
core_status core_clip_grad_value(core_tensor *const *parameters, size_t count,
                                 double max_value);

/* ----------------------------------------------------- learning rates -- */

/* The learning rate of a step, counted from 0; for
 * core_optimizer_set_learning_rate.  They depend on their arguments alone, so a
 * resumed run has the same. */

/* Rises linearly over the first `warmup` steps: rate * (step + 1) /
 * (warmup + 1); rate behind them. */
double core_schedule_warmup(double rate, uint64_t warmup, uint64_t step);
/* The same, then half a cosine from rate at step warmup to least at step total
 * (Loshchilov and Hutter 2017); least from there on. */
double core_schedule_cosine(double rate, double least, uint64_t warmup,
                            uint64_t total, uint64_t step);
/* Likewise, along a line. */
double core_schedule_linear(double rate, double least, uint64_t warmup,
                            uint64_t total, uint64_t step);
/* rate * factor ^ floor(step / every); every 0: rate. */
double core_schedule_decay(double rate, double factor, uint64_t every,
                           uint64_t step);

/* --------------------------------------------------------- checkpoints -- */

/* The state of an optimizer is, per parameter, a number of steps and some
 * tensors of the parameter's sizes, dtype and device.  What these are depends
 * on the optimizer: "momentum_buffer" for SGD with momentum; "exp_avg" and
 * "exp_avg_sq" for Adam. */

/* Names of the tensors by slot from 0; NULL behind the last. */
const char *core_optimizer_state_name(const core_optimizer *optimizer,
                                      size_t slot);
/* Borrowed; NULL before the parameter's first step. */
core_tensor *core_optimizer_state(const core_optimizer *optimizer,
                                  size_t parameter, size_t slot);
/* Gives the parameter this state: tensors holds one per slot, taken by
 * reference and from then on changed in place.  steps 0 with tensors NULL is
 * the beginning; steps 0 with tensors is a first step that starts from these
 * instead of from none.  SHAPE, DTYPE, DEVICE: not the parameter's.
 * INVALID_ARGUMENT: a tensor that shares memory with the parameter, with
 * another of them, or within itself (expanded); steps above 2^53. */
core_status core_optimizer_set_state(core_optimizer *optimizer,
                                     size_t parameter, uint64_t steps,
                                     core_tensor *const *tensors, size_t count);
uint64_t core_optimizer_steps(const core_optimizer *optimizer,
                              size_t parameter);

#ifdef __cplusplus
}
#endif
#endif
