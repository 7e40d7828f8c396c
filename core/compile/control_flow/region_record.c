/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records branches and loops as nodes (program/region.h). */

#include "compile/control_flow/region_calls.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "tensor/dtype.h"

#include <string.h>

static core_status read_list(core__region_node *r, core_tensor *const *tensors,
                             size_t count, core__program_argument *out)
{
    uint32_t *values =
        core__program_alloc(r->trace->program, count * sizeof *values + 1);

    if (!values)
        return core__error_memory(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        CORE_TRY(core__traced_read(r->trace, NULL, tensors[i], &values[i]));
    *out = (core__program_argument){
        CORE_VALUE_TENSOR_LIST, (uint32_t)count, {.values = values}};
    return CORE_OK;
}

core_status core__region_node_record(core__region_node *r,
                                     const core__region *region, uint32_t index)
{
    const core__region_captured *captured = &r->captured[index];

    CORE_TRY(core__region_trace(r, region, index));
    r->arguments[CORE__REGION_THEN + index] = (core__program_argument){
        CORE_VALUE_TENSOR_LIST, captured->count, {.values = captured->values}};
    return CORE_OK;
}

/* The type of an output in the program that contains the region. */
static core_status output_type(core__region_node *r, const core_program *region,
                               size_t output, core__program_type *out)
{
    const core__program_type *type = &region->outputs[output].type;
    uint32_t device;

    CORE_TRY(core__program_device(r->trace->program,
                                  region->devices[type->device], &device));
    return core__program_type_set(r->trace->program, type->dtype, type->ndim,
                                  core__type_sizes(type),
                                  core__type_strides(type), device, out);
}

/* One more result: the state of generators before the node, on the device of the
 * first output. */
static core_status add_state(core__region_node *r, core__program_node *node,
                             core__program_argument *result)
{
    core_program *program = r->trace->program;
    uint32_t *value = (uint32_t *)(uintptr_t)&result->u.values[result->count];
    int64_t size = core__region_state_size(r->regions, r->nregions);
    const int64_t one = 1;
    core__program_type type;

    CORE_TRY(core__program_type_set(program, CORE_I64, 1, &size, &one,
                                    program->values[node->first].type.device,
                                    &type));
    CORE_TRY(core__program_add_value(program, &type, CORE__VALUE_OF_NODE,
                                     program->nnodes, value));
    node->nvalues++;
    result->count++;
    return core__traced_new(r->trace, &type, program->devices[type.device],
                            *value, &r->state);
}

static core_status add_outputs(core__region_node *r, core__program_node *node,
                               core__program_argument *result)
{
    core_program *program = r->trace->program;
    const core_program *region = r->regions[r->nregions - 1];
    uint32_t count = (uint32_t)r->noutputs;
    uint32_t *values =
        core__program_alloc(program, (count + 1) * sizeof *values);

    if (!values)
        return core__error_memory(count * sizeof *values);
    node->first = program->nvalues;
    node->nvalues = count;
    *result = (core__program_argument){
        CORE_VALUE_TENSOR_LIST, count, {.values = values}};
    for (uint32_t i = 0; i < count; i++) {
        core__program_type type;

        if (r->types)
            type = r->types[i];
        else
            CORE_TRY(output_type(r, region, i, &type));
        CORE_TRY(core__program_add_value(program, &type, CORE__VALUE_OF_NODE,
                                         program->nnodes, &values[i]));
        CORE_TRY(core__traced_new(r->trace, &type,
                                  program->devices[type.device], values[i],
                                  &r->outputs[i]));
    }
    return r->keeps ? add_state(r, node, result) : CORE_OK;
}

core_status core__region_node_add(core__region_node *r)
{
    core_program *program = r->trace->program;
    core__program_argument *result =
        core__program_alloc(program, sizeof *result);
    core_program **regions = core__program_alloc(program, sizeof r->regions);
    bool replays =
        r->arguments[CORE__REGION_THEN + r->nregions].tag != CORE_VALUE_NONE;
    core__program_node node = {.name = r->name,
                               .nargs =
                                   CORE__REGION_THEN + r->nregions + replays,
                               .nresults = 1,
                               .args = r->arguments,
                               .results = result,
                               .regions = regions};
    uint32_t index;

    if (!result || !regions)
        return core__error_memory(sizeof r->regions);
    CORE_TRY(add_outputs(r, &node, result));
    memcpy(regions, r->regions, sizeof r->regions);
    CORE_TRY(core__program_add_node(program, &node, &index));
    for (uint32_t i = 0; i < r->nregions; i++)
        core_program_retain(r->regions[i]);
    return CORE_OK;
}

static core_status check_batched(const char *name, core_tensor *const *inputs,
                                 size_t ninputs)
{
    for (size_t i = 0; i < ninputs; i++)
        if (inputs[i]->keys & CORE__KEY_BATCHED)
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "%s: input %zu is batched by core_vmap, which "
                               "cannot be recorded",
                               name, i);
    return CORE_OK;
}

