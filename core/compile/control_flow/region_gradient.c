/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient of a recorded branch or loop: another node with regions, one of
 * which calls a function again and differentiates.  It is recorded together with
 * the first node, since the functions may not exist any more when a backward
 * runs.
 *
 * To differentiate the gradient of a branch, its regions are functions: their
 * operators are called again, now recorded by autograd. */

#include "compile/control_flow/region_gradient.h"
#include "compile/control_flow/loop_second_derivative.h"

#include "autograd/api/partial_gradients.h"
#include "autograd/graph/autograd_meta.h"
#include "base/memory.h"
#include "base/thread.h"
#include "compile/run/run.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>
#include <libcore/control_flow.h>
#include <libcore/ops.h>

#include <string.h>

static bool is_float(const core_tensor *tensor)
{
    return core__dtype_is_floating(tensor->dtype);
}

static void release_all(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++)
        core_tensor_release(tensors[i]);
}

/* --------------------------------------------------------------- regions -- */

/* The inputs as leaves of a new graph.  wanted: those, and the sources. */
static core_status make_leaves(const core__region_differentiated *d,
                               core_tensor *const *inputs, core_tensor **leaves,
                               core_tensor **wanted)
{
    size_t count = 0;

    for (size_t i = 0; i < d->function->ninputs; i++) {
        CORE_TRY(core_detach(inputs[i], &leaves[i]));
        if (!d->wanted[i])
            continue;
        CORE_TRY(core_tensor_set_requires_grad(leaves[i], true));
        wanted[count++] = leaves[i];
    }
    for (size_t i = 0; i < d->nsources; i++)
        wanted[count++] = d->sources[i];
    return CORE_OK;
}

/* grads: one per floating output. */
static core_status differentiate(const core__region_differentiated *d,
                                 core_tensor **leaves, core_tensor **outputs,
                                 core_tensor *const *grads,
                                 core_tensor **wanted, core_tensor **gradients)
{
    size_t count = 0, next = 0, most = d->function->noutputs;
    core_tensor **roots = core__alloc((2 * most + 1) * sizeof *roots);
    core_tensor **tangents = roots + most;
    core_status status = CORE_OK;

    if (!roots)
        return core__error_memory(most * sizeof *roots);
    for (size_t i = 0; i < most; i++) {
        if (!is_float(outputs[i]))
            continue;
        if (core__tensor_requires_grad(outputs[i])) {
            if (d->depend)
                d->depend[i] = true;
            roots[count] = outputs[i];
            tangents[count++] = grads[next];
        }
        next++;
    }
    if (count && d->saved)
        status = core__region_saved_add(d->saved, roots, count, wanted,
                                        d->nwanted + d->nsources, leaves,
                                        d->function->ninputs);
    if (count && status == CORE_OK)
        status = core__partial_gradients(roots, tangents, count, wanted,
                                         d->nwanted + d->nsources, false, false,
                                         gradients);
    core__free(roots);
    for (size_t i = 0; i < d->nwanted + d->nsources && status == CORE_OK; i++)
        if (!gradients[i])
            status = core_zeros_like(wanted[i], CORE_DTYPE_NONE, NULL, -1,
                                     &gradients[i]);
    return status;
}

core_status core__region_gradient_call(void *context,
                                       core_tensor *const *inputs,
                                       size_t ninputs, core_tensor **gradients,
                                       size_t *ngradients)
{
    const core__region_differentiated *d = context;
    size_t n = d->function->ninputs;
    size_t most = 2 * n + d->nsources + d->function->noutputs;
    core_tensor **leaves = core__alloc_zero((most + 1) * sizeof *leaves);
    core_tensor **wanted = leaves + n, **outputs = wanted + n + d->nsources;
    bool before;
    core_status status;

    (void)ninputs;
    if (!leaves)
        return core__error_memory(most * sizeof *leaves);
    before = core_grad_mode_set(true);
    status = make_leaves(d, inputs, leaves, wanted);
    if (status == CORE_OK)
        status = core__region_call(d->function, leaves, outputs);
    if (status == CORE_OK && !core_grad_mode())
        status = core__region_left_error(d->function, "grad mode");
    if (status == CORE_OK)
        status =
            differentiate(d, leaves, outputs, inputs + n, wanted, gradients);
    core_grad_mode_set(before);
    release_all(outputs, d->function->noutputs);
    release_all(leaves, n);
    core__free(leaves);
    *ngradients = d->nwanted + d->nsources;
    return status;
}

