/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Nodes inside core_vmap whose gradient is that of a graph outside
 * (batched_graph.h). */

#include "compile/control_flow/batched_graph.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"

#include <libcore/autograd.h>

core_status core__batched_check_call(const core__trace *trace, uint64_t level,
                                     const char *name)
{
    const core__thread *self = core__thread_self();

    if (self->trace == trace && self->batching &&
        self->batching->level == level)
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: the call of core_vmap that contains it is not "
                       "being recorded any more",
                       name);
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        core_tensor_release(tensors[i]);
}

core_status core__batched_graph_new(core__trace *trace, uint64_t level,
                                    size_t nleaves, size_t nmade,
                                    core__batched_graph **out)
{
    size_t size = sizeof **out + (nleaves + nmade) * sizeof(core_tensor *);
    core__batched_graph *graph = core__alloc_zero(size);

    *out = graph;
    if (!graph)
        return core__error_memory(size);
    *graph =
        (core__batched_graph){.trace = trace,
                              .level = level,
                              .nleaves = nleaves,
                              .nmade = nmade,
                              .leaves = (core_tensor **)(void *)(graph + 1)};
    graph->made = graph->leaves + nleaves;
    return CORE_OK;
}

void core__batched_graph_drop(void *context)
{
    core__batched_graph *graph = context;

    if (!graph)
        return;
    release_all(graph->leaves, graph->nleaves + graph->nmade);
    core__free(graph);
}

/* --------------------------------------------------------------- backward -- */

/* Outside of the call.  Arrays of the graph's sizes. */
typedef struct differentiation {
    core_tensor **roots, **tangents; /* tangents: owned */
    core_tensor **wanted, **results; /* results: owned */
    size_t nroots, nwanted;
} differentiation;

static core_status find_roots(const core__batched_graph *graph,
                              const core__batching *batching,
                              core_tensor *const *grads, differentiation *d)
{
    for (size_t i = 0; i < graph->nleaves; i++)
        if (core__tensor_requires_grad(graph->leaves[i]))
            d->wanted[d->nwanted++] = graph->leaves[i];
    for (size_t i = 0; i < graph->nmade; i++) {
        if (!grads[i] || !core__tensor_requires_grad(graph->made[i]))
            continue;
        d->roots[d->nroots] = graph->made[i];
        CORE_TRY(core__batched_hold(batching, grads[i], true,
                                    &d->tangents[d->nroots++]));
    }
    return CORE_OK;
}

static core_status differentiate(const core__batched_graph *graph,
                                 core_tensor *const *grads, differentiation *d)
{
    core__thread *self = core__thread_self();
    const core__batching *batching = self->batching;
    core__batching_state before = core__batching_leave(self, batching);
    core_status status = find_roots(graph, batching, grads, d);

    if (status == CORE_OK && d->nroots)
        status =
            core_grad(d->roots, d->nroots, d->tangents, d->wanted, d->nwanted,
                      CORE_RETAIN_GRAPH | CORE_ALLOW_UNUSED, d->results);
    core__batching_return(self, before);
    return status;
}

static core_status give_gradients(const core__batched_graph *graph,
                                  core_node *node, core_tensor *const *results,
                                  core_tensor **gradients)
{
    const core__batching *batching = core__thread_self()->batching;
    size_t next = 0;

    for (size_t i = 0; i < graph->nleaves; i++) {
        core_tensor *result;

        if (!core__tensor_requires_grad(graph->leaves[i]))
            continue;
        result = results[next++];
        if (result && core_node_needs_gradient(node, i))
            CORE_TRY(core__batched_wrap(batching, result, true, &gradients[i]));
    }
    return CORE_OK;
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    const core__batched_graph *graph = context;
    size_t count = 2 * (graph->nmade + graph->nleaves);
    differentiation d = {0};
    core_status status;

    (void)ngrads;
    (void)ngradients;
    CORE_TRY(core__batched_check_call(graph->trace, graph->level,
                                      core_node_name(node)));
    if (core_grad_mode())
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: a further derivative of a loop that is "
                           "recorded inside core_vmap cannot be recorded",
                           core_node_name(node));
    d.roots = core__alloc_zero((count + 1) * sizeof *d.roots);
    if (!d.roots)
        return core__error_memory(count * sizeof *d.roots);
    d.tangents = d.roots + graph->nmade;
    d.wanted = d.tangents + graph->nmade;
    d.results = d.wanted + graph->nleaves;
    status = differentiate(graph, grads, &d);
    if (status == CORE_OK)
        status = give_gradients(graph, node, d.results, gradients);
    release_all(d.tangents, graph->nmade);
    release_all(d.results, graph->nleaves);
    core__free(d.roots);
    return status;
}

core_status core__batched_graph_record(core__batched_graph *graph,
                                       const char *name,
                                       core_tensor *const *inputs,
                                       core_tensor **outputs)
{
    const core_function_info info = {.struct_size = sizeof info,
                                     .name = name,
                                     .backward = backward,
                                     .release = core__batched_graph_drop,
                                     .context = graph};

    return core_function_record(&info, inputs, graph->nleaves, NULL, 0, outputs,
                                graph->nmade, NULL);
}
