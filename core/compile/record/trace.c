/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records a function: its inputs, outputs and writes. */

#include "compile/record/joint_trace.h"
#include "compile/record/left_state.h"

#include "autocast/autocast.h"
#include "autograd/graph/autograd_meta.h"
#include "base/callback.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/mode_stack.h"
#include "ops_ids.h"
#include "tensor/layout.h"

#include <libcore/autograd.h>

#include <string.h>

/* -------------------------------------------------------------- inputs -- */

static core_status check_inputs(core_tensor *const *inputs, size_t ninputs)
{
    for (size_t i = 0; i < ninputs; i++) {
        if (!inputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_program_trace: input %zu is NULL", i);
        if (inputs[i]->device->meta)
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "core_program_trace: input %zu is on \"meta\"; "
                               "inputs must be on a device that computes",
                               i);
    }
    return CORE_OK;
}

static bool is_part(const core_tensor *part, const core_tensor *whole)
{
    return part->numel > 0 && core__traced_is_part(part, whole);
}

/* The input of which input i is a view; of equal ones, the first. */
static uint32_t base_of(core_tensor *const *inputs, size_t ninputs, size_t i)
{
    size_t base = i;

    for (size_t k = 0; k < ninputs; k++)
        if (k != base && is_part(inputs[base], inputs[k]) &&
            (k < base || !is_part(inputs[k], inputs[base])))
            base = k;
    /* A larger one may come before one that led to it. */
    for (size_t k = 0; k < base; k++)
        if (is_part(inputs[base], inputs[k]))
            base = k;
    return base == i ? CORE__NO_VALUE : (uint32_t)base;
}

static core_status describe_input(core_program *program,
                                  core_tensor *const *inputs, size_t ninputs,
                                  size_t i)
{
    core_tensor *tensor = inputs[i];
    core__program_input *input;
    uint32_t device;

    CORE_TRY(core__program_device(program, tensor->device, &device));
    input =
        core__program_grow(&program->inputs, &program->ninputs, sizeof *input);
    if (!input)
        return core__error_memory(sizeof *input);
    input->value = CORE__NO_VALUE;
    input->base = base_of(inputs, ninputs, i);
    if (input->base != CORE__NO_VALUE)
        input->offset = tensor->offset - inputs[input->base]->offset;
    return core__program_type_set(program, tensor->dtype, tensor->ndim,
                                  tensor->sizes, tensor->strides, device,
                                  &input->type);
}

/* An inference tensor if the input is one. */
static core_status make_stand_in(core__trace *trace, core_tensor *input,
                                 uint32_t i, core_tensor **out_stand_in)
{
    core__thread *self = core__thread_self();
    bool inference = self->inference;
    core_status status;

    self->inference = input->flags & CORE__TENSOR_INFERENCE;
    status = core__traced_input(trace, input, i, out_stand_in);
    self->inference = inference;
    return status;
}

/* The stand-ins, which require grad if the inputs do. */
static core_status make_stand_ins(core__trace *trace,
                                  core_tensor *const *inputs, size_t ninputs,
                                  core_tensor **stand_ins)
{
    const core__program_input *described;

    for (size_t i = 0; i < ninputs; i++)
        CORE_TRY(describe_input(trace->program, inputs, ninputs, i));
    described = trace->program->inputs;
    for (uint32_t i = 0; i < ninputs; i++)
        if (described[i].base == CORE__NO_VALUE)
            CORE_TRY(make_stand_in(trace, inputs[i], i, &stand_ins[i]));
    for (size_t i = 0; i < ninputs; i++) {
        uint32_t base = described[i].base;

        if (base == CORE__NO_VALUE)
            continue;
        if (inputs[i] == inputs[base]) {
            core__tensor_retain(stand_ins[base]);
            stand_ins[i] = stand_ins[base];
            continue;
        }
        CORE_TRY(core__traced_input_view(trace, inputs[i], stand_ins[base],
                                         &stand_ins[i]));
    }
    for (size_t i = 0; i < ninputs; i++)
        if (core__tensor_requires_grad(inputs[i]))
            CORE_TRY(core_tensor_set_requires_grad(stand_ins[i], true));
    return CORE_OK;
}

