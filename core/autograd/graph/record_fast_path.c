/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The fast path of recording.
 *
 * Most recorded calls are of structured operators with one result whose
 * formulas save only tensors and numbers.  Everything about them that is known
 * when their shortcut is created (core__gradient_has_fast_path) is not checked again.
 * The shortcut contains the kernel to call, so nothing is looked up between the
 * layers; since below there is only a kernel, autograd need not be excluded;
 * and a node has one input and one edge per argument.  All other calls take the
 * general path in layer.c and record_operator.c, which also explains the
 * steps. */

#include "autograd/graph/record_fast_path.h"

#include "autograd/graph/layer.h"
#include "autograd/graph/node_make.h"
#include "dispatch/dispatch.h"
#include "tensor/dtype.h"

#include <libcore/tensor.h>

#include <string.h>

bool core__gradient_has_fast_path(const core__gradient *gradient,
                                  uint32_t *out_saved_for)
{
    *out_saved_for = 0;
    if (!gradient || !gradient->backward)
        return false;
    for (uint32_t i = 0; i < gradient->nsaved; i++) {
        const core__saving *saving = &gradient->saved[i];

        if ((saving->kind != CORE__SAVE_ARGUMENT &&
             saving->kind != CORE__SAVE_RESULT &&
             saving->kind != CORE__SAVE_VALUE) ||
            saving->is_array)
            return false;
        *out_saved_for |= saving->needed_by;
    }
    return true;
}

/* The needed gradients as a mask; 0: none, or the general path must decide. */
static inline uint32_t needed_gradients(const core__gradient *gradient,
                                        const core_value *args)
{
    uint32_t needed = 0;

    for (uint32_t i = 0; i < gradient->ngradients; i++) {
        const core_value *arg = &args[gradient->arguments[i]];
        const core_tensor *tensor = arg->u.tensor;

        if (core__unlikely(arg->tag != CORE_VALUE_TENSOR) ||
            (core__unlikely(tensor->base != NULL) &&
             core__view_is_stale(tensor)))
            return 0;
        needed |= (uint32_t)core__tensor_requires_grad(tensor) << i;
    }
    return needed;
}

static inline core_status set_edges(core_node *node,
                                    const core__gradient *gradient,
                                    const core_value *args, uint32_t needed)
{
    static const uint16_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    core__edge *edges = node->edges;
    uint32_t nedges = node->nedges;

    memcpy(node->counts, ones, sizeof ones);
    for (uint32_t i = 0; i < nedges; i++)
        edges[i].node = NULL;
    for (uint32_t left = needed; left; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(left);
        core_tensor *tensor = args[gradient->arguments[i]].u.tensor;
        core__autograd_meta *meta = tensor->autograd;

        if (core__likely(meta && meta->grad_fn)) {
            core__node_retain(meta->grad_fn);
            edges[i].node = meta->grad_fn;
            edges[i].input = meta->output;
        } else {
            edges[i].input = 0;
            CORE_TRY(core__accumulator_of(tensor, &edges[i].node));
        }
    }
    return CORE_OK;
}

/* The slots are uninitialized. */
static inline core_status save(core_node *node, const core__gradient *gradient,
                               const core_value *args, core_tensor *result,
                               uint32_t needed)
{
    for (uint32_t i = 0; i < node->nsaved; i++)
        node->saved[i].kind = CORE__SAVED_NONE;
    for (uint32_t i = 0; i < node->nsaved; i++) {
        const core__saving *saving = &gradient->saved[i];
        const core_value *arg = &args[saving->position];
        core__saved *saved = &node->saved[i];

        if (!(saving->needed_by & needed))
            continue;
        if (saving->kind == CORE__SAVE_RESULT) {
            CORE_TRY(
                core__saved_result(saved, result, 0, gradient->results & 1));
        } else if (saving->kind == CORE__SAVE_VALUE) {
            saved->value = *arg;
            saved->kind = CORE__SAVED_VALUE;
        } else if (arg->tag == CORE_VALUE_TENSOR) {
            CORE_TRY(core__saved_tensor(saved, arg->u.tensor, NULL));
        }
    }
    return CORE_OK;
}

static inline core_status record(core__thread *self,
                                 const core__shortcut *shortcut,
                                 const core_value *args, uint32_t needed,
                                 core_tensor *result)
{
    const core__gradient *gradient = shortcut->gradient;
    /* None if no needed gradient has saved values. */
    uint32_t nsaved = shortcut->saved_for & needed ? gradient->nsaved : 0;
    uint32_t ndim = result->ndim;
    core_status status;
    core_node *node;
    int64_t *sizes;

    node = core__node_new_bare(self, gradient->ngradients, nsaved, 1,
                               ndim * sizeof *sizes, (void **)&sizes);
    if (core__unlikely(!node))
        return core__error_memory(sizeof *node);
    node->kind = CORE__NODE_OPERATOR;
    node->name = gradient->name;
    node->gradient = gradient;
    node->needed = needed;
    for (uint32_t i = 0; i < ndim; i++)
        sizes[i] = result->sizes[i];
    core__tensor_meta_fill(node->inputs, result, sizes);
    if (core__unlikely(!result->device->synchronous))
        core__node_set_stream_slow(node);
    status = set_edges(node, gradient, args, needed);
    if (core__unlikely(status != CORE_OK))
        node->nsaved = 0;
    else if (nsaved)
        status = save(node, gradient, args, result, needed);
    if (core__unlikely(status != CORE_OK)) {
        core__node_release(node);
        return status;
    }
    return core__history_set(result, node, 0);
}

static core_status __attribute__((cold, noinline))
failed(const core_call *call, core_value *results, core_status status)
{
    core__error_prefix("%s", core__operator_name(call->op));
    core_value_release(&results[0]);
    return status;
}

core_status core__autograd_layer_fast_path(core_call *call,
                                           const core_value *args,
                                           uint32_t nargs, core_value *results,
                                           uint32_t nresults)
{
    const core__shortcut *shortcut = call->user;
    const core__gradient *gradient = shortcut->gradient;
    core__thread *self = core__thread_self();
    uint32_t needed = 0;
    core_status status;

    if (core__likely(!self->no_grad && !self->anomaly && !self->saved_hooks &&
                     nresults == 1))
        needed = needed_gradients(gradient, args);
    if (core__unlikely(!needed))
        return core__autograd_layer(call, args, nargs, results, nresults);
    status = shortcut->below.function(
        (core_call *)(uintptr_t)&shortcut->below_call, args, nargs, results, 1);
    if (core__unlikely(status != CORE_OK ||
                       !core__dtype_is_floating(results[0].u.tensor->dtype)))
        return status;
    status = record(self, shortcut, args, needed, results[0].u.tensor);
    return core__likely(status == CORE_OK) ? CORE_OK
                                           : failed(call, results, status);
}
