/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_scatter.h: what kernels that write by indices are handed.
 *
 * An entry is what one index, or one of each index tensor, says: a place of
 * `to`, and what goes there.  Entries are sorted by place, those of one place in
 * their order; then a thread goes through all that fall on an element. */

#ifndef GPU_SHARED_SCATTER_H
#define GPU_SHARED_SCATTER_H

#include <gpu/shared.h>

enum {
    GPU_SCATTER_PUT, /* the last one stays */
    GPU_SCATTER_ADD,
    GPU_SCATTER_MULTIPLY,
    GPU_SCATTER_AVERAGE,
    GPU_SCATTER_LARGEST,
    GPU_SCATTER_SMALLEST
};

typedef struct gpu_scatter {
    void *to;
    const void *from;  /* NULL: the number */
    int64_t *keys;     /* of each entry: its place; -1: passed over */
    const void *pairs; /* sorted */
    int64_t entries;
    /* An entry stands for outer x rest elements: of `to` they lie outer_step
     * and by `sizes` and `strides` apart, of `from` as outer x entries x rest.
     * All innermost first, in elements. */
    int64_t outer, rest, outer_step;
    int64_t sizes[GPU_DIMS], strides[GPU_DIMS];
    uint32_t ndim, tensors;
    /* Indices: tensors > 0: one tensor for each of some dimensions. */
    const void *index[GPU_DIMS];
    int64_t limits[GPU_DIMS], steps[GPU_DIMS];
    /* tensors 0: an index for each element of a window of `to`, along dim. */
    int64_t index_sizes[GPU_DIMS], index_steps[GPU_DIMS];
    int64_t from_steps[GPU_DIMS];
    uint32_t index_ndim, dim;
    uint32_t index_dtype, dtype;
    uint32_t mode, with_self;
    int64_t padding; /* an index that is passed over; INT64_MIN: none */
    uint64_t bits;   /* the number, as an element */
    double number, alpha;
    int64_t number_whole, alpha_whole;
    uint32_t wraps; /* indices below 0 count from the end */
    uint32_t reserved;
    gpu_error *error;
    int64_t call;
} gpu_scatter;

#endif
