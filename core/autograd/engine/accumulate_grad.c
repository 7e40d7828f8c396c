/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* AccumulateGrad: adds gradients into leaves, one thread at a time. */

#include "autograd/engine/accumulate_grad.h"

#include "autograd/engine/destination.h"
#include "autograd/graph/autograd_ops.h"
#include "autograd/graph/gradient_order.h"
#include "autograd/graph/hooks.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/stream.h"

#include <libcore/memory.h>

#include <pthread.h>

/* The layout contract: a gradient has its tensor's strides if those are dense
 * and non-overlapping (dimensions of size 1 do not matter), else it is
 * row-major. */
static bool obeys_contract(const core_tensor *grad, const core_tensor *leaf)
{
    if (grad->flags & leaf->flags & CORE__TENSOR_CONTIGUOUS)
        return true;
    if (!(leaf->flags & CORE__TENSOR_DENSE))
        return grad->flags & CORE__TENSOR_CONTIGUOUS;
    for (uint32_t i = 0; i < leaf->ndim; i++)
        if (leaf->sizes[i] != 1 && grad->strides[i] != leaf->strides[i])
            return false;
    return true;
}

/* Whether no other tensor uses the gradient's memory: no other gradient, and
 * nothing that the caller passed.  Formulas may return several views of one
 * gradient, which two leaves would then share. */
static bool has_own_memory(const core_tensor *grad)
{
    uint32_t tensors;

    if (!grad->storage || grad->flags & CORE__TENSOR_PROGRAM_MEMORY)
        return true;
    tensors =
        atomic_load_explicit(&grad->storage->references, memory_order_acquire);
    return tensors == 1 || (tensors == 2 && grad->base &&
                            atomic_load_explicit(&grad->base->references,
                                                 memory_order_acquire) == 1);
}

/* out_old: the previous gradient, for the caller to release. */
static core_status set_first(core_tensor *leaf, core_tensor **grad,
                             bool recording, core_tensor **out_old)
{
    core_tensor *copy;

    /* Only the engine holds it: it is taken without a copy. */
    if (!recording &&
        atomic_load_explicit(&(*grad)->references, memory_order_acquire) == 1 &&
        (*grad)->flags & CORE__TENSOR_DENSE && obeys_contract(*grad, leaf) &&
        core__likely(has_own_memory(*grad))) {
        (*grad)->flags &= (uint16_t)~CORE__TENSOR_PROGRAM_MEMORY;
        leaf->autograd->grad = *grad;
        *grad = NULL;
        return CORE_OK;
    }
    CORE_TRY(core__autograd_op_copy_strided(
        *grad, leaf->flags & CORE__TENSOR_DENSE ? leaf->strides : NULL, &copy));
    *out_old = leaf->autograd->grad; /* set by a nested call; otherwise NULL */
    leaf->autograd->grad = copy;
    return CORE_OK;
}

static core_status add(core__autograd_meta *meta, core_tensor *grad,
                       bool recording, core_tensor **out_old)
{
    core_tensor *old = meta->grad, *sum;

    core__tensor_retain(old);
    *out_old = old;
    /* It may belong to another stream, and may be released while this one is
     * still adding to it. */
    if (core__unlikely(!old->device->synchronous))
        CORE_TRY(
            core_tensor_record_stream(old, core__stream_current(old->device)));
    if (!recording)
        return core__autograd_op_add_in_place(old, grad);
    CORE_TRY(core__autograd_op_add(old, grad, &sum));
    /* The leaf's own reference, unless a nested call changed it. */
    old = meta->grad;
    meta->grad = sum;
    core__tensor_release(old);
    return CORE_OK;
}

/* Takes ownership of *grad if it can. */
static core_status add_in_place(core_tensor *leaf, core_tensor **grad)
{
    bool recording = !core__thread_self()->no_grad;
    core_tensor *old = NULL;
    core_status status;

    if (!leaf->autograd->grad)
        status = set_first(leaf, grad, recording, &old);
    else
        status = add(leaf->autograd, *grad, recording, &old);
    core__tensor_release(old);
    return status;
}

