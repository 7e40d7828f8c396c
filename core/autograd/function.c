/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd/function.h"

#include "autograd/layer.h"
#include "autograd/record.h"
#include "base/memory.h"
#include "base/thread.h"

#include <string.h>

/* ---------------------------------------------------------------- context -- */

core_status core__context_add(core__tensor_list *list, core_tensor *tensor)
{
    size_t size = (list->count + 1) * sizeof(core_tensor *);
    core_tensor **more = core__realloc(list->tensors, size);

    if (!more)
        return core__error_memory(size);
    list->tensors = more;
    more[list->count++] = tensor;
    return CORE_OK;
}

void core__context_end(core_function_context *context)
{
    core__free(context->saved.tensors);
    core__free(context->dirty.tensors);
    core__free(context->non_differentiable.tensors);
    if (context->has_state && context->release)
        context->release(context->state);
}

core_status core_context_save(core_function_context *context,
                              core_tensor *const *tensors, size_t count)
{
    CORE__NOT_NULL(context);
    if (count && !tensors)
        return core__error_null("core_context_save", "tensors");
    if (context->was_saved)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_context_save: called twice; give all tensors "
                           "at once");
    context->was_saved = true;
    for (size_t i = 0; i < count; i++)
        CORE_TRY(core__context_add(&context->saved, tensors[i]));
    return CORE_OK;
}

core_status core_context_mark_dirty(core_function_context *context,
                                    core_tensor *tensor)
{
    CORE__NOT_NULL(context);
    CORE__NOT_NULL(tensor);
    return core__context_add(&context->dirty, tensor);
}

core_status core_context_mark_non_differentiable(core_function_context *context,
                                                 core_tensor *tensor)
{
    CORE__NOT_NULL(context);
    CORE__NOT_NULL(tensor);
    return core__context_add(&context->non_differentiable, tensor);
}

core_status core_context_no_zeros(core_function_context *context)
{
    CORE__NOT_NULL(context);
    context->no_zeros = true;
    return CORE_OK;
}

core_status core_context_set_state(core_function_context *context, void *state,
                                   void (*release)(void *state))
{
    CORE__NOT_NULL(context);
    if (context->has_state)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_context_set_state: called twice");
    context->has_state = true;
    context->state = state;
    context->release = release;
    return CORE_OK;
}

core_status core__context_record(core_function_context *context,
                                 core_function_info *info,
                                 core_tensor *const *inputs, size_t ninputs,
                                 core_tensor *const *outputs, size_t noutputs)
{
    if (context->has_state) {
        info->context = context->state;
        info->release = context->release;
        context->has_state = false;
    }
    if (context->no_zeros)
        info->flags |= CORE_FUNCTION_NO_ZEROS;
    info->dirty = context->dirty.tensors;
    info->ndirty = context->dirty.count;
    info->non_differentiable = context->non_differentiable.tensors;
    info->nnon_differentiable = context->non_differentiable.count;
    return core__function_record(info, context->recorded, inputs, ninputs,
                                 context->saved.tensors, context->saved.count,
                                 outputs, noutputs, NULL);
}

core_status core__worded(uint32_t errors, core_status status, const char *what)
{
    if (status == CORE_OK)
        return CORE_OK;
    if (core__thread_self()->error.sequence == errors ||
        core_error_code() != status)
        core__error(status, "it failed, and did not say why");
    core__error_prefix("%s", what);
    return status;
}

