/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_function_apply: custom functions with setup, forward and backward steps,
 * and their context. */

#include "autograd/graph/function.h"

#include "base/callback.h"
#include "autograd/graph/layer.h"
#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"
#include "tensor/batched.h"

#include <string.h>

/* ---------------------------------------------------------------- context -- */

core_status core__tensor_list_add(core__tensor_list *list, core_tensor *tensor)
{
    size_t size = (list->count + 1) * sizeof(core_tensor *);
    core_tensor **more = core__realloc(list->tensors, size);

    if (!more)
        return core__error_memory(size);
    list->tensors = more;
    more[list->count++] = tensor;
    return CORE_OK;
}

core_status core__context_keep(core__tensor_list *list, core_tensor *tensor)
{
    CORE_TRY(core__tensor_list_add(list, tensor));
    if (tensor)
        core__tensor_retain(tensor);
    return CORE_OK;
}

static void release_kept(core__tensor_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        core__tensor_release(list->tensors[i]);
    core__free(list->tensors);
}

void core__context_end(core_function_context *context)
{
    release_kept(&context->saved);
    release_kept(&context->dirty);
    release_kept(&context->non_differentiable);
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
                           "core_context_save: called twice; all tensors must "
                           "be saved in one call");
    context->was_saved = true;
    for (size_t i = 0; i < count; i++)
        CORE_TRY(core__context_keep(&context->saved, tensors[i]));
    return CORE_OK;
}

core_status core_context_mark_dirty(core_function_context *context,
                                    core_tensor *tensor)
{
    CORE__NOT_NULL(context);
    CORE__NOT_NULL(tensor);
    return core__context_keep(&context->dirty, tensor);
}

core_status core_context_mark_non_differentiable(core_function_context *context,
                                                 core_tensor *tensor)
{
    CORE__NOT_NULL(context);
    CORE__NOT_NULL(tensor);
    return core__context_keep(&context->non_differentiable, tensor);
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
                           "core_context_set_state: called twice; the state "
                           "can be set only once");
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

static core_status check_outputs(const char *name, core_tensor *const *outputs,
                                 size_t count, size_t capacity)
{
    if (count > capacity)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: the function reports %zu outputs, but the array holds %zu",
            name, count, capacity);
    if (count == 0)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: the function returned no outputs; it must return at least one",
            name);
    for (size_t i = 0; i < count; i++)
        if (!outputs[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: the function left output %zu NULL", name,
                               i);
    return CORE_OK;
}

core_status core__function_check_capacity(const char *name, size_t capacity)
{
    if (capacity)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: *noutputs is 0 (a failed call leaves it so); it "
                       "must be the capacity of outputs",
                       name);
}

core_status core__function_call(const char *name, core_tensor_function function,
                                void *context, core_tensor *const *inputs,
                                size_t ninputs, core_tensor **outputs,
                                size_t *noutputs)
{
    uint32_t errors = core__thread_self()->error.sequence;
    size_t capacity = *noutputs;
    core_status status;

    CORE_TRY(core__function_check_capacity(name, capacity));
    for (size_t i = 0; i < capacity; i++)
        outputs[i] = NULL;
    status = function(context, inputs, ninputs, outputs, noutputs);
    status = core__callback_status(errors, status, name);
    if (status == CORE_OK)
        status = check_outputs(name, outputs, *noutputs, capacity);
    if (status == CORE_OK)
        return CORE_OK;
    *noutputs = 0;
    for (size_t i = 0; i < capacity; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}

/* -------------------------------------------------------------- functions -- */

typedef struct apply {
    const core_custom_function *steps;
    core_tensor *const *inputs;
    size_t ninputs;
    core_tensor **outputs;
    size_t noutputs;
    uint32_t *versions; /* of the inputs, before forward */
    uint32_t inline_versions[8];
} apply;

static core_status check(const apply *apply)
{
    const core_custom_function *steps = apply->steps;

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
                               "%s: the forward function left output %zu NULL",
                               apply->steps->name, i);
    return CORE_OK;
}

static core_status forward(const apply *apply)
{
    const core_custom_function *steps = apply->steps;
    core__thread *self = core__thread_self();
    uint32_t errors = self->error.sequence;
    bool no_grad = self->no_grad;
    core_status status;

    self->no_grad = true;
    status = steps->forward(steps->context, apply->inputs, apply->ninputs,
                            apply->outputs, apply->noutputs);
    self->no_grad = no_grad;
    CORE_TRY(core__callback_status(errors, status, steps->name));
    return check_forward(apply);
}

static bool is_in(const core__tensor_list *list, const core_tensor *tensor)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->tensors[i] == tensor)
            return true;
    return false;
}

/* The index of the input that the output is; ninputs: none. */
static size_t input_of(const apply *apply, const core_tensor *output)
{
    size_t j = 0;

    while (j < apply->ninputs && apply->inputs[j] != output)
        j++;
    return j;
}

static void replace(core_tensor **output, core_tensor *other)
{
    core_tensor *input = *output;

    *output = other;
    core__tensor_release(input);
}

static bool was_changed(const apply *apply, size_t input)
{
    return apply->versions[input] !=
           core__content_version(apply->inputs[input]);
}

