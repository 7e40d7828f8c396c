/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "compile/passes/schedule.h"

#include "base/memory.h"
#include "tensor/dtype.h"

#include <string.h>

enum {
    NODES_MAX = 4096, /* larger programs keep their order */
    VALUES_MAX = 64   /* distinct memory that one node may free, as counted */
};

/* Values in the same memory: one that a node computes, and views of it. */
typedef struct memory {
    int64_t size;    /* bytes; 0: it is not freed by the last node that reads */
    uint32_t unread; /* nodes that read it and have not run */
    uint32_t target; /* memory of an input that the value is written to */
} memory;

typedef struct schedule {
    const core_program *program;
    memory *memories;    /* by the value that is all of it */
    uint32_t *memory_of; /* by value */
    bool *done;          /* by node */
    bool *computed;      /* by value */
    uint32_t *order;
    uint32_t count;   /* of nodes that have run */
    uint32_t ordered; /* the next node that keeps its order; nnodes: none */
} schedule;

/* The memories that a node reads, each once. */
typedef struct reads {
    const schedule *s;
    uint32_t of[VALUES_MAX];
    uint32_t count;
    bool many; /* there are more */
} reads;

static void add_read(void *context, uint32_t value)
{
    reads *r = context;
    uint32_t memory = r->s->memory_of[value];

    for (uint32_t i = 0; i < r->count; i++)
        if (r->of[i] == memory)
            return;
    if (r->count == VALUES_MAX)
        r->many = true;
    else
        r->of[r->count++] = memory;
}

static reads reads_of(const schedule *s, const core__program_node *node)
{
    reads r;

    r.s = s;
    r.count = 0;
    r.many = false;
    core__node_each_value(node, add_read, &r);
    return r;
}

static bool is_view(const core__program_node *node)
{
    return node->op && core__operator_is_view(node->op) &&
           node->args[0].tag == CORE_VALUE_TENSOR;
}

static bool keeps_order(const core__program_node *node)
{
    return core__node_acts(node) || node->op->registrations;
}

/* -------------------------------------------------------------- memories -- */

static void set_memories(schedule *s)
{
    const core_program *program = s->program;

    for (uint32_t v = 0; v < program->nvalues; v++) {
        const core__program_value *value = &program->values[v];
        const core__program_node *node = &program->nodes[value->index];
        bool of_node = value->source == CORE__VALUE_OF_NODE;

        s->memory_of[v] =
            of_node && is_view(node) ? s->memory_of[node->args[0].u.value] : v;
        s->memories[v] =
            (memory){of_node ? (int64_t)core__type_bytes(&value->type) : 0, 0,
                     CORE__NO_VALUE};
    }
    for (uint32_t v = 0; v < program->nvalues; v++)
        if (program->values[v].kept)
            s->memories[s->memory_of[v]].size = 0;
    for (uint32_t i = 0; i < program->nwrites; i++) {
        const core__program_write *write = &program->writes[i];
        uint32_t input = write->index, target;

        if (!write->hidden && program->inputs[input].base != CORE__NO_VALUE)
            input = program->inputs[input].base;
        target = write->hidden ? program->hidden[write->index].value
                               : program->inputs[input].value;
        s->memories[s->memory_of[write->value]].target = target;
    }
    for (uint32_t n = 0; n < program->nnodes; n++) {
        reads r = reads_of(s, &program->nodes[n]);

        for (uint32_t i = 0; i < r.count; i++)
            s->memories[r.of[i]].unread++;
    }
}

static bool reads_memory(const reads *r, uint32_t memory)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->of[i] == memory)
            return true;
    return false;
}

/* How much more memory is in use after a node. */
static int64_t growth(const schedule *s, const core__program_node *node)
{
    reads r = reads_of(s, node);
    int64_t bytes = 0;

    if (r.many)
        return 0;
    for (uint32_t i = 0; i < node->nvalues; i++) {
        uint32_t value = node->first + i;
        const memory *m = &s->memories[value];

        if (s->memory_of[value] != value)
            continue;
        if (m->target == CORE__NO_VALUE)
            bytes += m->unread ? m->size : 0;
        else if (s->memories[m->target].unread >
                 (reads_memory(&r, m->target) ? 1u : 0u))
            /* Not in its place: something still reads the old content. */
            bytes += (int64_t)core__type_bytes(&s->program->values[value].type);
    }
    for (uint32_t i = 0; i < r.count; i++)
        if (s->memories[r.of[i]].unread == 1)
            bytes -= s->memories[r.of[i]].size;
    return bytes;
}

/* -------------------------------------------------------------- ordering -- */

static void count_missing(void *context, uint32_t value)
{
    reads *r = context;

    if (!r->s->computed[value])
        r->count++;
}

static bool is_ready(const schedule *s, uint32_t n)
{
    const core__program_node *node = &s->program->nodes[n];
    reads r = {.s = s};

    if (s->done[n] || (keeps_order(node) && s->ordered != n))
        return false;
    core__node_each_value(node, count_missing, &r);
    return r.count == 0;
}

static void run(schedule *s, uint32_t n)
{
    const core__program_node *node = &s->program->nodes[n];
    reads r = reads_of(s, node);

    s->order[s->count++] = n;
    s->done[n] = true;
    for (uint32_t i = 0; i < r.count; i++)
        s->memories[r.of[i]].unread--;
    for (uint32_t i = 0; i < node->nvalues; i++)
        s->computed[node->first + i] = true;
    while (
        s->ordered < s->program->nnodes &&
        (s->done[s->ordered] || !keeps_order(&s->program->nodes[s->ordered])))
        s->ordered++;
}

/* A node that is ready: a view, which needs nothing, or the one that frees the
 * most; nnodes: none frees anything. */
static uint32_t best_of(const schedule *s, uint32_t from)
{
    uint32_t best = s->program->nnodes;
    int64_t least = 0;

    for (uint32_t n = from; n < s->program->nnodes; n++) {
        int64_t bytes;

        if (!is_ready(s, n))
            continue;
        if (is_view(&s->program->nodes[n]))
            return n;
        bytes = growth(s, &s->program->nodes[n]);
        if (bytes < least) {
            least = bytes;
            best = n;
        }
    }
    return best;
}

static void order_nodes(schedule *s)
{
    const core_program *program = s->program;
    uint32_t next = 0;

    for (uint32_t v = 0; v < program->nvalues; v++)
        s->computed[v] = program->values[v].source != CORE__VALUE_OF_NODE;
    while (s->ordered < program->nnodes &&
           !keeps_order(&program->nodes[s->ordered]))
        s->ordered++;
    while (s->count < program->nnodes) {
        uint32_t best;

        while (s->done[next])
            next++;
        best = best_of(s, next);
        run(s, best == program->nnodes ? next : best);
    }
}

core_status core__program_order(const core_program *program, uint32_t *order)
{
    size_t values = program->nvalues, nodes = program->nnodes;
    size_t size = values * (sizeof(memory) + sizeof(uint32_t) + 1) + nodes + 1;
    schedule s = {.program = program, .order = order};

    for (uint32_t i = 0; i < nodes; i++)
        order[i] = i;
    if (nodes > NODES_MAX)
        return CORE_OK;
    s.memories = core__alloc_zero(size);
    if (!s.memories)
        return core__error_memory(size);
    s.memory_of = (uint32_t *)(void *)(s.memories + values);
    s.computed = (bool *)(void *)(s.memory_of + values);
    s.done = s.computed + values;
    set_memories(&s);
    order_nodes(&s);
    core__free(s.memories);
    return CORE_OK;
}
