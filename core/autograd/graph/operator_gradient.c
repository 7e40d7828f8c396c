/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients that programs register for operators: a function under the autograd
 * key that computes below itself and records a custom node. */

#include "base/callback.h"
#include "autograd/graph/function.h"
#include "autograd/graph/layer.h"
#include "autograd/graph/operator_gradient.h"
#include "autograd/graph/autograd_meta.h"
#include "autograd/graph/view.h"
#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "dispatch/registry.h"
#include "dispatch/schema.h"

#include <libcore/tensor.h>

#include <string.h>

typedef struct registered {
    core__retired retired; /* first: the registration's payload */
    core_operator_gradient gradient;
    /* Counts recorded calls, which need the plugin's code; NULL: registered by
     * the program. */
    _Atomic uint64_t *recorded;
} registered;

/* ------------------------------------------------------------- collecting -- */

/* Every tensor argument in order, with NULL for absent ones. */
static core_status collect_inputs(const core_operator *op,
                                  const core_value *args, uint32_t nargs,
                                  core__tensor_list *inputs)
{
    for (uint32_t i = 0; i < nargs; i++) {
        const core_value *arg = &args[i];

        if (op->lists >> i & 1)
            for (uint32_t j = 0;
                 arg->tag == CORE_VALUE_TENSOR_LIST && j < arg->count; j++)
                CORE_TRY(core__tensor_list_add(inputs, arg->u.tensors[j]));
        else if (op->tensors >> i & 1)
            CORE_TRY(core__tensor_list_add(
                inputs, arg->tag == CORE_VALUE_TENSOR ? arg->u.tensor : NULL));
    }
    return CORE_OK;
}

static core_status collect_results(const core_value *results, uint32_t nresults,
                                   core__tensor_list *outputs)
{
    for (uint32_t i = 0; i < nresults; i++) {
        if (results[i].tag == CORE_VALUE_TENSOR)
            CORE_TRY(core__tensor_list_add(outputs, results[i].u.tensor));
        for (uint32_t j = 0;
             results[i].tag == CORE_VALUE_TENSOR_LIST && j < results[i].count;
             j++)
            CORE_TRY(core__tensor_list_add(outputs, results[i].u.tensors[j]));
    }
    return CORE_OK;
}

static bool is_among(const core__tensor_list *list, const core_tensor *tensor)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->tensors[i] == tensor)
            return true;
    return false;
}

/* Arguments that are changed according to the schema. */
static core_status collect_changed(core_operator *op, const core_value *args,
                                   core__tensor_list *changed)
{
    const core__schema *schema;

    CORE_TRY(core__schema_of(op, &schema));
    for (uint32_t i = 0; i < schema->narguments; i++)
        if (schema->arguments[i].mutated && args[i].tag == CORE_VALUE_TENSOR &&
            !is_among(changed, args[i].u.tensor))
            CORE_TRY(core__context_keep(changed, args[i].u.tensor));
    return CORE_OK;
}

/* -------------------------------------------------------------- recording -- */

typedef struct work {
    core__tensor_list inputs, outputs;
    core_function_context context;
} work;

static core_status compute(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    core__thread *self = core__thread_self();
    uint64_t excluded = self->excluded;
    core_status status;

    self->excluded |= CORE__KEY_AUTOGRAD;
    status = core_redispatch_below(call, args, nargs, results, nresults);
    self->excluded = excluded;
    return status;
}

static core_status record(const registered *registered, core_operator *op,
                          const core_value *args, uint32_t nargs,
                          const core_value *results, uint32_t nresults,
                          work *work)
{
    const core_operator_gradient *gradient = &registered->gradient;
    core_function_info info = {.struct_size = sizeof info,
                               .flags = gradient->flags,
                               .name = core__operator_name(op),
                               .backward = gradient->backward,
                               .context = gradient->user};
    uint32_t errors = core__thread_self()->error.sequence;

    CORE_TRY(collect_results(results, nresults, &work->outputs));
    for (size_t i = 0; i < work->context.dirty.count; i++)
        if (!is_among(&work->outputs, work->context.dirty.tensors[i]))
            CORE_TRY(core__tensor_list_add(&work->outputs,
                                           work->context.dirty.tensors[i]));
    if (gradient->setup)
        CORE_TRY(core__callback_status(
            errors,
            gradient->setup(&work->context, gradient->user, args, nargs,
                            results, nresults),
            core__operator_name(op)));
    work->context.recorded = registered->recorded;
    return core__context_record(&work->context, &info, work->inputs.tensors,
                                work->inputs.count, work->outputs.tensors,
                                work->outputs.count);
}

