/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Makes a program from a part of another one. */

#include "compile/program/extract.h"
#include "compile/program/region.h"

#include "base/memory.h"
#include "device/device.h"
#include "dispatch/schema.h"
#include "ops_ids.h"

#include <string.h>

core_status core__extraction_begin(core__extraction *e, core_program *from)
{
    size_t size = (from->nvalues + from->nnodes + 1) * sizeof *e->numbers;
    uint32_t index;

    *e = (core__extraction){.from = from};
    CORE_TRY(core__program_new(&e->to));
    e->to->parent = core_program_retain(from);
    e->to->codegen = from->codegen;
    e->to->reorders = from->reorders;
    e->numbers = core__alloc(size);
    if (!e->numbers)
        return core__error_memory(size);
    memset(e->numbers, 0xff, size);
    e->stack = e->numbers + from->nvalues;
    for (uint32_t i = 0; i < from->ndevices; i++)
        CORE_TRY(core__program_device(e->to, from->devices[i], &index));
    for (uint32_t i = 0; i < from->ngenerators; i++)
        CORE_TRY(core__program_generator(e->to, from->generators[i], &index));
    return CORE_OK;
}

core_status core__extraction_end(core__extraction *e, core_status status,
                                 core_program **out_program)
{
    *out_program = NULL;
    core__free(e->numbers);
    if (status != CORE_OK) {
        core_program_release(e->to);
        return status;
    }
    core__program_finish(e->to);
    *out_program = e->to;
    return CORE_OK;
}

core_status core__extract_input(core__extraction *e, uint32_t value)
{
    core__program_input *input =
        core__program_grow(&e->to->inputs, &e->to->ninputs, sizeof *input);

    if (!input)
        return core__error_memory(sizeof *input);
    *input = (core__program_input){.type = e->from->values[value].type,
                                   .base = CORE__NO_VALUE};
    CORE_TRY(core__program_add_value(e->to, &input->type, CORE__VALUE_OF_INPUT,
                                     e->to->ninputs - 1, &input->value));
    e->numbers[value] = input->value;
    return CORE_OK;
}

/* ----------------------------------------------------------------- nodes -- */

