/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient of a recorded loop inside core_vmap (batched_region.h), for autograd
 * of that call.  The samples do not depend on one another, so the gradients of
 * all of them are those of the loop that computes all samples, if every floating
 * tensor has samples. */

#include "compile/control_flow/batched_graph.h"
#include "compile/control_flow/batched_region.h"
#include "compile/control_flow/loop_second_derivative.h"
#include "compile/control_flow/region_gradient.h"
#include "compile/control_flow/region_saved.h"

#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <string.h>

/* What the node of the graph inside has. */
typedef struct gradient {
    core__region_gradient *of; /* outside of the call */
    uint64_t level;            /* of the call */
    bool mapped[];             /* by input, and then by floating output */
} gradient;

/* The region of a loop; of a branch, those of its functions. */
enum { GRADIENT = 2 };

static bool is_float(const core_tensor *tensor)
{
    return core__dtype_is_floating(tensor->dtype);
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        core_tensor_release(tensors[i]);
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

static core_status call_else(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    (void)ninputs;
    return core__batched_call(context, GRADIENT + 1, inputs, outputs, noutputs);
}

/* b: with the functions that differentiate and `mapped` for the inputs of those.
 * inputs: what those hold.  index: of the region. */
static core_status record_region(core__batched *b, core__region_gradient *g,
                                 const core__region_node *recorded,
                                 core_tensor *const *inputs, uint32_t index)
{
    const core__region *function =
        &b->functions[b->loop ? GRADIENT : GRADIENT + index];
    const core__region region = {.name = function->name,
                                 .part = function->part,
                                 .function =
                                     !b->loop && index ? call_else : call,
                                 .context = b,
                                 .inputs = inputs,
                                 .ninputs = function->ninputs,
                                 .noutputs = function->noutputs,
                                 .row_major = b->loop};

    CORE_TRY(core__region_node_record(&g->node, &region, index));
    while (g->node.nsources) /* of no use inside */
        core_tensor_release(g->node.sources[--g->node.nsources]);
    return core__region_gradient_check_draws(
        function, recorded->regions[b->loop ? 1 : index],
        g->node.regions[index]);
}

static core_status record_regions(core__batched *b, core__region_gradient *g,
                                  core_tensor *predicate,
                                  const core__region_node *recorded,
                                  core_tensor *const *inputs)
{
    CORE_TRY(core__region_node_begin(&g->node, inputs, g->ninputs));
    if (!predicate) {
        CORE_TRY(core__region_gradient_share_loop(g, recorded));
        return record_region(b, g, recorded, inputs, GRADIENT);
    }
    CORE_TRY(core__region_node_predicate(&g->node, predicate));
    CORE_TRY(record_region(b, g, recorded, inputs, 0));
    return record_region(b, g, recorded, inputs, 1);
}

/* inputs: with space for the floating outputs, of the types of their gradients.
 * mapped: with space for those and the results, all of which have samples. */
static core_status record_gradient(const core__batched *of, gradient *to,
                                   core_tensor *predicate,
                                   const core__region_node *recorded,
                                   core_tensor **inputs, bool *mapped)
{
    core__region_gradient *g = to->of;
    const core__region *last = &of->functions[1];
    core__region functions[GRADIENT + 2] = {of->functions[0], *last};
    core__region_differentiated d[2];
    core__batched b = *of;
    size_t n = last->ninputs;
    core_status status;
    bool before;

    for (size_t i = 0; i < last->noutputs; i++)
        if (is_float(recorded->outputs[i])) {
            to->mapped[n] = of->results[i];
            inputs[n++] = recorded->outputs[i];
        }
    memcpy(mapped, to->mapped, n * sizeof *mapped);
    for (int k = 0; k < 2; k++) {
        core__region *function = &functions[GRADIENT + k];
        const core__region *differentiated = &of->functions[of->loop ? 1 : k];

        d[k] = (core__region_differentiated){
            differentiated, g->computed, NULL, g->nwanted, 0, NULL, NULL};
        *function = *differentiated;
        function->function = core__region_gradient_call;
        function->context = &d[k];
        function->ninputs = n;
        function->noutputs = g->nwanted;
    }
    b.functions = functions;
    b.mapped = mapped;
    b.results = mapped + n;
    memset(b.results, true, g->nwanted * sizeof *mapped);
    before = core_grad_mode_set(false);
    pthread_mutex_lock(&g->node.trace->lock);
    status = record_regions(&b, g, predicate, recorded, inputs);
    pthread_mutex_unlock(&g->node.trace->lock);
    core_grad_mode_set(before);
    return status;
}

/* Of a branch, inputs that require grad inside have a gradient. */
static void want_inputs(core__region_gradient *g, const core__region *function)
{
    g->nwanted = 0;
    for (size_t i = 0; i < function->ninputs; i++) {
        g->computed[i] = core__tensor_requires_grad(function->inputs[i]);
        g->nwanted += g->computed[i];
    }
}

static core_status record_of(const core__batched *b, gradient *g,
                             core_tensor *predicate,
                             const core__region_node *recorded,
                             core_tensor *const *held)
{
    const core__region *last = &b->functions[1];
    size_t n = last->ninputs, most = 2 * n + last->noutputs;
    core__region region = {.ninputs = n, .inputs = held};
    core__region_node node = *recorded;
    core_tensor **inputs = core__alloc_zero(most * sizeof *inputs + most + 1);
    core_status status;

    if (!inputs)
        return core__error_memory(most * sizeof *inputs);
    memcpy(inputs, held, n * sizeof *inputs);
    node.nsources = 0; /* those have a gradient outside */
    status =
        core__region_gradient_new(&node, &region, predicate != NULL, &g->of);
    if (status == CORE_OK && predicate)
        want_inputs(g->of, last);
    if (status == CORE_OK)
        status = record_gradient(b, g, predicate, recorded, inputs,
                                 (bool *)(void *)(inputs + most));
    core__free(inputs);
    return status;
}

core_status core__batched_gradient_new(core__batched *b, core_tensor *predicate,
                                       const core__region_node *recorded,
                                       core_tensor *const *held,
                                       void **out_gradient)
{
    size_t n = b->functions[1].ninputs;
    size_t size = sizeof(gradient) + n + b->functions[1].noutputs;
    gradient *g = core__alloc_zero(size);
    core_status status;

    *out_gradient = NULL;
    if (!g)
        return core__error_memory(size);
    g->level = b->batching->level;
    memcpy(g->mapped, b->mapped, n * sizeof *g->mapped);
    status = record_of(b, g, predicate, recorded, held);
    if (status == CORE_OK)
        status =
            core__region_captured_note(&g->of->node, predicate ? 0 : GRADIENT);
    if (status == CORE_OK)
        *out_gradient = g;
    else
        core__batched_gradient_drop(g);
    return status;
}

/* --------------------------------------------------------------- backward -- */

/* A backward: tensors inside of the call, what they hold, and the gradients
 * outside.  Everything is owned. */
typedef struct run {
    size_t nstate, ngrads; /* floating ones */
    core_tensor **inside;  /* the inputs of the loop, and the gradients */
    core_tensor **held;
    core_tensor **made;
    size_t nmade;
} run;

static core_status begin_run(const gradient *g, size_t ngrads, run *r)
{
    size_t most = g->of->ninputs + ngrads, count = 2 * most + g->of->nwanted;

    *r = (run){.nstate = g->of->ninputs,
               .inside = core__alloc_zero((count + 1) * sizeof *r->inside),
               .nmade = g->of->nwanted};
    if (!r->inside)
        return core__error_memory(count * sizeof *r->inside);
    r->held = r->inside + most;
    r->made = r->held + most;
    return CORE_OK;
}

static void end_run(run *r)
{
    if (r->inside) {
        release_all(r->inside, r->nstate + r->ngrads);
        release_all(r->held, r->nstate + r->ngrads);
        release_all(r->made, r->nmade);
    }
    core__free(r->inside);
}

/* Outside of the call: the gradient of an output that is the same for all samples,
 * which has none, is zeros, with samples or not. */
static core_status hold_shared(const core__batching *batching,
                               core_tensor *tensor, core_tensor **out)
{
    core_tensor *all;
    core_status status = core__batched_hold(batching, tensor, true, &all);

    if (status == CORE_OK)
        status = core_select(all, 0, 0, out);
    core_tensor_release(all);
    return status;
}

/* Outside of the call. */
static core_status hold_all(const gradient *g, const core__batching *batching,
                            run *r)
{
    for (size_t i = 0; i < r->nstate + r->ngrads; i++) {
        if (!r->inside[i])
            continue;
        CORE_TRY(i < r->nstate || g->mapped[i]
                     ? core__batched_hold(batching, r->inside[i], g->mapped[i],
                                          &r->held[i])
                     : hold_shared(batching, r->inside[i], &r->held[i]));
    }
    return CORE_OK;
}

/* A tensor that the functions read by themselves would get no gradient of the
 * gradient. */
static core_status check_captured(const core__region_node *node)
{
    for (uint32_t k = 0; k < CORE__REGIONS_MAX; k++)
        for (uint32_t i = 0; i < node->captured[k].count; i++)
            if (core__tensor_requires_grad(node->captured[k].tensors[i]))
                return core__error(
                    CORE_ERROR_UNSUPPORTED,
                    "%s: the second derivative of a loop that is recorded "
                    "inside core_vmap and reads a tensor that requires grad "
                    "and is not an input cannot be recorded; pass it as an "
                    "input",
                    CORE__WHILE_NAME);
    return CORE_OK;
}

/* ------------------------------------------------- the second derivative -- */

/* Outside of the call: a graph that ends at leaves in the place of the inputs and
 * the gradients.  recorded: the node that computes r->made. */
static core_status make_second(const gradient *g,
                               const core__region_node *recorded, const run *r,
                               core__batched_graph **out)
{
    size_t nleaves = r->nstate + r->ngrads;
    core__batched_graph *s;

    CORE_TRY(core__batched_graph_new(g->of->node.trace, g->level, nleaves,
                                     r->nmade, out));
    s = *out;
    for (size_t i = 0; i < nleaves; i++) {
        CORE_TRY(core_detach(r->held[i], &s->leaves[i]));
        if (is_float(s->leaves[i]))
            CORE_TRY(core_tensor_set_requires_grad(s->leaves[i], true));
    }
    for (size_t i = 0; i < s->nmade; i++)
        CORE_TRY(core_detach(r->made[i], &s->made[i]));
    return core__loop_second_record(recorded, s->leaves, r->nstate, s->made);
}

/* ------------------------------------------------------------ the gradient -- */

/* Outside of the call: computes r->made, with a history if one is asked for.
 * *out_second: for the one inside. */
static core_status compute(const gradient *g, run *r, bool graph,
                           core__batched_graph **out_second)
{
    core__region_node recorded;
    core_status status;
    bool before = core_grad_mode_set(false);

    *out_second = NULL;
    status = core__region_gradient_add(g->of, r->held + r->nstate, r->ngrads,
                                       r->made, &recorded);
    core_grad_mode_set(before);
    if (status != CORE_OK || !graph)
        return status;
    if (g->of->branch)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the second derivative of a branch that draws "
                           "random numbers and is recorded inside core_vmap "
                           "cannot be recorded",
                           CORE__COND_NAME);
    CORE_TRY(check_captured(&recorded));
    CORE_TRY(make_second(g, &recorded, r, out_second));
    return core__loop_second_record(&recorded, r->held, r->nstate, r->made);
}