/* --------------------------------------------------------------- backward -- */

void core__region_gradient_drop(void *context)
{
    core__region_gradient *g = context;

    core__region_saved_drop(&g->saved);
    core__region_node_drop(&g->node);
    core__free(g);
}

/* The arguments of the node of a backward: those that are known, and the
 * gradients of the floating outputs, row-major. */
static core_status make_arguments(const core__region_gradient *g,
                                  core_tensor *const *grads, size_t ngrads,
                                  core__region_node *node)
{
    core_program *program = node->trace->program;
    const core__program_argument *before =
        &g->node.arguments[CORE__REGION_INPUTS];
    size_t size = (CORE__REGION_ARGUMENTS + 1) * sizeof *before;
    uint32_t *values = core__program_alloc(
        program, (before->count + ngrads + 1) * sizeof *values);
    uint32_t count = before->count;

    node->arguments = core__program_alloc(program, size);
    if (!values || !node->arguments)
        return core__error_memory(size);
    memcpy(node->arguments, g->node.arguments, size);
    if (count)
        memcpy(values, before->u.values, count * sizeof *values);
    for (size_t i = 0; i < ngrads; i++) {
        core_tensor *tangent;
        core_status status;

        if (!grads[i] || !is_float(grads[i]))
            continue;
        CORE_TRY(core_clone(grads[i], CORE_FORMAT_CONTIGUOUS, &tangent));
        status =
            core__traced_read(node->trace, NULL, tangent, &values[count++]);
        core_tensor_release(tangent);
        CORE_TRY(status);
    }
    node->arguments[CORE__REGION_INPUTS].u.values = values;
    node->arguments[CORE__REGION_INPUTS].count = count;
    return node->state ? core__region_node_state(node, node->state) : CORE_OK;
}

core_status core__region_gradient_add(const core__region_gradient *g,
                                      core_tensor *const *grads, size_t ngrads,
                                      core_tensor **made,
                                      core__region_node *out_node)
{
    core__region_node *node = out_node;
    core_status status;

    *node = g->node;
    node->outputs = made;
    node->noutputs = g->nwanted + g->node.nsources;
    pthread_mutex_lock(&node->trace->lock);
    status = make_arguments(g, grads, ngrads, node);
    if (status == CORE_OK)
        status = core__region_node_add(node);
    pthread_mutex_unlock(&node->trace->lock);
    return status;
}

/* ------------------------------------------------------------- the second -- */

/* Calls the operators of a region.  inputs: those of the node, then what each
 * of its regions reads besides. */
static core_status call_region(const core__region_gradient *g, uint32_t index,
                               core_tensor *const *inputs, size_t ninputs,
                               core_tensor **outputs, size_t *noutputs)
{
    core_program *region = g->node.regions[index];
    size_t last = g->node.captured[1].count;
    size_t count = ninputs - g->node.captured[0].count - last;
    size_t from = index ? ninputs - last : count;
    core_tensor **all = core__alloc((region->ninputs + 1) * sizeof *all);
    core_status status;

    if (!all)
        return core__error_memory(region->ninputs * sizeof *all);
    memcpy(all, inputs, count * sizeof *all);
    for (size_t i = 0; i < g->node.captured[index].count; i++)
        all[count + i] = inputs[from + i];
    status = core__program_run_recorded(region, all, outputs);
    core__free(all);
    *noutputs = region->noutputs;
    return status;
}

