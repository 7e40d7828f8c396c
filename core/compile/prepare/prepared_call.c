/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls of programs by kernels that are ready (prepared.h). */

#include "compile/prepare/prepared_sets.h"

#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "device/device.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/inference.h"
#include "dispatch/launch.h"
#include "dispatch/schema.h"
#include "random/generator.h"
#include "tensor/dtype.h"
#include "tensor/tensor_cache.h"

#include <libcore/ops.h>

#include <string.h>

/* Puts the operands of a source where its memory is now. */
static void move_source(const core__prepared *set, core__source *source,
                        core_storage *storage, core_memory memory)
{
    const core__place *place = set->places + source->places;
    core__operand_tensor **tensors = set->tensors + source->tensors;

    source->storage = storage;
    source->memory = memory;
    for (uint32_t i = 0; i < source->nplaces; i++) {
        place[i].at->handle = memory.handle;
        place[i].at->offset = memory.offset + place[i].distance;
    }
    for (uint32_t i = 0; i < source->ntensors; i++) {
        core_tensor *tensor = &tensors[i]->tensor;

        tensor->storage = storage;
        tensor->offset = (int64_t)((memory.offset - storage->memory.offset +
                                    tensors[i]->distance) /
                                   core__dtype_size(tensor->dtype));
    }
}

static inline void place_source(const core__prepared *set, core__source *source,
                                const core_tensor *tensor)
{
    core_storage *storage = tensor->storage;
    core_memory memory = storage->memory;

    memory.offset += (uint64_t)tensor->offset * core__dtype_size(tensor->dtype);
    if (core__unlikely(source->storage != storage ||
                       source->memory.handle != memory.handle ||
                       source->memory.offset != memory.offset))
        move_source(set, source, storage, memory);
}

static core_status place_arena(core__prepared *set)
{
    int64_t size = (int64_t)set->arena_size;

    if (set->arena)
        return CORE_OK;
    CORE_TRY(
        core__tensor_new(set->device, CORE_U8, 1, &size, NULL, &set->arena));
    /* Launches that write it are not counted. */
    core__storage_set_varying(set->arena->storage);
    place_source(set, &set->sources[0], set->arena);
    return CORE_OK;
}

/* A new tensor for an output. */
static core_status place_output(core__prepared *set, core__source *source)
{
    const core__program_type *type = &set->program->values[source->index].type;
    core_tensor **tensor = &set->real[source->index];

    /* Its sizes and strides follow each other. */
    *tensor =
        source->row_major
            ? core__tensor_cache_take_like(
                  core__thread_self(),
                  (core__tensor_like){set->device, type->dims, source->numel,
                                      type->ndim, source->kind_of_tensor},
                  core__dtype_size(type->dtype))
            : NULL;
    if (core__unlikely(!*tensor))
        CORE_TRY(core__tensor_new(
            set->device, type->dtype, type->ndim, core__type_sizes(type),
            source->row_major ? NULL : core__type_strides(type), tensor));
    if (core__unlikely(source->rewritten))
        atomic_store(&(*tensor)->storage->number, CORE__STORAGE_NUMBER_VARIES);
    place_source(set, source, *tensor);
    return CORE_OK;
}

static core_status place_sources(core__prepared *set,
                                 core_tensor *const *inputs)
{
    if (set->arena_size)
        CORE_TRY(place_arena(set));
    for (uint32_t i = 1; i < set->nsources; i++) {
        core__source *source = &set->sources[i];

        if (source->kind == CORE__SOURCE_INPUT)
            place_source(set, source, inputs[source->index]);
        else if (source->kind == CORE__SOURCE_HIDDEN)
            place_source(set, source,
                         set->program->hidden[source->index].tensor);
    }
    return CORE_OK;
}

static core_status create_outputs(core__prepared *set, uint32_t first,
                                  uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        CORE_TRY(place_output(set, &set->sources[set->creations[i]]));
    return CORE_OK;
}