/* An input's layout is the caller's, and a run cannot change it. */
static core_status check_layouts(const core_program *program,
                                 core_tensor *const *stand_ins)
{
    for (uint32_t i = 0; i < program->ninputs; i++) {
        const core__program_type *type = &program->inputs[i].type;
        size_t size = type->ndim * sizeof(int64_t);

        if (stand_ins[i]->ndim != type->ndim ||
            memcmp(stand_ins[i]->sizes, core__type_sizes(type), size) != 0 ||
            memcmp(stand_ins[i]->strides, core__type_strides(type), size) != 0)
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "core_program_trace: the function changes the "
                               "layout of input %u, which cannot be recorded",
                               i);
    }
    return CORE_OK;
}

/* ------------------------------------------------------------- outputs -- */

core_status core__trace_own_value(core__trace *trace,
                                  core__traced_storage *traced)
{
    core_program *program = trace->program;
    core__program_argument args[2] = {
        {CORE_VALUE_TENSOR, 0, {.value = traced->views[0].value}}, {0}};
    const core__program_value *value = &program->values[args[0].u.value];
    bool own = value->source == CORE__VALUE_OF_NODE;
    core__program_type type = value->type;

    if (own) {
        const core__program_node *node = &program->nodes[value->index];

        own = !node->op || !core__operator_is_view(node->op);
    }
    for (uint32_t i = 0; i < trace->nstorages && own; i++)
        own = trace->storages[i] == traced ||
              trace->storages[i]->kind != CORE__TRACED_RESULT ||
              trace->storages[i]->index != CORE__NO_VALUE ||
              trace->storages[i]->views[0].value != args[0].u.value;
    if (own)
        return CORE_OK;
    return core__trace_append(trace, &core__operators[CORE_OP_CLONE], args, 2,
                              0, &type, &traced->views[0].value);
}

/* A view of an output's source, as the function has made it. */
static uint8_t kind_of_view(const core_tensor *output)
{
    return output->base ? CORE__OUTPUT_VIEW : CORE__OUTPUT_DETACHED;
}

static core_status describe_output(core__trace *trace,
                                   core_tensor *const *stand_ins,
                                   core_tensor *const *outputs, uint32_t i)
{
    core_program *program = trace->program;
    core__program_output *output;
    core__traced_storage *traced;
    uint32_t view, same = 0;

    CORE_TRY(core__traced_find(trace, NULL, outputs[i], &traced, &view));
    if (traced->kind == CORE__TRACED_RESULT) {
        CORE_TRY(core__trace_own_value(trace, traced));
        traced->index = CORE__NO_VALUE; /* an output has its value */
    }
    output = core__program_grow(&program->outputs, &program->noutputs,
                                sizeof *output);
    if (!output)
        return core__error_memory(sizeof *output);
    output->type = traced->views[view].type;
    output->offset = traced->views[view].offset - traced->views[0].offset;
    output->view = view ? kind_of_view(outputs[i]) : CORE__OUTPUT_WHOLE;
    output->index = traced->index;
    while (same < i && outputs[same] != outputs[i])
        same++;
    if (same < i) {
        output->kind = CORE__OUTPUT_SAME;
        output->index = same;
    } else if (!(outputs[i]->flags & CORE__TENSOR_TRACED)) {
        output->kind = traced->kind == CORE__TRACED_HIDDEN ? CORE__OUTPUT_HIDDEN
                                                           : CORE__OUTPUT_INPUT;
        output->view =
            output->kind == CORE__OUTPUT_HIDDEN &&
                    program->hidden[traced->index].tensor == outputs[i]
                ? CORE__OUTPUT_VIEW
                : kind_of_view(outputs[i]);
        output->tensor = outputs[i];
        core__tensor_retain(outputs[i]);
    } else if (traced->kind == CORE__TRACED_RESULT) {
        output->kind = CORE__OUTPUT_VALUE;
        output->index = traced->views[0].value;
        /* One of several tensors with the same layout is the value itself. */
        for (uint32_t k = 0; k < i && !output->view; k++)
            if (program->outputs[k].kind == output->kind &&
                program->outputs[k].index == output->index &&
                !program->outputs[k].view)
                output->view = kind_of_view(outputs[i]);
    } else {
        output->kind = CORE__OUTPUT_INPUT;
        /* The input itself, or a view of another one that is an input, too. */
        for (uint32_t k = 0; k < program->ninputs; k++)
            if (stand_ins[k] == outputs[i]) {
                output->index = k;
                output->offset = 0;
                output->view = CORE__OUTPUT_WHOLE;
                return CORE_OK;
            }
        output->view = kind_of_view(outputs[i]);
    }
    return CORE_OK;
}