static core_status call_then(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    return call_region(context, 0, inputs, ninputs, outputs, noutputs);
}

static core_status call_else(void *context, core_tensor *const *inputs,
                             size_t ninputs, core_tensor **outputs,
                             size_t *noutputs)
{
    return call_region(context, 1, inputs, ninputs, outputs, noutputs);
}

/* Views have a history of their own, which reading the whole loses. */
static core_status check_sources(const core__region_gradient *g)
{
    for (uint32_t i = 0; i < g->node.nsources; i++) {
        bool whole = false;

        for (uint32_t k = 0; k < 2; k++)
            for (uint32_t j = 0; j < g->node.captured[k].count; j++)
                whole = whole ||
                        g->node.captured[k].tensors[j] == g->node.sources[i];
        if (!whole)
            return core__error(
                CORE_ERROR_UNSUPPORTED,
                "%s backward: the second derivative of a "
                "recorded branch that reads a view which "
                "requires grad cannot be recorded; pass the view "
                "as an input",
                g->node.name);
    }
    return CORE_OK;
}

/* Space for all of them, once. */
typedef struct arguments {
    core_tensor *predicate;
    core_tensor **inputs; /* with references */
    size_t count;
} arguments;

static core_status collect(const core__region_gradient *g, core_node *node,
                           core_tensor *const *grads, size_t ngrads,
                           arguments *a)
{
    CORE_TRY(core__region_saved_get(node, 0, &a->predicate));
    for (uint32_t i = 0; i < g->ninputs; i++)
        CORE_TRY(core__region_saved_get(node, 1 + i, &a->inputs[a->count++]));
    for (size_t i = 0; i < ngrads; i++)
        if (grads[i] && is_float(grads[i]))
            CORE_TRY(core_clone(grads[i], CORE_FORMAT_CONTIGUOUS,
                                &a->inputs[a->count++]));
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < g->node.captured[k].count; i++) {
            core_tensor *tensor = g->node.captured[k].tensors[i];

            a->inputs[a->count++] = core_tensor_retain(tensor);
        }
    return CORE_OK;
}

static core_status call_branch(core__region_gradient *g, const arguments *a,
                               core_tensor **made)
{
    size_t count = g->nwanted + g->node.nsources;
    const core__region branches[] = {
        {CORE__COND_NAME, "then_function", call_then, g, a->inputs, a->count,
         count, false, false},
        {CORE__COND_NAME, "else_function", call_else, g, a->inputs, a->count,
         count, false, false}};

    return core__region_branch(branches, a->predicate, g->node.state, made);
}

/* Records the gradient of a branch as a branch. */
static core_status branch_backward(core__region_gradient *g, core_node *node,
                                   core_tensor *const *grads, size_t ngrads,
                                   core_tensor **made)
{
    size_t most = g->ninputs + ngrads + g->node.captured[0].count +
                  g->node.captured[1].count;
    arguments a = {.inputs = core__alloc_zero((most + 1) * sizeof *a.inputs)};
    core_status status;

    if (!a.inputs)
        return core__error_memory(most * sizeof *a.inputs);
    status = check_sources(g);
    if (status == CORE_OK)
        status = collect(g, node, grads, ngrads, &a);
    if (status == CORE_OK)
        status = call_branch(g, &a, made);
    core_tensor_release(a.predicate);
    release_all(a.inputs, most);
    core__free(a.inputs);
    return status;
}

