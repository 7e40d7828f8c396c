/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_backward, core_grad and their variants with destinations: turn tensors
 * into the roots and captures of a backward. */

#include "autograd/graph/autograd_ops.h"
#include "autograd/engine/destination.h"
#include "autograd/engine/engine.h"
#include "autograd/graph/validate.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ops/expression.h"
#include "ops/infer.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>

enum { INLINE_ROOTS = 8 };

typedef struct roots {
    const char *name; /* the public function */
    size_t count;
    core__edge *edges;
    core_tensor **grads;
    core__edge inline_edges[INLINE_ROOTS];
    core_tensor *inline_grads[INLINE_ROOTS];
} roots;

static core_status default_grad(const roots *roots, size_t index,
                                const core_tensor *tensor,
                                core_tensor **out_grad)
{
    char text[256];

    if (tensor->numel != 1)
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "%s: tensor %zu has sizes %s; a gradient may be left out only for "
            "tensors of one element",
            roots->name, index,
            core__sizes_text(tensor->ndim, tensor->sizes, text, sizeof text));
    return core__autograd_op_full(tensor->device, tensor->dtype, tensor->ndim,
                                  tensor->sizes, 1, out_grad);
}

static core_status root(roots *roots, size_t index, core_tensor *tensor,
                        core_tensor *grad)
{
    core__edge *edge = &roots->edges[index];
    core_tensor **out = &roots->grads[index];

    if (!tensor)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: tensor %zu is NULL", roots->name, index);
    if (!core__tensor_needs_grad(tensor) &&
        core__batched_held_needs_grad(tensor))
        return core__error(
            CORE_ERROR_AUTOGRAD,
            "%s: tensor %zu has a history outside of core_vmap "
            "only; inside, core_vjp differentiates by the inputs "
            "of a function, and core_backward adds to the grads "
            "of tensors outside",
            roots->name, index);
    if (!core__tensor_needs_grad(tensor))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s: tensor %zu does not require grad and is not "
                           "the result of a recorded operator",
                           roots->name, index);
    CORE_TRY(core__gradient_edge(tensor, edge));
    if (!grad)
        return default_grad(roots, index, tensor, out);
    core__tensor_retain(grad);
    *out = grad;
    if (grad->ndim == tensor->ndim &&
        memcmp(grad->sizes, tensor->sizes, grad->ndim * sizeof *grad->sizes) ==
            0)
        return core__gradient_validate(roots->name, (uint32_t)index,
                                       &edge->node->inputs[edge->input], out);
    {
        char given[200], expected[200];

        return core__error(
            CORE_ERROR_SHAPE,
            "%s: gradient %zu has sizes %s; it must have those of its tensor, "
            "%s",
            roots->name, index,
            core__sizes_text(grad->ndim, grad->sizes, given, sizeof given),
            core__sizes_text(tensor->ndim, tensor->sizes, expected,
                             sizeof expected));
    }
}

static void roots_end(roots *roots)
{
    for (size_t i = 0; i < roots->count; i++) {
        core__tensor_release(roots->grads[i]);
        core__node_release(roots->edges[i].node);
    }
    if (roots->edges != roots->inline_edges)
        core__free(roots->edges);
}

/* list: the name of the call's argument `tensors`. */
static core_status roots_begin(roots *roots, const char *name, const char *list,
                               core_tensor *const *tensors, size_t count,
                               core_tensor *const *grads)
{
    core_status status = CORE_OK;

    roots->name = name;
    roots->count = 0;
    roots->edges = roots->inline_edges;
    roots->grads = roots->inline_grads;
    if (count > 0 && !tensors)
        return core__error_null(name, list);
    if (count == 0)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: the number of tensors is 0; it must be at least 1", name);
    if (count > INLINE_ROOTS) {
        size_t size = sizeof *roots->edges + sizeof *roots->grads;

        roots->edges = core__alloc(count * size);
        if (!roots->edges) {
            roots->edges = roots->inline_edges;
            return core__error_memory(count * size);
        }
        roots->grads = (core_tensor **)(void *)(roots->edges + count);
    }
    while (roots->count < count && status == CORE_OK) {
        size_t i = roots->count++;

        roots->edges[i].node = NULL;
        roots->grads[i] = NULL;
        status = root(roots, i, tensors[i], grads ? grads[i] : NULL);
    }
    return status;
}

