/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What outlives a call: the workspace, which keeps the quantized weight between
 * microbatches, and the queue of delayed weight gradients. */

#include "base/error.h"
#include "base/memory.h"
#include "linear/linear.h"

#include <libcore/autograd.h>
#include <libcore/memory.h>
#include <libcore/ops.h>

#include <pthread.h>
#include <stdatomic.h>

/* Makes tensors of another stream usable on the current one: waits for that
 * stream, and keeps the allocator from reusing their memory too early. */
static core_status use_on_current_stream(core_stream *made_on,
                                         core_tensor *const *tensors,
                                         size_t count)
{
    core_stream *here;

    CORE_TRY(core_stream_current(core_stream_device(made_on), &here));
    if (here == made_on)
        return CORE_OK;
    CORE_TRY(core_stream_wait_stream(here, made_on));
    for (size_t i = 0; i < count; i++)
        if (tensors[i])
            CORE_TRY(core_tensor_record_stream(tensors[i], here));
    return CORE_OK;
}

/* -------------------------------------------------------------- workspace -- */

core_status core_linear_workspace_create(core_linear_workspace **out_workspace)
{
    CORE__NOT_NULL(out_workspace);
    *out_workspace = core__alloc_zero(sizeof **out_workspace);
    return *out_workspace ? CORE_OK
                          : core__error_memory(sizeof **out_workspace);
}

static void workspace_clear(core_linear_workspace *workspace)
{
    core_tensor_release(workspace->data);
    core_tensor_release(workspace->scales);
    core_tensor_release(workspace->weight);
    core_stream_release(workspace->stream);
    *workspace = (core_linear_workspace){0};
}

static core_linear_workspace workspace_retain(
    const core_linear_workspace *workspace)
{
    core__linear_retain(workspace->data);
    core__linear_retain(workspace->scales);
    core__linear_retain(workspace->weight);
    core_stream_retain(workspace->stream);
    return *workspace;
}

void core_linear_workspace_release(core_linear_workspace *workspace)
{
    if (!workspace)
        return;
    workspace_clear(workspace);
    core__free(workspace);
}

static core_status load_workspace(const core_linear_forward_args *args,
                                  core_tensor **out_data,
                                  core_tensor **out_scales)
{
    const core_linear_workspace *workspace = args->workspace;

    if (!workspace->data)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "linear: the workspace is empty; a call with "
                           "CORE_LINEAR_FIRST_MICROBATCH must fill it first");
    if (workspace->weight != args->weight ||
        workspace->version != core_tensor_version(args->weight))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "linear: the workspace holds another weight, or the "
                           "weight was changed since its first microbatch");
    CORE_TRY(use_on_current_stream(
        workspace->stream,
        (core_tensor *[]){workspace->data, workspace->scales}, 2));
    *out_data = core_tensor_retain(workspace->data);
    *out_scales = core_tensor_retain(workspace->scales);
    return CORE_OK;
}

core_status core__linear_quantized_weight(const core_linear_forward_args *args,
                                          core_tensor **out_data,
                                          core_tensor **out_scales)
{
    if (args->microbatch == CORE_LINEAR_LATER_MICROBATCH)
        return load_workspace(args, out_data, out_scales);
    return core_quantizer_quantize(args->weight_quantizer, args->weight,
                                   out_data, out_scales);
}

void core__linear_workspace_fill(const core_linear_forward_args *args,
                                 const core_linear_intermediates *made)
{
    core_linear_workspace *workspace = args->workspace;
    core_stream *stream;

    workspace_clear(workspace);
    /* The device was just used, so this cannot fail. */
    if (core_stream_current(core_tensor_device(args->weight), &stream))
        return;
    workspace->stream = core_stream_retain(stream);
    workspace->data = core_tensor_retain(made->weight_data);
    workspace->scales = core_tensor_retain(made->weight_scales);
    workspace->weight = core_tensor_retain(args->weight);
    workspace->version = core_tensor_version(args->weight);
}

void core__linear_mark_set(const core_linear_forward_args *args,
                           core__linear_mark *mark)
{
    core__quantizer_mark_set(args->input_quantizer, &mark->input);
    core__quantizer_mark_set(args->weight_quantizer, &mark->weight);
    mark->workspace = (core_linear_workspace){0};
    if (args->microbatch == CORE_LINEAR_FIRST_MICROBATCH)
        mark->workspace = workspace_retain(args->workspace);
}

void core__linear_mark_end(const core_linear_forward_args *args,
                           core__linear_mark *mark, bool done)
{
    if (!done) {
        core__quantizer_mark_restore(args->input_quantizer, &mark->input);
        core__quantizer_mark_restore(args->weight_quantizer, &mark->weight);
        if (args->microbatch == CORE_LINEAR_FIRST_MICROBATCH) {
            workspace_clear(args->workspace);
            *args->workspace = workspace_retain(&mark->workspace);
        }
    }
    core__quantizer_mark_drop(&mark->input);
    core__quantizer_mark_drop(&mark->weight);
    workspace_clear(&mark->workspace);
}

/* ------------------------------------------------------------------ queue -- */

typedef struct pending {
    struct pending *next;
    core_stream *stream; /* the stream that backward ran on; owned */
    core__linear_weight_gradient dw;
} pending;

/* The nodes of one backward run in a thread for each device. */
struct core_linear_wgrad_queue {
    atomic_uint references;
    pthread_mutex_t lock; /* protects what follows */
    pending *first;
    pending **end;
    size_t count;
};

