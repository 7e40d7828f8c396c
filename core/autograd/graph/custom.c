/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Custom nodes: recording of a program's function, its backward, and its saved
 * tensors. */

#include "autograd/graph/custom.h"

#include "autograd/graph/anomaly.h"
#include "base/callback.h"
#include "autograd/graph/function.h"
#include "autograd/graph/layer.h"
#include "autograd/graph/saved.h"
#include "autograd/graph/view.h"
#include "autograd/graph/autograd_ops.h"
#include "base/memory.h"
#include "device/stream.h"
#include "base/thread.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>

#include <string.h>

/* Formulas of operators with several results are written for gradients that
 * are all there. */
core_status core__gradients_fill_undefined(core_node *node, core_tensor **grads)
{
    for (uint32_t i = 0; i < node->ninputs; i++) {
        const core__tensor_meta *meta = &node->inputs[i];

        if (grads[i] || !core__dtype_is_floating(meta->dtype))
            continue;
        CORE_TRY(core__autograd_op_full(meta->device, meta->dtype, meta->ndim,
                                        meta->sizes, 0, &grads[i]));
        /* The node expects all to be ready on its own stream. */
        if (node->stream && !meta->device->synchronous &&
            meta->device != node->stream->device)
            CORE_TRY(core__stream_order(node->stream,
                                        core__stream_current(meta->device)));
    }
    return CORE_OK;
}

struct core__custom_function {
    core_status (*backward)(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients);
    void *context;
    void (*release)(void *context);
    _Atomic uint64_t *recorded; /* counts the nodes that need the function's
                                 * code */
    uint32_t flags;
    char name[];
};

static void release_context(core__custom_function *custom)
{
    void (*release)(void *) = custom->release;

    custom->release = NULL;
    if (release)
        release(custom->context);
    custom->context = NULL;
}

/* --------------------------------------------------------------- running -- */

static core_status call(core_node *node, core_tensor *const *grads,
                        core_tensor **gradients)
{
    core__custom_function *custom = node->u.custom;
    uint32_t errors = core__thread_self()->error.sequence;
    core_status status = custom->backward(
        node, custom->context, grads, node->ninputs, gradients, node->nedges);

    return core__callback_status(errors, status, NULL);
}

/* Gradients of a function that can be differentiated only once get a node that
 * refuses to run, with edges to everything that they depend on. */
static core_status refusing_node(const core_node *of, core_tensor *const *grads,
                                 core_tensor *const *gradients,
                                 core_node **out_node)
{
    size_t length = strlen(of->name) + 1, dims = 0;
    core_status status = CORE_OK;
    core_node *node;
    int64_t *sizes;

    for (uint32_t i = 0; i < of->nedges; i++)
        dims += gradients[i] ? gradients[i]->ndim : 0;
    node = core__node_new(of->ninputs + of->nedges, 0, of->nedges,
                          dims * sizeof *sizes + length, (void **)&sizes);
    *out_node = node;
    if (!node)
        return core__error_memory(sizeof *node);
    node->kind = CORE__NODE_ONCE;
    for (uint32_t i = 0; i < of->nedges; i++) {
        const core_tensor *tensor = gradients[i];

        node->inputs[i] = (core__tensor_meta){0};
        if (!tensor)
            continue;
        memcpy(sizes, tensor->sizes, tensor->ndim * sizeof *sizes);
        core__tensor_meta_fill(&node->inputs[i], tensor, sizes);
        sizes += tensor->ndim;
    }
    node->name = memcpy(sizes, of->name, length);
    if (core__thread_self()->anomaly)
        core__anomaly_note(node);
    for (uint32_t i = 0; i < of->ninputs && status == CORE_OK; i++)
        if (grads[i] && core__tensor_needs_grad(grads[i]))
            status = core__gradient_edge(grads[i], &node->edges[i]);
    /* The gradients may depend on the inputs as well, so these must be
     * reachable. */
    for (uint32_t i = 0; i < of->nedges; i++) {
        if (!of->edges[i].node)
            continue;
        core__node_retain(of->edges[i].node);
        node->edges[of->ninputs + i] = of->edges[i];
    }
    return status;
}

