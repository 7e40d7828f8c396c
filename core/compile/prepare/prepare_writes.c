/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Prepares outputs and writes to inputs. */

#include "compile/prepare/preparing.h"

#include "tensor/layout.h"

#include <string.h>

/* The memory of a value that the caller receives is new in each call. */
void core__prepare_output(core__preparing *p,
                          const core__program_output *output)
{
    core__prepared_buffer *b;

    if (output->tensor || output->kind != CORE__OUTPUT_VALUE)
        return;
    b = &p->buffers[p->value_buffers[output->index]];
    if (b->kind == CORE__SOURCE_ARENA)
        b->kind = CORE__SOURCE_OUTPUT;
    if (b->kind != CORE__SOURCE_OUTPUT || b->index != output->index)
        p->to->operators = true;
}

/* The buffer of a target, and its distance from the buffer's start. */
static uint32_t target_of(const core__preparing *p,
                          const core__program_write *write)
{
    const core_program *program = p->run.program;
    uint32_t input = write->index;

    if (write->hidden)
        return p->value_buffers[program->hidden[write->index].value];
    if (program->inputs[input].base != CORE__NO_VALUE)
        input = program->inputs[input].base;
    return p->value_buffers[program->inputs[input].value];
}

bool core__prepare_same_layout(const core_tensor *a, const core_tensor *b)
{
    if (a->kind != b->kind)
        return false;
    for (uint32_t i = 0; i < a->ndim; i++)
        if (a->sizes[i] != b->sizes[i] ||
            (a->sizes[i] > 1 && a->strides[i] != b->strides[i]))
            return false;
    return true;
}

/* True if nothing but the buffer's own values shows the memory of a target. */
static bool is_alone(const core__preparing *p, const core_tensor *target,
                     uint32_t buffer)
{
    const core_program *program = p->run.program;
    uint32_t writes = 0;

    for (uint32_t i = 0; i < program->ninputs; i++) {
        uint32_t base = program->inputs[i].base;
        uint32_t root = base == CORE__NO_VALUE ? i : base;

        if (p->value_buffers[program->inputs[root].value] != buffer &&
            core__layout_overlap(p->run.inputs[i], target) !=
                CORE__OVERLAP_NONE)
            return false;
    }
    for (uint32_t i = 0; i < program->nhidden; i++)
        if (p->value_buffers[program->hidden[i].value] != buffer &&
            core__layout_overlap(program->hidden[i].tensor, target) !=
                CORE__OVERLAP_NONE)
            return false;
    for (uint32_t i = 0; i < program->nwrites; i++) {
        const core__program_write *write = &program->writes[i];

        if (p->value_buffers[write->value] == buffer)
            return false;
        writes += core__layout_overlap(core__run_target(&p->run, write),
                                       target) != CORE__OVERLAP_NONE;
    }
    return writes == 1;
}

uint32_t core__prepare_root_of(const core__preparing *p, uint32_t buffer)
{
    while (p->buffers[buffer].into != CORE__PREPARE_NEVER)
        buffer = p->buffers[buffer].into;
    return buffer;
}

/* True if a launch may have the target in the place of its output `buffer`: it
 * is a loop, and reads exactly the elements of the target that it writes. */
bool core__prepare_in_place(const core__preparing *p,
                            core__logged_launch *launch,
                            const core_tensor *target, uint32_t buffer,
                            uint32_t from, uint64_t distance)
{
    core_tensor **tensors = core__logged_tensors(launch);

    if (!launch->loop || launch->loop->reduced)
        return false;
    for (uint32_t i = 0; i < launch->run->ntensors; i++) {
        const core__operand_tensor *tensor =
            core__prepare_operand_of(tensors[i]);

        if (tensor->source == buffer &&
            (tensor->distance != 0 ||
             !core__prepare_same_layout(&tensor->tensor, target)))
            return false;
        if (tensor->source != buffer &&
            core__prepare_root_of(p, tensor->source) == from &&
            (tensor->distance != distance ||
             !core__prepare_same_layout(&tensor->tensor, target)))
            return false;
    }
    return true;
}