static core_status call_operator(core__run *r, core_operator *op,
                                 const core_value *args, uint32_t nargs,
                                 core_value *results, uint32_t nresults)
{
    (void)r;
    return core__call(op, args, nargs, results, nresults);
}

static core_status copy_operator(core__run *r, core_tensor *to,
                                 core_tensor *from)
{
    (void)r;
    return core_copy_(to, from, false);
}

/* Kernels may still use the memory of any value. */
static bool owns_nothing(const core__run *r, uint32_t value)
{
    (void)r;
    (void)value;
    return false;
}

static const core__run_steps operator_steps = {
    .call = call_operator,
    .copy = copy_operator,
    .owns = owns_nothing,
};

/* Makes the tensor of a value that has none yet in this call. */
static core_status make_tensor(core__prepared *set, core__run *r,
                               uint32_t value)
{
    const core__program_value *described = &set->program->values[value];
    const core__program_type *type = &described->type;
    const core__program_node *node = &set->program->nodes[described->index];
    uint64_t offset = set->arena_offsets[value];
    uint32_t before = r->node;
    core_status status;

    if (r->tensors[value])
        return CORE_OK;
    if (offset != UINT64_MAX)
        return core__tensor_alias(
            set->arena, type->dtype, type->ndim, core__type_sizes(type),
            core__type_strides(type),
            (int64_t)(offset / core__dtype_size(type->dtype)),
            &r->tensors[value]);
    /* a view */
    CORE_TRY(make_tensor(set, r, node->args[0].u.value));
    r->node = described->index;
    status = core__run_node(r, node);
    r->node = before;
    return status;
}

typedef struct making {
    core__prepared *set;
    core__run *r;
    core_status status;
} making;

static void make_argument(void *context, uint32_t value)
{
    making *m = context;

    if (m->status == CORE_OK)
        m->status = make_tensor(m->set, m->r, value);
}

static core_status run_node(core__prepared *set, core__run *r, uint32_t index)
{
    const core__program_node *node = &set->program->nodes[index];
    making m = {set, r, CORE_OK};

    core__node_each_value(node, make_argument, &m);
    CORE_TRY(m.status);
    r->node = index;
    CORE_TRY(core__run_node(r, node));
    for (uint32_t i = 0; i < node->nvalues; i++) {
        uint32_t value = node->first + i;

        if (set->value_sources[value] != CORE__NO_VALUE && r->tensors[value])
            place_source(set, &set->sources[set->value_sources[value]],
                         r->tensors[value]);
    }
    return CORE_OK;
}

static core_status run_write(core__prepared *set, core__run *r, uint32_t index)
{
    const core__program_write *write = &set->program->writes[index];

    CORE_TRY(make_tensor(set, r, write->value));
    return core_copy_(core__run_target(r, write), r->tensors[write->value],
                      false);
}

/* The seed and offset that the operator would draw now. */
static void draw(const core__prepared *set, const core__logged_launch *launch)
{
    core_value *args = (core_value *)(uintptr_t)launch->args + launch->random;
    core_generator *generator = launch->generator;
    uint64_t seed, offset;

    if (!generator)
        generator = core__generator_default_find(set->device->name);
    core__generator_advance_for(generator, launch->numbers, &seed, &offset);
    args[0].u.i = (int64_t)seed;
    args[1].u.i = (int64_t)offset;
}

/* Completes the message of a kernel's error as the operator's call does. */
static core_status __attribute__((cold, noinline))
launch_failed(const core__prepared *set, const core__step *step,
              core_status status)
{
    const core_program *program = set->program;
    const core__program_node *node;
    core_value args[CORE__SCHEMA_ARGUMENTS] = {{0}};
    const core_operator *op = step->launch->run->op;

    core__op_prefix_name(op);
    if (step->index == CORE__NO_VALUE)
        return status;
    node = &program->nodes[step->index];
    if (op != node->op)
        return status;
    for (uint32_t i = 0; i < node->nargs; i++)
        if (node->args[i].tag == CORE_VALUE_TENSOR &&
            core__program_stand_in(&program->values[node->args[i].u.value].type,
                                   &args[i].u.tensor) == CORE_OK)
            args[i].tag = CORE_VALUE_TENSOR;
    core__op_describe_arguments(op, status, args, node->nargs);
    for (uint32_t i = 0; i < node->nargs; i++)
        core__tensor_release(args[i].u.tensor);
    return core__op_check_allocation(op, set->device, status);
}

