/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_optim.h: the parameters of optimizer steps over many tensors. */

#ifndef GPU_SHARED_OPTIM_H
#define GPU_SHARED_OPTIM_H

#include <gpu/shared.h>

enum {
    GPU_STEP_TENSORS = 64,
    GPU_STEP_LISTS = 4,   /* parameters, gradients, state */
    GPU_STEP_CHUNK = 4096 /* the elements per block */
};

/* Tensor k has the blocks from first[k] up to first[k + 1]. */
typedef struct gpu_step_list {
    uint32_t first[GPU_STEP_TENSORS + 1];
    uint32_t count;
    uint64_t size[GPU_STEP_TENSORS];
    void *data[GPU_STEP_LISTS][GPU_STEP_TENSORS];
    const float *grad_scale; /* NULL, or a divisor of the gradients */
    const float *found_inf;  /* NULL, or a flag: if above 0, nothing is done */
    const double *numbers;   /* NULL, or what a step reads instead of its own */
} gpu_step_list;

/* adam: the decay applies to the gradient or, if decoupled, to the parameter.
 * The numbers of the list: rate, root, remainder. */
typedef struct gpu_adam {
    gpu_step_list list;
    double decay, beta1, beta2, epsilon;
    double rate;      /* - learning rate / (1 - beta1 ^ step) */
    double root;      /* sqrt(1 - beta2 ^ step) */
    double remainder; /* 1 - learning rate * decay */
    uint32_t decoupled, reserved;
} gpu_adam;

/* The numbers of the list: the learning rate, and whether this is the first
 * step. */
typedef struct gpu_sgd {
    gpu_step_list list;
    double decay, momentum, share; /* share: 1 - dampening */
    double rate;                   /* - learning rate */
    uint32_t nesterov, first, reserved[2];
} gpu_sgd;

#endif
