/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_scatter.h: the parameters of kernels that write by index.
 *
 * An entry is what one index, or one index of each tensor, selects: a position
 * in `to` and what is written there.  Entries are sorted by position, stably;
 * then one thread processes all entries of an element. */

#ifndef GPU_SHARED_SCATTER_H
#define GPU_SHARED_SCATTER_H

#include <gpu/shared.h>

enum {
    GPU_SCATTER_PUT, /* the last one wins */
    GPU_SCATTER_ADD,
    GPU_SCATTER_MULTIPLY,
    GPU_SCATTER_AVERAGE,
    GPU_SCATTER_LARGEST,
    GPU_SCATTER_SMALLEST
};

typedef struct gpu_scatter {
    void *to;
    const void *from;  /* NULL: the number is used */
    int64_t *keys;     /* the position of each entry; -1: skipped */
    const void *pairs; /* sorted */
    int64_t entries;
    /* An entry covers outer x rest elements: in `to` they are outer_step, and
     * by `sizes` and `strides`, apart; `from` is outer x entries x rest.
     * Innermost first, in elements. */
    int64_t outer, rest, outer_step;
    int64_t sizes[GPU_DIMS], strides[GPU_DIMS];
    uint32_t ndim, tensors;
    /* If tensors > 0: one index tensor for each of some dimensions. */
    const void *index[GPU_DIMS];
    int64_t limits[GPU_DIMS], steps[GPU_DIMS];
    /* If tensors is 0: an index for each element of a window of `to`, along
     * dim. */
    int64_t index_sizes[GPU_DIMS], index_steps[GPU_DIMS];
    int64_t from_steps[GPU_DIMS];
    uint32_t index_ndim, dim;
    uint32_t index_dtype, dtype;
    uint32_t mode, with_self;
    int64_t padding; /* an index to skip; INT64_MIN: none */
    uint64_t bits;   /* the number, as bits of an element */
    double number, alpha;
    int64_t number_whole, alpha_whole;
    uint32_t wraps; /* negative indices count from the end */
    uint32_t reserved;
    gpu_error *error;
    int64_t call;
} gpu_scatter;

#endif
