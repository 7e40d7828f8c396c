/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records a function as a region of a program. */

#include "compile/control_flow/region_trace.h"

#include "autocast/autocast.h"
#include "autograd/graph/autograd_meta.h"
#include "base/callback.h"
#include "autograd/graph/node.h"
#include "base/memory.h"
#include "base/thread.h"
#include "compile/passes/simplify.h"
#include "compile/record/left_state.h"
#include "device/device.h"
#include "dispatch/mode_stack.h"
#include "ops_ids.h"
#include "tensor/layout.h"

#include <string.h>

static core_status __attribute__((cold))
refuse(const core__region *region, const char *what)
{
    return core__error(CORE_ERROR_UNSUPPORTED, "%s: %s %s", region->name,
                       region->part, what);
}

core_status core__region_left_error(const core__region *region,
                                    const char *changed)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: %s leaves %s changed when it returns, which cannot "
                       "be recorded",
                       region->name, region->part, changed);
}

/* -------------------------------------------------------------- inputs -- */

/* A stand-in shares memory with nothing: a region writes no input. */
static core_status make_stand_in(core__trace *trace, core_tensor *input,
                                 bool row_major, uint32_t index,
                                 core_tensor **out_tensor)
{
    core_program *program = trace->program;
    int64_t strides[CORE_MAX_NDIM];
    core__program_input *added;
    core__traced_storage *traced;
    uint32_t device;

    core__layout_contiguous(input->ndim, input->sizes, strides);
    CORE_TRY(core__program_device(program, input->device, &device));
    added =
        core__program_grow(&program->inputs, &program->ninputs, sizeof *added);
    if (!added)
        return core__error_memory(sizeof *added);
    added->value = added->base = CORE__NO_VALUE;
    CORE_TRY(core__program_type_set(
        program, input->dtype, input->ndim, input->sizes,
        row_major ? strides : input->strides, device, &added->type));
    CORE_TRY(core__traced_input(trace, input, index, out_tensor));
    traced = (*out_tensor)->storage->context;
    traced->origin = NULL;
    traced->conflict = false;
    if (core__tensor_needs_grad(input))
        return core_tensor_set_requires_grad(*out_tensor, true);
    return CORE_OK;
}

/* ------------------------------------------------------------- outputs -- */

static core_status add_output(core__trace *trace, core_tensor *tensor)
{
    core_program *program = trace->program;
    core__program_argument args[2] = {{CORE_VALUE_TENSOR, 0, {0}}, {0}};
    core__program_output *output;
    core__program_type type;
    const core__program_value *value;
    uint32_t read;
    bool own;

    CORE_TRY(core__traced_read(trace, NULL, tensor, &read));
    value = &program->values[read];
    type = value->type;
    own = value->source == CORE__VALUE_OF_NODE;
    if (own) {
        const core__program_node *node = &program->nodes[value->index];

        own = !node->op || !core__operator_is_view(node->op);
    }
    for (uint32_t i = 0; i < program->noutputs && own; i++)
        own = program->outputs[i].index != read;
    args[0].u.value = read;
    if (!own)
        CORE_TRY(core__trace_append(trace, &core__operators[CORE_OP_CLONE],
                                    args, 2, 0, &type, &read));
    output = core__program_grow(&program->outputs, &program->noutputs,
                                sizeof *output);
    if (!output)
        return core__error_memory(sizeof *output);
    output->kind = CORE__OUTPUT_VALUE;
    output->index = read;
    output->type = type;
    return CORE_OK;
}

static core_status check_region(const core__region *region,
                                const core__trace *trace)
{
    for (uint32_t i = 0; i < trace->nstorages; i++)
        if (trace->storages[i]->kind != CORE__TRACED_RESULT &&
            trace->storages[i]->version > 0)
            return refuse(region, "changes a tensor that exists outside of it, "
                                  "which cannot be recorded");
    if (trace->program->nfinishes)
        return refuse(region, "steps an optimizer, which cannot be recorded");
    return CORE_OK;
}

/* -------------------------------------------------------------- calling -- */

/* A region has casts of autocast of its own, as a program has. */
static core_status call_function(core__trace *trace, const core__region *region,
                                 core_tensor *const *stand_ins,
                                 core_tensor **outputs)
{
    core__thread *self = core__thread_self();
    struct core__autocast_casts *casts = self->autocast_casts;
    uint32_t included = self->included, excluded = self->excluded;
    core__state_before before = core__state_remember(self);
    const char *changed;
    core_status status;

    self->autocast_casts = NULL;
    trace->sequence = self->sequence;
    self->trace = trace;
    self->included |= (uint32_t)CORE__KEYS_TRACED;
    self->excluded &= (uint32_t)~CORE__KEYS_TRACED;
    status = core__region_call(region, stand_ins, outputs);
    changed = core__state_restore(self, &before);
    if (status == CORE_OK && changed)
        status = core__region_left_error(region, changed);
    for (size_t i = 0; i < region->noutputs && status == CORE_OK; i++)
        status = add_output(trace, outputs[i]);
    core__autocast_cache_clear(self);
    self->autocast_casts = casts;
    core__modes_restore_keys(self, included);
    self->excluded = excluded;
    self->trace = trace->outer;
    return status;
}

static core_status record(core__trace *trace, const core__region *region,
                          core_tensor **stand_ins, core_tensor **outputs)
{
    for (uint32_t i = 0; i < region->ninputs; i++)
        CORE_TRY(make_stand_in(trace, region->inputs[i], region->row_major, i,
                               &stand_ins[i]));
    CORE_TRY(call_function(trace, region, stand_ins, outputs));
    CORE_TRY(check_region(region, trace));
    /* What the region reads besides its inputs becomes inputs. */
    return core__trace_hidden_to_inputs(trace);
}

