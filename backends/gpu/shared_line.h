/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_line.h: the parameters of kernels that process lines of outer x size x
 * inner elements, dense. */

#ifndef GPU_SHARED_LINE_H
#define GPU_SHARED_LINE_H

#include <gpu/shared.h>

/* Cumulative sums and similar operators. */
typedef struct gpu_scan {
    void *to;
    int64_t *where; /* of extremes */
    const void *from;
    int64_t outer, size, inner;
    uint32_t to_dtype, from_dtype;
    uint32_t least, reserved;
} gpu_scan;

/* A block sorts a tile of this many elements in shared memory. */
enum { GPU_SORT_TILE = 1024 };
enum { GPU_SORTED, GPU_KTH, GPU_MEDIAN, GPU_NAN_MEDIAN, GPU_MODE };

typedef struct gpu_sort {
    void *to;
    int64_t *where; /* NULL: indices are not needed */
    const void *from;
    void *keys, *scratch; /* pairs of key and index, line by line */
    int64_t outer, size, inner;
    int64_t run;  /* for a merge: the length of the sorted runs */
    int64_t keep; /* elements per line; for GPU_KTH, the rank */
    uint32_t dtype, descending, what, reserved;
} gpu_sort;

/* Finds where elements of `from` would be inserted in sorted rows, `each` of
 * them per row. */
typedef struct gpu_search {
    void *to;
    const void *rows, *from;
    const int64_t *order; /* NULL: the rows themselves are sorted */
    int64_t count, size, each;
    uint32_t to_dtype, dtype;
    uint32_t right, reserved;
    gpu_error *error;
    int64_t call;
} gpu_search;

#endif
