/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* History of bases and views after a change in place of a view. */

#include "autograd/graph/view.h"

#include "autograd/graph/anomaly.h"
#include "autograd/graph/autograd_ops.h"
#include "autograd/graph/hooks.h"
#include "autograd/graph/retain_grad.h"
#include "autograd/graph/validate.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/layout.h"

#include <string.h>

static size_t slices_size(const core_tensor *view)
{
    return sizeof(core__slices) +
           2 * ((size_t)view->ndim + view->base->ndim) * sizeof(int64_t);
}

/* One past the last element. */
static int64_t end_of(const core_tensor *tensor)
{
    int64_t last = tensor->offset;

    if (tensor->numel == 0)
        return last;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        last += (tensor->sizes[i] - 1) * tensor->strides[i];
    return last + 1;
}

static void slices_place(core__slices *slices, const core_tensor *view)
{
    const core_tensor *base = view->base;
    int64_t first = base->offset, end = end_of(base), view_end = end_of(view);

    slices->extent = 0;
    if (!(base->flags & CORE__TENSOR_DENSE) || view->offset < first ||
        view_end > end) {
        first = view->offset < first ? view->offset : first;
        slices->extent = (view_end > end ? view_end : end) - first;
    }
    slices->offset = view->offset - first;
    slices->base_offset = base->offset - first;
}

static core__slices *slices_new(const core_tensor *view, core_node *inner,
                                uint32_t self_edge)
{
    const core_tensor *base = view->base;
    core__slices *slices = core__alloc(slices_size(view));

    if (!slices)
        return NULL;
    slices->inner = inner;
    slices->self_edge = self_edge;
    slices->ndim = view->ndim;
    slices->base_ndim = base->ndim;
    slices->reserved = 0;
    slices_place(slices, view);
    slices->sizes = (int64_t *)(void *)(slices + 1);
    slices->strides = slices->sizes + view->ndim;
    slices->base_sizes = slices->strides + view->ndim;
    memcpy(slices->sizes, view->sizes, view->ndim * sizeof(int64_t));
    memcpy(slices->strides, view->strides, view->ndim * sizeof(int64_t));
    memcpy(slices->base_sizes, base->sizes, base->ndim * sizeof(int64_t));
    slices->base_strides = NULL;
    if (slices->extent || !(base->flags & CORE__TENSOR_CONTIGUOUS)) {
        slices->base_strides = slices->base_sizes + base->ndim;
        memcpy(slices->base_strides, base->strides,
               base->ndim * sizeof(int64_t));
    }
    return slices;
}

/* The base's new node: edge 0 leads to its previous history, followed by
 * inner's edges except for the view's own. */
static core_status slices_node(core_tensor *view, core_node *inner,
                               uint32_t self_edge, core_node **out_node)
{
    core_tensor *base = view->base;
    core__edge own;
    core_node *node;
    int64_t *sizes;
    core_status status = CORE_OK;

    *out_node = NULL;
    CORE_TRY(core__gradient_edge(base, &own));
    node = core__node_new(1 + inner->nedges, 0, 1, base->ndim * sizeof *sizes,
                          (void **)&sizes);
    if (!node) {
        core__node_release(own.node);
        return core__error_memory(sizeof *node);
    }
    node->kind = CORE__NODE_SLICES;
    node->name = inner->name;
    node->u.slices = NULL;
    if (core__thread_self()->anomaly)
        core__anomaly_note(node);
    node->edges[0] = own;
    for (uint32_t i = 0; i < inner->nedges; i++) {
        if (i == self_edge || !inner->edges[i].node)
            continue;
        node->edges[1 + i] = inner->edges[i];
        core__node_retain(inner->edges[i].node);
    }
    memcpy(sizes, base->sizes, base->ndim * sizeof *sizes);
    core__tensor_meta_fill(node->inputs, base, sizes);
    core__node_set_stream(node);
    node->u.slices = slices_new(view, inner, self_edge);
    if (node->u.slices) {
        core__node_retain(inner);
    } else {
        status = core__error_memory(sizeof(core__slices));
        core__node_release(node);
        node = NULL;
    }
    *out_node = node;
    return status;
}

core_status core__view_check(const char *name, const core_tensor *view)
{
    const core_tensor *base = view->base;

    if (!base)
        return CORE_OK;
    if (core__layout_overlaps_itself(base))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the base of the view has elements that share "
                           "memory, so a change in place cannot be recorded",
                           name);
    if (view->autograd && view->autograd->grad_fn &&
        !core__tensor_requires_grad(base))
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "%s: the view has a history, but its base was detached since, so a "
            "change in place would lose the gradient; clone the view first",
            name);
    return CORE_OK;
}

core_status core__view_rebase(core_tensor *view, core_node *node,
                              uint32_t self_edge)
{
    core_tensor *base = view->base;
    core_node *slices = NULL;
    core_status status = slices_node(view, node, self_edge, &slices);

    if (status == CORE_OK)
        status = core__history_replace(base, slices, 0);
    core__node_release(node);
    if (status != CORE_OK)
        return status;
    view->keys |= CORE__KEYS_REQUIRES_GRAD; /* stale; regenerated when used */
    /* A retained gradient belongs to the view as it is now. */
    if (view->autograd && view->autograd->retains_grad)
        return core__view_regenerate(view);
    return CORE_OK;
}

/* The history of a custom function's result is not derived from the base.  A
 * base that only became a leaf has not changed. */
static core_status keep_function(core_tensor *view)
{
    const core__autograd_meta *base = view->base->autograd;

    if (base->grad_fn)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "a view that a custom function returned cannot be "
                           "used after its base or another view of it was "
                           "changed in place; clone the function's result");
    if (view->autograd)
        view->autograd->generation = base->generation;
    return CORE_OK;
}

core_status core__view_regenerate(core_tensor *view)
{
    core__thread *self = core__thread_self();
    uint64_t excluded = self->excluded;
    bool no_grad = self->no_grad;
    core_tensor *again = NULL;
    core__autograd_meta *meta;
    core_status status;
    core_node *node;

    if (view->flags & CORE__TENSOR_VIEW_FUNCTION)
        return keep_function(view);
    self->excluded &= ~CORE__KEY_AUTOGRAD;
    self->no_grad = false;
    status = core__autograd_op_as_strided(view->base, view->ndim, view->sizes,
                                          view->strides, view->offset, &again);
    self->excluded = excluded;
    self->no_grad = no_grad;
    if (status != CORE_OK)
        return status;
    status = core__autograd_meta_of(view, &meta);
    if (status == CORE_OK) {
        node = again->autograd ? again->autograd->grad_fn : NULL;
        if (node)
            core__node_retain(node);
        if (meta->retains_grad)
            status = core__retain_grad_move(view, node, 0);
        core__node_release(meta->grad_fn);
        meta->grad_fn = node;
        meta->output = 0;
        meta->generation = view->base->autograd->generation;
        if (node)
            view->keys |= CORE__KEYS_REQUIRES_GRAD;
    }
    core__tensor_release(again);
    return status;
}

/* ---------------------------------------------------------------- running -- */

void core__slices_release_saved(core_node *node)
{
    core__node_release_saved(node->u.slices->inner);
}

void core__slices_destroy(core_node *node)
{
    if (!node->u.slices)
        return;
    core__node_release(node->u.slices->inner);
    core__free(node->u.slices);
}
