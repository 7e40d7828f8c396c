/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Public queries and changes of a tensor's or node's place in the graph:
 * requires_grad, grad, grad_fn, edges. */

#include "autograd/graph/node.h"
#include "autograd/graph/autograd_meta.h"
#include "autograd/graph/retain_grad.h"
#include "device/device.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>

#include <string.h>

core_status core_tensor_set_requires_grad(core_tensor *tensor,
                                          bool requires_grad)
{
    core__autograd_meta *meta;

    if (!tensor)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_tensor_set_requires_grad: the tensor is NULL");
    if (!core__tensor_is_leaf(tensor)) {
        if (requires_grad)
            return CORE_OK;
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "core_tensor_set_requires_grad: the tensor is the result of a "
            "recorded operator, which always requires grad; use core_detach "
            "for a tensor that does not");
    }
    if (!requires_grad) {
        tensor->keys &= ~CORE__KEYS_REQUIRES_GRAD;
        return CORE_OK;
    }
    if (!core__dtype_is_floating(tensor->dtype))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "core_tensor_set_requires_grad: the tensor is %s; "
                           "only floating tensors can require grad",
                           core__dtype_name(tensor->dtype));
    if (tensor->flags & CORE__TENSOR_INFERENCE)
        return core__error(CORE_ERROR_AUTOGRAD,
                           "core_tensor_set_requires_grad: the tensor was "
                           "created in inference mode and cannot require grad; "
                           "clone it in normal mode first");
    /* Created now, since threads may share the leaf later. */
    CORE_TRY(core__autograd_meta_of(tensor, &meta));
    if (meta->retains_grad)
        core__retain_grad_stop(tensor); /* its grad is now that of a leaf */
    /* Views created before (they hold a reference) are now views of a leaf, and
     * notice it when they are used. */
    if (!tensor->base && !core__tensor_requires_grad(tensor) &&
        tensor->references > 1)
        meta->generation++;
    tensor->keys |= CORE__KEYS_REQUIRES_GRAD;
    return CORE_OK;
}

bool core_tensor_requires_grad(const core_tensor *tensor)
{
    return tensor && core__tensor_needs_grad(tensor);
}

bool core_tensor_is_leaf(const core_tensor *tensor)
{
    return tensor && core__tensor_is_leaf(tensor);
}

core_tensor *core_tensor_grad(const core_tensor *tensor)
{
    return tensor && tensor->autograd ? tensor->autograd->grad : NULL;
}

static core_status check_grad(const core_tensor *tensor,
                              const core_tensor *grad)
{
    char given[256], expected[256];

    if (grad->device != tensor->device)
        return core__error(
            CORE_ERROR_DEVICE,
            "core_tensor_set_grad: the gradient is on \"%s\" and the tensor on "
            "\"%s\"; they must be on the same device",
            grad->device->name, tensor->device->name);
    if (grad->dtype != tensor->dtype)
        return core__error(CORE_ERROR_DTYPE,
                           "core_tensor_set_grad: the gradient is %s and the "
                           "tensor %s; they must have the same dtype",
                           core__dtype_name(grad->dtype),
                           core__dtype_name(tensor->dtype));
    if (grad->ndim != tensor->ndim ||
        memcmp(grad->sizes, tensor->sizes,
               tensor->ndim * sizeof *tensor->sizes) != 0)
        return core__error(
            CORE_ERROR_SHAPE,
            "core_tensor_set_grad: the gradient has sizes %s; it must have "
            "those of the tensor, %s",
            core__sizes_text(grad->ndim, grad->sizes, given, sizeof given),
            core__sizes_text(tensor->ndim, tensor->sizes, expected,
                             sizeof expected));
    return core__tensor_check_not_lost("core_tensor_set_grad", grad);
}

core_status core_tensor_set_grad(core_tensor *tensor, core_tensor *grad)
{
    core__autograd_meta *meta;
    core_stream *written;
    core_tensor *old;

    if (!tensor)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_tensor_set_grad: the tensor is NULL");
    if (!grad && !tensor->autograd)
        return CORE_OK;
    if (grad == tensor)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_tensor_set_grad: a tensor cannot be its own "
                           "gradient");
    if (grad)
        CORE_TRY(check_grad(tensor, grad));
    CORE_TRY(core__autograd_meta_of(tensor, &meta));
    old = meta->grad;
    if (grad)
        core__tensor_retain(grad);
    meta->grad = grad;
    written = meta->written;
    meta->written = NULL;
    core__tensor_release(old);
    core_stream_release(written);
    return CORE_OK;
}

core_node *core_tensor_grad_fn(core_tensor *tensor)
{
    core__edge edge;

    if (!tensor || core__tensor_is_leaf(tensor) ||
        core__gradient_edge(tensor, &edge) != CORE_OK || !edge.node)
        return NULL;
    core__node_release(edge.node); /* the tensor holds it */
    return edge.node;
}

uint32_t core_tensor_output_index(const core_tensor *tensor)
{
    return tensor && tensor->autograd ? tensor->autograd->output : 0;
}

/* ------------------------------------------------------------------ nodes -- */

core_node *core_node_retain(core_node *node)
{
    if (node)
        core__node_retain(node);
    return node;
}

void core_node_release(core_node *node)
{
    core__node_release(node);
}

const char *core_node_name(const core_node *node)
{
    return node ? node->name : "";
}

size_t core_node_edge_count(const core_node *node)
{
    return node ? node->nedges : 0;
}

core_node *core_node_edge(const core_node *node, size_t index,
                          uint32_t *out_input)
{
    if (out_input)
        *out_input = 0;
    if (!node || index >= node->nedges)
        return NULL;
    if (out_input)
        *out_input = node->edges[index].input;
    return node->edges[index].node;
}