core_status core__trace_add_writes(core__trace *trace)
{
    core_program *program = trace->program;

    for (uint32_t i = 0; i < trace->nstorages; i++) {
        const core__traced_storage *traced = trace->storages[i];
        core__program_write *write;

        if (traced->kind == CORE__TRACED_RESULT || traced->version == 0)
            continue;
        write = core__program_grow(&program->writes, &program->nwrites,
                                   sizeof *write);
        if (!write)
            return core__error_memory(sizeof *write);
        *write = (core__program_write){traced->kind == CORE__TRACED_HIDDEN,
                                       traced->index, traced->views[0].value};
    }
    return CORE_OK;
}

/* A gradient that was NULL is a result of the program now, which would stay
 * with the tensor after the call. */
static core_status check_gradients(const core_program *program)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < program->nhidden; i++) {
        core_tensor *tensor = program->hidden[i].tensor;
        core_tensor *grad = core_tensor_grad(tensor);

        if (!grad || !(grad->flags & CORE__TENSOR_TRACED))
            continue;
        CORE_TRY(core_tensor_set_grad(tensor, NULL));
        status = core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_program_trace: the function gives a tensor that is not an "
            "input a new gradient, which cannot be recorded; allocate the "
            "gradient before, or use core_grad");
    }
    return status;
}

/* A change in place that autograd records gives a tensor another history, which
 * a run does not.  Restores the one from before. */
static core_status check_histories(core__trace *trace)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < trace->nstorages; i++) {
        core__traced_storage *traced = trace->storages[i];
        core_tensor *tensor;

        if (traced->kind != CORE__TRACED_HIDDEN ||
            traced->index >= trace->program->nhidden)
            continue;
        tensor = trace->program->hidden[traced->index].tensor;
        if ((tensor->autograd ? tensor->autograd->grad_fn : NULL) ==
            traced->history)
            continue;
        core__history_clear(tensor);
        if (traced->history) {
            CORE_TRY(core__history_set(tensor, traced->history,
                                       traced->history_output));
            traced->history = NULL;
        }
        status = core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_program_trace: the function changes a tensor that is not an "
            "input in a way that autograd records, which a program cannot do; "
            "turn grad mode off, or detach what is written");
    }
    return status;
}

/* --------------------------------------------------------------- trace -- */

/* A function and what it is called with. */
typedef struct traced_call {
    core_tensor_function function;
    void *context;
    core_tensor *const *inputs;
    size_t ninputs;
    core_tensor **stand_ins;
    core_tensor **outputs;
    size_t capacity;
    core__joint *joint; /* NULL: the backward is not recorded */
} traced_call;

static core_status check_outputs(const traced_call *call, size_t count)
{
    if (count > call->capacity)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_program_trace: the function reports %zu "
                           "outputs; max_outputs is %zu",
                           count, call->capacity);
    for (size_t i = 0; i < count; i++)
        if (!call->outputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_program_trace: the function left output "
                               "%zu NULL",
                               i);
    return CORE_OK;
}

