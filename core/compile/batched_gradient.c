/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient of a recorded loop inside core_vmap (batched_region.h), for autograd
 * of that call.  The samples do not depend on one another, so the gradients of
 * all of them are those of the loop that computes all samples, if every floating
 * tensor has samples. */

#include "compile/batched_region.h"
#include "compile/region_gradient.h"

#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>

#include <string.h>

/* What the node of the graph inside has. */
typedef struct gradient {
    core__region_gradient *of; /* outside of the call */
    uint64_t level;            /* of the call */
} gradient;

enum { GRADIENT = 2 }; /* the region */

static bool is_float(const core_tensor *tensor)
{
    return core__dtype_is_floating(tensor->dtype);
}

void core__batched_gradient_drop(void *context)
{
    gradient *g = context;

    if (!g)
        return;
    if (g->of)
        core__region_gradient_drop(g->of);
    core__free(g);
}

/* ------------------------------------------------------------- recording -- */

static core_status call(void *context, core_tensor *const *inputs,
                        size_t ninputs, core_tensor **outputs, size_t *noutputs)
{
    (void)ninputs;
    return core__batched_call(context, GRADIENT, inputs, outputs, noutputs);
}

/* b: of the loop, with the function that differentiates its body and `mapped` for
 * the inputs of that.  inputs: what those hold. */
static core_status record_region(core__batched *b, core__region_gradient *g,
                                 const core__region_node *recorded,
                                 core_tensor *const *inputs)
{
    const core__region *function = &b->functions[GRADIENT];
    const core__region region = {.name = function->name,
                                 .part = function->part,
                                 .function = call,
                                 .context = b,
                                 .inputs = inputs,
                                 .ninputs = function->ninputs,
                                 .noutputs = function->noutputs,
                                 .row_major = true};

    CORE_TRY(core__region_node_begin(&g->node, inputs, g->ninputs));
    CORE_TRY(core__region_gradient_share_loop(g, recorded));
    CORE_TRY(core__region_node_record(&g->node, &region, GRADIENT));
    while (g->node.nsources) /* of no use inside */
        core_tensor_release(g->node.sources[--g->node.nsources]);
    return core__region_gradient_check_draws(function, recorded->regions[1],
                                             g->node.regions[GRADIENT]);
}

/* inputs: with space for the floating outputs, of the types of their gradients.
 * mapped: with space for those and the results, all of which have samples. */
static core_status record_gradient(const core__batched *loop,
                                   core__region_gradient *g,
                                   const core__region_node *recorded,
                                   core_tensor **inputs, bool *mapped)
{
    const core__region *body = &loop->functions[1];
    core__region_differentiated d = {body,       g->computed, NULL,
                                     g->nwanted, 0,           NULL};
    core__region functions[GRADIENT + 1] = {loop->functions[0], *body, *body};
    core__batched b = *loop;
    size_t n = body->ninputs;
    core_status status;
    bool before;

    for (size_t i = 0; i < body->noutputs; i++)
        if (is_float(recorded->outputs[i]))
            inputs[n++] = recorded->outputs[i];
    memcpy(mapped, loop->mapped, body->ninputs * sizeof *mapped);
    functions[GRADIENT].function = core__region_gradient_call;
    functions[GRADIENT].context = &d;
    functions[GRADIENT].ninputs = n;
    functions[GRADIENT].noutputs = g->nwanted;
    b.functions = functions;
    b.mapped = mapped;
    b.results = mapped + n;
    for (size_t i = body->ninputs; i < n + g->nwanted; i++)
        mapped[i] = true;
    before = core_grad_mode_set(false);
    pthread_mutex_lock(&g->node.trace->lock);
    status = record_region(&b, g, recorded, inputs);
    pthread_mutex_unlock(&g->node.trace->lock);
    core_grad_mode_set(before);
    return status;
}

