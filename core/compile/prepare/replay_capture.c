/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Captures the operators of a program as a device graph. */

#include "compile/prepare/replay_graph.h"

#include "base/memory.h"
#include "base/thread.h"
#include "compile/prepare/prepared.h"
#include "device/device.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "tensor/tensor.h"

#include <libcore/ops.h>

#include <string.h>

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
    const core_program *program, const core__replay *r,
    const core__program_node *node)
{
    for (uint32_t i = 0; i < node->nargs; i++)
        if (node->args[i].tag == CORE__ARGUMENT_NUMBER &&
            r->varies[node->args[i].u.i])
            return &program->numbers[node->args[i].u.i];
    return NULL;
}

/* The node at a place in the order in which they run. */
static uint32_t node_at(const core__replay *r, uint32_t place)
{
    return r->fusion ? r->fusion->order[place] : place;
}

/* The group whose nodes include that at a place; NULL: it runs alone. */
static const core__fused_group *group_at(const core__replay *r, uint32_t place)
{
    for (uint32_t i = 0; r->fusion && i < r->fusion->ngroups; i++) {
        const core__fused_group *group = &r->fusion->groups[i];

        if (group->kernel && place - group->first < group->count)
            return group;
    }
    return NULL;
}

/* The first place whose node cannot be in a graph. */
static uint32_t find_end(const core_program *program, core__replay *r,
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
static void take_fusion(const core_program *program, core__replay *r,
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
const char *core__replay_refusal(const core_program *program)
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
static bool note_number(core__replay *r, uint32_t i)
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
    if (r->steady[i] < CORE__REPLAY_STEADY_CALLS ||
        r->revived[i] == CORE__REPLAY_REVIVALS)
        return true;
    r->varies[i] = false;
    r->revived[i]++;
    return false;
}

/* Notes what has changed since the last call; *out_holds: nothing that the
 * graph depends on.  False: a tied input has moved. */
bool core__replay_note_changes(const core_program *program, core__replay *r,
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
void core__replay_note_first(const core_program *program, core__replay *r,
                             core_tensor *const *inputs)
{
    for (uint32_t i = 0; i < program->ninputs; i++)
        r->input_memory[i] = memory_of(inputs[i]);
    for (uint32_t i = 0; i < program->nhidden; i++)
        r->hidden_memory[i] = memory_of(program->hidden[i].tensor);
    for (uint32_t i = 0; i < program->nnumbers; i++)
        r->numbers[i] = r->numbers_now[i];
}

static core_status make_buffers(const core_program *program, core__replay *r,
                                const core__replay_place *at,
                                core_tensor *const *inputs,
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
static void keep_results(const core_program *program, core__replay *r)
{
    for (uint32_t i = 0; i < program->nvalues; i++) {
        if (r->tensors[i] && program->values[i].source == CORE__VALUE_OF_NODE) {
            r->results[i] = r->tensors[i];
            core__tensor_retain(r->results[i]);
        }
    }
}

void core__replay_release_tensors(const core_program *program, core__replay *r)
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
core_status core__replay_run_nodes(core__run *run, const core__replay *r,
                                   uint32_t first, uint32_t end, bool groups)
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

static core_status run_captured(core_program *program, core__replay *r,
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
        status = core__replay_run_nodes(&c.run, r, 0, end, true);
    if (status == CORE_OK)
        keep_results(program, r);
    if (status == CORE_OK && end == program->nnodes)
        status = core__run_writes(&c.run);
    core__replay_release_tensors(program, r);
    return status;
}

static core_status capture_on(core_program *program, core__replay *r,
                              core__replay_place *at,
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

static uint32_t count_groups(const core__replay *r, uint32_t end)
{
    uint32_t count = 0;

    for (uint32_t i = 0; r->fusion && i < r->fusion->ngroups; i++)
        count +=
            r->fusion->groups[i].kernel && r->fusion->groups[i].first < end;
    return count;
}

/* Numbers that nodes of the graph read in each launch may change. */
static void note_refreshed(const core_program *program, core__replay *r,
                           uint32_t end)
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

static core_status capture_program(core_program *program, core__replay *r,
                                   core_tensor *const *inputs, uint32_t end)
{
    core_tensor **captured =
        core__alloc((program->ninputs + 1) * sizeof *captured);
    core_status status;
    core__replay_place *at;

    if (!captured)
        return core__error_memory(program->ninputs * sizeof *captured);
    status = core__replay_find_place(r->replays, program->devices[0], &at);
    if (status == CORE_OK)
        status = make_buffers(program, r, at, inputs, captured);
    if (status == CORE_OK)
        status = capture_on(program, r, at, captured, end);
    core__free(captured);
    if (status != CORE_OK) {
        core__replay_drop_graph(program, r);
        return status;
    }
    r->generation = at->generation;
    r->registered = atomic_load(&core__registry_generation);
    r->call_flags = core__thread_self()->call_flags;
    atomic_store(&r->end, end);
    atomic_store(&r->fused, count_groups(r, end));
    note_refreshed(program, r, end);
    atomic_store_explicit(&r->state, CORE__REPLAY_CAPTURED,
                          memory_order_release);
    atomic_fetch_add(&r->captures, 1);
    atomic_fetch_add(&r->replays->captures, 1);
    return CORE_OK;
}

/* Captures the program.  *out_done: the call that wanted it has been made
 * without a graph, because the kernels need one more. */
core_status core__replay_capture(core_program *program, core__replay *r,
                                 core_tensor *const *inputs,
                                 core_tensor **outputs, bool *out_done)
{
    const char *reason;
    core__prepared_facts *facts = core__prepared_describe(program, &reason);
    core__error_record saved;
    core_status status;
    char text[240];
    uint32_t end;

    core__replay_drop_graph(program, r);
    atomic_store(&r->state, CORE__REPLAY_CALLED);
    if (!facts) {
        /* The first call has failed, or is still under way. */
        if (reason)
            core__replay_never(program, r, reason);
        return CORE_OK;
    }
    take_fusion(program, r, facts);
    status = core__replay_numbers_find(program, &r->device_numbers);
    end = status == CORE_OK ? find_end(program, r, facts) : 0;
    core__prepared_facts_release(facts);
    CORE_TRY(status);
    if (2 * end < program->nnodes) {
        core__replay_describe_end(program, r, text, sizeof text);
        core__replay_never(program, r, text);
        return CORE_OK;
    }
    for (uint32_t i = 0; i < program->nnumbers; i++)
        r->numbers[i] = r->numbers_now[i];
    core__error_save(&saved);
    status = capture_program(program, r, inputs, end);
    if (status != CORE_ERROR_UNSUPPORTED && status != CORE_ERROR_BUSY)
        return core__error_restore_on_success(&saved, status);
    if (r->failures++)
        core__replay_never(program, r, core_error_message());
    core__error_restore(&saved);
    if (r->failures > 1)
        return CORE_OK;
    /* Called as operators, it leaves the plans of kernels. */
    *out_done = true;
    return core__program_run_operators(program, inputs, outputs);
}
