/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A backward whose gradients are written into buckets and averaged. */

#include "comm/collective.h"
#include "comm/reducer.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/stream.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <string.h>

/* ------------------------------------------------------------- buckets -- */

core_status core__bucket_average(core_reducer *reducer, core__bucket *bucket)
{
    core_comm *comm = reducer->comm;

    if (!bucket->part)
        return core_all_reduce_(comm, bucket->memory, CORE_REDUCE_AVG);
    CORE_TRY(core__reduce_scatter_into(comm, "core_shard_backward",
                                       bucket->memory, CORE_REDUCE_AVG,
                                       bucket->part));
    if (reducer->frees) {
        core__tensor_release(bucket->memory);
        bucket->memory = NULL;
    }
    return core_all_reduce_(comm, bucket->present, CORE_REDUCE_AVG);
}

static core_status reduce_on_stream(core_reducer *reducer, core__bucket *bucket)
{
    core_stream *before = NULL;
    core_status status;

    if (bucket->written)
        CORE_TRY(core__stream_order(reducer->stream, bucket->written));
    CORE_TRY(core__stream_swap(reducer->stream, &before));
    status = core__bucket_average(reducer, bucket);
    core__stream_restore(before);
    return status;
}

/* With the lock held.  All ranks begin the buckets in the same order. */
static core_status begin_bucket(core_reducer *reducer)
{
    core__bucket *bucket = &reducer->buckets[reducer->begun++];

    reducer->counts.reduced++;
    if (reducer->stream)
        return reduce_on_stream(reducer, bucket);
    core__reducer_thread_begin(reducer);
    return CORE_OK;
}

/* With the lock held.  Gradients of a bucket may be written on several
 * streams. */
static core_status note_stream(core_reducer *reducer, core__bucket *bucket)
{
    core_stream *current;

    if (!reducer->stream)
        return CORE_OK;
    current = core__stream_current(reducer->comm->device);
    if (bucket->written == current)
        return CORE_OK;
    if (bucket->written)
        CORE_TRY(core__stream_order(reducer->stream, bucket->written));
    core_stream_release(bucket->written);
    bucket->written = core_stream_retain(current);
    return CORE_OK;
}

/* With the lock held. */
static core_status add_ready(core_reducer *reducer, core__reduced *item)
{
    core__bucket *bucket = &reducer->buckets[item->bucket];

    if (!reducer->measured)
        reducer->readiness[reducer->nready++] =
            (uint32_t)(item - reducer->parameters);
    CORE_TRY(note_stream(reducer, bucket));
    bucket->missing--;
    while (reducer->begun < reducer->nbuckets &&
           reducer->buckets[reducer->begun].missing == 0) {
        reducer->counts.early++;
        CORE_TRY(begin_bucket(reducer));
    }
    return CORE_OK;
}

