/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs nodes with regions. */

#include "compile/control_flow/region_calls.h"

#include "compile/control_flow/loop_second_derivative.h"
#include "compile/run/run.h"

#include "base/memory.h"
#include "device/device.h"

#include <libcore/control_flow.h>
#include <libcore/ops.h>

#include <string.h>

/* A node of a program that runs. */
typedef struct running {
    const core__program_node *node;
    core_tensor *const *tensors; /* by value */
} running;

static core_status run_region(const running *r, uint32_t index,
                              core_tensor *const *inputs, size_t ninputs,
                              core_tensor **outputs, size_t *noutputs)
{
    core_program *program = r->node->regions[index];
    const core__program_argument *captured =
        &r->node->args[CORE__REGION_THEN + index];
    size_t count = ninputs + captured->count;
    core_tensor **all = core__alloc((count + 1) * sizeof *all);
    core_status status;

    if (!all)
        return core__error_memory(count * sizeof *all);
    for (size_t i = 0; i < ninputs; i++)
        all[i] = inputs[i];
    for (uint32_t i = 0; i < captured->count; i++)
        all[ninputs + i] = r->tensors[captured->u.values[i]];
    *noutputs = program->noutputs;
    if (core__region_is_differentiated())
        status = core__program_run_recorded(program, all, outputs);
    else
        status =
            core_program_run(program, all, count, outputs, program->noutputs);
    core__free(all);
    return status;
}

static core_status run_first(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    return run_region(context, 0, inputs, ninputs, outputs, noutputs);
}

static core_status run_second(void *context, core_tensor *const *inputs,
                              size_t ninputs, core_tensor **outputs,
                              size_t *noutputs)
{
    return run_region(context, 1, inputs, ninputs, outputs, noutputs);
}

static core_status run_third(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    return run_region(context, 2, inputs, ninputs, outputs, noutputs);
}

/* Without a turn the loop did not use what its body reads. */
static core_status run_loop_backward(const core_program *program,
                                     core_device *const *devices, running *r,
                                     core_tensor *const *inputs,
                                     core_tensor *state,
                                     const core__region_random *random,
                                     core_tensor **outputs)
{
    const core__program_node *node = r->node;
    size_t n = node->regions[1]->noutputs;
    const core__region functions[] = {
        {node->name, "condition", run_first, r, inputs, n, 1, true, true},
        {node->name, "body", run_second, r, inputs, n, n, true, false},
        {node->name, "gradient", run_third, r, inputs,
         node->args[CORE__REGION_INPUTS].count, node->nvalues, true, false}};

    CORE_TRY(
        core__region_loop_backward(functions, inputs, state, random, outputs));
    for (uint32_t i = 0; i < node->nvalues; i++) {
        const core__program_type *type = &program->values[node->first + i].type;

        if (!outputs[i])
            CORE_TRY(core_zeros(core__type_sizes(type), type->ndim,
                                (core_dtype)type->dtype, devices[type->device],
                                &outputs[i]));
    }
    return CORE_OK;
}

/* A region computes where its inputs are, and on other devices that it was
 * recorded with. */
static core_status check_devices(const core_program *program,
                                 const core__program_node *node,
                                 core_device *const *devices)
{
    for (uint32_t i = 0; i < core__region_count(node); i++) {
        const core_program *region = node->regions[i];

        for (uint32_t k = 0; k < region->ndevices; k++) {
            uint32_t at = 0, input = 0;

            while (input < region->ninputs &&
                   region->inputs[input].type.device != k)
                input++;
            while (program->devices[at] != region->devices[k])
                at++;
            if (input == region->ninputs && devices[at] != program->devices[at])
                return core__error(
                    CORE_ERROR_DEVICE,
                    "core_program_run: a function of %s computes on \"%s\" and "
                    "has no input there, so it cannot run on \"%s\" instead; "
                    "core__region_record it again",
                    node->name, region->devices[k]->name, devices[at]->name);
        }
    }
    return CORE_OK;
}

/* What a node with regions is run with. */
typedef struct node_run {
    const core_program *program;
    core_device *const *devices;
    running functions;
    core_tensor *predicate; /* NULL: of a loop */
    core_tensor **inputs;
    size_t ninputs;
    core_tensor *state;         /* of generators; NULL: the present one */
    core__region_random random; /* with that state, or to save it */
} node_run;

/* In the program that is recorded. */
static core_status record_again(node_run *r, core_tensor **outputs)
{
    const core__program_node *node = r->functions.node;
    size_t count = core__region_outputs(node);
    bool loop = !r->predicate;
    const char *name = loop ? CORE__WHILE_NAME : CORE__COND_NAME;
    const core__region functions[] = {
        {name, loop ? "condition" : "then_function", run_first, &r->functions,
         r->inputs, r->ninputs, loop ? 1 : count, loop, loop},
        {name, loop ? "body" : "else_function", run_second, &r->functions,
         r->inputs, r->ninputs, count, loop, false}};

    return core__region_record(functions, r->predicate, r->state, outputs,
                               core__region_keeps_state(node) ? &outputs[count]
                                                              : NULL);
}