/* What is left to record once the function has returned. */
static core_status describe(core__trace *trace, const traced_call *call,
                            size_t count)
{
    uint32_t ninputs = (uint32_t)call->ninputs, noutputs = (uint32_t)count;

    CORE_TRY(check_outputs(call, count));
    CORE_TRY(check_layouts(trace->program, call->stand_ins));
    for (uint32_t i = 0; i < noutputs; i++)
        CORE_TRY(describe_output(trace, call->stand_ins, call->outputs, i));
    if (call->joint)
        CORE_TRY(core__joint_record(trace, call->stand_ins, ninputs,
                                    call->outputs, noutputs, call->joint));
    return core__trace_add_writes(trace);
}

void core__trace_refuse(const char *name)
{
    core__trace *trace = core__thread_self()->trace;

    while (trace->region)
        trace = trace->outer;
    pthread_mutex_lock(&trace->lock);
    if (!trace->refused) {
        trace->refused = name;
        trace->refused_at = trace->program->nnodes;
    }
    pthread_mutex_unlock(&trace->lock);
}

static core_status check_refused(const core__trace *trace)
{
    return !trace->refused
               ? CORE_OK
               : core__error(
                     CORE_ERROR_UNSUPPORTED,
                     "%s: it reads or changes the state of a generator, "
                     "which a program that is being recorded cannot "
                     "contain",
                     trace->refused);
}

static core_status check_left(core_status status, const char *changed)
{
    if (status != CORE_OK || !changed)
        return status;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "core_program_trace: the function leaves %s changed "
                       "when it returns, which a program cannot do",
                       changed);
}

/* The thread's state is restored in any case, and so are its cached casts of
 * autocast: those of the recording have no content, and those from before would
 * be hidden inputs that end with their region. */
static core_status call_function(core__trace *trace, const traced_call *call)
{
    core__thread *self = core__thread_self();
    uint32_t errors = core__error_sequence();
    uint32_t included = self->included, excluded = self->excluded;
    struct core__autocast_casts *casts = self->autocast_casts;
    core__state_before before = core__state_remember(self);
    size_t count = call->capacity;
    core_status status;

    self->autocast_casts = NULL;
    trace->sequence = self->sequence;
    trace->outer = self->trace;
    self->trace = trace;
    self->included |= (uint32_t)CORE__KEYS_TRACED;
    self->excluded &= (uint32_t)~CORE__KEYS_TRACED;
    status = call->function(call->context, call->stand_ins, call->ninputs,
                            call->outputs, &count);
    status = core__callback_status(errors, status, NULL);
    status = check_left(status, core__state_restore(self, &before));
    if (status == CORE_OK)
        status = describe(trace, call, count);
    if (status == CORE_OK)
        status = check_refused(trace);
    core__autocast_cache_clear(self);
    self->autocast_casts = casts;
    core__modes_restore_keys(self, included);
    self->excluded = excluded;
    self->trace = trace->outer;
    return status;
}

static core_status record(core__trace *trace, const traced_call *call)
{
    CORE_TRY(
        make_stand_ins(trace, call->inputs, call->ninputs, call->stand_ins));
    CORE_TRY(call_function(trace, call));
    core__program_finish(trace->program);
    return CORE_OK;
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++)
        core__tensor_release(tensors[i]);
    core__free(tensors);
}

/* True if only the program has the tensor, `held` times and as outputs. */
static bool is_temporary(const core_program *program, const core_tensor *tensor,
                         uint32_t held)
{
    for (uint32_t i = 0; i < program->noutputs; i++)
        held += program->outputs[i].tensor == tensor;
    return atomic_load(&tensor->references) <= held;
}

/* True if one was dropped, which may have kept its base alive. */
static bool drop_temporary_aliases(core_program *program)
{
    uint32_t before = program->naliases;

    program->naliases = 0;
    for (uint32_t i = 0; i < before; i++) {
        core_tensor *tensor = program->aliases[i];

        if (is_temporary(program, tensor, 1))
            core__tensor_release(tensor);
        else
            program->aliases[program->naliases++] = tensor;
    }
    return program->naliases < before;
}

