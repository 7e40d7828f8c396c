/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Captures programs and launches their graphs (replay.h). */

#include "compile/prepare/replay.h"

#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "compile/prepare/prepared.h"
#include "compile/prepare/replay_numbers.h"
#include "compile/run/run.h"
#include "device/device.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "tensor/tensor.h"

#include <libcore/capture.h>
#include <libcore/memory.h>
#include <libcore/ops.h>

#include <string.h>

/* ---------------------------------------------------------------- types -- */

/* When a number that has changed counts as one that does not, and how often. */
enum { STEADY_CALLS = 8, REVIVALS = 2 };

/* What graphs of one device share. */
typedef struct place {
    struct place *next;
    core_device *device;
    uint32_t generation; /* of the device */
    core_memory_pool *pool;
    core_stream *stream; /* on which they are captured */
    core_stream *last;   /* of the last launch; NULL: none yet */
} place;

struct core__replays {
    /* True while a call captures or launches: it has all that follows, and the
     * graphs. */
    _Atomic bool busy;
    place *places;
    _Atomic uint64_t captures, launches, busy_calls;
};

typedef enum state {
    FRESH,    /* not called yet, or what was captured is void */
    CALLED,   /* once: the next call is captured */
    CAPTURED, /* has a graph */
    NEVER     /* cannot be captured, for `reason` */
} state;

struct core__replay {
    _Atomic uint32_t state;
    _Atomic uint64_t captures, launches;
    _Atomic uint32_t end;   /* how many nodes are in the graph */
    _Atomic uint32_t fused; /* kernels in the graph, of groups of operators */
    _Atomic uint32_t moved; /* inputs that are copied */
    uint32_t failures;
    char reason[240]; /* set before the state NEVER */
    /* Why the first node that is not in the graph is not: a number that it
     * reads, or a reason, static. */
    const char *_Atomic end_number, *_Atomic end_reason;
    _Atomic uint32_t end_node;
    core__replays *replays;
    core__fusion *fusion; /* with a reference; NULL: nothing is fused, and the
                           * nodes are in their order */
    core_graph *graph;
    core_stream *last; /* of the last launch of this graph */
    uint32_t generation, registered, call_flags;
    /* By input: */
    core_memory *input_memory;  /* of the last call, or of the capture */
    bool *copies;               /* it moves */
    core_tensor **buffers;      /* of those that move */
    core_memory *hidden_memory; /* by hidden input */
    core_value *numbers;        /* by number: of the capture */
    core_value *numbers_now;
    core__replay_numbers *device_numbers; /* that the graph reads, or NULL */
    bool *varies;                         /* by number */
    bool *refreshed;       /* by number: the graph reads it in each launch */
    uint8_t *steady;       /* by number that varies: calls since it changed */
    uint8_t *revived;      /* by number: how often it did no longer vary */
    core_tensor **results; /* by value: tensors of the graph that are read
                            * after it */
    core_tensor **tensors; /* by value: of a call */
    uint32_t *last_reader; /* by value, with fusion */
};

typedef struct core__replay replay;

/* -------------------------------------------------------------- replays -- */

core_status core__replays_new(core__replays **out_replays)
{
    *out_replays = core__alloc_zero(sizeof **out_replays);
    return *out_replays ? CORE_OK : core__error_memory(sizeof **out_replays);
}

static void place_clear(place *at)
{
    core_stream_release(at->last);
    core_stream_release(at->stream);
    core_memory_pool_release(at->pool);
    at->last = at->stream = NULL;
    at->pool = NULL;
}

void core__replays_free(core__replays *replays)
{
    while (replays && replays->places) {
        place *next = replays->places->next;

        place_clear(replays->places);
        core_device_release(replays->places->device);
        core__free(replays->places);
        replays->places = next;
    }
    core__free(replays);
}

void core__replays_count(const core__replays *replays, uint64_t *captures,
                         uint64_t *launches, uint64_t *busy)
{
    if (!replays)
        return;
    *captures += atomic_load(&replays->captures);
    *launches += atomic_load(&replays->launches);
    *busy += atomic_load(&replays->busy_calls);
}

