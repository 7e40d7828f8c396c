/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients of which a rank keeps its part: hooks move the grad of each
 * parameter into its bucket, which has memory until it is averaged. */

#include "comm/reducer.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

/* ------------------------------------------------------------- arrival -- */

core_status core__reducer_move_grad(core__reduced *item)
{
    core_tensor *grad = core_tensor_grad(item->parameter), *view;
    core_status status;

    CORE_TRY(
        core__bucket_view(&item->reducer->buckets[item->bucket], item, &view));
    status = core_copy_(view, grad, false);
    core__tensor_release(view);
    CORE_TRY(status);
    return core_tensor_set_grad(item->parameter, NULL);
}

/* Whether the running backward averages; then the bucket has memory. */
static core_status begin(core__reduced *item, bool *out_averages)
{
    core_reducer *reducer = item->reducer;
    core_status status = CORE_OK;

    pthread_mutex_lock(&reducer->lock);
    *out_averages = reducer->in_backward && reducer->averages;
    if (*out_averages && item->ready)
        status = core__error(CORE_ERROR_UNSUPPORTED,
                             "core_shard_backward: parameter %zu gets several "
                             "gradients in one backward, which "
                             "CORE_SHARD_GRADIENTS does not support",
                             (size_t)(item - reducer->parameters));
    else if (*out_averages)
        status =
            core__bucket_allocate(reducer, &reducer->buckets[item->bucket]);
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

/* After the grad of a parameter was updated. */
static core_status arrive(void *context, core_tensor *leaf)
{
    core__reduced *item = context;
    bool grads, averages;
    core_status status;

    CORE_TRY(begin(item, &averages));
    if (!averages || !core_tensor_grad(leaf))
        return CORE_OK;
    grads = core_grad_mode_set(false);
    status = core__reducer_move_grad(item);
    core_grad_mode_set(grads);
    CORE_TRY(status);
    return core__reducer_ready(item, false);
}

/* --------------------------------------------------------------- hooks -- */

core_status core__reducer_hook(core_reducer *reducer)
{
    core_device *device = reducer->comm->device;

    CORE_TRY(core_zeros(NULL, 0, CORE_F32, device, &reducer->probe));
    CORE_TRY(core_zeros(NULL, 0, CORE_F32, device, &reducer->probed));
    CORE_TRY(core_tensor_set_requires_grad(reducer->probe, true));
    for (uint32_t i = 0; i < reducer->count; i++)
        CORE_TRY(core_tensor_register_accumulate_hook(
            reducer->parameters[i].parameter, arrive, &reducer->parameters[i],
            NULL, &reducer->parameters[i].hook));
    return CORE_OK;
}

void core__reducer_unhook(core_reducer *reducer)
{
    for (uint32_t i = 0; i < reducer->count; i++)
        core_hook_remove(reducer->parameters[i].hook);
    core__tensor_release(reducer->probe);
    core__tensor_release(reducer->probed);
}

/* ------------------------------------------------------------ backward -- */

/* The probe is not part of the graph; its destination shows whether the
 * arguments were accepted. */
core_status core__reducer_backward_hooked(core_reducer *reducer,
                                          core_tensor *const *tensors,
                                          size_t count,
                                          core_tensor *const *grads,
                                          uint32_t flags, bool *out_refused)
{
    core_gradient_destination probe = {.struct_size = sizeof probe,
                                       .input = reducer->probe,
                                       .buffer = reducer->probed,
                                       .result = CORE__DESTINATION_UNSEEN};
    core_status status =
        core_backward_into(tensors, count, grads, flags, &probe, 1);

    *out_refused =
        status != CORE_OK && probe.result == CORE__DESTINATION_UNSEEN;
    return status;
}