core_status core__reducer_ready(core__reduced *item, bool in_place)
{
    core_reducer *reducer = item->reducer;
    core_status status = CORE_OK;

    pthread_mutex_lock(&reducer->lock);
    item->ready = true;
    if (in_place)
        reducer->counts.in_place++;
    else
        reducer->counts.copied++;
    if (reducer->averages)
        status = add_ready(reducer, item);
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

static core_status gradient_ready(void *context,
                                  core_gradient_destination *destination)
{
    return core__reducer_ready(context, destination->result ==
                                            CORE_DESTINATION_IN_PLACE);
}

/* ----------------------------------------------------------- beginning -- */

/* Brings the grad of a parameter, which the program may have replaced, into the
 * bucket. */
static core_status take_grad(core__reduced *item)
{
    core_tensor *grad = core_tensor_grad(item->parameter);

    item->ready = false;
    item->holds = grad != NULL;
    if (!grad || grad == item->view || item->reducer->frees)
        return CORE_OK;
    /* A copy of the view that the program has not changed. */
    if (grad == item->published && grad->dtype != item->view->dtype &&
        core__tensor_version(grad) == item->version)
        return CORE_OK;
    return core_copy_(item->view, grad, false);
}

/* A backward that fails must leave the gradients to which it adds. */
static core_status save_bucket(const core_reducer *reducer,
                               core__bucket *bucket)
{
    bool holds = false;

    for (uint32_t i = 0; i < bucket->count; i++)
        holds |= reducer->parameters[reducer->order[bucket->first + i]].holds;
    bucket->saved = false;
    if (!holds || reducer->averages || reducer->frees)
        return CORE_OK;
    if (!bucket->before)
        CORE_TRY(core__tensor_new_like(bucket->memory, bucket->memory->dtype,
                                       &bucket->before));
    CORE_TRY(core_copy_(bucket->before, bucket->memory, false));
    bucket->saved = true;
    return CORE_OK;
}

/* Keeps the error. */
static void restore_buckets(core_reducer *reducer)
{
    core__error_record error;

    core__error_save(&error);
    for (uint32_t b = 0; b < reducer->nbuckets; b++) {
        core__bucket *bucket = &reducer->buckets[b];

        if (bucket->saved)
            core_copy_(bucket->memory, bucket->before, false);
    }
    core__error_restore(&error);
}

static core_status begin_step(core_reducer *reducer)
{
    for (uint32_t b = 0; b < reducer->nbuckets; b++) {
        core__bucket *bucket = &reducer->buckets[b];

        bucket->missing = bucket->count;
        core_stream_release(bucket->written);
        bucket->written = NULL;
        /* The step before has left averages. */
        if (reducer->averages)
            CORE_TRY(core_fill_(bucket->present, core_float(1)));
        bucket->all_present = reducer->averages;
    }
    for (uint32_t i = 0; i < reducer->count; i++)
        CORE_TRY(take_grad(&reducer->parameters[i]));
    for (uint32_t b = 0; b < reducer->nbuckets; b++)
        CORE_TRY(save_bucket(reducer, &reducer->buckets[b]));
    return CORE_OK;
}

/* After the first step: the order that rank 0 measured. */
static core_status rebuild(core_reducer *reducer)
{
    size_t size = reducer->count * sizeof *reducer->order;

    if (!reducer->nbuckets ||
        memcmp(reducer->order, reducer->readiness, size) != 0) {
        memcpy(reducer->order, reducer->readiness, size);
        CORE_TRY(core__buckets_build(reducer));
    }
    reducer->rebuilt = true;
    return CORE_OK;
}

static core_status begin(core_reducer *reducer)
{
    bool grads = core_grad_mode_set(false);
    core_status status = CORE_OK;

    reducer->begun = 0;
    for (uint32_t b = 0; b < reducer->nbuckets; b++)
        reducer->buckets[b].saved = false;
    for (uint32_t i = 0; i < reducer->count; i++) {
        core__reduced *item = &reducer->parameters[i];

        item->ready = false;
        if (item->published != core_tensor_grad(item->parameter)) {
            core__tensor_release(item->published);
            item->published = NULL;
        }
    }
    if (reducer->measured && !reducer->rebuilt)
        status = rebuild(reducer);
    if (status == CORE_OK)
        status = begin_step(reducer);
    core_grad_mode_set(grads);
    return status;
}

/* *out_refused: an argument is wrong, and nothing has run. */
static core_status run_backward(core_reducer *reducer,
                                core_tensor *const *tensors, size_t count,
                                core_tensor *const *grads, uint32_t flags,
                                bool *out_refused)
{
    size_t used = 0;
    core_status status;

    if (reducer->frees)
        return core__reducer_backward_hooked(reducer, tensors, count, grads,
                                             flags, out_refused);
    for (uint32_t i = 0; i < reducer->count; i++) {
        core__reduced *item = &reducer->parameters[i];

        if (core_tensor_requires_grad(item->parameter))
            reducer->destinations[used++] = (core_gradient_destination){
                .struct_size = sizeof *reducer->destinations,
                .flags = item->holds ? CORE_DESTINATION_ACCUMULATE : 0,
                .input = item->parameter,
                .buffer = item->view,
                .result = CORE__DESTINATION_UNSEEN,
                .ready = gradient_ready,
                .context = item};
    }
    if (used == 0)
        status = core_backward(tensors, count, grads, flags);
    else
        status = core_backward_into(tensors, count, grads, flags,
                                    reducer->destinations, used);
    *out_refused =
        status != CORE_OK && (used == 0 || reducer->destinations[0].result ==
                                               CORE__DESTINATION_UNSEEN);
    return status;
}

/* ---------------------------------------------------------------- end -- */

/* What becomes the grad: the part of the bucket, or a copy in the parameter's
 * dtype. */
static core_status make_grad(const core__reduced *item, core_tensor **out_grad)
{
    if (item->view->dtype != item->parameter->dtype)
        return core_to_copy(item->view, item->parameter->dtype, NULL, false, -1,
                            out_grad);
    core__tensor_retain(item->view);
    *out_grad = item->view;
    return CORE_OK;
}

/* Takes the caller's reference. */
static core_status publish_grad(core__reduced *item, core_tensor *grad)
{
    core__tensor_release(item->published);
    item->published = grad;
    item->version = core__tensor_version(grad);
    if (core_tensor_grad(item->parameter) == grad)
        return CORE_OK;
    return core_tensor_set_grad(item->parameter, grad);
}

static core_status publish(core__reduced *item)
{
    core_tensor *grad;

    CORE_TRY(make_grad(item, &grad));
    return publish_grad(item, grad);
}

/* After an error no grad has changed. */
static core_status publish_local(core_reducer *reducer)
{
    size_t size = reducer->count * sizeof(core_tensor *);
    core_tensor **made;
    core_status status = CORE_OK;

    if (reducer->frees)
        return CORE_OK;
    made = core__alloc_zero(size);
    if (!made)
        return core__error_memory(size);
    for (uint32_t i = 0; status == CORE_OK && i < reducer->count; i++)
        if (reducer->parameters[i].ready)
            status = make_grad(&reducer->parameters[i], &made[i]);
    for (uint32_t i = 0; i < reducer->count; i++) {
        if (status == CORE_OK && made[i])
            status = publish_grad(&reducer->parameters[i], made[i]);
        else
            core__tensor_release(made[i]);
    }
    core__free(made);
    return status;
}

static bool is_absent(const core__reduced *item)
{
    return !item->ready && !item->holds;
}

/* Contributes zeros for the gradients that this rank does not have. */
static core_status fill_absent(core_reducer *reducer, core__bucket *bucket)
{
    if (reducer->frees)
        CORE_TRY(core__bucket_allocate(reducer, bucket));
    for (uint32_t i = 0; i < bucket->count; i++) {
        core__reduced *item =
            &reducer->parameters[reducer->order[bucket->first + i]];
        core_tensor *present;
        core_status status;

        if (reducer->frees && item->holds && !item->ready)
            CORE_TRY(core__reducer_move_grad(item));
        if (!is_absent(item))
            continue;
        bucket->all_present = false;
        if (item->view) /* other memory is zero */
            CORE_TRY(core_zero_(item->view));
        CORE_TRY(core_narrow(bucket->present, 0, i, 1, &present));
        status = core_zero_(present);
        core__tensor_release(present);
        CORE_TRY(status);
    }
    return CORE_OK;
}

/* The buckets that lack gradients, and those after them. */
static core_status begin_rest(core_reducer *reducer)
{
    core_status status = CORE_OK;

    pthread_mutex_lock(&reducer->lock);
    while (status == CORE_OK && reducer->begun < reducer->nbuckets) {
        core__bucket *bucket = &reducer->buckets[reducer->begun];

        status = fill_absent(reducer, bucket);
        if (status == CORE_OK)
            status = note_stream(reducer, bucket);
        if (status == CORE_OK)
            status = begin_bucket(reducer);
    }
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

static core_status wait_for_buckets(core_reducer *reducer)
{
    if (!reducer->stream) {
        uint64_t begin = core__reducer_now_ns();
        core_status status = core__reducer_thread_wait(reducer);

        reducer->counts.waited_ns += core__reducer_now_ns() - begin;
        return status;
    }
    CORE_TRY(core__stream_order(core__stream_current(reducer->comm->device),
                                reducer->stream));
    return core_comm_error(reducer->comm);
}

static core_status publish_item(core_reducer *reducer, core__reduced *item,
                                bool present)
{
    if (reducer->shard)
        return core__shard_publish(
            reducer->shard, (uint32_t)(item - reducer->parameters), present);
    return present ? publish(item) : CORE_OK;
}

/* Sets the grads that another rank has; *flags is memory for a bucket's. */
static core_status publish_incomplete(core_reducer *reducer,
                                      core__bucket *bucket, float *flags)
{
    core_tensor *read = NULL;
    core_status status;

    status = core_to_copy(bucket->present, CORE_F32, NULL, false, -1, &read);
    if (status == CORE_OK)
        status = core_tensor_read(read, flags, bucket->count * sizeof *flags);
    core__tensor_release(read);
    if (status == CORE_OK)
        status = core_comm_error(reducer->comm); /* the read waited for it */
    for (uint32_t i = 0; status == CORE_OK && i < bucket->count; i++) {
        core__reduced *item =
            &reducer->parameters[reducer->order[bucket->first + i]];

        status = publish_item(reducer, item, !is_absent(item) || flags[i] > 0);
    }
    return status;
}

static core_status publish_averages(core_reducer *reducer)
{
    float *flags = core__alloc(reducer->count * sizeof *flags);
    core_status status = CORE_OK;

    if (!flags)
        return core__error_memory(reducer->count * sizeof *flags);
    for (uint32_t b = 0; status == CORE_OK && b < reducer->nbuckets; b++) {
        core__bucket *bucket = &reducer->buckets[b];

        if (!bucket->all_present)
            status = publish_incomplete(reducer, bucket, flags);
        for (uint32_t i = 0;
             bucket->all_present && status == CORE_OK && i < bucket->count; i++)
            status = publish_item(
                reducer,
                &reducer->parameters[reducer->order[bucket->first + i]], true);
    }
    core__free(flags);
    return status;
}

/* Parameters without a gradient are last, in their order before. */
static void complete_order(const core_reducer *reducer, int64_t *order)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < reducer->nready; i++)
        order[at++] = reducer->readiness[i];
    for (uint32_t i = 0; i < reducer->count; i++)
        if (!reducer->parameters[reducer->order[i]].ready)
            order[at++] = reducer->order[i];
}