/* Records the gradient of a loop, and that it has a derivative. */
static core_status loop_backward(core__region_gradient *g, core_node *node,
                                 core_tensor *const *grads, size_t ngrads,
                                 core_tensor **made)
{
    arguments a = {.inputs = core__alloc_zero((g->ninputs + ngrads + 1) *
                                              sizeof *a.inputs)};
    core__region_node recorded;
    core_status status = CORE_OK;
    bool before;

    if (!a.inputs)
        return core__error_memory((g->ninputs + ngrads) * sizeof *a.inputs);
    for (uint32_t i = 0; i < g->ninputs && status == CORE_OK; i++)
        status = core__region_saved_get(node, i, &a.inputs[a.count++]);
    for (size_t i = 0; i < ngrads; i++)
        if (grads[i] && is_float(grads[i]))
            a.inputs[a.count++] = core_tensor_retain(grads[i]);
    before = core_grad_mode_set(false);
    if (status == CORE_OK)
        status = core__region_gradient_add(g, grads, ngrads, made, &recorded);
    core_grad_mode_set(before);
    if (status == CORE_OK)
        status =
            core__loop_second_record(&recorded, a.inputs, g->ninputs, made);
    release_all(a.inputs, a.count);
    core__free(a.inputs);
    return status;
}

/* What the graph of the functions has saved, and the node for this alone. */
static core_status check_unchanged(const core__region_gradient *g,
                                   core_node *node)
{
    size_t first = g->branch ? 1 : 0;

    for (uint32_t i = 0; i < g->ninputs; i++)
        if (g->saved.inputs[i])
            CORE_TRY(core__region_saved_check(node, first + i));
    for (uint32_t i = 0; i < g->nothers; i++)
        CORE_TRY(core__region_saved_check(node, first + g->ninputs + i));
    return CORE_OK;
}

static core_status record_backward(core__region_gradient *g, core_node *node,
                                   core_tensor *const *grads, size_t ngrads,
                                   core_tensor **made)
{
    core__region_node recorded;

    if (core__thread_self()->trace != g->node.trace)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the program that contains it is not being "
                           "recorded any more",
                           core_node_name(node));
    CORE_TRY(check_unchanged(g, node));
    if (!core_grad_mode())
        return core__region_gradient_add(g, grads, ngrads, made, &recorded);
    return g->branch ? branch_backward(g, node, grads, ngrads, made)
                     : loop_backward(g, node, grads, ngrads, made);
}

static core_status backward(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients)
{
    core__region_gradient *g = context;
    size_t count = g->nwanted + g->node.nsources;
    core_tensor **made = core__alloc_zero((count + 1) * sizeof *made);
    uint32_t next = 0;
    core_status status;

    (void)ngradients;
    if (!made)
        return core__error_memory(count * sizeof *made);
    status = record_backward(g, node, grads, ngrads, made);
    for (uint32_t i = 0; i < ngradients && status == CORE_OK; i++) {
        if (i < g->ninputs && !g->computed[i])
            continue;
        if (core_node_needs_gradient(node, i)) {
            gradients[i] = made[next];
            made[next] = NULL;
        }
        next++;
    }
    release_all(made, count);
    core__free(made);
    return status;
}

/* ---------------------------------------------------------------- forward -- */

core_status core__region_gradient_check_draws(const core__region *function,
                                              const core_program *region,
                                              const core_program *gradient)
{
    if (core__region_blocks(region) == core__region_blocks(gradient))
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: %s draws random numbers in its backward, which a "
                       "recorded gradient cannot repeat",
                       function->name, function->part);
}

/* Records a region that differentiates the function.  inputs: those of the
 * region. */
static core_status record_region(core__region_gradient *g,
                                 const core__region *function,
                                 const core_program *recorded,
                                 core_tensor *const *inputs, size_t ninputs,
                                 uint32_t index)
{
    core__region_differentiated d = {
        function,         g->computed, g->node.sources, g->nwanted,
        g->node.nsources, g->depend,   &g->saved};
    const core__region region = {.name = function->name,
                                 .part = function->part,
                                 .function = core__region_gradient_call,
                                 .context = &d,
                                 .inputs = inputs,
                                 .ninputs = ninputs,
                                 .noutputs = g->nwanted + g->node.nsources,
                                 .row_major = function->row_major};
    uint32_t nsources = g->node.nsources;

    CORE_TRY(core__region_node_record(&g->node, &region, index));
    while (g->node.nsources > nsources) /* of no use: not differentiated */
        core_tensor_release(g->node.sources[--g->node.nsources]);
    return core__region_gradient_check_draws(function, recorded,
                                             g->node.regions[index]);
}