static inline core_status launch_now(core__thread *self,
                                     const core__logged_launch *launch)
{
    core__kernel_call *run = launch->run;
    core_status status;

    run->errors = self->error.sequence;
    status = launch->kernel->launch(&run->call, launch->args, launch->nargs,
                                    launch->results, launch->nresults);
    if (core__likely(((uint64_t)status | (uintptr_t)run->scratch) == 0)) {
        core__thread_increment(&self->launches[run->device->launch_slot]);
        return CORE_OK;
    }
    return core__kernel_launch_finish(run, self, status, run->errors);
}

static core_status run_drawn(const core__prepared *set, core__thread *self,
                             const core__step *step)
{
    const core__logged_launch *launch = step->launch;
    core_status status;

    status = set->device->synchronous && !launch->kernel->prepare
                 ? launch_now(self, launch)
                 : core__kernel_launch(
                       launch->run, launch->kernel, launch->loop, launch->args,
                       launch->nargs, launch->results, launch->nresults);
    return core__likely(status == CORE_OK) ? status
                                           : launch_failed(set, step, status);
}

static core_status run_launch(const core__prepared *set, core__thread *self,
                              const core__step *step)
{
    if (core__unlikely(step->launch->random))
        draw(set, step->launch);
    return run_drawn(set, self, step);
}

/* The operators of a group, each name once. */
static const char *names_of(const core__fusion *fusion,
                            const core__fused_group *group, char *text,
                            size_t size)
{
    const char *const *names = fusion->names + group->first;
    size_t used = 0;

    for (uint32_t i = 0; i < group->count; i++) {
        uint32_t k = 0;

        while (strcmp(names[k], names[i]) != 0)
            k++;
        if (k < i)
            continue;
        if (used + strlen(names[i]) + sizeof ", and others" > size) {
            core__format(text + used, size - used, " and others");
            break;
        }
        core__format(text + used, size - used, "%s%s", used ? ", " : "",
                     names[i]);
        used += strlen(text + used);
    }
    return text;
}

/* Completes the message of a fused kernel's error: which operator is meant is
 * not known. */
static core_status __attribute__((cold, noinline))
fused_failed(const core__prepared *set, const core__fused_group *group,
             core_status status)
{
    const core__program_type *type =
        &set->program->values[group->nreduced ? group->space : group->values[0]]
             .type;
    char names[80], sizes[160];

    core__error_prefix("%s (one kernel on \"%s\")",
                       names_of(set->fusion, group, names, sizeof names),
                       set->device->name);
    core__error_suffix("; %s %s %s",
                       group->nreduced ? "it reduces rows of"
                                       : "the results are",
                       core__dtype_name((core_dtype)type->dtype),
                       core__sizes_text(type->ndim, core__type_sizes(type),
                                        sizes, sizeof sizes));
    return status;
}

static core_status run_fused(const core__prepared *set, const core__step *step,
                             core__loop_ahead ahead)
{
    const core__fused_group *group =
        ((const core__fused_launch *)(const void *)step->launch)->group;
    core_status status = core__loop_kernel_launch(
        group->kernel, step->launch->loop, group->division, ahead);

    return core__likely(status == CORE_OK) ? status
                                           : fused_failed(set, group, status);
}

