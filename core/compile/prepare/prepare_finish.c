/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Makes the steps of a set when all launches are known, and plans its memory. */

#include "compile/prepare/preparing.h"

#include "base/memory.h"
#include "ops_ids.h"
#include "tensor/layout.h"

#include <string.h>

static bool is_intermediate(const core__prepared_buffer *b)
{
    return b->kind == CORE__SOURCE_ARENA && !b->seen &&
           b->first != CORE__PREPARE_NEVER;
}

/* Puts `from`, which nothing uses after the step, and `to`, whose use begins
 * there, in one place. */
static void join(core__preparing *p, uint32_t from, uint32_t to, uint32_t step)
{
    core__prepared_buffer *a = &p->buffers[from], *b = &p->buffers[to];

    a->taken = step;
    if (b->kind == CORE__SOURCE_ARENA) {
        b->into = from;
        a->last = b->last;
    } else { /* the output is created earlier */
        a->into = to;
        b->first = a->first;
    }
}

/* Puts the output of a loop in the place of an input that nothing reads later,
 * if it has the same layout: so a chain of them needs one place. */
static void reuse_input(core__preparing *p, uint32_t step, uint32_t output)
{
    core__logged_launch *launch = p->to->steps[step].launch;
    core_tensor **tensors = core__logged_tensors(launch);
    core__prepared_buffer *b = &p->buffers[output];
    const core__operand_tensor *written = NULL;

    for (uint32_t i = 0; i < launch->run->ntensors; i++)
        if (core__prepare_operand_of(tensors[i])->source == output)
            written = core__prepare_operand_of(tensors[i]);
    for (uint32_t i = 0; written && i < launch->run->ntensors; i++) {
        const core__operand_tensor *tensor =
            core__prepare_operand_of(tensors[i]);
        uint32_t root = core__prepare_root_of(p, tensor->source);
        core__prepared_buffer *a = &p->buffers[root];

        if (root == output || !is_intermediate(a) || a->last != step ||
            a->first == step || a->taken == step || a->size != b->size ||
            tensor->distance != 0 ||
            !core__prepare_same_layout(&tensor->tensor, &written->tensor) ||
            !core__prepare_in_place(p, launch, &written->tensor, output, root,
                                    0))
            continue;
        join(p, root, output, step);
        return;
    }
}

static void reuse_inputs(core__preparing *p)
{
    for (uint32_t s = 0; s < p->to->nsteps; s++)
        for (uint32_t i = 0; i < p->nbuffers; i++) {
            const core__prepared_buffer *b = &p->buffers[i];

            if (b->first == s && b->into == CORE__PREPARE_NEVER && !b->seen &&
                (b->kind == CORE__SOURCE_ARENA ||
                 b->kind == CORE__SOURCE_OUTPUT) &&
                p->to->steps[s].launch)
                reuse_input(p, s, i);
        }
}

/* Of each buffer, what the searches for chains and epilogues need to know, and
 * back. */
static void show_memory(const core__preparing *p, core__row_memory *memory)
{
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const core__prepared_buffer *b = &p->buffers[i];
        core__row_memory *m = &memory[i];

        *m = (core__row_memory){.root = core__prepare_root_of(p, i),
                                .size = b->size,
                                .temporary = is_intermediate(b),
                                .first = b->first,
                                .last = b->last};
        for (; b->into != CORE__PREPARE_NEVER; b = &p->buffers[b->into])
            m->distance += b->distance;
    }
}

static core_status find_parts(core__preparing *p)
{
    size_t size = p->nbuffers * sizeof(core__row_memory) + 1;
    core__row_memory *memory = core__alloc(size);
    core_status status;

    if (!memory)
        return core__error_memory(size);
    show_memory(p, memory);
    status = core__row_blocks_find(p->to, memory, &p->to->rows);
    if (status == CORE_OK)
        status = core__epilogues_find(p->to, memory, &p->to->epilogues);
    for (uint32_t i = 0; i < p->nbuffers && status == CORE_OK; i++) {
        p->buffers[i].size = memory[i].size;
        p->buffers[i].first = memory[i].first;
        p->buffers[i].last = memory[i].last;
    }
    core__free(memory);
    return status;
}

