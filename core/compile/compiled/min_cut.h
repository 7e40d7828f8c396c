/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* min_cut.h: minimum cuts of small graphs. */

#ifndef CORE_COMPILE_MIN_CUT_H
#define CORE_COMPILE_MIN_CUT_H

#include <libcore/status.h>

#include <stdbool.h>
#include <stdint.h>

/* A capacity that no cut contains, if there is one without. */
#define CORE__CUT_NEVER (UINT64_MAX / 4)

typedef struct core__cut_edge {
    uint32_t from, to;
    uint64_t capacity; /* at most CORE__CUT_NEVER */
} core__cut_edge;

/* Finds the set of edges of least total capacity that separates source from
 * sink.  out_source_side: by vertex, true if it stays connected to the source.
 * Of several such sets, the one that is nearest to the sink. */
core_status core__min_cut(uint32_t nvertices, const core__cut_edge *edges,
                          uint32_t nedges, uint32_t source, uint32_t sink,
                          bool *out_source_side);

#endif
