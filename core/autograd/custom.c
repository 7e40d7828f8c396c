/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd/custom.h"

#include "autograd/saved.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>

#include <string.h>

struct core__custom {
    core_status (*backward)(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients);
    void *context;
    void (*release)(void *context);
    char name[];
};

static void release_context(core__custom *custom)
{
    if (custom->release)
        custom->release(custom->context);
    custom->release = NULL;
    custom->context = NULL;
}

core_status core__custom_run(core_node *node, core_tensor *const *grads,
                             core_tensor **gradients)
{
    core__custom *custom = node->u.custom;
    uint32_t errors = core__thread_self()->error.sequence;
    core_status status = custom->backward(
        node, custom->context, grads, node->ninputs, gradients, node->nedges);

    /* It may give a code and leave no message; an older one is not its. */
    if (status != CORE_OK && (core__thread_self()->error.sequence == errors ||
                              core_error_code() != status))
        return core__error(status, "the function failed, and did not say why");
    return status;
}

void core__custom_released(core_node *node)
{
    release_context(node->u.custom);
}

void core__custom_destroy(core_node *node)
{
    core__custom *custom = node->u.custom;

    if (!custom)
        return;
    release_context(custom);
    core__free(custom);
}

/* -------------------------------------------------------------- recording -- */

static bool is_among(const core_tensor *tensor, core_tensor *const *tensors,
                     size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i] == tensor)
            return true;
    return false;
}

static core_status check_output(const char *name, size_t index,
                                core_tensor *const *outputs,
                                core_tensor *const *inputs, size_t ninputs)
{
    const core_tensor *output = outputs[index];
    const char *what = NULL;

    if (is_among(output, inputs, ninputs))
        what = "is one of its inputs; make a new tensor";
    else if (is_among(output, outputs, index))
        what = "is an earlier output too; each must be a tensor of its own";
    else if (output->base)
        what = "is a view of another tensor; make a new tensor";
    else if (!core__dtype_is_floating(output->dtype) ||
             core__wants_grad(output) || output->flags & CORE__TENSOR_INFERENCE)
        what = "must be floating, without history, and made outside of "
               "inference mode";
    if (!what)
        return CORE_OK;
    return core__error(CORE_ERROR_AUTOGRAD,
                       "core_function_record: output %zu of %s %s", index, name,
                       what);
}

static core_status check_arguments(const core_function_info *info,
                                   core_tensor *const *inputs, size_t ninputs,
                                   size_t nsaved, core_tensor *const *saved,
                                   core_tensor *const *outputs, size_t noutputs)
{
    if (!info || !info->name || !info->backward)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_function_record: info, its name or its "
                           "backward is NULL");
    if ((ninputs && !inputs) || (nsaved && !saved) || (noutputs && !outputs))
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

static core_status make_custom(const core_function_info *info,
                               core__custom **out_custom)
{
    size_t length = strlen(info->name) + 1;
    core__custom *custom = core__alloc(sizeof *custom + length);

    *out_custom = custom;
    if (!custom)
        return core__error_memory(sizeof *custom + length);
    custom->backward = info->backward;
    custom->context = info->context;
    custom->release = NULL; /* until nothing can fail any more */
    memcpy(custom->name, info->name, length);
    return CORE_OK;
}

static core_status fill_saved(core_node *node, core_tensor *const *saved,
                              size_t nsaved, core_tensor *const *outputs,
                              size_t noutputs)
{
    for (size_t i = 0; i < nsaved; i++) {
        size_t output = 0;

        if (!saved[i])
            continue;
        while (output < noutputs && outputs[output] != saved[i])
            output++;
        if (output < noutputs)
            CORE_TRY(core__saved_result(&node->saved[i], saved[i],
                                        (uint32_t)output, true));
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
    core__custom *custom;
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
        core__meta_fill(&node->inputs[i], outputs[i], sizes);
        sizes += outputs[i]->ndim;
    }
    for (size_t i = 0; i < ninputs; i++)
        if (inputs[i] && core__wants_grad(inputs[i]))
            CORE_TRY(core__gradient_edge(inputs[i], &node->edges[i]));
    return CORE_OK;
}

static bool any_wants_grad(core_tensor *const *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tensors[i] && core__wants_grad(tensors[i]))
            return true;
    return false;
}

core_status core_function_record(const core_function_info *info,
                                 core_tensor *const *inputs, size_t ninputs,
                                 core_tensor *const *saved, size_t nsaved,
                                 core_tensor *const *outputs, size_t noutputs,
                                 core_node **out_node)
{
    core_node *node = NULL;
    core_status status = CORE_OK;

    if (out_node)
        *out_node = NULL;
    status = check_arguments(info, inputs, ninputs, nsaved, saved, outputs,
                             noutputs);
    if (status != CORE_OK || core__thread_self()->no_grad ||
        !any_wants_grad(inputs, ninputs))
        goto done;
    for (size_t i = 0; i < noutputs && status == CORE_OK; i++)
        status = check_output(info->name, i, outputs, inputs, ninputs);
    if (status == CORE_OK)
        status =
            make_node(info, inputs, ninputs, outputs, noutputs, nsaved, &node);
    if (status == CORE_OK)
        status = fill_saved(node, saved, nsaved, outputs, noutputs);
    for (size_t i = 0; i < noutputs && status == CORE_OK; i++) {
        core__node_retain(node);
        status = core__history_set(outputs[i], node, (uint32_t)i);
    }
    if (status == CORE_OK) {
        node->u.custom->release = info->release;
        if (out_node && noutputs)
            *out_node = node;
        core__node_release(node);
        return CORE_OK;
    }
    if (node)
        node->released = true; /* outputs that have it already cannot use it */
    core__node_release(node);
done:
    if (info && info->release)
        info->release(info->context);
    return status;
}

/* -------------------------------------------------------------- in backward -- */

core_status core_node_saved(core_node *node, size_t index,
                            core_tensor **out_tensor)
{
    core_tensor *temporaries[1];
    core_value value = {0};
    uint32_t count = 0;
    core_status status;

    *out_tensor = NULL;
    if (index >= node->nsaved)
        return core__error(CORE_ERROR_INDEX,
                           "core_node_saved: %s saved %u tensors; there is no "
                           "number %zu",
                           node->name, node->nsaved, index);
    core__spin_lock(&node->lock);
    if (node->released)
        status = core__error(CORE_ERROR_AUTOGRAD,
                             "core_node_saved: what %s saved was released "
                             "after its backward; it can be differentiated "
                             "once, or keep the graph with CORE_RETAIN_GRAPH",
                             node->name);
    else
        status = core__saved_unpack(node, &node->saved[index],
                                    !core__thread_self()->no_grad, &value,
                                    temporaries, &count);
    if (status == CORE_OK && value.tag == CORE_VALUE_TENSOR) {
        *out_tensor = value.u.tensor;
        if (!count)
            core__tensor_retain(value.u.tensor);
    }
    core__spin_unlock(&node->lock);
    return status;
}

bool core_node_needs_gradient(const core_node *node, size_t input)
{
    return input < node->nedges && node->edges[input].node;
}