/* The place of a device, with a stream and a pool. */
static core_status find_place(core__replays *replays, core_device *device,
                              place **out_place)
{
    uint32_t generation = atomic_load(&device->generation);
    place *at = replays->places;

    while (at && at->device != device)
        at = at->next;
    *out_place = at;
    if (at && at->pool && at->generation == generation)
        return CORE_OK;
    if (!at) {
        at = core__alloc_zero(sizeof *at);
        if (!at)
            return core__error_memory(sizeof *at);
        at->device = core_device_retain(device);
        at->next = replays->places;
        replays->places = *out_place = at;
    }
    place_clear(at);
    at->generation = generation;
    CORE_TRY(core_stream_create(device, &at->stream));
    return core_memory_pool_create(device, &at->pool);
}

/* ---------------------------------------------------------------- graphs -- */

static replay *replay_new(core_program *program, core__replays *replays)
{
    size_t size =
        sizeof(replay) +
        program->ninputs *
            (sizeof(core_memory) + sizeof(void *) + sizeof(bool)) +
        program->nhidden * sizeof(core_memory) +
        program->nnumbers * (2 * sizeof(core_value) + 2 * sizeof(bool) + 2) +
        program->nvalues * (2 * sizeof(void *) + sizeof(uint32_t));
    replay *r = core__alloc_zero(size);

    if (!r)
        return NULL;
    r->replays = replays;
    r->input_memory = (core_memory *)(void *)(r + 1);
    r->hidden_memory = r->input_memory + program->ninputs;
    r->numbers = (core_value *)(void *)(r->hidden_memory + program->nhidden);
    r->numbers_now = r->numbers + program->nnumbers;
    r->buffers = (core_tensor **)(void *)(r->numbers_now + program->nnumbers);
    r->results = r->buffers + program->ninputs;
    r->tensors = r->results + program->nvalues;
    r->last_reader = (uint32_t *)(void *)(r->tensors + program->nvalues);
    r->copies = (bool *)(void *)(r->last_reader + program->nvalues);
    r->varies = r->copies + program->ninputs;
    r->refreshed = r->varies + program->nnumbers;
    r->steady = (uint8_t *)(r->refreshed + program->nnumbers);
    r->revived = r->steady + program->nnumbers;
    return r;
}

static core_status replay_of(core_program *program, core__replays *replays,
                             replay **out_replay)
{
    replay *none = NULL;

    *out_replay = atomic_load_explicit(&program->replay, memory_order_acquire);
    if (core__likely(*out_replay != NULL))
        return CORE_OK;
    *out_replay = replay_new(program, replays);
    if (!*out_replay)
        return core__error_memory(sizeof **out_replay);
    if (!atomic_compare_exchange_strong(&program->replay, &none, *out_replay)) {
        core__free(*out_replay);
        *out_replay = none;
    }
    return CORE_OK;
}

/* The memory is reused after the launches, and the copies, that used it. */
static void drop_tensors(replay *r, core_tensor **tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i] && tensors[i]->storage && r->last)
            (void)core_tensor_record_stream(tensors[i], r->last);
        core__tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static void drop_graph(const core_program *program, replay *r)
{
    core__error_record saved;

    core__error_save(&saved);
    drop_tensors(r, r->buffers, program->ninputs);
    drop_tensors(r, r->results, program->nvalues);
    core__replay_numbers_drop(r->device_numbers, r->last);
    core__replay_numbers_free(r->device_numbers);
    r->device_numbers = NULL;
    memset(r->refreshed, 0, program->nnumbers * sizeof *r->refreshed);
    core_graph_release(r->graph);
    r->graph = NULL;
    core__fusion_release(r->fusion); /* after the graph that has its kernels */
    r->fusion = NULL;
    core_stream_release(r->last);
    r->last = NULL;
    core__error_restore(&saved);
}

void core__replay_free(core_program *program)
{
    replay *r = atomic_load(&program->replay);

    if (!r)
        return;
    drop_graph(program, r);
    core__free(r);
}

/* From the next call on, none is tried. */
static void never(core_program *program, replay *r, const char *reason)
{
    drop_graph(program, r);
    core__format(r->reason, sizeof r->reason, "%s", reason);
    atomic_store_explicit(&r->state, NEVER, memory_order_release);
}

static void describe_end(const core_program *program, const replay *r,
                         char *text, size_t size)
{
    const char *number = atomic_load(&r->end_number);
    const char *reason = atomic_load(&r->end_reason);

    core__format(text, size, "%s: %s%s%s",
                 program->nodes[atomic_load(&r->end_node)].name,
                 number ? "the " : "", number ? number : reason,
                 number ? " changes from call to call" : "");
}

