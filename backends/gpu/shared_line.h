/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shared_line.h: what kernels that go along lines are handed: outer x size x
 * inner elements, dense. */

#ifndef GPU_SHARED_LINE_H
#define GPU_SHARED_LINE_H

#include <gpu/shared.h>

/* Running sums and their like. */
typedef struct gpu_scan {
    void *to;
    int64_t *where; /* of extremes */
    const void *from;
    int64_t outer, size, inner;
    uint32_t to_dtype, from_dtype;
    uint32_t least, reserved;
} gpu_scan;

/* A tile of so many is sorted in a block's shared memory. */
enum { GPU_SORT_TILE = 1024 };
enum { GPU_SORTED, GPU_KTH, GPU_MEDIAN, GPU_NAN_MEDIAN, GPU_MODE };

typedef struct gpu_sort {
    void *to;
    int64_t *where; /* NULL: nobody wants places */
    const void *from;
    void *keys, *scratch; /* pairs of key and place, line by line */
    int64_t outer, size, inner;
    int64_t run;  /* merge: how long the sorted runs are */
    int64_t keep; /* of each line; GPU_KTH: the rank */
    uint32_t dtype, descending, what, reserved;
} gpu_sort;

/* Where `from` would be put into sorted rows, `each` of them into a row. */
typedef struct gpu_search {
    void *to;
    const void *rows, *from;
    const int64_t *order; /* NULL: the rows are sorted as they lie */
    int64_t count, size, each;
    uint32_t to_dtype, dtype;
    uint32_t right, reserved;
    gpu_error *error;
    int64_t call;
} gpu_search;

#endif