static core_status plan_memory(core__preparing *p)
{
    core__planned_memory *all = core__alloc_zero(p->nbuffers * sizeof *all + 1);
    core_status status;

    if (!all)
        return core__error_memory(p->nbuffers * sizeof *all);
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const core__prepared_buffer *b = &p->buffers[i];

        if (b->kind == CORE__SOURCE_ARENA && b->into == CORE__PREPARE_NEVER &&
            b->first != CORE__PREPARE_NEVER)
            all[i] =
                (core__planned_memory){b->size, b->first, b->last, .offset = 0};
    }
    status = core__memory_plan(all, p->nbuffers, &p->to->arena_size);
    if (p->to->arena_size == 0) /* for tensors without elements */
        p->to->arena_size = CORE__PLAN_ALIGNMENT;
    for (uint32_t i = 0; i < p->nbuffers; i++)
        p->buffers[i].offset = all[i].offset;
    core__free(all);
    return status;
}

/* Strides are compared as they are, also of dimensions with one element. */
static void describe_output(core__source *source,
                            const core__program_type *type)
{
    int64_t strides[CORE_MAX_NDIM];

    core__layout_contiguous(type->ndim, core__type_sizes(type), strides);
    source->row_major =
        type->ndim == 0 || memcmp(strides, core__type_strides(type),
                                  type->ndim * sizeof *strides) == 0;
    source->kind_of_tensor = core__tensor_kind(type->ndim, type->dtype);
    source->numel = 1;
    for (uint32_t i = 0; i < type->ndim; i++)
        source->numel *= core__type_sizes(type)[i];
}

static core_status make_sources(core__preparing *p)
{
    core__prepared *to = p->to;

    to->sources = core__alloc_zero((p->nbuffers + 1) * sizeof *to->sources);
    if (!to->sources)
        return core__prepare_no_memory();
    to->sources[to->nsources++].kind = CORE__SOURCE_ARENA;
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        core__prepared_buffer *b = &p->buffers[i];

        if (b->kind == CORE__SOURCE_ARENA)
            continue;
        b->source = to->nsources++;
        to->sources[b->source].kind = b->kind;
        to->sources[b->source].index = b->index;
        if (b->kind == CORE__SOURCE_OUTPUT)
            describe_output(&to->sources[b->source],
                            &p->run.program->values[b->index].type);
    }
    return CORE_OK;
}

/* From a buffer to a source. */
static void resolve(const core__preparing *p, uint32_t *source,
                    uint64_t *distance)
{
    const core__prepared_buffer *b = &p->buffers[*source];

    for (; b->into != CORE__PREPARE_NEVER; b = &p->buffers[b->into])
        *distance += b->distance;
    *source = b->kind == CORE__SOURCE_ARENA ? 0 : b->source;
    if (*source == 0)
        *distance += b->offset;
}

/* Sorts the places and tensors by source. */
static core_status sort_places(core__preparing *p)
{
    core__prepared *to = p->to;
    core__place *places = core__alloc(to->nplaces * sizeof *places + 1);
    core__operand_tensor **tensors =
        core__alloc(to->ntensors * sizeof *tensors + 1);
    uint32_t nplaces = 0, ntensors = 0;

    if (!places || !tensors) {
        core__free(places);
        core__free(tensors);
        return core__prepare_no_memory();
    }
    for (uint32_t i = 0; i < to->nplaces; i++) {
        resolve(p, &to->places[i].source, &to->places[i].distance);
        to->sources[to->places[i].source].nplaces++;
    }
    for (uint32_t i = 0; i < to->ntensors; i++) {
        resolve(p, &to->tensors[i]->source, &to->tensors[i]->distance);
        to->sources[to->tensors[i]->source].ntensors++;
    }
    for (uint32_t i = 0; i < to->nsources; i++) {
        core__source *source = &to->sources[i];

        source->places = nplaces;
        source->tensors = ntensors;
        nplaces += source->nplaces;
        ntensors += source->ntensors;
        source->nplaces = source->ntensors = 0;
    }
    for (uint32_t i = 0; i < to->nplaces; i++) {
        core__source *source = &to->sources[to->places[i].source];

        places[source->places + source->nplaces++] = to->places[i];
    }
    for (uint32_t i = 0; i < to->ntensors; i++) {
        core__source *source = &to->sources[to->tensors[i]->source];

        tensors[source->tensors + source->ntensors++] = to->tensors[i];
    }
    core__free(to->places);
    core__free(to->tensors);
    to->places = places;
    to->tensors = tensors;
    return CORE_OK;
}

