/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Compares programs node by node. */

#include "compile/program/region.h"

#include "base/text.h"

#include <string.h>

static bool list_equal(const core__program_argument *a,
                       const core__program_argument *b, size_t size)
{
    return a->count == b->count &&
           (a->count == 0 ||
            memcmp(a->u.pointer, b->u.pointer, a->count * size) == 0);
}

static bool number_equal(const core__program_number *a,
                         const core__program_number *b)
{
    return a->source == b->source && a->object == b->object &&
           a->part == b->part && a->number == b->number &&
           a->earlier == b->earlier;
}

static bool finishes_equal(const core_program *a, const core_program *b)
{
    bool equal = a->nfinishes == b->nfinishes;

    for (uint32_t i = 0; i < a->nfinishes && equal; i++)
        equal = a->finishes[i].source == b->finishes[i].source &&
                a->finishes[i].object == b->finishes[i].object &&
                a->finishes[i].part == b->finishes[i].part &&
                a->finishes[i].other == b->finishes[i].other;
    return equal;
}

static bool argument_equal(const core_program *x, const core_program *y,
                           const core__program_argument *a,
                           const core__program_argument *b)
{
    if (a->tag != b->tag)
        return false;
    switch (a->tag) {
    case CORE_VALUE_NONE:
        return true;
    case CORE__ARGUMENT_NUMBER:
        return number_equal(&x->numbers[a->u.i], &y->numbers[b->u.i]);
    case CORE_VALUE_TENSOR:
        return a->u.value == b->u.value;
    case CORE_VALUE_DEVICE:
        return x->devices[a->u.device] == y->devices[b->u.device];
    case CORE_VALUE_GENERATOR:
        return x->generators[a->u.generator] == y->generators[b->u.generator];
    case CORE_VALUE_TENSOR_LIST:
        return list_equal(a, b, sizeof(uint32_t));
    case CORE_VALUE_INT_LIST:
        return list_equal(a, b, sizeof(int64_t));
    case CORE_VALUE_FLOAT_LIST:
        return list_equal(a, b, sizeof(double));
    case CORE_VALUE_BOOL_LIST:
    case CORE_VALUE_STRING:
        return list_equal(a, b, 1);
    default:
        return a->u.i == b->u.i;
    }
}

static bool regions_equal(const core__program_node *a,
                          const core__program_node *b)
{
    char unused[160];

    if (core__region_count(a) != core__region_count(b))
        return false;
    for (uint32_t i = 0; i < core__region_count(a); i++)
        if (!core__programs_equal(a->regions[i], b->regions[i], unused,
                                  sizeof unused))
            return false;
    return true;
}

static bool node_equal(const core_program *x, const core_program *y,
                       const core__program_node *a, const core__program_node *b)
{
    if (strcmp(a->name, b->name) != 0 || a->nargs != b->nargs ||
        a->nresults != b->nresults || a->written != b->written ||
        a->first != b->first || a->nvalues != b->nvalues ||
        a->draws != b->draws)
        return false;
    for (uint32_t i = 0; i < a->nargs; i++)
        if (!argument_equal(x, y, &a->args[i], &b->args[i]))
            return false;
    for (uint32_t i = 0; i < a->nresults; i++)
        if (!argument_equal(x, y, &a->results[i], &b->results[i]))
            return false;
    return regions_equal(a, b);
}

static bool type_equal(const core_program *x, const core_program *y,
                       const core__program_type *a, const core__program_type *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           x->devices[a->device] == y->devices[b->device] &&
           (a->ndim == 0 ||
            memcmp(a->dims, b->dims, 2 * a->ndim * sizeof *a->dims) == 0);
}

static bool values_equal(const core_program *a, const core_program *b)
{
    bool equal = a->nvalues == b->nvalues;

    for (uint32_t i = 0; i < a->nvalues && equal; i++)
        equal = type_equal(a, b, &a->values[i].type, &b->values[i].type) &&
                a->values[i].source == b->values[i].source &&
                a->values[i].index == b->values[i].index;
    return equal;
}

static bool hidden_equal(const core_program *a, const core_program *b)
{
    bool equal = a->nhidden == b->nhidden && a->nknown == b->nknown;

    for (uint32_t i = 0; i < a->nhidden && equal; i++)
        equal = core__same_hidden(&a->hidden[i], &b->hidden[i]);
    for (uint32_t i = 0; i < a->nknown && equal; i++)
        equal = a->known[i].tensor == b->known[i].tensor &&
                a->known[i].input == b->known[i].input &&
                a->known[i].offset == b->known[i].offset;
    return equal;
}

static bool outputs_equal(const core_program *a, const core_program *b)
{
    bool equal = a->noutputs == b->noutputs && a->nwrites == b->nwrites;

    for (uint32_t i = 0; i < a->noutputs && equal; i++) {
        const core__program_output *x = &a->outputs[i], *y = &b->outputs[i];

        equal = x->kind == y->kind && x->view == y->view &&
                x->index == y->index && x->offset == y->offset &&
                x->tensor == y->tensor && type_equal(a, b, &x->type, &y->type);
    }
    for (uint32_t i = 0; i < a->nwrites && equal; i++)
        equal = a->writes[i].hidden == b->writes[i].hidden &&
                a->writes[i].index == b->writes[i].index &&
                a->writes[i].value == b->writes[i].value;
    return equal;
}

static void describe_node(uint32_t node, const char *before, const char *now,
                          char *text, size_t size)
{
    if (strcmp(before, now) == 0)
        core__format(text, size, "operator %u, %s, has other arguments", node,
                     now);
    else
        core__format(text, size, "operator %u is %s; it was %s", node, now,
                     before);
}

bool core__programs_equal(const core_program *a, const core_program *b,
                          char *text, size_t size)
{
    uint32_t nodes = a->nnodes < b->nnodes ? a->nnodes : b->nnodes;

    if (!hidden_equal(a, b)) {
        core__format(text, size, "it uses other hidden inputs");
        return false;
    }
    for (uint32_t i = 0; i < nodes; i++)
        if (!node_equal(a, b, &a->nodes[i], &b->nodes[i])) {
            describe_node(i, a->nodes[i].name, b->nodes[i].name, text, size);
            return false;
        }
    if (a->nnodes != b->nnodes) {
        core__format(text, size, "it calls %u operators; it called %u",
                     b->nnodes, a->nnodes);
        return false;
    }
    if (!values_equal(a, b)) {
        core__format(text, size, "its results have other sizes or dtypes");
        return false;
    }
    if (!finishes_equal(a, b)) {
        core__format(text, size, "it steps other parameters");
        return false;
    }
    if (!outputs_equal(a, b)) {
        core__format(text, size, "it returns or writes other values");
        return false;
    }
    return true;
}
