/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What all optimizers share: parameters, steps, gradients, and state. */

#include "optim/optimizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/upcalls.h"
#include "tensor/layout.h"

#include <libcore/autograd.h>
#include <libcore/capture.h>
#include <libcore/ops.h>

#include <math.h>
#include <string.h>

core_status core__optimizer_check_option(double value, const char *option)
{
    if (!(value >= 0) || isinf(value))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "optimizer: %s is %g; it must be 0 or more", option,
                           value);
    return CORE_OK;
}

static core_status check_parameters(core_tensor *const *parameters,
                                    size_t count)
{
    if (count == 0)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "optimizer: the number of parameters is 0; it must be at least 1");
    for (size_t i = 0; i < count; i++) {
        if (!parameters[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "optimizer: parameter %zu is NULL", i);
        if (!core_tensor_is_leaf(parameters[i]) ||
            !core_tensor_requires_grad(parameters[i]))
            return core__error(
                CORE_ERROR_AUTOGRAD,
                "optimizer: parameter %zu is not a leaf that requires grad", i);
        for (size_t k = 0; k < i; k++)
            if (parameters[k] == parameters[i])
                return core__error(
                    CORE_ERROR_AUTOGRAD,
                    "optimizer: parameters %zu and %zu are the same tensor", k,
                    i);
    }
    return CORE_OK;
}

core_status core__optimizer_create(const char *function,
                                   const core__group *group,
                                   core_tensor *const *parameters, size_t count,
                                   core_optimizer **out_optimizer)
{
    static _Atomic uint64_t optimizers;
    core_optimizer *optimizer;

    if (!parameters && count > 0)
        return core__error_null(function, "parameters");
    CORE_TRY(
        core__optimizer_check_option(group->learning_rate, "learning rate"));
    CORE_TRY(check_parameters(parameters, count));
    optimizer = core__alloc_zero(sizeof *optimizer);
    if (!optimizer)
        return core__error_memory(sizeof *optimizer);
    optimizer->parameters =
        core__alloc_zero(count * (sizeof *optimizer->parameters + 1));
    optimizer->groups = core__alloc(sizeof *optimizer->groups);
    if (!optimizer->parameters || !optimizer->groups) {
        core__free(optimizer->parameters);
        core__free(optimizer->groups);
        core__free(optimizer);
        return core__error_memory(count * sizeof *optimizer->parameters);
    }
    optimizer->groups[0] = *group;
    optimizer->ngroups = 1;
    atomic_init(&optimizer->references, 1);
    optimizer->done = (uint8_t *)(optimizer->parameters + count);
    optimizer->number = atomic_fetch_add(&optimizers, 1);
    optimizer->count = count;
    for (size_t i = 0; i < count; i++)
        optimizer->parameters[i].tensor = core_tensor_retain(parameters[i]);
    *out_optimizer = optimizer;
    return CORE_OK;
}

static void release_struct(core_optimizer *optimizer)
{
    if (atomic_fetch_sub(&optimizer->references, 1) == 1)
        core__free(optimizer);
}

/* ------------------------------------------------------------- programs -- */

static double number_of(const core_optimizer *optimizer,
                        const core__parameter *parameter,
                        core__step_number number, uint32_t earlier)
{
    const core__group *group = core__group_of(optimizer, parameter);
    const core_adam_options *adam = &group->options.adam;
    double rate = group->learning_rate;
    double k = (double)(parameter->steps + earlier + 1);
    bool begins = earlier == 0 && parameter->fresh;

    switch (number) {
    case CORE__STEP_COUNT:
        return k;
    case CORE__STEP_RATE:
        return rate;
    case CORE__STEP_MINUS_RATE:
        return -rate;
    case CORE__STEP_DECAY:
        return 1 - rate * adam->weight_decay;
    case CORE__STEP_SIZE:
        return -(rate / (1 - pow(adam->beta1, k)));
    case CORE__STEP_DENOMINATOR:
        return sqrt(1 - pow(adam->beta2, k));
    case CORE__STEP_FRACTION:
        return begins ? 1 : 1 - group->options.sgd.dampening;
    default:
        return begins;
    }
}

static core_value read_number(void *object, uint32_t part, uint32_t number,
                              uint32_t earlier)
{
    const core_optimizer *optimizer = object;
    double value = number_of(optimizer, &optimizer->parameters[part],
                             (core__step_number)number, earlier);

    if (number == CORE__STEP_COUNT)
        return (core_value){CORE_VALUE_INT, 0, {.i = (int64_t)value}};
    if (number == CORE__STEP_IS_FIRST)
        return (core_value){CORE_VALUE_BOOL, 0, {.i = value != 0}};
    return (core_value){CORE_VALUE_FLOAT, 0, {.f = value}};
}

