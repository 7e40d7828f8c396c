/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Prepares the nodes of a program. */

#include "compile/prepare/preparing.h"

#include "base/memory.h"
#include "ops_ids.h"
#include "tensor/dtype.h"

static void release_values(core__preparing *p, const core__program_node *node)
{
    for (uint32_t i = 0; i < node->nvalues; i++) {
        core__tensor_release(p->run.tensors[node->first + i]);
        p->run.tensors[node->first + i] = NULL;
    }
}

/* Sets the buffers of the values of a node. */
static core_status set_buffers(core__preparing *p,
                               const core__program_node *node,
                               core__source_kind kind)
{
    for (uint32_t i = 0; i < node->nvalues; i++) {
        uint32_t value = node->first + i, found;
        const core_tensor *tensor = p->run.tensors[value];

        if (!tensor)
            continue;
        found = core__prepare_find_live(p, tensor->storage);
        if (found == CORE__PREPARE_NEVER)
            CORE_TRY(core__prepare_add_buffer(p, kind, value, tensor, &found));
        p->buffers[found].index = value;
        p->value_buffers[value] = found;
    }
    return CORE_OK;
}

static uint32_t count_numbers(const core__program_node *node)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->nargs; i++)
        count += node->args[i].tag == CORE__ARGUMENT_NUMBER;
    return count;
}

static core_status prepare_kernel(core__preparing *p,
                                  const core__program_node *node,
                                  const char **out_reason)
{
    uint32_t before = p->to->nnumber_places;
    core_status status;

    *out_reason = NULL;
    core__prepare_log_calls(p);
    status = core__run_node(&p->run, node);
    p->run.steps = NULL;
    if (status != CORE_OK) {
        core__launch_log_clear(&p->log);
        release_values(p, node);
        if (status == CORE_ERROR_OUT_OF_MEMORY)
            return status;
        *out_reason = p->log.refusal ? p->log.refusal : "its call fails";
        core_error_clear();
        return CORE_OK;
    }
    CORE_TRY(set_buffers(p, node, CORE__SOURCE_ARENA));
    CORE_TRY(core__prepare_take_log(p, node));
    return p->to->nnumber_places - before < count_numbers(node)
               ? core__prepare_refuse(
                     p,
                     "a kernel does not take a number that is read at each run")
               : CORE_OK;
}

/* A view is made of the stand-in. */
static core_status prepare_view(core__preparing *p,
                                const core__program_node *node)
{
    uint32_t base = node->args[0].tag == CORE_VALUE_TENSOR
                        ? node->args[0].u.value
                        : CORE__NO_VALUE;

    if (node->op->registrations || base == CORE__NO_VALUE)
        return core__prepare_refuse(p, "a function is registered for a view");
    CORE_TRY(core__run_node(&p->run, node));
    for (uint32_t i = 0; i < node->nvalues; i++) {
        const core_tensor *tensor = p->run.tensors[node->first + i];

        if (!tensor)
            continue;
        if (tensor->storage != p->run.tensors[base]->storage)
            return core__prepare_refuse(p, "a view is a copy");
        p->value_buffers[node->first + i] = p->value_buffers[base];
    }
    return CORE_OK;
}

void core__prepare_use_value(void *context, uint32_t value)
{
    core__preparing *p = context;

    if (p->value_buffers[value] == CORE__PREPARE_NEVER)
        return;
    core__prepare_use_buffer(p, p->value_buffers[value]);
    p->buffers[p->value_buffers[value]].seen = true;
}

/* A node that is called as an operator in each call. */
static core_status leave_node(core__preparing *p,
                              const core__program_node *node,
                              const char *reason)
{
    CORE_TRY(core__operator_reason_count(
        &p->to->unprepared, &p->to->nunprepared, node->name, reason));
    core__node_each_value(node, core__prepare_use_value, p);
    for (uint32_t i = 0; i < node->nvalues; i++)
        CORE_TRY(core__run_new(&p->run,
                               &p->run.program->values[node->first + i].type,
                               &p->run.tensors[node->first + i]));
    CORE_TRY(set_buffers(p, node, CORE__SOURCE_NODE));
    for (uint32_t i = 0; i < node->nvalues; i++)
        core__prepare_use_value(p, node->first + i);
    p->to->operators = true;
    return core__prepare_add_step(p, CORE__STEP_NODE, p->run.node, NULL);
}

/* True for operators whose kernels get numbers as they are, and check none of
 * those that change from run to run. */
static bool passes_numbers(const core__preparing *p,
                           const core__program_node *node)
{
    const core_operator *op = node->op;

    if (!op || op->flags & CORE__OP_CUSTOM || !node->nvalues)
        return false;
    if (op->family == CORE__FAMILY_ELEMENTWISE)
        return core__dtype_is_floating(
            p->run.program->values[node->first].type.dtype);
    return op->id == CORE_OP_FUSED_SGD_STEP ||
           op->id == CORE_OP_FUSED_ADAM_STEP;
}