static core_status refuse_second(const core_node *of, core_tensor *const *grads,
                                 core_tensor **gradients)
{
    core_node *node;
    core_status status = refusing_node(of, grads, gradients, &node);

    for (uint32_t i = 0; i < of->nedges && status == CORE_OK; i++)
        if (gradients[i] && core__dtype_is_floating(gradients[i]->dtype))
            status = core__history_alias(node, i, &gradients[i]);
    core__node_release(node);
    return status;
}

/* Gradients in memory that the program chose may stay there; views of incoming
 * gradients may not, since others use them too. */
static void mark_given(const core_node *node, core_tensor *const *grads,
                       core_tensor *const *gradients)
{
    for (uint32_t i = 0; i < node->nedges; i++) {
        core_tensor *gradient = gradients[i];
        bool own = gradient && atomic_load(&gradient->references) == 1;

        for (uint32_t k = 0; own && k < node->ninputs; k++)
            own = !grads[k] || grads[k]->storage != gradient->storage;
        if (own)
            gradient->flags |= CORE__TENSOR_PROGRAM_MEMORY;
    }
}

core_status core__custom_function_run(core_node *node, core_tensor **grads,
                                      core_tensor **gradients)
{
    core__thread *self = core__thread_self();
    bool no_grad = self->no_grad;
    core_status status;
    uint32_t flags;

    if (!core__node_begin_use(node))
        return core__error(CORE_ERROR_AUTOGRAD, CORE__RAN_ALREADY);
    flags = node->u.custom->flags;
    status = flags & CORE_FUNCTION_NO_ZEROS
                 ? CORE_OK
                 : core__gradients_fill_undefined(node, grads);
    if (flags & CORE_FUNCTION_ONCE_DIFFERENTIABLE)
        self->no_grad = true;
    if (status == CORE_OK)
        status = call(node, grads, gradients);
    self->no_grad = no_grad;
    if (status == CORE_OK)
        mark_given(node, grads, gradients);
    if (status == CORE_OK && !no_grad &&
        flags & CORE_FUNCTION_ONCE_DIFFERENTIABLE)
        status = refuse_second(node, grads, gradients);
    core__node_end_use(node);
    return status;
}

void core__custom_function_release_context(core_node *node)
{
    release_context(node->u.custom);
}

void core__custom_function_destroy(core_node *node)
{
    core__custom_function *custom = node->u.custom;

    if (!custom)
        return;
    release_context(custom);
    if (custom->recorded)
        atomic_fetch_sub(custom->recorded, 1);
    core__free(custom);
}

/* ------------------------------------------------------------- recording -- */

static bool is_among(const core_tensor *tensor, core_tensor *const *tensors,
                     size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i] == tensor)
            return true;
    return false;
}

static bool is_dirty(const core_function_info *info, const core_tensor *tensor)
{
    return is_among(tensor, info->dirty, info->ndirty);
}

static bool has_gradient(const core_function_info *info,
                         const core_tensor *output)
{
    return core__dtype_is_floating(output->dtype) &&
           !is_among(output, info->non_differentiable,
                     info->nnon_differentiable);
}

static core_status check_output(const core_function_info *info, size_t index,
                                core_tensor *const *outputs,
                                core_tensor *const *inputs, size_t ninputs)
{
    const core_tensor *output = outputs[index];
    const char *what = NULL;

    if (!core__dtype_is_floating(output->dtype))
        return CORE_OK; /* not differentiable */
    if (is_among(output, outputs, index))
        what =
            "is also an earlier output; each output must be a different tensor";
    else if (is_dirty(info, output))
        return CORE_OK; /* checked by check_dirty */
    else if (is_among(output, inputs, ninputs))
        what = "is one of its inputs; return a view of it, or mark it as dirty "
               "if it was changed in place";
    else if (core__tensor_needs_grad(output) ||
             output->flags & CORE__TENSOR_INFERENCE)
        what = "has a history or was created in inference mode; it must have "
               "neither";
    if (!what)
        return CORE_OK;
    return core__error(CORE_ERROR_AUTOGRAD,
                       "core_function_record: output %zu of %s %s", index,
                       info->name, what);
}