/* Versions count only changes of what the caller has before the call. */
static core_status set_changes(core__preparing *p)
{
    core__prepared *to = p->to;
    uint32_t *writers = core__alloc_zero(to->nsources * sizeof *writers);

    to->changes = core__alloc(p->nchanges * sizeof *to->changes + 1);
    if (!to->changes || !writers) {
        core__free(writers);
        return core__prepare_no_memory();
    }
    for (uint32_t i = 0; i < p->nchanges; i++) {
        const core__prepared_change *c = &p->changes[i];
        core__step *step = &to->steps[c->step];
        core__source *source = &to->sources[c->tensor->source];
        uint8_t kind = source->kind;

        if (kind == CORE__SOURCE_OUTPUT && writers[c->tensor->source]++ > 0)
            source->rewritten = to->rewrites = true;
        if (kind != CORE__SOURCE_INPUT && kind != CORE__SOURCE_HIDDEN)
            continue;
        if (step->nchanges++ == 0)
            step->changes = to->nchanges;
        to->changes[to->nchanges++] = &c->tensor->tensor;
    }
    core__free(writers);
    return CORE_OK;
}

/* Outputs are created before the first step that uses them. */
static core_status set_creations(core__preparing *p)
{
    core__prepared *to = p->to;

    to->creations = core__alloc(to->nsources * sizeof *to->creations + 1);
    if (!to->creations)
        return core__prepare_no_memory();
    for (uint32_t s = 0; s <= to->nsteps; s++) {
        uint32_t before = to->ncreations;

        for (uint32_t i = 0; i < p->nbuffers; i++) {
            const core__prepared_buffer *b = &p->buffers[i];

            if (b->kind == CORE__SOURCE_OUTPUT &&
                b->first == (s < to->nsteps ? s : CORE__PREPARE_NEVER))
                to->creations[to->ncreations++] = b->source;
        }
        if (s < to->nsteps) {
            to->steps[s].creations = before;
            to->steps[s].ncreations = to->ncreations - before;
        } else {
            to->unused = before;
        }
    }
    return CORE_OK;
}

/* Values in the memory of nodes that are called as operators are released after
 * the last step that uses it. */
static core_status set_releases(core__preparing *p)
{
    const core_program *program = p->run.program;
    core__prepared *to = p->to;

    to->releases = core__alloc(program->nvalues * sizeof *to->releases + 1);
    if (!to->releases)
        return core__prepare_no_memory();
    for (uint32_t s = 0; s < to->nsteps && to->operators; s++) {
        core__step *step = &to->steps[s];

        step->releases = to->nreleases;
        for (uint32_t v = 0; v < program->nvalues; v++) {
            uint32_t b = p->value_buffers[v];

            if (b != CORE__PREPARE_NEVER &&
                p->buffers[b].kind == CORE__SOURCE_NODE &&
                p->buffers[b].last == s && !program->values[v].kept)
                to->releases[to->nreleases++] = v;
        }
        step->nreleases = to->nreleases - step->releases;
    }
    return CORE_OK;
}