static core_status prepare_node(core__preparing *p,
                                const core__program_node *node)
{
    const char *reason = "it is an operator of a program or plugin";
    bool numbers = count_numbers(node) && !passes_numbers(p, node);
    core_status status = CORE_OK;

    if (node->op && core__operator_is_view(node->op)) {
        status = prepare_view(p, node);
        p->to->nodes++;
    } else {
        if (node->regions)
            reason = "it runs a part of the program that data choose";
        else if (numbers)
            reason = "it reads a number at each run";
        else if (node->op)
            status = prepare_kernel(p, node, &reason);
        if (status == CORE_OK && reason)
            status = leave_node(p, node, reason);
        else
            p->to->nodes++;
    }
    core__run_drop(&p->run, node);
    core__prepare_drop_unused_buffers(p, false);
    return status;
}

/* The kernel of a group: only the values that something else reads have
 * tensors. */
static core_status prepare_launch(core__preparing *p,
                                  const core__fused_group *group)
{
    const core_program *program = p->run.program;
    const uint32_t *nodes = p->order + group->first;
    core__program_argument operands = {
        CORE_VALUE_TENSOR_LIST, group->noperands, {.values = group->values}};
    core__program_node reader = {.nargs = 1, .args = &operands};
    core__logged_launch *launch;
    core_status status;

    for (uint32_t i = 0; i < group->noutputs; i++)
        CORE_TRY(core__run_new(&p->run, &program->values[group->values[i]].type,
                               &p->run.tensors[group->values[i]]));
    for (uint32_t i = 0; i < group->count; i++)
        CORE_TRY(set_buffers(p, &program->nodes[nodes[i]], CORE__SOURCE_ARENA));
    CORE_TRY(core__fused_launch_new(program, p->to->fusion, group,
                                    p->run.tensors, &launch));
    status = core__prepare_take_operands(p, &reader, launch);
    if (status == CORE_OK)
        status = core__prepare_add_step(p, CORE__STEP_FUSED, nodes[0], launch);
    if (status != CORE_OK)
        core__logged_launch_free(launch);
    return status;
}

static core_status prepare_group(core__preparing *p,
                                 const core__fused_group *group)
{
    CORE_TRY(prepare_launch(p, group));
    p->to->nodes += group->count;
    p->to->launches++;
    for (uint32_t i = 0; i < group->count; i++) {
        p->run.node = p->order[group->first + i];
        core__run_drop(&p->run, &p->run.program->nodes[p->run.node]);
    }
    core__prepare_drop_unused_buffers(p, false);
    return CORE_OK;
}

core_status core__prepare_nodes(core__preparing *p)
{
    const core_program *program = p->run.program;
    const core__fusion *fusion = p->to->fusion;
    uint32_t g = 0;

    for (uint32_t i = 0; i < program->nnodes; i++) {
        while (g < fusion->ngroups && fusion->groups[g].first < i)
            g++;
        if (g < fusion->ngroups && fusion->groups[g].first == i &&
            fusion->groups[g].kernel) {
            CORE_TRY(prepare_group(p, &fusion->groups[g]));
            i += fusion->groups[g].count - 1;
            continue;
        }
        p->run.node = p->order[i];
        CORE_TRY(prepare_node(p, &program->nodes[p->run.node]));
    }
    return CORE_OK;
}

/* Operands are found by their tensors, so each value needs its own: in another
 * call, two inputs may not be the same tensor. */
static core_status separate(core__preparing *p, uint32_t value,
                            uint32_t *sources, uint32_t *count)
{
    core_tensor **tensor = &p->run.tensors[value], *copy;

    if (value == CORE__NO_VALUE)
        return CORE_OK;
    for (uint32_t i = 0; i < *count; i++) {
        if (p->run.tensors[sources[i]] != *tensor)
            continue;
        CORE_TRY(core__tensor_shallow_copy(*tensor, &copy));
        core__tensor_release(*tensor);
        *tensor = copy;
        break;
    }
    sources[(*count)++] = value;
    return CORE_OK;
}

static core_status separate_sources(core__preparing *p)
{
    const core_program *program = p->run.program;
    size_t size = (program->ninputs + program->nhidden) * sizeof(uint32_t) + 1;
    uint32_t *sources = core__alloc(size), count = 0;
    core_status status = sources ? CORE_OK : core__error_memory(size);

    for (uint32_t i = 0; i < program->ninputs && status == CORE_OK; i++)
        status = separate(p, program->inputs[i].value, sources, &count);
    for (uint32_t i = 0; i < program->nhidden && status == CORE_OK; i++)
        status = separate(p, program->hidden[i].value, sources, &count);
    core__free(sources);
    return status;
}

core_status core__prepare_sources(core__preparing *p)
{
    const core_program *program = p->run.program;

    CORE_TRY(core__run_set_sources(&p->run));
    CORE_TRY(separate_sources(p));
    for (uint32_t i = 0; i < program->ninputs; i++) {
        uint32_t value = program->inputs[i].value;

        if (p->run.inputs[i]->device != p->device)
            return core__prepare_refuse(p, "inputs are on several devices");
        if (value != CORE__NO_VALUE)
            CORE_TRY(core__prepare_add_buffer(p, CORE__SOURCE_INPUT, i,
                                              p->run.inputs[i],
                                              &p->value_buffers[value]));
    }
    for (uint32_t i = 0; i < program->nhidden; i++) {
        core_tensor *tensor = program->hidden[i].tensor;

        if (tensor->device != p->device)
            return core__prepare_refuse(p, "inputs are on several devices");
        CORE_TRY(core__prepare_add_buffer(
            p, CORE__SOURCE_HIDDEN, i, tensor,
            &p->value_buffers[program->hidden[i].value]));
    }
    return CORE_OK;
}