static core_status accumulate(core_tensor *leaf, core_tensor **grad)
{
    core__autograd_meta *meta = leaf->autograd;
    core_status status;

    if (core__likely(leaf->device->synchronous))
        return add_in_place(leaf, grad);
    if (meta->grad && meta->written)
        CORE_TRY(core__gradient_order_wait(meta->written));
    status = add_in_place(leaf, grad);
    core__gradient_order_written(&meta->written, leaf->device);
    return status;
}

/* --------------------------------------------------------- serialization -- */

/* Two backwards may meet at one leaf.  Adding calls operators, which may run
 * program code, so no lock is held meanwhile: the leaf is marked busy, and
 * other threads wait.  But a thread that is itself inside an accumulation, into
 * this leaf or another, never waits: it leaves its gradient to the busy thread.
 * So a busy thread never waits for another one. */
typedef struct core__queued_gradient {
    struct core__queued_gradient *next;
    core_tensor *grad;   /* owned */
    core_stream *stream; /* the stream that made it; referenced, or NULL */
    uint64_t excluded;
    bool no_grad;
} core__queued_gradient;

typedef enum claim {
    CLAIMED,
    LEFT, /* left to the busy thread */
    TAKEN
} claim;

static pthread_mutex_t wait_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wait_change = PTHREAD_COND_INITIALIZER;
static _Atomic uint32_t waiting;

void core__accumulate_after_fork(void)
{
    pthread_mutex_init(&wait_lock, NULL);
    pthread_cond_init(&wait_change, NULL);
    atomic_store(&waiting, 0);
}

/* queued: queued if the leaf is busy; may be NULL. */
static claim try_claim(core__autograd_meta *meta, core__queued_gradient *queued)
{
    claim claim = TAKEN;

    core__byte_lock(&meta->lock);
    if (meta->busy != core__fork_mark) {
        if (meta->busy)
            meta->queued = NULL; /* left by the parent process before a fork */
        meta->busy = core__fork_mark;
        claim = CLAIMED;
    } else if (queued) {
        core__queued_gradient **end = &meta->queued;

        while (*end)
            end = &(*end)->next;
        *end = queued;
        claim = LEFT;
    }
    core__byte_unlock(&meta->lock);
    return claim;
}

static void wait_and_claim(core__autograd_meta *meta)
{
    pthread_mutex_lock(&wait_lock);
    atomic_fetch_add(&waiting, 1);
    while (try_claim(meta, NULL) != CLAIMED)
        pthread_cond_wait(&wait_change, &wait_lock);
    atomic_fetch_sub(&waiting, 1);
    pthread_mutex_unlock(&wait_lock);
}

/* Takes the next gradient that was left here; if there is none, clears busy and
 * returns NULL. */
static core__queued_gradient *next_queued(core__autograd_meta *meta)
{
    core__queued_gradient *queued;

    core__byte_lock(&meta->lock);
    queued = meta->queued;
    if (queued)
        meta->queued = queued->next;
    else
        meta->busy = 0;
    core__byte_unlock(&meta->lock);
    if (core__unlikely(!queued && atomic_load(&waiting))) {
        pthread_mutex_lock(&wait_lock);
        pthread_cond_broadcast(&wait_change);
        pthread_mutex_unlock(&wait_lock);
    }
    return queued;
}

/* Orders this thread's stream after the one that made the gradient. */
static core_status order_after_producer(core__queued_gradient *queued)
{
    if (!queued->stream)
        return CORE_OK;
    CORE_TRY(core__gradient_order_wait(queued->stream));
    return core_tensor_record_stream(
        queued->grad, core__stream_current(queued->grad->device));
}

