/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Finds groups of operators that one kernel can compute.
 *
 * Two operators can be in one group if their results have the same sizes, which
 * are the group's space, and if nothing outside of the group must run between
 * them.  To see that, each node gets a stage.  Along an edge from a node to one
 * that reads its result, the stage grows by one, except
 *     - from one that can be fused to another one of the same space,
 *     - from one that cannot be fused to one that can.
 * So a path that leaves a group and comes back gets to a later stage: nodes
 * with the same space and stage can be in one group, whichever they are.  Nodes
 * first have the earliest stage, and then a later one where that puts them in a
 * group with what reads their results. */

#include "compile/fusion/fusion_finding.h"

#include "base/memory.h"

#include <string.h>

enum { NONE = CORE__FUSION_NONE, SPACES = CORE__FUSION_SPACES };

typedef core__finding finding;

static bool same_space(const finding *f, uint32_t a, uint32_t b)
{
    return core__can_fuse(f, a) && f->space[a] == f->space[b];
}

/* --------------------------------------------------------------- spaces -- */

static bool same_sizes(const core__program_type *a, const core__program_type *b)
{
    return a->ndim == b->ndim &&
           memcmp(core__type_sizes(a), core__type_sizes(b),
                  a->ndim * sizeof(int64_t)) == 0;
}

static uint32_t space_of(finding *f, const core__program_type *type)
{
    for (uint32_t i = 0; i < f->nspaces; i++)
        if (same_sizes(f->spaces[i], type))
            return i;
    if (f->nspaces == SPACES)
        return NONE;
    f->spaces[f->nspaces] = type;
    return f->nspaces++;
}

static core_status set_spaces(finding *f)
{
    const core_program *program = f->program;

    for (uint32_t n = 0; n < program->nnodes; n++) {
        const core__program_node *node = &program->nodes[n];

        CORE_TRY(core__fusion_refuses(program, f->to->tensors, node,
                                      f->to->no_rows, &f->refused[n]));
        f->space[n] = f->refused[n]
                          ? NONE
                          : space_of(f, core__fusion_space(program, node));
        if (!f->refused[n] && f->space[n] == NONE)
            f->refused[n] = "the program has results of too many sizes";
    }
    return CORE_OK;
}

/* --------------------------------------------------------------- stages -- */

static uint32_t growth(const finding *f, uint32_t from, uint32_t to)
{
    return same_space(f, from, to) ||
                   (!core__can_fuse(f, from) && core__can_fuse(f, to))
               ? 0
               : 1;
}

static void raise_stage(void *context, uint32_t value)
{
    finding *f = context;
    uint32_t from = core__maker_of(f, value), least;

    f->uses[value]++;
    if (from == NONE)
        return;
    least = f->stage[from] + growth(f, from, f->node);
    if (f->stage[f->node] < least)
        f->stage[f->node] = least;
}

/* Random operators, checks, and operators of programs and plugins, keep their
 * order. */
static bool keeps_order(const core__program_node *node)
{
    return core__node_acts(node) || node->op->registrations || node->regions;
}

static void set_earliest(finding *f)
{
    uint32_t previous = NONE;

    for (uint32_t i = 0; i < f->program->nnodes; i++) {
        const core__program_node *node;

        f->node = f->to->order[i];
        node = &f->program->nodes[f->node];
        f->place[f->node] = i;
        core__node_each_value(node, raise_stage, f);
        if (!keeps_order(node))
            continue;
        if (previous != NONE && f->stage[f->node] <= f->stage[previous])
            f->stage[f->node] = f->stage[previous] + 1;
        previous = f->node;
    }
}

/* A node that reads a value allows its maker no later stage than this. */
static void lower_bound(void *context, uint32_t value)
{
    finding *f = context;
    uint32_t maker = core__maker_of(f, value), most;

    if (maker == NONE || !core__can_fuse(f, maker))
        return;
    most = f->stage[f->node] - growth(f, maker, f->node);
    if (most < f->bound[maker])
        f->gains[maker] = false;
    if (most <= f->bound[maker]) {
        f->bound[maker] = most;
        f->gains[maker] |= same_space(f, maker, f->node);
    }
}

/* Whether a node at a later stage would leave the group of what it reads. */
static void look_at_argument(void *context, uint32_t value)
{
    finding *f = context;
    uint32_t maker = core__maker_of(f, value);

    if (maker != NONE && same_space(f, maker, f->node) &&
        f->stage[maker] == f->stage[f->node] &&
        (f->uses[value] > 1 || f->program->values[value].kept))
        f->loses = true;
}

static void set_latest(finding *f)
{
    for (uint32_t i = f->program->nnodes; i-- > 0;) {
        uint32_t n = f->to->order[i];
        const core__program_node *node = &f->program->nodes[n];

        f->node = n;
        f->loses = !f->gains[n];
        if (f->gains[n])
            core__node_each_value(node, look_at_argument, f);
        if (!f->loses)
            f->stage[n] = f->bound[n];
        core__node_each_value(node, lower_bound, f);
    }
}