/* Inputs that were changed in place and are returned as outputs. */
static core_status check_dirty(const core_function_info *info,
                               core_tensor *const *inputs, size_t ninputs,
                               core_tensor *const *outputs, size_t noutputs)
{
    for (size_t i = 0; i < info->ndirty; i++) {
        const core_tensor *tensor = info->dirty[i];
        const char *what = NULL;

        if (!tensor || !is_among(tensor, inputs, ninputs))
            what = "is not one of its inputs";
        else if (!is_among(tensor, outputs, noutputs))
            what = "is not one of its outputs; a tensor that was changed in "
                   "place must be returned";
        else if (tensor->base && noutputs > 1)
            what = "is a view, which a function with several outputs cannot "
                   "change in place";
        else if (!has_gradient(info, tensor))
            what = "is marked as non-differentiable";
        if (what)
            return core__error(CORE_ERROR_AUTOGRAD,
                               "core_function_record: dirty tensor %zu of %s "
                               "%s",
                               i, info->name, what);
        CORE_TRY(core__in_place_check(info->name, tensor));
        CORE_TRY(core__view_check(info->name, tensor));
    }
    return CORE_OK;
}

static core_status check_lists(const core_function_info *info,
                               core_tensor *const *inputs, size_t ninputs,
                               size_t nsaved, core_tensor *const *saved,
                               core_tensor *const *outputs, size_t noutputs)
{
    if ((ninputs && !inputs) || (nsaved && !saved) || (noutputs && !outputs) ||
        (info->ndirty && !info->dirty) ||
        (info->nnon_differentiable && !info->non_differentiable))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_function_record: a list of tensors of %s is "
                           "NULL",
                           info->name);
    if (is_among(NULL, outputs, noutputs))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_function_record: an output of %s is NULL",
                           info->name);
    return CORE_OK;
}

/* Callers built against an older header pass a shorter struct. */
static core_status complete(const core_function_info *given,
                            core_function_info *info)
{
    const uint32_t known =
        CORE_FUNCTION_ONCE_DIFFERENTIABLE | CORE_FUNCTION_NO_ZEROS;
    size_t least = offsetof(core_function_info, dirty);

    if (!given)
        return core__error_null("core_function_record", "info");
    if (given->struct_size < least)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_function_record: struct_size is %u; it must be at least %zu",
            given->struct_size, least);
    memset(info, 0, sizeof *info);
    memcpy(info, given,
           given->struct_size < sizeof *info ? given->struct_size
                                             : sizeof *info);
    if (!info->name || !info->backward)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_function_record: info's %s is NULL",
                           info->name ? "backward" : "name");
    if (info->flags & ~known)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_function_record: %s has flags 0x%x; the "
                           "accepted ones are 0x%x",
                           info->name, info->flags, known);
    return CORE_OK;
}

static core_status make_custom(const core_function_info *info,
                               core__custom_function **out_custom)
{
    size_t length = strlen(info->name) + 1;
    core__custom_function *custom = core__alloc(sizeof *custom + length);

    *out_custom = custom;
    if (!custom)
        return core__error_memory(sizeof *custom + length);
    custom->backward = info->backward;
    custom->context = info->context;
    custom->release = NULL; /* until nothing can fail any more */
    custom->recorded = NULL;
    custom->flags = info->flags;
    memcpy(custom->name, info->name, length);
    return CORE_OK;
}

static core_status fill_saved(core_node *node, const core_function_info *info,
                              core_tensor *const *saved, size_t nsaved,
                              core_tensor *const *outputs, size_t noutputs)
{
    for (size_t i = 0; i < nsaved; i++) {
        size_t output = 0;

        if (!saved[i])
            continue;
        while (output < noutputs && outputs[output] != saved[i])
            output++;
        if (output < noutputs)
            CORE_TRY(core__saved_result(&node->saved[i], saved[i],
                                        (uint32_t)output,
                                        has_gradient(info, saved[i])));
        else
            CORE_TRY(core__saved_tensor(&node->saved[i], saved[i], NULL));
    }
    return CORE_OK;
}