static core_status accumulate_queued(core_tensor *leaf,
                                     core__queued_gradient *queued,
                                     core_status before)
{
    core__thread *self = core__thread_self();
    uint64_t excluded = self->excluded;
    bool no_grad = self->no_grad;
    core_status status = before;

    self->excluded = queued->excluded;
    self->no_grad = queued->no_grad;
    if (before == CORE_OK)
        status = order_after_producer(queued);
    if (status == CORE_OK)
        status = accumulate(leaf, &queued->grad);
    self->excluded = excluded;
    self->no_grad = no_grad;
    core__tensor_release(queued->grad);
    core_stream_release(queued->stream);
    core__free(queued);
    return status;
}

/* For a thread inside another accumulation. */
static core_status queue_or_claim(core_tensor *leaf, core_tensor **grad,
                                  claim *out_claim)
{
    core__thread *self = core__thread_self();
    core__queued_gradient *queued = core__alloc(sizeof *queued);

    if (!queued)
        return core__error_memory(sizeof *queued);
    *queued = (core__queued_gradient){NULL, *grad, NULL, self->excluded,
                                      self->no_grad};
    if (!leaf->device->synchronous) {
        queued->stream = core__stream_current(leaf->device);
        core_stream_retain(queued->stream);
    }
    *out_claim = try_claim(leaf->autograd, queued);
    if (*out_claim == LEFT) {
        *grad = NULL;
    } else {
        core_stream_release(queued->stream);
        core__free(queued);
    }
    return CORE_OK;
}

static core_status accumulate_serialized(core_tensor *leaf, core_tensor **grad,
                                         uint32_t *out_times)
{
    core__thread *self = core__thread_self();
    claim claim = TAKEN;
    core_status status;
    core__queued_gradient *queued;

    *out_times = 0;
    if (core__unlikely(self->accumulating)) {
        CORE_TRY(queue_or_claim(leaf, grad, &claim));
        if (claim == LEFT)
            return CORE_OK;
    } else if (core__unlikely(try_claim(leaf->autograd, NULL) != CLAIMED)) {
        wait_and_claim(leaf->autograd);
    }
    self->accumulating++;
    status = accumulate(leaf, grad);
    *out_times = 1;
    while (core__unlikely((queued = next_queued(leaf->autograd)) != NULL)) {
        status = accumulate_queued(leaf, queued, status);
        ++*out_times;
    }
    self->accumulating--;
    return status;
}

core_status core__accumulate_run(core__task *task, core_node *node,
                                 core_tensor **grad)
{
    core__destination *destination = NULL;
    core_tensor *leaf = node->u.leaf;
    uint32_t times = 1;
    core_status status;

    /* requires_grad was turned off since the forward. */
    if (core__unlikely(!core__tensor_requires_grad(leaf)))
        return CORE_OK;
    if (core__unlikely(task->destinations != NULL))
        destination = core__destination_of(task->destinations, node, 0);
    if (core__likely(!destination))
        status = accumulate_serialized(leaf, grad, &times);
    else
        status = *grad ? core__destination_write_gradient(destination, *grad)
                       : CORE_OK;
    /* Once per gradient that was added, with nothing locked. */
    while (status == CORE_OK && times-- > 0 &&
           core__unlikely(leaf->autograd->hooks != NULL))
        status = core__hooks_run_accumulate(leaf);
    if (core__unlikely(status == CORE_OK && destination))
        status = core__destination_ready(destination);
    return status;
}

core_status core__accumulate_record_stream(core_node *node, core_stream *stream)
{
    core_tensor *leaf = node->u.leaf;
    core_status status = CORE_OK;
    core__queued_gradient *queued;

    if (try_claim(leaf->autograd, NULL) != CLAIMED) {
        if (core__thread_self()->accumulating)
            return CORE_OK; /* the busy thread replaces the gradient anyway */
        wait_and_claim(leaf->autograd);
    }
    if (leaf->autograd->grad && leaf->autograd->grad->device == stream->device)
        status = core_tensor_record_stream(leaf->autograd->grad, stream);
    while ((queued = next_queued(leaf->autograd)) != NULL)
        status = accumulate_queued(leaf, queued, status);
    return status;
}
