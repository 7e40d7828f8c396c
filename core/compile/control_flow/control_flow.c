/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Branches and loops (libcore/control_flow.h): called, recorded and run. */

#include "compile/control_flow/batched_region.h"
#include "compile/control_flow/loop_second_derivative.h"
#include "compile/run/run.h"

#include "autograd/graph/autograd_meta.h"
#include "autograd/graph/callback.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "dispatch/inference.h"
#include "dispatch/schema.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/control_flow.h>
#include <libcore/ops.h>

#include <string.h>

/* -------------------------------------------------------------- calling -- */

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core_tensor_release(tensors[i]);
        tensors[i] = NULL;
    }
}

static bool is_row_major(const core_tensor *tensor)
{
    int64_t strides[CORE_MAX_NDIM];

    core__layout_contiguous(tensor->ndim, tensor->sizes, strides);
    return memcmp(strides, tensor->strides, tensor->ndim * sizeof *strides) ==
           0;
}

/* True if nothing else refers to the tensor or its memory. */
static bool is_own(const core_tensor *tensor)
{
    return atomic_load(&tensor->references) == 1 && !tensor->base &&
           tensor->storage && atomic_load(&tensor->storage->references) == 1 &&
           is_row_major(tensor);
}

core_status core__region_make_own(core_tensor **tensor)
{
    core_tensor *copy;

    if (is_own(*tensor))
        return CORE_OK;
    CORE_TRY(core_clone(*tensor, CORE_FORMAT_CONTIGUOUS, &copy));
    core_tensor_release(*tensor);
    *tensor = copy;
    return CORE_OK;
}

static core_status check_count(const core__region *region,
                               core_tensor *const *outputs, size_t count)
{
    if (count != region->noutputs)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: %s returned %zu outputs; it must return %zu",
                           region->name, region->part, count, region->noutputs);
    for (size_t i = 0; i < count; i++)
        if (!outputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: %s left output %zu NULL", region->name,
                               region->part, i);
    return CORE_OK;
}

core_status core__region_call(const core__region *region,
                              core_tensor *const *inputs, core_tensor **outputs)
{
    uint32_t errors = core__error_sequence();
    size_t count = region->noutputs;
    core_status status;

    for (size_t i = 0; i < region->noutputs; i++)
        outputs[i] = NULL;
    status = region->function(region->context, inputs, region->ninputs, outputs,
                              &count);
    status = core__callback_status(errors, status, region->name);
    if (status == CORE_OK)
        status = check_count(region, outputs, count);
    for (size_t i = 0; i < region->noutputs && status == CORE_OK; i++)
        status = core__region_make_own(&outputs[i]);
    if (status != CORE_OK)
        release_all(outputs, region->noutputs);
    return status;
}

static core_status check_predicate(const char *name, const char *what,
                                   const core_tensor *predicate)
{
    if (predicate->dtype != CORE_BOOL)
        return core__error(CORE_ERROR_DTYPE, "%s: %s is %s; it must be bool",
                           name, what, core__dtype_name(predicate->dtype));
    if (predicate->numel != 1)
        return core__error(CORE_ERROR_SHAPE,
                           "%s: %s has %lld elements; it must have one", name,
                           what, (long long)predicate->numel);
    return CORE_OK;
}

/* A lazy region records the operators of what is called. */
static bool is_recording(void)
{
    const core__thread *self = core__thread_self();

    return self->trace && !self->lazy;
}

static core_status read_predicate(core_tensor *predicate, bool *out)
{
    core_scalar value;

    CORE_TRY(core_tensor_item(predicate, &value));
    *out = value.u.i != 0;
    return CORE_OK;
}

/* Whether it differs between the samples of core_vmap. */
static bool is_mapped(core_tensor *tensor)
{
    return core__tensor_is_batched(core__batched_shared(tensor));
}

/* The dtype, sizes and device of a tensor are those of another one. */
static core_status check_same(const core__region *region, size_t output,
                              const core_tensor *tensor,
                              const core_tensor *expected, const char *of)
{
    char given[160], wanted[160];

    if (tensor->dtype != expected->dtype)
        return core__error(
            CORE_ERROR_DTYPE, "%s: output %zu of %s is %s; %s is %s",
            region->name, output, region->part, core__dtype_name(tensor->dtype),
            of, core__dtype_name(expected->dtype));
    if (tensor->ndim != expected->ndim ||
        memcmp(tensor->sizes, expected->sizes,
               tensor->ndim * sizeof *tensor->sizes) != 0)
        return core__error(
            CORE_ERROR_SHAPE, "%s: output %zu of %s has sizes %s; %s has %s",
            region->name, output, region->part,
            core__sizes_text(tensor->ndim, tensor->sizes, given, sizeof given),
            of,
            core__sizes_text(expected->ndim, expected->sizes, wanted,
                             sizeof wanted));
    if (tensor->device != expected->device)
        return core__error(CORE_ERROR_DEVICE,
                           "%s: output %zu of %s is on \"%s\"; %s is on \"%s\"",
                           region->name, output, region->part,
                           tensor->device->name, of, expected->device->name);
    return CORE_OK;
}