/* Sets the calls of a chain to some of its rows. */
static void set_rows(const core__row_blocks *blocks,
                     const core__row_chain *chain, int64_t first, int64_t rows)
{
    for (uint32_t i = 0; i < chain->ncounts; i++) {
        const core__row_count *count = &blocks->counts[chain->counts + i];

        *count->at = count->per_row * rows;
    }
    for (uint32_t i = 0; i < chain->nplaces; i++) {
        const core__row_place *place = &blocks->places[chain->places + i];

        place->at->offset = place->start + place->per_row * (uint64_t)first;
    }
    for (uint32_t i = 0; i < chain->ndraws; i++) {
        const core__row_draw *draws = &blocks->draws[chain->draws + i];

        draws->at->u.i = draws->start + draws->per_row * first;
    }
}

/* Notes where the first row is, and draws what the operators would draw. */
static void begin_rows(const core__prepared *set, const core__row_chain *chain)
{
    const core__row_blocks *blocks = &set->rows;

    for (uint32_t i = 0; i < chain->nsteps; i++)
        if (chain->steps[i].launch->random)
            draw(set, chain->steps[i].launch);
    for (uint32_t i = 0; i < chain->nplaces; i++)
        blocks->places[chain->places + i].start =
            blocks->places[chain->places + i].at->offset;
    for (uint32_t i = 0; i < chain->ndraws; i++)
        blocks->draws[chain->draws + i].start =
            blocks->draws[chain->draws + i].at->u.i;
}

/* What the next block reads of memory that the chain does not write. */
static core__loop_ahead look_ahead(const core__row_blocks *blocks,
                                   const core__row_chain *chain, int64_t next,
                                   core_loop_range *ranges)
{
    core__loop_ahead ahead = {ranges, 0};
    int64_t rows = chain->rows - next;

    rows = rows < chain->block ? rows : chain->block;
    for (uint32_t i = 0; chain->loading && rows > 0 && i < chain->nplaces;
         i++) {
        const core__row_place *place = &blocks->places[chain->places + i];
        core_memory from = {place->at->handle,
                            place->start + place->per_row * (uint64_t)next};

        if (place->ahead)
            ranges[ahead.count++] =
                (core_loop_range){from, place->per_row * (uint64_t)rows};
    }
    if (ahead.count == 0)
        ahead.ranges = NULL;
    return ahead;
}

static core_status run_rows(const core__prepared *set, core__thread *self,
                            const core__row_chain *chain)
{
    core_status status = CORE_OK;

    begin_rows(set, chain);
    for (int64_t row = 0; row < chain->rows && status == CORE_OK;
         row += chain->block) {
        int64_t rest = chain->rows - row;
        core_loop_range ranges[CORE__ROW_AHEAD_MOST];
        core__loop_ahead none = {NULL, 0};
        core__loop_ahead ahead =
            look_ahead(&set->rows, chain, row + chain->block, ranges);

        set_rows(&set->rows, chain, row,
                 rest < chain->block ? rest : chain->block);
        for (uint32_t i = 0; i < chain->nsteps && status == CORE_OK; i++)
            status = chain->steps[i].kind == CORE__STEP_FUSED
                         ? run_fused(set, &chain->steps[i],
                                     i == chain->loading ? ahead : none)
                         : run_drawn(set, self, &chain->steps[i]);
    }
    set_rows(&set->rows, chain, 0, chain->rows);
    return status;
}

typedef struct producing {
    const core__prepared *set;
    const core__step *step;
    core_status status;
} producing;

static core_status produce(void *context)
{
    producing *p = context;

    p->status = run_launch(p->set, core__thread_self(), p->step);
    return p->status;
}

/* The group's loop knows where its operands are. */
static void place_operands(const core_loop *from, const core_loop *to)
{
    for (uint32_t k = 0; k < from->noperands; k++) {
        core_operand *operand = (core_operand *)(uintptr_t)&to->operands[k];

        operand->memory = from->operands[k].memory;
        operand->immediate = from->operands[k].immediate;
    }
}

