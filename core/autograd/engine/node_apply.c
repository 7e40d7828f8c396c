/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs a node's formula: unpacks its saved values, calls the function of its
 * kind, and releases what it saved. */

#include "autograd/engine/engine.h"

#include "autograd/engine/accumulate_grad.h"
#include "autograd/graph/anomaly.h"
#include "autograd/graph/autograd_ops.h"
#include "autograd/graph/custom.h"
#include "autograd/engine/destination.h"
#include "autograd/graph/layer.h"
#include "autograd/graph/saved.h"
#include "autograd/graph/view.h"
#include "base/observe.h"
#include "base/thread.h"
#include "ops/has_nan.h"
#include "device/stream.h"
#include "tensor/dtype.h"

/* Unpacks the slots that the program packed, without the lock. */
static core_status unpack_packed(core_node *node,
                                 core__formula_context *context, bool history,
                                 core_value *values)
{
    for (uint32_t i = 0; i < node->nsaved; i++) {
        core__saved *saved = &node->saved[i];
        core_tensor *tensor;

        if (!core__saved_is_packed(saved))
            continue;
        if (saved->kind == CORE__SAVED_LIST) {
            CORE_TRY(core__packed_list_unpack(node, saved, history, &values[i],
                                              &context->lists));
            continue;
        }
        CORE_TRY(core__packed_unpack(node, saved, history, &tensor));
        context->temporaries[context->ntemporaries++] = tensor;
        values[i] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
    }
    return CORE_OK;
}

/* Makes the caller a user of the node, unless it was released. */
static core_status unpack(core_node *node, core__formula_context *context,
                          bool history, core_value *values)
{
    core_status status = CORE_OK;
    bool packed = false;

    core__byte_lock(&node->lock);
    if (core__unlikely(node->released)) {
        core__byte_unlock(&node->lock);
        return core__node_released_error(node);
    }
    node->users++;
    for (uint32_t i = 0; i < node->nsaved && status == CORE_OK; i++) {
        core__saved *saved = &node->saved[i];

        if (core__likely(core__saved_is_ready(saved, history)))
            values[i] = saved->value;
        else if (core__unlikely(core__saved_is_packed(saved)))
            packed = true;
        else
            status = core__saved_unpack(node, saved, history, &values[i],
                                        context->temporaries,
                                        &context->ntemporaries);
    }
    core__byte_unlock(&node->lock);
    if (core__unlikely(packed && status == CORE_OK)) {
        status = unpack_packed(node, context, history, values);
        if (status != CORE_OK)
            core__error_prefix("%s", node->name);
    }
    if (core__unlikely(status != CORE_OK))
        core__node_end_use(node);
    return status;
}

static core_status run_formula(core__task *task, core_node *node,
                               core__formula_context *context)
{
    core_value values[CORE__SAVED_MAX];
    core_status status;

    if (node->nsaved)
        CORE_TRY(unpack(node, context, !core__thread_self()->no_grad, values));
    context->values = values;
    status = CORE_OK;
    if (core__unlikely(task->destinations != NULL))
        status = core__destination_write_formula(task->destinations, context);
    if (core__likely(status == CORE_OK && context->needed))
        status = node->gradient->backward(context);
    if (core__unlikely(status != CORE_OK))
        core__error_prefix("%s", node->name);
    if (node->nsaved)
        core__node_end_use(node);
    return status;
}

static core_status apply_operator(core__task *task, core_node *node,
                                  core_tensor **grads,
                                  const uint8_t *needed_edges,
                                  core_tensor **gradients)
{
    const core__gradient *gradient = node->gradient;
    core__formula_context context;
    core_status status;
    uint32_t edge = 0;

    if (core__unlikely(node->ninputs > 1))
        CORE_TRY(core__gradients_fill_undefined(node, grads));
    context.node = node;
    context.gradient = gradient;
    context.grads = grads;
    context.gradients = gradients;
    context.needed = node->needed;
    context.needed_edges = needed_edges;
    context.ntemporaries = 0;
    context.lists = NULL;
    for (uint32_t i = 0; i < gradient->ngradients; i++) {
        context.first_edge[i] = edge;
        context.edge_count[i] = node->counts[i];
        edge += node->counts[i];
    }
    if (core__unlikely(task->captures != NULL)) {
        context.needed = 0;
        for (uint32_t i = 0; i < gradient->ngradients; i++)
            for (uint32_t e = 0; e < context.edge_count[i]; e++)
                if (needed_edges[context.first_edge[i] + e])
                    context.needed |= 1u << i;
    }
    if (!gradient->backward || !context.needed)
        return CORE_OK;
    status = run_formula(task, node, &context);
    for (uint32_t i = 0; i < context.ntemporaries; i++)
        core__tensor_release(context.temporaries[i]);
    if (core__unlikely(context.lists != NULL))
        core__unpacked_release(context.lists);
    return status;
}