/* False after a release, too. */
static bool is_alike(void *object, uint32_t part, uint32_t other)
{
    const core_optimizer *optimizer = object;
    const core__parameter *parameters = optimizer->parameters;

    return part < optimizer->count && other < optimizer->count &&
           parameters[part].group == parameters[other].group &&
           parameters[part].steps == parameters[other].steps &&
           parameters[part].fresh == parameters[other].fresh;
}

static bool is_released(void *object)
{
    return ((const core_optimizer *)object)->count == 0;
}

static void finish_step(void *object, uint32_t part)
{
    core_optimizer *optimizer = object;

    optimizer->parameters[part].steps++;
    optimizer->parameters[part].fresh = false;
}

static void retain_object(void *object)
{
    atomic_fetch_add(&((core_optimizer *)object)->references, 1);
}

static void release_object(void *object)
{
    release_struct(object);
}

static const char *const number_names[] = {
    [CORE__STEP_COUNT] = "number of the step",
    [CORE__STEP_RATE] = "learning rate",
    [CORE__STEP_MINUS_RATE] = "negative learning rate",
    [CORE__STEP_DECAY] = "factor of the weight decay",
    [CORE__STEP_SIZE] = "corrected rate",
    [CORE__STEP_DENOMINATOR] = "correction of the denominator",
    [CORE__STEP_FRACTION] = "fraction of the gradient",
    [CORE__STEP_IS_FIRST] = "mark of the first step",
};

static const core__run_source run_source = {
    .name = "optimizer",
    .numbers = number_names,
    .read = read_number,
    .alike = is_alike,
    .released = is_released,
    .finish = finish_step,
    .retain = retain_object,
    .release = release_object,
};

static uint32_t part_of(const core_optimizer *optimizer,
                        const core__parameter *parameter)
{
    return (uint32_t)(parameter - optimizer->parameters);
}

static core_status announce(const core_optimizer *optimizer,
                            const core__parameter *parameter, uint32_t count,
                            core__run_number first, core__run_number second)
{
    const core__run_numbers numbers = {
        .source = &run_source,
        .object = (void *)(uintptr_t)optimizer,
        .part = part_of(optimizer, parameter),
        .count = count,
        .numbers = {first, second},
    };

    return core__dispatch_upcalls.run_numbers(&numbers);
}

core_status core__step_number_next(const core_optimizer *optimizer,
                                   const core__parameter *parameter,
                                   core__step_number number, uint32_t argument,
                                   double *out)
{
    const core__run_number one = {argument, number};

    *out = number_of(optimizer, parameter, number, 0);
    return core__unlikely(core__thread_self()->trace != NULL)
               ? announce(optimizer, parameter, 1, one, one)
               : CORE_OK;
}

core_status core__step_numbers_next(const core_optimizer *optimizer,
                                    const core__parameter *parameter,
                                    core__step_number first,
                                    uint32_t first_argument,
                                    core__step_number second,
                                    uint32_t second_argument)
{
    if (!core__thread_self()->trace)
        return CORE_OK;
    return announce(optimizer, parameter, second == CORE__STEP_NONE ? 1 : 2,
                    (core__run_number){first_argument, first},
                    (core__run_number){second_argument, second});
}

core_status core__step_count(const core_optimizer *optimizer,
                             core__parameter *parameter,
                             const core__parameter *other)
{
    if (core__unlikely(core__thread_self()->trace != NULL))
        return core__dispatch_upcalls.run_finishes(
            &run_source, (void *)(uintptr_t)optimizer,
            part_of(optimizer, parameter), part_of(optimizer, other));
    parameter->steps++;
    return CORE_OK;
}

/* State that a program can write must exist before its run. */
static core_status make_fresh_states(core_optimizer *optimizer)
{
    core_status status = CORE_OK;

    for (size_t i = 0; i < optimizer->count && status == CORE_OK; i++) {
        core__parameter *parameter = &optimizer->parameters[i];
        bool made = false;

        if (!core_tensor_grad(parameter->tensor))
            continue;
        for (size_t k = 0;
             core_optimizer_state_name(optimizer, k) && status == CORE_OK; k++)
            if (!parameter->state[k]) {
                status = core_zeros_like(parameter->tensor, CORE_DTYPE_NONE,
                                         NULL, -1, &parameter->state[k]);
                made = true;
            }
        parameter->fresh = parameter->fresh || made;
        optimizer->fresh = optimizer->fresh || made;
    }
    return status;
}