static core_status make_node(const core_function_info *info,
                             core_tensor *const *inputs, size_t ninputs,
                             core_tensor *const *outputs, size_t noutputs,
                             size_t nsaved, core_node **out_node)
{
    core__custom_function *custom;
    core_node *node;
    int64_t *sizes;
    size_t dims = 0;

    for (size_t i = 0; i < noutputs; i++)
        dims += outputs[i]->ndim;
    CORE_TRY(make_custom(info, &custom));
    node =
        core__node_new((uint32_t)ninputs, (uint32_t)nsaved, (uint32_t)noutputs,
                       dims * sizeof *sizes, (void **)&sizes);
    *out_node = node;
    if (!node) {
        core__free(custom);
        return core__error_memory(sizeof *node);
    }
    node->kind = CORE__NODE_CUSTOM;
    node->u.custom = custom;
    node->name = custom->name;
    for (size_t i = 0; i < noutputs; i++) {
        memcpy(sizes, outputs[i]->sizes, outputs[i]->ndim * sizeof *sizes);
        core__tensor_meta_fill(&node->inputs[i], outputs[i], sizes);
        sizes += outputs[i]->ndim;
    }
    core__node_set_stream(node);
    if (core__thread_self()->anomaly)
        core__anomaly_note(node);
    for (size_t i = 0; i < ninputs; i++)
        if (inputs[i] && core__tensor_needs_grad(inputs[i]))
            CORE_TRY(core__gradient_edge(inputs[i], &node->edges[i]));
    return CORE_OK;
}

static bool any_wants_grad(core_tensor *const *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i] && core__tensor_needs_grad(tensors[i]))
            return true;
    return false;
}

/* Changed inputs become outputs of the node. */
static core_status attach_dirty(const core_function_info *info, core_node *node,
                                core_tensor *const *inputs,
                                core_tensor *const *outputs, size_t noutputs)
{
    for (size_t i = 0; i < noutputs; i++) {
        core_tensor *output = outputs[i];
        uint32_t edge = 0;

        if (!is_dirty(info, output) || !has_gradient(info, output))
            continue;
        while (inputs[edge] != output) /* it is one of them */
            edge++;
        core__node_retain(node);
        CORE_TRY(output->base
                     ? core__view_rebase(output, node, edge)
                     : core__history_replace(output, node, (uint32_t)i));
    }
    return CORE_OK;
}

/* It stays a view, but its history is the function's, not the base's. */
static core_status attach_fresh(core_tensor *output, core_node *node,
                                uint32_t number)
{
    core__node_retain(node);
    if (output->base) {
        output->flags &= (uint16_t)~CORE__TENSOR_VIEW_UNKNOWN;
        output->flags |= CORE__TENSOR_VIEW_FUNCTION;
    }
    return core__history_set(output, node, number);
}

/* Makes the outputs results of the node; views after their base, so that they
 * are up to date with it. */
static core_status attach(const core_function_info *info, core_node *node,
                          core_tensor *const *inputs,
                          core_tensor *const *outputs, size_t noutputs)
{
    CORE_TRY(attach_dirty(info, node, inputs, outputs, noutputs));
    for (size_t i = 0; i < noutputs; i++)
        if (!is_dirty(info, outputs[i]) && has_gradient(info, outputs[i]))
            CORE_TRY(attach_fresh(outputs[i], node, (uint32_t)i));
    return CORE_OK;
}

