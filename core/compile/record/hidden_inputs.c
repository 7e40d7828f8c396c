/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The hidden inputs of a part of a function that is recorded alone: of a region
 * or a lazy segment. */

#include "compile/record/trace.h"

bool core__region_captures(const core__trace *trace, const core_tensor *tensor)
{
    const core__traced_storage *traced = tensor->storage->context;

    if (traced->trace == trace)
        return false;
    for (; trace && trace->region; trace = trace->outer)
        if (traced->trace == trace->outer)
            return traced->trace != NULL;
    return false;
}

core_status core__trace_hidden_to_inputs(core__trace *trace)
{
    core_program *program = trace->program;

    for (uint32_t i = 0; i < program->nhidden; i++) {
        uint32_t value = program->hidden[i].value;
        core__program_input *added = core__program_grow(
            &program->inputs, &program->ninputs, sizeof *added);

        if (!added)
            return core__error_memory(sizeof *added);
        *added = (core__program_input){.type = program->values[value].type,
                                       .value = value,
                                       .base = CORE__NO_VALUE};
        program->values[value].source = CORE__VALUE_OF_INPUT;
        program->values[value].index = program->ninputs - 1;
    }
    return CORE_OK;
}

void core__program_forget_tensors(core_program *program)
{
    for (uint32_t i = 0; i < program->nhidden; i++)
        core__tensor_release(program->hidden[i].tensor);
    for (uint32_t i = 0; i < program->naliases; i++)
        core__tensor_release(program->aliases[i]);
    program->nhidden = program->naliases = 0;
}
