/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* models.h: models to train on the current device: perceptrons and a
 * transformer block. */

#ifndef TOOLS_BENCH_MODELS_H
#define TOOLS_BENCH_MODELS_H

#include "bench.h"

#define SIZES(...)                  \
    (const int64_t[]){__VA_ARGS__}, \
        sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

/* --------------------------------------------------------- perceptrons -- */

enum { BENCH_LAYERS_MAX = 3 };

typedef struct bench_perceptron {
    int layers;
    core_tensor *parameters[2 * BENCH_LAYERS_MAX];
    core_tensor *x;
    core_tensor *y;
    double forward; /* seconds of the host in each part, in total */
    double backward;
    double update;
    long steps;
} bench_perceptron;

/* Layers with so many inputs each; the last width is that of the outputs. */
void bench_perceptron_open(bench_perceptron *p, const int64_t *widths,
                           int layers, int64_t batch);
void bench_perceptron_close(bench_perceptron *p);
/* Forward, cross entropy, backward, and gradient descent by operators. */
void bench_perceptron_step(void *perceptron);
/* The same as a core_tensor_function, of a perceptron; returns the loss. */
core_status bench_perceptron_function(void *perceptron,
                                      core_tensor *const *inputs,
                                      size_t ninputs, core_tensor **outputs,
                                      size_t *noutputs);

/* --------------------------------------------------------- transformer -- */

/* Batches of B sequences of T vectors of C, in H heads. */
enum { B = 8, T = 128, C = 256, H = 8, D = C / H };
enum {
    GAMMA1,
    BETA1,
    GAMMA2,
    BETA2,
    W_QKV,
    B_QKV,
    W_OUT,
    B_OUT,
    W_UP,
    B_UP,
    W_DOWN,
    B_DOWN,
    X,
    BLOCK_PARAMETERS
};

typedef struct bench_block {
    core_tensor *p[BLOCK_PARAMETERS];
    core_tensor *grad;
    bool fused; /* attention as one operator */
} bench_block;

void bench_block_open(bench_block *b);
void bench_block_close(bench_block *b);
/* The argument of each is a block. */
void bench_block_forward(void *block);
/* Forward and backward; gradients are discarded. */
void bench_block_step(void *block);
/* Under autocast, as in training: the weights are cast once per step. */
void bench_block_step_bf16(void *block);
/* The forward as a core_tensor_function of a block. */
core_status bench_block_forward_function(void *block,
                                         core_tensor *const *inputs,
                                         size_t ninputs, core_tensor **outputs,
                                         size_t *noutputs);
/* Takes the gradients of its output, and discards them. */
void bench_block_backward(const bench_block *block, core_tensor *output);
/* Forward, backward, and gradient descent of all parameters, as a
 * core_tensor_function of a block; returns the output. */
core_status bench_block_function(void *block, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs);

#endif
