/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_index.h: the parameters of kernels that read by index. */

#ifndef GPU_SHARED_INDEX_H
#define GPU_SHARED_INDEX_H

#include <gpu/shared.h>

/* All tensors are dense; sizes and strides are innermost first, in elements.
 *
 * lines: to[o][i][k] from from[o][index[i]][k]. elements: gather along
 * `dim`. */
typedef struct gpu_indexing {
    void *to;
    const void *from, *index;
    uint64_t count; /* elements of `to` */
    int64_t outer, n, inner, limit;
    uint32_t ndim, dim;
    gpu_divisor sizes[GPU_DIMS]; /* of `to` */
    int64_t from_strides[GPU_DIMS];
    uint32_t index_dtype, reserved;
    gpu_error *error;
    int64_t call;
} gpu_indexing;

/* nll_loss of outer x classes x inner. */
typedef struct gpu_loss {
    void *to, *total;                   /* backward: total is read */
    const void *from, *target, *weight; /* weight NULL: ones */
    int64_t outer, classes, inner, ignore;
    uint32_t reduction, index_dtype;
    gpu_error *error;
    int64_t call;
} gpu_loss;

/* arange, eye and triangles. */
typedef struct gpu_rule {
    void *to;
    const void *from;
    uint64_t count;
    int64_t rows, columns, diagonal;
    double start, width;
    int64_t first, step;
    uint32_t dtype, upper;
} gpu_rule;

#endif
