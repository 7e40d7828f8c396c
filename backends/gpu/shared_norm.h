/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_norm.h: the parameters of normalisation kernels. */

#ifndef GPU_SHARED_NORM_H
#define GPU_SHARED_NORM_H

#include <gpu/shared.h>

/* Layers and groups: rows of channels x inner elements; the weights of a row
 * start at (row % groups) x channels.  Batches: images x channels x inner.
 * Absent operands are NULL. */
typedef struct gpu_norm {
    void *to, *mean, *spread; /* spread: 1 / std */
    void *to_weight, *to_bias;
    const void *from, *grad, *weight, *bias;
    void *running_mean, *running_var;
    int64_t rows, groups, channels, inner;
    double eps, momentum;
    uint32_t statistics; /* the dtype of mean and spread */
    uint32_t running;    /* the dtype of the running statistics */
    uint32_t training, parts;
    void *partial; /* backward: `parts` sums of both per channel */
} gpu_norm;

#endif
