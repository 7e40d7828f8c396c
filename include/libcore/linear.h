/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* linear.h: activation(input * weight^T + bias) as one function, whose
 * backward knows of eight bits, of a main gradient and of delay.
 *
 *     core_linear_forward_args args = {.struct_size = sizeof args,
 *                                      .input = x, .weight = w, .bias = b};
 *     core_linear_apply(&args, &y);
 *
 * core_linear_apply records with autograd.  It is made of three steps that
 * know nothing of autograd and may be called alone:
 *
 *     core_linear_forward     computes, and gives what it made on the way
 *     core_linear_setup       says which of that, and of the arguments, the
 *                             backward needs: nothing else is kept
 *     core_linear_backward    computes the gradients
 *
 * With quantizers the product computes with the numbers that the quantized
 * tensors stand for, in f32: input and weight in the forward, the output's
 * gradient (f8e5m2 is usual) in the backward; the input is kept in eight bits.
 * All of it is operators: any device has it.  Where the device has a kernel for
 * products of eight bits (_scaled_mm), and each factor one scale, all three
 * products are its own, and their sums rounded as it rounds.
 *
 * In a region of autocast core_linear_apply casts input, weight and bias to the
 * region's dtype, as the operator does; with quantizers input and bias to the
 * weight's, which is quantized as it is.  The other calls cast nothing.
 *
 * Threads: one at a time per quantizer and workspace.  A backward runs in a
 * thread for each device: Linears on two of them share no quantizer.  Several
 * may fill a store, while one computes what it has. */

#ifndef LIBCORE_LINEAR_H
#define LIBCORE_LINEAR_H

#include "quantizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum core_linear_activation {
    CORE_LINEAR_NO_ACTIVATION = 0,
    CORE_LINEAR_RELU = 1,
    CORE_LINEAR_GELU = 2 /* with erf */
} core_linear_activation;

/* A step whose batch comes in parts: the weight is quantized in the first and
 * kept in the workspace for the others. */
typedef enum core_linear_microbatch {
    CORE_LINEAR_WHOLE_BATCH = 0, /* quantizes, and keeps nothing */
    CORE_LINEAR_FIRST_MICROBATCH = 1,
    CORE_LINEAR_LATER_MICROBATCH = 2
} core_linear_microbatch;

enum {
    /* The weight's gradient is added to what main_grad holds; else it replaces
     * that. */
    CORE_LINEAR_ACCUMULATE = 1u << 0
};

typedef struct core_linear_workspace core_linear_workspace;
typedef struct core_linear_store core_linear_store;

/* Everything that forward reads.  Tensors and objects are borrowed. */
typedef struct core_linear_forward_args {
    uint32_t struct_size;
    uint32_t flags;
    core_tensor *input;  /* [..., in], floating */
    core_tensor *weight; /* [out, in], of input's dtype and device */
    core_tensor *bias;   /* [out], likewise; or NULL */
    uint32_t activation; /* core_linear_activation */
    uint32_t microbatch; /* core_linear_microbatch */
    /* Whose gradient is wanted, 0 or 1; core_linear_apply asks the tensors. */
    uint32_t input_requires_grad;
    uint32_t weight_requires_grad;
    uint32_t bias_requires_grad;
    uint32_t reserved;
    /* Both or none; then grad_quantizer too, or the gradient is not quantized.
     * Blocks run along the input's features, the gradient's along the output's:
     * 32 must divide them.  Where a call fails they are as before. */
    core_quantizer *input_quantizer;
    core_quantizer *weight_quantizer;
    core_quantizer *grad_quantizer;
    core_linear_workspace *workspace; /* wanted by microbatches */
    /* Where the weight's gradient goes, in place of weight's grad: [out, in],
     * of any floating dtype but f8, contiguous, on weight's device; NULL:
     * nowhere.  Who calls the backward finds it there on its current stream, as
     * gradients are; calls on several streams that share one need an order of
     * the program's. */
    core_tensor *main_grad;
    /* The weight's gradient is computed when core_linear_backward_dw is called;
     * NULL: in backward.  Without main_grad the weight is a leaf. */
    core_linear_store *store;
} core_linear_forward_args;
CORE_STATIC_ASSERT(sizeof(core_linear_forward_args) == 104,
                   "core_linear_forward_args");

