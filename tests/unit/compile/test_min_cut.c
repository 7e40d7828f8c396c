/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Minimum cuts of random graphs against all cuts. */

#include "support/autograd.h"

#include "compile/compiled/min_cut.h"

enum { VERTICES = 7, EDGES = 16, SOURCE = 0, SINK = VERTICES - 1 };

static uint32_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % below;
}

static uint64_t capacity_of(const core__cut_edge *edges, uint32_t side)
{
    uint64_t sum = 0;

    for (int i = 0; i < EDGES; i++)
        if ((side >> edges[i].from & 1) && !(side >> edges[i].to & 1))
            sum = sum < CORE__CUT_NEVER ? sum + edges[i].capacity : sum;
    /* As several that no cut contains. */
    return sum < CORE__CUT_NEVER ? sum : CORE__CUT_NEVER;
}

/* The side with the most vertices is the cut nearest to the sink. */
static uint32_t best_of_all(const core__cut_edge *edges)
{
    uint32_t best = 1u << SOURCE;

    for (uint32_t side = 0; side < 1u << VERTICES; side++) {
        uint64_t least = capacity_of(edges, best), sum;

        if (!(side >> SOURCE & 1) || side >> SINK & 1)
            continue;
        sum = capacity_of(edges, side);
        if (sum < least || (sum == least && __builtin_popcount(side) >
                                                __builtin_popcount(best)))
            best = side;
    }
    return best;
}

START_TEST(a_cut_is_the_least_and_nearest_to_the_sink)
{
    for (int graph = 0; graph < 500; graph++) {
        core__cut_edge edges[EDGES];
        bool in_source_side[VERTICES];
        uint32_t side = 0, best;

        for (int i = 0; i < EDGES; i++) {
            edges[i].from = draw(VERTICES);
            edges[i].to = draw(VERTICES);
            edges[i].capacity = draw(4) ? draw(5) : CORE__CUT_NEVER;
        }
        OK(core__min_cut(VERTICES, edges, EDGES, SOURCE, SINK, in_source_side));
        for (uint32_t i = 0; i < VERTICES; i++)
            side |= (uint32_t)in_source_side[i] << i;
        best = best_of_all(edges);
        ck_assert_uint_eq(capacity_of(edges, side), capacity_of(edges, best));
        if (capacity_of(edges, best) < CORE__CUT_NEVER)
            ck_assert_uint_eq(side, best);
    }
}
END_TEST

SUITE("compile/min_cut", a_cut_is_the_least_and_nearest_to_the_sink)