static core_status check_flags(const char *name, uint32_t flags, uint32_t known)
{
    if (flags & ~known)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: flags are 0x%x; this call accepts 0x%x", name,
                           flags, known);
    return CORE_OK;
}

static bool keeps_graph(uint32_t flags)
{
    return flags & (CORE_RETAIN_GRAPH | CORE_CREATE_GRAPH);
}

static core_status backward(core_tensor *const *tensors, size_t count,
                            core_tensor *const *grads, uint32_t flags)
{
    core_status status;
    roots roots;

    status =
        roots_begin(&roots, "core_backward", "tensors", tensors, count, grads);
    if (status == CORE_OK)
        status = core__engine_run(roots.edges, roots.grads, count,
                                  keeps_graph(flags), flags & CORE_CREATE_GRAPH,
                                  NULL, 0);
    roots_end(&roots);
    return status;
}

/* ------------------------------------------------------ inside core_vmap -- */

/* The gradient of what a batched tensor holds: that of every sample.  A tensor
 * that all samples share gets their sum. */
static core_status grad_of_held(core__scope *s, core_tensor *tensor,
                                core_tensor *grad, int64_t samples,
                                core_tensor **out)
{
    uint32_t dim = (uint32_t)tensor->batch_dim;
    bool mapped = core__batched_is_mapped(tensor);
    core_tensor *x = grad;

    if (!grad) {
        if (tensor->numel != 1)
            return core__error(CORE_ERROR_AUTOGRAD,
                               "core_backward: a gradient may be left out only "
                               "for tensors of one element");
        x = core__scope_add(s, core__autograd_op_full(
                                   tensor->device, tensor->dtype,
                                   tensor->held->ndim, tensor->held->sizes,
                                   mapped ? 1 : (double)samples, &s->pending));
        *out = x;
        return s->status;
    }
    if (core__tensor_is_batched(grad) && grad->level == tensor->level &&
        core__batched_is_mapped(grad)) {
        x = mapped
                ? CORE__DO(s, core_movedim, grad->held, grad->batch_dim, dim)
                : core__x_sum_dim(s, grad->held,
                                  &(const int64_t){grad->batch_dim}, 1, false);
    } else {
        x = core__tensor_is_batched(grad) && grad->level == tensor->level
                ? grad->held
                : grad;
        x = mapped ? CORE__DO(s, core_expand, core__x_unsqueeze(s, x, dim),
                              tensor->held->sizes, tensor->held->ndim, false)
                   : core__x_mul_scalar(s, x, (double)samples);
    }
    *out = x;
    return s->status;
}

/* A graph outside of core_vmap gets the sum of what the samples' backwards would
 * give it. */
static core_status backward_outside(core_tensor *tensor, core_tensor *grad,
                                    uint32_t flags)
{
    core__thread *self = core__thread_self();
    core__batching *batching = self->batching;
    core__batching_state before;
    core_tensor *held_grad = NULL;
    core_status status;
    core__scope scope;

    while (batching && batching->level != tensor->level)
        batching = batching->outer;
    if (!batching)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_backward: the tensor belongs to a call of "
                           "core_vmap which has returned");
    before = core__batching_leave(self, batching);
    core__scope_begin(&scope);
    status = grad_of_held(&scope, tensor, grad, batching->size, &held_grad);
    if (status == CORE_OK)
        status = core_backward(&tensor->held, 1, &held_grad, flags);
    if (scope.status == CORE_OK)
        core__scope_end(&scope);
    else
        status = core__scope_end(&scope);
    core__batching_return(self, before);
    return status;
}