static void write_end(const core_program *program, const replay *r,
                      core__json *json)
{
    char text[240];

    describe_end(program, r, text, sizeof text);
    core__json_text(json, "reason", text);
}

void core__replay_write(const core_program *program, core__json *json)
{
    const replay *r = atomic_load(&program->replay);
    uint32_t at = r ? atomic_load_explicit(&r->state, memory_order_acquire) : 0;

    if (!r)
        return;
    core__json_object(json, "graph");
    core__json_boolean(json, "captured", at == CAPTURED);
    core__json_unsigned(json, "operators",
                        at == CAPTURED ? atomic_load(&r->end) : 0);
    core__json_unsigned(json, "of", program->nnodes);
    core__json_unsigned(json, "fused_kernels",
                        at == CAPTURED ? atomic_load(&r->fused) : 0);
    core__json_unsigned(json, "captures", atomic_load(&r->captures));
    core__json_unsigned(json, "launches", atomic_load(&r->launches));
    core__json_unsigned(json, "copied_inputs", atomic_load(&r->moved));
    if (at == NEVER)
        core__json_text(json, "reason", r->reason);
    else if (at == CAPTURED && atomic_load(&r->end) < program->nnodes)
        write_end(program, r, json);
    else if (at != CAPTURED)
        core__json_text(json, "reason", "it is captured in the second call");
    core__json_end(json);
}

/* -------------------------------------------------- what may be captured -- */

/* Why a node is called as an operator in each call; NULL: it is not. */
static const char *unprepared_reason(const core__prepared_facts *facts,
                                     const core__program_node *node)
{
    if (!node->op)
        return "it is an operator of a program or plugin";
    /* Perhaps since the facts were noted. */
    if (node->op->registrations)
        return "a function is registered for it";
    for (uint32_t i = 0; i < facts->nunprepared; i++)
        if (strcmp(facts->unprepared[i].operator_name, node->name) == 0 &&
            strcmp(facts->unprepared[i].reason,
                   "it reads a number at each run") != 0)
            return facts->unprepared[i].reason;
    return NULL;
}

static const core__program_number *dynamic_number(
    const core_program *program, const replay *r,
    const core__program_node *node)
{
    for (uint32_t i = 0; i < node->nargs; i++)
        if (node->args[i].tag == CORE__ARGUMENT_NUMBER &&
            r->varies[node->args[i].u.i])
            return &program->numbers[node->args[i].u.i];
    return NULL;
}

/* The node at a place in the order in which they run. */
static uint32_t node_at(const replay *r, uint32_t place)
{
    return r->fusion ? r->fusion->order[place] : place;
}

/* The group whose nodes include that at a place; NULL: it runs alone. */
static const core__fused_group *group_at(const replay *r, uint32_t place)
{
    for (uint32_t i = 0; r->fusion && i < r->fusion->ngroups; i++) {
        const core__fused_group *group = &r->fusion->groups[i];

        if (group->kernel && place - group->first < group->count)
            return group;
    }
    return NULL;
}

/* The first place whose node cannot be in a graph. */
static uint32_t find_end(const core_program *program, replay *r,
                         const core__prepared_facts *facts)
{
    for (uint32_t i = 0; i < program->nnodes; i++) {
        const core__program_node *node = &program->nodes[node_at(r, i)];
        const core__program_number *number =
            core__replay_numbers_has(r->device_numbers, node_at(r, i))
                ? NULL
                : dynamic_number(program, r, node);
        const char *reason = unprepared_reason(facts, node);
        const core__fused_group *group;

        if (!number && !reason)
            continue;
        atomic_store(&r->end_number,
                     number ? number->source->numbers[number->number] : NULL);
        atomic_store(&r->end_reason, reason);
        atomic_store(&r->end_node, node_at(r, i));
        group = group_at(r, i);
        return group ? group->first : i;
    }
    return program->nnodes;
}

static void note_last(void *context, uint32_t value)
{
    const core__run *run = context;

    ((uint32_t *)(uintptr_t)run->last)[value] = run->node;
}

/* Takes the groups of the prepared calls, if they are of this program: not of
 * one that computes more again. */