/* Drops the tensors that the function made: it makes others in each call. */
static void drop_temporaries(core_program *program)
{
    while (drop_temporary_aliases(program))
        ;
    for (uint32_t i = 0; i < program->noutputs; i++) {
        core_tensor *tensor = program->outputs[i].tensor;

        /* A run does not give a view a history. */
        if (!tensor || core__tensor_requires_grad(tensor) ||
            !is_temporary(program, tensor, 0))
            continue;
        program->outputs[i].tensor = NULL;
        core__tensor_release(tensor);
    }
}

/* Releases what the function returned, after which nothing may refer to the
 * trace. */
static core_status end(core__trace *trace, traced_call *call,
                       core_status status)
{
    core_error *error = NULL;
    core_status gradients, histories;
    uint32_t in_use;

    if (status != CORE_OK)
        core_error_detach(&error);
    gradients = check_gradients(trace->program);
    histories = check_histories(trace);
    release_all(call->outputs, call->capacity);
    release_all(call->stand_ins, call->ninputs);
    in_use = core__traced_end(trace);
    drop_temporaries(trace->program);
    if (status != CORE_OK) {
        core_error_raise(error);
        return status;
    }
    if (gradients != CORE_OK || histories != CORE_OK)
        return gradients != CORE_OK ? gradients : histories;
    return in_use == 0
               ? CORE_OK
               : core__error(CORE_ERROR_UNSUPPORTED,
                             "core_program_trace: the function keeps "
                             "%u " CORE__KEPT_REFUSED "; they have no content",
                             in_use);
}

static core_status begin(core__trace *trace, traced_call *call)
{
    pthread_mutexattr_t recursive;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&trace->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    CORE_TRY(core__program_new(&trace->program));
    call->stand_ins =
        core__alloc_zero((call->ninputs + 1) * sizeof *call->stand_ins);
    call->outputs =
        core__alloc_zero((call->capacity + 1) * sizeof *call->outputs);
    return call->stand_ins && call->outputs
               ? CORE_OK
               : core__error_memory(call->capacity * sizeof *call->outputs);
}

core_status core__function_enter(const char *name)
{
    core__thread *self = core__thread_self();

    if (self->function_depth >= CORE__FUNCTION_DEPTH)
        return core__error(CORE_ERROR_REFUSED,
                           "%s: functions that are compiled or recorded call "
                           "one another %u deep, which is the limit",
                           name, CORE__FUNCTION_DEPTH);
    self->function_depth++;
    return CORE_OK;
}

void core__function_leave(void)
{
    core__thread_self()->function_depth--;
}

core_status core__joint_trace(core_tensor_function function, void *context,
                              core_tensor *const *inputs, size_t ninputs,
                              size_t max_outputs, core__joint *joint,
                              core_program **out_program)
{
    core__trace trace = {.program = NULL};
    traced_call call = {function, context, inputs,      ninputs,
                        NULL,     NULL,    max_outputs, joint};
    core__lazy_pause pause;
    core_status status;

    *out_program = NULL;
    if (max_outputs >= UINT32_MAX)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_program_trace: max_outputs is %zu; at most %u",
                           max_outputs, UINT32_MAX - 1);
    CORE_TRY(check_inputs(inputs, ninputs));
    CORE_TRY(core__thread_pause("core_program_trace", &pause));
    status = begin(&trace, &call);
    if (status == CORE_OK)
        status = core__function_enter("core_program_trace");
    if (status == CORE_OK) {
        status = record(&trace, &call);
        core__function_leave();
    }
    if (trace.program)
        status = end(&trace, &call, status);
    pthread_mutex_destroy(&trace.lock);
    if (status == CORE_OK) {
        *out_program = trace.program;
        trace.program = NULL;
    }
    core_program_release(trace.program);
    core__thread_resume(&pause);
    return status;
}

core_status core_program_trace(core_tensor_function function, void *context,
                               core_tensor *const *inputs, size_t ninputs,
                               size_t max_outputs, core_program **out_program)
{
    CORE__NOT_NULL(out_program);
    *out_program = NULL;
    CORE__NOT_NULL(function);
    if (ninputs)
        CORE__NOT_NULL(inputs);
    return core__joint_trace(function, context, inputs, ninputs, max_outputs,
                             NULL, out_program);
}
