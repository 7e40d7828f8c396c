/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* optim.h: optimizers, gradient clipping and learning-rate schedules.
 *
 *     core_optimizer_zero_grad(optimizer);
 *     ... forward ...
 *     core_backward(&loss, 1, NULL, 0);
 *     core_optimizer_step(optimizer);
 *
 * A step changes the parameters in place, on the device of each parameter, and
 * records nothing.  Parameters without a grad do not change.
 *
 * Threads.  Only one thread at a time may use an optimizer and its
 * parameters. */

#ifndef LIBCORE_OPTIM_H
#define LIBCORE_OPTIM_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An optimizer with its parameters and their state. */
typedef struct core_optimizer core_optimizer;

/* ----------------------------------------------------------------- SGD -- */

/* The options of stochastic gradient descent.  With all fields 0 except
 * struct_size and learning_rate, it is plain gradient descent.
 *
 *     g = grad + weight_decay * p
 *     b = g                                      at the first step, then
 *     b = momentum * b + (1 - dampening) * g     (b = g if momentum is 0)
 *     p = p - learning_rate * (nesterov ? g + momentum * b : b)
 *
 * Source: Sutskever et al. 2013, with the learning rate outside the velocity,
 * as in torch.optim.SGD. */
typedef struct core_sgd_options {
    uint32_t struct_size;
    uint32_t nesterov; /* 0 or 1; requires momentum > 0, dampening 0 */
    double learning_rate;
    double momentum;
    double dampening;
    double weight_decay;
} core_sgd_options;
CORE_STATIC_ASSERT(sizeof(core_sgd_options) == 40, "core_sgd_options");

/* Creates an SGD optimizer.  The caller owns it.  parameters: leaves that
 * require grad; the optimizer keeps a reference to each.  options: copied.
 * INVALID_ARGUMENT: an option out of range.  AUTOGRAD: a parameter is not such
 * a leaf, or occurs twice. */
core_status core_sgd_create(core_tensor *const *parameters, size_t count,
                            const core_sgd_options *options,
                            core_optimizer **out_optimizer);

/* ---------------------------------------------------------------- Adam -- */

/* The options of Adam and AdamW.  k counts the steps from 1.
 *
 *     g = grad + weight_decay * p                 (decoupled: g = grad, and
 *                        first p = p * (1 - learning_rate * weight_decay))
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g * g
 *     p = p - learning_rate / (1 - beta1^k)
 *             * m / (sqrt(v) / sqrt(1 - beta2^k) + epsilon)
 *
 * Sources: Adam, Kingma and Ba 2015, as in torch.optim.Adam; AdamW (decoupled),
 * Loshchilov and Hutter 2019. */
typedef struct core_adam_options {
    uint32_t struct_size;
    uint32_t decoupled; /* 0: Adam; 1: AdamW */
    double learning_rate;
    double beta1;   /* in [0, 1); usually 0.9 */
    double beta2;   /* in [0, 1); usually 0.999 */
    double epsilon; /* usually 1e-8; larger for f16, in which 1e-8 is 0 */
    double weight_decay;
} core_adam_options;
CORE_STATIC_ASSERT(sizeof(core_adam_options) == 48, "core_adam_options");

/* Creates an Adam or AdamW optimizer.  Parameters, ownership and errors are as
 * for core_sgd_create. */
core_status core_adam_create(core_tensor *const *parameters, size_t count,
                             const core_adam_options *options,
                             core_optimizer **out_optimizer);

/* ----------------------------------------------------------------- use -- */

/* Frees an optimizer and releases its parameters and their state.  Accepts
 * NULL. */
void core_optimizer_release(core_optimizer *optimizer);

/* Updates every parameter that has a grad, in place, and increments its step
 * count.  Records nothing.  Enqueues the work on each device's current stream
 * without waiting.  If there is no memory for state or temporaries, each
 * parameter with its state is either unchanged or fully updated.  If a kernel
 * fails, the parameter that it was updating may be updated in part; the message
 * names it.  core_optimizer_steps returns which parameters were updated.
 *
 * In a function that is recorded (compile.h) it counts no step; each run of the
 * program does. */
core_status core_optimizer_step(core_optimizer *optimizer);

/* Removes the grads of the parameters: core_tensor_grad is then NULL.  Accepts
 * NULL. */
void core_optimizer_zero_grad(core_optimizer *optimizer);

/* Returns the learning rate of group 0.  optimizer must not be NULL. */
double core_optimizer_learning_rate(const core_optimizer *optimizer);

/* Sets the learning rate of all groups in the following steps.
 * INVALID_ARGUMENT if it is negative or not finite. */
core_status core_optimizer_set_learning_rate(core_optimizer *optimizer,
                                             double learning_rate);

/* Returns the number of parameters.  optimizer must not be NULL. */
size_t core_optimizer_parameter_count(const core_optimizer *optimizer);

/* Returns a parameter, borrowed.  parameter: an index from 0.  NULL after the
 * last one.  optimizer must not be NULL. */
core_tensor *core_optimizer_parameter(const core_optimizer *optimizer,
                                      size_t parameter);

/* ------------------------------------------------------------- groups -- */

/* The parameters of a new optimizer are one group, number 0.  Some of them may
 * become another group, with options of its own, as the dicts of parameters in
 * torch.optim: biases without weight decay, or layers that learn more slowly.
 *
 *     CORE_TRY(core_adam_create(all, count, &options, &adam));
 *     options.weight_decay = 0;
 *     CORE_TRY(core_adam_set_group(adam, biases, nbiases, &options));
 *
 * The numbers of parameters and their state remain.  Groups are not part of the
 * state: a program makes them again before it resumes. */