static core_status backward_inside(core_tensor *const *tensors, size_t count,
                                   core_tensor *const *grads, uint32_t flags)
{
    bool any = false;

    for (size_t i = 0; i < count && !any; i++)
        any = tensors[i] && core__batched_held_needs_grad(tensors[i]);
    if (!any)
        return backward(tensors, count, grads, flags);
    for (size_t i = 0; i < count; i++) {
        core_tensor *grad = grads ? grads[i] : NULL;
        bool outside = tensors[i] && core__batched_held_needs_grad(tensors[i]);

        if (!outside || core__tensor_needs_grad(tensors[i]))
            CORE_TRY(backward(&tensors[i], 1, &grad,
                              flags | (i + 1 < count ? CORE_RETAIN_GRAPH : 0)));
        if (outside)
            CORE_TRY(backward_outside(
                tensors[i], grad,
                flags | (i + 1 < count ? CORE_RETAIN_GRAPH : 0)));
    }
    return CORE_OK;
}

core_status core_backward(core_tensor *const *tensors, size_t count,
                          core_tensor *const *grads, uint32_t flags)
{
    CORE_TRY(check_flags("core_backward", flags,
                         CORE_RETAIN_GRAPH | CORE_CREATE_GRAPH));
    if (core__unlikely(core__thread_self()->batching != NULL) && tensors)
        return backward_inside(tensors, count, grads, flags);
    return backward(tensors, count, grads, flags);
}

core_status core_backward_into(core_tensor *const *tensors, size_t count,
                               core_tensor *const *grads, uint32_t flags,
                               core_gradient_destination *destinations,
                               size_t ndestinations)
{
    core__destinations to = {0};
    core_status status;
    roots roots;

    CORE_TRY(check_flags("core_backward_into", flags, CORE_RETAIN_GRAPH));
    status = roots_begin(&roots, "core_backward_into", "tensors", tensors,
                         count, grads);
    if (status == CORE_OK)
        status = core__destinations_begin("core_backward_into", destinations,
                                          ndestinations, true, &to);
    if (status == CORE_OK) {
        core__thread_self()->destinations = &to;
        status = core__engine_run(roots.edges, roots.grads, count,
                                  keeps_graph(flags), false, NULL, 0);
    }
    roots_end(&roots);
    core__destinations_end(&to, status == CORE_OK);
    return status;
}

/* ------------------------------------------------------------- core_grad -- */

static core_status capture_of(core__gradient_capture *capture,
                              core_tensor *input, size_t index,
                              core_tensor **out, uint32_t flags)
{
    core__edge edge = {0};

    *capture = (core__gradient_capture){
        .out = out,
        .required_by = flags & CORE_ALLOW_UNUSED ? NULL : "core_grad"};
    if (!input)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_grad: input %zu is NULL", index);
    if (!core__tensor_needs_grad(input))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "core_grad: input %zu does not require grad", index);
    /* A leaf that is not in any graph has no node; none is created for it. */
    if (core__tensor_is_leaf(input)) {
        edge.node = core__accumulator_find(input);
    } else {
        CORE_TRY(core__gradient_edge(input, &edge));
    }
    capture->node = edge.node;
    capture->input = edge.input;
    return CORE_OK;
}

static core_status check_unused(core_tensor *const *out_grads, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!out_grads[i])
            return core__gradient_capture_missing("core_grad", i);
    return CORE_OK;
}