static void take_fusion(const core_program *program, replay *r,
                        const core__prepared_facts *facts)
{
    core__run run = {.last = r->last_reader};
    bool any = false;

    if (facts->recomputed || !facts->fusion ||
        !core__fusion_is_current(facts->fusion))
        return;
    for (uint32_t i = 0; i < facts->fusion->ngroups; i++)
        any = any || facts->fusion->groups[i].kernel;
    if (!any)
        return;
    r->fusion = core__fusion_retain(facts->fusion);
    for (uint32_t v = 0; v < program->nvalues; v++)
        r->last_reader[v] = CORE__NO_VALUE;
    for (uint32_t i = 0; i < program->nnodes; i++) {
        run.node = node_at(r, i);
        core__node_each_value(&program->nodes[run.node], note_last, &run);
    }
}

/* Why a program is never captured, whatever its calls; NULL: no reason. */
static const char *refusal(const core_program *program)
{
    const core_device *device = program->devices[0];

    if (program->ndevices > 1)
        return "it is on several devices";
    if (!device->interfaces.graph_capture.begin || !device->allocator)
        return "the device does not capture; its calls are prepared ones";
    return NULL;
}

static core_memory memory_of(const core_tensor *tensor)
{
    return tensor->storage && tensor->numel ? core__tensor_memory(tensor)
                                            : (core_memory){0};
}

static bool same_memory(core_memory a, core_memory b)
{
    return a.handle == b.handle && a.offset == b.offset;
}

static bool same_number(const core_value *a, const core_value *b)
{
    return a->tag == b->tag && a->u.i == b->u.i;
}

/* A copy of an input that shares memory with a written one would not. */
static bool is_tied(const core_program *program, uint32_t input)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        if (program->inputs[i].base == input)
            return true;
    return program->inputs[input].base != CORE__NO_VALUE;
}

/* False: the graph depends on it, or could do so from now on.  A number that
 * changed once, such as the mark of a first step, is a part of graphs again when
 * it has not changed for some calls. */
static bool note_number(replay *r, uint32_t i)
{
    bool same = same_number(&r->numbers[i], &r->numbers_now[i]);

    if (r->refreshed[i])
        return true;
    if (!r->varies[i]) {
        r->varies[i] = !same;
        r->steady[i] = 0;
        return same;
    }
    r->numbers[i] = r->numbers_now[i];
    r->steady[i] = same ? r->steady[i] + 1 : 0;
    if (r->steady[i] < STEADY_CALLS || r->revived[i] == REVIVALS)
        return true;
    r->varies[i] = false;
    r->revived[i]++;
    return false;
}

/* Notes what has changed since the last call; *out_holds: nothing that the
 * graph depends on.  False: a tied input has moved. */
static bool note_changes(const core_program *program, replay *r,
                         core_tensor *const *inputs, bool *out_holds)
{
    bool holds = true;

    for (uint32_t i = 0; i < program->ninputs; i++) {
        core_memory now = memory_of(inputs[i]);

        if (r->copies[i] || same_memory(now, r->input_memory[i]))
            continue;
        r->input_memory[i] = now;
        holds = false;
        if (is_tied(program, i))
            return false;
        r->copies[i] = true;
        atomic_fetch_add(&r->moved, 1);
    }
    for (uint32_t i = 0; i < program->nhidden; i++) {
        core_memory now = memory_of(program->hidden[i].tensor);

        holds = holds && same_memory(now, r->hidden_memory[i]);
        r->hidden_memory[i] = now;
    }
    for (uint32_t i = 0; i < program->nnumbers; i++)
        holds = note_number(r, i) && holds;
    *out_holds = holds;
    return true;
}

/* What the next call is compared with. */
static void note_first(const core_program *program, replay *r,
                       core_tensor *const *inputs)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        r->input_memory[i] = memory_of(inputs[i]);
    for (uint32_t i = 0; i < program->nhidden; i++)
        r->hidden_memory[i] = memory_of(program->hidden[i].tensor);
    for (uint32_t i = 0; i < program->nnumbers; i++)
        r->numbers[i] = r->numbers_now[i];
}

/* --------------------------------------------------------------- capture -- */

