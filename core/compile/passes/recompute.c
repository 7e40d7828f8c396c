/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "compile/passes/recompute.h"

#include "base/memory.h"
#include "compile/program/extract.h"
#include "ops_ids.h"

#include <string.h>

enum {
    LEAST_GAP = 4 /* nodes between reads, so that something is gained */
};

/* A node that is computed again. */
typedef struct repeated {
    uint32_t previous; /* the last node that reads it, while they are visited */
    uint32_t gap;      /* the largest number of nodes between two reads */
    uint32_t late;     /* the first read after it */
    uint32_t last;     /* the last read; NO_VALUE: it is not computed again */
} repeated;

typedef struct recomputation {
    const core_program *from;
    core_program *to;
    repeated *nodes;  /* by node of `from` */
    uint32_t *root;   /* by value of `from`: of which it is a view */
    uint32_t *last;   /* by value: the last node that reads it or a view */
    uint32_t *copies; /* by value: as computed again; NO_VALUE: not yet */
    uint32_t at;      /* the node that is visited */
    core_status status;
} recomputation;

static bool is_view(const core__program_node *node)
{
    return node->op && core__operator_is_view(node->op) &&
           node->args[0].tag == CORE_VALUE_TENSOR;
}

static const core__program_node *node_of(const recomputation *r, uint32_t value)
{
    const core__program_value *described = &r->from->values[value];

    return described->source == CORE__VALUE_OF_NODE
               ? &r->from->nodes[described->index]
               : NULL;
}

/* ------------------------------------------------------------- analysis -- */

static void note_read(void *context, uint32_t value)
{
    recomputation *r = context;
    uint32_t root = r->root[value];
    const core__program_node *node = node_of(r, root);
    repeated *described;

    r->last[root] = r->at;
    if (!node)
        return;
    described = &r->nodes[r->from->values[root].index];
    if (described->previous != CORE__NO_VALUE &&
        r->at - described->previous > described->gap) {
        described->gap = r->at - described->previous;
        described->late = r->at;
    }
    described->previous = r->at;
    described->last = r->at;
}

/* True if its values may be computed again, and its arguments are still kept
 * when that happens. */
static bool is_repeated(const recomputation *r, uint32_t index)
{
    const core__program_node *node = &r->from->nodes[index];
    const repeated *described = &r->nodes[index];

    if (!node->op || node->op->id != CORE_OP_NATIVE_LAYER_NORM ||
        described->last == CORE__NO_VALUE || described->gap < LEAST_GAP)
        return false;
    for (uint32_t v = 0; v < r->from->nvalues; v++)
        if (r->from->values[v].kept && node_of(r, r->root[v]) == node)
            return false;
    for (uint32_t i = 0; i < node->nargs; i++)
        if (node->args[i].tag == CORE_VALUE_TENSOR &&
            node_of(r, r->root[node->args[i].u.value]) &&
            r->last[r->root[node->args[i].u.value]] < described->last)
            return false;
    return true;
}

/* True if anything is computed again. */
static bool choose(recomputation *r)
{
    const core_program *from = r->from;
    bool any = false;

    for (uint32_t i = 0; i < from->nnodes; i++)
        r->nodes[i] = (repeated){CORE__NO_VALUE, 0, 0, CORE__NO_VALUE};
    for (uint32_t v = 0; v < from->nvalues; v++) {
        r->root[v] = core__program_root(from, v);
        r->last[v] = 0;
        r->copies[v] = CORE__NO_VALUE;
    }
    for (r->at = 0; r->at < from->nnodes; r->at++)
        if (!is_view(&from->nodes[r->at]))
            core__node_each_value(&from->nodes[r->at], note_read, r);
    for (uint32_t i = 0; i < from->nnodes; i++)
        if (is_repeated(r, i))
            any = true;
        else
            r->nodes[i].last = CORE__NO_VALUE;
    return any;
}

/* ------------------------------------------------------------- rewriting -- */

static core_status add_copy(recomputation *r, uint32_t index);

/* The value that a late node reads instead.  The values of views that were made
 * early are made again. */
static core_status late_value(recomputation *r, uint32_t value, uint32_t *out)
{
    const core__program_value *described = &r->from->values[value];
    const core__program_node *root = node_of(r, r->root[value]);
    const repeated *node =
        root ? &r->nodes[r->from->values[r->root[value]].index] : NULL;

    *out = value;
    if (!node || node->last == CORE__NO_VALUE || r->at < node->late ||
        described->index >= node->late)
        return CORE_OK;
    if (r->copies[value] == CORE__NO_VALUE)
        CORE_TRY(add_copy(r, described->index));
    *out = r->copies[value];
    return CORE_OK;
}