core_status core_grad(core_tensor *const *outputs, size_t noutputs,
                      core_tensor *const *grad_outputs,
                      core_tensor *const *inputs, size_t ninputs,
                      uint32_t flags, core_tensor **out_grads)
{
    core__gradient_capture *captures;
    core_status status;
    size_t used = 0;
    roots roots;

    for (size_t i = 0; out_grads && i < ninputs; i++)
        out_grads[i] = NULL;
    CORE_TRY(
        check_flags("core_grad", flags,
                    CORE_RETAIN_GRAPH | CORE_CREATE_GRAPH | CORE_ALLOW_UNUSED));
    if (ninputs > 0 && !inputs)
        return core__error_null("core_grad", "inputs");
    if (ninputs > 0 && !out_grads)
        return core__error_null("core_grad", "out_grads");
    if (ninputs == 0)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_grad: the number of inputs is 0; it must be at least 1");
    captures = core__alloc(ninputs * sizeof *captures);
    if (!captures)
        return core__error_memory(ninputs * sizeof *captures);
    status = roots_begin(&roots, "core_grad", "outputs", outputs, noutputs,
                         grad_outputs);
    while (status == CORE_OK && used < ninputs) {
        status = capture_of(&captures[used], inputs[used], used,
                            &out_grads[used], flags);
        used++;
    }
    if (status == CORE_OK)
        status = core__engine_run(roots.edges, roots.grads, noutputs,
                                  keeps_graph(flags), flags & CORE_CREATE_GRAPH,
                                  captures, ninputs);
    if (status == CORE_OK && !(flags & CORE_ALLOW_UNUSED))
        status = check_unused(out_grads, ninputs);
    for (size_t i = 0; i < used; i++)
        core__node_release(captures[i].node);
    core__free(captures);
    roots_end(&roots);
    for (size_t i = 0; i < ninputs && status != CORE_OK; i++) {
        core__tensor_release(out_grads[i]);
        out_grads[i] = NULL;
    }
    return status;
}

/* Puts captured gradients into the buffers; formulas wrote some of them there
 * already. */
static core_status put_captured(core__destinations *to, core_tensor **grads,
                                bool allow_unused)
{
    for (size_t i = 0; i < to->count; i++) {
        if (grads[i])
            CORE_TRY(core__destination_write_gradient(&to->items[i], grads[i]));
        else if (!to->items[i].touched && !allow_unused)
            return core__gradient_capture_missing("core_grad_into", i);
        CORE_TRY(core__destination_ready(&to->items[i]));
    }
    return CORE_OK;
}

static core_status grad_into(core__destinations *to, const roots *roots,
                             uint32_t flags)
{
    size_t size =
        to->count * (sizeof(core__gradient_capture) + sizeof(core_tensor *));
    core__gradient_capture *captures = core__alloc_zero(size);
    core__thread *self = core__thread_self();
    bool no_grad = self->no_grad;
    core_tensor **grads;
    core_status status;

    if (!captures)
        return core__error_memory(size);
    grads = (core_tensor **)(void *)(captures + to->count);
    for (size_t i = 0; i < to->count; i++)
        captures[i] = (core__gradient_capture){
            .node = to->items[i].node,
            .input = to->items[i].input,
            .out = &grads[i],
            .required_by = flags & CORE_ALLOW_UNUSED ? NULL : "core_grad_into"};
    self->destinations = to;
    status = core__engine_run(roots->edges, roots->grads, roots->count,
                              keeps_graph(flags), false, captures, to->count);
    self->no_grad = true;
    if (status == CORE_OK)
        status = put_captured(to, grads, flags & CORE_ALLOW_UNUSED);
    self->no_grad = no_grad;
    for (size_t i = 0; i < to->count; i++)
        core__tensor_release(grads[i]);
    core__free(captures);
    return status;
}

core_status core_grad_into(core_tensor *const *outputs, size_t noutputs,
                           core_tensor *const *grad_outputs, uint32_t flags,
                           core_gradient_destination *destinations,
                           size_t ndestinations)
{
    core__destinations to = {0};
    core_status status;
    roots roots;

    CORE_TRY(check_flags("core_grad_into", flags,
                         CORE_RETAIN_GRAPH | CORE_ALLOW_UNUSED));
    status = roots_begin(&roots, "core_grad_into", "outputs", outputs, noutputs,
                         grad_outputs);
    if (status == CORE_OK)
        status = core__destinations_begin("core_grad_into", destinations,
                                          ndestinations, false, &to);
    if (status == CORE_OK)
        status = grad_into(&to, &roots, flags);
    roots_end(&roots);
    core__destinations_end(&to, status == CORE_OK);
    return status;
}
