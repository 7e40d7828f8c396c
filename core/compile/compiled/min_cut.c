/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Dinic's algorithm: in each round a breadth-first search gives each vertex its
 * distance from the source, and paths along growing distances are filled. */

#include "compile/compiled/min_cut.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

enum { NONE = UINT32_MAX };

/* Arc 2i is edge i, arc 2i + 1 leads back. */
typedef struct flow {
    uint32_t nvertices, source, sink;
    uint32_t *first;   /* by vertex: an arc, or NONE */
    uint32_t *next;    /* by arc: another one of the same vertex */
    uint32_t *to;      /* by arc */
    uint64_t *left;    /* by arc: capacity that is left */
    uint32_t *level;   /* by vertex: distance from the source */
    uint32_t *current; /* by vertex: the arc to try next */
    uint32_t *queue;   /* of vertices, or a path of arcs */
} flow;

static core_status begin(flow *f, const core__cut_edge *edges, uint32_t nedges)
{
    size_t arcs = 2 * (size_t)nedges, vertices = f->nvertices;
    size_t size =
        arcs * sizeof *f->left + (2 * arcs + 4 * vertices) * sizeof *f->first;

    f->left = core__alloc(size + 1);
    if (!f->left)
        return core__error_memory(size);
    f->next = (uint32_t *)(void *)(f->left + arcs);
    f->to = f->next + arcs;
    f->first = f->to + arcs;
    f->level = f->first + vertices;
    f->current = f->level + vertices;
    f->queue = f->current + vertices;
    for (uint32_t i = 0; i < vertices; i++)
        f->first[i] = NONE;
    for (uint32_t i = 0; i < arcs; i++) {
        const core__cut_edge *edge = &edges[i / 2];
        uint32_t from = i & 1 ? edge->to : edge->from;

        f->to[i] = i & 1 ? edge->from : edge->to;
        f->left[i] = i & 1 ? 0 : edge->capacity;
        f->next[i] = f->first[from];
        f->first[from] = i;
    }
    return CORE_OK;
}

/* True if the sink is reached. */
static bool find_levels(flow *f)
{
    uint32_t count = 1;

    for (uint32_t i = 0; i < f->nvertices; i++)
        f->level[i] = NONE;
    f->level[f->source] = 0;
    f->queue[0] = f->source;
    for (uint32_t at = 0; at < count; at++) {
        uint32_t vertex = f->queue[at];

        for (uint32_t a = f->first[vertex]; a != NONE; a = f->next[a])
            if (f->left[a] && f->level[f->to[a]] == NONE) {
                f->level[f->to[a]] = f->level[vertex] + 1;
                f->queue[count++] = f->to[a];
            }
    }
    return f->level[f->sink] != NONE;
}

/* Fills the path, an arc per level, and returns the first arc that is full. */
static uint32_t fill(flow *f, const uint32_t *path, uint32_t length)
{
    uint64_t least = UINT64_MAX;
    uint32_t full = 0;

    for (uint32_t i = length; i-- > 0;)
        if (f->left[path[i]] <= least) {
            least = f->left[path[i]];
            full = i;
        }
    for (uint32_t i = 0; i < length; i++) {
        f->left[path[i]] -= least;
        f->left[path[i] ^ 1] += least;
    }
    return full;
}

/* Fills paths until none along growing levels is left. */
static void fill_paths(flow *f)
{
    uint32_t *path = f->queue, length = 0, vertex = f->source;

    memcpy(f->current, f->first, f->nvertices * sizeof *f->first);
    for (;;) {
        uint32_t *arc = &f->current[vertex];

        if (vertex == f->sink) {
            length = fill(f, path, length);
            vertex = f->to[path[length] ^ 1];
            continue;
        }
        while (*arc != NONE && !(f->left[*arc] &&
                                 f->level[f->to[*arc]] == f->level[vertex] + 1))
            *arc = f->next[*arc];
        if (*arc != NONE) {
            path[length++] = *arc;
            vertex = f->to[*arc];
        } else if (length == 0) {
            return;
        } else {
            vertex = f->to[path[--length] ^ 1];
            f->current[vertex] = f->next[f->current[vertex]];
        }
    }
}

/* What cannot reach the sink any more is on the source's side. */
static void find_side(flow *f, bool *out_source_side)
{
    uint32_t count = 1;

    for (uint32_t i = 0; i < f->nvertices; i++)
        out_source_side[i] = true;
    out_source_side[f->sink] = false;
    f->queue[0] = f->sink;
    for (uint32_t at = 0; at < count; at++)
        for (uint32_t a = f->first[f->queue[at]]; a != NONE; a = f->next[a])
            if (f->left[a ^ 1] && out_source_side[f->to[a]]) {
                out_source_side[f->to[a]] = false;
                f->queue[count++] = f->to[a];
            }
}

core_status core__min_cut(uint32_t nvertices, const core__cut_edge *edges,
                          uint32_t nedges, uint32_t source, uint32_t sink,
                          bool *out_source_side)
{
    flow f = {.nvertices = nvertices, .source = source, .sink = sink};

    CORE_TRY(begin(&f, edges, nedges));
    while (find_levels(&f))
        fill_paths(&f);
    find_side(&f, out_source_side);
    core__free(f.left);
    return CORE_OK;
}