static core_status share_order(core_reducer *reducer)
{
    int64_t count = reducer->count;
    size_t size = (size_t)count * sizeof(int64_t);
    int64_t *order = core__alloc(size);
    core_tensor *sent = NULL;
    core_status status;

    if (!order)
        return core__error_memory(size);
    complete_order(reducer, order);
    status = core_tensor_from_data(order, CORE_I64, &count, 1,
                                   reducer->comm->device, &sent);
    if (status == CORE_OK)
        status = core_broadcast(reducer->comm, sent, 0);
    if (status == CORE_OK)
        status = core_tensor_read(sent, order, size);
    if (status == CORE_OK)
        status = core_comm_error(reducer->comm);
    for (uint32_t i = 0; status == CORE_OK && i < reducer->count; i++)
        reducer->readiness[i] = (uint32_t)order[i];
    reducer->measured = status == CORE_OK;
    core__tensor_release(sent);
    core__free(order);
    return status;
}

static core_status finish(core_reducer *reducer)
{
    CORE_TRY(begin_rest(reducer));
    CORE_TRY(wait_for_buckets(reducer));
    if (!reducer->measured)
        CORE_TRY(share_order(reducer));
    CORE_TRY(publish_averages(reducer));
    reducer->counts.steps++;
    return CORE_OK;
}

