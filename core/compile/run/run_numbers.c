/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Numbers that a program reads at each run (dispatch/run_numbers.h). */

#include "compile/run/run.h"

#include "base/thread.h"

static bool is_alike(const core__program_finish_call *call)
{
    return call->source->alike(call->object, call->part, call->other);
}

bool core__program_object_is_gone(const core_program *program)
{
    for (uint32_t i = 0; i < program->nfinishes; i++)
        if (program->finishes[i].source->released(program->finishes[i].object))
            return true;
    return false;
}

bool core__program_numbers_hold(const core_program *program)
{
    for (uint32_t i = 0; i < program->nfinishes; i++)
        if (!is_alike(&program->finishes[i]))
            return false;
    return true;
}

core_status core__program_read_numbers(const core_program *program,
                                       core_value *out)
{
    if (!program->nnumbers && !program->nfinishes)
        return CORE_OK;
    if (core__thread_self()->trace)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_program_run: the program steps an object of "
                           "this process, and cannot become a part of another "
                           "one that is being recorded");
    for (uint32_t i = 0; i < program->nfinishes; i++)
        if (!is_alike(&program->finishes[i]))
            return core__error(
                CORE_ERROR_REFUSED,
                "core_program_run: %s: part %u was released, or no longer "
                "matches part %u, with which it was recorded; record the "
                "function again",
                program->finishes[i].source->name, program->finishes[i].part,
                program->finishes[i].other);
    for (uint32_t i = 0; i < program->nnumbers; i++) {
        const core__program_number *number = &program->numbers[i];

        out[i] = number->source->read(number->object, number->part,
                                      number->number, number->earlier);
    }
    return CORE_OK;
}

void core__program_finish_run(const core_program *program)
{
    for (uint32_t i = 0; i < program->nfinishes; i++)
        program->finishes[i].source->finish(program->finishes[i].object,
                                            program->finishes[i].part);
}