/* The arguments or results of a node, with other numbers. */
static core_status renumber(core__extraction *e,
                            const core__program_argument *from, uint32_t count,
                            const core__program_argument **out)
{
    core__program_argument *to =
        core__program_alloc(e->to, (count + 1) * sizeof *to);

    if (!to)
        return core__error_memory(count * sizeof *to);
    if (count)
        memcpy(to, from, count * sizeof *to);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *values;

        if (to[i].tag == CORE_VALUE_TENSOR)
            to[i].u.value = e->numbers[to[i].u.value];
        if (to[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        values = core__program_alloc(e->to, to[i].count * sizeof *values + 1);
        if (!values)
            return core__error_memory(to[i].count * sizeof *values);
        for (uint32_t k = 0; k < to[i].count; k++)
            values[k] = to[i].u.values[k] == CORE__NO_VALUE
                            ? CORE__NO_VALUE
                            : e->numbers[to[i].u.values[k]];
        to[i].u.values = values;
    }
    *out = to;
    return CORE_OK;
}

static core_status add_node(core__extraction *e, uint32_t index)
{
    core__program_node node = e->from->nodes[index];
    uint32_t first = node.first, value;

    CORE_TRY(renumber(e, node.args, node.nargs, &node.args));
    node.first = e->to->nvalues;
    for (uint32_t i = 0; i < node.nvalues; i++) {
        CORE_TRY(core__program_add_value(
            e->to, &e->from->values[first + i].type, CORE__VALUE_OF_NODE,
            e->to->nnodes, &value));
        e->numbers[first + i] = value;
    }
    CORE_TRY(renumber(e, node.results, node.nresults, &node.results));
    CORE_TRY(core__program_add_node(e->to, &node, &index));
    for (uint32_t i = 0; i < core__region_count(&node); i++)
        core_program_retain(node.regions[i]);
    return CORE_OK;
}

typedef struct search {
    const core__extraction *e;
    uint32_t missing; /* a value, or CORE__NO_VALUE */
} search;

static void find_missing(void *context, uint32_t value)
{
    search *s = context;

    if (s->missing == CORE__NO_VALUE && s->e->numbers[value] == CORE__NO_VALUE)
        s->missing = value;
}

core_status core__extract_node(core__extraction *e, uint32_t index)
{
    uint32_t depth = 0;

    e->stack[depth++] = index;
    while (depth) {
        search s = {e, CORE__NO_VALUE};

        core__node_each_value(&e->from->nodes[e->stack[depth - 1]],
                              find_missing, &s);
        if (s.missing == CORE__NO_VALUE) {
            CORE_TRY(add_node(e, e->stack[--depth]));
            continue;
        }
        if (e->from->values[s.missing].source != CORE__VALUE_OF_NODE)
            return core__error(CORE_ERROR_INTERNAL,
                               "core_compile: value %%%u is neither an input "
                               "of the part nor computed in it",
                               s.missing);
        e->stack[depth++] = e->from->values[s.missing].index;
    }
    return CORE_OK;
}

core_status core__extract_value(core__extraction *e, uint32_t value)
{
    return e->numbers[value] == CORE__NO_VALUE
               ? core__extract_node(e, e->from->values[value].index)
               : CORE_OK;
}

core_status core__extract_clone(core__extraction *e, uint32_t value,
                                uint32_t *out_value)
{
    core__program_argument *args = core__program_alloc(e->to, 3 * sizeof *args);
    core__program_type type = e->to->values[value].type;
    core__program_node node = {.op = &core__operators[CORE_OP_CLONE],
                               .nargs = 2,
                               .nresults = 1,
                               .nvalues = 1,
                               .args = args,
                               .results = args + 2};
    uint32_t index;

    if (!args)
        return core__error_memory(3 * sizeof *args);
    node.name = core__operator_name(node.op);
    node.first = e->to->nvalues;
    args[0] = (core__program_argument){CORE_VALUE_TENSOR, 0, {.value = value}};
    args[1] = (core__program_argument){0};
    args[2] =
        (core__program_argument){CORE_VALUE_TENSOR, 0, {.value = node.first}};
    CORE_TRY(core__program_add_value(e->to, &type, CORE__VALUE_OF_NODE,
                                     e->to->nnodes, out_value));
    return core__program_add_node(e->to, &node, &index);
}

/* ----------------------------------------------------------------- views -- */

/* The node of a value that is a view; NULL: it is none. */
static const core__program_node *view_node(const core_program *program,
                                           uint32_t value)
{
    const core__program_value *described = &program->values[value];
    const core__program_node *node;

    if (described->source != CORE__VALUE_OF_NODE)
        return NULL;
    node = &program->nodes[described->index];
    return node->op && core__operator_is_view(node->op) &&
                   node->args[0].tag == CORE_VALUE_TENSOR
               ? node
               : NULL;
}

uint32_t core__program_root(const core_program *program, uint32_t value)
{
    const core__program_node *node;

    while ((node = view_node(program, value)))
        value = node->args[0].u.value;
    return value;
}

/* The offset of a view from the tensor of which the node makes it. */
static core_status step_offset(const core_program *program,
                               const core__program_node *node,
                               int64_t *out_offset)
{
    core_value args[CORE__SCHEMA_ARGUMENTS];
    core_value results[CORE__SCHEMA_RESULTS] = {{0}};
    core_tensor *source = NULL;
    core_status status;
    uint64_t draws;

    *out_offset = 0;
    CORE_TRY(core__program_stand_in(
        &program->values[node->args[0].u.value].type, &source));
    args[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = source}};
    for (uint32_t i = 1; i < node->nargs; i++)
        args[i] = core__program_constant(program, &node->args[i]);
    status = core__program_infer(node->op, args, node->nargs, results,
                                 node->nresults, &draws);
    if (status == CORE_OK && results[0].tag == CORE_VALUE_TENSOR &&
        node->nvalues == 1)
        *out_offset = results[0].u.tensor->offset;
    else if (status == CORE_OK)
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "%s: it returns several views", node->name);
    for (uint32_t i = 0; i < node->nresults; i++)
        core_value_release(&results[i]);
    core__tensor_release(source);
    return status;
}

core_status core__program_view_offset(const core_program *program,
                                      uint32_t value, int64_t *out_offset)
{
    const core__program_node *node;
    int64_t offset;

    *out_offset = 0;
    while ((node = view_node(program, value))) {
        CORE_TRY(step_offset(program, node, &offset));
        *out_offset += offset;
        value = node->args[0].u.value;
    }
    return CORE_OK;
}
