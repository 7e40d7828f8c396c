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
        if ((gradient->saved[i].kind != CORE__SAVE_ARGUMENT &&
             gradient->saved[i].kind != CORE__SAVE_RESULT &&
             gradient->saved[i].kind != CORE__SAVE_VALUE) ||
            gradient->saved[i].apart)
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

/* What is not set yet is nothing, for the release of a node that failed. */
static void edges_end(core_node *node, uint32_t from)
{
    for (uint32_t i = from; i < node->nedges; i++)
        node->edges[i].node = NULL;
}

static inline core_status set_edges(core_node *node,
                                    const core__gradient *gradient,
                                    const core_value *args, uint32_t wanted)
{
    for (uint32_t i = 0; i < gradient->ngradients; i++) {
        core_tensor *tensor = args[gradient->arguments[i]].u.tensor;
        core__autograd *record = tensor->autograd;
        core__edge *edge = &node->edges[i];

        node->counts[i] = 1;
        edge->node = NULL;
        if (!(wanted >> i & 1))
            continue;
        edge->input = 0;
        if (core__likely(record && record->grad_fn)) {
            core__node_retain(record->grad_fn);
            edge->node = record->grad_fn;
            edge->input = record->output;
        } else {
            core_status status = core__accumulator(tensor, &edge->node);

            if (core__unlikely(status != CORE_OK)) {
                edges_end(node, i);
                return status;
            }
        }
    }
    return CORE_OK;
}

/* Slots have no kind yet. */
static inline core_status save(core_node *node, const core__gradient *gradient,
                               const core_value *args, core_tensor *result,
                               uint32_t wanted)
{
    for (uint32_t i = 0; i < node->nsaved; i++)
        node->saved[i].kind = CORE__SAVED_NONE;
    for (uint32_t i = 0; i < node->nsaved; i++) {
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

/* Slots for what is saved; none, where no wanted gradient needs anything. */
static inline uint32_t slots_of(const core__gradient *gradient, uint32_t wanted)
{
    for (uint32_t i = 0; i < gradient->nsaved; i++)
        if (gradient->saved[i].needed_by & wanted)
            return gradient->nsaved;
    return 0;
}

static inline core_status record(const core__gradient *gradient,
                                 const core_value *args, uint32_t wanted,
                                 core_tensor *result)
{
    uint32_t nsaved = slots_of(gradient, wanted), ndim = result->ndim;
    core_status status;
    core_node *node;
    int64_t *sizes;

    node = core__node_make_bare(gradient->ngradients, nsaved, 1,
                                ndim * sizeof *sizes, (void **)&sizes);
    if (core__unlikely(!node))
        return core__error_memory(sizeof *node);
    node->kind = CORE__NODE_OPERATOR;
    node->name = gradient->name;
    node->gradient = gradient;
    node->needed = wanted;
    for (uint32_t i = 0; i < ndim; i++)
        sizes[i] = result->sizes[i];
    core__meta_fill(node->inputs, result, sizes);
    if (core__unlikely(!result->device->synchronous))
        core__node_place_slow(node);
    status = set_edges(node, gradient, args, wanted);
    if (core__likely(status == CORE_OK))
        status = save(node, gradient, args, result, wanted);
    else
        node->nsaved = 0;
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
                     nresults == 1))
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
