/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* linear.h: activation(input * weight^T + bias) as one function, with optional
 * 8-bit quantization, a main gradient, and a deferred weight gradient.
 *
 *     core_linear_forward_args args = {.struct_size = sizeof args,
 *                                      .input = x, .weight = w, .bias = b};
 *     core_linear_apply(&args, &y);
 *
 * core_linear_apply is recorded by autograd.  It consists of three steps that
 * do not depend on autograd and can be called separately:
 *
 *     core_linear_forward     computes the output and the intermediate results
 *     core_linear_setup       selects what the backward needs of these and of
 *                             the arguments; nothing else is saved
 *     core_linear_backward    computes the gradients
 *
 * With quantizers, the products use the dequantized values in f32: those of
 * input and weight in the forward, and that of the output's gradient (usually
 * f8e5m2) in the backward.  The input is saved in 8 bits.  The gradient of the
 * bias is the sum of the output's gradient before that is quantized.
 * Everything is computed by operators, on any device.  If the device has a
 * kernel for 8-bit products (_scaled_mm) and each factor has one scale, that
 * kernel computes all three products, with its own rounding of sums.
 *
 * In an autocast region, core_linear_apply casts input, weight and bias to the
 * region's dtype, as the operator linear does; with quantizers it casts input
 * and bias to the dtype of the weight, which is quantized as it is.  The other
 * functions cast nothing.
 *
 * Threads.  Only one thread at a time may use a quantizer or a workspace.  A
 * backward runs in one thread per device, so calls on two devices must not
 * share a quantizer.  Several threads may add to a queue while one calls
 * core_linear_backward_dw. */

#ifndef LIBCORE_LINEAR_H
#define LIBCORE_LINEAR_H

#include "quantizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The activation that is applied to the output. */
typedef enum core_linear_activation {
    CORE_LINEAR_NO_ACTIVATION = 0,
    CORE_LINEAR_RELU = 1,
    CORE_LINEAR_GELU = 2 /* the exact one, with erf */
} core_linear_activation;

/* Which part of a batch a call computes.  The first microbatch quantizes the
 * weight and stores it in the workspace; later ones use it. */
typedef enum core_linear_microbatch {
    CORE_LINEAR_WHOLE_BATCH = 0, /* quantizes; the workspace is not used */
    CORE_LINEAR_FIRST_MICROBATCH = 1,
    CORE_LINEAR_LATER_MICROBATCH = 2
} core_linear_microbatch;

/* Flags of core_linear_forward_args. */
enum {
    /* Add the weight's gradient to main_grad instead of replacing its
     * content. */
    CORE_LINEAR_ACCUMULATE = 1u << 0
};

/* The quantized weight between microbatches. */
typedef struct core_linear_workspace core_linear_workspace;

/* A queue of weight gradients to be computed.  Reference-counted. */
typedef struct core_linear_wgrad_queue core_linear_wgrad_queue;

/* The arguments of the forward.  The struct is read during the call.  Tensors
 * and objects are borrowed; core_linear_apply keeps references to those that
 * its backward uses, also to quantizers, main_grad and wgrad_queue, until it
 * has run or the graph is released. */
typedef struct core_linear_forward_args {
    uint32_t struct_size;
    uint32_t flags;      /* 0 or CORE_LINEAR_ACCUMULATE */
    core_tensor *input;  /* [..., in], floating */
    core_tensor *weight; /* [out, in], of input's dtype and device */
    core_tensor *bias;   /* [out], of input's dtype and device; or NULL */
    uint32_t activation; /* core_linear_activation */
    uint32_t microbatch; /* core_linear_microbatch */
    /* 1 if the gradient is needed, else 0.  core_linear_apply ignores these and
     * checks the tensors. */
    uint32_t input_requires_grad;
    uint32_t weight_requires_grad;
    uint32_t bias_requires_grad;
    uint32_t reserved;
    /* Quantizers of input and weight: both or neither.  With both,
     * grad_quantizer may be set; if it is NULL, the output's gradient is not
     * quantized.  Blocks of 32 run along the features of the input, and those
     * of the gradient along the features of the output, which must be multiples
     * of 32.  If a call fails, the state of the quantizers does not change. */
    core_quantizer *input_quantizer;
    core_quantizer *weight_quantizer;
    core_quantizer *grad_quantizer;
    core_linear_workspace *workspace; /* required for microbatches */
    /* The buffer for the weight's gradient, which then does not reach weight's
     * grad: [out, in], of any floating dtype but f8, contiguous, on weight's
     * device; or NULL.  Like a grad, it is ready for the current stream of the
     * caller of backward.  The program must order calls on several streams that
     * share a buffer. */
    core_tensor *main_grad;
    /* Where the weight's gradient is queued until core_linear_backward_dw
     * computes it; NULL: backward computes it.  Without main_grad the weight
     * must be a leaf. */
    core_linear_wgrad_queue *wgrad_queue;
} core_linear_forward_args;
CORE_STATIC_ASSERT(sizeof(core_linear_forward_args) == 104,
                   "core_linear_forward_args");

/* The intermediate results of the forward.  Owned by the caller; released by
 * core_linear_intermediates_release.  NULL: not computed. */