static void drop_fresh_states(core_optimizer *optimizer)
{
    optimizer->fresh = false;
    for (size_t i = 0; i < optimizer->count; i++) {
        core__parameter *parameter = &optimizer->parameters[i];

        for (size_t k = 0; k < CORE__OPTIMIZER_SLOTS && parameter->fresh; k++) {
            core_tensor_release(parameter->state[k]);
            parameter->state[k] = NULL;
        }
        parameter->fresh = false;
    }
}

static core_status prepare_states(core_optimizer *optimizer)
{
    core__thread *self = core__thread_self();
    struct core__trace *trace = self->trace;
    uint32_t included = self->included;
    core_status status;

    if (core__unlikely(!trace && optimizer->fresh))
        drop_fresh_states(optimizer);
    if (core__likely(!trace))
        return CORE_OK;
    self->trace = NULL;
    self->included &= (uint32_t)~CORE__KEYS_TRACED;
    status = make_fresh_states(optimizer);
    self->included = included;
    self->trace = trace;
    return status;
}

/* ------------------------------------------------------------------ use -- */

void core_optimizer_release(core_optimizer *optimizer)
{
    if (!optimizer)
        return;
    for (size_t i = 0; i < optimizer->count; i++) {
        core_tensor_release(optimizer->parameters[i].tensor);
        for (size_t k = 0; k < CORE__OPTIMIZER_SLOTS; k++)
            core_tensor_release(optimizer->parameters[i].state[k]);
    }
    optimizer->count = 0;
    core__free(optimizer->parameters);
    core__free(optimizer->groups);
    optimizer->parameters = NULL;
    optimizer->groups = NULL;
    release_struct(optimizer);
}

static core_status step(core_optimizer *optimizer)
{
    core_status status;
    bool before;

    before = core_grad_mode_set(false);
    memset(optimizer->done, 0, optimizer->count);
    status = prepare_states(optimizer);
    if (status == CORE_OK)
        status = core__optimizer_fused(optimizer, optimizer->done);
    for (size_t i = 0; status == CORE_OK && i < optimizer->count; i++) {
        core__parameter *parameter = &optimizer->parameters[i];
        core_tensor *grad = core_tensor_grad(parameter->tensor);

        if (!grad || optimizer->done[i] == CORE__STEP_DONE)
            continue;
        status = core__group_of(optimizer, parameter)
                     ->table->step(optimizer, parameter, grad);
        if (status == CORE_OK)
            status = core__step_count(optimizer, parameter, parameter);
        else
            core__error_prefix("optimizer, parameter %zu", i);
    }
    core_grad_mode_set(before);
    return status;
}

core_status core_optimizer_step(core_optimizer *optimizer)
{
    core__lazy_pause pause;
    core_status status;

    CORE__NOT_NULL(optimizer);
    CORE_TRY(core__thread_pause(__func__, &pause));
    status = step(optimizer);
    core__thread_resume(&pause);
    return status;
}

void core_optimizer_zero_grad(core_optimizer *optimizer)
{
    if (!optimizer)
        return;
    for (size_t i = 0; i < optimizer->count; i++)
        core_tensor_set_grad(optimizer->parameters[i].tensor, NULL);
}

double core_optimizer_learning_rate(const core_optimizer *optimizer)
{
    return optimizer->groups[0].learning_rate;
}

core_status core_optimizer_set_learning_rate(core_optimizer *optimizer,
                                             double learning_rate)
{
    CORE__NOT_NULL(optimizer);
    CORE_TRY(core__optimizer_check_option(learning_rate, "learning rate"));
    for (uint32_t i = 0; i < optimizer->ngroups; i++)
        optimizer->groups[i].learning_rate = learning_rate;
    return CORE_OK;
}

size_t core_optimizer_parameter_count(const core_optimizer *optimizer)
{
    return optimizer->count;
}

core_tensor *core_optimizer_parameter(const core_optimizer *optimizer,
                                      size_t parameter)
{
    return parameter < optimizer->count
               ? optimizer->parameters[parameter].tensor
               : NULL;
}

/* ----------------------------------------------------------------- state -- */

const char *core_optimizer_state_name(const core_optimizer *optimizer,
                                      size_t slot)
{
    return slot < CORE__OPTIMIZER_SLOTS
               ? optimizer->groups[0].table->slots[slot]
               : NULL;
}

core_tensor *core_optimizer_state(const core_optimizer *optimizer,
                                  size_t parameter, size_t slot)
{
    if (parameter >= optimizer->count || slot >= CORE__OPTIMIZER_SLOTS)
        return NULL;
    if (optimizer->parameters[parameter].fresh)
        return NULL;
    return optimizer->parameters[parameter].state[slot];
}