static core_status run_epilogue(const core__prepared *set,
                                const core__epilogue *epilogue)
{
    const core__step *step = &epilogue->steps[1];
    const core__fused_group *group =
        ((const core__fused_launch *)(const void *)step->launch)->group;
    producing p = {set, &epilogue->steps[0], CORE_OK};
    core_status status;

    place_operands(step->launch->loop, epilogue->loop);
    status = core__loop_kernel_launch_after(group->kernel, epilogue->loop,
                                            epilogue->result, produce, &p);
    return status == CORE_OK || p.status != CORE_OK
               ? status
               : fused_failed(set, group, status);
}

static core_status run_other(core__prepared *set, core__run *r,
                             const core__step *step)
{
    switch (step->kind) {
    case CORE__STEP_FUSED:
        return run_fused(set, step, (core__loop_ahead){0});
    case CORE__STEP_NODE:
        return run_node(set, r, step->index);
    case CORE__STEP_WRITE:
        return run_write(set, r, step->index);
    case CORE__STEP_ROWS:
        return run_rows(set, core__thread_self(),
                        &set->rows.chains[step->index]);
    case CORE__STEP_EPILOGUE:
        return run_epilogue(set, &set->epilogues.all[step->index]);
    default:
        return CORE_OK;
    }
}

/* Rewritten outputs, of which a failed call has perhaps not made all, do not
 * change any more. */
static void settle_outputs(const core__prepared *set)
{
    for (uint32_t i = 0; i < set->ncreations; i++) {
        const core__source *source = &set->sources[set->creations[i]];
        const core_tensor *tensor = set->real[source->index];

        if (source->rewritten && tensor)
            atomic_store(&tensor->storage->number, 0);
    }
}

/* Changes are counted unless operators would not count them. */
static void after_step(const core__prepared *set, const core__thread *self,
                       core__run *r, const core__step *step)
{
    bool counted = !(self->excluded & (uint32_t)CORE__KEY_INPLACE_OR_VIEW);

    for (uint32_t k = 0; k < step->nchanges && counted; k++)
        core__storage_bump_version(set->changes[step->changes + k]->storage);
    for (uint32_t k = 0; k < step->nreleases; k++) {
        core_tensor **tensor = &r->tensors[set->releases[step->releases + k]];

        core__tensor_release(*tensor);
        *tensor = NULL;
    }
}

static core_status run_steps(core__prepared *set, core__run *r)
{
    core__thread *self = core__thread_self();
    const core__step *end = set->steps + set->nsteps;

    for (const core__step *step = set->steps; step < end; step++) {
        core_status status;

        if (core__likely(step->kind == CORE__STEP_DIRECT)) {
            status = launch_now(self, step->launch);
            if (core__unlikely(status != CORE_OK))
                return launch_failed(set, step, status);
            continue;
        }
        CORE_TRY(create_outputs(set, step->creations,
                                step->creations + step->ncreations));
        CORE_TRY(step->kind == CORE__STEP_LAUNCH ? run_launch(set, self, step)
                                                 : run_other(set, r, step));
        after_step(set, self, r, step);
    }
    return create_outputs(set, set->unused, set->ncreations);
}

static core_status make_outputs(core__prepared *set, core__run *r,
                                core_tensor **outputs)
{
    const core_program *program = set->program;

    for (uint32_t i = 0; i < program->noutputs; i++) {
        const core__program_output *output = &program->outputs[i];

        if (output->kind == CORE__OUTPUT_VALUE && !output->tensor &&
            set->operators)
            CORE_TRY(make_tensor(set, r, output->index));
        if (core__likely(set->moves[i])) {
            outputs[i] = r->tensors[output->index];
            r->tensors[output->index] = NULL;
            continue;
        }
        CORE_TRY(core__run_output(r, i, outputs, &outputs[i]));
    }
    return CORE_OK;
}

