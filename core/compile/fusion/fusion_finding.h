/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fusion_finding.h: what the parts of the search for groups share
 * (fusion_groups.c). */

#ifndef CORE_COMPILE_FUSION_FINDING_H
#define CORE_COMPILE_FUSION_FINDING_H

#include "compile/fusion/fusion.h"

enum { CORE__FUSION_NONE = UINT32_MAX, CORE__FUSION_SPACES = 64 };

typedef struct core__finding {
    const core_program *program;
    core__grouping *to;
    uint32_t *space; /* by node; NONE: it cannot be fused */
    uint32_t *stage;
    uint32_t *bound; /* the latest stage that what reads its result allows */
    bool *gains;     /* by node: at that stage it is in a group with a reader */
    uint32_t *group; /* by node: an earlier node of the group, or itself */
    uint32_t *lead;  /* by node: the first node of the numbered group */
    uint32_t *next;  /* by node: the next one of the numbered group; NONE */
    uint32_t *place; /* by node: where it is in the order */
    uint32_t *uses;  /* by value: how often nodes read it */
    uint32_t *seen;  /* by value: a node that reads it; NONE: none so far */
    const char **refused; /* by node; NULL: it can be fused */
    const core__program_type *spaces[CORE__FUSION_SPACES];
    uint32_t nspaces;
    uint32_t node; /* that is looked at */
    bool loses;
} core__finding;

static inline bool core__can_fuse(const core__finding *f, uint32_t node)
{
    return f->space[node] != CORE__FUSION_NONE;
}

/* The node that computes a value; NONE: it is an input. */
static inline uint32_t core__maker_of(const core__finding *f, uint32_t value)
{
    const core__program_value *v = &f->program->values[value];

    return v->source == CORE__VALUE_OF_NODE ? v->index : CORE__FUSION_NONE;
}

/* The first node of the group of a node. */
static inline uint32_t core__first_of(const core__finding *f, uint32_t node)
{
    while (f->group[node] != node)
        node = f->group[node];
    return node;
}

/* Makes one group of those of two nodes. */
void core__finding_join(core__finding *f, uint32_t a, uint32_t b);
/* Whether the operands of these nodes are few enough for one kernel. */
bool core__finding_fits(const core__finding *f, const uint32_t *nodes,
                        uint32_t count);

/* fusion_independent.c.  Joins small groups that do not read each other.
 * `nodes`: memory for a number of each node. */
core_status core__finding_join_independent(core__finding *f);

#endif
