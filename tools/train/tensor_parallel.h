/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tensor_parallel.h: --tensor-parallel: the ranks of a group have parts of the
 * model's matrices and compute the same samples (Shoeybi et al. 2019).
 *
 * A matrix is divided by columns of its output, so that each rank computes some
 * outputs, and the next one by columns of its input, so that each rank computes
 * a term of all outputs; one all-reduce adds the terms.  What is not divided is
 * equal on all ranks, and so are its gradients.  The functions do nothing if the
 * model is not divided. */

#ifndef TOOLS_TRAIN_TENSOR_PARALLEL_H
#define TOOLS_TRAIN_TENSOR_PARALLEL_H

#include "train.h"

/* Divides the ranks of t->comm into groups of so many as the options say; t->comm
 * then connects the ranks that have the same part. */
core_status train_tensor_connect(trainer *t);

/* In a forward pass; results belong to the innermost scope.
 *
 * The input of a divided layer: returns x; the gradients of all ranks of the
 * group are added. */
core_tensor *train_tensor_enter(const train_model *model, core_tensor *x);
/* A Linear with a part of its inputs: adds the terms of the ranks, then the
 * bias. */
core_tensor *train_tensor_leave(const train_model *model, core_module *layer,
                                core_tensor *x);

/* Lets the ranks of a group draw different random numbers until restore. */
typedef struct train_tensor_random {
    uint64_t seed;
} train_tensor_random;
train_tensor_random train_tensor_random_begin(const train_model *model);
void train_tensor_random_restore(const train_model *model,
                                 train_tensor_random before);

/* Returns the number in the whole parameter of an element of this rank's
 * part. */
int64_t train_tensor_element(const train_model *model, size_t parameter,
                             int64_t element);
/* Returns the number of elements of the whole parameter. */
int64_t train_tensor_numel(const train_model *model, size_t parameter);

/* Makes a whole tensor, on the host, of the parts of all ranks of the group; part:
 * a parameter's, or a tensor of the same sizes.  The caller owns *out_whole.
 * All ranks of the group call it. */
core_status train_tensor_join(const train_model *model, size_t parameter,
                              core_tensor *part, core_tensor **out_whole);
/* Copies this rank's part of a whole tensor. */
core_status train_tensor_take(const train_model *model, size_t parameter,
                              core_tensor *whole, core_tensor *part);

/* Fails if what is not divided has other bits than on the group's first
 * rank. */
core_status train_tensor_verify(const trainer *t);

#endif