/* Inside: the gradients, and their history if s is not NULL, which is taken
 * over. */
static core_status wrap_made(const core__batching *batching, const run *r,
                             core__batched_graph *s, core_tensor **wrapped)
{
    core_status status = CORE_OK;

    for (size_t i = 0; i < r->nmade && status == CORE_OK; i++)
        status = core__batched_wrap(batching, r->made[i], true, &wrapped[i]);
    if (status == CORE_OK && s)
        return core__batched_graph_record(s, CORE__WHILE_BACKWARD_NAME,
                                          r->inside, wrapped);
    core__batched_graph_drop(s);
    return status;
}

/* wrapped: of the floating inputs. */
static void give_gradients(const gradient *g, core_node *node,
                           core_tensor **wrapped, core_tensor **gradients)
{
    uint32_t next = 0;

    for (uint32_t i = 0; i < g->of->ninputs; i++) {
        if (!g->of->computed[i])
            continue;
        if (core_node_needs_gradient(node, i)) {
            gradients[i] = wrapped[next];
            wrapped[next] = NULL;
        }
        next++;
    }
}

static core_status differentiate(const gradient *g, core_node *node, run *r,
                                 core_tensor **gradients)
{
    const core__batching *batching = core__thread_self()->batching;
    core__thread *self = core__thread_self();
    core_tensor **wrapped = core__alloc_zero((r->nmade + 1) * sizeof *wrapped);
    core__batching_state before;
    core__batched_graph *s = NULL;
    core_status status;

    if (!wrapped)
        return core__error_memory(r->nmade * sizeof *wrapped);
    before = core__batching_leave(self, batching);
    status = hold_all(g, batching, r);
    if (status == CORE_OK)
        status = compute(g, r, core_grad_mode(), &s);
    core__batching_return(self, before);
    if (status == CORE_OK)
        status = wrap_made(batching, r, s, wrapped);
    else
        core__batched_graph_drop(s);
    if (status == CORE_OK)
        give_gradients(g, node, wrapped, gradients);
    release_all(wrapped, r->nmade);
    core__free(wrapped);
    return status;
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    const gradient *g = context;
    core_status status;
    run r;

    (void)ngradients;
    CORE_TRY(core__batched_check_call(g->of->node.trace, g->level,
                                      core_node_name(node)));
    CORE_TRY(core__region_captured_check(&g->of->node, node));
    CORE_TRY(begin_run(g, ngrads, &r));
    status = CORE_OK;
    for (size_t i = 0; i < r.nstate && status == CORE_OK; i++)
        status = core_grad_mode()
                     ? core__region_saved_get(node, i, &r.inside[i])
                     : core__region_saved_check(node, i);
    for (size_t i = 0; i < ngrads; i++)
        if (grads[i] && is_float(grads[i]))
            r.inside[r.nstate + r.ngrads++] = core_tensor_retain(grads[i]);
    if (status == CORE_OK)
        status = differentiate(g, node, &r, gradients);
    end_run(&r);
    return status;
}

core_status core__batched_gradient_record(const core__batched *b,
                                          void *gradient, core_tensor **outputs)
{
    const core__region *body = &b->functions[1];
    core_tensor **constants =
        core__alloc((body->noutputs + 1) * sizeof *constants);
    core_function_info info = {.struct_size = sizeof info,
                               .name = body->name,
                               .backward = backward,
                               .release = core__batched_gradient_drop,
                               .context = gradient,
                               .non_differentiable = constants};
    core_status status;

    if (!constants) {
        core__batched_gradient_drop(gradient);
        return core__error_memory(body->noutputs * sizeof *constants);
    }
    /* What is the same for all samples depends on no input that requires grad. */
    for (size_t i = 0; i < body->noutputs; i++)
        if (!b->results[i])
            constants[info.nnon_differentiable++] = outputs[i];
    status =
        core_function_record(&info, body->inputs, body->ninputs, body->inputs,
                             body->ninputs, outputs, body->noutputs, NULL);
    core__free(constants);
    return status;
}