static void end_call(core__prepared *set, core_tensor **outputs,
                     core_status status)
{
    bool none = status == CORE_OK && set->moves_all;

    for (uint32_t i = 0; i < set->nheld && !none; i++) {
        core_tensor **tensor = &set->real[set->held[i]];

        core__tensor_release(*tensor);
        *tensor = NULL;
    }
    if (set->arena_size > CORE__KEPT_ARENA) {
        core__tensor_release(set->arena);
        set->arena = NULL;
    }
    for (uint32_t i = 0; i < set->program->noutputs && status != CORE_OK; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
}

static void place_numbers(const core__prepared *set)
{
    for (uint32_t i = 0; i < set->nnumber_places; i++) {
        const core__number_place *place = &set->number_places[i];
        core_operand *operand = place->operand;

        *place->at = set->numbers[place->number];
        if (!operand)
            continue;
        operand->immediate = 0;
        core__element_store(operand->dtype, &operand->immediate, *place->at);
    }
}

static core_status run_set(core__prepared *set, core_tensor *const *inputs,
                           core_tensor **outputs)
{
    core__run r = {.program = set->program,
                   .inputs = inputs,
                   .devices = set->program->devices,
                   .tensors = set->real,
                   .numbers = set->numbers,
                   .steps = &operator_steps};
    core_status status = core__program_read_numbers(set->program, set->numbers);

    if (status == CORE_OK)
        place_numbers(set);
    if (status == CORE_OK && set->operators)
        status = core__run_set_sources(&r);
    if (status == CORE_OK)
        status = place_sources(set, inputs);
    if (status == CORE_OK)
        status = run_steps(set, &r);
    if (core__unlikely(set->rewrites))
        settle_outputs(set);
    if (status == CORE_OK)
        status = make_outputs(set, &r, outputs);
    if (status == CORE_OK)
        core__program_finish_run(set->program);
    end_call(set, outputs, status);
    return status;
}

core_stream *core__program_plain_stream(core__thread *self,
                                        const core_program *program)
{
    const uint32_t observed = (uint32_t)(CORE__KEY_TRACE | CORE__KEY_PROFILER |
                                         CORE__KEYS_MODE | CORE__KEYS_TRACED);
    core_stream *stream;

    if (self->included & observed || self->modes[0] || self->modes[1] ||
        self->pools || self->trace || self->launch_log || self->shared ||
        program->ndevices == 0 ||
        atomic_load_explicit(&core__keys_everywhere, memory_order_relaxed))
        return NULL;
    stream = core__stream_current_of(self, program->devices[0]);
    return stream->capture ? NULL : stream;
}

static core_status run_prepared(core_program *program,
                                core_tensor *const *inputs,
                                core_tensor **outputs,
                                const core_stream *stream, bool *out_done)
{
    core__prepared_calls *calls;
    core__prepared *set;
    core_status status;

    *out_done = false;
    CORE_TRY(core__prepared_calls_of(program, &calls));
    CORE_TRY(core__prepared_take(program, inputs, calls, stream, &set));
    if (!set)
        return CORE_OK;
    *out_done = true;
    status = run_set(set, inputs, outputs);
    core__prepared_give_back(calls, set);
    return status;
}

core_status core__program_run_checked(core_program *program,
                                      core_tensor *const *inputs,
                                      core_tensor **outputs)
{
    core__thread *self = core__thread_self();
    core_stream *stream = core__program_plain_stream(self, program);
    uint32_t excluded = self->excluded;
    bool no_grad = self->no_grad, done = false;
    core_status status = CORE_OK;

    if (core__likely(stream != NULL)) {
        /* Autograd and autocast have done their part. */
        self->excluded |= (uint32_t)(CORE__KEY_AUTOGRAD | CORE__KEY_AUTOCAST);
        self->no_grad = true;
        core__thread_enter(self);
        status = run_prepared(program, inputs, outputs, stream, &done);
        core__thread_leave(self);
        self->no_grad = no_grad;
        self->excluded = excluded;
    }
    return done || status != CORE_OK
               ? status
               : core__program_run_operators(program, inputs, outputs);
}
