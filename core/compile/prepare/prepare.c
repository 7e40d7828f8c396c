/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Prepares calls of a program.
 *
 * The program is run once with tensors that stand in for its values, and
 * kernels that are noted instead of launched.  Storages show which memory is
 * meant: a buffer is the storage of an input, of a hidden input, or of a
 * stand-in. */

#include "compile/prepare/preparing.h"

#include "compile/passes/recompute.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/stream.h"
#include "dispatch/registry.h"

#include <string.h>

core_status core__prepare_no_memory(void)
{
    return core__error_memory(sizeof(core__prepared_buffer));
}

/* Not an error for the caller of a compiled function. */
core_status core__prepare_refuse(core__preparing *p, const char *reason)
{
    p->reason = reason;
    return CORE_ERROR_UNSUPPORTED;
}

static void note_last(void *context, uint32_t value)
{
    core__preparing *p = context;

    p->last[value] = p->run.node;
}

static core_status prepare_all(core__preparing *p)
{
    core_program *program = p->run.program;

    for (uint32_t v = 0; v < program->nvalues; v++)
        p->value_buffers[v] = p->last[v] = CORE__PREPARE_NEVER;
    CORE_TRY(core__program_read_numbers(program, p->to->numbers));
    CORE_TRY(core__prepare_sources(p));
    if (!p->to->fusion)
        CORE_TRY(core__fusion_new(program, p->device, p->run.tensors,
                                  &p->to->fusion));
    p->to->waits = p->to->fusion->waits;
    p->order = p->to->fusion->order;
    for (uint32_t i = 0; i < program->nnodes; i++) {
        p->run.node = p->order[i];
        core__node_each_value(&program->nodes[p->run.node], note_last, p);
    }
    CORE_TRY(core__prepare_nodes(p));
    for (uint32_t i = 0; i < program->noutputs; i++)
        core__prepare_output(p, &program->outputs[i]);
    CORE_TRY(core__prepare_writes(p));
    if (p->to->launches == 0)
        return core__prepare_refuse(p, "no operator launches a kernel");
    return core__prepare_steps(p);
}

static core_status begin(core_program *program, core__preparing *p)
{
    core__thread *self = core__thread_self();
    core__prepared *to = core__alloc_zero(sizeof *to);
    size_t size =
        program->nvalues * (sizeof(core_tensor *) + 2 * sizeof(uint32_t));

    p->to = to;
    if (!to)
        return core__error_memory(sizeof *to);
    p->run.tensors = core__alloc_zero(size + 1);
    if (!p->run.tensors)
        return core__error_memory(size);
    to->numbers =
        core__alloc_zero((program->nnumbers + 1) * sizeof(core_value));
    if (!to->numbers)
        return core__prepare_no_memory();
    p->run.numbers = to->numbers;
    p->value_buffers = (uint32_t *)(void *)(p->run.tensors + program->nvalues);
    p->last = p->value_buffers + program->nvalues;
    p->run.last = p->last;
    to->program = program;
    to->device = p->device;
    to->impl = p->device->impl;
    /* Before anything is looked up, so that a change meanwhile is noticed. */
    to->registered = atomic_load(&core__registry_generation);
    to->generation = atomic_load(&p->device->generation);
    to->call_flags = self->call_flags;
    to->stream = core__stream_current_of(self, p->device)->id;
    return CORE_OK;
}

core_status core__prepare_set(core_program *program, core_tensor *const *inputs,
                              core__fusion *fusion,
                              core__prepared **out_prepared,
                              const char **out_reason)
{
    core__preparing p = {.run = {.program = program,
                                 .inputs = inputs,
                                 .devices = program->devices}};
    core_status status;

    *out_prepared = NULL;
    *out_reason = NULL;
    if (program->ndevices != 1) {
        *out_reason = program->ndevices ? "it is on several devices"
                                        : "it has no operators";
        return CORE_ERROR_UNSUPPORTED;
    }
    p.device = program->devices[0];
    status = begin(program, &p);
    if (status == CORE_OK && fusion)
        p.to->fusion = core__fusion_retain(fusion);
    if (status == CORE_OK)
        status = prepare_all(&p);
    for (uint32_t v = 0; p.run.tensors && v < program->nvalues; v++)
        core__tensor_release(p.run.tensors[v]);
    core__prepare_drop_unused_buffers(&p, true);
    core__launch_log_clear(&p.log);
    core__free(p.run.tensors);
    core__free(p.buffers);
    core__free(p.live);
    core__free(p.changes);
    if (status != CORE_OK) {
        core__prepared_free(p.to);
        *out_reason = p.reason ? p.reason : "its views cannot be made";
        return status;
    }
    *out_prepared = p.to;
    return CORE_OK;
}

/* Replaces calls that need much memory by those of a program that needs
 * less. */
static core_status reduce_memory(core_program *program,
                                 core_tensor *const *inputs,
                                 core__prepared **prepared)
{
    core__prepared *smaller = NULL;
    core_program *changed;
    const char *reason;
    core_status status;

    CORE_TRY(core__program_recompute(program, &changed));
    if (!changed)
        return CORE_OK;
    status = core__prepare_set(changed, inputs, NULL, &smaller, &reason);
    if (status != CORE_OK ||
        smaller->arena_size + smaller->arena_size / CORE__PREPARE_WORTH_IT >
            (*prepared)->arena_size) {
        core__prepared_free(smaller);
        core__program_recomputed_free(changed);
        return status == CORE_ERROR_UNSUPPORTED ? CORE_OK : status;
    }
    smaller->own = changed;
    core__prepared_free(*prepared);
    *prepared = smaller;
    return CORE_OK;
}

core_status core__prepare(core_program *program, core_tensor *const *inputs,
                          core__fusion *fusion, core__prepared **out_prepared,
                          const char **out_reason)
{
    core_status status =
        core__prepare_set(program, inputs, fusion, out_prepared, out_reason);

    if (status == CORE_OK && program->recomputes &&
        (*out_prepared)->arena_size > CORE__KEPT_ARENA)
        status = reduce_memory(program, inputs, out_prepared);
    if (status != CORE_OK) {
        core__prepared_free(*out_prepared);
        *out_prepared = NULL;
    }
    return status;
}

void core__prepared_free(core__prepared *prepared)
{
    if (!prepared)
        return;
    for (uint32_t i = 0; i < prepared->nsteps; i++)
        core__logged_launch_free(prepared->steps[i].launch);
    for (uint32_t i = 0; i < prepared->ntensors; i++)
        core__free(prepared->tensors[i]);
    core__row_blocks_free(&prepared->rows);
    core__epilogues_free(&prepared->epilogues);
    core__fusion_release(prepared->fusion);
    core__tensor_release(prepared->arena);
    core__free(prepared->sources);
    core__free(prepared->places);
    core__free(prepared->tensors);
    core__free(prepared->steps);
    core__free(prepared->changes);
    core__free(prepared->releases);
    core__free(prepared->creations);
    core__free(prepared->moves);
    core__free(prepared->held);
    core__free(prepared->arena_offsets);
    core__free(prepared->value_sources);
    core__free(prepared->real);
    core__free(prepared->numbers);
    core__free(prepared->number_places);
    core__free(prepared->unprepared);
    core__program_recomputed_free(prepared->own);
    core__free(prepared);
}