core_status core__region_loop_step(const core__region *body,
                                   core_tensor **state)
{
    core_tensor **next = core__alloc_zero((body->noutputs + 1) * sizeof *next);
    core_status status;

    if (!next)
        return core__error_memory(body->noutputs * sizeof *next);
    status = core__region_call(body, state, next);
    for (size_t i = 0; i < body->noutputs && status == CORE_OK; i++)
        status = check_same(body, i, next[i], state[i], "the input");
    for (size_t i = 0; i < body->noutputs && status == CORE_OK; i++) {
        core_tensor *before = state[i];

        state[i] = next[i];
        next[i] = before;
    }
    release_all(next, body->noutputs);
    core__free(next);
    return status;
}

/* For samples that take different branches: both are called, and each sample gets
 * its elements. */
static core_status call_both(const core__region *branches,
                             core_tensor *predicate, core_tensor **outputs)
{
    size_t count = branches->noutputs;
    core_tensor **others = core__alloc_zero((count + 1) * sizeof *others);
    core_tensor *chosen = NULL;
    core_status status;

    if (!others)
        return core__error_memory(count * sizeof *others);
    status = core_reshape(predicate, NULL, 0, &chosen);
    if (status == CORE_OK)
        status = core__region_call(&branches[0], branches->inputs, outputs);
    if (status == CORE_OK)
        status = core__region_call(&branches[1], branches->inputs, others);
    for (size_t i = 0; i < count && status == CORE_OK; i++) {
        core_tensor *yes = outputs[i];

        outputs[i] = NULL;
        status = check_same(&branches[1], i, others[i], yes,
                            "that of then_function");
        if (status == CORE_OK)
            status = core_where(chosen, yes, others[i], &outputs[i]);
        core_tensor_release(yes);
    }
    core_tensor_release(chosen);
    release_all(others, count);
    core__free(others);
    if (status != CORE_OK)
        release_all(outputs, count);
    return status;
}

bool core__region_is_differentiated(void)
{
    const core__thread *self = core__thread_self();

    return !self->no_grad && !(self->excluded & (uint32_t)CORE__KEY_AUTOGRAD);
}

core_status core__region_loop_decide(const core__region *condition,
                                     core_tensor *const *state, bool *out_more)
{
    core_tensor *predicate;
    core_status status;

    *out_more = false;
    CORE_TRY(core__region_call(condition, state, &predicate));
    status =
        check_predicate(condition->name, "the output of condition", predicate);
    if (status == CORE_OK && is_mapped(predicate))
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "%s: the output of condition differs between the "
                             "samples of core_vmap, which must have the same "
                             "number of iterations; use core_where in the body",
                             condition->name);
    if (status == CORE_OK)
        status = read_predicate(predicate, out_more);
    core_tensor_release(predicate);
    return status;
}

/* ------------------------------------------------------------ recording -- */

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
        release_all(r->captured[i].tensors, r->captured[i].count);
        core__free(r->captured[i].tensors);
        core_program_release(r->regions[i]);
    }
    release_all(r->sources, r->nsources);
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
            status = check_same(region, i, a, b, of);
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

/* ---------------------------------------------------------------- branch -- */

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

/* ------------------------------------------------------------------ loop -- */

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
            status = check_same(body, i, output, body->inputs[i], "the input");
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

/* ----------------------------------------------------------- both of them -- */

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
static core_status record(const core__region *functions, core_tensor *predicate,
                          core_tensor *state, core_tensor **outputs,
                          core_tensor **out_state)
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
        release_all(outputs, r.noutputs);
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
        release_all(outputs, out_node->noutputs);
    return status;
}