static core_status make_buffers(const core_program *program, replay *r,
                                const place *at, core_tensor *const *inputs,
                                core_tensor **captured)
{
    core_stream_guard guard;
    core_status status = core_stream_guard_enter(at->stream, &guard);

    if (status != CORE_OK)
        return status;
    for (uint32_t i = 0; i < program->ninputs && status == CORE_OK; i++) {
        const core__program_type *type = &program->inputs[i].type;

        captured[i] = inputs[i];
        if (!r->copies[i])
            continue;
        status = core__tensor_new(at->device, type->dtype, type->ndim,
                                  core__type_sizes(type),
                                  core__type_strides(type), &r->buffers[i]);
        captured[i] = r->buffers[i];
    }
    if (status == CORE_OK)
        status = core__replay_numbers_create(r->device_numbers);
    core_stream_guard_leave(&guard);
    return status;
}

/* Keeps the tensors of the graph's values that are read after it. */
static void keep_results(const core_program *program, replay *r)
{
    for (uint32_t i = 0; i < program->nvalues; i++) {
        if (r->tensors[i] && program->values[i].source == CORE__VALUE_OF_NODE) {
            r->results[i] = r->tensors[i];
            core__tensor_retain(r->results[i]);
        }
    }
}

static void release_tensors(const core_program *program, replay *r)
{
    for (uint32_t i = 0; i < program->nvalues; i++) {
        core__tensor_release(r->tensors[i]);
        r->tensors[i] = NULL;
    }
}

/* Computes a group with its kernel: only what something else reads gets
 * memory. */
static core_status run_group(core__run *run, const core__fused_group *group,
                             const uint32_t *nodes)
{
    const core__program_value *values = run->program->values;
    const core__program_type *type = &values[group->space].type;
    core__loop_arguments arguments = {.ndim = type->ndim,
                                      .row_ndim = group->nreduced ? 1 : 0,
                                      .sizes = core__type_sizes(type)};
    size_t size = group->noperands * sizeof(core_tensor *);
    core_tensor **tensors = core__alloc(size + 1);
    core_status status = CORE_OK;

    if (!tensors)
        return core__error_memory(size);
    for (uint32_t i = 0; i < group->noutputs && status == CORE_OK; i++)
        status = core__run_new(run, &values[group->values[i]].type,
                               &run->tensors[group->values[i]]);
    for (uint32_t i = 0; i < group->noperands; i++)
        tensors[i] = run->tensors[group->values[i]];
    arguments.tensors = tensors;
    if (status == CORE_OK)
        status = core__loop_kernel_run(group->kernel, &arguments);
    core__free(tensors);
    for (uint32_t i = 0; i < group->count; i++) {
        run->node = nodes[i];
        core__run_drop(run, &run->program->nodes[run->node]);
    }
    return status;
}

/* Nodes that follow a graph are operators; those in it are groups, too. */
static core_status run_nodes(core__run *run, const replay *r, uint32_t first,
                             uint32_t end, bool groups)
{
    for (uint32_t i = first; i < end; i++) {
        const core__fused_group *group = groups ? group_at(r, i) : NULL;
        const core__program_node *node;
        core_status status;

        if (group) {
            CORE_TRY(run_group(run, group, r->fusion->order + i));
            i += group->count - 1;
            continue;
        }
        run->node = node_at(r, i);
        node = &run->program->nodes[run->node];
        status = core__run_node(run, node);
        core__run_drop(run, node);
        CORE_TRY(status);
    }
    return CORE_OK;
}

/* A run that is captured. */
typedef struct capturing {
    core__run run; /* first */
    const core__replay_numbers *numbers;
} capturing;

static core_status capture_operator(core__run *run, core_operator *op,
                                    const core_value *args, uint32_t nargs,
                                    core_value *results, uint32_t nresults)
{
    const core__replay_numbers *numbers =
        ((const capturing *)(const void *)run)->numbers;

    return core__replay_numbers_has(numbers, run->node)
               ? core__replay_numbers_call(numbers, run->node, args)
               : core__call(op, args, nargs, results, nresults);
}

static core_status capture_copy(core__run *run, core_tensor *to,
                                core_tensor *from)
{
    (void)run;
    return core_copy_(to, from, false);
}

static bool owns_memory(const core__run *run, uint32_t value)
{
    return atomic_load(&run->tensors[value]->storage->references) == 1;
}

static const core__run_steps capture_steps = {
    .call = capture_operator,
    .copy = capture_copy,
    .owns = owns_memory,
};

