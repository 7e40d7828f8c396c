/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "compile/run/write_parts.h"

#include "base/memory.h"
#include "compile/program/extract.h"
#include "ops_ids.h"

#include <libcore/ops.h>

#include <string.h>

/* The arguments of as_strided_scatter. */
enum { BASE, PART, SIZES, STRIDES, OFFSET, COUNT };

static const core__program_node *node_of(const core__run *r, uint32_t value)
{
    const core__program_value *described = &r->program->values[value];

    return described->source == CORE__VALUE_OF_NODE
               ? &r->program->nodes[described->index]
               : NULL;
}

static bool is_part(const core__program_node *node)
{
    return node && node->op && node->op->id == CORE_OP_AS_STRIDED_SCATTER &&
           node->nargs == COUNT && node->args[OFFSET].tag == CORE_VALUE_INT;
}

/* ----------------------------------------------------------- conditions -- */

static uint32_t value_of_target(const core_program *program,
                                const core__program_write *write)
{
    return write->hidden ? program->hidden[write->index].value
                         : program->inputs[write->index].value;
}

/* It is where the program thinks it is, so a place in the new content is one in
 * the target. */
static bool is_laid_out(const core__run *r, const core__program_write *write)
{
    const core_tensor *target = core__run_target(r, write);
    const core__program_type *type = &r->program->values[write->value].type;

    return target->flags & CORE__TENSOR_DENSE && target->ndim == type->ndim &&
           target->dtype == type->dtype &&
           memcmp(target->sizes, core__type_sizes(type),
                  target->ndim * sizeof(int64_t)) == 0 &&
           memcmp(target->strides, core__type_strides(type),
                  target->ndim * sizeof(int64_t)) == 0;
}

typedef struct counting {
    uint32_t value, count;
} counting;

static void count_read(void *context, uint32_t value)
{
    counting *c = context;

    c->count += c->value == value;
}

/* How often nodes, outputs and writes use a value. */
static uint32_t uses_of(const core_program *program, uint32_t value)
{
    counting c = {value, 0};

    for (uint32_t n = 0; n < program->nnodes; n++)
        core__node_each_value(&program->nodes[n], count_read, &c);
    for (uint32_t i = 0; i < program->noutputs; i++)
        if (program->outputs[i].kind == CORE__OUTPUT_VALUE)
            count_read(&c, program->outputs[i].index);
    for (uint32_t i = 0; i < program->nwrites; i++)
        count_read(&c, program->writes[i].value);
    return c.count;
}

/* Nothing changes the part after the node: an operator may write in the memory
 * of what it reads last. */
static bool stays(const core_program *program, uint32_t value, uint32_t node)
{
    uint32_t root = core__program_root(program, value);

    for (uint32_t v = 0; v < program->nvalues; v++)
        if (program->values[v].last != CORE__NO_VALUE &&
            program->values[v].last > node &&
            core__program_root(program, v) == root)
            return false;
    return true;
}

/* Parts of parts, down to the old content of the target. */
static bool holds(const core__run *r, const core__program_write *write)
{
    const core_program *program = r->program;
    uint32_t value = write->value;
    const core__program_node *node = node_of(r, value);

    if (!is_part(node) || !is_laid_out(r, write))
        return false;
    for (; is_part(node); node = node_of(r, value)) {
        if (uses_of(program, value) != 1 ||
            !stays(program, node->args[PART].u.value,
                   program->values[value].index))
            return false;
        value = node->args[BASE].u.value;
    }
    return value == value_of_target(program, write);
}

static bool any_part(const core__run *r)
{
    for (uint32_t i = 0; i < r->program->nwrites; i++)
        if (is_part(node_of(r, r->program->writes[i].value)))
            return true;
    return false;
}

core_status core__write_parts_find(const core__run *r, bool **out_parts)
{
    const core_program *program = r->program;

    *out_parts = NULL;
    if (r->recorded || !any_part(r))
        return CORE_OK;
    *out_parts = core__alloc_zero(program->nnodes);
    if (!*out_parts)
        return core__error_memory(program->nnodes);
    for (uint32_t i = 0; i < program->nwrites; i++) {
        uint32_t value = program->writes[i].value;
        const core__program_node *node = node_of(r, value);

        if (!holds(r, &program->writes[i]))
            continue;
        for (; is_part(node); node = node_of(r, value)) {
            (*out_parts)[program->values[value].index] = true;
            value = node->args[BASE].u.value;
        }
    }
    return CORE_OK;
}

/* ---------------------------------------------------------------- writes -- */

core_status core__write_parts_keep(core__run *r, uint32_t value)
{
    const core__program_node *node = node_of(r, value);

    for (; is_part(node) && !r->tensors[value]; node = node_of(r, value)) {
        uint32_t part = node->args[PART].u.value;
        core_tensor *before = r->tensors[part];

        if (core__run_is_target(r, before)) {
            CORE_TRY(core__run_copy(r, &r->program->values[part].type, before,
                                    &r->tensors[part]));
            core__tensor_release(before);
        }
        value = node->args[BASE].u.value;
    }
    return CORE_OK;
}

static core_status write_part(const core__run *r, core_tensor *target,
                              const core__program_node *node)
{
    const core__program_argument *args = node->args;
    int64_t offset = target->offset + args[OFFSET].u.i;
    core_tensor *view = NULL;
    core_status status;

    CORE_TRY(core_as_strided(target, args[SIZES].u.ints, args[SIZES].count,
                             args[STRIDES].u.ints, args[STRIDES].count, &offset,
                             &view));
    status = core_copy_(view, r->tensors[args[PART].u.value], false);
    core_tensor_release(view);
    return status;
}

/* The first part first. */
core_status core__write_parts(core__run *r, const core__program_write *write)
{
    core_tensor *target = core__run_target(r, write);
    uint32_t end = value_of_target(r->program, write);

    while (end != write->value) {
        const core__program_node *node = node_of(r, write->value);

        while (node->args[BASE].u.value != end)
            node = node_of(r, node->args[BASE].u.value);
        CORE_TRY(write_part(r, target, node));
        end = node->first;
    }
    return CORE_OK;
}
