/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Measures whether the kernel of a group is faster than its operators
 * (CORE_COMPILE_MAX_AUTOTUNE): both run as prepared calls of a program that has
 * the group alone, on tensors of ones. */

#include "compile/extract.h"
#include "compile/fusion.h"

#include "base/memory.h"

#include <libcore/ops.h>

#include <time.h>

/* The fastest of some rounds, each of which takes at least as long as the clock
 * needs to be exact. */
enum { ROUNDS = 5, ROUND_NS = 20000, MOST_CALLS = 256 };

/* Describes the operands of the group's kernel as inputs and outputs. */
static core_status extract_group(core__extraction *e,
                                 const core__fused_group *group,
                                 const uint32_t *nodes)
{
    for (uint32_t i = group->noutputs; i < group->noperands; i++)
        if (e->numbers[group->values[i]] == CORE__NO_VALUE)
            CORE_TRY(core__extract_input(e, group->values[i]));
    for (uint32_t i = 0; i < group->count; i++)
        CORE_TRY(core__extract_value(e, e->from->nodes[nodes[i]].first));
    for (uint32_t i = 0; i < group->noutputs; i++) {
        core__program_output *output = core__program_grow(
            &e->to->outputs, &e->to->noutputs, sizeof *output);

        if (!output)
            return core__error_memory(sizeof *output);
        *output = (core__program_output){
            .kind = CORE__OUTPUT_VALUE,
            .index = e->numbers[group->values[i]],
            .type = e->from->values[group->values[i]].type};
    }
    return CORE_OK;
}

static core_status program_of(core_program *program,
                              const core__fused_group *group,
                              const uint32_t *nodes, uint8_t codegen,
                              core_program **out_program)
{
    core__extraction e;
    core_status status = core__extraction_begin(&e, program);

    *out_program = NULL;
    if (status == CORE_OK)
        status = extract_group(&e, group, nodes);
    CORE_TRY(core__extraction_end(&e, status, out_program));
    (*out_program)->codegen = codegen;
    (*out_program)->recomputes = false;
    return CORE_OK;
}

static core_status make_inputs(const core_program *program, core_device *device,
                               core_tensor **inputs)
{
    for (uint32_t i = 0; i < program->ninputs; i++) {
        const core__program_type *type = &program->inputs[i].type;

        CORE_TRY(core_empty_strided(
            core__type_sizes(type), type->ndim, core__type_strides(type),
            type->ndim, (core_dtype)type->dtype, device, &inputs[i]));
        CORE_TRY(core_fill_(inputs[i], core_int(1)));
    }
    return CORE_OK;
}

static core_status call(core_program *program, core_tensor *const *inputs,
                        core_tensor **outputs)
{
    core_status status = core__program_run_checked(program, inputs, outputs);

    for (uint32_t i = 0; i < program->noutputs && status == CORE_OK; i++)
        core_tensor_release(outputs[i]);
    return status;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static core_status time_calls(core_program *program, core_tensor *const *inputs,
                              core_tensor **outputs, uint64_t *out_ns)
{
    *out_ns = UINT64_MAX;
    CORE_TRY(call(program, inputs, outputs)); /* which prepares it */
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t from = now_ns(), spent = 0, calls = 0;

        while (spent < ROUND_NS && calls < MOST_CALLS) {
            CORE_TRY(call(program, inputs, outputs));
            calls++;
            spent = now_ns() - from;
        }
        if (spent / calls < *out_ns)
            *out_ns = spent / calls;
    }
    return CORE_OK;
}

static core_status time_both(core_program *const *programs, core_device *device,
                             core__fused_group *group)
{
    const core_program *like = programs[0];
    size_t count = (size_t)like->ninputs + like->noutputs;
    core_tensor **tensors = core__alloc_zero((count + 1) * sizeof *tensors);
    core_tensor **outputs = tensors + like->ninputs;
    core_status status;

    if (!tensors)
        return core__error_memory(count * sizeof *tensors);
    status = make_inputs(like, device, tensors);
    if (status == CORE_OK)
        status = time_calls(programs[0], tensors, outputs, &group->fused_ns);
    if (status == CORE_OK)
        status =
            time_calls(programs[1], tensors, outputs, &group->operators_ns);
    for (uint32_t i = 0; i < like->ninputs; i++)
        core_tensor_release(tensors[i]);
    core__free(tensors);
    return status;
}

core_status core__fusion_measure(core_program *program, core_device *device,
                                 const uint32_t *nodes,
                                 core__fused_group *group)
{
    core_program *programs[2] = {NULL};
    core_status status = program_of(program, group, nodes,
                                    CORE_COMPILE_CODEGEN_ON, &programs[0]);

    if (status == CORE_OK)
        status = program_of(program, group, nodes, CORE_COMPILE_CODEGEN_OFF,
                            &programs[1]);
    if (status == CORE_OK)
        status = time_both(programs, device, group);
    core_program_release(programs[0]);
    core_program_release(programs[1]);
    return status;
}
