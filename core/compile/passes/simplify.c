/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Removes nodes that no output, write or random number needs, nodes that repeat
 * another one, copies that no one can tell from their source, and other nodes
 * that return an operand. */

#include "compile/passes/simplify.h"

#include "base/memory.h"
#include "compile/passes/identities.h"
#include "compile/program/region.h"
#include "ops_ids.h"

#include <string.h>

typedef struct simplification {
    core_program *program;
    uint32_t *same;   /* by value: the value that is used instead */
    uint32_t *number; /* by value: its new number */
    bool *live;       /* by node */
    uint32_t *table;  /* hash table of nodes; CORE__NO_VALUE: empty */
    uint32_t mask;
    bool joint; /* the program has a backward */
} simplification;

static bool is_builtin(const core__program_node *node, uint32_t id)
{
    return node->op && node->op->id == id;
}

/* The same arguments give the same values, and nothing else happens.  A program's
 * or plugin's operator may do more than its schema says. */
static bool is_pure(const core__program_node *node)
{
    return node->op && !node->draws && !node->written &&
           !(node->op->flags & (CORE__OP_RANDOM | CORE__OP_HOST_WAIT));
}

static bool any_kept(const core_program *program,
                     const core__program_node *node)
{
    for (uint32_t i = 0; i < node->nvalues; i++)
        if (program->values[node->first + i].kept)
            return true;
    return false;
}

/* ------------------------------------------------------ equal arguments -- */

static size_t list_size(const core__program_argument *a)
{
    switch (a->tag) {
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
        return a->count * sizeof(int64_t);
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        return a->count;
    default:
        return 0;
    }
}

static bool equal_values(const simplification *s, const uint32_t *a,
                         const uint32_t *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool absent = a[i] == CORE__NO_VALUE;

        if (absent != (b[i] == CORE__NO_VALUE) ||
            (!absent && s->same[a[i]] != s->same[b[i]]))
            return false;
    }
    return true;
}

static bool equal_arguments(const simplification *s,
                            const core__program_argument *a,
                            const core__program_argument *b)
{
    if (a->tag != b->tag || a->count != b->count)
        return false;
    switch (a->tag) {
    case CORE_VALUE_NONE:
        return true;
    case CORE_VALUE_TENSOR:
        return equal_values(s, &a->u.value, &b->u.value, 1);
    case CORE_VALUE_TENSOR_LIST:
        return equal_values(s, a->u.values, b->u.values, a->count);
    case CORE_VALUE_DEVICE:
        return a->u.device == b->u.device;
    case CORE_VALUE_INT_LIST:
    case CORE_VALUE_FLOAT_LIST:
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        return memcmp(a->u.pointer, b->u.pointer, list_size(a)) == 0;
    default:
        return a->u.i == b->u.i; /* of a float, too: by its bits */
    }
}

static bool equal_nodes(const simplification *s, const core__program_node *a,
                        const core__program_node *b)
{
    if (a->op != b->op || a->nargs != b->nargs || a->nvalues != b->nvalues)
        return false;
    for (uint32_t i = 0; i < a->nargs; i++)
        if (!equal_arguments(s, &a->args[i], &b->args[i]))
            return false;
    /* Types follow from the arguments; results may be absent. */
    for (uint32_t i = 0; i < a->nresults; i++)
        if (a->results[i].tag != b->results[i].tag ||
            a->results[i].count != b->results[i].count)
            return false;
    return true;
}

static uint32_t mix(uint32_t hash, uint64_t with)
{
    with *= 0x9e3779b97f4a7c15u;
    return (hash ^ (uint32_t)(with >> 32)) * 0x85ebca6bu + 1;
}

static uint32_t hash_node(const simplification *s,
                          const core__program_node *node)
{
    uint32_t hash = node->op->id;

    for (uint32_t i = 0; i < node->nargs; i++) {
        const core__program_argument *a = &node->args[i];

        hash = mix(hash, a->tag);
        if (a->tag == CORE_VALUE_TENSOR)
            hash = mix(hash, s->same[a->u.value]);
        else if (a->tag == CORE_VALUE_INT || a->tag == CORE_VALUE_FLOAT)
            hash = mix(hash, (uint64_t)a->u.i);
        else if (a->tag == CORE_VALUE_INT_LIST)
            for (uint32_t k = 0; k < a->count; k++)
                hash = mix(hash, (uint64_t)a->u.ints[k]);
    }
    return hash;
}

/* -------------------------------------------------------------- finding -- */