void core__reducer_cancel(core_reducer *reducer)
{
    core__error_record error;

    core__error_save(&error);
    if (reducer->thread)
        core__reducer_thread_wait(reducer);
    core__error_restore(&error);
    core__comm_report(reducer->comm);
    core__error_save(&error);
    core_comm_abort(reducer->comm);
    core__error_restore(&error);
}

/* -------------------------------------------------------------- public -- */

static core_status enter(core_reducer *reducer)
{
    core_status status = CORE_OK;

    CORE_TRY(core_comm_error(reducer->comm));
    pthread_mutex_lock(&reducer->lock);
    if (reducer->in_backward)
        status = core__error(CORE_ERROR_BUSY,
                             "core_reducer_backward: the reducer is in use by "
                             "another thread or by a backward around this one");
    else
        reducer->in_backward = true;
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

static void leave(core_reducer *reducer)
{
    pthread_mutex_lock(&reducer->lock);
    reducer->in_backward = false;
    pthread_mutex_unlock(&reducer->lock);
}

core_status core_reducer_cancel(core_reducer *reducer, core_status status,
                                const char *message)
{
    CORE__NOT_NULL(reducer);
    if (status == CORE_OK)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_reducer_cancel: the status is CORE_OK; it "
                           "must be an error");
    CORE_TRY(enter(reducer));
    core__error(status, "core_reducer_cancel: rank %u cancels the step%s%s",
                reducer->comm->rank, message ? ": " : "",
                message ? message : "");
    core__reducer_cancel(reducer);
    leave(reducer);
    return status;
}

static core_status step(core_reducer *reducer, core_tensor *const *tensors,
                        size_t count, core_tensor *const *grads, uint32_t flags)
{
    core_status status = begin(reducer);
    bool grad_mode, refused = false;

    if (status == CORE_OK && count > 0)
        status = run_backward(reducer, tensors, count, grads,
                              flags & CORE_RETAIN_GRAPH, &refused);
    grad_mode = core_grad_mode_set(false);
    if (status == CORE_OK)
        status = reducer->averages ? finish(reducer) : publish_local(reducer);
    if (status != CORE_OK && !refused) {
        if (reducer->averages)
            core__reducer_cancel(reducer);
        else
            restore_buckets(reducer);
    }
    core_grad_mode_set(grad_mode);
    return status;
}

core_status core_reducer_backward(core_reducer *reducer,
                                  core_tensor *const *tensors, size_t count,
                                  core_tensor *const *grads, uint32_t flags)
{
    const uint32_t known = CORE_RETAIN_GRAPH | CORE_REDUCER_NO_SYNC;
    core__lazy_pause pause;
    core_status status;

    CORE__NOT_NULL(reducer);
    if (flags & ~known)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_reducer_backward: flags are 0x%x; this call "
                           "accepts 0x%x",
                           flags, known);
    if (count > 0 && !tensors)
        return core__error_null(__func__, "tensors");
    CORE_TRY(core__thread_check_unrecorded(__func__));
    CORE_TRY(core__thread_pause(__func__, &pause));
    status = enter(reducer);
    if (status == CORE_OK) {
        reducer->averages = !(flags & CORE_REDUCER_NO_SYNC);
        if (!reducer->measured)
            reducer->nready = 0;
        status = step(reducer, tensors, count, grads, flags);
        leave(reducer);
    }
    core__thread_resume(&pause);
    return status;
}