/* Copies arguments, so that tensors of the copy may be replaced. */
static core_status read_late(recomputation *r, core__program_node *node)
{
    core__program_argument *args =
        core__program_alloc(r->to, (node->nargs + 1) * sizeof *args);

    if (!args)
        return core__error_memory(node->nargs * sizeof *args);
    for (uint32_t i = 0; i < node->nargs; i++) {
        uint32_t *values;

        args[i] = node->args[i];
        if (args[i].tag == CORE_VALUE_TENSOR)
            CORE_TRY(late_value(r, args[i].u.value, &args[i].u.value));
        if (args[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        values = core__program_alloc(r->to, args[i].count * sizeof *values + 1);
        if (!values)
            return core__error_memory(args[i].count * sizeof *values);
        for (uint32_t k = 0; k < args[i].count; k++) {
            values[k] = args[i].u.values[k];
            if (values[k] != CORE__NO_VALUE)
                CORE_TRY(late_value(r, values[k], &values[k]));
        }
        args[i].u.values = values;
    }
    node->args = args;
    return CORE_OK;
}

static core_status add_node(recomputation *r, const core__program_node *node)
{
    core__program_node *added =
        core__program_grow(&r->to->nodes, &r->to->nnodes, sizeof *added);

    if (!added)
        return core__error_memory(sizeof *added);
    *added = *node;
    for (uint32_t i = 0; i < node->nvalues; i++)
        r->to->values[node->first + i].index = r->to->nnodes - 1;
    return CORE_OK;
}

/* A norm has tensors as results, and so has a view. */
static core_status copy_results(recomputation *r, core__program_node *node,
                                uint32_t first)
{
    core__program_argument *results =
        core__program_alloc(r->to, (node->nresults + 1) * sizeof *results);

    if (!results)
        return core__error_memory(node->nresults * sizeof *results);
    for (uint32_t i = 0; i < node->nresults; i++) {
        uint32_t *values;

        results[i] = node->results[i];
        if (results[i].tag == CORE_VALUE_TENSOR)
            results[i].u.value += node->first - first;
        if (results[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        values =
            core__program_alloc(r->to, results[i].count * sizeof *values + 1);
        if (!values)
            return core__error_memory(results[i].count * sizeof *values);
        for (uint32_t k = 0; k < results[i].count; k++)
            values[k] = results[i].u.values[k] == CORE__NO_VALUE
                            ? CORE__NO_VALUE
                            : results[i].u.values[k] + node->first - first;
        results[i].u.values = values;
    }
    node->results = results;
    return CORE_OK;
}

/* Adds the node with new values. */
static core_status add_copy(recomputation *r, uint32_t index)
{
    core__program_node node = r->from->nodes[index];
    uint32_t first = node.first;

    CORE_TRY(read_late(r, &node));
    node.first = r->to->nvalues;
    for (uint32_t i = 0; i < node.nvalues; i++)
        CORE_TRY(core__program_add_value(
            r->to, &r->from->values[first + i].type, CORE__VALUE_OF_NODE, 0,
            &r->copies[first + i]));
    CORE_TRY(copy_results(r, &node, first));
    return add_node(r, &node);
}

/* Sets which node reads a value last. */
static void set_last(void *context, uint32_t value)
{
    recomputation *r = context;

    r->to->values[value].last = r->at;
}

static core_status rewrite(recomputation *r)
{
    core_program *to = r->to;

    for (uint32_t v = 0; v < r->from->nvalues; v++) {
        core__program_value *value =
            core__program_grow(&to->values, &to->nvalues, sizeof *value);

        if (!value)
            return core__error_memory(sizeof *value);
        *value = r->from->values[v];
    }
    for (r->at = 0; r->at < r->from->nnodes; r->at++) {
        core__program_node node = r->from->nodes[r->at];

        CORE_TRY(read_late(r, &node));
        CORE_TRY(add_node(r, &node));
    }
    for (uint32_t v = 0; v < to->nvalues; v++)
        to->values[v].last = CORE__NO_VALUE;
    for (r->at = 0; r->at < to->nnodes; r->at++)
        core__node_each_value(&to->nodes[r->at], set_last, r);
    return CORE_OK;
}

/* ------------------------------------------------------------- interface -- */

void core__program_recomputed_free(core_program *program)
{
    if (!program)
        return;
    core__program_free_blocks(program);
    core__free(program->values);
    core__free(program->nodes);
    core__free(program);
}

static core_status borrow(const core_program *program, core_program **out)
{
    core_program *to = core__alloc(sizeof *to);

    *out = to;
    if (!to)
        return core__error_memory(sizeof *to);
    memcpy(to, program, sizeof *to);
    to->values = NULL;
    to->nodes = NULL;
    to->nvalues = to->nnodes = 0;
    atomic_init(&to->prepared, NULL);
    to->parent = NULL;
    to->blocks = NULL;
    to->used = to->capacity = 0;
    return CORE_OK;
}

core_status core__program_recompute(const core_program *program,
                                    core_program **out_program)
{
    size_t values = program->nvalues, nodes = program->nnodes;
    size_t size = nodes * sizeof(repeated) + 3 * values * sizeof(uint32_t) + 1;
    recomputation r = {.from = program};
    core_status status = CORE_OK;

    *out_program = NULL;
    r.nodes = core__alloc(size);
    if (!r.nodes)
        return core__error_memory(size);
    r.root = (uint32_t *)(void *)(r.nodes + nodes);
    r.last = r.root + values;
    r.copies = r.last + values;
    if (choose(&r)) {
        status = borrow(program, &r.to);
        if (status == CORE_OK)
            status = rewrite(&r);
        if (status != CORE_OK) {
            core__program_recomputed_free(r.to);
            r.to = NULL;
        }
        *out_program = r.to;
    }
    core__free(r.nodes);
    return status;
}
