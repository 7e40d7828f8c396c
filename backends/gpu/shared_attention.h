/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_attention.h: what kernels of attention are handed. */

#ifndef GPU_SHARED_ATTENTION_H
#define GPU_SHARED_ATTENTION_H

#include <gpu/shared.h>

/* [batch, head, row, item]; strides in elements. */
typedef struct gpu_heads {
    void *data; /* NULL: there is none */
    int64_t batch, head, row, item;
} gpu_heads;

/* softmax(scale query keyᵀ + bias) value, and its gradients.  What is one
 * number for a query (sum, delta) is of the type computed with. */
typedef struct gpu_attention {
    gpu_heads query, key, value, output, bias;
    gpu_heads grad, to_query, to_key, to_value, to_bias;
    gpu_heads sum; /* logarithm of what softmax divides by; item: 0 */
    void *delta;   /* sum of gradient times output; dense */
    int64_t batch, heads, rows, columns; /* queries, keys */
    int64_t inner, outer;                /* elements of a query, of a value */
    int64_t row_tiles, column_tiles;
    double scale;
    /* Dropout: what is kept is multiplied; an element is kept whose 32 bits are
     * below.  The forward kernel writes what it drew with to state, where the
     * backward ones find it. */
    double kept_scale;
    uint64_t kept_below, seed, offset;
    const uint64_t *counter; /* NULL, or what is added to offset, and seed */
    uint64_t *state[2];      /* seed, offset */
    uint32_t dropout, causal, whole_bias, reserved; /* whole: of bool */
} gpu_attention;

#endif