/* What a call needs to know of each value, and which tensors it may hold. */
static core_status set_values(core__preparing *p)
{
    const core_program *program = p->run.program;
    core__prepared *to = p->to;
    size_t size = program->nvalues * sizeof(uint64_t) + 1;

    to->arena_offsets = core__alloc(size);
    to->value_sources = core__alloc(size);
    to->held = core__alloc(size);
    to->real = core__alloc_zero(size);
    if (!to->arena_offsets || !to->value_sources || !to->held || !to->real)
        return core__error_memory(size);
    for (uint32_t v = 0; v < program->nvalues; v++) {
        uint32_t index = p->value_buffers[v];
        const core__prepared_buffer *b =
            index == CORE__PREPARE_NEVER ? NULL : &p->buffers[index];
        bool whole = b && b->index == v && b->into == CORE__PREPARE_NEVER;

        to->arena_offsets[v] =
            whole && b->kind == CORE__SOURCE_ARENA ? b->offset : UINT64_MAX;
        to->value_sources[v] = whole && (b->kind == CORE__SOURCE_OUTPUT ||
                                         b->kind == CORE__SOURCE_NODE)
                                   ? b->source
                                   : CORE__NO_VALUE;
        if (to->operators || (whole && b->kind == CORE__SOURCE_OUTPUT))
            to->held[to->nheld++] = v;
    }
    return CORE_OK;
}

static core_status set_moves(core__preparing *p)
{
    const core_program *program = p->run.program;
    core__prepared *to = p->to;
    uint32_t moved = 0;

    to->moves = core__alloc_zero(program->noutputs + 1);
    if (!to->moves)
        return core__prepare_no_memory();
    for (uint32_t i = 0; i < program->noutputs && !to->operators; i++) {
        const core__program_output *output = &program->outputs[i];

        to->moves[i] = output->kind == CORE__OUTPUT_VALUE && !output->view &&
                       !output->tensor;
        for (uint32_t k = i + 1; k < program->noutputs; k++)
            if (program->outputs[k].kind == CORE__OUTPUT_VALUE &&
                program->outputs[k].index == output->index)
                to->moves[i] = false;
        moved += to->moves[i];
    }
    to->moves_all = !to->operators && moved == to->nheld;
    return CORE_OK;
}

/* A copy of a tensor to itself: of a target, for an operator that then changes
 * it, or of a result that nothing else reads. */
static bool copies_to_itself(const core__logged_launch *launch)
{
    const core_operand *operands = launch->loop ? launch->loop->operands : NULL;
    const core__kernel_call *run = launch->run;

    return run->op->id == CORE_OP_COPY_ && operands && run->ntensors == 2 &&
           core__prepare_operand_of(run->tensors[0])->source ==
               core__prepare_operand_of(run->tensors[1])->source &&
           core__prepare_operand_of(run->tensors[0])->distance ==
               core__prepare_operand_of(run->tensors[1])->distance &&
           core__prepare_same_layout(run->tensors[0], run->tensors[1]);
}

/* Steps are kept, so that their numbers hold. */
static void choose_steps(core__prepared *to)
{
    for (uint32_t i = 0; i < to->nsteps; i++) {
        core__step *step = &to->steps[i];

        if (step->kind != CORE__STEP_LAUNCH)
            continue;
        if (copies_to_itself(step->launch)) {
            step->kind = CORE__STEP_NOTHING;
            step->nchanges = 0;
            to->launches--;
        } else if (to->device->synchronous && !step->launch->kernel->prepare &&
                   !step->launch->random && !step->nchanges &&
                   !step->nreleases && !step->ncreations) {
            step->kind = CORE__STEP_DIRECT;
        }
    }
}

core_status core__prepare_steps(core__preparing *p)
{
    reuse_inputs(p);
    CORE_TRY(find_parts(p));
    CORE_TRY(plan_memory(p));
    CORE_TRY(make_sources(p));
    CORE_TRY(sort_places(p));
    CORE_TRY(set_changes(p));
    CORE_TRY(set_creations(p));
    CORE_TRY(set_releases(p));
    CORE_TRY(set_values(p));
    CORE_TRY(set_moves(p));
    choose_steps(p->to);
    CORE_TRY(core__row_blocks_make_steps(p->to));
    return core__epilogues_make_steps(p->to);
}