static core_status run_captured(core_program *program, replay *r,
                                core_tensor *const *inputs, uint32_t end)
{
    capturing c = {.run = {.program = program,
                           .inputs = inputs,
                           .devices = program->devices,
                           .tensors = r->tensors,
                           .numbers = r->numbers,
                           .steps = &capture_steps,
                           .last = r->fusion ? r->last_reader : NULL},
                   .numbers = r->device_numbers};
    core_status status = core__run_set_sources(&c.run);

    if (status == CORE_OK)
        status = run_nodes(&c.run, r, 0, end, true);
    if (status == CORE_OK)
        keep_results(program, r);
    if (status == CORE_OK && end == program->nnodes)
        status = core__run_writes(&c.run);
    release_tensors(program, r);
    return status;
}

static core_status capture_on(core_program *program, replay *r, place *at,
                              core_tensor *const *inputs, uint32_t end)
{
    core__error_record failure;
    core_status status;

    CORE_TRY(core_capture_begin(at->stream, at->pool));
    status = run_captured(program, r, inputs, end);
    if (status == CORE_OK)
        return core_capture_end(at->stream, &r->graph);
    core__error_save(&failure);
    (void)core_capture_end(at->stream, NULL);
    core__error_restore(&failure);
    return status;
}

static uint32_t count_groups(const replay *r, uint32_t end)
{
    uint32_t count = 0;

    for (uint32_t i = 0; r->fusion && i < r->fusion->ngroups; i++)
        count +=
            r->fusion->groups[i].kernel && r->fusion->groups[i].first < end;
    return count;
}

/* Numbers that nodes of the graph read in each launch may change. */
static void note_refreshed(const core_program *program, replay *r, uint32_t end)
{
    for (uint32_t i = 0; i < end; i++) {
        const core__program_node *node = &program->nodes[node_at(r, i)];

        if (!core__replay_numbers_has(r->device_numbers, node_at(r, i)))
            continue;
        for (uint32_t k = 0; k < node->nargs; k++)
            if (node->args[k].tag == CORE__ARGUMENT_NUMBER)
                r->refreshed[node->args[k].u.i] = true;
    }
}

static core_status capture_program(core_program *program, replay *r,
                                   core_tensor *const *inputs, uint32_t end)
{
    core_tensor **captured =
        core__alloc((program->ninputs + 1) * sizeof *captured);
    core_status status;
    place *at;

    if (!captured)
        return core__error_memory(program->ninputs * sizeof *captured);
    status = find_place(r->replays, program->devices[0], &at);
    if (status == CORE_OK)
        status = make_buffers(program, r, at, inputs, captured);
    if (status == CORE_OK)
        status = capture_on(program, r, at, captured, end);
    core__free(captured);
    if (status != CORE_OK) {
        drop_graph(program, r);
        return status;
    }
    r->generation = at->generation;
    r->registered = atomic_load(&core__registry_generation);
    r->call_flags = core__thread_self()->call_flags;
    atomic_store(&r->end, end);
    atomic_store(&r->fused, count_groups(r, end));
    note_refreshed(program, r, end);
    atomic_store_explicit(&r->state, CAPTURED, memory_order_release);
    atomic_fetch_add(&r->captures, 1);
    atomic_fetch_add(&r->replays->captures, 1);
    return CORE_OK;
}

/* Captures the program.  *out_done: the call that wanted it has been made
 * without a graph, because the kernels need one more. */
static core_status capture(core_program *program, replay *r,
                           core_tensor *const *inputs, core_tensor **outputs,
                           bool *out_done)
{
    const char *reason;
    core__prepared_facts *facts = core__prepared_describe(program, &reason);
    core__error_record saved;
    core_status status;
    char text[240];
    uint32_t end;

    drop_graph(program, r);
    atomic_store(&r->state, CALLED);
    if (!facts) {
        /* The first call has failed, or is still under way. */
        if (reason)
            never(program, r, reason);
        return CORE_OK;
    }
    take_fusion(program, r, facts);
    status = core__replay_numbers_find(program, &r->device_numbers);
    end = status == CORE_OK ? find_end(program, r, facts) : 0;
    core__prepared_facts_release(facts);
    CORE_TRY(status);
    if (2 * end < program->nnodes) {
        describe_end(program, r, text, sizeof text);
        never(program, r, text);
        return CORE_OK;
    }
    for (uint32_t i = 0; i < program->nnumbers; i++)
        r->numbers[i] = r->numbers_now[i];
    core__error_save(&saved);
    status = capture_program(program, r, inputs, end);
    if (status != CORE_ERROR_UNSUPPORTED && status != CORE_ERROR_BUSY)
        return core__error_restore_on_success(&saved, status);
    if (r->failures++)
        never(program, r, core_error_message());
    core__error_restore(&saved);
    if (r->failures > 1)
        return CORE_OK;
    /* Called as operators, it leaves the plans of kernels. */
    *out_done = true;
    return core__program_run_operators(program, inputs, outputs);
}