static core_status alias_input(const apply *apply, size_t input, size_t output,
                               core_function_context *context)
{
    core_tensor *source = apply->inputs[input], *alias;

    if (was_changed(apply, input))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: output %zu is input %zu, which was changed in "
                           "place; the setup function must mark it as dirty",
                           apply->steps->name, output, input);
    if (!is_in(&context->non_differentiable, source)) {
        CORE_TRY(core__tensor_view(source, source->ndim, source->sizes,
                                   source->strides, source->offset, &alias));
        replace(&apply->outputs[output], alias);
        return CORE_OK;
    }
    CORE_TRY(core__tensor_shallow_copy(source, &alias));
    replace(&apply->outputs[output], alias);
    return core__context_keep(&context->non_differentiable, alias);
}

/* An input that is returned unchanged becomes a view of it, so that the output
 * has its own history; without one if it is marked as non-differentiable. */
static core_status alias_inputs(const apply *apply,
                                core_function_context *context)
{
    for (size_t i = 0; i < apply->noutputs; i++) {
        const core_tensor *output = apply->outputs[i];
        size_t input = input_of(apply, output);

        if (input < apply->ninputs && core__dtype_is_floating(output->dtype) &&
            !is_in(&context->dirty, output))
            CORE_TRY(alias_input(apply, input, i, context));
    }
    return CORE_OK;
}

static core_status set_up_and_record(const apply *apply, bool *out_taken)
{
    const core_custom_function *steps = apply->steps;
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
        status = core__callback_status(
            errors,
            steps->setup(&context, steps->context, apply->inputs,
                         apply->ninputs, apply->outputs, apply->noutputs),
            steps->name);
    if (status == CORE_OK)
        status = alias_inputs(apply, &context);
    if (status == CORE_OK) {
        *out_taken = !context.has_state;
        status =
            core__context_record(&context, &info, apply->inputs, apply->ninputs,
                                 apply->outputs, apply->noutputs);
    }
    core__context_end(&context);
    return status;
}

static bool any_wants_grad(const apply *apply)
{
    for (size_t i = 0; i < apply->ninputs; i++)
        if (apply->inputs[i] && core__tensor_needs_grad(apply->inputs[i]))
            return true;
    return false;
}

/* Nothing is recorded: an input that requires grad and is returned unchanged
 * has no history then, like every result. */
static core_status detach_inputs(const apply *apply)
{
    for (size_t i = 0; i < apply->noutputs; i++) {
        size_t input = input_of(apply, apply->outputs[i]);
        core_tensor *alias;

        if (input == apply->ninputs || was_changed(apply, input) ||
            !core__tensor_needs_grad(apply->outputs[i]))
            continue;
        CORE_TRY(core__tensor_shallow_copy(apply->outputs[i], &alias));
        replace(&apply->outputs[i], alias);
    }
    return CORE_OK;
}

static core_status note_versions(apply *apply)
{
    size_t size = apply->ninputs * sizeof *apply->versions;

    apply->versions = apply->inline_versions;
    if (size > sizeof apply->inline_versions) {
        apply->versions = core__alloc(size);
        if (!apply->versions)
            return core__error_memory(size);
    }
    for (size_t i = 0; i < apply->ninputs; i++)
        apply->versions[i] =
            apply->inputs[i] ? core__content_version(apply->inputs[i]) : 0;
    return CORE_OK;
}

/* The function computes with batched tensors, while a graph outside of core_vmap
 * would need its gradients with those that they hold. */
static core_status check_batched(const apply *apply)
{
    if (core__thread_self()->no_grad)
        return CORE_OK;
    for (size_t i = 0; i < apply->ninputs; i++)
        if (apply->inputs[i] && core__batched_held_needs_grad(apply->inputs[i]))
            return core__error(
                CORE_ERROR_UNSUPPORTED,
                "%s: input %zu requires grad outside of core_vmap, which a "
                "program's function inside cannot be recorded for; "
                "differentiate inside, or compose it of operators",
                apply->steps->name, i);
    return CORE_OK;
}

static core_status run(apply *apply, bool *out_taken)
{
    const core__thread *self = core__thread_self();
    core_status status;

    CORE_TRY(check(apply));
    CORE_TRY(check_batched(apply));
    CORE_TRY(note_versions(apply));
    status = forward(apply);
    if (status == CORE_OK && any_wants_grad(apply))
        status = self->no_grad || self->inference
                     ? detach_inputs(apply)
                     : set_up_and_record(apply, out_taken);
    if (apply->versions != apply->inline_versions)
        core__free(apply->versions);
    return status;
}

core_status core_function_apply(const core_custom_function *steps,
                                core_tensor *const *inputs, size_t ninputs,
                                core_tensor **outputs, size_t noutputs)
{
    apply apply = {.steps = steps,
                   .inputs = inputs,
                   .ninputs = ninputs,
                   .outputs = outputs,
                   .noutputs = noutputs};
    bool taken = false;
    core_status status;

    for (size_t i = 0; outputs && i < noutputs; i++)
        outputs[i] = NULL;
    CORE__NOT_NULL(steps);
    if (steps->struct_size < sizeof *steps)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_function_apply: struct_size is %u; it must be %zu",
            steps->struct_size, sizeof *steps);
    status = run(&apply, &taken);
    if (!taken && steps->release)
        steps->release(steps->context);
    for (size_t i = 0; outputs && i < noutputs && status != CORE_OK; i++) {
        core__tensor_release(outputs[i]);
        outputs[i] = NULL;
    }
    return status;
}