/* A clone that keeps the layout is its argument: values do not change. */
static uint32_t clone_of(const simplification *s,
                         const core__program_node *node)
{
    const core__program_value *values = s->program->values;
    uint32_t source;

    if (!is_builtin(node, CORE_OP_CLONE))
        return CORE__NO_VALUE;
    source = s->same[node->args[0].u.value];
    return core__types_equal(&values[source].type, &values[node->first].type)
               ? source
               : CORE__NO_VALUE;
}

/* Of what the value is a view, perhaps itself. */
static uint32_t root_of(const simplification *s, uint32_t value)
{
    const core__program_value *described = &s->program->values[value];

    while (described->source == CORE__VALUE_OF_NODE) {
        const core__program_node *node = &s->program->nodes[described->index];

        if (!node->op || !core__operator_is_view(node->op) ||
            node->args[0].tag != CORE_VALUE_TENSOR)
            break;
        value = s->same[node->args[0].u.value];
        described = &s->program->values[value];
    }
    return value;
}

/* True for a value in memory that the program of the user can change. */
static bool may_change(const simplification *s, uint32_t value)
{
    const core__program_value *root = &s->program->values[root_of(s, value)];

    return root->source != CORE__VALUE_OF_NODE || root->kept ||
           s->program->values[value].kept;
}

/* Uses the operand of a node that returns it. */
static bool merge_identity(simplification *s, const core__program_node *node)
{
    uint32_t source = clone_of(s, node);

    if (source == CORE__NO_VALUE)
        source = core__node_identity(s->program, node, s->same);
    if (source == CORE__NO_VALUE || any_kept(s->program, node))
        return false;
    /* The backward may use a copy of it. */
    if (s->joint && !core__operator_is_view(node->op) && may_change(s, source))
        return false;
    s->same[node->first] = source;
    return true;
}

/* A backward that repeats a product of the function does so to save memory (a
 * checkpoint). */
static bool may_merge(const core__program_node *node,
                      const core__program_node *other)
{
    return node->backward == other->backward || core__node_may_recompute(node);
}

/* Two outputs with one value would share memory, so what is kept stays. */
static void merge_repeated(simplification *s, uint32_t index)
{
    const core__program_node *nodes = s->program->nodes;
    const core__program_node *node = &nodes[index];
    uint32_t at = hash_node(s, node) & s->mask;

    while (s->table[at] != CORE__NO_VALUE) {
        const core__program_node *other = &nodes[s->table[at]];

        if (equal_nodes(s, node, other) && may_merge(node, other) &&
            !any_kept(s->program, node)) {
            for (uint32_t i = 0; i < node->nvalues; i++)
                s->same[node->first + i] = other->first + i;
            return;
        }
        at = (at + 1) & s->mask;
    }
    s->table[at] = index;
}

static void mark(void *context, uint32_t value)
{
    simplification *s = context;
    const core__program_value *used = &s->program->values[s->same[value]];

    if (used->source == CORE__VALUE_OF_NODE)
        s->live[used->index] = true;
}

static void find_live(simplification *s)
{
    const core_program *program = s->program;

    for (uint32_t i = 0; i < program->noutputs; i++)
        if (program->outputs[i].kind == CORE__OUTPUT_VALUE)
            mark(s, program->outputs[i].index);
    for (uint32_t i = 0; i < program->nwrites; i++)
        mark(s, program->writes[i].value);
    for (uint32_t i = program->nnodes; i-- > 0;) {
        const core__program_node *node = &program->nodes[i];

        if (core__node_acts(node))
            s->live[i] = true;
        if (s->live[i])
            core__node_each_value(node, mark, s);
    }
}

/* ------------------------------------------------------------ rewriting -- */