static core_status call_node(node_run *r, core_tensor **outputs)
{
    const core__program_node *node = r->functions.node;
    size_t count = core__region_outputs(node);

    if (core__region_is_second(node))
        return core__loop_second_run(node, r->inputs, r->functions.tensors,
                                     r->random.generators ? &r->random : NULL,
                                     outputs);
    if (core__region_count(node) == CORE__REGIONS_MAX)
        return run_loop_backward(
            r->program, r->devices, &r->functions, r->inputs, r->state,
            r->random.generators ? &r->random : NULL, outputs);
    if (core__region_is_recording())
        return record_again(r, outputs);
    return r->predicate
               ? core_cond(r->predicate, run_first, run_second, &r->functions,
                           r->inputs, r->ninputs, outputs, count)
               : core_while(run_first, run_second, &r->functions, r->inputs,
                            r->ninputs, outputs);
}

static core_status save_state(node_run *r, core_tensor **out_state)
{
    const core__program_node *node = r->functions.node;
    const core__program_type *type =
        &r->program->values[node->first + core__region_outputs(node)].type;

    return core__region_random_save(&r->random, core__type_sizes(type)[0],
                                    r->devices[type->device], out_state);
}

/* Runs a node that begins with a state of generators.  before: that which they
 * have now, and get back unless another thread has used them. */
static core_status call_with_state(node_run *r, core__generator_watch *watch,
                                   const core__generator_state *before,
                                   core_tensor **outputs)
{
    core_status status = core__region_random_load(&r->random, r->state);

    if (status != CORE_OK)
        return status;
    core__region_random_set(&r->random, r->random.states);
    status = call_node(r, outputs);
    if (core__generator_watch_holds(watch))
        core__region_random_set(&r->random, before);
    return status;
}

/* state: where that of generators before the node is kept, or NULL. */
static core_status call_watched(node_run *r, core_tensor **state,
                                core_tensor **outputs)
{
    size_t size = r->random.count * sizeof *r->random.states;
    core__generator_state *before = core__alloc(size + 1);
    core__generator_watch watch;
    core_status status;

    if (!before)
        return core__error_memory(size);
    core__region_random_watch(&r->random, &watch, before);
    memcpy(r->random.states, before, size);
    status = state ? save_state(r, state) : CORE_OK;
    if (status == CORE_OK)
        status = r->state ? call_with_state(r, &watch, before, outputs)
                          : call_node(r, outputs);
    if (status == CORE_OK) {
        status = core__region_random_check(&watch);
        if (status != CORE_OK)
            core__region_release_all(outputs,
                                     core__region_outputs(r->functions.node));
    }
    core__generator_watch_end(&watch);
    core__free(before);
    return status;
}

static core_status call_drawing(node_run *r, core_tensor **outputs)
{
    const core__program_node *node = r->functions.node;
    core_tensor **state = core__region_keeps_state(node)
                              ? &outputs[core__region_outputs(node)]
                              : NULL;
    core_status status;

    if (core__region_is_recording() || (!r->state && !state))
        return call_node(r, outputs);
    CORE_TRY(
        core__region_random_find(r->program, node, r->devices, &r->random));
    status = call_watched(r, state, outputs);
    core__region_random_free(&r->random);
    if (status != CORE_OK && state) {
        core_tensor_release(*state);
        *state = NULL;
    }
    return status;
}

core_status core__region_run(const core_program *program,
                             const core__program_node *node,
                             core_device *const *devices,
                             core_tensor *const *tensors, core_tensor **outputs)
{
    const core__program_argument *predicate =
        &node->args[CORE__REGION_PREDICATE];
    const core__program_argument *list = &node->args[CORE__REGION_INPUTS];
    const core__program_argument *state = core__region_state(node);
    node_run r = {.program = program,
                  .devices = devices,
                  .functions = {node, tensors},
                  .ninputs = list->count};
    core_status status;

    r.inputs = core__alloc((list->count + 1) * sizeof *r.inputs);
    if (!r.inputs)
        return core__error_memory(list->count * sizeof *r.inputs);
    for (uint32_t i = 0; i < list->count; i++)
        r.inputs[i] = tensors[list->u.values[i]];
    if (predicate->tag == CORE_VALUE_TENSOR)
        r.predicate = tensors[predicate->u.value];
    if (state)
        r.state = tensors[state->u.value];
    status = check_devices(program, node, devices);
    if (status == CORE_OK)
        status = call_drawing(&r, outputs);
    core__free(r.inputs);
    return status;
}