/* ---------------------------------------------------------------- launch -- */

/* Work of the stream follows the last launch. */
static core_status order_after_last(place *at, core_stream *stream)
{
    core_event *event;
    core_status status;

    if (at->last == stream)
        return CORE_OK;
    if (at->last) {
        core__error_record saved;

        core__error_save(&saved);
        CORE_TRY(core__event_take(at->device, &event));
        status = core_event_record(event, at->last);
        if (status == CORE_OK)
            status = core_stream_wait_event(stream, event);
        core__event_return(event);
        /* What a stream with an error had to do has ended. */
        if (status != CORE_OK && status != CORE_ERROR_STREAM)
            return status;
        core__error_restore(&saved);
    }
    core_stream_release(at->last);
    at->last = core_stream_retain(stream);
    return CORE_OK;
}

static core_status copy_inputs(const core_program *program, replay *r,
                               core_tensor *const *inputs)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        if (r->buffers[i])
            CORE_TRY(core_copy_(r->buffers[i], inputs[i], false));
    return CORE_OK;
}

static bool is_output(const core_program *program, uint32_t value)
{
    for (uint32_t i = 0; i < program->noutputs; i++)
        if (program->outputs[i].kind == CORE__OUTPUT_VALUE &&
            program->outputs[i].index == value)
            return true;
    return false;
}

/* The tensors of the graph; copies of those that the caller gets. */
static core_status take_results(const core_program *program, const replay *r,
                                core__run *run)
{
    for (uint32_t i = 0; i < program->nvalues; i++) {
        if (!r->results[i])
            continue;
        if (is_output(program, i)) {
            CORE_TRY(core__run_copy(run, &program->values[i].type,
                                    r->results[i], &run->tensors[i]));
        } else {
            core__tensor_retain(r->results[i]);
            run->tensors[i] = r->results[i];
        }
    }
    return CORE_OK;
}

static core_status make_outputs(const core_program *program,
                                const core__run *run, core_tensor **outputs)
{
    for (uint32_t i = 0; i < program->noutputs; i++)
        CORE_TRY(core__run_output(run, i, outputs, &outputs[i]));
    return CORE_OK;
}

/* What the graph has written in place, and in buffers. */
static core_status finish_writes(const core_program *program, replay *r,
                                 const core__run *run)
{
    for (uint32_t i = 0; i < program->nwrites; i++) {
        const core__program_write *write = &program->writes[i];
        core_tensor *target = core__run_target(run, write);

        if (!write->hidden && r->buffers[write->index])
            CORE_TRY(core_copy_(target, r->buffers[write->index], false));
        else
            core__tensor_bump_version(target);
    }
    return CORE_OK;
}

static core_status launch_graph(core_program *program, replay *r,
                                core_tensor *const *inputs,
                                core_tensor **outputs, core_stream *stream)
{
    uint32_t end = atomic_load(&r->end);
    core__run run = {.program = program,
                     .inputs = inputs,
                     .devices = program->devices,
                     .tensors = r->tensors,
                     .numbers = r->numbers_now,
                     .last = r->fusion ? r->last_reader : NULL};
    place *at;

    CORE_TRY(find_place(r->replays, program->devices[0], &at));
    CORE_TRY(order_after_last(at, stream));
    if (r->last != stream) {
        core_stream_release(r->last);
        r->last = core_stream_retain(stream);
    }
    CORE_TRY(copy_inputs(program, r, inputs));
    CORE_TRY(core__replay_numbers_fill(r->device_numbers, r->numbers_now));
    CORE_TRY(core_graph_launch(r->graph, stream));
    CORE_TRY(core__run_set_sources(&run));
    CORE_TRY(take_results(program, r, &run));
    CORE_TRY(run_nodes(&run, r, end, program->nnodes, false));
    CORE_TRY(make_outputs(program, &run, outputs));
    if (end < program->nnodes)
        CORE_TRY(core__run_writes(&run));
    else
        CORE_TRY(finish_writes(program, r, &run));
    core__program_finish_run(program);
    atomic_fetch_add(&r->launches, 1);
    atomic_fetch_add(&r->replays->launches, 1);
    return CORE_OK;
}

