/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Joins groups that do not read each other, such as the updates of parameters
 * of one size: a launch for all of them instead of one for each.
 *
 * Two groups of the same space and stage can be one, as fusion_groups.c says.
 * Groups that nothing else reads and that read inputs of the program only can
 * be one at any stage; others would keep what they read in memory for longer.
 * Only groups of small results, and of small inputs of reductions, are joined,
 * where a launch takes longer than the work, and none that can run on parts of
 * a product. */

#include "compile/fusion/fusion_finding.h"

#include "base/memory.h"
#include "ops_ids.h"

#include <string.h>

enum { NONE = CORE__FUSION_NONE, BINS = 32, ANY_STAGE = UINT32_MAX };

bool core__epilogue_follows(const core_operator *op)
{
    static const uint32_t ids[] = {CORE_OP_MM, CORE_OP_ADDMM, CORE_OP_BMM,
                                   CORE_OP_BADDBMM, CORE_OP_CONVOLUTION};

    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (op->id == ids[i])
            return true;
    return false;
}

/* Groups that can be one, in one list. */
typedef struct bin {
    uint32_t space, stage;
    uint32_t first, last; /* nodes */
    uint32_t count;       /* groups */
} bin;

typedef struct joining {
    core__finding *f;
    uint32_t *after; /* by node: another one of its group; NONE: the last */
    uint32_t *last;  /* by first node of a group: the end of that list */
    uint32_t *nodes; /* of the groups that are looked at */
    bool *is_tied;   /* by first node of a group: to its stage, by what reads it
                      * or what it reads */
    bool *follows;   /* the same: it reads the result of a product */
    bin bins[BINS];
    uint32_t nbins, oldest;
} joining;

static void note_value(void *context, uint32_t value)
{
    joining *j = context;
    core__finding *f = j->f;
    uint32_t maker = core__maker_of(f, value), from, to;

    if (maker == NONE)
        return;
    from = core__can_fuse(f, maker) ? core__first_of(f, maker) : NONE;
    to = core__can_fuse(f, f->node) ? core__first_of(f, f->node) : NONE;
    if (from != NONE && from != to)
        j->is_tied[from] = true;
    if (to != NONE && from != to)
        j->is_tied[to] = true;
    if (to != NONE && f->program->nodes[maker].op &&
        core__epilogue_follows(f->program->nodes[maker].op))
        j->follows[to] = true;
}

static void note_groups(joining *j)
{
    core__finding *f = j->f;

    for (uint32_t i = 0; i < f->program->nnodes; i++) {
        uint32_t first;

        f->node = f->to->order[i];
        core__node_each_value(&f->program->nodes[f->node], note_value, j);
        if (!core__can_fuse(f, f->node))
            continue;
        first = core__first_of(f, f->node);
        if (first != f->node)
            j->after[j->last[first]] = f->node;
        j->last[first] = f->node;
    }
}

static bool can_join(const joining *j, uint32_t group)
{
    const core__finding *f = j->f;
    const core__program_node *node = &f->program->nodes[group];

    if (!core__can_fuse(f, group) || f->group[group] != group ||
        (f->to->has_epilogues && j->follows[group] && j->last[group] != group))
        return false;
    return core__type_bytes(core__fusion_space(f->program, node)) <=
           f->to->joined_most;
}

static uint32_t list(const joining *j, uint32_t node, uint32_t count)
{
    for (; node != NONE; node = j->after[node])
        j->nodes[count++] = node;
    return count;
}

static bool is_one_kernel(const joining *j, uint32_t a, uint32_t b)
{
    return core__finding_fits(j->f, j->nodes, list(j, b, list(j, a, 0)));
}

static void join_all(joining *j, bin *from)
{
    if (from->count >= j->f->to->joined_least)
        for (uint32_t node = from->first; node != NONE; node = j->after[node])
            core__finding_join(j->f, from->first, node);
    from->count = 0;
}

/* Where groups like this one are. */
static bin *bin_of(joining *j, uint32_t space, uint32_t stage)
{
    bin *at;

    for (uint32_t i = 0; i < j->nbins; i++)
        if (j->bins[i].space == space && j->bins[i].stage == stage)
            return &j->bins[i];
    if (j->nbins < BINS) {
        at = &j->bins[j->nbins++];
    } else {
        at = &j->bins[j->oldest++ % BINS];
        join_all(j, at);
    }
    *at = (bin){.space = space, .stage = stage};
    return at;
}

static void add(joining *j, uint32_t group)
{
    const core__finding *f = j->f;
    bin *to = bin_of(j, f->space[group],
                     j->is_tied[group] ? f->stage[group] : ANY_STAGE);

    if (to->count && !is_one_kernel(j, to->first, group))
        join_all(j, to);
    if (to->count)
        j->after[to->last] = group;
    else
        to->first = group;
    to->last = j->last[group];
    to->count++;
}

core_status core__finding_join_independent(core__finding *f)
{
    size_t nodes = f->program->nnodes;
    size_t size = nodes * (3 * sizeof(uint32_t) + 2) + 1;
    joining j = {.f = f, .after = core__alloc_zero(size)};

    if (!j.after)
        return core__error_memory(size);
    j.last = j.after + nodes;
    j.nodes = j.last + nodes;
    j.is_tied = (bool *)(j.nodes + nodes);
    j.follows = j.is_tied + nodes;
    memset(j.after, 0xff, nodes * sizeof *j.after);
    note_groups(&j);
    for (uint32_t i = 0; i < nodes; i++)
        if (can_join(&j, f->to->order[i]))
            add(&j, f->to->order[i]);
    for (uint32_t i = 0; i < j.nbins; i++)
        join_all(&j, &j.bins[i]);
    core__free(j.after);
    return CORE_OK;
}