static core_status rewrite_arguments(simplification *s,
                                     core__program_node *node)
{
    core__program_argument *args =
        core__program_alloc(s->program, (node->nargs + 1) * sizeof *args);

    if (!args)
        return core__error_memory(node->nargs * sizeof *args);
    memcpy(args, node->args, node->nargs * sizeof *args);
    for (uint32_t i = 0; i < node->nargs; i++) {
        uint32_t *values;

        if (args[i].tag == CORE_VALUE_TENSOR)
            args[i].u.value = s->number[s->same[args[i].u.value]];
        if (args[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        values =
            core__program_alloc(s->program, args[i].count * sizeof *values + 1);
        if (!values)
            return core__error_memory(args[i].count * sizeof *values);
        for (uint32_t k = 0; k < args[i].count; k++)
            values[k] = args[i].u.values[k] == CORE__NO_VALUE
                            ? CORE__NO_VALUE
                            : s->number[s->same[args[i].u.values[k]]];
        args[i].u.values = values;
    }
    node->args = args;
    return CORE_OK;
}

static core_status rewrite_results(simplification *s, core__program_node *node)
{
    core__program_argument *results =
        core__program_alloc(s->program, (node->nresults + 1) * sizeof *results);

    if (!results)
        return core__error_memory(node->nresults * sizeof *results);
    memcpy(results, node->results, node->nresults * sizeof *results);
    for (uint32_t i = 0; i < node->nresults; i++) {
        uint32_t *values;

        if (results[i].tag == CORE_VALUE_TENSOR)
            results[i].u.value = s->number[results[i].u.value];
        if (results[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        values = core__program_alloc(s->program,
                                     results[i].count * sizeof *values + 1);
        if (!values)
            return core__error_memory(results[i].count * sizeof *values);
        for (uint32_t k = 0; k < results[i].count; k++)
            values[k] = results[i].u.values[k] == CORE__NO_VALUE
                            ? CORE__NO_VALUE
                            : s->number[results[i].u.values[k]];
        results[i].u.values = values;
    }
    node->results = results;
    return CORE_OK;
}

/* Numbers the values that are left, in their order. */
static void number_values(simplification *s)
{
    core_program *program = s->program;
    uint32_t count = 0, *nodes = s->table; /* no longer needed */

    for (uint32_t i = 0, next = 0; i < program->nnodes; i++)
        nodes[i] = s->live[i] ? next++ : CORE__NO_VALUE;
    for (uint32_t i = 0; i < program->nvalues; i++) {
        core__program_value value = program->values[i];

        s->number[i] = CORE__NO_VALUE;
        if (value.source == CORE__VALUE_OF_NODE) {
            if (!s->live[value.index])
                continue;
            value.index = nodes[value.index];
        }
        s->number[i] = count;
        program->values[count++] = value;
    }
    program->nvalues = count;
}

static core_status rewrite(simplification *s)
{
    core_program *program = s->program;
    uint32_t count = 0;

    number_values(s);
    for (uint32_t i = 0; i < program->nnodes; i++) {
        core__program_node node = program->nodes[i];

        if (!s->live[i])
            continue;
        CORE_TRY(rewrite_arguments(s, &node));
        CORE_TRY(rewrite_results(s, &node));
        if (node.nvalues)
            node.first = s->number[node.first];
        program->nodes[count++] = node;
    }
    program->nnodes = count;
    for (uint32_t i = 0; i < program->ninputs; i++)
        if (program->inputs[i].value != CORE__NO_VALUE)
            program->inputs[i].value = s->number[program->inputs[i].value];
    for (uint32_t i = 0; i < program->nhidden; i++)
        program->hidden[i].value = s->number[program->hidden[i].value];
    for (uint32_t i = 0; i < program->noutputs; i++)
        if (program->outputs[i].kind == CORE__OUTPUT_VALUE)
            program->outputs[i].index =
                s->number[s->same[program->outputs[i].index]];
    for (uint32_t i = 0; i < program->nwrites; i++)
        program->writes[i].value = s->number[s->same[program->writes[i].value]];
    core__program_finish(program);
    return CORE_OK;
}

static core_status simplify_regions(core_program *program)
{
    for (uint32_t i = 0; i < program->nnodes; i++)
        for (uint32_t k = 0; k < core__region_count(&program->nodes[i]); k++)
            CORE_TRY(core__program_simplify(program->nodes[i].regions[k]));
    return CORE_OK;
}

core_status core__program_simplify(core_program *program)
{
    simplification s = {.program = program, .mask = 1};
    core_status status;

    CORE_TRY(simplify_regions(program));
    while (s.mask < 2 * program->nnodes + 1)
        s.mask = 2 * s.mask + 1;
    s.same = core__alloc((program->nvalues + 1) * sizeof *s.same);
    s.number = core__alloc((program->nvalues + 1) * sizeof *s.number);
    s.live = core__alloc_zero(program->nnodes + 1);
    s.table = core__alloc((s.mask + 1) * sizeof *s.table);
    if (!s.same || !s.number || !s.live || !s.table) {
        status = core__error_memory((s.mask + 1) * sizeof *s.table);
        goto done;
    }
    for (uint32_t i = 0; i < program->nvalues; i++)
        s.same[i] = i;
    memset(s.table, 0xff, (s.mask + 1) * sizeof *s.table);
    for (uint32_t i = 0; i < program->nnodes && !s.joint; i++)
        s.joint = program->nodes[i].backward;
    for (uint32_t i = 0; i < program->nnodes; i++)
        if (is_pure(&program->nodes[i]) &&
            !merge_identity(&s, &program->nodes[i]))
            merge_repeated(&s, i);
    find_live(&s);
    status = rewrite(&s);
done:
    core__free(s.same);
    core__free(s.number);
    core__free(s.live);
    core__free(s.table);
    return status;
}