core_status core_linear_wgrad_queue_create(core_linear_wgrad_queue **out_queue)
{
    core_linear_wgrad_queue *queue;

    CORE__NOT_NULL(out_queue);
    *out_queue = NULL;
    queue = core__alloc_zero(sizeof *queue);
    if (!queue)
        return core__error_memory(sizeof *queue);
    atomic_init(&queue->references, 1);
    pthread_mutex_init(&queue->lock, NULL);
    queue->end = &queue->first;
    *out_queue = queue;
    return CORE_OK;
}

core_linear_wgrad_queue *core__linear_wgrad_queue_retain(
    core_linear_wgrad_queue *queue)
{
    if (queue)
        atomic_fetch_add(&queue->references, 1);
    return queue;
}

/* Removes the oldest entry, which the caller then owns; NULL: there is none. */
static pending *pop_oldest(core_linear_wgrad_queue *queue)
{
    pending *first;

    pthread_mutex_lock(&queue->lock);
    first = queue->first;
    if (first) {
        queue->first = first->next;
        if (!queue->first)
            queue->end = &queue->first;
        queue->count--;
    }
    pthread_mutex_unlock(&queue->lock);
    return first;
}

/* Makes it the oldest again. */
static void push_oldest(core_linear_wgrad_queue *queue, pending *first)
{
    pthread_mutex_lock(&queue->lock);
    first->next = queue->first;
    if (!queue->first)
        queue->end = &first->next;
    queue->first = first;
    queue->count++;
    pthread_mutex_unlock(&queue->lock);
}

static void pending_release(pending *taken)
{
    core__linear_weight_gradient_release(&taken->dw);
    core_stream_release(taken->stream);
    core__free(taken);
}

void core_linear_wgrad_queue_release(core_linear_wgrad_queue *queue)
{
    pending *first;

    if (!queue || atomic_fetch_sub(&queue->references, 1) != 1)
        return;
    while ((first = pop_oldest(queue)))
        pending_release(first);
    pthread_mutex_destroy(&queue->lock);
    core__free(queue);
}

size_t core_linear_wgrad_queue_count(const core_linear_wgrad_queue *queue)
{
    core_linear_wgrad_queue *own = (core_linear_wgrad_queue *)queue;
    size_t count;

    if (!queue)
        return 0;
    pthread_mutex_lock(&own->lock);
    count = own->count;
    pthread_mutex_unlock(&own->lock);
    return count;
}

core_status core__linear_wgrad_queue_push(core_linear_wgrad_queue *queue,
                                          core__linear_weight_gradient *dw)
{
    pending *last = core__alloc_zero(sizeof *last);
    core_status status = last ? CORE_OK : core__error_memory(sizeof *last);
    core_stream *stream = NULL;

    if (status == CORE_OK)
        status = core_stream_current(core_tensor_device(dw->grad), &stream);
    if (status != CORE_OK) {
        core__linear_weight_gradient_release(dw);
        core__free(last);
        return status;
    }
    last->stream = core_stream_retain(stream);
    last->dw = *dw;
    pthread_mutex_lock(&queue->lock);
    *queue->end = last;
    queue->end = &last->next;
    queue->count++;
    pthread_mutex_unlock(&queue->lock);
    return CORE_OK;
}

static core_status add_to_grad(core_tensor *leaf, core_tensor *gradient)
{
    core_tensor *grad = core_tensor_grad(leaf), *cast = NULL;
    core_status status;

    if (grad)
        return core_add_(grad, gradient, core_int(1));
    CORE_TRY(core_to(gradient, core_tensor_dtype(leaf), NULL, false, false, -1,
                     &cast));
    status = core_tensor_set_grad(leaf, cast);
    core_tensor_release(cast);
    return status;
}

static core_status check_version(const char *name, core_tensor *tensor,
                                 uint32_t version)
{
    if (!tensor || core_tensor_version(tensor) == version)
        return CORE_OK;
    return core__error(CORE_ERROR_AUTOGRAD,
                       "linear: %s (%s, %u dimensions), which a delayed weight "
                       "gradient needs, was changed in place after the "
                       "backward: it is at version %u, not %u",
                       name, core_dtype_name(core_tensor_dtype(tensor)),
                       core_tensor_ndim(tensor), core_tensor_version(tensor),
                       version);
}

static core_status compute(const pending *first, core_tensor **out)
{
    const core__linear_weight_gradient *dw = &first->dw;
    core_status status;
    uint64_t region;

    CORE_TRY(check_version("the input", dw->input, dw->input_version));
    CORE_TRY(check_version("the gradient", dw->grad, dw->grad_version));
    CORE_TRY(use_on_current_stream(first->stream,
                                   (core_tensor *[]){dw->grad, dw->grad_scales,
                                                     dw->input, dw->input_data,
                                                     dw->input_scales},
                                   5));
    CORE_TRY(core__linear_autocast_disable(dw->grad, &region));
    status = core__linear_weight_gradient_compute(dw, out);
    core__linear_autocast_restore(region);
    return status;
}

core_status core_linear_backward_dw(core_linear_wgrad_queue *queue)
{
    core_tensor *gradient = NULL;
    core_status status;
    pending *first;
    bool before;

    CORE__NOT_NULL(queue);
    first = pop_oldest(queue);
    if (!first)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "core_linear_backward_dw: no weight gradient is "
                           "pending; each call needs a backward before it");
    before = core_grad_mode_set(false);
    status = compute(first, &gradient);
    if (status == CORE_OK && gradient)
        status = add_to_grad(first->dw.leaf, gradient);
    core_grad_mode_set(before);
    core_tensor_release(gradient);
    if (status == CORE_OK)
        pending_release(first);
    else
        push_oldest(queue, first);
    return status;
}