uint64_t core_optimizer_steps(const core_optimizer *optimizer, size_t parameter)
{
    return parameter < optimizer->count ? optimizer->parameters[parameter].steps
                                        : 0;
}

static core_status check_state(const core_tensor *state,
                               const core_tensor *parameter, const char *name)
{
    uint32_t ndim = core_tensor_ndim(parameter);

    if (!state)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_optimizer_set_state: state \"%s\" is NULL",
                           name);
    if (core_tensor_ndim(state) != ndim ||
        (ndim && memcmp(core_tensor_sizes(state), core_tensor_sizes(parameter),
                        ndim * sizeof(int64_t)) != 0))
        return core__error(CORE_ERROR_SHAPE,
                           "core_optimizer_set_state: state \"%s\" does not "
                           "have the sizes of its parameter",
                           name);
    if (core_tensor_dtype(state) != core_tensor_dtype(parameter))
        return core__error(CORE_ERROR_DTYPE,
                           "core_optimizer_set_state: state \"%s\" is %s; it "
                           "must be %s like its parameter",
                           name, core_dtype_name(core_tensor_dtype(state)),
                           core_dtype_name(core_tensor_dtype(parameter)));
    if (core_tensor_device(state) != core_tensor_device(parameter))
        return core__error(CORE_ERROR_DEVICE,
                           "core_optimizer_set_state: state \"%s\" is on "
                           "\"%s\"; it must be on \"%s\" like its parameter",
                           name, core_device_name(core_tensor_device(state)),
                           core_device_name(core_tensor_device(parameter)));
    return CORE_OK;
}

/* State tensors must not overlap: a step updates the state and the parameter
 * one after the other, each element once. */
static core_status check_apart(core_tensor *const *tensors, size_t slot,
                               const core_tensor *parameter,
                               const char *const *names)
{
    if (core__layout_overlaps_itself(tensors[slot]))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_optimizer_set_state: several elements of state \"%s\" share "
            "memory, as in an expanded tensor",
            names[slot]);
    if (core__layout_overlap(tensors[slot], parameter) != CORE__OVERLAP_NONE)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_optimizer_set_state: state \"%s\" shares "
                           "memory with its parameter",
                           names[slot]);
    for (size_t i = 0; i < slot; i++)
        if (core__layout_overlap(tensors[slot], tensors[i]) !=
            CORE__OVERLAP_NONE)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_optimizer_set_state: states \"%s\" and "
                               "\"%s\" share memory",
                               names[i], names[slot]);
    return CORE_OK;
}

core_status core_optimizer_set_state(core_optimizer *optimizer,
                                     size_t parameter, uint64_t steps,
                                     core_tensor *const *tensors, size_t count)
{
    core__parameter *entry;
    size_t slots = 0;

    CORE__NOT_NULL(optimizer);
    while (core_optimizer_state_name(optimizer, slots))
        slots++;
    if (parameter >= optimizer->count)
        return core__error(
            CORE_ERROR_INDEX,
            "core_optimizer_set_state: parameter is %zu; the optimizer has %zu",
            parameter, optimizer->count);
    entry = &optimizer->parameters[parameter];
    if (steps > CORE__OPTIMIZER_STEPS)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_optimizer_set_state: steps of parameter %zu "
                           "is %llu; it must be at most 2^53",
                           parameter, (unsigned long long)steps);
    if (!tensors && steps == 0)
        slots = 0;
    else if (count != slots)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_optimizer_set_state: count is %zu; the "
                           "optimizer has %zu state tensors for each parameter",
                           count, slots);
    if (slots > 0)
        CORE__NOT_NULL(tensors);
    for (size_t i = 0; i < slots; i++) {
        const char *const *names = optimizer->groups[0].table->slots;

        CORE_TRY(check_state(tensors[i], entry->tensor, names[i]));
        CORE_TRY(check_apart(tensors, i, entry->tensor, names));
    }
    for (size_t i = 0; i < CORE__OPTIMIZER_SLOTS; i++) {
        core_tensor *old = entry->state[i];

        entry->state[i] = i < slots ? core_tensor_retain(tensors[i]) : NULL;
        core_tensor_release(old);
    }
    entry->steps = steps;
    entry->fresh = false;
    return CORE_OK;
}

core_status core__optimizer_check_capture(const core__parameter *parameter,
                                          const char *step)
{
    core_stream *stream;

    CORE_TRY(
        core_stream_current(core_tensor_device(parameter->tensor), &stream));
    if (!core_stream_is_capturing(stream))
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s cannot be captured: it counts steps on the host, "
                       "which every launch of the graph would repeat unchanged",
                       step);
}