static core_status check_outputs(const char *name, core_tensor *const *outputs,
                                 size_t count, size_t room)
{
    if (count > room)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the function says that it gave %zu outputs; "
                           "there is room for %zu",
                           name, count, room);
    if (count == 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the function gave no outputs", name);
    for (size_t i = 0; i < count; i++)
        if (!outputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: the function gave no output %zu", name, i);
    return CORE_OK;
}

core_status core__function_call(const char *name, core_tensor_function function,
                                void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    uint32_t errors = core__thread_self()->error.sequence;
    size_t room = *noutputs;
    core_status status;

    for (size_t i = 0; i < room; i++)
        outputs[i] = NULL;
    status = function(context, inputs, ninputs, outputs, noutputs);
    status = core__worded(errors, status, name);
    if (status == CORE_OK)
        status = check_outputs(name, outputs, *noutputs, room);
    if (status == CORE_OK)
        return CORE_OK;
    *noutputs = 0;
    for (size_t i = 0; i < room; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}

/* -------------------------------------------------------------- functions -- */

typedef struct apply {
    const core_function_steps *steps;
    core_tensor *const *inputs;
    size_t ninputs;
    core_tensor **outputs;
    size_t noutputs;
} apply;

static core_status check(const apply *apply)
{
    const core_function_steps *steps = apply->steps;

    if (!steps->name || !steps->forward || !steps->backward)
        return core__error_null("core_function_apply", !steps->name ? "name"
                                                       : !steps->forward
                                                           ? "forward"
                                                           : "backward");
    if (apply->ninputs && !apply->inputs)
        return core__error_null("core_function_apply", "inputs");
    if (apply->noutputs && !apply->outputs)
        return core__error_null("core_function_apply", "outputs");
    return CORE_OK;
}

static core_status check_forward(const apply *apply)
{
    for (size_t i = 0; i < apply->noutputs; i++)
        if (!apply->outputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: the forward function gave no output %zu",
                               apply->steps->name, i);
    return CORE_OK;
}

static core_status forward(const apply *apply)
{
    const core_function_steps *steps = apply->steps;
    core__thread *self = core__thread_self();
    uint32_t errors = self->error.sequence;
    bool no_grad = self->no_grad;
    core_status status;

    self->no_grad = true;
    status = steps->forward(steps->context, apply->inputs, apply->ninputs,
                            apply->outputs, apply->noutputs);
    self->no_grad = no_grad;
    CORE_TRY(core__worded(errors, status, steps->name));
    return check_forward(apply);
}

static core_status set_up_and_record(const apply *apply, bool *out_taken)
{
    const core_function_steps *steps = apply->steps;
    core_function_info info = {.struct_size = sizeof info,
                               .flags = steps->flags,
                               .name = steps->name,
                               .backward = steps->backward,
                               .context = steps->context,
                               .release = steps->release};
    uint32_t errors = core__thread_self()->error.sequence;
    core_function_context context = {0};
    core_status status = CORE_OK;

    if (steps->setup)
        status = core__worded(errors,
                              steps->setup(&context, steps->context,
                                           apply->inputs, apply->ninputs,
                                           apply->outputs, apply->noutputs),
                              steps->name);
    if (status == CORE_OK) {
        *out_taken = !context.has_state;
        status =
            core__context_record(&context, &info, apply->inputs, apply->ninputs,
                                 apply->outputs, apply->noutputs);
    }
    core__context_end(&context);
    return status;
}

static bool is_recorded(const apply *apply)
{
    if (core__thread_self()->no_grad || core__thread_self()->inference)
        return false;
    for (size_t i = 0; i < apply->ninputs; i++)
        if (apply->inputs[i] && core__wants_grad(apply->inputs[i]))
            return true;
    return false;
}

core_status core_function_apply(const core_function_steps *steps,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs, size_t noutputs)
{
    apply apply = {steps, inputs, ninputs, outputs, noutputs};
    bool taken = false;
    core_status status;

    for (size_t i = 0; outputs && i < noutputs; i++)
        outputs[i] = NULL;
    CORE__NOT_NULL(steps);
    if (steps->struct_size < sizeof *steps)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_function_apply: steps say struct_size %u; "
                           "expected %zu",
                           steps->struct_size, sizeof *steps);
    status = check(&apply);
    if (status == CORE_OK)
        status = forward(&apply);
    if (status == CORE_OK && is_recorded(&apply))
        status = set_up_and_record(&apply, &taken);
    if (!taken && steps->release)
        steps->release(steps->context);
    for (size_t i = 0; outputs && i < noutputs && status != CORE_OK; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}
