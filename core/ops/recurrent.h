/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* recurrent.h: what the files of recurrent networks share.
 *
 * A sequence is computed as rows: those of all samples at the first step, then
 * those at the second, and so on.  In a packed sequence samples are sorted by
 * length, so the samples of a step are the first of the step before it. */

#ifndef CORE_OPS_RECURRENT_H
#define CORE_OPS_RECURRENT_H

#include "ops/expression.h"

/* The argument `mode` of _recurrent_layer. */
typedef enum core__recurrent_kind {
    CORE__RECURRENT_RELU,
    CORE__RECURRENT_TANH,
    CORE__RECURRENT_LSTM,
    CORE__RECURRENT_GRU
} core__recurrent_kind;

/* The weights of one layer in one direction. */
typedef struct core__recurrent_weights {
    core_tensor *w_ih, *w_hh;
    core_tensor *b_ih, *b_hh; /* NULL without biases */
    core_tensor *w_hr;        /* the projection, or NULL */
} core__recurrent_weights;

typedef struct core__recurrent_network {
    const core_operator *op;
    core__recurrent_kind kind;
    core_tensor *const *params;
    uint32_t nparams;
    bool biases, train, bidirectional, projected;
    int64_t layers;
    double dropout;
    const int64_t *sizes; /* samples of each step */
    bool uneven;          /* they differ */
    int64_t steps;
    core_tensor *hidden, *cell; /* at the beginning: [layers, batch, n] */
} core__recurrent_network;

/* composite_recurrent_cell.c: the next hidden state.  `input` is the input's
 * part of the gates; *cell is replaced by the next one. */
core_tensor *core__recurrent_step(core__scope *scope, core__recurrent_kind kind,
                                  const core__recurrent_weights *w,
                                  core_tensor *input, core_tensor *hidden,
                                  core_tensor **cell);

/* composite_fused_cell.c: whether a kernel computes a cell without biases. */
bool core__fused_cell_exists(core__recurrent_kind kind, core_tensor *input,
                             core_tensor *hidden, core_tensor *state);

/* Checks the sizes of weights for so many inputs, hidden units n, and outputs,
 * which differ from n with a projection. */
core_status core__recurrent_check_weights(const core_operator *op,
                                          core__recurrent_kind kind,
                                          const core__recurrent_weights *w,
                                          int64_t inputs, int64_t n,
                                          int64_t outputs);

/* composite_recurrent_direction.c: one layer in one direction, whose weights
 * are checked.  out: rows [sum of sizes, n], and the last states; owned. */
core_status core__recurrent_direction(const core__recurrent_network *net,
                                      core_tensor *rows,
                                      const core__recurrent_weights *w,
                                      int64_t index, core_tensor *out[3]);

#endif
