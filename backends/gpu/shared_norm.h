/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_norm.h: what kernels that normalise are handed. */

#ifndef GPU_SHARED_NORM_H
#define GPU_SHARED_NORM_H

#include <gpu/shared.h>

/* Layers and groups: rows of channels x inner elements; the weights of a row
 * begin at (row % groups) x channels.  Batches: images x channels x inner.
 * What is not there is NULL. */
typedef struct gpu_norm {
    void *to, *mean, *spread; /* spread: 1 / std */
    void *to_weight, *to_bias;
    const void *from, *grad, *weight, *bias;
    void *running_mean, *running_var;
    int64_t rows, groups, channels, inner;
    double eps, momentum;
    uint32_t statistics; /* dtype of mean and spread */
    uint32_t running;    /* dtype of the running ones */
    uint32_t training, parts;
    void *partial; /* backward: parts sums of both for each channel */
} gpu_norm;

#endif