/* Moves parameters of the optimizer to a new group, whose number is
 * core_optimizer_group_count before the call.  options: all of them, copied.
 * parameters: those of the optimizer, in any order; count may be 0.
 * INVALID_ARGUMENT: an option out of range, an optimizer of another kind, or
 * momentum that is 0 in some groups only.  NOT_FOUND: a tensor is not a
 * parameter of the optimizer.  BUSY: a recorded program (compile.h) contains a
 * step of the optimizer.  Nothing has changed on failure. */
core_status core_sgd_set_group(core_optimizer *optimizer,
                               core_tensor *const *parameters, size_t count,
                               const core_sgd_options *options);

/* Does the same for Adam. */
core_status core_adam_set_group(core_optimizer *optimizer,
                                core_tensor *const *parameters, size_t count,
                                const core_adam_options *options);

/* Returns the number of groups.  optimizer must not be NULL. */
size_t core_optimizer_group_count(const core_optimizer *optimizer);

/* Returns the number of the group of a parameter.  parameter: an index from 0.
 * SIZE_MAX after the last one.  optimizer must not be NULL. */
size_t core_optimizer_group(const core_optimizer *optimizer, size_t parameter);

/* Returns the learning rate of a group, or 0 for a number out of range.
 * optimizer must not be NULL. */
double core_optimizer_group_learning_rate(const core_optimizer *optimizer,
                                          size_t group);

/* Sets the learning rate of a group in the following steps.  INDEX: there is no
 * such group.  INVALID_ARGUMENT as for core_optimizer_set_learning_rate. */
core_status core_optimizer_set_group_learning_rate(core_optimizer *optimizer,
                                                   size_t group,
                                                   double learning_rate);

/* ----------------------------------------------------------- clipping -- */

/* Multiplies the grads of the parameters in place by min(1, max_norm / (norm +
 * 1e-6)), where norm is the norm of all grads as one vector, as
 * torch.nn.utils.clip_grad_norm_ does.  norm_type: its order, above 0; usually
 * 2; infinity: the largest magnitude.  Parameters without a grad are skipped.
 * The grads may be on several devices.
 *
 * *out_norm is the norm before clipping: 0-dim, f32 or f64, on the device of
 * the first grad; the caller owns one reference.  out_norm may be NULL.  Does
 * not wait.  A norm that is not finite makes the grads non-finite, unless
 * error_if_nonfinite is true: the call then waits for the device and returns
 * INVALID_ARGUMENT before any grad changes.  INVALID_ARGUMENT also for a
 * negative max_norm. */
core_status core_clip_grad_norm(core_tensor *const *parameters, size_t count,
                                double max_norm, double norm_type,
                                bool error_if_nonfinite,
                                core_tensor **out_norm);

/* Clamps every element of the grads of the parameters to [-max_value,
 * max_value], in place.  Parameters without a grad are skipped.
 * INVALID_ARGUMENT if max_value is negative. */
core_status core_clip_grad_value(core_tensor *const *parameters, size_t count,
                                 double max_value);

/* ----------------------------------------------------- learning rates -- */

/* Schedules compute the learning rate of a step, for
 * core_optimizer_set_learning_rate.  Steps count from 0.  The result depends on
 * the arguments only, so a resumed run gets the same rates.  Thread-safe. */

/* Returns a rate that rises linearly over the first `warmup` steps: rate *
 * (step + 1) / (warmup + 1); then rate. */
double core_schedule_warmup(double rate, uint64_t warmup, uint64_t step);

/* Returns the rate of core_schedule_warmup for the first `warmup` steps, then
 * half a cosine from rate at step `warmup` to least at step `total`, then
 * least.  Source: Loshchilov and Hutter 2017. */
double core_schedule_cosine(double rate, double least, uint64_t warmup,
                            uint64_t total, uint64_t step);

/* Returns the rate of core_schedule_warmup for the first `warmup` steps, then a
 * line from rate at step `warmup` to least at step `total`, then least. */
double core_schedule_linear(double rate, double least, uint64_t warmup,
                            uint64_t total, uint64_t step);

/* Returns rate * factor ^ floor(step / every), or rate if every is 0. */
double core_schedule_decay(double rate, double factor, uint64_t every,
                           uint64_t step);

/* --------------------------------------------------------- checkpoints -- */

/* The state of an optimizer is a step count and a number of tensors per
 * parameter, of the parameter's sizes, dtype and device: "momentum_buffer" for
 * SGD with momentum; "exp_avg" and "exp_avg_sq" for Adam. */

/* Returns the name of a state tensor.  slot: an index from 0.  The text is
 * static.  NULL after the last slot. */
const char *core_optimizer_state_name(const core_optimizer *optimizer,
                                      size_t slot);

/* Returns a state tensor of a parameter, borrowed.  NULL before the parameter's
 * first step, and for an index out of range. */
core_tensor *core_optimizer_state(const core_optimizer *optimizer,
                                  size_t parameter, size_t slot);

/* Sets the state of a parameter.  tensors: one per slot; the optimizer keeps a
 * reference to each and changes it in place at the following steps.  steps 0
 * with tensors NULL resets the state; steps 0 with tensors makes the next step
 * a first step that starts from these.  SHAPE, DTYPE or DEVICE if they differ
 * from those of the parameter.  INDEX for a parameter out of range.
 * INVALID_ARGUMENT if a tensor shares memory with the parameter, another tensor
 * or itself (expanded), if the number of tensors is wrong, or for steps above
 * 2^53. */
core_status core_optimizer_set_state(core_optimizer *optimizer,
                                     size_t parameter, uint64_t steps,
                                     core_tensor *const *tensors, size_t count);

/* Returns how many steps have updated a parameter.  0 for an index out of
 * range. */
uint64_t core_optimizer_steps(const core_optimizer *optimizer,
                              size_t parameter);

#ifdef __cplusplus
}
#endif
#endif