core_status core__region_node_state(core__region_node *r, core_tensor *state)
{
    core__program_argument *argument =
        &r->arguments[CORE__REGION_THEN + r->nregions];

    argument->tag = CORE_VALUE_TENSOR;
    return core__traced_read(r->trace, NULL, state, &argument->u.value);
}

/* The inputs, which both kinds read. */
core_status core__region_node_begin(core__region_node *r,
                                    core_tensor *const *inputs, size_t ninputs)
{
    size_t size = (CORE__REGION_ARGUMENTS + 1) * sizeof *r->arguments;

    r->nregions = core__regions_named(r->name);
    CORE_TRY(check_batched(r->name, inputs, ninputs));
    r->arguments = core__program_alloc(r->trace->program, size);
    if (!r->arguments)
        return core__error_memory(size);
    memset(r->arguments, 0, size);
    if (r->replays)
        CORE_TRY(core__region_node_state(r, r->state));
    return read_list(r, inputs, ninputs, &r->arguments[CORE__REGION_INPUTS]);
}

void core__region_node_drop(core__region_node *r)
{
    for (uint32_t i = 0; i < CORE__REGIONS_MAX; i++) {
        core__region_release_all(r->captured[i].tensors, r->captured[i].count);
        core__free(r->captured[i].tensors);
        core__free(r->captured[i].versions);
        core_program_release(r->regions[i]);
    }
    core__region_release_all(r->sources, r->nsources);
    core__free(r->sources);
    core_tensor_release(r->state);
    r->state = NULL;
}

/* Outputs of a region, as tensors without content. */
static core_status compare_outputs(const core__region_node *r,
                                   const core__region *region, uint32_t index,
                                   const core_program *other, const char *of)
{
    const core_program *program = r->regions[index];

    for (uint32_t i = 0; i < program->noutputs; i++) {
        const core__program_type *given = &program->outputs[i].type;
        const core__program_type *wanted = &other->outputs[i].type;
        core_tensor *a = NULL, *b = NULL;
        core_status status = core__program_stand_in(given, &a);

        if (status == CORE_OK)
            status = core__program_stand_in(wanted, &b);
        if (status == CORE_OK)
            status = core__region_check_same(region, i, a, b, of);
        core_tensor_release(a);
        core_tensor_release(b);
        CORE_TRY(status);
        if (program->devices[given->device] != other->devices[wanted->device])
            return core__error(
                CORE_ERROR_DEVICE,
                "%s: output %u of %s is on \"%s\"; %s is on \"%s\"", r->name, i,
                region->part, program->devices[given->device]->name, of,
                other->devices[wanted->device]->name);
    }
    return CORE_OK;
}

/* True if autograd records what is computed from the tensors. */
static bool is_differentiated(core_tensor *const *tensors, size_t count)
{
    const core__thread *self = core__thread_self();

    for (size_t i = 0; i < count && !self->inference; i++)
        if (core__tensor_requires_grad(tensors[i]))
            return true;
    return false;
}

/* A node whose gradient must draw its numbers again keeps what that needs.
 * function: one of those that were recorded. */
static void choose_state(core__region_node *r, const core__region *function)
{
    bool draws = false;

    for (uint32_t i = 0; i < r->nregions; i++)
        draws = draws || core__region_draws(r->regions[i]);
    if (!draws || r->replays || !r->noutputs)
        return;
    r->keeps = r->keeps || r->inside ||
               (r->differentiates &&
                (is_differentiated(function->inputs, function->ninputs) ||
                 is_differentiated(r->sources, r->nsources)));
}

core_status core__region_node_predicate(core__region_node *r,
                                        core_tensor *predicate)
{
    core__program_argument *argument = &r->arguments[CORE__REGION_PREDICATE];

    CORE_TRY(check_batched(r->name, &predicate, 1));
    argument->tag = CORE_VALUE_TENSOR;
    return core__traced_read(r->trace, NULL, predicate, &argument->u.value);
}

static core_status record_branches(core__region_node *r,
                                   const core__region *branches,
                                   core_tensor *predicate)
{
    CORE_TRY(
        core__region_node_begin(r, branches[0].inputs, branches[0].ninputs));
    CORE_TRY(core__region_node_predicate(r, predicate));
    CORE_TRY(core__region_node_record(r, &branches[0], 0));
    CORE_TRY(core__region_node_record(r, &branches[1], 1));
    CORE_TRY(compare_outputs(r, &branches[1], 1, r->regions[0],
                             "that of then_function"));
    choose_state(r, branches);
    return core__region_node_add(r);
}