/* --------------------------------------------------------------- groups -- */

void core__finding_join(finding *f, uint32_t a, uint32_t b)
{
    a = core__first_of(f, a);
    b = core__first_of(f, b);
    if (f->place[a] < f->place[b])
        f->group[b] = a;
    else
        f->group[a] = b;
}

static bool together(const finding *f, uint32_t a, uint32_t b)
{
    return same_space(f, a, b) && f->stage[a] == f->stage[b];
}

/* Joins a node with what computes its arguments, and with others that read the
 * same ones from memory. */
static void join_by_value(void *context, uint32_t value)
{
    finding *f = context;
    uint32_t maker = core__maker_of(f, value), other = f->seen[value];

    if (maker != NONE && together(f, maker, f->node)) {
        core__finding_join(f, maker, f->node);
        return;
    }
    if (!same_sizes(&f->program->values[value].type,
                    f->spaces[f->space[f->node]]))
        return;
    if (other != NONE && together(f, other, f->node))
        core__finding_join(f, other, f->node);
    f->seen[value] = f->node;
}

static void join_all(finding *f)
{
    for (uint32_t n = 0; n < f->program->nnodes; n++)
        f->group[n] = n;
    for (uint32_t i = 0; i < f->program->nnodes; i++) {
        f->node = f->to->order[i];
        if (core__can_fuse(f, f->node))
            core__node_each_value(&f->program->nodes[f->node], join_by_value,
                                  f);
    }
}

/* ---------------------------------------------------------------- limits -- */

/* Counts the values of a group, which are in memory if something outside of it
 * computes or reads them. */
typedef struct counting {
    const finding *f;
    const uint32_t *nodes;
    uint32_t count, operands;
    uint32_t values[CORE_LOOP_MAX_OPERANDS];
} counting;

static bool has(const counting *c, uint32_t node)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->nodes[i] == node)
            return true;
    return false;
}

static void count_input(void *context, uint32_t value)
{
    counting *c = context;
    uint32_t maker = core__maker_of(c->f, value);

    if (c->operands > CORE_LOOP_MAX_OPERANDS ||
        (maker != NONE && has(c, maker)))
        return;
    for (uint32_t i = 0; i < c->operands; i++)
        if (c->values[i] == value)
            return;
    if (c->operands < CORE_LOOP_MAX_OPERANDS)
        c->values[c->operands] = value;
    c->operands++;
}

bool core__finding_fits(const finding *f, const uint32_t *nodes, uint32_t count)
{
    counting c = {f, nodes, count, 0, {0}};

    if (count > CORE__GROUP_MEMBERS)
        return false;
    for (uint32_t i = 0; i < count; i++)
        core__node_each_value(&f->program->nodes[nodes[i]], count_input, &c);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = f->program->nodes[nodes[i]].first, inside = 0;

        for (uint32_t k = 0; k < count; k++)
            for (uint32_t a = 0; a < f->program->nodes[nodes[k]].nargs; a++) {
                const core__program_argument *argument =
                    &f->program->nodes[nodes[k]].args[a];

                inside += argument->tag == CORE_VALUE_TENSOR &&
                          argument->u.value == value;
            }
        c.operands += f->program->values[value].kept || f->uses[value] > inside;
    }
    return c.operands <= CORE_LOOP_MAX_OPERANDS;
}

/* Numbers a group of nodes, which are in order, or parts of it that fit. */
static void number_group(finding *f, const uint32_t *nodes, uint32_t count)
{
    if (count < 2)
        return;
    if (!core__finding_fits(f, nodes, count)) {
        number_group(f, nodes, count / 2);
        number_group(f, nodes + count / 2, count - count / 2);
        return;
    }
    f->to->ngroups++;
    for (uint32_t i = 0; i < count; i++) {
        f->to->group[nodes[i]] = f->to->ngroups;
        f->lead[nodes[i]] = nodes[0];
        f->next[nodes[i]] = i + 1 < count ? nodes[i + 1] : NONE;
    }
}

/* `nodes`: memory for a group. */
static void number_all(finding *f, uint32_t *nodes)
{
    uint32_t nnodes = f->program->nnodes;

    for (uint32_t i = 0; i < nnodes; i++) {
        uint32_t first = f->to->order[i], count = 0;

        if (!core__can_fuse(f, first) || core__first_of(f, first) != first)
            continue;
        for (uint32_t k = i; k < nnodes; k++)
            if (core__can_fuse(f, f->to->order[k]) &&
                core__first_of(f, f->to->order[k]) == first)
                nodes[count++] = f->to->order[k];
        number_group(f, nodes, count);
    }
}

/* -------------------------------------------------------------- ordering -- */

typedef struct ordering {
    finding *f;
    uint32_t *order, count;
    bool *done;
    uint32_t previous; /* of the nodes that keep their order */
    uint32_t group;
    bool ready;
} ordering;

static void check_made(void *context, uint32_t value)
{
    ordering *o = context;
    uint32_t maker = core__maker_of(o->f, value);

    if (maker != NONE && !o->done[maker] &&
        (o->group == 0 || o->f->to->group[maker] != o->group))
        o->ready = false;
}

