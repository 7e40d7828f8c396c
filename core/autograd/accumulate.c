/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd/accumulate.h"

#include "autograd/calls.h"
#include "autograd/hooks.h"
#include "base/memory.h"
#include "base/thread.h"

#include <pthread.h>

core_status core__accumulate_new(core_tensor *leaf, core_node **out_node)
{
    core_node *node = core__node_new(0, 0, 1, 0, NULL);

    *out_node = node;
    if (core__unlikely(!node))
        return core__error_memory(sizeof *node);
    node->kind = CORE__NODE_ACCUMULATE;
    node->name = "accumulation of grad";
    node->sequence = CORE__SEQUENCE_ACCUMULATE;
    core__tensor_retain(leaf);
    node->u.leaf = leaf;
    /* The leaf outlives the node, and keeps its sizes. */
    core__meta_fill(node->inputs, leaf, leaf->sizes);
    return CORE_OK;
}

void core__accumulate_park(core_node *node)
{
    core_tensor *leaf = node->u.leaf;
    core__autograd *record = leaf->autograd;
    bool mine;

    if (core__unlikely(node->hooks != NULL))
        core__node_hooks_destroy(node);
    core__spin_lock(&record->lock);
    mine = record->accumulator == node;
    node->released = true;
    core__spin_unlock(&record->lock);
    if (core__unlikely(!mine))
        core__small_free(node, node->size);
    core__tensor_release(leaf);
}

/* The layout contract: a gradient has its tensor's strides where that is dense
 * and without overlap (sizes of 1 do not matter), else it is row-major. */
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

static core_status first(core_tensor *leaf, core_tensor **grad, bool recording)
{
    core_tensor *copy, *old;

    /* Nobody but the engine holds it: taken as it is. */
    if (!recording &&
        atomic_load_explicit(&(*grad)->references, memory_order_acquire) == 1 &&
        (*grad)->flags & CORE__TENSOR_DENSE && obeys_contract(*grad, leaf)) {
        leaf->autograd->grad = *grad;
        *grad = NULL;
        return CORE_OK;
    }
    CORE_TRY(core__ag_copy_as(
        *grad, leaf->flags & CORE__TENSOR_DENSE ? leaf->strides : NULL, &copy));
    old = leaf->autograd->grad; /* by a call from inside: NULL else */
    leaf->autograd->grad = copy;
    core__tensor_release(old);
    return CORE_OK;
}

/* Two backwards may meet at one leaf, and adding calls operators, which may be
 * the program's code: a lock to sleep on, that of the leaf's address.  The same
 * thread may come again, from inside. */
enum { LOCKS = 64 };

static pthread_mutex_t locks[LOCKS];
static pthread_once_t locks_once = PTHREAD_ONCE_INIT;

static void make_locks(void)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&locks[i], &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static pthread_mutex_t *lock_of(const core_tensor *leaf)
{
    uint64_t hash = (uintptr_t)leaf * UINT64_C(0x9e3779b97f4a7c15);

    pthread_once(&locks_once, make_locks);
    return &locks[hash >> 58];
}

/* *out_old: what the sum replaced or was added to, for the caller to drop. */
static core_status add(core__autograd *record, core_tensor *grad,
                       bool recording, core_tensor **out_old)
{
    core_tensor *old = record->grad, *sum;

    core__tensor_retain(old);
    *out_old = old;
    if (!recording)
        return core__ag_add_to(old, grad);
    CORE_TRY(core__ag_add(old, grad, &sum));
    /* The leaf's own reference, if nothing inside has changed it since. */
    old = record->grad;
    record->grad = sum;
    core__tensor_release(old);
    return CORE_OK;
}

core_status core__accumulate_run(core_node *node, core_tensor **grad)
{
    core_tensor *leaf = node->u.leaf;
    core__autograd *record = leaf->autograd;
    bool recording = !core__thread_self()->no_grad;
    pthread_mutex_t *lock = lock_of(leaf);
    core_tensor *old = NULL;
    core_status status;

    pthread_mutex_lock(lock);
    if (!record->grad)
        status = first(leaf, grad, recording);
    else
        status = add(record, *grad, recording, &old);
    pthread_mutex_unlock(lock);
    core__tensor_release(old);
    if (status == CORE_OK && core__unlikely(record->hooks != NULL))
        status = core__hooks_run_accumulate(leaf);
    return status;
}