/* Puts the value in the memory of its target from the start, if nothing reads
 * the old content later. */
static bool write_in_place(core__preparing *p, const core__program_write *write)
{
    const core_tensor *target = core__run_target(&p->run, write);
    const core_tensor *value = p->run.tensors[write->value];
    uint32_t from = target_of(p, write);
    uint32_t index = p->value_buffers[write->value];
    uint64_t distance =
        core__prepare_distance_of(p, from, core__tensor_memory(target));
    core__prepared_buffer *b = &p->buffers[index];
    const core__prepared_buffer *old = &p->buffers[from];

    if (b->kind != CORE__SOURCE_ARENA || b->into != CORE__PREPARE_NEVER ||
        b->index != write->value || b->first == CORE__PREPARE_NEVER ||
        !(target->flags & CORE__TENSOR_DENSE) ||
        !core__prepare_same_layout(value, target) || value->offset != 0 ||
        b->seen || !is_alone(p, target, from))
        return false;
    if (old->last != CORE__PREPARE_NEVER && old->last >= b->first &&
        (old->last > b->first ||
         !core__prepare_in_place(p, p->to->steps[b->first].launch, target,
                                 index, from, distance)))
        return false;
    b->into = from;
    b->distance = distance;
    return true;
}

static core_status log_write(core__preparing *p, uint32_t i)
{
    const core__program_write *write = &p->run.program->writes[i];
    core_tensor *target = core__run_target(&p->run, write);
    core_tensor *value = p->run.tensors[write->value];
    core__program_argument argument = {
        CORE_VALUE_TENSOR, 0, {.value = write->value}};
    core__program_node reader = {.nargs = 1, .args = &argument};
    core_status status;

    if (target->flags & (CORE__TENSOR_INFERENCE | CORE__TENSOR_READ_ONLY |
                         CORE__TENSOR_TRACED)) {
        if (p->copied)
            return core__prepare_refuse(p,
                                        "values of other targets are written");
        core__prepare_use_value(p, write->value);
        p->to->operators = true;
        return core__prepare_add_step(p, CORE__STEP_WRITE, i, NULL);
    }
    status = core__launch_log_copy(&p->log, target, value);
    if (status != CORE_OK)
        return core__prepare_refuse(p, p->log.refusal ? p->log.refusal
                                                      : "a write fails");
    p->target = target;
    p->target_buffer = target_of(p, write);
    status = core__prepare_take_log(p, &reader);
    p->target = NULL;
    return status;
}

/* A value in the memory of another target is copied before any is written. */
static core_status copy_before_writes(core__preparing *p, uint32_t value)
{
    core_tensor *before = p->run.tensors[value], *copy;
    core__program_argument argument = {CORE_VALUE_TENSOR, 0, {.value = value}};
    core__program_node reader = {.nargs = 1, .args = &argument};
    uint32_t found = CORE__PREPARE_NEVER;

    if (!core__run_is_target(&p->run, before))
        return CORE_OK;
    core__prepare_log_calls(p);
    CORE_TRY(core__run_copy(&p->run, &p->run.program->values[value].type,
                            before, &copy));
    p->run.steps = NULL;
    CORE_TRY(core__prepare_take_log(p, &reader));
    CORE_TRY(core__prepare_buffer_of(p, NULL, copy, &found));
    core__tensor_release(before);
    p->run.tensors[value] = copy;
    p->value_buffers[value] = found;
    p->copied = true;
    return CORE_OK;
}

core_status core__prepare_writes(core__preparing *p)
{
    const core_program *program = p->run.program;

    p->run.node = CORE__NO_VALUE;
    for (uint32_t i = 0; i < program->nwrites; i++)
        CORE_TRY(copy_before_writes(p, program->writes[i].value));
    for (uint32_t i = 0; i < program->nwrites; i++)
        if (!write_in_place(p, &program->writes[i]))
            CORE_TRY(log_write(p, i));
    return CORE_OK;
}
