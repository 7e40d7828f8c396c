/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs the node of a base of which a view was changed in place. */

#include "autograd/engine/engine.h"
#include "autograd/graph/autograd_ops.h"
#include "autograd/graph/validate.h"
#include "autograd/graph/view.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/layout.h"

/* The gradient of the base, padded with zeros to the span of base and view, as
 * one dimension. */
static core_status pad_to_extent(const core__slices *slices, core_tensor *grad,
                                 core_tensor **out_grad)
{
    core_tensor *zeros;
    core_status status;

    *out_grad = NULL;
    CORE_TRY(core__autograd_op_full(grad->device, grad->dtype, 1,
                                    &slices->extent, 0, &zeros));
    status = core__autograd_op_as_strided_scatter(
        zeros, grad, slices->base_ndim, slices->base_sizes,
        slices->base_strides, slices->base_offset, out_grad);
    core__tensor_release(zeros);
    return status;
}

/* The gradient of the base in the base's own layout, so that the view's strides
 * apply to it. */
static core_status to_base_layout(const core__slices *slices, core_tensor *grad,
                                  core_tensor **out_grad)
{
    bool fits = true;

    if (slices->extent)
        return pad_to_extent(slices, grad, out_grad);
    if (slices->base_strides) {
        for (uint32_t i = 0; i < grad->ndim; i++)
            fits &= grad->strides[i] == slices->base_strides[i];
    } else {
        fits = grad->flags & CORE__TENSOR_CONTIGUOUS;
    }
    if (!fits)
        return core__autograd_op_copy_strided(grad, slices->base_strides,
                                              out_grad);
    core__tensor_retain(grad);
    *out_grad = grad;
    return CORE_OK;
}

static core_status run_inner(core__task *task, const core__slices *slices,
                             core_tensor *part, core_tensor **gradients)
{
    core_node *inner = slices->inner;
    core_tensor *grads[1] = {part};
    uint8_t inline_needed[16], *needed = inline_needed;
    core_status status;

    if (inner->nedges > sizeof inline_needed) {
        needed = core__alloc(inner->nedges);
        if (!needed)
            return core__error_memory(inner->nedges);
    }
    for (uint32_t i = 0; i < inner->nedges; i++)
        needed[i] = inner->edges[i].node != NULL;
    core__tensor_retain(part);
    status = core__node_apply(task, inner, grads, needed, gradients);
    core__tensor_release(grads[0]);
    if (needed != inline_needed)
        core__free(needed);
    return status;
}

/* gradients[0] is the base's; the others are inner's, shifted by one. */
static core_status run_in(core__task *task, const core__slices *slices,
                          core_tensor *grad, core_tensor **gradients)
{
    int64_t offset = grad->offset + slices->offset;
    core_tensor *part = NULL, *own = NULL;
    core_tensor **inner = gradients + 1;
    core_status status;

    CORE_TRY(core__autograd_op_as_strided(grad, slices->ndim, slices->sizes,
                                          slices->strides, offset, &part));
    status = run_inner(task, slices, part, inner);
    if (slices->self_edge != UINT32_MAX) {
        own = inner[slices->self_edge];
        inner[slices->self_edge] = NULL;
    }
    if (status == CORE_OK && own) {
        core__tensor_meta meta;

        core__tensor_meta_fill(&meta, part, part->sizes);
        status = core__gradient_validate(slices->inner->name, slices->self_edge,
                                         &meta, &own);
    } else if (status == CORE_OK) {
        status = core__autograd_op_full(part->device, part->dtype, part->ndim,
                                        part->sizes, 0, &own);
    }
    if (status == CORE_OK)
        status = core__autograd_op_as_strided_scatter(
            grad, own, slices->ndim, slices->sizes, slices->strides, offset,
            &gradients[0]);
    core__tensor_release(own);
    core__tensor_release(part);
    return status;
}

core_status core__slices_run(core_node *node, core_tensor *const *grads,
                             core_tensor **gradients)
{
    const core__slices *slices = node->u.slices;
    core__task *task = core__thread_self()->engine;
    core_tensor *grad;
    core_status status;

    CORE_TRY(to_base_layout(slices, grads[0], &grad));
    status = run_in(task, slices, grad, gradients);
    core__tensor_release(grad);
    if (status == CORE_OK && slices->extent) {
        core_tensor *all = gradients[0];

        status = core__autograd_op_as_strided(
            all, slices->base_ndim, slices->base_sizes, slices->base_strides,
            slices->base_offset, &gradients[0]);
        core__tensor_release(all);
    }
    return status;
}
