/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Correlates a node that backward ran with the operator that recorded it, by
 * the node's sequence number.  Each thread has its own sequence. */

#include "base/error.h"
#include "base/memory.h"
#include "profiler/profile.h"

#include <stdlib.h>
#include <string.h>

typedef struct recorder {
    uint64_t first; /* numbers [first, first + count) */
    uint32_t count;
    uint32_t part, event;
} recorder;

static int by_first(const void *left, const void *right)
{
    const recorder *a = left, *b = right;

    if (a->part != b->part)
        return a->part < b->part ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    /* Of operators that start with the same number, the innermost comes
     * last. */
    return a->count > b->count ? -1 : a->count < b->count;
}

/* The innermost operator of one thread that recorded a sequence number.
 * Operators that contain the number are nested, so it is the last one that
 * starts at or before the number and contains it. */
static const recorder *find(const recorder *recorders, size_t count,
                            uint32_t part, uint64_t sequence)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const recorder *at = &recorders[middle];

        if (at->part < part || (at->part == part && at->first <= sequence))
            low = middle + 1;
        else
            high = middle;
    }
    while (low-- > 0 && recorders[low].part == part)
        if (sequence < recorders[low].first + recorders[low].count)
            return &recorders[low];
        else if (recorders[low].first + 4096 < sequence)
            return NULL; /* no operator records so many nodes */
    return NULL;
}

static bool records_nodes(const core__profile_event *event)
{
    return event->kind == CORE_PROFILE_OPERATOR && event->nodes;
}

static bool is_node(const core__profile_event *event)
{
    return event->kind == CORE_PROFILE_BACKWARD;
}

static size_t count_events(const core_profiler *profiler,
                           bool (*counts)(const core__profile_event *))
{
    size_t count = 0;

    for (uint32_t p = 0; p < profiler->nparts; p++)
        for (uint32_t i = 0; i < profiler->parts[p].nevents; i++)
            count += counts(&profiler->parts[p].events[i]);
    return count;
}

static void list_recorders(const core_profiler *profiler, recorder *out)
{
    for (uint32_t p = 0; p < profiler->nparts; p++) {
        const core__profile_part *part = &profiler->parts[p];

        for (uint32_t i = 0; i < part->nevents; i++)
            if (records_nodes(&part->events[i]))
                *out++ = (recorder){part->events[i].sequence,
                                    part->events[i].nodes, p, i};
    }
}

/* A node is named "mul.Tensor backward" unless a program named it. */
static bool is_named_for(const char *node, const char *operator)
{
    size_t size = strlen(operator);

    return strncmp(node, operator, size) == 0 &&
           strcmp(node + size, " backward") == 0;
}

/* The operator in one thread that recorded the node. */
static const recorder *recorder_in(const core_profiler *profiler,
                                   const recorder *recorders, size_t count,
                                   uint32_t part,
                                   const core__profile_event *node,
                                   bool *out_named)
{
    const recorder *found = find(recorders, count, part, node->sequence);
    const core__profile_event *event;

    *out_named = false;
    if (!found)
        return NULL;
    event = &profiler->parts[part].events[found->event];
    *out_named = is_named_for(node->name, event->name);
    /* The number may belong to a later operator if the thread is not the one of
     * the forward. */
    return event->end <= node->begin ? found : NULL;
}

/* Sequence numbers are per thread, so operators of several threads may match:
 * prefers the operator that the node is named for, then the thread that ran the
 * backward.  If it is still ambiguous, returns NULL. */
static const recorder *recorder_of(const core_profiler *profiler,
                                   const recorder *recorders, size_t count,
                                   uint32_t part,
                                   const core__profile_event *node)
{
    const recorder *found[2] = {NULL, NULL}; /* indexed by whether the node is
                                           * named for it */
    uint32_t number[2] = {0, 0};
    bool named;

    for (uint32_t p = 0; p < profiler->nparts; p++) {
        const recorder *one =
            recorder_in(profiler, recorders, count, p, node, &named);

        if (one && p == part && named)
            return one;
        if (!one)
            continue;
        found[named] = p == part || !found[named] ? one : found[named];
        number[named]++;
    }
    if (number[true])
        return number[true] == 1 ? found[true] : NULL;
    return found[false] && (number[false] == 1 || found[false]->part == part)
               ? found[false]
               : NULL;
}

core_status core__node_correlations_make(const core_profiler *profiler,
                                         core__node_correlation **out_links,
                                         size_t *out_count)
{
    core__node_correlation *links;
    size_t nrecorders = count_events(profiler, records_nodes);
    size_t nnodes = count_events(profiler, is_node), count = 0;
    recorder *recorders = core__alloc((nrecorders + 1) * sizeof *recorders);

    *out_links = NULL;
    *out_count = 0;
    links = core__alloc((nnodes + 1) * sizeof *links);
    if (!recorders || !links) {
        core__free(recorders);
        core__free(links);
        return core__error_memory((nnodes + nrecorders) * sizeof *links);
    }
    list_recorders(profiler, recorders);
    if (nrecorders)
        qsort(recorders, nrecorders, sizeof *recorders, by_first);
    for (uint32_t p = 0; p < profiler->nparts; p++)
        for (uint32_t i = 0; i < profiler->parts[p].nevents; i++) {
            const core__profile_event *node = &profiler->parts[p].events[i];
            const recorder *from;

            if (node->kind != CORE_PROFILE_BACKWARD)
                continue;
            from = recorder_of(profiler, recorders, nrecorders, p, node);
            if (from)
                links[count++] =
                    (core__node_correlation){from->part, from->event, p, i};
        }
    core__free(recorders);
    *out_links = links;
    *out_count = count;
    return CORE_OK;
}
