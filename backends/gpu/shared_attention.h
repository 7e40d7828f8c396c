/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_attention.h: the parameters of attention kernels. */

#ifndef GPU_SHARED_ATTENTION_H
#define GPU_SHARED_ATTENTION_H

#include <gpu/shared.h>

/* [batch, head, row, item]; strides in elements. */
typedef struct gpu_heads {
    void *data; /* NULL: absent */
    int64_t batch, head, row, item;
} gpu_heads;

/* softmax(scale query keyᵀ + bias) value, and its gradients.  The numbers per
 * query (sum, delta) have the type that is computed with. */
typedef struct gpu_attention {
    gpu_heads query, key, value, output, bias;
    gpu_heads grad, to_query, to_key, to_value, to_bias;
    gpu_heads sum; /* log of the softmax denominator; item: 0 */
    void *delta;   /* sum of gradient times output; dense */
    int64_t batch, heads, rows, columns; /* rows: queries; columns: keys */
    int64_t inner, outer; /* elements of a query, and of a value */
    int64_t row_tiles, column_tiles;
    double scale;
    /* Dropout: an element is kept if its 32 bits are below kept_below, and then
     * multiplied by kept_scale.  The forward kernel stores seed and offset in
     * `state`, where the backward kernels read them. */
    double kept_scale;
    uint64_t kept_below, seed, offset;
    const uint64_t *counter; /* NULL, or added to offset; then the seed */
    uint64_t *state[2];      /* seed, offset */
    uint32_t dropout, causal, whole_bias,
        reserved; /* whole_bias: the bias is a bool mask */
} gpu_attention;

#endif