/* What forward made besides its result; owned.  NULL: not made. */
typedef struct core_linear_made {
    uint32_t struct_size;
    uint32_t reserved;
    core_tensor *input_data; /* quantized */
    core_tensor *input_scales;
    core_tensor *weight_data; /* shared with the workspace, if that keeps it */
    core_tensor *weight_scales;
    core_tensor *activated; /* what the activation's gradient reads: the output
                               of relu, the argument of gelu */
} core_linear_made;

/* Everything that backward reads.  Those marked (s) are what is saved between
 * the two; NULL where no gradient needs it. */
typedef struct core_linear_backward_args {
    uint32_t struct_size;
    uint32_t flags;
    core_tensor *grad_output;   /* borrowed; for the caller to set */
    core_tensor *input;         /* (s) the very input, or NULL if quantized */
    core_tensor *weight;        /* (s) likewise */
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
    core_quantizer *grad_quantizer; /* held, like the three below */
    core_tensor *main_grad;
    core_linear_store *store;
    core_tensor *leaf; /* the weight itself, only with a store: whose grad
                          core_linear_backward_dw is to set */
} core_linear_backward_args;
CORE_STATIC_ASSERT(sizeof(core_linear_backward_args) == 128,
                   "core_linear_backward_args");

/* Of activation(input * weight^T + bias), recorded.  The main gradient or the
 * store gets the weight's gradient, and weight's grad stays as it is; without
 * them a destination of core_backward_into has it computed in place.  What was
 * saved is released with the first backward that does not retain the graph.
 * With quantizers, gelu, main_grad or store it can be differentiated once.
 * Quantizers of delayed scaling count each backward: a second one of a retained
 * graph has the scale that it finds then.  The second run of a checkpoint has
 * those of the first and counts nothing. */
core_status core_linear_apply(const core_linear_forward_args *args,
                              core_tensor **out_output);

/* The same without autograd. */
core_status core_linear_forward(const core_linear_forward_args *args,
                                core_tensor **out_output,
                                core_linear_made *out_made);
/* Fills args, which hold references of what they have.  Does not compute. */
core_status core_linear_setup(const core_linear_forward_args *forward,
                              const core_linear_made *made,
                              core_linear_backward_args *out_backward);
/* Gradients that are not wanted, or went elsewhere, are NULL.  May be called
 * again.  Grad mode decides whether it is recorded. */
core_status core_linear_backward(const core_linear_backward_args *args,
                                 core_tensor **out_grad_input,
                                 core_tensor **out_grad_weight,
                                 core_tensor **out_grad_bias);
/* Drop what these hold; take NULL. */
void core_linear_made_release(core_linear_made *made);
void core_linear_backward_release(core_linear_backward_args *args);

/* The quantized weight of a layer between microbatches.  Holds the weight.  A
 * later microbatch may be on another stream: it waits for the first.  It is
 * refused where the weight was changed since; of a weight that was made in
 * inference mode, which has no version, that is not known. */
core_status core_linear_workspace_create(core_linear_workspace **out_workspace);
/* Takes NULL. */
void core_linear_workspace_release(core_linear_workspace *workspace);

/* Weight gradients to come, oldest first. */
core_status core_linear_store_create(core_linear_store **out_store);
/* Takes NULL; what was not computed is dropped. */
void core_linear_store_release(core_linear_store *store);
size_t core_linear_store_count(const core_linear_store *store);
/* Computes the oldest: into its main gradient, else added to its weight's
 * grad, which hooks do not see.  AUTOGRAD error if there is none, or if the
 * input was changed in place since the backward.  After an error it is still
 * there. */
core_status core_linear_backward_dw(core_linear_store *store);

#ifdef __cplusplus
}
#endif

#endif