/* What the program that contains the region reads: also the views, on which a
 * compiled function depends. */
static core_status read_captured(core__trace *outer,
                                 const core_program *program, uint32_t *values)
{
    core__traced_storage *traced;
    uint32_t view;

    for (uint32_t i = 0; i < program->nhidden; i++)
        CORE_TRY(core__traced_read(outer, NULL, program->hidden[i].tensor,
                                   &values[i]));
    for (uint32_t i = 0; i < program->naliases; i++)
        if (!(program->aliases[i]->flags & CORE__TENSOR_TRACED))
            CORE_TRY(core__traced_find(outer, NULL, program->aliases[i],
                                       &traced, &view));
    return CORE_OK;
}

/* The program has the region's devices and generators. */
static core_status share_references(core__trace *outer,
                                    const core_program *program)
{
    uint32_t index;

    for (uint32_t i = 0; i < program->ndevices; i++)
        CORE_TRY(
            core__program_device(outer->program, program->devices[i], &index));
    for (uint32_t i = 0; i < program->ngenerators; i++)
        CORE_TRY(core__program_generator(outer->program, program->generators[i],
                                         &index));
    return CORE_OK;
}

/* Notes a tensor that a gradient may be wanted of: not a view that the function
 * makes in each call. */
static core_status add_source(core__region_node *node, const core__trace *trace,
                              core_tensor *tensor)
{
    const core_node *made = tensor->autograd ? tensor->autograd->grad_fn : NULL;
    core_tensor **added;

    if (!core__tensor_requires_grad(tensor) ||
        (made && made->sequence >= trace->sequence))
        return CORE_OK;
    for (uint32_t i = 0; i < node->nsources; i++)
        if (node->sources[i] == tensor)
            return CORE_OK;
    added = core__program_grow(&node->sources, &node->nsources, sizeof *added);
    if (!added)
        return core__error_memory(sizeof *added);
    core__tensor_retain(tensor);
    *added = tensor;
    return CORE_OK;
}

static core_status find_sources(core__region_node *node,
                                const core__trace *trace)
{
    const core_program *program = trace->program;

    for (uint32_t i = 0; i < program->nhidden; i++)
        CORE_TRY(add_source(node, trace, program->hidden[i].tensor));
    for (uint32_t i = 0; i < program->naliases; i++)
        CORE_TRY(add_source(node, trace, program->aliases[i]));
    return CORE_OK;
}

/* Without a source it would be lost that they require grad. */
static core_status check_outputs(const core__region_node *node,
                                 const core__region *region,
                                 core_tensor *const *outputs)
{
    for (size_t i = 0; i < region->noutputs && !node->nsources; i++)
        if (core__tensor_needs_grad(outputs[i]))
            return refuse(region,
                          "returns a tensor that requires grad although "
                          "nothing that it reads does, which cannot be "
                          "recorded; detach it");
    return CORE_OK;
}

static core_status capture(core__region_node *node, core_program *program,
                           core__region_captured *captured)
{
    core_program *outer = node->trace->program;
    size_t count = program->nhidden;

    captured->values =
        core__program_alloc(outer, count * sizeof *captured->values + 1);
    captured->tensors = core__alloc((count + 1) * sizeof *captured->tensors);
    if (!captured->values || !captured->tensors)
        return core__error_memory(count * sizeof *captured->tensors);
    for (uint32_t i = 0; i < count; i++) {
        captured->tensors[i] = program->hidden[i].tensor;
        core__tensor_retain(captured->tensors[i]);
    }
    captured->count = (uint32_t)count;
    CORE_TRY(read_captured(node->trace, program, captured->values));
    CORE_TRY(share_references(node->trace, program));
    core__program_forget_tensors(program); /* a region refers to none */
    core__program_finish(program);
    return CORE_OK;
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++)
        core__tensor_release(tensors[i]);
    core__free(tensors);
}

static uint32_t depth_of(const core__trace *trace)
{
    uint32_t depth = 0;

    for (; trace && trace->region; trace = trace->outer)
        depth++;
    return depth;
}

core_status core__region_trace(core__region_node *node,
                               const core__region *region, uint32_t index)
{
    core__trace trace = {.region = true, .outer = node->trace};
    core_tensor **stand_ins = NULL, **outputs = NULL;
    pthread_mutexattr_t recursive;
    core_status status;
    core_error *error = NULL;

    if (depth_of(trace.outer) >= CORE__REGION_DEPTH)
        return refuse(region, "is nested too deeply to be recorded");
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&trace.lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    status = core__program_new(&trace.program);
    stand_ins = core__alloc_zero((region->ninputs + 1) * sizeof *stand_ins);
    outputs = core__alloc_zero((region->noutputs + 1) * sizeof *outputs);
    if (status == CORE_OK && (!stand_ins || !outputs))
        status = core__error_memory(region->ninputs * sizeof *stand_ins);
    if (status == CORE_OK)
        status = record(&trace, region, stand_ins, outputs);
    if (status == CORE_OK && !region->decides)
        status = find_sources(node, &trace);
    if (status == CORE_OK)
        status = check_outputs(node, region, outputs);
    if (status == CORE_OK)
        status = capture(node, trace.program, &node->captured[index]);
    if (status != CORE_OK)
        core_error_detach(&error);
    release_all(outputs, region->noutputs);
    release_all(stand_ins, region->ninputs);
    if (core__traced_end(&trace) && status == CORE_OK)
        status = refuse(region, "keeps tensors beyond its call, which cannot "
                                "be recorded");
    else if (error)
        core_error_raise(error);
    pthread_mutex_destroy(&trace.lock);
    if (status == CORE_OK)
        node->regions[index] = trace.program;
    else
        core_program_release(trace.program);
    return status;
}