static core_status record_of(const core__batched *b, gradient *g,
                             const core__region_node *recorded,
                             core_tensor *const *held)
{
    const core__region *body = &b->functions[1];
    size_t n = body->ninputs, most = 3 * n;
    core__region region = {.ninputs = n, .inputs = held};
    core__region_node node = *recorded;
    core_tensor **inputs = core__alloc_zero(most * sizeof *inputs + most + 1);
    core_status status;

    if (!inputs)
        return core__error_memory(most * sizeof *inputs);
    memcpy(inputs, held, n * sizeof *inputs);
    node.nsources = 0; /* those have a gradient outside */
    status = core__region_gradient_new(&node, &region, false, &g->of);
    if (status == CORE_OK)
        status = record_gradient(b, g->of, recorded, inputs,
                                 (bool *)(void *)(inputs + most));
    core__free(inputs);
    return status;
}

core_status core__batched_gradient_new(core__batched *b,
                                       const core__region_node *recorded,
                                       core_tensor *const *held,
                                       void **out_gradient)
{
    gradient *g = core__alloc_zero(sizeof *g);
    core_status status;

    *out_gradient = NULL;
    if (!g)
        return core__error_memory(sizeof *g);
    g->level = b->batching->level;
    status = record_of(b, g, recorded, held);
    if (status == CORE_OK)
        *out_gradient = g;
    else
        core__batched_gradient_drop(g);
    return status;
}

/* --------------------------------------------------------------- backward -- */

/* Outside of the call.  grads: inside, one per output.  made: outside. */
static core_status add_node(const gradient *g, const core__batching *batching,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **made)
{
    core_tensor **held = core__alloc_zero((ngrads + 1) * sizeof *held);
    core__region_node node;
    core_status status = CORE_OK;

    if (!held)
        return core__error_memory(ngrads * sizeof *held);
    for (size_t i = 0; i < ngrads && status == CORE_OK; i++)
        if (grads[i] && is_float(grads[i]))
            status = core__batched_hold(batching, grads[i], true, &held[i]);
    if (status == CORE_OK)
        status = core__region_gradient_add(g->of, held, ngrads, made, &node);
    for (size_t i = 0; i < ngrads; i++)
        core_tensor_release(held[i]);
    core__free(held);
    return status;
}

static const core__batching *find_call(const gradient *g)
{
    const core__batching *batching = core__thread_self()->batching;

    return batching && batching->level == g->level ? batching : NULL;
}

static core_status check_call(const gradient *g, const char *name)
{
    if (core__thread_self()->trace != g->of->node.trace || !find_call(g))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the call of core_vmap that contains it is not "
                           "being recorded any more",
                           name);
    if (core_grad_mode())
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the second derivative of a loop that is "
                           "recorded inside core_vmap cannot be recorded",
                           name);
    return CORE_OK;
}

/* made: of the floating inputs, outside. */
static core_status give_gradients(const gradient *g,
                                  const core__batching *batching,
                                  core_node *node, core_tensor *const *made,
                                  core_tensor **gradients)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < g->of->ninputs; i++) {
        if (!g->of->computed[i])
            continue;
        if (core_node_needs_gradient(node, i))
            CORE_TRY(
                core__batched_wrap(batching, made[next], true, &gradients[i]));
        next++;
    }
    return CORE_OK;
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    const gradient *g = context;
    core__thread *self = core__thread_self();
    const core__batching *batching = find_call(g);
    core__batching_state before;
    core_tensor **made;
    core_status status;

    (void)ngradients;
    CORE_TRY(check_call(g, core_node_name(node)));
    made = core__alloc_zero((g->of->nwanted + 1) * sizeof *made);
    if (!made)
        return core__error_memory(g->of->nwanted * sizeof *made);
    before = core__batching_leave(self, batching);
    status = add_node(g, batching, grads, ngrads, made);
    core__batching_return(self, before);
    if (status == CORE_OK)
        status = give_gradients(g, batching, node, made, gradients);
    for (uint32_t i = 0; i < g->of->nwanted; i++)
        core_tensor_release(made[i]);
    core__free(made);
    return status;
}

core_status core__batched_gradient_record(const core__batched *b,
                                          void *gradient, core_tensor **outputs)
{
    const core__region *body = &b->functions[1];
    const core_function_info info = {.struct_size = sizeof info,
                                     .name = body->name,
                                     .backward = backward,
                                     .release = core__batched_gradient_drop,
                                     .context = gradient};

    return core_function_record(&info, body->inputs, body->ninputs, NULL, 0,
                                outputs, body->noutputs, NULL);
}