typedef struct core_linear_intermediates {
    uint32_t struct_size;
    uint32_t reserved;
    core_tensor *input_data; /* quantized */
    core_tensor *input_scales;
    core_tensor *weight_data; /* shared with the workspace, if there is one */
    core_tensor *weight_scales;
    core_tensor *activated; /* for the activation's gradient: the output of
                               relu, the argument of gelu */
} core_linear_intermediates;

/* The arguments of the backward.  (s) marks tensors that are saved between
 * forward and backward; they are NULL if no gradient needs them.  Fields are
 * owned, unless stated otherwise, and released by
 * core_linear_backward_release. */
typedef struct core_linear_backward_args {
    uint32_t struct_size;
    uint32_t flags;
    core_tensor *grad_output;   /* set by the caller; borrowed */
    core_tensor *input;         /* (s) the input itself; NULL if quantized */
    core_tensor *weight;        /* (s) the weight itself; NULL if quantized */
    core_tensor *input_data;    /* (s) */
    core_tensor *input_scales;  /* (s) */
    core_tensor *weight_data;   /* (s) */
    core_tensor *weight_scales; /* (s) */
    core_tensor *activated;     /* (s) */
    uint32_t activation;
    uint32_t dtype; /* of input, weight and their gradients */
    uint32_t input_requires_grad;
    uint32_t weight_requires_grad;
    uint32_t bias_requires_grad;
    uint32_t reserved;
    core_quantizer *grad_quantizer;
    core_tensor *main_grad;
    core_linear_wgrad_queue *wgrad_queue;
    core_tensor *leaf; /* only with a queue: the weight, to whose grad
                          core_linear_backward_dw adds */
} core_linear_backward_args;
CORE_STATIC_ASSERT(sizeof(core_linear_backward_args) == 128,
                   "core_linear_backward_args");

/* Computes activation(input * weight^T + bias), recorded by autograd.  The
 * caller owns one reference to *out_output.
 *
 * With main_grad or wgrad_queue, backward passes the weight's gradient there,
 * and weight's grad does not change.  Otherwise, with core_backward_into, it is
 * computed in its destination.  Saved tensors are released after the first
 * backward without CORE_RETAIN_GRAPH.  With quantizers, gelu, main_grad or
 * wgrad_queue the result can be differentiated once only.
 *
 * Quantizers with delayed scaling count each backward: a second backward of a
 * retained graph uses the scale at that time.  The second run of a checkpoint
 * uses the scales of the first, and is not counted. */
core_status core_linear_apply(const core_linear_forward_args *args,
                              core_tensor **out_output);

/* Computes the output and the intermediate results, without autograd.  The
 * caller owns *out_output and the contents of *out_intermediates. */
core_status core_linear_forward(const core_linear_forward_args *args,
                                core_tensor **out_output,
                                core_linear_intermediates *out_intermediates);

/* Fills *out_backward with references to what the backward needs.  Computes
 * nothing.  The caller releases it with core_linear_backward_release. */
core_status core_linear_setup(const core_linear_forward_args *forward,
                              const core_linear_intermediates *intermediates,
                              core_linear_backward_args *out_backward);

/* Computes the gradients.  The caller sets args->grad_output before, and owns
 * the gradients.  A gradient that is not needed, that was written to
 * main_grad or added to wgrad_queue is NULL.  May be called again with the
 * same args.  Recorded if grad mode is on. */
core_status core_linear_backward(const core_linear_backward_args *args,
                                 core_tensor **out_grad_input,
                                 core_tensor **out_grad_weight,
                                 core_tensor **out_grad_bias);

/* Releases the tensors of a core_linear_intermediates.  Accepts NULL. */
void core_linear_intermediates_release(
    core_linear_intermediates *intermediates);

/* Releases the contents of a core_linear_backward_args, except grad_output.
 * Accepts NULL. */
void core_linear_backward_release(core_linear_backward_args *args);

/* Creates an empty workspace for the quantized weight of one linear function.
 * The caller owns it.  It keeps a reference to the weight.  A later microbatch
 * may run on another stream, which waits for the first.  A later microbatch is
 * an error if the weight has changed since the first. */
core_status core_linear_workspace_create(core_linear_workspace **out_workspace);

/* Frees a workspace.  Accepts NULL. */
void core_linear_workspace_release(core_linear_workspace *workspace);

/* Creates an empty queue.  The caller owns one reference. */
core_status core_linear_wgrad_queue_create(core_linear_wgrad_queue **out_queue);

/* Drops a reference.  Accepts NULL.  The last reference drops the gradients
 * that were not computed. */
void core_linear_wgrad_queue_release(core_linear_wgrad_queue *queue);

/* Returns the number of weight gradients in a queue.  0 for NULL. */
size_t core_linear_wgrad_queue_count(const core_linear_wgrad_queue *queue);

/* Computes the oldest weight gradient of a queue and removes it.  The gradient
 * goes to its main_grad, or else is added to the grad of its weight, without
 * running hooks.  AUTOGRAD if the queue is empty, or if the input or the
 * output's gradient was changed in place since the backward.  After an error
 * the gradient stays in the queue. */
core_status core_linear_backward_dw(core_linear_wgrad_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