static core_status share_captured(core__region_captured *to,
                                  const core__region_captured *from)
{
    *to = (core__region_captured){
        .values = from->values,
        .tensors = core__alloc((from->count + 1) * sizeof *to->tensors)};
    if (!to->tensors)
        return core__error_memory(from->count * sizeof *to->tensors);
    for (; to->count < from->count; to->count++)
        to->tensors[to->count] = core_tensor_retain(from->tensors[to->count]);
    return CORE_OK;
}

core_status core__region_gradient_share_loop(core__region_gradient *g,
                                             const core__region_node *loop)
{
    for (uint32_t k = 0; k < 2; k++) {
        g->node.regions[k] = core_program_retain(loop->regions[k]);
        g->node.arguments[CORE__REGION_THEN + k] =
            loop->arguments[CORE__REGION_THEN + k];
        CORE_TRY(share_captured(&g->node.captured[k], &loop->captured[k]));
    }
    return CORE_OK;
}

static core_status record_regions(core__region_gradient *g,
                                  const core__region_node *recorded,
                                  const core__region *functions,
                                  core_tensor *const *inputs, size_t ninputs)
{
    if (!g->branch) {
        CORE_TRY(core__region_gradient_share_loop(g, recorded));
        return record_region(g, &functions[1], recorded->regions[1], inputs,
                             ninputs, 2);
    }
    for (uint32_t k = 0; k < 2; k++)
        CORE_TRY(record_region(g, &functions[k], recorded->regions[k], inputs,
                               ninputs, k));
    return CORE_OK;
}

static core_status record_gradient(core__region_gradient *g,
                                   const core__region_node *recorded,
                                   const core__region *functions,
                                   core_tensor *predicate)
{
    size_t n = functions[1].ninputs, m = functions[1].noutputs, count = n;
    core_tensor **inputs = core__alloc((n + m + 1) * sizeof *inputs);
    core_status status;

    if (!inputs)
        return core__error_memory((n + m) * sizeof *inputs);
    for (size_t i = 0; i < n; i++)
        inputs[i] = functions[1].inputs[i];
    for (size_t i = 0; i < m; i++)
        if (is_float(recorded->outputs[i])) /* of the type of its gradient */
            inputs[count++] = recorded->outputs[i];
    status = core__region_node_begin(&g->node, inputs, n);
    if (status == CORE_OK && predicate)
        status = core__region_node_predicate(&g->node, predicate);
    if (status == CORE_OK)
        status = record_regions(g, recorded, functions, inputs, count);
    core__free(inputs);
    return status;
}

core_status core__region_gradient_new(const core__region_node *recorded,
                                      const core__region *function, bool branch,
                                      core__region_gradient **out)
{
    size_t size = sizeof **out + 2 * function->ninputs + function->noutputs;
    core__region_gradient *g = core__alloc_zero(size);

    *out = g;
    if (!g)
        return core__error_memory(size);
    g->node.trace = recorded->trace;
    g->node.state = core_tensor_retain(recorded->state);
    g->node.name = branch ? CORE__COND_NAME : CORE__WHILE_BACKWARD_NAME;
    g->branch = branch;
    g->ninputs = (uint32_t)function->ninputs;
    g->saved.inputs = g->computed + g->ninputs;
    g->depend = g->saved.inputs + g->ninputs;
    for (uint32_t i = 0; i < g->ninputs; i++) {
        g->computed[i] = branch
                             ? core__tensor_requires_grad(function->inputs[i])
                             : is_float(function->inputs[i]);
        g->nwanted += g->computed[i];
    }
    for (uint32_t i = 0; i < recorded->nsources; i++) {
        core_tensor **added = core__program_grow(
            &g->node.sources, &g->node.nsources, sizeof *added);

        if (!added)
            return core__error_memory(sizeof *added);
        *added = core_tensor_retain(recorded->sources[i]);
    }
    return CORE_OK;
}