static core_status launch(core_program *program, replay *r,
                          core_tensor *const *inputs, core_tensor **outputs,
                          core_stream *stream)
{
    core_status status = launch_graph(program, r, inputs, outputs, stream);

    release_tensors(program, r);
    for (uint32_t i = 0; i < program->noutputs && status != CORE_OK; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}

/* ----------------------------------------------------------------- calls -- */

/* Drops what a reset of the device, or a registration, has made void. */
static void check_state(core_program *program, replay *r)
{
    if (atomic_load(&r->state) != CAPTURED)
        return;
    if (r->generation != atomic_load(&program->devices[0]->generation)) {
        drop_graph(program, r);
        atomic_store(&r->state, FRESH);
    } else if (r->registered != atomic_load(&core__registry_generation)) {
        drop_graph(program, r);
        atomic_store(&r->state, CALLED);
    }
}

/* The call has the graphs.  *out_done: it was made. */
static core_status run_taken(core_program *program, replay *r,
                             core_tensor *const *inputs, core_tensor **outputs,
                             core_stream *stream, bool *out_done)
{
    bool holds;

    check_state(program, r);
    CORE_TRY(core__program_read_numbers(program, r->numbers_now));
    if (atomic_load(&r->state) == FRESH) {
        note_first(program, r, inputs);
        atomic_store(&r->state, CALLED);
        return CORE_OK;
    }
    if (!note_changes(program, r, inputs, &holds)) {
        never(program, r,
              "inputs that share memory, and are written, are at another "
              "address in each call");
        return CORE_OK;
    }
    if (!holds || atomic_load(&r->state) == CALLED)
        CORE_TRY(capture(program, r, inputs, outputs, out_done));
    if (*out_done || atomic_load(&r->state) != CAPTURED ||
        r->call_flags != core__thread_self()->call_flags)
        return CORE_OK;
    *out_done = true;
    return launch(program, r, inputs, outputs, stream);
}

/* Autograd and autocast have done their part. */
static core_status run_below(core__thread *self, core_program *program,
                             replay *r, core_tensor *const *inputs,
                             core_tensor **outputs, core_stream *stream,
                             bool *out_done)
{
    uint32_t excluded = self->excluded;
    bool no_grad = self->no_grad;
    core_status status;

    self->excluded |= (uint32_t)(CORE__KEY_AUTOGRAD | CORE__KEY_AUTOCAST);
    self->no_grad = true;
    status = run_taken(program, r, inputs, outputs, stream, out_done);
    self->no_grad = no_grad;
    self->excluded = excluded;
    return status;
}

static core_status try_graph(core__replays *replays, core_program *program,
                             core_tensor *const *inputs, core_tensor **outputs,
                             bool *out_done)
{
    core__thread *self = core__thread_self();
    core_stream *stream = core__program_plain_stream(self, program);
    core_status status;
    const char *reason;
    replay *r;

    if (!stream)
        return CORE_OK;
    CORE_TRY(replay_of(program, replays, &r));
    if (atomic_load_explicit(&r->state, memory_order_relaxed) == NEVER)
        return CORE_OK;
    if (atomic_exchange(&replays->busy, true)) {
        atomic_fetch_add(&replays->busy_calls, 1);
        return CORE_OK;
    }
    reason = refusal(program);
    if (reason) {
        never(program, r, reason);
        status = CORE_OK;
    } else {
        status = run_below(self, program, r, inputs, outputs, stream, out_done);
    }
    atomic_store(&replays->busy, false);
    return status;
}

core_status core__replay_run(core__replays *replays, core_program *program,
                             core_tensor *const *inputs, core_tensor **outputs)
{
    bool done = false;

    if (replays)
        CORE_TRY(try_graph(replays, program, inputs, outputs, &done));
    return done ? CORE_OK : core__program_run_checked(program, inputs, outputs);
}