/* The inputs of a region, as outputs to compare with. */
static core_status check_loop(const core__region_node *r,
                              const core__region *condition,
                              const core__region *body)
{
    const core_program *first = r->regions[0], *second = r->regions[1];
    const core__program_type *type = &first->outputs[0].type;

    if (type->dtype != CORE_BOOL)
        return core__error(
            CORE_ERROR_DTYPE, "%s: the output of %s is %s; it must be bool",
            r->name, condition->part, core__dtype_name(type->dtype));
    for (uint32_t i = 0; i < type->ndim; i++)
        if (core__type_sizes(type)[i] != 1)
            return core__error(CORE_ERROR_SHAPE,
                               "%s: the output of %s has size %lld in "
                               "dimension %u; it must have one element",
                               r->name, condition->part,
                               (long long)core__type_sizes(type)[i], i);
    for (uint32_t i = 0; i < second->noutputs; i++) {
        core_tensor *output = NULL;
        core_status status =
            core__program_stand_in(&second->outputs[i].type, &output);

        if (status == CORE_OK) {
            output->device = second->devices[second->outputs[i].type.device];
            status = core__region_check_same(body, i, output, body->inputs[i],
                                             "the input");
            output->device = &core__meta_device;
        }
        core_tensor_release(output);
        CORE_TRY(status);
    }
    return CORE_OK;
}

static core_status record_regions(core__region_node *r,
                                  const core__region *condition,
                                  const core__region *body)
{
    CORE_TRY(core__region_node_begin(r, body->inputs, body->ninputs));
    CORE_TRY(core__region_node_record(r, condition, 0));
    CORE_TRY(core__region_node_record(r, body, 1));
    CORE_TRY(check_loop(r, condition, body));
    choose_state(r, body);
    return core__region_node_add(r);
}

/* Records the functions, and their gradient if one may be wanted: autograd sees
 * one function. */
static core_status record_node(core__region_node *r,
                               const core__region *functions,
                               core_tensor *predicate)
{
    core_tensor *const *inputs = functions[1].inputs;
    size_t ninputs = functions[1].ninputs;
    bool graph = !core__thread_self()->no_grad, before;
    bool wanted = graph && is_differentiated(inputs, ninputs);
    core_status status;

    r->differentiates = graph;

    before = wanted ? core_grad_mode_set(false) : false;
    status = predicate ? record_branches(r, functions, predicate)
                       : record_regions(r, &functions[0], &functions[1]);
    if (wanted)
        core_grad_mode_set(before);
    if (status == CORE_OK &&
        (wanted || (graph && is_differentiated(r->sources, r->nsources))))
        status =
            core__region_differentiate(r, functions, predicate, r->outputs);
    return status;
}

/* Locks the trace.  state: with which the node begins, or NULL.  out_state: not
 * NULL if it shall keep its own. */
core_status core__region_record(const core__region *functions,
                                core_tensor *predicate, core_tensor *state,
                                core_tensor **outputs, core_tensor **out_state)
{
    core__region_node r = {.trace = core__thread_self()->trace,
                           .name = functions->name,
                           .state = core_tensor_retain(state),
                           .replays = state != NULL,
                           .keeps = out_state != NULL,
                           .outputs = outputs,
                           .noutputs = functions[1].noutputs};
    core_status status;

    pthread_mutex_lock(&r.trace->lock);
    status = record_node(&r, functions, predicate);
    pthread_mutex_unlock(&r.trace->lock);
    if (status == CORE_OK && out_state)
        *out_state = core_tensor_retain(r.state);
    core__region_node_drop(&r);
    if (status != CORE_OK)
        core__region_release_all(outputs, r.noutputs);
    return status;
}

core_status core__region_record_inside(const core__region *functions,
                                       core_tensor *predicate,
                                       core_tensor **outputs,
                                       core__region_node *out_node)
{
    core_status status;

    *out_node = (core__region_node){.trace = core__thread_self()->trace,
                                    .name = functions->name,
                                    .inside = true,
                                    .outputs = outputs,
                                    .noutputs = functions[1].noutputs};
    pthread_mutex_lock(&out_node->trace->lock);
    status = record_node(out_node, functions, predicate);
    pthread_mutex_unlock(&out_node->trace->lock);
    if (status != CORE_OK)
        core__region_release_all(outputs, out_node->noutputs);
    return status;
}
