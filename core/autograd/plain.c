/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Recording, the short way.
 *
 * Most calls that are recorded are of structured operators with one result,
 * whose formulas keep tensors and numbers.  What is known of them when their
 * shortcut is made (core__plain_gradient) is not asked again: where they
 * compute is in the shortcut, so that nothing is looked up between the layers;
 * below there is only a kernel, which no exclusion of autograd could matter to;
 * and a node has one input, and an edge for each argument.  A call that is not
 * so goes through layer.c and record_operator.c, which say how all of it is
 * meant. */

#include "autograd/plain.h"

#include "autograd/layer.h"
#include "autograd/node_make.h"
#include "dispatch/dispatch.h"
#include "tensor/dtype.h"

#include <libcore/tensor.h>

bool core__plain_gradient(const core__gradient *gradient)
{
    if (!gradient || !gradient->backward)
        return false;
    for (uint32_t i = 0; i < gradient->nsaved; i++)
        if (gradient->saved[i].kind != CORE__SAVE_ARGUMENT &&
            gradient->saved[i].kind != CORE__SAVE_RESULT &&
            gradient->saved[i].kind != CORE__SAVE_VALUE)
            return false;
    return true;
}

/* Which gradients are wanted; 0 where it takes a closer look. */
static inline uint32_t wanted_of(const core__gradient *gradient,
                                 const core_value *args)
{
    uint32_t wanted = 0;

    for (uint32_t i = 0; i < gradient->ngradients; i++) {
        const core_value *arg = &args[gradient->arguments[i]];
        const core_tensor *tensor = arg->u.tensor;

        if (core__unlikely(arg->tag != CORE_VALUE_TENSOR) ||
            (core__unlikely(tensor->base != NULL) &&
             core__view_is_stale(tensor)))
            return 0;
        wanted |= (uint32_t)core__tensor_requires_grad(tensor) << i;
    }
    return wanted;
}

static inline core_status edges(core_node *node, const core__gradient *gradient,
                                const core_value *args, uint32_t wanted)
{
    for (uint32_t i = 0; i < gradient->ngradients; i++) {
        core_tensor *tensor = args[gradient->arguments[i]].u.tensor;
        core__autograd *record = tensor->autograd;
        core__edge *edge = &node->edges[i];

        node->counts[i] = 1;
        if (!(wanted >> i & 1))
            continue;
        edge->input = 0;
        if (core__likely(record && record->grad_fn)) {
            core__node_retain(record->grad_fn);
            edge->node = record->grad_fn;
            edge->input = record->output;
        } else {
            CORE_TRY(core__accumulator(tensor, &edge->node));
        }
    }
    return CORE_OK;
}

static inline core_status save(core_node *node, const core__gradient *gradient,
                               const core_value *args, core_tensor *result,
                               uint32_t wanted)
{
    for (uint32_t i = 0; i < gradient->nsaved; i++) {
        const core__saving *saving = &gradient->saved[i];
        const core_value *arg = &args[saving->position];
        core__saved *saved = &node->saved[i];

        if (!(saving->needed_by & wanted))
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

/* Values that lie elsewhere are copied behind the node. */
static inline bool keeps_lists(const core__gradient *gradient,
                               const core_value *args)
{
    for (uint32_t i = 0; i < gradient->nsaved; i++) {
        uint32_t tag = args[gradient->saved[i].position].tag;

        if (gradient->saved[i].kind != CORE__SAVE_RESULT &&
            core__unlikely(tag >= CORE_VALUE_INT_LIST ||
                           tag == CORE_VALUE_STRING))
            return true;
    }
    return false;
}

static inline core_status record(const core__gradient *gradient,
                                 const core_value *args, uint32_t wanted,
                                 core_tensor *result)
{
    core_status status;
    core_node *node;
    int64_t *sizes;

    node = core__node_make(gradient->ngradients, gradient->nsaved, 1,
                           result->ndim * sizeof *sizes, (void **)&sizes);
    if (core__unlikely(!node))
        return core__error_memory(sizeof *node);
    node->kind = CORE__NODE_OPERATOR;
    node->name = gradient->name;
    node->gradient = gradient;
    node->needed = wanted;
    for (uint32_t i = 0; i < result->ndim; i++)
        sizes[i] = result->sizes[i];
    core__meta_fill(node->inputs, result, sizes);
    if (core__unlikely(!result->device->synchronous))
        core__node_place_slow(node);
    status = edges(node, gradient, args, wanted);
    if (core__likely(status == CORE_OK))
        status = save(node, gradient, args, result, wanted);
    if (core__unlikely(status != CORE_OK)) {
        core__node_release(node);
        return status;
    }
    return core__history_set(result, node, 0);
}

core_status core__autograd_plain(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core__shortcut *shortcut = call->user;
    const core__gradient *gradient = shortcut->gradient;
    core__thread *self = core__thread_self();
    uint32_t wanted = 0;
    core_status status;

    if (core__likely(!self->no_grad && !self->anomaly && !self->saved_hooks &&
                     nresults == 1 && !keeps_lists(gradient, args)))
        wanted = wanted_of(gradient, args);
    if (core__unlikely(!wanted))
        return core__autograd_layer(call, args, nargs, results, nresults);
    status = shortcut->below.function(
        (core_call *)(uintptr_t)&shortcut->below_call, args, nargs, results, 1);
    if (core__unlikely(status != CORE_OK ||
                       !core__dtype_is_floating(results[0].u.tensor->dtype)))
        return status;
    status = record(gradient, args, wanted, results[0].u.tensor);
    if (core__unlikely(status != CORE_OK)) {
        core__error_prefix("%s", core__operator_name(call->op));
        core_value_release(&results[0]);
    }
    return status;
}