static core_status check_tensors(const char *name, core_tensor *const *inputs,
                                 size_t ninputs)
{
    for (size_t i = 0; i < ninputs; i++)
        if (!inputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: input %zu is NULL", name, i);
    return CORE_OK;
}

/* Autograd inside of core_vmap sees operators if that is possible: both functions
 * are called, and the predicate selects.  One that draws random numbers would draw
 * more than outside of a program, so the branch is one node. */
static core_status record_in_vmap(const core__region *branches,
                                  core_tensor *predicate, core_tensor **outputs)
{
    core__trace *trace = core__thread_self()->trace;
    core_error *error = NULL;
    bool inside = false;
    core_status status =
        core__batched_branch(branches, predicate, outputs, &inside);
    uint64_t blocks;

    if (status == CORE_OK || !inside)
        return status;
    core_error_detach(&error);
    blocks = core__region_blocks(trace->program);
    status = call_both(branches, predicate, outputs);
    if (status == CORE_OK && core__region_blocks(trace->program) != blocks) {
        release_all(outputs, branches->noutputs);
        return core_error_raise(error);
    }
    core_error_release(error);
    return status;
}

core_status core__region_branch(const core__region *branches,
                                core_tensor *predicate, core_tensor *state,
                                core_tensor **outputs)
{
    for (size_t i = 0; i < branches->noutputs; i++)
        outputs[i] = NULL;
    return record(branches, predicate, state, outputs, NULL);
}

core_status core_cond(core_tensor *predicate,
                      core_tensor_function then_function,
                      core_tensor_function else_function, void *context,
                      core_tensor *const *inputs, size_t ninputs,
                      core_tensor **outputs, size_t noutputs)
{
    core__region branches[2] = {
        {CORE__COND_NAME, "then_function", then_function, context, inputs,
         ninputs, noutputs, false, false},
        {CORE__COND_NAME, "else_function", else_function, context, inputs,
         ninputs, noutputs, false, false}};
    bool chosen;

    if (noutputs > 0)
        CORE__NOT_NULL(outputs);
    for (size_t i = 0; i < noutputs; i++)
        outputs[i] = NULL;
    CORE__NOT_NULL(predicate);
    CORE__NOT_NULL(then_function);
    CORE__NOT_NULL(else_function);
    if (ninputs > 0)
        CORE__NOT_NULL(inputs);
    CORE_TRY(check_tensors(CORE__COND_NAME, inputs, ninputs));
    CORE_TRY(check_predicate(CORE__COND_NAME, "predicate", predicate));
    if (is_mapped(predicate))
        return call_both(branches, predicate, outputs);
    if (is_recording())
        return core__thread_self()->batching
                   ? record_in_vmap(branches, predicate, outputs)
                   : record(branches, predicate, NULL, outputs, NULL);
    CORE_TRY(read_predicate(predicate, &chosen));
    return core__region_call(&branches[chosen ? 0 : 1], inputs, outputs);
}

/* ------------------------------------------------------------------ loop -- */

core_status core__region_loop_begin(core_tensor *const *inputs, size_t ninputs,
                                    core_tensor **state)
{
    for (size_t i = 0; i < ninputs; i++) {
        if (is_row_major(inputs[i]))
            state[i] = core_tensor_retain(inputs[i]);
        else
            CORE_TRY(core_clone(inputs[i], CORE_FORMAT_CONTIGUOUS, &state[i]));
    }
    return CORE_OK;
}

core_status core_while(core_tensor_function condition,
                       core_tensor_function body, void *context,
                       core_tensor *const *inputs, size_t ninputs,
                       core_tensor **outputs)
{
    const core__region functions[2] = {{CORE__WHILE_NAME, "condition",
                                        condition, context, inputs, ninputs, 1,
                                        true, true},
                                       {CORE__WHILE_NAME, "body", body, context,
                                        inputs, ninputs, ninputs, true, false}};
    core_status status;
    bool more = true;

    if (ninputs > 0)
        CORE__NOT_NULL(outputs);
    for (size_t i = 0; i < ninputs; i++)
        outputs[i] = NULL;
    CORE__NOT_NULL(condition);
    CORE__NOT_NULL(body);
    if (ninputs > 0)
        CORE__NOT_NULL(inputs);
    CORE_TRY(check_tensors(CORE__WHILE_NAME, inputs, ninputs));
    if (is_recording())
        return core__thread_self()->batching
                   ? core__batched_loop(functions, outputs)
                   : record(functions, NULL, NULL, outputs, NULL);
    status = core__region_loop_begin(inputs, ninputs, outputs);
    while (status == CORE_OK && more) {
        status = core__region_loop_decide(&functions[0], outputs, &more);
        if (status == CORE_OK && more)
            status = core__region_loop_step(&functions[1], outputs);
    }
    for (size_t i = 0; i < ninputs && status == CORE_OK; i++)
        status = core__region_make_own(&outputs[i]);
    if (status != CORE_OK)
        release_all(outputs, ninputs);
    return status;
}

/* ------------------------------------------------------------------ runs -- */

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
                    "record it again",
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

    return record(functions, r->predicate, r->state, outputs,
                  core__region_keeps_state(node) ? &outputs[count] : NULL);
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
    if (is_recording())
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
            release_all(outputs, core__region_outputs(r->functions.node));
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

    if (is_recording() || (!r->state && !state))
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