static core_status compute_and_record(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults, work *work)
{
    const registered *registered = call->user;
    core__tensor_list *dirty = &work->context.dirty;
    core_status status;

    CORE_TRY(collect_changed(call->op, args, dirty));
    for (size_t i = 0; i < dirty->count; i++) {
        CORE_TRY(core__in_place_check(core__operator_name(call->op),
                                      dirty->tensors[i]));
        CORE_TRY(
            core__view_check(core__operator_name(call->op), dirty->tensors[i]));
    }
    CORE_TRY(compute(call, args, nargs, results, nresults));
    status = record(registered, call->op, args, nargs, results, nresults, work);
    for (uint32_t i = 0; i < nresults && status != CORE_OK; i++)
        core_value_release(&results[i]);
    return status;
}

static bool any_needs_grad(const core__tensor_list *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        if (inputs->tensors[i] && core__tensor_needs_grad(inputs->tensors[i]))
            return true;
    return false;
}

static core_status layer(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    core_status status = CORE_OK;
    work work = {0};
    bool needed = false;

    if (!core__thread_self()->no_grad) {
        status = collect_inputs(call->op, args, nargs, &work.inputs);
        needed = any_needs_grad(&work.inputs);
    }
    if (status == CORE_OK && needed)
        status =
            compute_and_record(call, args, nargs, results, nresults, &work);
    else if (status == CORE_OK)
        status = compute(call, args, nargs, results, nresults);
    core__free(work.inputs.tensors);
    core__free(work.outputs.tensors);
    core__context_end(&work.context);
    return status;
}

/* ------------------------------------------------------------ registering -- */

core_status core__gradient_add(core_registry *registry,
                               core_string operator_name,
                               const core_operator_gradient *gradient,
                               _Atomic uint64_t *recorded)
{
    const uint32_t known =
        CORE_FUNCTION_ONCE_DIFFERENTIABLE | CORE_FUNCTION_NO_ZEROS;
    registered *registration;
    core_status status;

    if (gradient->struct_size < sizeof *gradient || gradient->flags & ~known ||
        !gradient->backward)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "the gradient of %.*s has struct_size %u, flags 0x%x and %s; it "
            "must have %zu, at most 0x%x and a backward function",
            (int)operator_name.size, operator_name.data, gradient->struct_size,
            gradient->flags,
            gradient->struct_size >= sizeof *gradient && gradient->backward
                ? "a backward function"
                : "no backward function",
            sizeof *gradient, known);
    registration = core__alloc_zero(sizeof *registration);
    if (!registration)
        return core__error_memory(sizeof *registration);
    registration->retired.memory = registration;
    registration->gradient = *gradient;
    registration->recorded = recorded;
    status =
        core__registry_add_function(registry, operator_name, CORE_KEY_AUTOGRAD,
                                    (core_string){0}, layer, registration);
    if (status == CORE_OK)
        core__registry_set_payload(registry, &registration->retired);
    else
        core__free(registration);
    return status;
}

core_status core_gradient_register(const char *operator_name,
                                   const core_operator_gradient *gradient,
                                   core_registration **out_registration)
{
    core_registration *registration;
    core_status status;

    CORE__NOT_NULL(out_registration);
    *out_registration = NULL;
    CORE__NOT_NULL(operator_name);
    CORE__NOT_NULL(gradient);
    CORE_TRY(core__registration_new(&registration));
    status = core__gradient_add(
        core__registration_registry(registration),
        (core_string){operator_name, strlen(operator_name)}, gradient, NULL);
    if (status == CORE_OK)
        *out_registration = registration;
    else
        core_registration_release(registration);
    return status;
}

core_status core_shape_register(const char *operator_name,
                                core_function function, void *user,
                                core_registration **out_registration)
{
    return core_function_register(operator_name, CORE_KEY_BACKEND, "meta",
                                  function, user, out_registration);
}