/* The floating outputs of a branch that no function computes from something that
 * requires grad.  Any output of a loop may depend on the others. */
static size_t find_constants(const core__region_gradient *g,
                             core_tensor **outputs, size_t noutputs,
                             core_tensor **constants)
{
    size_t count = 0;

    for (size_t i = 0; g->branch && i < noutputs; i++)
        if (!g->depend[i] && is_float(outputs[i]))
            constants[count++] = outputs[i];
    return count;
}

/* The first turn of a loop begins with copies of inputs that are not row-major. */
static void forget_copied(core__region_gradient *g,
                          const core__region *function)
{
    for (uint32_t i = 0; i < g->ninputs && !g->branch; i++)
        if (!core__region_is_row_major(function->inputs[i]))
            g->saved.inputs[i] = false;
}

/* What the node saves: the predicate of a branch, the inputs, and what the graph
 * of the functions saves besides. */
static size_t list_saved(core__region_gradient *g, const core__region *function,
                         core_tensor *predicate, core_tensor **saved)
{
    size_t count = 0;

    if (g->branch)
        saved[count++] = predicate;
    for (uint32_t i = 0; i < g->ninputs; i++)
        saved[count++] = function->inputs[i];
    g->nothers = g->saved.nothers;
    for (uint32_t i = 0; i < g->nothers; i++)
        saved[count++] = g->saved.others[i];
    return count;
}

/* The inputs and sources have gradients.  Predicate and inputs are saved for the
 * second derivative, too. */
static core_status record_function(core__region_gradient *g,
                                   const core__region *function,
                                   core_tensor *predicate,
                                   core_tensor **outputs)
{
    core__region_saved known = g->saved;
    core_function_info info = {.struct_size = sizeof info,
                               .name = function->name,
                               .backward = backward,
                               .release = core__region_gradient_drop,
                               .context = g};
    size_t n = function->ninputs, count = n + g->node.nsources, nsaved;
    size_t most = count + n + 1 + known.nothers + function->noutputs;
    core_tensor **tensors = core__alloc((most + 1) * sizeof *tensors);
    core_tensor **saved = tensors + count;
    core_status status;

    if (!tensors) {
        core__region_gradient_drop(g);
        return core__error_memory(most * sizeof *tensors);
    }
    for (size_t i = 0; i < count; i++)
        tensors[i] = i < n ? function->inputs[i] : g->node.sources[i - n];
    forget_copied(g, function);
    nsaved = list_saved(g, function, predicate, saved);
    info.non_differentiable = saved + nsaved;
    info.nnon_differentiable =
        find_constants(g, outputs, function->noutputs, saved + nsaved);
    /* The node holds them otherwise than as its context: it may become the
     * history of one. */
    g->saved.others = NULL;
    g->saved.nothers = 0;
    status = core_function_record(&info, tensors, count, saved, nsaved, outputs,
                                  function->noutputs, NULL);
    core__free(tensors);
    core__region_saved_drop(&known);
    return status;
}

core_status core__region_differentiate(const core__region_node *recorded,
                                       const core__region *functions,
                                       core_tensor *predicate,
                                       core_tensor **outputs)
{
    core_status status;
    core__region_gradient *g;

    status = core__region_gradient_new(recorded, &functions[1],
                                       predicate != NULL, &g);
    if (status == CORE_OK)
        status = record_gradient(g, recorded, functions, predicate);
    if (status == CORE_OK)
        return record_function(g, &functions[1], predicate, outputs);
    if (g)
        core__region_gradient_drop(g);
    return status;
}
