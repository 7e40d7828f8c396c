/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "autograd/accumulate.h"

#include "autograd/calls.h"
#include "autograd/hooks.h"
#include "base/memory.h"
#include "base/thread.h"

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
    core_tensor *copy;

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
    leaf->autograd->grad = copy;
    return CORE_OK;
}

core_status core__accumulate_run(core_node *node, core_tensor **grad)
{
    core_tensor *leaf = node->u.leaf;
    core__autograd *record = leaf->autograd;
    bool recording = !core__thread_self()->no_grad;
    core_tensor *sum = NULL;
    core_status status;

    /* Two backwards may meet at one leaf. */
    core__spin_lock(&node->lock);
    if (!record->grad) {
        status = first(leaf, grad, recording);
    } else if (!recording) {
        status = core__ag_add_to(record->grad, *grad);
    } else {
        status = core__ag_add(record->grad, *grad, &sum);
        if (status == CORE_OK) {
            core__tensor_release(record->grad);
            record->grad = sum;
        }
    }
    core__spin_unlock(&node->lock);
    if (status == CORE_OK && core__unlikely(record->hooks != NULL))
        status = core__hooks_run_accumulate(leaf);
    return status;
}
