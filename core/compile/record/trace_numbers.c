/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Numbers of a recorded call that a program reads at each run
 * (dispatch/run_numbers.h). */

#include "compile/record/trace.h"

#include "base/memory.h"
#include "base/thread.h"

#include <string.h>

/* The calls for a part that the program makes already. */
static uint32_t count_earlier(const core_program *program,
                              const core__run_numbers *numbers)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < program->nfinishes; i++)
        count += program->finishes[i].source == numbers->source &&
                 program->finishes[i].object == numbers->object &&
                 program->finishes[i].part == numbers->part;
    return count;
}

static core_status add_number(core_program *program,
                              const core__run_numbers *numbers, uint32_t number,
                              const core_value *value,
                              core__program_argument *out_argument)
{
    core__program_number *added = core__program_grow(
        &program->numbers, &program->nnumbers, sizeof *added);

    if (!added)
        return core__error_memory(sizeof *added);
    *added = (core__program_number){numbers->source,
                                    numbers->object,
                                    numbers->part,
                                    number,
                                    count_earlier(program, numbers),
                                    *value};
    numbers->source->retain(numbers->object);
    *out_argument = (core__program_argument){
        CORE__ARGUMENT_NUMBER, 0, {.i = program->nnumbers - 1}};
    return CORE_OK;
}

core_status core__trace_take_number(core__trace *trace, uint32_t argument,
                                    const core_value *value,
                                    core__program_argument *out_argument)
{
    core__run_numbers *numbers = &trace->numbers;

    for (uint32_t i = 0; i < numbers->count; i++) {
        uint32_t number = numbers->numbers[i].number;
        core_value now;

        if (numbers->numbers[i].argument != argument)
            continue;
        now = numbers->source->read(numbers->object, numbers->part, number, 0);
        if (now.tag != value->tag || now.u.i != value->u.i)
            continue;
        numbers->numbers[i] = numbers->numbers[--numbers->count];
        return add_number(trace->program, numbers, number, value, out_argument);
    }
    return CORE_OK;
}

static core_status check_taken(const core__run_numbers *numbers)
{
    if (numbers->count == 0)
        return CORE_OK;
    return core__error(
        CORE_ERROR_UNSUPPORTED,
        "%s: the %s is not an argument of a recorded operator, so a program "
        "could not read it again",
        numbers->source->name,
        numbers->source->numbers[numbers->numbers[0].number]);
}

core_status core__trace_numbers(const core__run_numbers *numbers)
{
    core__trace *trace = core__thread_self()->trace;
    core_status status;

    if (!trace)
        return CORE_OK;
    pthread_mutex_lock(&trace->lock);
    status = check_taken(&trace->numbers);
    trace->numbers = *numbers;
    if (status != CORE_OK)
        trace->numbers.count = 0;
    pthread_mutex_unlock(&trace->lock);
    return status;
}

core_status core__trace_finishes(const core__run_source *source, void *object,
                                 uint32_t part, uint32_t other)
{
    core__trace *trace = core__thread_self()->trace;
    core__program_finish_call *added;
    core_status status;

    if (!trace)
        return CORE_OK;
    pthread_mutex_lock(&trace->lock);
    status = check_taken(&trace->numbers);
    trace->numbers.count = 0;
    added = status == CORE_OK
                ? core__program_grow(&trace->program->finishes,
                                     &trace->program->nfinishes, sizeof *added)
                : NULL;
    if (added) {
        *added = (core__program_finish_call){source, object, part, other};
        source->retain(object);
    } else if (status == CORE_OK) {
        status = core__error_memory(sizeof *added);
    }
    pthread_mutex_unlock(&trace->lock);
    return status;
}
