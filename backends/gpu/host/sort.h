/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sort.h: sorting for other families. */

#ifndef GPU_SORT_H
#define GPU_SORT_H

#include <gpu/host/host.h>

/* Sorts pairs {uint64_t key; int64_t at} in scratch memory, where the key is
 * positions[at] with its first bit inverted; ascending, equal keys by `at`. */
core_status gpu_sort_positions(core_call *call, const int64_t *positions,
                               int64_t count, const void **out_pairs);

/* Stores the indices of the `keep` smallest numbers of each of `lines` rows of
 * `size` f64, in ascending order, in `where`. */
core_status gpu_sort_smallest(core_call *call, const double *from,
                              int64_t lines, int64_t size, int64_t keep,
                              int64_t *where);

#endif