core_status core__node_compute(core__task *task, core_node *node,
                               core_tensor **grads, const uint8_t *needed_edges,
                               core_tensor **gradients)
{
    core__destinations *offered;
    core__thread *self;
    core_status status;

    if (core__likely(node->kind == CORE__NODE_OPERATOR))
        return apply_operator(task, node, grads, needed_edges, gradients);
    switch (node->kind) {
    case CORE__NODE_ACCUMULATE:
        status = core__accumulate_run(task, node, &grads[0]);
        break;
    case CORE__NODE_SLICES:
        if (!core__node_begin_use(node))
            return core__node_released_error(node);
        status = core__slices_run(node, grads, gradients);
        core__node_end_use(node);
        break;
    case CORE__NODE_CUSTOM:
        /* Program code runs with the caller's thread state. */
        self = core__thread_self();
        self->excluded = task->caller.excluded | CORE__KEY_AUTOCAST;
        offered = self->destinations_offered;
        self->destinations_offered = task->destinations;
        status = core__custom_function_run(node, grads, gradients);
        self->destinations_offered = offered;
        self->excluded = task->running.excluded;
        break;
    case CORE__NODE_ONCE:
        return core__error(CORE_ERROR_AUTOGRAD,
                           "%s can be differentiated only once, as its "
                           "backward is not recorded",
                           node->name);
    default:
        return core__error(CORE_ERROR_UNSUPPORTED, "%s has no gradient formula",
                           node->name);
    }
    if (status != CORE_OK)
        core__error_prefix("%s", node->name);
    return status;
}

static core_status check_nan(core_node *node, core_tensor *const *gradients)
{
    core_status status = CORE_OK;
    bool found = false;

    for (uint32_t i = 0; i < node->nedges && status == CORE_OK; i++) {
        if (gradients[i])
            status = core__tensor_has_nan(gradients[i], &found);
        if (found)
            status = core__error(CORE_ERROR_AUTOGRAD,
                                 "%s: gradient %u contains NaN", node->name, i);
    }
    return status;
}

static core_status apply_watching_nan(core__task *task, core_node *node,
                                      core_tensor **grads,
                                      const uint8_t *needed_edges,
                                      core_tensor **gradients)
{
    core__thread *self = core__thread_self();
    core_node *before = self->running;
    bool anomaly = self->anomaly;
    core_status status;
    char text[1500];

    self->running = node;
    self->anomaly = true;
    status = core__node_compute(task, node, grads, needed_edges, gradients);
    self->running = before;
    self->anomaly = anomaly;
    if (status == CORE_OK)
        status = check_nan(node, gradients);
    if (status != CORE_OK)
        core__error_suffix("; the node was recorded at %s",
                           core__anomaly_place(node, text, sizeof text));
    return status;
}

static core_status __attribute__((noinline))
apply_observed(core__task *task, core_node *node, core_tensor **grads,
               const uint8_t *needed_edges, core_tensor **gradients)
{
    uint64_t token = core__observe_begin(CORE__OBSERVED_NODE, node->name,
                                         node->sequence, NULL);
    core_status status =
        task->anomaly
            ? apply_watching_nan(task, node, grads, needed_edges, gradients)
            : core__node_compute(task, node, grads, needed_edges, gradients);

    core__observe_end(token);
    return status;
}

core_status core__node_apply(core__task *task, core_node *node,
                             core_tensor **grads, const uint8_t *needed_edges,
                             core_tensor **gradients)
{
    if (core__unlikely(task->observed))
        return apply_observed(task, node, grads, needed_edges, gradients);
    return core__node_compute(task, node, grads, needed_edges, gradients);
}