static core_status record(const core_function_info *info,
                          core_tensor *const *inputs, size_t ninputs,
                          core_tensor *const *saved, size_t nsaved,
                          core_tensor *const *outputs, size_t noutputs,
                          core_node **out_node)
{
    core_node *node = NULL;
    core_status status;

    status = check_dirty(info, inputs, ninputs, outputs, noutputs);
    for (size_t i = 0; i < noutputs && status == CORE_OK; i++)
        status = check_output(info, i, outputs, inputs, ninputs);
    if (status == CORE_OK)
        status =
            make_node(info, inputs, ninputs, outputs, noutputs, nsaved, &node);
    if (status == CORE_OK)
        status = fill_saved(node, info, saved, nsaved, outputs, noutputs);
    if (status == CORE_OK)
        status = attach(info, node, inputs, outputs, noutputs);
    if (status == CORE_OK) {
        *out_node = node;
        return CORE_OK;
    }
    if (node)
        node->released = true; /* outputs that are attached already cannot use
                                * it */
    core__node_release(node);
    return status;
}

core_status core__function_record(const core_function_info *given,
                                  _Atomic uint64_t *recorded,
                                  core_tensor *const *inputs, size_t ninputs,
                                  core_tensor *const *saved, size_t nsaved,
                                  core_tensor *const *outputs, size_t noutputs,
                                  core_node **out_node)
{
    core_node *node = NULL;
    core_function_info info;
    core_status status;

    if (out_node)
        *out_node = NULL;
    status = complete(given, &info);
    if (status == CORE_OK)
        status = check_lists(&info, inputs, ninputs, nsaved, saved, outputs,
                             noutputs);
    if (status == CORE_OK && !core__thread_self()->no_grad &&
        any_wants_grad(inputs, ninputs))
        status = record(&info, inputs, ninputs, saved, nsaved, outputs,
                        noutputs, &node);
    if (node) {
        node->u.custom->release = info.release;
        node->u.custom->recorded = recorded;
        if (recorded)
            atomic_fetch_add(recorded, 1);
        /* The outputs hold it, if any has a gradient. */
        if (out_node &&
            atomic_load_explicit(&node->references, memory_order_relaxed) > 1)
            *out_node = node;
        core__node_release(node);
    } else if (given &&
               given->struct_size >= offsetof(core_function_info, dirty) &&
               given->release) {
        given->release(given->context);
    }
    return status;
}

core_status core_function_record(const core_function_info *given,
                                 core_tensor *const *inputs, size_t ninputs,
                                 core_tensor *const *saved, size_t nsaved,
                                 core_tensor *const *outputs, size_t noutputs,
                                 core_node **out_node)
{
    return core__function_record(given, NULL, inputs, ninputs, saved, nsaved,
                                 outputs, noutputs, out_node);
}

/* -------------------------------------------------------------- backward -- */

/* The caller is a user of the node. */
static core_status saved_of(core_node *node, core__saved *saved,
                            core_tensor **out_tensor)
{
    bool history = !core__thread_self()->no_grad;
    core_tensor *temporaries[1];
    core_value value = {0};
    uint32_t count = 0;
    core_status status;

    if (saved->kind == CORE__SAVED_PACKED)
        return core__packed_unpack(node, saved, history, out_tensor);
    core__byte_lock(&node->lock);
    status =
        core__saved_unpack(node, saved, history, &value, temporaries, &count);
    if (status == CORE_OK && value.tag == CORE_VALUE_TENSOR) {
        *out_tensor = value.u.tensor;
        if (!count)
            core__tensor_retain(value.u.tensor);
    }
    core__byte_unlock(&node->lock);
    return status;
}

core_status core_node_saved(core_node *node, size_t index,
                            core_tensor **out_tensor)
{
    core_status status;

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(node);
    if (node->kind != CORE__NODE_CUSTOM)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_node_saved: %s is not a custom function; the "
                           "saved tensors of built-in nodes cannot be read",
                           node->name);
    if (index >= node->nsaved)
        return core__error(
            CORE_ERROR_INDEX,
            "core_node_saved: %s saved %u tensors; the index is %zu",
            node->name, node->nsaved, index);
    if (!core__node_begin_use(node))
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "core_node_saved: the saved tensors of %s were released after its "
            "backward; pass CORE_RETAIN_GRAPH to keep them",
            node->name);
    status = saved_of(node, &node->saved[index], out_tensor);
    core__node_end_use(node);
    return status;
}

bool core_node_needs_gradient(const core_node *node, size_t input)
{
    return node && input < node->nedges && node->edges[input].node;
}