/* The next node that keeps its order, from a place on. */
static uint32_t next_ordered(const ordering *o, uint32_t at)
{
    const finding *f = o->f;

    while (at < f->program->nnodes &&
           (o->done[f->to->order[at]] ||
            !keeps_order(&f->program->nodes[f->to->order[at]])))
        at++;
    return at;
}

static bool is_ready(ordering *o, uint32_t at)
{
    const finding *f = o->f;
    uint32_t node = f->to->order[at];

    o->ready = !o->done[node] &&
               (!keeps_order(&f->program->nodes[node]) || o->previous == at);
    o->group = f->to->group[node];
    if (o->group && f->lead[node] != node)
        return false;
    for (; node != NONE && o->ready; node = f->next[node])
        core__node_each_value(&f->program->nodes[node], check_made, o);
    return o->ready;
}

static void run(ordering *o, uint32_t node)
{
    for (; node != NONE; node = o->f->next[node]) {
        o->done[node] = true;
        o->order[o->count++] = node;
    }
    o->previous = next_ordered(o, o->previous);
}

/* Runs each group when what it reads is there; else the order stays. */
static void order_nodes(ordering *o)
{
    uint32_t nnodes = o->f->program->nnodes, first = 0;

    o->previous = next_ordered(o, 0);
    while (o->count < nnodes) {
        uint32_t at;

        while (o->done[o->f->to->order[first]])
            first++;
        for (at = first; at < nnodes && !is_ready(o, at); at++)
            ;
        run(o, o->f->to->order[at]);
    }
    memcpy(o->f->to->order, o->order, nnodes * sizeof *o->order);
}

/* ------------------------------------------------------------------ ends -- */

static core_status add_end(finding *f, uint32_t node, const char *reason)
{
    const char *name = f->program->nodes[node].name;

    return core__operator_reason_count(&f->to->ends, &f->to->nends, name,
                                       reason);
}

typedef struct ending {
    finding *f;
    bool *told; /* by node */
    core_status status;
} ending;

static void tell(ending *e, uint32_t node, const char *reason)
{
    if (e->told[node] || e->status != CORE_OK)
        return;
    e->told[node] = true;
    e->status = add_end(e->f, node, reason);
}

/* What stands between a node and the maker of its argument. */
static void tell_end(void *context, uint32_t value)
{
    ending *e = context;
    const finding *f = e->f;
    uint32_t to = f->node, from = core__maker_of(f, value);

    if (from == NONE || (!core__can_fuse(f, from) && !core__can_fuse(f, to)))
        return;
    if (f->refused[from])
        tell(e, from, f->refused[from]);
    else if (f->refused[to])
        tell(e, to, f->refused[to]);
    else if (!same_space(f, from, to))
        tell(e, to, "its result has other sizes");
    else if (!together(f, from, to))
        tell(e, to, "something else must run between it and what it reads");
    else if (f->to->group[from] != f->to->group[to])
        tell(e, to, "the group would be too large");
}

static core_status tell_ends(finding *f, bool *told)
{
    ending e = {f, told, CORE_OK};

    memset(told, 0, f->program->nnodes);
    for (uint32_t i = 0; i < f->program->nnodes; i++) {
        f->node = f->to->order[i];
        core__node_each_value(&f->program->nodes[f->node], tell_end, &e);
    }
    return e.status;
}

/* ------------------------------------------------------------------- all -- */

core_status core__fusion_group(core__grouping *to)
{
    const core_program *program = to->program;
    size_t nodes = program->nnodes, values = program->nvalues;
    size_t size = nodes * (sizeof(char *) + 8 * sizeof(uint32_t) + 2) +
                  values * 2 * sizeof(uint32_t);
    finding f = {.program = program, .to = to};
    ordering o = {.f = &f};
    core_status status;

    f.refused = core__alloc_zero(size + 1);
    if (!f.refused)
        return core__error_memory(size);
    f.space = (uint32_t *)(void *)(f.refused + nodes);
    f.stage = f.space + nodes;
    f.bound = f.stage + nodes;
    f.group = f.bound + nodes;
    f.place = f.group + nodes;
    f.lead = f.place + nodes;
    f.next = f.lead + nodes;
    o.order = f.next + nodes;
    f.uses = o.order + nodes;
    f.seen = f.uses + values;
    o.done = (bool *)(f.seen + values);
    f.gains = o.done + nodes;
    memset(f.next, 0xff, nodes * sizeof *f.next);
    memset(f.bound, 0xff, nodes * sizeof *f.bound);
    memset(f.seen, 0xff, values * sizeof *f.seen);
    status = set_spaces(&f);
    if (status == CORE_OK) {
        set_earliest(&f);
        set_latest(&f);
        join_all(&f);
        status = core__finding_join_independent(&f);
    }
    if (status == CORE_OK) {
        number_all(&f, o.order);
        order_nodes(&o);
        status = tell_ends(&f, o.done);
    }
    core__free(f.refused);
    return status;
}
